//! What a node says about itself, once a second: figures that its driver measures.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use litemap::LiteMap;

use super::status::Wire;
use crate::{
    cluster::{Facts, Standing, part::Part},
    drive::Elapsed,
    status::{AtWork, Busy, Kept, LinkRecord, Record, State},
    units::NodeId,
};

/// How often a node says something, and over how long it measures at least.
const EVERY: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);

/// Warnings that are retained.
const WARNINGS: usize = 4;

/// What a driver measures for the records of its node.
#[derive(Debug)]
pub(super) struct Telling {
    started: Instant,
    next: Instant,
    state: (State, Instant),
    waits_for: Vec<NodeId>,
    waiting: Option<u8>,
    rounds: u64,
    loss: Option<f64>,
    saved: Option<(u64, Instant)>,
    outages: u32,
    warnings: VecDeque<String>,
    window: Window,
    measured: Measured,
    /// For how long the process was held up in the window.
    held_up: Duration,
    /// What the driver did in the window.
    spent: Spent,
    /// Bytes of frames over links that were closed.
    before: (u64, u64),
    /// Those of the links that are open.
    open: (u64, u64),
}

/// What a driver is busy with beside its gradients.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Mix,
    Evaluate,
    UseDisk,
}

/// The time of each task.
#[derive(Debug, Default)]
struct Spent {
    mixing: Duration,
    evaluating: Duration,
    disk: Duration,
}

/// Where the window of the measures began.
#[derive(Debug)]
struct Window {
    at: Instant,
    elapsed: Elapsed,
    rounds: u64,
    wires: LiteMap<NodeId, Wire>,
}

/// What the last window has shown.
#[derive(Debug, Default)]
struct Measured {
    computing: Option<u8>,
    held: Option<u8>,
    busy: Option<Busy>,
    round_us: Option<u64>,
    gradient_us: Option<u64>,
    /// Bytes a second, sent and received.
    rates: LiteMap<NodeId, (f32, f32)>,
}

/// What a driver knows when its node says something.
pub(super) struct Now<'a> {
    pub now: Instant,
    pub part: &'a Part<'a>,
    pub standing: Standing,
    /// What is known of the links; `None` while there are none.
    pub facts: Option<&'a Facts>,
    pub wires: LiteMap<NodeId, Wire>,
    pub at_work: Option<AtWork>,
    pub elapsed: Elapsed,
}

impl Telling {
    pub(super) fn new(now: Instant) -> Telling {
        let (elapsed, wires) = (Elapsed::default(), LiteMap::new());
        Telling {
            started: now,
            next: now,
            state: (State::Starting, now),
            waits_for: Vec::new(),
            waiting: None,
            rounds: 0,
            loss: None,
            saved: None,
            outages: 0,
            warnings: VecDeque::new(),
            window: Window { at: now, elapsed, rounds: 0, wires },
            measured: Measured::default(),
            held_up: Duration::ZERO,
            spent: Spent::default(),
            before: (0, 0),
            open: (0, 0),
        }
    }

    /// Whether it is time to say something.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + EVERY;
        }
        due
    }

    /// For whom the node waits in its rounds, and what share of its time.
    pub(super) fn pace(&mut self, waits_for: Vec<NodeId>, waiting: Option<u8>) {
        (self.waits_for, self.waiting) = (waits_for, waiting);
    }

    pub(super) fn round(&mut self, rounds: u64, loss: f64) {
        (self.rounds, self.loss) = (rounds, Some(loss));
    }

    /// The node goes back to the state after these rounds, or begins there.
    pub(super) fn begin(&mut self, now: Instant, rounds: u64, elapsed: Elapsed) {
        (self.rounds, self.waits_for, self.waiting) = (rounds, Vec::new(), None);
        self.window = Window { at: now, elapsed, rounds, wires: LiteMap::new() };
        self.measured = Measured::default();
    }

    /// The process was held up for so long since the last time.
    pub(super) fn held_up(&mut self, held_up: Duration) {
        self.held_up += held_up;
    }

    /// The driver was busy for so long.
    pub(super) fn spent(&mut self, task: Task, time: Duration) {
        *match task {
            Task::Mix => &mut self.spent.mixing,
            Task::Evaluate => &mut self.spent.evaluating,
            Task::UseDisk => &mut self.spent.disk,
        } += time;
    }

    /// A checkpoint of these rounds is on the disk.
    pub(super) fn saved(&mut self, now: Instant, rounds: u64) {
        self.saved = Some((rounds, now));
    }

    pub(super) fn link_lost(&mut self) {
        self.outages = self.outages.saturating_add(1);
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.warnings.push_back(text.into());
        if self.warnings.len() > WARNINGS {
            self.warnings.pop_front();
        }
    }

    /// The links are closed, and others are opened.
    pub(super) fn reopen(&mut self) {
        let (sent, received) = std::mem::take(&mut self.open);
        self.before = (self.before.0 + sent, self.before.1 + received);
    }

    /// What the node says now.
    pub(super) fn record(&mut self, at: &Now<'_>) -> Record {
        let Now { now, part, standing, facts, .. } = at;
        self.measure(at);
        let missing = facts.map_or(&[][..], |facts| &facts.missing);
        let absent = || missing.iter().map(|(node, _)| *node).collect();
        let idle = facts.is_some_and(|facts| {
            !facts.computing && now.saturating_duration_since(facts.acted) >= EVERY
        });
        let (state, waits_for) = match standing {
            Standing::Starting => (State::Starting, absent()),
            Standing::Choosing => (State::Choosing, absent()),
            Standing::Restoring => (State::Checkpoint, Vec::new()),
            Standing::Rounds(_) if !self.waits_for.is_empty() => {
                (State::Waiting, self.waits_for.clone())
            }
            Standing::Rounds(_) if idle => (State::Sending, Vec::new()),
            Standing::Rounds(_) => (State::Computing, Vec::new()),
            Standing::Ending => (State::Finishing, absent()),
        };
        let in_words = |(node, why): &(NodeId, String)| format!("{}: {why}", part.name(*node));
        let reason = missing.iter().map(in_words).collect::<Vec<_>>().join("; ");
        let links = part.topology().neighbours(part.id).iter().map(|&node| {
            let why = missing.iter().find(|(other, _)| *other == node).map(|(_, why)| why.clone());
            let wire = at.wires.get(&node).copied().unwrap_or_default();
            let (sent_bps, received_bps) =
                self.measured.rates.get(&node).copied().unwrap_or_default();
            LinkRecord {
                to: part.number(node),
                up: why.is_none() && facts.is_some(),
                relayed: wire.relayed,
                rtt_ms: wire.rtt_ms,
                sent_bps,
                received_bps,
                reason: why.unwrap_or_default(),
            }
        });
        let links = links.collect();
        let waits_for = part.all_numbers(waits_for);
        let at_work = at.at_work;
        Record { waits_for, reason, links, at_work, ..self.figures(*now, part, state) }
    }

    /// What the node says when it leaves.
    pub(super) fn last(&mut self, now: Instant, part: &Part<'_>, end: State, why: &str) -> Record {
        Record { reason: why.into(), ..self.figures(now, part, end) }
    }

    fn figures(&mut self, now: Instant, part: &Part<'_>, state: State) -> Record {
        if self.state.0 != state {
            self.state = (state, now);
        }
        let ms = |since: Instant| now.saturating_duration_since(since).as_millis() as u64;
        Record {
            state,
            since_ms: ms(self.state.1),
            members: part.membership.members.clone(),
            round: self.rounds,
            waiting: self.waiting,
            computing: self.measured.computing,
            held: self.measured.held,
            busy: self.measured.busy,
            round_us: self.measured.round_us,
            gradient_us: self.measured.gradient_us,
            loss: self.loss,
            sent: self.before.0 + self.open.0,
            received: self.before.1 + self.open.1,
            checkpoint: self.saved.map(|(round, when)| Kept { round, age_ms: ms(when) }),
            outages: self.outages,
            program: env!("CARGO_PKG_VERSION").into(),
            uptime_ms: ms(self.started),
            warnings: self.warnings.iter().cloned().collect(),
            ..Record::default()
        }
    }

    /// Closes the window of the measures if it is long enough.
    fn measure(&mut self, at: &Now<'_>) {
        let sum = |bytes: &dyn Fn(&Wire) -> u64| at.wires.values().map(bytes).sum();
        self.open = (sum(&|wire| wire.sent), sum(&|wire| wire.received));
        let Window { at: since, elapsed, rounds, .. } = self.window;
        let length = at.now.saturating_duration_since(since);
        if length < WINDOW {
            return;
        }
        let seconds = length.as_secs_f64();
        let rate = |(node, wire): (&NodeId, &Wire)| {
            let before = self.window.wires.get(node).copied().unwrap_or_default();
            let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as f32;
            (*node, (rate(wire.sent, before.sent), rate(wire.received, before.received)))
        };
        let rates = at.wires.iter().map(rate).collect();
        let computing = at.elapsed.computing.0.saturating_sub(elapsed.computing.0) as f64 / 1e9;
        let done = self.rounds.saturating_sub(rounds);
        let per_round = |seconds: f64| (done > 0).then(|| (1e6 * seconds / done as f64) as u64);
        let in_rounds = matches!(at.standing, Standing::Rounds(_));
        let share = |part: f64| (100.0 * part / seconds).round().min(100.0) as u8;
        let held = std::mem::take(&mut self.held_up).as_secs_f64();
        let Spent { mixing, evaluating, disk } = std::mem::take(&mut self.spent);
        let busy = |time: Duration| share(time.as_secs_f64());
        self.measured = Measured {
            held: Some(share(held)),
            busy: Some(Busy {
                mixing: busy(mixing),
                evaluating: busy(evaluating),
                disk: busy(disk),
            }),
            computing: in_rounds.then(|| share(computing)),
            round_us: per_round(seconds).or(self.measured.round_us),
            gradient_us: per_round(computing).or(self.measured.gradient_us),
            rates,
        };
        let (wires, rounds) = (at.wires.clone(), self.rounds);
        self.window = Window { at: at.now, elapsed: at.elapsed, rounds, wires };
    }
}
