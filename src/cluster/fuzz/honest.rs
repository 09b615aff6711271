//! What honest neighbours say.

use super::table::Table;
use crate::{
    cluster::{
        event::Event,
        message::{Beginning, CheckpointId, CheckpointSchedule, Saved},
        statements::{Said, Statement},
    },
    drive::Change,
    units::{NodeId, Round},
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

/// The checkpoints of these nodes, by their numbers among the members.
pub(super) fn ready(table: &Table, nodes: Vec<NodeId>) -> Saved {
    let kept = |node: NodeId| (node, table.peers.kept(table.number(node)));
    let newest = table.disk.checkpoints.values().next_back();
    let mut saved = Saved { nodes: nodes.into_iter().map(kept).collect(), ..Saved::default() };
    if let Some(newest) = newest {
        saved.history.clone_from(&newest.history);
        let common = CheckpointId { membership: newest.membership, rounds: newest.common };
        saved.common = common.min(saved.newest());
    }
    saved
}

/// Where the root lets the run begin or continue.
pub(super) fn decided(table: &Table) -> Beginning {
    let (me, members) = table.place();
    let id = table.membership().id;
    let others = || (0..members).map(NodeId::from).filter(|node| *node != me);
    let has = |node: NodeId, rounds: u64| {
        table.peers.kept(table.number(node)).iter().any(|kept| kept.rounds == rounds)
    };
    let mut own = table.disk.checkpoints.iter().rev();
    let of_all = own
        .find(|(rounds, kept)| kept.membership == id && others().all(|node| has(node, **rounds)));
    if let Some((&rounds, kept)) = of_all {
        return Beginning { rounds, history: kept.history.clone(), ..Beginning::default() };
    }
    let Some((&rounds, newest)) = table.disk.checkpoints.iter().next_back() else {
        let all = table.membership();
        let (members, cut) = (all.members.clone(), all.cut.clone());
        let first = Change { id, members, cut, ..Change::default() };
        let history = if id == 0 { Vec::new() } else { vec![first] };
        return Beginning { history, ..Beginning::default() };
    };
    let without: Vec<NodeId> = others().filter(|&node| !has(node, rounds)).collect();
    let all = table.membership();
    let is_with =
        |number: &&NodeId| all.place(**number).is_some_and(|place| !without.contains(&place));
    let models = all.members.iter().filter(is_with).copied().collect();
    let (members, cut) = (all.members.clone(), all.cut.clone());
    let mut history = newest.history.clone();
    history.push(Change { id, round: Round(rounds), members, cut, models });
    Beginning { rounds, from_mean: true, without, history }
}
