//! Who holds a run up: what nodes say about their waiting, and what follows from it.
//!
//! A node that waits for a neighbour may wait for one that waits itself. So each node says for whom
//! it waits, all nodes pass that on, and each follows the chain to its end. And each says how much
//! of its time it waits: the one that hardly does, while most do most of the time, is slower than
//! they are.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use crate::units::NodeId;

/// The time over which a node measures its waiting.
const WINDOW: Duration = Duration::from_secs(10);

/// How often a node says for whom it waits, and how long it must have waited.
pub(crate) const TOLD: Duration = Duration::from_secs(1);

/// A node that waits at most this share of its time holds up others that wait at least that one, in
/// percent, in so many windows one after the other.
const BUSY: u8 = 30;
const WAITING: u8 = 60;
const TIMES: u32 = 2;

/// How far the clock of another node may be ahead, in milliseconds: nodes begin a run one after the
/// other.
const AHEAD: u64 = 10_000;

/// The number of a node's next statement: the milliseconds since the attempt began, and more than
/// the number of the statement before. A later statement has a greater number, whatever was missed.
pub(crate) fn next_number(since: Duration, before: u64) -> u64 {
    (since.as_millis() as u64).max(before.saturating_add(1))
}

/// The number of another node's statement, at most [`AHEAD`] of the own clock. So a false number
/// hides the statements that follow for some seconds only.
pub(crate) fn capped_number(since: Duration, number: u64) -> u64 {
    number.min(since.as_millis() as u64 + AHEAD)
}

/// A sign that another node is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alive {
    pub node: NodeId,
    pub when: Instant,
    /// Whether it waits for a lost link.
    pub absent: bool,
}

/// What a node says about its waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Greater than those of what it has said before.
    pub number: u64,
    /// The neighbours that it waits for, if it has waited for a moment.
    pub waits_for: Vec<NodeId>,
    /// The share of the last seconds in which it waited, in percent.
    pub waiting: Option<u8>,
}

/// The paces of all nodes, as far as this one knows.
#[derive(Clone, Debug)]
pub(crate) struct Paces {
    all: LiteMap<NodeId, Pace>,
    started: Instant,
}

impl Paces {
    /// Those of a run that begins now.
    pub(crate) fn new(now: Instant) -> Paces {
        Paces { all: LiteMap::new(), started: now }
    }

    /// The run begins now: all nodes number what they say from here on.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.started = now;
    }

    /// This node's own is this now. Returns whether that is new.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        me: NodeId,
        waits_for: Vec<NodeId>,
        waiting: Option<u8>,
    ) -> bool {
        let own = self.all.entry(me).or_default();
        let is_new = (&own.waits_for, own.waiting) != (&waits_for, waiting);
        if is_new {
            let number = next_number(now - self.started, own.number);
            *own = Pace { number, waits_for, waiting };
        }
        is_new
    }

    /// Takes those that a neighbour passes on, in a run of so many nodes.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        me: NodeId,
        paces: Vec<(NodeId, Pace)>,
        nodes: usize,
    ) {
        let exists = |node: &NodeId| node.index() < nodes;
        for (node, pace) in paces {
            let is_valid = exists(&node) && pace.waits_for.iter().all(exists);
            let known = self.all.get(&node).map_or(0, |known| known.number);
            let number = capped_number(now - self.started, pace.number);
            if is_valid && node != me && number > known {
                self.all.insert(node, Pace { number, ..pace });
            }
        }
    }

    /// Those that are newer than what was sent.
    pub(crate) fn news(&self, sent: &mut LiteMap<NodeId, u64>) -> Vec<(NodeId, Pace)> {
        let is_new = |(node, pace): &(&NodeId, &Pace)| sent.get(node) < Some(&pace.number);
        let news: Vec<(NodeId, Pace)> =
            self.all.iter().filter(is_new).map(|(node, pace)| (*node, pace.clone())).collect();
        sent.extend(news.iter().map(|(node, pace)| (*node, pace.number)));
        news
    }

    /// From one of these nodes, for which this one waits, to the node for which they all wait in
    /// the end: each waits for the next one.
    pub(crate) fn chain(&self, me: NodeId, first: &[NodeId]) -> Vec<NodeId> {
        let mut longest = Vec::new();
        for &start in first {
            let (mut chain, mut seen) = (vec![start], BTreeSet::from([me, start]));
            while let Some(last) = chain.last()
                && let Some(pace) = self.all.get(last)
                && let Some(&next) = pace.waits_for.iter().find(|next| !seen.contains(next))
            {
                seen.insert(next);
                chain.push(next);
            }
            // One that waits for nobody is the cause; of several, the one that is furthest.
            if longest.is_empty() || chain.len() > longest.len() {
                longest = chain;
            }
        }
        longest
    }

    /// The node that hardly waits, and the median of the shares of the others, if most of these
    /// wait most of the time.
    fn slowest(&self) -> Option<(NodeId, u8)> {
        let shares = self.all.iter().filter_map(|(node, pace)| Some((pace.waiting?, *node)));
        let mut shares: Vec<(u8, NodeId)> = shares.collect();
        shares.sort_unstable();
        let ((least, node), others) = shares.split_first()?;
        let median = others.get(others.len() / 2)?.0;
        // The next one is no slow one, too.
        (*least <= BUSY && median >= WAITING).then_some((*node, median))
    }
}

/// Measures this node's waiting, and notices who is slow.
#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    waited: Duration,
    share: Option<u8>,
    told: Instant,
    slow: Option<(NodeId, u32)>,
    named: BTreeSet<NodeId>,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Meter {
        let named = BTreeSet::new();
        Meter { since: now, waited: Duration::ZERO, share: None, told: now, slow: None, named }
    }

    /// The node has waited for so long.
    pub(crate) fn add(&mut self, waited: Duration) {
        self.waited += waited;
    }

    /// Whether it is time to say something.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = now - self.told >= TOLD;
        if due {
            self.told = now;
        }
        due
    }

    /// The share of the last window in which the node waited, in percent, to the next ten.
    pub(crate) fn share(&self) -> Option<u8> {
        self.share
    }

    /// Whether a window is over. Then a node may turn out to hold the run up, with the median of
    /// the shares of waiting of the others; each node is named once.
    pub(crate) fn turn(&mut self, now: Instant, paces: &Paces) -> Option<(NodeId, u8)> {
        let length = now - self.since;
        if length < WINDOW {
            return None;
        }
        let share = 100.0 * self.waited.as_secs_f64() / length.as_secs_f64();
        self.share = Some((10.0 * (share / 10.0).round()).clamp(0.0, 100.0) as u8);
        (self.since, self.waited) = (now, Duration::ZERO);
        let found = paces.slowest();
        let before = self.slow.take();
        let (node, median) = found?;
        let times = 1 + before.filter(|(slow, _)| *slow == node).map_or(0, |(_, times)| times);
        self.slow = Some((node, times));
        (times >= TIMES && self.named.insert(node)).then_some((node, median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(nodes: &[u32]) -> Vec<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        let now = Instant::now();
        let mut paces = Paces::new(now);
        let says = |node: u32, number: u64, waits_for: &[u32]| {
            let pace = Pace { number, waits_for: numbers(waits_for), waiting: None };
            vec![(NodeId(node), pace)]
        };
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1]), "nothing is known");
        paces.add(now, NodeId(0), says(1, 1, &[0, 2]), 4);
        paces.add(now, NodeId(0), says(2, 1, &[3]), 4);
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1, 2, 3]));
        // Two that wait for each other, one of which does not exist, and a false number.
        paces.add(now, NodeId(0), says(3, 1, &[2]), 4);
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1, 2, 3]));
        paces.add(now, NodeId(0), says(1, u64::MAX, &[9]), 4);
        paces.add(now, NodeId(0), says(1, u64::MAX, &[2]), 4);
        let now = now + Duration::from_secs(11);
        paces.add(now, NodeId(0), says(1, 11_000, &[]), 4);
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1]));
        // What is new is passed on once.
        let mut sent = LiteMap::new();
        assert_eq!(paces.news(&mut sent).len(), 3);
        assert!(paces.news(&mut sent).is_empty());
        assert!(paces.set(now, NodeId(0), numbers(&[1]), None));
        assert!(!paces.set(now, NodeId(0), numbers(&[1]), None));
        assert_eq!(paces.news(&mut sent).len(), 1);
    }

    /// A node that has missed what others have heard hears the newest from one of them, and then an
    /// older one from another.
    #[test]
    fn an_old_statement_does_not_pass_for_a_new_one() {
        let now = Instant::now();
        let [mut says, mut hears, mut missed] = [(); 3].map(|()| Paces::new(now));
        let mut later = now;
        let mut news = Vec::new();
        for second in 1..60 {
            later = now + Duration::from_secs(second);
            says.set(later, NodeId(0), numbers(&[1 + second as u32 % 2]), None);
            news = says.news(&mut LiteMap::new());
            if second < 59 {
                hears.add(later, NodeId(1), news.clone(), 4);
            }
        }
        missed.add(later, NodeId(2), news, 4);
        missed.add(later, NodeId(2), hears.news(&mut LiteMap::new()), 4);
        assert_eq!(missed.chain(NodeId(3), &numbers(&[0])), numbers(&[0, 2]), "the old one");
        hears.add(later, NodeId(1), missed.news(&mut LiteMap::new()), 4);
        assert_eq!(hears.chain(NodeId(3), &numbers(&[0])), numbers(&[0, 2]));
    }

    #[test]
    fn a_node_that_is_throttled_to_a_sixth_is_noticed_once() {
        let now = Instant::now();
        let noticed = |shares: [u8; 5], windows: u32| {
            let (mut meter, mut paces) = (Meter::new(now), Paces::new(now));
            for (node, waiting) in shares.into_iter().enumerate() {
                paces.set(now, node.into(), Vec::new(), Some(waiting));
            }
            let mut named = Vec::new();
            for window in 1..=windows {
                meter.add(WINDOW / 4);
                named.extend(meter.turn(now + window * WINDOW, &paces));
            }
            assert_eq!(meter.share(), Some(30), "a quarter, to the next ten");
            named
        };
        assert_eq!(noticed([80, 80, 10, 90, 80], 9), [(NodeId(2), 80)]);
        assert_eq!(noticed([80, 80, 10, 90, 80], 1), [], "once may be chance");
        assert_eq!(noticed([40, 50, 10, 40, 30], 9), [], "rows differ");
        assert_eq!(noticed([90, 80, 90, 90, 80], 9), [], "the network is slow");
    }
}
