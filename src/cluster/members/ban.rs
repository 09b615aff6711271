//! Neighbours that have broken the protocol: while the run continues without their links, their
//! connections are refused, each time for twice as long.

use std::time::{Duration, Instant};

use litemap::LiteMap;

use crate::units::NodeId;

/// How long a neighbour is refused at first, and at most.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(86_400);

/// A neighbour whose connections are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    pub until: Instant,
    pub reason: String,
}

/// The bans of one node, by the numbers of the run's topology.
#[derive(Debug, Default)]
pub(crate) struct Bans(LiteMap<NodeId, (Ban, u32)>);

impl Bans {
    /// Bans a neighbour and returns for how long.
    pub(crate) fn add(&mut self, peer: NodeId, reason: String, now: Instant) -> Duration {
        let times = self.0.get(&peer).map_or(0, |(_, times)| *times);
        let length = FIRST.saturating_mul(1 << times.min(16)).min(LONGEST);
        self.0.insert(peer, (Ban { until: now + length, reason }, times + 1));
        length
    }

    /// The ban of a neighbour, if it is not over.
    pub(crate) fn of(&self, peer: NodeId, now: Instant) -> Option<Ban> {
        self.0.get(&peer).map(|(ban, _)| ban).filter(|ban| now < ban.until).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ban_is_twice_as_long_as_the_one_before_up_to_a_day() {
        let (mut bans, now, peer) = (Bans::default(), Instant::now(), NodeId(3));
        assert_eq!(bans.of(peer, now), None);
        let lengths: Vec<u64> =
            (0..20).map(|_| bans.add(peer, "x".into(), now).as_secs()).collect();
        assert_eq!(lengths[..4], [60, 120, 240, 480]);
        assert_eq!(lengths[11..], [86_400; 9]);
        assert_eq!(bans.of(peer, now).unwrap().reason, "x");
        assert_eq!(bans.of(peer, now + LONGEST), None);
        assert_eq!(bans.of(NodeId(4), now), None);
    }
}
