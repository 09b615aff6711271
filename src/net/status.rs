//! What a node knows of its links and of work that goes on elsewhere: for deadlines, and for the
//! line that says what it waits for.
//!
//! A node that computes a gradient or evaluates its model sends nothing for as long as that takes.
//! So that its neighbours, and those who wait for them, do not take this for silence, a node at
//! work says so five times a heartbeat, and every node passes such *beats* on.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::units::NodeId;

/// Shared by a host's tasks and the thread of its core.
#[derive(Debug)]
pub struct Status {
    links: Mutex<BTreeMap<NodeId, State>>,
    /// Trouble of the host as a whole.
    host: Mutex<Option<String>>,
    moved: AtomicU64,
    begun: AtomicBool,
    work: Mutex<Work>,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Down {
        text: String,
        /// Whether the present connection, or the last one, has said what is wrong.
        explained: bool,
    },
    Up,
}

#[derive(Debug, Default)]
struct Work {
    /// Since when this node is at work.
    own: Option<Instant>,
    /// When it last said so.
    said: Option<Instant>,
    /// Beats of each node, counted from 1.
    beats: BTreeMap<NodeId, u64>,
    /// The last beat of another node.
    last: Option<(NodeId, Instant)>,
}

impl Status {
    /// All links down, nothing tried yet.
    pub fn new(neighbours: impl Iterator<Item = NodeId>) -> Status {
        let down = || State::Down { text: "not heard of yet".into(), explained: false };
        Status {
            links: Mutex::new(neighbours.map(|node| (node, down())).collect()),
            host: Mutex::default(),
            moved: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            work: Mutex::default(),
        }
    }

    /// What went wrong last with a link that is down.
    pub fn trouble(&self, node: NodeId, text: String) {
        if let Some(state @ State::Down { .. }) = self.lock().get_mut(&node) {
            *state = State::Down { text, explained: true };
        }
    }

    /// A new connection to this neighbour: what is wrong with it will be said.
    pub fn connected(&self, node: NodeId) {
        if let Some(State::Down { explained, .. }) = self.lock().get_mut(&node) {
            *explained = false;
        }
    }

    /// The connection to this neighbour closed. `guess` counts only where nothing has said why.
    pub fn closed(&self, node: NodeId, guess: String) {
        if let Some(state @ State::Down { explained: false, .. }) = self.lock().get_mut(&node) {
            *state = State::Down { text: guess, explained: false };
        }
    }

    /// The link is up.
    pub fn up(&self, node: NodeId) {
        self.lock().insert(node, State::Up);
    }

    /// The link broke.
    pub fn down(&self, node: NodeId, text: String) {
        self.lock().insert(node, State::Down { text, explained: true });
    }

    /// Whether the link is up.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.lock().get(&node) == Some(&State::Up)
    }

    /// The neighbours that are missing, and what went wrong last with each.
    pub fn missing(&self) -> Vec<(NodeId, String)> {
        let trouble = |(node, state): (&NodeId, &State)| match state {
            State::Down { text, .. } => Some((*node, text.clone())),
            State::Up => None,
        };
        self.lock().iter().filter_map(trouble).collect()
    }

    /// Something is wrong with the host as a whole.
    pub fn host_trouble(&self, text: String) {
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// What is wrong with the host as a whole.
    pub fn of_host(&self) -> Option<String> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The run begins: a link that breaks from now on does not come up again.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Whether the run has begun.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// So many bytes of frames came or went.
    pub fn moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of frames so far, both ways: a link on which they grow is slow, not dead.
    pub fn bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// This node begins to compute, or has done it.
    pub fn set_working(&self, working: bool) {
        self.work().own = working.then(Instant::now);
    }

    /// Adds a beat of this node, if it has been at work for half of `every` and none was added
    /// within that time.
    pub fn beat(&self, me: NodeId, every: Duration) {
        let mut work = self.work();
        let at_work = work.own.is_some_and(|since| since.elapsed() >= every / 2);
        if at_work && work.said.is_none_or(|said| said.elapsed() >= every) {
            work.said = Some(Instant::now());
            *work.beats.entry(me).or_default() += 1;
        }
    }

    /// Beats that are newer than those in `told`, which then has them too.
    pub fn news(&self, told: &mut BTreeMap<NodeId, u64>) -> Vec<(NodeId, u64)> {
        let mut news = Vec::new();
        for (&node, &count) in &self.work().beats {
            if told.insert(node, count) != Some(count) {
                news.push((node, count));
            }
        }
        news
    }

    /// Takes in beats that a neighbour has passed on; those that are not newer say nothing.
    pub fn heard(&self, me: NodeId, beats: &[(NodeId, u64)]) {
        let mut work = self.work();
        for &(node, count) in beats.iter().filter(|(node, _)| *node != me) {
            let known = work.beats.entry(node).or_default();
            if count > *known {
                // One at a time: a count that is made up does not hide those that follow.
                *known += 1;
                work.last = Some((node, Instant::now()));
            }
        }
    }

    /// The node that has last said that it is at work, and when that was.
    pub fn at_work(&self) -> Option<(NodeId, Instant)> {
        self.work().last
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, State>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_millis(10);

    #[test]
    fn what_a_connection_said_outlives_its_end() {
        let status = Status::new([NodeId(1)].into_iter());
        status.connected(NodeId(1));
        status.closed(NodeId(1), "a guess".into());
        assert_eq!(status.missing()[0].1, "a guess");
        status.connected(NodeId(1));
        status.trouble(NodeId(1), "the cause".into());
        status.closed(NodeId(1), "a guess".into());
        assert_eq!(status.missing()[0].1, "the cause");
    }

    #[test]
    fn beats_are_passed_on_once_and_count_only_where_they_are_new() {
        let (worker, between, far) =
            (Status::new([].into_iter()), Status::new([].into_iter()), Status::new([].into_iter()));
        let (mut first, mut second) = (BTreeMap::new(), BTreeMap::new());
        worker.beat(NodeId(0), HEARTBEAT);
        assert!(worker.news(&mut first).is_empty(), "a node that rests says nothing");
        worker.set_working(true);
        std::thread::sleep(HEARTBEAT);
        worker.beat(NodeId(0), HEARTBEAT);
        worker.beat(NodeId(0), HEARTBEAT);
        let news = worker.news(&mut first);
        assert_eq!(news, [(NodeId(0), 1)]);
        assert!(worker.news(&mut first).is_empty());
        between.heard(NodeId(1), &news);
        let passed = between.news(&mut second);
        assert_eq!(passed, news);
        far.heard(NodeId(2), &passed);
        let (node, when) = far.at_work().unwrap();
        assert_eq!(node, NodeId(0));
        // The same beat by another way is no news; nor is a beat of one's own.
        far.heard(NodeId(2), &passed);
        far.heard(NodeId(2), &[(NodeId(2), 9)]);
        assert_eq!(far.at_work(), Some((node, when)));
        // A count that is made up does not silence the node.
        far.heard(NodeId(2), &[(NodeId(0), u64::MAX)]);
        let (_, before) = far.at_work().unwrap();
        std::thread::sleep(HEARTBEAT);
        far.heard(NodeId(2), &[(NodeId(0), 3)]);
        assert!(far.at_work().unwrap().1 > before);
    }
}
