//! What a hostile neighbour says: any message that a link passes on.

use super::{bytes::Bytes, honest, table::Table};
use crate::{
    cluster::{
        begin::reports::Report,
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::{CheckpointId, CheckpointSchedule},
        statements::{Batch, Links, Said, Shared, Statement},
    },
    drive::{Change, Membership},
    gossip::{
        Cause, Readers,
        frame::{self, Header},
        plan::At,
    },
    units::{NodeId, Round},
};

/// What this neighbour says before the rounds, and what it knows of the members.
pub(super) enum Start {
    Says(Batch),
    Knows(News),
}

pub(super) fn start(bytes: &mut Bytes<'_>, table: &Table) -> Start {
    match bytes.byte() % 8 {
        0..=3 => Start::Says(reports_of(bytes, table)),
        4 => Start::Says(vec![links(bytes, table)].into()),
        5 => {
            let said = Said::Begins(bytes.number(table.begins));
            Start::Says(vec![signed(table, table.hostile_place(), said, false)].into())
        }
        6 => Start::Knows(news(bytes, table)),
        _ => Start::Knows(own_news(bytes, table)),
    }
}

/// Its links, with any attempts.
fn links(bytes: &mut Bytes<'_>, table: &Table) -> Statement {
    let number = bytes.number(1);
    let attempts = bytes.list(3, |bytes| bytes.flag().then(|| bytes.number(table.attempt())));
    let said = Said::Links(Links { number, attempts });
    signed(table, table.hostile_place(), said, bytes.byte() == 9)
}

/// A checkpoint near one that the node has.
fn checkpoint(bytes: &mut Bytes<'_>, table: &Table) -> CheckpointId {
    let newest = table.disk.checkpoints.values().next_back();
    let (membership, rounds) =
        newest.map_or((0, 2), |kept| (kept.membership, kept.snapshot.rounds.0));
    let membership = match bytes.flag() {
        true => table.membership().id,
        false => membership,
    };
    let history = match bytes.flag() {
        true => table.saved.history.clone(),
        false => history(bytes, table),
    };
    CheckpointId::new(bytes.number(membership), bytes.number(rounds), &history)
}

/// The reports of all, as they are, but for what the hostile neighbour says of itself or of others.
fn reports_of(bytes: &mut Bytes<'_>, table: &Table) -> Batch {
    let mut batch = honest::reports_of_all(table);
    let kind = bytes.byte();
    let (_, members) = table.place();
    let node = if kind & 1 == 0 { table.hostile_place() } else { bytes.node(members) };
    let mut kept = bytes.list(3, |bytes| checkpoint(bytes, table));
    match kind >> 1 & 3 {
        0 | 2 => kept.sort_unstable(),
        3 => within(&mut kept, table),
        _ => {}
    }
    let (common, history) = (checkpoint(bytes, table), history(bytes, table));
    let report = Report { kept, common, guards: bytes.flag(), ..Report::default() };
    // It has its own key only.
    let number = table.number(node);
    let of = (table.membership().id, bytes.number(table.attempt()));
    let said = Said::Report(report);
    let statement = Statement::signed(&Named(table.hostile), (node, number), of, said);
    if kind & 8 == 0 {
        batch.statements.retain(|one| one.node != node);
    }
    batch.statements.push(statement);
    if kind & 4 == 0 {
        batch.histories.push(history);
    }
    batch
}

/// Checkpoints that its node can have.
fn within(kept: &mut Vec<CheckpointId>, table: &Table) {
    let rounds = table.run.design.experiment.run.rounds;
    for one in kept.iter_mut() {
        let membership = one.membership.min(table.membership().id);
        let rounds = 1 + one.rounds % rounds;
        *one = CheckpointId::within(membership, rounds, &table.saved.history);
    }
    kept.sort_unstable();
    kept.dedup();
}

fn history(bytes: &mut Bytes<'_>, table: &Table) -> Vec<Change> {
    let nodes = table.run.design.topology.nodes();
    bytes.list(2, |bytes| Change {
        id: bytes.number(table.membership().id),
        round: Round(bytes.number(table.round)),
        members: bytes.subset(nodes),
        cut: bytes.list(2, |bytes| (bytes.node(nodes), bytes.node(nodes))),
        models: bytes.list(3, |bytes| bytes.node(nodes)),
    })
}

/// Views with the signature of the hostile neighbour, those of others with it, too; or what others
/// have signed.
fn news(bytes: &mut Bytes<'_>, table: &Table) -> News {
    let nodes = table.run.design.topology.nodes();
    let views = bytes.list(nodes, |bytes| {
        let kind = bytes.byte();
        let node = if kind & 1 == 0 { table.hostile } else { bytes.node(nodes) };
        let known = table.peers.news(node).and_then(|news| {
            news.views.into_iter().find_map(|(of, view)| (of == node).then_some(view))
        });
        if let (2 | 3, Some(view)) = (kind >> 1 & 3, &known) {
            return (node, view.clone());
        }
        let (before, choice) = known.map_or((0, 0), |view| (view.number, view.choice));
        let results = table.disk.results.as_ref().map_or(7, |written| written.number);
        let adopted = match bytes.flag() {
            true => table.checks.newest,
            // The next one of some members.
            false => {
                let members = bytes.subset(nodes);
                Membership::after([table.checks.newest].into_iter(), members, Vec::new()).id
            }
        };
        let mut view = View {
            choice: choice + u64::from(kind >> 6),
            number: bytes.number(before),
            linked: bytes.subset(nodes),
            late: bytes.subset(nodes),
            adopted: bytes.number(adopted),
            agreed: bytes.flag(),
            started: bytes.flag(),
            results: bytes.flag().then(|| bytes.number(results)),
            over: bytes.flag(),
            signature: Vec::new(),
        };
        let neighbours = table.run.design.topology.neighbours(node);
        view.linked.retain(|peer| neighbours.contains(peer));
        view.late.retain(|peer| neighbours.contains(peer));
        let signer = Named(table.hostile);
        view.signature = match kind >> 3 {
            0 => bytes.some(8),
            _ => signer.sign(&statement(node, &view)),
        };
        (node, view)
    });
    News { views }
}

/// What nodes say of their checkpoints, as the hostile neighbour passes it on. It signs its own
/// words, and may sign for others.
pub(super) fn reports(bytes: &mut Bytes<'_>, table: &Table) -> Vec<Statement> {
    let (_, members) = table.place();
    let forges = bytes.byte() == 9;
    bytes.list(members, |bytes| {
        let said = Said::Saved(bytes.number(table.round));
        signed(table, bytes.node(members), said, forges)
    })
}

pub(super) fn schedule(bytes: &mut Bytes<'_>, table: &Table) -> Vec<Statement> {
    let said = match bytes.byte() % 5 {
        4 => Said::Initial([bytes.byte(); 16]),
        0 => Said::Written(bytes.number(table.round)),
        1 => Said::Shared(Shared {
            round: bytes.number(table.round),
            flight: 0,
            fingerprint: [bytes.byte(); 16],
        }),
        _ => Said::Schedule(CheckpointSchedule {
            number: bytes.number(table.schedule.number + 1),
            next: bytes.number(table.round + 1),
        }),
    };
    let (_, members) = table.place();
    vec![signed(table, bytes.node(members), said, bytes.byte() == 9)]
}

/// A statement that its node has signed, or the hostile neighbour in its place.
fn signed(table: &Table, node: NodeId, said: Said, forges: bool) -> Statement {
    let mut statement = table.signed(node, said);
    if forges {
        statement.signature = Named(table.hostile).sign(&statement.signature);
    }
    statement
}

/// What the hostile neighbour can say about itself: the next view, of the newest membership or one
/// that follows it.
fn own_news(bytes: &mut Bytes<'_>, table: &Table) -> News {
    let (node, topology) = (table.hostile, &table.run.design.topology);
    let known = table.peers.news(node).and_then(|news| {
        news.views.into_iter().find_map(|(of, view)| (of == node).then_some(view))
    });
    let neighbours = topology.neighbours(node);
    let mut linked = bytes.subset(topology.nodes());
    linked.retain(|peer| neighbours.contains(peer));
    let late = neighbours.iter().copied().filter(|peer| !linked.contains(peer)).collect();
    let adopted = match bytes.flag() {
        true => table.checks.newest,
        false => {
            let members = bytes.subset(topology.nodes());
            Membership::after([table.checks.newest].into_iter(), members, Vec::new()).id
        }
    };
    let results = table.disk.results.as_ref().map(|written| written.number);
    let (before, choice) = known.map_or((0, 0), |view| (view.number, view.choice));
    let number = before + 1 + u64::from(bytes.byte());
    let [agreed, started, has_results, over] = [(); 4].map(|()| bytes.flag());
    let results = results.filter(|_| has_results);
    let signature = Vec::new();
    let mut view =
        View { choice, number, linked, late, adopted, agreed, started, results, over, signature };
    view.signature = Named(node).sign(&statement(node, &view));
    News { views: vec![(node, view)] }
}

pub(super) fn cause(bytes: &mut Bytes<'_>, table: &Table) -> Cause {
    let (_, members) = table.place();
    Cause { node: bytes.node(members), text: bytes.text(), leaves: bytes.flag() }
}

/// Any bytes; with a right header, or without.
pub(super) fn frame(bytes: &mut Bytes<'_>, table: &Table) -> Vec<u8> {
    if bytes.flag() {
        return bytes.some(64);
    }
    let mut sealed = Vec::new();
    frame::reserve(&mut sealed);
    match bytes.flag() {
        true => sealed.extend(bytes.some(64)),
        false => {
            let length = table.run.design.node(table.me, None, Readers::Root).x.len();
            let value = [0.5, f32::NAN, 1e30, -1.0][bytes.below(4)];
            (0..length).for_each(|_| sealed.extend_from_slice(&f32::to_le_bytes(value)));
        }
    }
    let at = At {
        round: Round(bytes.number(table.round)),
        flight: bytes.byte(),
        exchange: bytes.byte().into(),
    };
    frame::seal(&Header { at, replica: None }, None, &mut sealed);
    sealed
}
