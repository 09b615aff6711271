//! What nodes agree on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::members::keys::Keys;
use crate::{drive::Change, units::NodeId};

/// When checkpoints are written. A newer schedule replaces an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSchedule {
    /// The schedule replaces those of lower numbers.
    pub number: u64,
    /// The rounds after which the next one is due; 0 for none.
    pub next: u64,
}

/// Which node was the first of those that go back to a checkpoint, or choose members, one because
/// of the other. All of them pass on what it has signed, so nobody can name another one falsely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The node, by its number in the topology of the run.
    pub node: NodeId,
    /// Tells this from all other times at which that node was the first.
    pub number: u64,
    /// The neighbour because of which it does so; `None` if it was started again, say.
    pub about: Option<NodeId>,
    /// That of the node, over all this.
    pub signature: Vec<u8>,
}

impl Origin {
    /// The same, with the signature of its node.
    pub(crate) fn signed(self, keys: &dyn Keys) -> Origin {
        let origin = self;
        Origin { signature: keys.sign(&origin.statement()), ..origin }
    }

    /// Whether its node has signed it.
    pub(crate) fn is_signed(&self, keys: &dyn Keys) -> bool {
        keys.verify(self.node, &self.statement(), &self.signature)
    }

    fn statement(&self) -> Vec<u8> {
        let all = ("gradvine origin", self.node, self.number, self.about);
        bincode::serde::encode_to_vec(all, bincode::config::standard())
            .expect("an origin serialises")
    }
}

/// The checkpoints of one node, as it knows them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Its checkpoints, ascending, at most [`MOST_ROUNDS`].
    pub kept: Vec<CheckpointId>,
    /// The newest one of which, as far as it knows, all members have had one.
    pub common: CheckpointId,
    /// The history that belongs to its newest checkpoint.
    pub history: Vec<Change>,
}

/// The changes of the members before a checkpoint.
pub(crate) type History = Arc<Vec<Change>>;

/// A checkpoint of a node. A later one is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CheckpointId {
    /// The membership in which it was written.
    pub membership: u64,
    /// The rounds that it has done.
    pub rounds: u64,
    /// The digest of the changes of the members before it; 0 if there was none.
    pub history: u64,
}

impl CheckpointId {
    /// The checkpoint of this membership and round, to which the changes before it belong.
    pub(crate) fn new(membership: u64, rounds: u64, history: &[Change]) -> CheckpointId {
        CheckpointId { membership, rounds, history: Change::digest(history) }
    }

    /// The same of a history that may go further.
    pub(crate) fn within(membership: u64, rounds: u64, history: &[Change]) -> CheckpointId {
        let is_before = |change: &&Change| change.is_before(membership, rounds);
        let before: Vec<Change> = history.iter().filter(is_before).cloned().collect();
        CheckpointId::new(membership, rounds, &before)
    }

    /// Whether the changes before it are the first ones of this history.
    pub(crate) fn belongs_to(&self, history: &[Change]) -> bool {
        *self == CheckpointId::within(self.membership, self.rounds, history)
    }
}

/// Where a run begins or continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// The rounds that were done when it begins.
    pub rounds: u64,
    /// Whether all nodes begin at the mean of the models that some have, after round 0.
    pub from_mean: bool,
    /// The nodes that have no checkpoint of that round: they give no model to the mean.
    pub without: Vec<NodeId>,
    /// All changes of the members so far.
    pub history: Vec<Change>,
    /// The attempt of each member.
    pub attempts: Vec<u64>,
    /// Whether all look for a neighbour because of which models diverge.
    pub guards: bool,
}

impl Beginning {
    /// Identifies the place, in any attempt.
    pub(crate) fn place(&self) -> u64 {
        let Beginning { rounds, from_mean, without, history, .. } = self;
        let place = (rounds, from_mean, without, Change::digest(history));
        let bytes = bincode::serde::encode_to_vec(place, bincode::config::standard());
        let hash = Sha256::digest(bytes.expect("a place serialises"));
        u64::from_le_bytes(*hash.first_chunk().expect("32 bytes"))
    }
}

/// The maximum number of checkpoints that a node names.
pub(crate) const MOST_ROUNDS: usize = 64;

/// The maximum number of changes of a run's members.
pub(crate) const MOST_CHANGES: usize = 1000;

/// The bytes of a history in a message, at the most.
const HISTORY_LIMIT: usize = 1 << 18;

/// How many changes fit a message between so many nodes.
pub(crate) fn most_changes(nodes: usize) -> usize {
    (HISTORY_LIMIT / (64 + 8 * nodes)).min(MOST_CHANGES)
}

/// What a checkpoint says besides the state of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The newest round of which all members have had one.
    pub common: u64,
    pub membership: u64,
    pub history: Vec<Change>,
}
