//! Who has said what: what nodes pass on about a node is signed by it, so a node can be false about
//! itself only.

use std::fmt::Debug;

use crate::units::NodeId;

/// The longest signature, in bytes: one of Ed25519 has 64.
pub(crate) const LONGEST: usize = 96;

/// The key of a node, and what proves the statements of the others.
pub(crate) trait Keys: Debug + Send + Sync {
    /// Signs a statement of this node.
    fn sign(&self, statement: &[u8]) -> Vec<u8>;

    /// Whether that node has signed this statement.
    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool;
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
        Named::of(node, statement) == signature
    }
}
