//! The members of a run: the nodes that take part, which may change.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::units::{NodeId, Round};

/// The nodes that take part in a run from some round on, and the links that they do not use. Nodes
/// have their numbers in the topology of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// 0 for all nodes; otherwise the number of the change times 2^32, plus a checksum over the
    /// members and links: a later one is greater, and two of one number differ, but for one case
    /// in 2^32.
    pub(crate) id: u64,
    /// The nodes that take part, ascending.
    pub members: Vec<NodeId>,
    /// Links between members that they do not use, the lower number first, ascending.
    pub cut: Vec<(NodeId, NodeId)>,
}

impl Membership {
    /// All of these nodes, with all links: every run begins with it.
    pub(crate) fn all(nodes: usize) -> Membership {
        Membership { id: 0, members: (0..nodes).map(NodeId::from).collect(), cut: Vec::new() }
    }

    /// Whether these are all of so many nodes, with all links.
    pub(crate) fn is_whole(&self, nodes: usize) -> bool {
        self.members.len() == nodes && self.cut.is_empty()
    }

    /// Those of so many nodes that are not members.
    pub(crate) fn absent(&self, nodes: usize) -> Vec<NodeId> {
        (0..nodes).map(NodeId::from).filter(|node| self.place(*node).is_none()).collect()
    }

    /// These members, later than the memberships with these ids.
    pub(crate) fn after(
        known: impl Iterator<Item = u64>,
        members: Vec<NodeId>,
        cut: Vec<(NodeId, NodeId)>,
    ) -> Membership {
        let newest = known.max().unwrap_or(0) >> 32;
        // A node that has lost its files may give out a number twice.
        let sum = u64::from(checksum(&members, &cut));
        Membership { id: (newest + 1) << 32 | sum, members, cut }
    }

    /// Whether the id can be that of these members and links, in a run of so many nodes.
    pub(crate) fn has_own_id(&self, nodes: usize) -> bool {
        match self.id {
            0 => self.is_whole(nodes),
            id => id as u32 == checksum(&self.members, &self.cut),
        }
    }

    /// The number of a node among the members.
    pub(crate) fn place(&self, node: NodeId) -> Option<NodeId> {
        self.members.binary_search(&node).ok().map(NodeId::from)
    }
}

/// A change of the members of a run, or the return of some without their checkpoints. All members
/// continued from the mean of some models, and rule and optimizer started from the beginning there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The id of the membership from then on.
    pub id: u64,
    /// The rounds after which they continued.
    pub round: Round,
    /// The members from then on, ascending.
    pub members: Vec<NodeId>,
    /// Links between members that are not used.
    pub cut: Vec<(NodeId, NodeId)>,
    /// The nodes whose models formed the mean; none if the run began there.
    pub models: Vec<NodeId>,
}

/// The checksum of members and of links that they do not use.
fn checksum(members: &[NodeId], cut: &[(NodeId, NodeId)]) -> u32 {
    let ends = cut.iter().flat_map(|(a, b)| [a, b]);
    members
        .iter()
        .chain(ends)
        .fold(members.len() as u32, |sum, node| crc32c::crc32c_append(sum, &node.0.to_le_bytes()))
}

impl Change {
    /// What identifies a history: the first 8 bytes of the SHA-256 of its changes, in JSON; 0 if
    /// there is none.
    pub(crate) fn digest(history: &[Change]) -> u64 {
        if history.is_empty() {
            return 0;
        }
        let text = serde_json::to_vec(history).expect("changes serialise to JSON");
        let hash = Sha256::digest(text);
        u64::from_le_bytes(*hash.first_chunk().expect("32 bytes"))
    }

    /// About how many bytes it has in a message.
    pub(crate) fn length(&self) -> usize {
        40 + 4 * (self.members.len() + 2 * self.cut.len() + self.models.len())
    }

    /// Whether a run of so many rounds whose newest membership has this id can have had it after
    /// the other one.
    pub(crate) fn can_follow(&self, before: Option<&Change>, newest: u64, rounds: u64) -> bool {
        let (id, round) = before.map_or((0, Round(0)), |before| (before.id, before.round));
        (id..=newest).contains(&self.id) && (round..=Round(rounds)).contains(&self.round)
    }

    /// Whether it came before a checkpoint of this membership after so many rounds. No checkpoint
    /// is written between a change and the next round.
    pub(crate) fn is_before(&self, membership: u64, rounds: u64) -> bool {
        self.id < membership || (self.id == membership && self.round.0 < rounds)
    }
}
