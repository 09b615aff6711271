//! What a hostile member says: any message that a link passes on, with its own signature, or as it
//! has heard it.

use super::Kind;
use crate::{
    cluster::{
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::{Beginning, CheckpointId, CheckpointSchedule, MOST_ROUNDS, Saved, StartMessage},
    },
    drive::{Change, Membership},
    faults::wire::Message,
    gossip::Cause,
    mixing::Topology,
    rng::Sequence,
    status::{Record, State},
    units::NodeId,
};

/// What the hostile member knows when it says something over a link.
pub(super) struct Known<'w> {
    pub me: NodeId,
    pub to: NodeId,
    pub topology: &'w Topology,
    /// The rounds of the run.
    pub rounds: u64,
    /// The members as the other end sees them, and whether it chooses others.
    pub membership: &'w Membership,
    pub chooses: bool,
    /// The nodes below this one in the spanning tree of these members, and itself, by their numbers
    /// among them.
    pub below: Vec<NodeId>,
    /// The checkpoints that the other end has, and the history and the schedule that this node has.
    pub checkpoints: Vec<CheckpointId>,
    pub history: Vec<Change>,
    pub schedule: CheckpointSchedule,
    /// Identifies the results of the other end.
    pub results: Option<u64>,
    /// The greatest id of a membership that a node has recorded.
    pub newest: u64,
    /// The greatest number of its own views.
    pub number: u64,
    pub heard: &'w [Message],
}

fn flag(rng: &mut Sequence) -> bool {
    rng.below(2) == 0
}

fn pick<T: Clone>(rng: &mut Sequence, all: &[T]) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.below(all.len() as u64) as usize].clone())
}

fn some(rng: &mut Sequence, all: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
    all.filter(|_| flag(rng)).collect()
}

fn members(known: &Known<'_>) -> impl Iterator<Item = NodeId> + use<> {
    (0..known.membership.members.len()).map(NodeId::from)
}

/// A message of this kind, if there is one.
pub(super) fn message(kind: Kind, rng: &mut Sequence, known: &Known<'_>) -> Option<Message> {
    let start = |message| Some(Message::Start(message));
    match kind {
        Kind::Ready => start(StartMessage::Ready(ready(rng, known))),
        Kind::Waiting => start(StartMessage::Waiting("a node waits for another one".into())),
        Kind::Begin => start(StartMessage::Begin(begin(rng, known))),
        Kind::Written => start(StartMessage::Written),
        Kind::Over => start(StartMessage::Over),
        Kind::Views | Kind::RaisedViews | Kind::FinalViews if known.chooses => {
            let news = News { views: vec![(known.me, view(kind, rng, known))] };
            news.is_valid(known.topology).then_some(Message::Start(StartMessage::Assembly(news)))
        }
        Kind::Echoes => echo(rng, known),
        Kind::Saved => Some(Message::Saved(saved(rng, known))),
        Kind::Schedule => Some(Message::Schedule(schedule(rng, known))),
        Kind::Goodbyes => Some(Message::Goodbye(None)),
        Kind::Leaves => Some(Message::Goodbye(Some(cause(rng, known)))),
        _ => None,
    }
}

/// A round that a checkpoint may have: often that of a real one, or the last one.
fn round(rng: &mut Sequence, known: &Known<'_>) -> u64 {
    let real = pick(rng, &known.checkpoints).map_or(known.rounds, |real| real.rounds);
    match rng.below(4) {
        0 => real,
        1 => known.rounds,
        2 => known.rounds - rng.below(known.rounds.min(5)),
        _ => 1 + rng.below(known.rounds),
    }
}

/// Up to three checkpoints that a member can have, ascending.
fn checkpoints(rng: &mut Sequence, known: &Known<'_>) -> Vec<CheckpointId> {
    let id = known.membership.id;
    let before = known.checkpoints.first().map_or(id, |first| first.membership.min(id));
    let mut all: Vec<CheckpointId> = (0..rng.below(4))
        .map(|_| CheckpointId {
            membership: if rng.below(4) == 0 { before } else { id },
            rounds: round(rng, known),
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(MOST_ROUNDS);
    all
}

/// Checkpoints of this node and of those below it.
fn ready(rng: &mut Sequence, known: &Known<'_>) -> Saved {
    let nodes = known.below.iter().map(|node| (*node, checkpoints(rng, known))).collect();
    let mut saved = Saved { nodes, ..Saved::default() };
    saved.common = match rng.below(3) {
        0 => CheckpointId::default(),
        _ => saved.newest(),
    };
    saved.history = history(rng, known);
    saved
}

fn history(rng: &mut Sequence, known: &Known<'_>) -> Vec<Change> {
    if flag(rng) { known.history.clone() } else { Vec::new() }
}

fn begin(rng: &mut Sequence, known: &Known<'_>) -> Beginning {
    let from_mean = flag(rng);
    let rounds = if rng.below(3) == 0 { 0 } else { round(rng, known) };
    let mut at = Beginning { rounds, from_mean: from_mean && rounds > 0, ..Beginning::default() };
    if at.from_mean {
        at.without = some(rng, members(known));
        // Some node has a model.
        let giver = NodeId::from(rng.below(known.membership.members.len() as u64) as usize);
        at.without.retain(|node| *node != giver);
    }
    at.history = history(rng, known);
    at
}

/// A view of this node itself, with its signature.
fn view(kind: Kind, rng: &mut Sequence, known: &Known<'_>) -> View {
    let neighbours = || known.topology.neighbours(known.me).iter().copied();
    let linked = match rng.below(3) {
        0 => neighbours().collect(),
        _ => some(rng, neighbours()),
    };
    let late = some(rng, neighbours().filter(|peer| !linked.contains(peer)));
    let all = (0..known.topology.nodes()).map(NodeId::from);
    let next = match flag(rng) {
        true => all.collect(),
        false => some(rng, all),
    };
    let later = Membership::after([known.newest].into_iter(), next, Vec::new());
    let adopted = match kind {
        Kind::Views => known.newest,
        _ => later.id,
    };
    let results = match rng.below(3) {
        0 => None,
        1 => known.results,
        _ => Some(rng.word()),
    };
    let mut view = View {
        number: known.number + 1,
        linked,
        late,
        adopted,
        agreed: flag(rng),
        started: flag(rng),
        results,
        over: kind == Kind::FinalViews,
        signature: Vec::new(),
    };
    view.signature = Named(known.me).sign(&statement(known.me, &view));
    view
}

/// What it has heard or said before: all of it, or what one node has said about itself.
fn echo(rng: &mut Sequence, known: &Known<'_>) -> Option<Message> {
    match pick(rng, known.heard)? {
        Message::Start(StartMessage::Assembly(news)) => {
            let chosen = pick(rng, &news.views)?;
            let views = if flag(rng) { vec![chosen] } else { news.views };
            known.chooses.then_some(Message::Start(StartMessage::Assembly(News { views })))
        }
        other => Some(other),
    }
}

/// Checkpoints of nodes, as a neighbour passes them on.
fn saved(rng: &mut Sequence, known: &Known<'_>) -> Vec<(NodeId, u64)> {
    let nodes = match rng.below(3) {
        0 => known.membership.place(known.me).into_iter().collect(),
        _ => some(rng, members(known)),
    };
    let rounds = match rng.below(3) {
        0 => u64::MAX,
        _ => round(rng, known),
    };
    nodes.into_iter().map(|node| (node, rounds)).collect()
}

fn schedule(rng: &mut Sequence, known: &Known<'_>) -> CheckpointSchedule {
    let CheckpointSchedule { number, next, .. } = known.schedule;
    let ahead = match rng.below(3) {
        0 => 1,
        1 => 1 << 20,
        _ => 1 + rng.below(1000),
    };
    let next = match rng.below(3) {
        0 => next,
        1 => u64::MAX,
        _ => next.saturating_add(rng.below(known.rounds)),
    };
    CheckpointSchedule { number: number.saturating_add(ahead), next, common: round(rng, known) }
}

fn cause(rng: &mut Sequence, known: &Known<'_>) -> Cause {
    let node = members(known).nth(rng.below(known.membership.members.len() as u64) as usize);
    Cause { node: node.unwrap_or(known.to), text: "it has failed".into(), leaves: flag(rng) }
}

/// What it says about its work: any state, round, and nodes for which it waits.
pub(super) fn record(rng: &mut Sequence, topology: &Topology, rounds: u64) -> Record {
    let states = [State::Starting, State::Computing, State::Waiting, State::Done, State::Failed];
    Record {
        state: pick(rng, &states).unwrap_or_default(),
        round: rng.below(rounds + 1),
        waits_for: some(rng, (0..topology.nodes()).map(NodeId::from)),
        ..Record::default()
    }
}
