//! What a node knows about its links and about gradients that other nodes compute: for deadlines,
//! and for messages about waiting.
//!
//! A node that computes a gradient, evaluates its model or waits for a lost link sends no frames
//! meanwhile. So that other nodes do not take this for silence, its records say so.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use litemap::LiteMap;

use crate::{
    cluster::{
        Facts,
        part::Part,
        waiting::pace::{Alive, Pace, Paces},
    },
    net::transport::dial::Reached,
    status::{AtWork, Board, State as Doing},
    units::NodeId,
};

/// When a node of this process was last refused a file: they share the limit.
static NO_FILES: Mutex<Option<Instant>> = Mutex::new(None);

/// How long that counts as a problem of each of them.
const RECENT: Duration = Duration::from_secs(60);

/// Notes that the process may open no more files.
pub(crate) fn note_no_files() {
    *NO_FILES.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// The newest protocol version that a program knows, if any, and its name.
type Program = (Option<u32>, String);

/// The state that a host's tasks share with the thread of its core.
#[derive(Debug)]
pub struct Status {
    links: Mutex<LiteMap<NodeId, State>>,
    /// The last problem of neighbours that are not members.
    away: Mutex<LiteMap<NodeId, String>>,
    /// How far the newest connection to each neighbour has come.
    reached: Mutex<LiteMap<NodeId, Reached>>,
    /// The protocol version and the program of each neighbour that has said so.
    programs: Mutex<LiteMap<NodeId, Program>>,
    /// A problem of the host as a whole.
    host: Mutex<Option<String>>,
    /// What has moved over each link, and how it is connected.
    wires: Mutex<LiteMap<NodeId, Wire>>,
    /// Where the run has started.
    begun: AtomicBool,
    work: Mutex<Work>,
    /// What nodes say about themselves.
    board: Arc<Board>,
}

/// A link's connections so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    /// Bytes of frames.
    pub sent: u64,
    pub received: u64,
    /// The last round trip that was measured, in milliseconds.
    pub rtt_ms: Option<f32>,
    /// Whether the newest connection goes through a relay.
    pub relayed: bool,
}

/// How old what a node has said may become while its core is at work.
const SAID: Duration = Duration::from_secs(1);

/// A node that has worked for less than this is not at work yet.
const SHORT: Duration = Duration::from_millis(500);

/// What a node has said is old after this time: it may have stopped.
const FRESH: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq)]
enum State {
    Down {
        text: String,
        /// Whether the current or the last connection has reported the cause.
        explained: bool,
    },
    Up,
}

#[derive(Debug, Default)]
struct Work {
    /// When the current work began.
    own: Option<Instant>,
    /// When each other node has last said that it is at work, by its number among the members.
    heard: LiteMap<NodeId, Alive>,
}

impl Status {
    /// All links down, before the first attempt.
    pub(crate) fn new(neighbours: impl Iterator<Item = NodeId>, board: Arc<Board>) -> Status {
        let down = || State::Down { text: "no contact yet".into(), explained: false };
        Status {
            links: Mutex::new(neighbours.map(|node| (node, down())).collect()),
            away: Mutex::default(),
            reached: Mutex::default(),
            programs: Mutex::default(),
            host: Mutex::default(),
            wires: Mutex::default(),
            begun: AtomicBool::new(false),
            work: Mutex::default(),
            board,
        }
    }

    /// Records the last problem of a link that is down.
    pub(crate) fn trouble(&self, node: NodeId, text: String) {
        match self.lock().get_mut(&node) {
            Some(state @ State::Down { .. }) => *state = State::Down { text, explained: true },
            Some(State::Up) => {}
            None => {
                drop(self.away.lock().unwrap_or_else(PoisonError::into_inner).insert(node, text));
            }
        }
    }

    /// The neighbours that are not members, each with its last problem.
    pub(crate) fn away(&self) -> Vec<(NodeId, String)> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.iter().map(|(node, text)| (*node, text.clone())).collect()
    }

    /// A new connection to this neighbour: it will report its problems itself.
    pub(crate) fn connected(&self, node: NodeId) {
        self.reached().remove(&node);
        if let Some(State::Down { explained, .. }) = self.lock().get_mut(&node) {
            *explained = false;
        }
    }

    /// The connection to this neighbour closed. `guess` counts only if no cause was reported.
    pub(crate) fn closed(&self, node: NodeId, guess: String) {
        if let Some(state @ State::Down { explained: false, .. }) = self.lock().get_mut(&node) {
            *state = State::Down { text: guess, explained: false };
        }
    }

    pub(crate) fn up(&self, node: NodeId) {
        self.reached().insert(node, Reached::Linked);
        self.lock().insert(node, State::Up);
    }

    /// The node at the other end runs, but takes part in another membership.
    pub(crate) fn in_other_membership(&self, node: NodeId) {
        self.reached().insert(node, Reached::OtherMembership);
        self.trouble(node, "it takes part in another membership".into());
    }

    /// How far the newest connection to this neighbour has come.
    pub(crate) fn how_far(&self, node: NodeId) -> Reached {
        self.reached().get(&node).copied().unwrap_or(Reached::Nothing)
    }

    fn reached(&self) -> MutexGuard<'_, LiteMap<NodeId, Reached>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn down(&self, node: NodeId, text: String) {
        self.lock().insert(node, State::Down { text, explained: true });
    }

    /// The missing neighbours, each with its last problem.
    pub fn missing(&self) -> Vec<(NodeId, String)> {
        let trouble = |(node, state): (&NodeId, &State)| match state {
            State::Down { text, .. } => Some((*node, text.clone())),
            State::Up => None,
        };
        self.lock().iter().filter_map(trouble).collect()
    }

    /// Records what a neighbour says about its program.
    pub(crate) fn runs(&self, node: NodeId, version: Option<u32>, agent: &str) {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.insert(node, (version, agent.to_string()));
    }

    /// What a neighbour has said about its program.
    pub(crate) fn program(&self, node: NodeId) -> Option<Program> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }

    /// Records a problem of the host as a whole.
    pub(crate) fn host_trouble(&self, text: String) {
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// The problem of the host as a whole.
    pub(crate) fn of_host(&self) -> Option<String> {
        let own = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.or_else(|| {
            let last = *NO_FILES.lock().unwrap_or_else(PoisonError::into_inner);
            let is_recent = last.is_some_and(|last| last.elapsed() < RECENT);
            is_recent.then(|| "this process may open no more files".to_string())
        })
    }

    /// The run begins or continues here: a link that breaks from now on is lost until its session
    /// is resumed.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Whether the run has started.
    pub(crate) fn has_started(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// What nodes say about themselves.
    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// What members say about their waiting, as far as it is not old.
    fn paces(&self, part: &Part<'_>) -> Paces {
        let mut paces = Paces::default();
        let now = Instant::now();
        self.board.each(|number, heard| {
            let place = |number: &NodeId| part.membership.place(*number);
            if let Some(node) = place(&number)
                && now.saturating_duration_since(heard.at) < FRESH
            {
                let waits_for = heard.record.waits_for.iter().filter_map(place).collect();
                paces.set(node, Pace { waits_for, waiting: heard.record.waiting });
            }
        });
        paces
    }

    /// When each member has last said that it is at work. What it has said since may be that it is
    /// not.
    fn hear_work(&self, part: &Part<'_>) -> LiteMap<NodeId, Alive> {
        let mut work = self.work();
        self.board.each(|number, heard| {
            if let Some(node) = part.membership.place(number)
                && node != part.id
                && let Some(at_work) = heard.record.at_work
            {
                let absent = at_work == AtWork::Reconnects;
                work.heard.insert(node, Alive { node, when: heard.at, absent });
            }
        });
        work.heard.clone()
    }

    pub(crate) fn wires(&self) -> MutexGuard<'_, LiteMap<NodeId, Wire>> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the cluster must know of all this.
    pub(crate) fn facts(
        &self,
        part: &Part<'_>,
        computing: bool,
        waited: Duration,
        acted: Instant,
    ) -> Facts {
        let heard = self.hear_work(part);
        let at_work = heard.values().copied().max_by_key(|alive| alive.when);
        Facts {
            missing: self.missing(),
            away: self.away(),
            host: self.of_host(),
            bytes: self.bytes(),
            computing,
            acted,
            waited,
            at_work,
            heard,
            paces: self.paces(part),
        }
    }

    /// Counts bytes of frames that were received.
    pub(crate) fn received(&self, node: NodeId, bytes: usize) {
        self.wires().entry(node).or_default().received += bytes as u64;
    }

    /// Counts bytes of frames that were sent.
    pub(crate) fn sent(&self, node: NodeId, bytes: usize) {
        self.wires().entry(node).or_default().sent += bytes as u64;
    }

    /// A round trip to this neighbour was measured.
    pub(crate) fn measured(&self, node: NodeId, rtt: Duration) {
        self.wires().entry(node).or_default().rtt_ms = Some(1e3 * rtt.as_secs_f32());
    }

    /// There is a new connection to this neighbour.
    pub(crate) fn set_relayed(&self, node: NodeId, relayed: bool) {
        self.wires().entry(node).or_default().relayed = relayed;
    }

    /// Bytes of frames so far, both ways: a link on which they grow is slow, not dead.
    pub(crate) fn bytes(&self) -> u64 {
        self.wires().values().map(|wire| wire.sent + wire.received).sum()
    }

    /// This node starts or ends a computation.
    pub(crate) fn set_working(&self, working: bool) {
        self.work().own = working.then(Instant::now);
    }

    /// Why this node sends no frames now, if it is at work.
    pub(crate) fn at_work(&self, now: Instant) -> Option<AtWork> {
        // A node whose link is lost keeps the others waiting, too.
        if self.has_started() && !self.missing().is_empty() {
            return Some(AtWork::Reconnects);
        }
        let since = self.work().own?;
        (now.saturating_duration_since(since) >= SHORT).then_some(AtWork::Computes)
    }

    /// A node at work says so: the thread of its core, which makes its records, has no time.
    pub(crate) fn say_at_work(&self, now: Instant) {
        let Some(since) = self.work().own else { return };
        let at_work = self.at_work(now);
        self.board.repeat(now, SAID, |record, age| {
            let worked = now.saturating_duration_since(since);
            record.since_ms = match record.state {
                Doing::Computing => record.since_ms + age.as_millis() as u64,
                _ => worked.as_millis() as u64,
            };
            record.state = Doing::Computing;
            record.at_work = at_work;
            record.waits_for.clear();
        });
    }

    fn lock(&self) -> MutexGuard<'_, LiteMap<NodeId, State>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Record;

    fn status(neighbours: &[NodeId]) -> Status {
        Status::new(neighbours.iter().copied(), Arc::new(Board::of_one_process(NodeId(0), 3)))
    }

    #[test]
    fn the_cause_of_a_connection_outlives_it() {
        let status = status(&[NodeId(1)]);
        status.connected(NodeId(1));
        status.closed(NodeId(1), "a guess".into());
        assert_eq!(status.missing()[0].1, "a guess");
        status.connected(NodeId(1));
        status.trouble(NodeId(1), "the cause".into());
        status.closed(NodeId(1), "a guess".into());
        assert_eq!(status.missing()[0].1, "the cause");
    }

    #[test]
    fn a_node_whose_core_is_at_work_still_says_so() {
        let status = status(&[]);
        let now = Instant::now();
        let waits =
            Record { state: Doing::Waiting, waits_for: vec![NodeId(1)], ..Record::default() };
        status.board.say(now, waits);
        let later = now + Duration::from_secs(9);
        status.say_at_work(later);
        let age = |status: &Status| later - status.board.of(NodeId(0)).unwrap().at;
        assert_eq!(age(&status).as_secs(), 9, "it is not at work");
        status.set_working(true);
        status.say_at_work(later);
        let said = status.board.of(NodeId(0)).unwrap().record;
        assert_eq!((age(&status).as_secs(), said.state), (0, Doing::Computing));
        assert!(said.waits_for.is_empty());
    }

    #[test]
    fn a_node_is_at_work_when_it_has_computed_for_long_or_a_link_is_lost() {
        let status = status(&[NodeId(1)]);
        let now = Instant::now();
        let after = |ms: u64| now + Duration::from_millis(ms);
        assert_eq!(status.at_work(after(0)), None, "before the run no link is lost");
        status.begin();
        assert_eq!(status.at_work(after(0)), Some(AtWork::Reconnects));
        status.up(NodeId(1));
        assert_eq!(status.at_work(after(900)), None);
        status.set_working(true);
        assert_eq!(status.at_work(after(100)), None);
        assert_eq!(status.at_work(after(9000)), Some(AtWork::Computes));
        status.set_working(false);
        assert_eq!(status.at_work(after(9000)), None);
    }
}
