//! Who has given a record of a tree exchange: behind it stands the signature of that node.
//!
//! A record passes through other nodes on its way to the root. Each of them checks all records of a
//! child before it passes them on. So a node that changes a record is found by its parent.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{compress::Malformed, units::NodeId};

/// The bytes that a signature adds to a record: the attempt of its node, and 64 of Ed25519.
pub const SIGNATURE: usize = 8 + 64;

/// The key of a node, and those with which it checks the others.
pub trait Signer: Send + Sync {
    /// Signs a statement of this node; at most [`SIGNATURE`] bytes.
    fn sign(&self, statement: &[u8]) -> Vec<u8>;

    /// Whether that node has signed this statement; zeros follow a signature that is shorter than
    /// [`SIGNATURE`].
    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool;
}

/// Signs records and checks them, where nodes have keys.
#[derive(Clone, Default)]
pub(crate) struct Signatures(Option<Arc<dyn Signer>>);

impl fmt::Debug for Signatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "signatures" } else { "no signatures" })
    }
}

impl Signatures {
    /// `None` where one process runs all nodes: zeros take the place of signatures, so that the
    /// bytes that are sent are as many.
    pub(crate) fn new(signer: Option<Arc<dyn Signer>>) -> Signatures {
        Signatures(signer)
    }

    /// Whether nodes have keys.
    pub(crate) fn are_of_keys(&self) -> bool {
        self.0.is_some()
    }

    /// The record of this node in a flight, with its signature behind it.
    pub(super) fn sign(&self, flight: u8, mut record: Vec<u8>) -> Vec<u8> {
        record.extend(self.signature(flight, &record));
        record
    }

    /// The signature of this node for its record in a flight, of [`SIGNATURE`] bytes.
    pub(crate) fn signature(&self, flight: u8, record: &[u8]) -> Vec<u8> {
        let signer = self.0.as_ref();
        let mut signature = signer.map_or_else(Vec::new, |by| by.sign(&statement(flight, record)));
        signature.resize(SIGNATURE, 0);
        signature
    }

    /// Whether this is that node's signature for such a record.
    pub(crate) fn fits(&self, flight: u8, node: NodeId, record: &[u8], signature: &[u8]) -> bool {
        let is_its = |by: &Arc<dyn Signer>| by.verify(node, &statement(flight, record), signature);
        self.0.as_ref().is_none_or(is_its)
    }

    /// The record of a node without its signature.
    ///
    /// # Errors
    /// If that node has not signed it.
    pub(super) fn open<'a>(
        &self,
        flight: u8,
        node: NodeId,
        signed: &'a [u8],
    ) -> Result<&'a [u8], Malformed> {
        let (record, signature) = split(signed).ok_or_else(|| {
            let length = signed.len();
            Malformed(format!("the record of node {node} has {length} bytes and no signature"))
        })?;
        match self.fits(flight, node, record, signature) {
            true => Ok(record),
            false => {
                Err(Malformed(format!("node {node} has not signed what is said to be its record")))
            }
        }
    }
}

/// A record, and the signature behind it.
pub(super) fn split(signed: &[u8]) -> Option<(&[u8], &[u8])> {
    signed.split_at_checked(signed.len().checked_sub(SIGNATURE)?)
}

/// The bytes that a signature covers.
fn statement(flight: u8, record: &[u8]) -> Vec<u8> {
    let mut statement = b"gradvine tree ".to_vec();
    statement.push(flight);
    statement.extend(Sha256::digest(record));
    statement
}
