//! The records of a flight, each with the signature of its node. They are gathered at the root, and
//! go down to all nodes if these form for themselves what they need.

use super::{
    plan::TreePlan,
    records::Records,
    signatures::{Signatures, split},
};
use crate::{
    compress::Malformed,
    gossip::{
        party::{Encoded, Local, Party, Writer},
        plan::At,
    },
    units::NodeId,
};

/// Gathers the signed records of all nodes, and passes them on.
#[derive(Debug)]
pub(super) struct Signed {
    height: u16,
    root: bool,
    /// Whether they go down to all nodes.
    passes_on: bool,
    records: Records,
}

impl Signed {
    /// Starts with this node's own record.
    ///
    /// # Panics
    /// If the record exceeds the plan's limit.
    pub(super) fn new(
        plan: &TreePlan,
        node: NodeId,
        record: Vec<u8>,
        signatures: &Signatures,
    ) -> Signed {
        Signed {
            height: plan.height(),
            root: plan.is_root(node),
            passes_on: plan.passes_on(),
            records: Records::new(plan, node, record, Some(signatures)),
        }
    }

    /// The records that are present, ascending by node, without their signatures.
    pub(super) fn held(&self) -> impl Iterator<Item = &[u8]> {
        unsigned(self.records.held()).map(|(_, record)| record)
    }

    pub(super) fn is_at_root(&self) -> bool {
        self.root
    }

    /// Whether this exchange carries records, and not what the root has formed of them.
    pub(super) fn travel_in(&self, at: &At) -> bool {
        at.exchange < self.height || self.passes_on
    }

    /// Whether the records of all nodes have come up to this node with this exchange.
    pub(super) fn are_gathered(&self, at: &At) -> bool {
        self.root && at.exchange + 1 == self.height
    }

    /// Writes the records.
    pub(super) fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.records.outgoing(local, at, out)
    }

    /// The records that a neighbour sends, each with the signature of its node.
    ///
    /// # Errors
    /// If one is not: the neighbour is at fault.
    pub(super) fn parse(&self, bytes: &[u8]) -> Result<Vec<(NodeId, Vec<u8>)>, Malformed> {
        self.records.parse(bytes)
    }

    /// Takes records that a neighbour has sent. Returns whether those of all nodes have come down.
    ///
    /// # Errors
    /// If they are not those of the nodes for which it speaks.
    pub(super) fn take(
        &mut self,
        at: &At,
        from: NodeId,
        records: Vec<(NodeId, Vec<u8>)>,
    ) -> Result<bool, Malformed> {
        let goes_up = at.exchange < self.height;
        match goes_up {
            true => self.records.gather(from, records)?,
            false => self.records.complete(records)?,
        }
        Ok(!goes_up)
    }
}

/// Records without their signatures.
pub(super) fn unsigned(records: &[(NodeId, Vec<u8>)]) -> impl Iterator<Item = (NodeId, &[u8])> {
    records.iter().filter_map(|(node, signed)| Some((*node, split(signed)?.0)))
}
