//! What honest neighbours say.

use super::table::Table;
use crate::{
    cluster::{
        begin::reports::Report,
        event::Event,
        message::CheckpointSchedule,
        statements::{Batch, Links, Said, Statement},
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
    if me != NodeId(0) && table.round > table.schedule.next {
        let (number, next) = (table.schedule.number + 1, table.round + 4);
        let next = next.min(table.run.design.experiment.run.rounds);
        table.schedule = CheckpointSchedule { number, next };
        statements.push(table.signed(NodeId(0), Said::Schedule(table.schedule)));
    }
    table.event(Event::Told { from, batch: statements.into() });
}

/// All others have written their results, as a neighbour passes on.
pub(super) fn wrote(table: &mut Table, from: NodeId) {
    let ((me, members), results) = (table.place(), table.disk.results.clone());
    let number = results.map_or(0, |results| results.number);
    let others = (0..members).map(NodeId::from).filter(|node| *node != me);
    let statements: Vec<Statement> =
        others.map(|node| table.signed(node, Said::Written(number))).collect();
    table.event(Event::Told { from, batch: statements.into() });
}

/// What all others report of their checkpoints, that they are linked, and where they begin.
pub(super) fn reports_of_all(table: &Table) -> Batch {
    let (me, members) = table.place();
    let mut batch = Batch::default();
    for node in (0..members).map(NodeId::from).filter(|node| *node != me) {
        let saved = table.peers.saved(table.number(node));
        let (kept, common) = (saved.kept, saved.common);
        let report = Report { kept, common, ..Report::default() };
        let attempts = vec![Some(table.attempt()); table.degree(node)];
        let links = Links { number: 1, attempts };
        let says = [Said::Report(report), Said::Links(links)];
        batch.statements.extend(says.map(|said| table.signed(node, said)));
        batch.histories.push(saved.history);
    }
    batch
}

/// All others say that they begin at the same place as the node, and with the same initial model.
pub(super) fn begin(table: &mut Table) {
    let Some(from) = table.linked_member() else { return };
    let (me, members) = table.place();
    let others = (0..members).map(NodeId::from).filter(|node| *node != me);
    let said = [Some(Said::Begins(table.begins)), table.initial.map(Said::Initial)];
    let of_node = |node| said.iter().flatten().map(move |said| (node, said.clone()));
    let statements: Vec<Statement> =
        others.flat_map(of_node).map(|(node, said)| table.signed(node, said)).collect();
    table.event(Event::Told { from, batch: statements.into() });
}
