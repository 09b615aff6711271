//! Who has said what: what nodes pass on about a node is signed by it, so a node can be false about
//! itself only.

use std::{fmt::Debug, sync::Arc};

use crate::{cluster::part::Part, gossip::tree::Signer, units::NodeId};

/// The longest signature, in bytes: one of Ed25519 has 64.
pub(crate) const LONGEST: usize = 96;

/// The key of a node, and what proves the statements of the others.
pub(crate) trait Keys: Debug + Send + Sync {
    /// Signs a statement of this node.
    fn sign(&self, statement: &[u8]) -> Vec<u8>;

    /// Whether that node has signed this statement.
    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool;
}

/// Signs what nodes say to each other in an attempt of a membership, in which they have other
/// numbers. A signature begins with the attempt of its node. A statement of another membership, or
/// of an earlier attempt of its node, does not count. A node that was started again just before the
/// rounds may have a later attempt than others know.
#[derive(Clone, Debug)]
pub(crate) struct OfMembers {
    keys: Arc<dyn Keys>,
    me: NodeId,
    membership: u64,
    numbers: Vec<NodeId>,
    attempts: Vec<u64>,
}

impl OfMembers {
    /// `attempts` are those of all members when the rounds begin.
    pub(crate) fn new(keys: &Arc<dyn Keys>, part: &Part<'_>, attempts: Vec<u64>) -> OfMembers {
        let (me, membership, numbers) = (part.id, part.membership.id, part.numbers.clone());
        OfMembers { keys: Arc::clone(keys), me, membership, numbers, attempts }
    }

    /// The same for another member, with its key.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn of(self, me: NodeId, keys: &Arc<dyn Keys>) -> OfMembers {
        OfMembers { me, keys: Arc::clone(keys), ..self }
    }

    /// What a member signs for a statement.
    fn bound(&self, attempt: u64, statement: &[u8]) -> Vec<u8> {
        [&self.membership.to_le_bytes()[..], &attempt.to_le_bytes(), statement].concat()
    }

    fn attempt(&self, node: NodeId) -> u64 {
        self.attempts.get(node.index()).copied().unwrap_or(0)
    }
}

impl Signer for OfMembers {
    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        let attempt = self.attempt(self.me);
        [&attempt.to_le_bytes()[..], &self.keys.sign(&self.bound(attempt, statement))].concat()
    }

    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
        let Some((attempt, signature)) = signature.split_first_chunk() else { return false };
        let attempt = u64::from_le_bytes(*attempt);
        self.numbers.get(node.index()).is_some_and(|number| {
            attempt >= self.attempt(node)
                && self.keys.verify(*number, &self.bound(attempt, statement), signature)
        })
    }
}

/// Keys of simulations: a signature names its signer, and fits one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named(pub NodeId);

impl Named {
    fn of(node: NodeId, statement: &[u8]) -> Vec<u8> {
        let sum = crc32c::crc32c(statement);
        [node.0.to_le_bytes(), sum.to_le_bytes()].concat()
    }
}

impl Keys for Named {
    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        Named::of(self.0, statement)
    }

    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
        let rest = signature.strip_prefix(Named::of(node, statement).as_slice());
        rest.is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    }
}
