//! What a hostile neighbour says: any message that a link passes on.

use super::{bytes::Bytes, honest, table::Table};
use crate::{
    cluster::{
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::{Beginning, CheckpointId, CheckpointSchedule, Saved, StartMessage},
    },
    drive::{Change, Membership},
    gossip::{
        Cause, Readers,
        frame::{self, Header},
        plan::At,
    },
    units::{NodeId, Round},
};

/// A message of agreement of this neighbour, by its number among the members.
pub(super) fn start(bytes: &mut Bytes<'_>, table: &Table, from: NodeId) -> StartMessage {
    match bytes.byte() % 8 {
        0 => StartMessage::Ready(saved(bytes, table, from)),
        1 => StartMessage::Waiting(bytes.text()),
        2 | 3 => StartMessage::Begin(beginning(bytes, table)),
        4 => StartMessage::Written,
        5 => StartMessage::Over,
        6 => StartMessage::Assembly(news(bytes, table)),
        _ => StartMessage::Assembly(own_news(bytes, table)),
    }
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
    CheckpointId { membership: bytes.number(membership), rounds: bytes.number(rounds) }
}

fn saved(bytes: &mut Bytes<'_>, table: &Table, from: NodeId) -> Saved {
    let (_, members) = table.place();
    if bytes.flag() {
        // What is true, but for one thing.
        let nodes = table.tree().1.remove(&from).unwrap_or_default();
        let mut saved = honest::ready(table, nodes);
        let which = bytes.below(members);
        match bytes.byte() % 4 {
            0 => saved.common = checkpoint(bytes, table),
            1 => saved.history = history(bytes, table),
            kind => {
                let mut kept = bytes.list(3, |bytes| checkpoint(bytes, table));
                if kind == 3 {
                    within(&mut kept, table);
                }
                if let Some((_, all)) = saved.nodes.get_mut(which) {
                    *all = kept;
                }
            }
        }
        return saved;
    }
    let mut nodes = match bytes.flag() {
        // The nodes of which it may speak.
        true => table.tree().1.remove(&from).unwrap_or_default(),
        false => bytes.subset(members),
    };
    if bytes.byte() == 9 {
        nodes.truncate(members / 2);
        nodes.extend(nodes.clone());
    }
    let kept = |bytes: &mut Bytes<'_>| bytes.list(3, |bytes| checkpoint(bytes, table));
    let nodes = nodes.into_iter().map(|node| (node, kept(bytes))).collect();
    Saved { nodes, common: checkpoint(bytes, table), history: history(bytes, table) }
}

/// Checkpoints that its node can have.
fn within(kept: &mut Vec<CheckpointId>, table: &Table) {
    let rounds = table.run.design.experiment.run.rounds;
    for one in kept.iter_mut() {
        one.membership = one.membership.min(table.membership().id);
        one.rounds = 1 + one.rounds % rounds;
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

fn beginning(bytes: &mut Bytes<'_>, table: &Table) -> Beginning {
    let (_, members) = table.place();
    let honest = bytes.byte() % 8;
    let mut at = match honest {
        0..4 => honest::decided(table),
        _ => Beginning::default(),
    };
    let all = honest >= 4;
    if all || honest == 0 {
        at.rounds = checkpoint(bytes, table).rounds;
    }
    if all || honest == 1 {
        at.from_mean = bytes.flag();
    }
    if all || honest <= 2 {
        at.without = match bytes.flag() {
            true => bytes.subset(members),
            false => bytes.list(8, |bytes| bytes.node(members)),
        };
    }
    if all || honest == 3 {
        at.history = history(bytes, table);
    }
    at
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
        let before = known.map_or(0, |view| view.number);
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
    let number = known.map_or(0, |view| view.number) + 1 + u64::from(bytes.byte());
    let [agreed, started, has_results, over] = [(); 4].map(|()| bytes.flag());
    let results = results.filter(|_| has_results);
    let signature = Vec::new();
    let mut view =
        View { number, linked, late, adopted, agreed, started, results, over, signature };
    view.signature = Named(node).sign(&statement(node, &view));
    News { views: vec![(node, view)] }
}

/// Checkpoints of nodes, as a neighbour passes them on.
pub(super) fn reports(bytes: &mut Bytes<'_>, table: &Table) -> Vec<(NodeId, u64)> {
    let (_, members) = table.place();
    bytes.list(members, |bytes| (bytes.node(members), bytes.number(table.round)))
}

pub(super) fn schedule(bytes: &mut Bytes<'_>, table: &Table) -> CheckpointSchedule {
    let newest = table.disk.checkpoints.keys().next_back().copied().unwrap_or(0);
    CheckpointSchedule {
        number: bytes.number(table.schedule.number + 1),
        next: bytes.number(table.round + 1),
        common: bytes.number(newest),
    }
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
