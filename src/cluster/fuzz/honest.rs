//! What honest neighbours say.

use super::table::Table;
use crate::{
    cluster::{
        event::Event,
        message::{CheckpointReport, CheckpointSchedule, Reports},
        statements::{Said, Statement},
    },
    units::NodeId,
};

/// The neighbours pass on which checkpoints nodes have, and what node 0 says of them.
pub(super) fn reports(table: &mut Table) {
    let Some(from) = table.linked_member() else { return };
    let (me, members) = table.place();
    let others = (0..members).map(NodeId::from).filter(|node| *node != me);
    let newest = |node: NodeId| {
        let kept = table.peers.kept(table.number(node));
        kept.last().map_or(0, |kept| kept.rounds)
    };
    let reports: Vec<(NodeId, u64)> = others.map(|node| (node, newest(node))).collect();
    let said = |(node, rounds): &(NodeId, u64)| table.signed(*node, Said::Saved(*rounds));
    let mut statements: Vec<Statement> = reports.iter().map(said).collect();
    let own = table.disk.checkpoints.keys().next_back().copied().unwrap_or(0);
    let common = reports.iter().map(|(_, rounds)| *rounds).min().unwrap_or(0).min(own);
    if me != NodeId(0) && common > table.schedule.common {
        let (number, next) = (table.schedule.number + 1, table.round + 4);
        let next = next.min(table.run.design.experiment.run.rounds);
        table.schedule = CheckpointSchedule { number, next, common };
        statements.push(table.signed(NodeId(0), Said::Schedule(table.schedule)));
    }
    table.event(Event::Told { from, statements });
}

/// All others have written their results, as a neighbour passes on.
pub(super) fn wrote(table: &mut Table, from: NodeId) {
    let ((me, members), results) = (table.place(), table.disk.results.clone());
    let number = results.map_or(0, |results| results.number);
    let others = (0..members).map(NodeId::from).filter(|node| *node != me);
    let statements = others.map(|node| table.signed(node, Said::Written(number))).collect();
    table.event(Event::Told { from, statements });
}

/// The signed reports of these nodes, by their numbers among the members.
pub(super) fn reports_of(table: &Table, nodes: Vec<NodeId>) -> Reports {
    let one = |node: NodeId| {
        let saved = match node == table.place().0 {
            true => table.saved.clone(),
            false => table.peers.saved(table.number(node)),
        };
        Reports {
            nodes: vec![CheckpointReport::new((node, 1), &saved, &table.signer(node))],
            histories: if saved.history.is_empty() { Vec::new() } else { vec![saved.history] },
        }
    };
    let mut all = Reports::default();
    nodes.into_iter().for_each(|node| all.add(&one(node)));
    all
}
