//! The members of a run: the nodes that take part, which may change.

use serde::{Deserialize, Serialize};

use crate::units::{NodeId, Round};

/// The nodes that take part in a run from some round on, and the links that they do not use. Nodes
/// have their numbers in the topology of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// 0 for all nodes; otherwise the number of the change times 2^32, plus the number of the node
    /// that proposed it. A later one is greater, and no two have the same.
    pub id: u64,
    /// The members, ascending.
    pub members: Vec<NodeId>,
    /// Links between members that they do not use, the lower number first, ascending.
    pub cut: Vec<(NodeId, NodeId)>,
}

impl Membership {
    /// All of these nodes, with all links: every run begins with it.
    pub fn all(nodes: usize) -> Membership {
        Membership { id: 0, members: (0..nodes).map(NodeId::from).collect(), cut: Vec::new() }
    }

    /// Whether these are all of so many nodes, with all links.
    pub fn is_whole(&self, nodes: usize) -> bool {
        self.members.len() == nodes && self.cut.is_empty()
    }

    /// An id that is greater than these, for a membership that `proposer` proposes.
    pub fn next_id(known: impl Iterator<Item = u64>, proposer: NodeId) -> u64 {
        let newest = known.max().unwrap_or(0) >> 32;
        (newest + 1) << 32 | u64::from(proposer.0)
    }

    /// The number of a node among the members.
    pub fn place(&self, node: NodeId) -> Option<NodeId> {
        self.members.binary_search(&node).ok().map(NodeId::from)
    }
}

/// A change of the members of a run, or the return of some without their checkpoints. All members
/// went on from the mean of some models, and rule and optimizer began anew there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The id of the membership from then on.
    pub id: u64,
    /// The rounds after which they went on.
    pub round: Round,
    /// The members from then on, ascending.
    pub members: Vec<NodeId>,
    /// Links between members that are not used.
    pub cut: Vec<(NodeId, NodeId)>,
    /// The nodes whose models formed the mean; none if the run began there.
    pub models: Vec<NodeId>,
}

impl Change {
    /// Whether it came before a checkpoint of this membership after so many rounds.
    pub fn is_before(&self, membership: u64, rounds: u64) -> bool {
        self.id < membership || (self.id == membership && self.round.0 <= rounds)
    }
}
