//! What neighbours cost the run: how often each of them has thrown this node back.
//!
//! One whose program starts again and again, that leaves and returns, or that asks for another
//! choice of members each time, keeps the others from getting further. Whoever goes back because of
//! another node shows the [`Origin`] that the first of them has signed:
//!
//! * A neighbour that is the first itself has a budget of its own. Neither another name for the
//!   cause nor a choice of members gives it another one.
//! * An honest node must give up a neighbour that it cannot await. So what a neighbour does about
//!   one of its own neighbours has another budget. It is greater than what that one can cost, so
//!   nobody uses up the budgets of others.
//! * One that shows what another node has signed is no cause, unless it has shown that before, or
//!   this node has shown it itself. So no node shows the same origin twice.
//!
//! All budgets begin anew once all members have had another checkpoint, so a neighbour that is
//! started again and again while the run gets further has no limit.

use std::collections::BTreeSet;

use litemap::LiteMap;

use super::keys::Keys;
use crate::{cluster::message::Origin, mixing::Topology, units::NodeId};

/// How often a neighbour may be started again, leave, or choose members by itself.
const MOST_OWN: u32 = 20;

/// How often it may show an origin once more: messages cross each other on their way.
const MOST_SHOWN_AGAIN: u32 = 10;

/// How often it may do so about one of its neighbours: as often as that one may do so to it, and
/// each time that it returns after it was refused, for longer each time.
const MOST_ABOUT: u32 = MOST_OWN + MOST_SHOWN_AGAIN + 10;

/// The most setbacks that one neighbour causes at a node. The neighbour has `neighbours` links.
#[cfg(test)]
pub(crate) const fn most(neighbours: u32) -> u32 {
    MOST_OWN + MOST_SHOWN_AGAIN + MOST_ABOUT * neighbours
}

/// The setbacks that each neighbour has caused since the members have had another checkpoint, and
/// all origins that this node has shown.
#[derive(Debug, Default)]
pub(crate) struct Setbacks {
    by: LiteMap<NodeId, Times>,
    shown: BTreeSet<(NodeId, u64)>,
}

/// How often a neighbour was the cause itself, how often it was about which neighbour, how often it
/// has shown an origin once more, and those of others that it has shown.
#[derive(Debug, Default)]
struct Times {
    own: u32,
    shown_again: u32,
    about: LiteMap<NodeId, u32>,
    shown: BTreeSet<(NodeId, u64)>,
}

/// What is known of a setback.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Setback {
    /// This neighbour has caused so many that it is refused.
    TooMany(u32),
    /// The origin that this node shows in turn; none if the neighbour is the cause.
    Of(Option<Origin>),
}

impl Setbacks {
    /// Begins all budgets anew after rounds in which all members have had another checkpoint.
    pub(crate) fn after(&mut self, has_advanced: bool) {
        if has_advanced {
            self.by = LiteMap::new();
        }
    }

    /// This node shows an origin.
    pub(crate) fn shows(&mut self, origin: &Origin) {
        self.shown.insert((origin.node, origin.number));
    }

    /// Counts one more that a neighbour causes itself. Returns how many there were if they are too
    /// many.
    pub(crate) fn exceed(&mut self, peer: NodeId) -> Option<u32> {
        let own = &mut self.by.entry(peer).or_default().own;
        *own += 1;
        (*own > MOST_OWN).then_some(*own)
    }

    /// Counts one more of a neighbour, with the origin that it shows.
    pub(crate) fn count(
        &mut self,
        peer: NodeId,
        shown: Option<Origin>,
        topology: &Topology,
        keys: &dyn Keys,
    ) -> Setback {
        let nodes = topology.nodes();
        let is_signed = |origin: &Origin| origin.node.index() < nodes && origin.is_signed(keys);
        let Some(origin) = shown.filter(is_signed) else { return self.of_itself(peer, None) };
        let Times { shown_again, about, shown, .. } = self.by.entry(peer).or_default();
        let id = (origin.node, origin.number);
        let is_new = shown.insert(id) && !self.shown.contains(&id);
        let is_about = |about: &NodeId| topology.neighbours(peer).contains(about);
        let own = origin.node == peer;
        let (times, most) = match origin.about.filter(is_about) {
            Some(neighbour) if own && is_new => (about.entry(neighbour).or_default(), MOST_ABOUT),
            _ if own => return self.of_itself(peer, is_new.then_some(origin)),
            _ if is_new => return Setback::Of(Some(origin)),
            _ => (shown_again, MOST_SHOWN_AGAIN),
        };
        *times += 1;
        match *times > most {
            true => Setback::TooMany(*times),
            false => Setback::Of(is_new.then_some(origin)),
        }
    }

    fn of_itself(&mut self, peer: NodeId, origin: Option<Origin>) -> Setback {
        self.exceed(peer).map_or(Setback::Of(origin), Setback::TooMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::members::keys::Named;

    /// What a node has signed about one of its neighbours.
    fn signed(node: usize, number: u64, about: Option<usize>) -> Origin {
        let node = NodeId::from(node);
        let about = about.map(NodeId::from);
        Origin { node, number, about, ..Origin::default() }.signed(&Named(node))
    }

    /// How often node 1 of a ring of five may show these, until it is refused.
    fn times(shows: impl Fn(u64) -> Option<Origin>) -> Option<u64> {
        let topology = Topology::parse("ring:5", 0).unwrap();
        let (mut setbacks, peer) = (Setbacks::default(), NodeId(1));
        (0..1000).find(|&number| {
            let counted = setbacks.count(peer, shows(number), &topology, &Named(NodeId(0)));
            matches!(counted, Setback::TooMany(_))
        })
    }

    #[test]
    fn a_neighbour_has_one_budget_whatever_it_names() {
        let own = u64::from(MOST_OWN);
        assert_eq!(times(|_| None), Some(own));
        assert_eq!(times(|number| Some(signed(1, number, None))), Some(own));
        assert_eq!(times(|number| Some(signed(1, number, Some(4)))), Some(own), "no neighbour");
        assert_eq!(times(|_| Some(signed(1, 7, Some(2)))), Some(own + 1), "the same again");
        let false_name = |number| Origin { node: NodeId(3), ..signed(1, number, None) };
        assert_eq!(times(|number| Some(false_name(number))), Some(own));
        let nobody = |number| Origin { node: NodeId(9), ..signed(9, number, None) };
        assert_eq!(times(|number| Some(nobody(number))), Some(own));
        // About both its neighbours in turn.
        let about = |number| Some(signed(1, number, Some(2 * (number as usize % 2))));
        assert_eq!(times(about), Some(2 * u64::from(MOST_ABOUT)));
    }

    #[test]
    fn one_that_shows_what_others_have_signed_is_no_cause() {
        assert_eq!(times(|number| Some(signed(3, number, None))), None);
        assert_eq!(times(|number| Some(signed(3, number, Some(2)))), None);
        // The same again and again.
        assert_eq!(times(|_| Some(signed(3, 7, None))), Some(1 + u64::from(MOST_SHOWN_AGAIN)));
    }

    /// A neighbour repeats what this node has shown, also before the last checkpoint. This node
    /// shows something of its own then, so its neighbours do not take it for one that repeats.
    #[test]
    fn what_this_node_has_shown_is_not_shown_again() {
        let topology = Topology::parse("ring:5", 0).unwrap();
        let (mut setbacks, keys) = (Setbacks::default(), Named(NodeId(0)));
        for node in [0, 3] {
            setbacks.shows(&signed(node, 7, None));
            setbacks.after(true);
            let shown = setbacks.count(NodeId(1), Some(signed(node, 7, None)), &topology, &keys);
            assert_eq!(shown, Setback::Of(None), "of node {node}");
            let other = signed(node, 8, None);
            let shown = setbacks.count(NodeId(1), Some(other.clone()), &topology, &keys);
            assert_eq!(shown, Setback::Of(Some(other)), "of node {node}");
        }
    }
}
