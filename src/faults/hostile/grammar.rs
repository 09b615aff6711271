//! What a hostile member says: any message that a link passes on, with its own signature, or as it
//! has heard it.

use super::Kind;
use crate::{
    cluster::{
        begin::reports::Report,
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::{CheckpointId, CheckpointSchedule, MOST_ROUNDS, Origin},
        statements::{Batch, Links, Said, Shared, Statement},
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
    /// The number of its own attempt, and what it has said of its links.
    pub attempt: u64,
    pub links: Links,
    /// The checkpoints that the other end has, and the history and the schedule that this node has.
    pub checkpoints: Vec<CheckpointId>,
    pub history: Vec<Change>,
    pub schedule: CheckpointSchedule,
    /// Identifies the results of the other end.
    pub results: Option<u64>,
    /// The greatest id of a membership that a node has recorded.
    pub newest: u64,
    /// The choice and the number of its newest view.
    pub number: (u64, u64),
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
    match kind {
        Kind::Reports => report(rng, known),
        Kind::Links => states(rng, known, |rng| {
            let mut links = known.links.clone();
            links.number += rng.below(3);
            for attempt in &mut links.attempts {
                *attempt = if flag(rng) { *attempt } else { flag(rng).then(|| rng.word()) };
            }
            Said::Links(links)
        }),
        Kind::Begins => states(rng, known, |rng| Said::Begins(rng.word())),
        Kind::Initial => {
            states(rng, known, |rng| Said::Initial(u128::from(rng.word()).to_le_bytes()))
        }
        Kind::Views | Kind::RaisedViews | Kind::FinalViews if known.chooses => {
            let news = News { views: vec![(known.me, view(kind, rng, known))] };
            news.is_valid(known.topology).then_some(Message::Chooses(news))
        }
        Kind::Echoes => echo(rng, known),
        Kind::Saved => states(rng, known, |rng| Said::Saved(round(rng, known))),
        Kind::Written => states(rng, known, |rng| {
            Said::Written(known.results.filter(|_| flag(rng)).unwrap_or_else(|| rng.word()))
        }),
        Kind::Vectors => states(rng, known, |rng| {
            let fingerprint = u128::from(rng.word()).to_le_bytes();
            Said::Shared(Shared { round: rng.below(known.rounds), flight: 0, fingerprint })
        }),
        Kind::Schedule => states(rng, known, |rng| Said::Schedule(schedule(rng, known))),
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
fn checkpoints(rng: &mut Sequence, known: &Known<'_>, history: &[Change]) -> Vec<CheckpointId> {
    let id = known.membership.id;
    let before = known.checkpoints.first().map_or(id, |first| first.membership.min(id));
    let mut all: Vec<CheckpointId> = (0..rng.below(4))
        .map(|_| {
            let membership = if rng.below(4) == 0 { before } else { id };
            CheckpointId::within(membership, round(rng, known), history)
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all.truncate(MOST_ROUNDS);
    all
}

/// What it says of its checkpoints: anything that it can have.
fn report(rng: &mut Sequence, known: &Known<'_>) -> Option<Message> {
    let history = if flag(rng) { known.history.clone() } else { Vec::new() };
    let kept = checkpoints(rng, known, &history);
    let common = match rng.below(3) {
        0 => CheckpointId::default(),
        _ => kept.last().copied().unwrap_or_default(),
    };
    let because = Origin { node: known.me, number: rng.word(), ..Origin::default() };
    let (because, guards) = (because.signed(&Named(known.me)), rng.below(8) == 0);
    let report = Report { kept, common, because, guards };
    let Some(Message::Statements(batch)) = states(rng, known, |_| Said::Report(report)) else {
        return None;
    };
    Some(Message::Statements(Batch { histories: vec![history], ..batch }))
}

/// Its attempt at the run: mostly that of its program.
fn attempt(rng: &mut Sequence, known: &Known<'_>) -> u64 {
    if rng.below(8) == 0 { rng.word() } else { known.attempt }
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
    let (choice, number) = known.number;
    let mut view = View {
        choice: choice + rng.below(2),
        number: number + 1,
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
        Message::Chooses(news) => {
            let chosen = pick(rng, &news.views)?;
            let views = if flag(rng) { vec![chosen] } else { news.views };
            known.chooses.then_some(Message::Chooses(News { views }))
        }
        other => Some(other),
    }
}

/// Something that it says to all, with its signature.
fn states(
    rng: &mut Sequence,
    known: &Known<'_>,
    what: impl FnOnce(&mut Sequence) -> Said,
) -> Option<Message> {
    let place = known.membership.place(known.me)?;
    let of = (known.membership.id, attempt(rng, known));
    let said = what(rng);
    let statement = Statement::signed(&Named(known.me), (place, known.me), of, said);
    Some(Message::Statements(vec![statement].into()))
}

fn schedule(rng: &mut Sequence, known: &Known<'_>) -> CheckpointSchedule {
    let CheckpointSchedule { number, next } = known.schedule;
    let ahead = match rng.below(3) {
        0 => 1,
        1 => 1 << 20,
        _ => 1 + rng.below(1000),
    };
    let next = match rng.below(3) {
        0 => next,
        1 => known.rounds,
        _ => next.saturating_add(rng.below(known.rounds)),
    };
    CheckpointSchedule { number: number.saturating_add(ahead), next }
}

/// What it shows as the cause of its restart: what others show now, or its own word about any node.
pub(super) fn origin(rng: &mut Sequence, me: NodeId, nodes: usize, shown: &[Origin]) -> Origin {
    let of_others = pick(rng, shown).filter(|_| flag(rng));
    let about = NodeId::from(rng.below(nodes as u64) as usize);
    let about = flag(rng).then_some(about);
    let own = Origin { node: me, number: rng.word(), about, ..Origin::default() };
    of_others.unwrap_or_else(|| own.signed(&Named(me)))
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
