//! The records of all nodes: gathered at the root of the tree, and sent to their readers.

use std::sync::Arc;

use super::{
    plan::TreePlan,
    signatures::{Signatures, split},
};
use crate::{
    compress::{Malformed, Payload},
    gossip::{
        party::{Encoded, Local, Party, Received, Writer},
        plan::At,
    },
    mixing::SpanningTree,
    units::NodeId,
};

/// The root of every tree.
const ROOT: NodeId = NodeId(0);

/// Gathers every node's record at the root and sends all of them to their readers.
#[derive(Debug)]
pub struct Records {
    tree: Arc<SpanningTree>,
    height: u16,
    nodes: usize,
    /// The largest record, in bytes.
    limit: usize,
    flight: u8,
    /// If each has the signature of its node.
    signatures: Option<Signatures>,
    /// Ascending by node.
    held: Vec<(NodeId, Vec<u8>)>,
}

impl Records {
    /// Starts with this node's own record. With `signatures` its signature follows, and all are
    /// checked: those of a neighbour before they are passed on.
    ///
    /// # Panics
    /// If the record exceeds the plan's limit.
    pub(crate) fn new(
        plan: &TreePlan,
        node: NodeId,
        record: Vec<u8>,
        signatures: Option<&Signatures>,
    ) -> Records {
        let (limit, flight) = (plan.record(), plan.launch().flight);
        let record = match signatures {
            Some(signatures) => signatures.sign(flight, record),
            None => record,
        };
        assert!(record.len() <= limit, "a record of {} bytes", record.len());
        Records {
            tree: Arc::clone(plan.tree()),
            height: plan.height(),
            nodes: plan.tree().below(ROOT),
            limit,
            flight,
            signatures: signatures.cloned(),
            held: vec![(node, record)],
        }
    }

    /// The records that are here, ascending by node.
    pub(super) fn held(&self) -> &[(NodeId, Vec<u8>)] {
        &self.held
    }

    /// The records in node order, once the flight has landed: all of them for a reader, else none.
    pub(crate) fn into_all(self) -> Vec<Vec<u8>> {
        if self.held.len() < self.nodes {
            return Vec::new();
        }
        let is_signed = self.signatures.is_some();
        let content = |mut record: Vec<u8>| {
            if let Some((content, _)) = split(&record).filter(|_| is_signed) {
                record.truncate(content.len());
            }
            record
        };
        self.held.into_iter().map(|(_, record)| content(record)).collect()
    }

    /// Adds the records that a child has gathered: its own and those of all nodes below it, no
    /// others.
    pub(super) fn gather(
        &mut self,
        from: NodeId,
        records: Vec<(NodeId, Vec<u8>)>,
    ) -> Result<(), Malformed> {
        if let Some((node, _)) = records.iter().find(|(node, _)| !self.tree.is_below(*node, from)) {
            return Err(Malformed(format!(
                "node {from} speaks for node {node}, which is not below it in the tree"
            )));
        }
        let below = self.tree.below(from);
        if records.len() != below {
            return Err(Malformed(format!(
                "{} records of node {from}, which gathers those of {below}",
                records.len()
            )));
        }
        self.held.extend(records);
        self.held.sort_unstable_by_key(|(node, _)| *node);
        Ok(())
    }

    /// Takes the records of all nodes, which have come down.
    pub(super) fn complete(&mut self, records: Vec<(NodeId, Vec<u8>)>) -> Result<(), Malformed> {
        if records.len() != self.nodes {
            return Err(Malformed(format!(
                "{} records where {} nodes take part",
                records.len(),
                self.nodes
            )));
        }
        self.held = records;
        Ok(())
    }

    /// The records in these bytes, ascending by node.
    ///
    /// # Errors
    /// If these bytes are no records, or a node has not signed its record.
    pub(super) fn parse(&self, bytes: &[u8]) -> Result<Vec<(NodeId, Vec<u8>)>, Malformed> {
        let malformed = |what: &str| Malformed(format!("records of a tree exchange: {what}"));
        let mut rest = bytes;
        let mut records: Vec<(NodeId, Vec<u8>)> = Vec::new();
        while let Some((head, after)) = rest.split_first_chunk::<8>() {
            let [n0, n1, n2, n3, l0, l1, l2, l3] = *head;
            let node = NodeId(u32::from_le_bytes([n0, n1, n2, n3]));
            let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            if node.index() >= self.nodes || records.last().is_some_and(|(last, _)| *last >= node) {
                return Err(malformed(&format!("node {node} out of place")));
            }
            if length > self.limit {
                return Err(malformed(&format!(
                    "a record of {length} bytes, at most {} are allowed",
                    self.limit
                )));
            }
            let (record, after) =
                after.split_at_checked(length).ok_or_else(|| malformed("cut short"))?;
            if let Some(signatures) = &self.signatures {
                signatures.open(self.flight, node, record)?;
            }
            records.push((node, record.to_vec()));
            rest = after;
        }
        if rest.is_empty() { Ok(records) } else { Err(malformed("cut short")) }
    }
}

impl Party for Records {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        for (node, record) in &self.held {
            out.records(&node.0.to_le_bytes());
            out.records(&u32::try_from(record.len()).expect("a record is small").to_le_bytes());
            out.records(record);
        }
        if at.exchange < self.height {
            // Sent records are not needed: they come down again, or this node is not a reader.
            self.held = Vec::new();
        }
        Ok(())
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let Payload::Records(bytes) = p else { unreachable!("the plan carries records") };
        let records = self.parse(bytes)?;
        if at.exchange < self.height {
            return self.gather(from, records);
        }
        self.complete(records)
    }
}
