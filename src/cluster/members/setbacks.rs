//! What neighbours cost the run: how often each of them has thrown this node back.
//!
//! One whose program starts again and again, or that asks for another choice of members each time,
//! keeps the others from getting further. What counts is only the neighbour itself, over its own
//! link: neither another name for the cause nor a choice of members gives it another budget. All
//! budgets begin anew once all members have had another checkpoint, so a neighbour that is started
//! again and again while the run gets further has no limit.

use litemap::LiteMap;

use crate::units::NodeId;

/// How often a neighbour may be started again, or choose members by itself.
const MOST_RESTARTS: u32 = 20;

/// How often it may go back, or choose members, because of others, as it says: as often as two
/// others that are started again and again, and once more for each node of the run.
const MOST_GONE_BACK: u32 = 2 * MOST_RESTARTS;

/// The setbacks since the members have had another checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Setbacks(LiteMap<NodeId, Times>);

/// How often a neighbour was the cause itself, and how often another node.
#[derive(Debug, Default)]
struct Times {
    own: u32,
    by_others: u32,
}

impl Setbacks {
    /// Begins all budgets anew after rounds in which all members have had another checkpoint.
    pub(crate) fn after(&mut self, has_advanced: bool) {
        if has_advanced {
            self.0 = LiteMap::new();
        }
    }

    /// Counts one more of a neighbour, in a run of so many nodes. Returns how many there were if
    /// they are too many.
    pub(crate) fn exceed(
        &mut self,
        peer: NodeId,
        because: Option<NodeId>,
        nodes: usize,
    ) -> Option<u32> {
        let Times { own, by_others } = self.0.entry(peer).or_insert_with(Times::default);
        let (times, most) = match because {
            None => (own, MOST_RESTARTS),
            Some(_) => (by_others, MOST_GONE_BACK + nodes as u32),
        };
        *times += 1;
        (*times > most).then_some(*times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_neighbour_has_two_budgets_whatever_it_names() {
        let (mut setbacks, peer) = (Setbacks::default(), NodeId(3));
        let mut exceeds = |peer, because| setbacks.exceed(peer, because, 5);
        assert!((0..20).all(|_| exceeds(peer, None).is_none()));
        assert!((0..45).all(|name| exceeds(peer, Some(NodeId(10 + name))).is_none()));
        assert_eq!((exceeds(peer, None), exceeds(peer, None)), (Some(21), Some(22)));
        assert_eq!(exceeds(peer, Some(NodeId(99))), Some(46));
        assert_eq!(exceeds(NodeId(4), None), None);
    }
}
