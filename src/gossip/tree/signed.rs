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
        party::{Encoded, Local, Party, Received, Writer},
        plan::At,
    },
    units::NodeId,
};

/// Gathers the signed records of all nodes, and passes them on.
#[derive(Debug)]
pub(super) struct Signed {
    flight: u8,
    height: u16,
    root: bool,
    /// Whether they go down to all nodes.
    passes_on: bool,
    signatures: Signatures,
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
        let flight = plan.launch().flight;
        Signed {
            flight,
            height: plan.height(),
            root: plan.is_root(node),
            passes_on: plan.passes_on(),
            signatures: signatures.clone(),
            records: Records::new(plan, node, signatures.sign(flight, record)),
        }
    }

    /// The records that are present, ascending by node, without their signatures.
    pub(super) fn held(&self) -> impl Iterator<Item = &[u8]> {
        self.records.held().iter().filter_map(|(_, signed)| Some(split(signed)?.0))
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

    /// Takes the records that a neighbour sends: each has the signature of its node and passes
    /// `check`. Returns whether those of all nodes have come down.
    ///
    /// # Errors
    /// If one does not: the neighbour is at fault.
    pub(super) fn received(
        &mut self,
        at: &At,
        from: NodeId,
        bytes: &[u8],
        check: impl Fn(NodeId, &[u8]) -> Received,
    ) -> Result<bool, Malformed> {
        let records = self.records.parse(bytes)?;
        for (node, signed) in &records {
            check(*node, self.signatures.open(self.flight, *node, signed)?)?;
        }
        let goes_up = at.exchange < self.height;
        match goes_up {
            true => self.records.gather(from, records)?,
            false => self.records.complete(records)?,
        }
        Ok(!goes_up)
    }
}
