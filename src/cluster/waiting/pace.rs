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

use crate::units::NodeId;

/// A node measures its waiting over at least this time and so many rounds, but not for longer than
/// that.
const WINDOW: Duration = Duration::from_secs(2);
const ROUNDS: u64 = 2;
const LONGEST: Duration = Duration::from_secs(60);

/// How often a node says for whom it waits, and how long it must have waited.
pub(crate) const TOLD: Duration = Duration::from_secs(1);

/// A node that waits at most this share of its time holds up others that wait at least that one, in
/// percent, in so many windows one after the other.
const BUSY: u8 = 30;
const WAITING: u8 = 60;
const TIMES: u32 = 3;

/// A sign that another node is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alive {
    pub node: NodeId,
    pub when: Instant,
    /// Whether it waits for a lost link.
    pub absent: bool,
}

/// What a node says about its waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The neighbours that it waits for, if it has waited for a moment.
    pub waits_for: Vec<NodeId>,
    /// The share of the last seconds in which it waited, in percent.
    pub waiting: Option<u8>,
}

/// The paces of all nodes, as far as this one knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paces(LiteMap<NodeId, Pace>);

impl Paces {
    /// A node says this. Nodes that are not members are no part of it.
    pub(crate) fn set(&mut self, node: NodeId, pace: Pace) {
        self.0.insert(node, pace);
    }

    /// Whether a node says that it waits for others.
    pub(crate) fn waits(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|pace| !pace.waits_for.is_empty())
    }

    /// From one of these nodes, for which this one waits, to the node for which they all wait in
    /// the end: each waits for the next one. The last one may wait for one before it.
    pub(crate) fn chain(&self, me: NodeId, first: &[NodeId]) -> Vec<NodeId> {
        let mut longest = Vec::new();
        for &start in first {
            let (mut chain, mut seen) = (vec![start], BTreeSet::from([me, start]));
            while let Some(last) = chain.last()
                && let Some(pace) = self.0.get(last)
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

    /// The node that holds the others up by what it has to do, and the median of the shares of
    /// waiting of the others.
    fn slowest(&self) -> Option<(NodeId, u8)> {
        slowest(self.0.iter().filter_map(|(node, pace)| Some((*node, pace.waiting?))))
    }
}

/// From the shares of waiting of nodes, in percent: the node that hardly waits, and the median of
/// the others, if most of these wait most of the time.
pub fn slowest(shares: impl Iterator<Item = (NodeId, u8)>) -> Option<(NodeId, u8)> {
    let mut shares: Vec<(u8, NodeId)> = shares.map(|(node, share)| (share, node)).collect();
    shares.sort_unstable();
    let ((least, node), others) = shares.split_first()?;
    let median = others.get(others.len() / 2)?.0;
    // The next one is no slow one, too.
    (*least <= BUSY && median >= WAITING).then_some((*node, median))
}

/// Measures this node's waiting, and notices who is slow.
#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    waited: Duration,
    /// The rounds before the window.
    rounds: u64,
    share: Option<u8>,
    told: Instant,
    slow: Option<(NodeId, u32)>,
    named: BTreeSet<NodeId>,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Meter {
        let named = BTreeSet::new();
        let (waited, rounds) = (Duration::ZERO, 0);
        Meter { since: now, waited, rounds, share: None, told: now, slow: None, named }
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

    /// Whether a window is over, after so many rounds. Then a node may turn out to hold the run up,
    /// with the median of the shares of waiting of the others; each node is named once.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        rounds: u64,
        paces: &Paces,
    ) -> Option<(NodeId, u8)> {
        let length = now - self.since;
        if length < WINDOW || (rounds < self.rounds + ROUNDS && length < LONGEST) {
            return None;
        }
        self.rounds = rounds;
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
        let mut paces = Paces::default();
        let waits = |waits_for: &[u32]| Pace { waits_for: numbers(waits_for), waiting: None };
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1]), "nothing is known");
        paces.set(NodeId(1), waits(&[0, 2]));
        paces.set(NodeId(2), waits(&[3]));
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1, 2, 3]));
        // Two that wait for each other.
        paces.set(NodeId(3), waits(&[2]));
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1, 2, 3]));
        paces.set(NodeId(1), waits(&[]));
        assert_eq!(paces.chain(NodeId(0), &numbers(&[1])), numbers(&[1]));
    }

    #[test]
    fn a_window_has_two_rounds_or_a_minute() {
        let now = Instant::now();
        let (mut meter, paces) = (Meter::new(now), Paces::default());
        let mut share_at = |second: u64, rounds: u64| {
            meter.turn(now + Duration::from_secs(second), rounds, &paces);
            meter.share()
        };
        assert_eq!([share_at(10, 1), share_at(59, 1)], [None; 2]);
        assert_eq!([share_at(60, 1), share_at(61, 3)], [Some(0); 2]);
    }

    #[test]
    fn a_node_that_is_throttled_to_a_sixth_is_noticed_once() {
        let now = Instant::now();
        let noticed = |shares: [u8; 5], windows: u32| {
            let (mut meter, mut paces) = (Meter::new(now), Paces::default());
            for (node, waiting) in shares.into_iter().enumerate() {
                paces.set(node.into(), Pace { waiting: Some(waiting), ..Pace::default() });
            }
            let mut named = Vec::new();
            for window in 1..=windows {
                meter.add(WINDOW / 4);
                named.extend(meter.turn(now + window * WINDOW, 2 * u64::from(window), &paces));
            }
            assert_eq!(meter.share(), Some(30), "a quarter, to the next ten");
            named
        };
        assert_eq!(noticed([80, 80, 10, 90, 80], 9), [(NodeId(2), 80)]);
        assert_eq!(noticed([80, 80, 10, 90, 80], 2), [], "twice may be chance");
        assert_eq!(noticed([40, 50, 10, 40, 30], 9), [], "rows differ");
        assert_eq!(noticed([90, 80, 90, 90, 80], 9), [], "the network is slow");
    }
}
