//! What honest neighbours say.

use super::table::Table;
use crate::{
    cluster::{
        event::Event,
        message::{CheckpointReport, CheckpointSchedule, Reports},
    },
    units::NodeId,
};

/// The neighbours pass on which checkpoints nodes have, and what node 0 says of them.
pub(super) fn reports(table: &mut Table) {
    let (me, members) = table.place();
    let others = (0..members).map(NodeId::from).filter(|node| *node != me);
    let newest = |node: NodeId| {
        let kept = table.peers.kept(table.number(node));
        kept.last().map_or(0, |kept| kept.rounds)
    };
    let reports: Vec<(NodeId, u64)> = others.map(|node| (node, newest(node))).collect();
    let own = table.disk.checkpoints.keys().next_back().copied().unwrap_or(0);
    let common = reports.iter().map(|(_, rounds)| *rounds).min().unwrap_or(0).min(own);
    if me != NodeId(0) && common > table.schedule.common {
        let (number, next) = (table.schedule.number + 1, table.round + 4);
        table.event(Event::Schedule(CheckpointSchedule { number, next, common }));
    }
    table.event(Event::Saved(reports));
}

/// The signed reports of these nodes, by their numbers among the members.
pub(super) fn reports_of(table: &Table, nodes: Vec<NodeId>) -> Reports {
    let one = |node: NodeId| {
        let saved = match node == table.place().0 {
            true => table.saved.clone(),
            false => table.peers.saved(table.number(node)),
        };
        Reports {
            nodes: vec![CheckpointReport::new((node, 0), &saved, &table.signer(node))],
            histories: if saved.history.is_empty() { Vec::new() } else { vec![saved.history] },
        }
    };
    let mut all = Reports::default();
    nodes.into_iter().for_each(|node| all.add(&one(node)));
    all
}
