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

/// Signs what nodes give to the spanning tree of a membership, in which they have other numbers.
pub(crate) struct OfMembers {
    keys: Arc<dyn Keys>,
    membership: u64,
    numbers: Vec<NodeId>,
}

impl OfMembers {
    pub(crate) fn new(keys: &Arc<dyn Keys>, part: &Part<'_>) -> OfMembers {
        let (membership, numbers) = (part.membership.id, part.numbers.clone());
        OfMembers { keys: Arc::clone(keys), membership, numbers }
    }

    fn of(&self, statement: &[u8]) -> Vec<u8> {
        [&self.membership.to_le_bytes(), statement].concat()
    }
}

impl Signer for OfMembers {
    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        self.keys.sign(&self.of(statement))
    }

    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
        let number = self.numbers.get(node.index());
        number.is_some_and(|number| self.keys.verify(*number, &self.of(statement), signature))
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
