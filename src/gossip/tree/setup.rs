//! The record that all nodes agree on before round 0, such as sums over all rows.
//!
//! * Upon the records of a child and those below it: each has the signature of its node, or the
//!   child is at fault. They are passed on as they are.
//! * Upon the records of all nodes, at the root: they are merged in node order, and passed on to
//!   the children.
//! * Upon the records of all nodes, from the parent: each has the signature of its node, or the
//!   parent is at fault. They are merged here, too, and passed on. So the root is not believed.
//! * Upon the merged record: it is checked, and passed on. The root sends it alone where one
//!   process runs all nodes, and where nodes have kept it from before. They compare both.

use std::sync::Arc;

use super::{
    plan::{TreePlan, setup_limit},
    signatures::Signatures,
    signed::{Signed, unsigned},
};
use crate::{
    compress::{Malformed, Payload},
    gossip::{
        party::{Encoded, Local, Party, Received, Writer},
        plan::At,
    },
    units::NodeId,
};

/// Merges setup records, in node order, into one. It also accepts merged records, so it can check a
/// single record.
///
/// # Errors
/// The reason why a record is malformed.
pub type Merge = Arc<dyn Fn(&[&[u8]]) -> Result<Vec<u8>, String> + Send + Sync>;

/// Checks the merged record of all nodes.
///
/// # Errors
/// The reason why it is malformed.
pub type Check = Arc<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// A node's contribution to the setup.
#[derive(Clone)]
pub struct Setup {
    /// The record of this node, as long as that of any other.
    pub record: Vec<u8>,
    /// The same for all nodes.
    pub merge: Merge,
    /// The same for all nodes.
    pub check: Check,
    /// The length of its own record, like that of all nodes.
    length: usize,
    /// Whether all records must be equal, but for empty ones.
    same: bool,
}

impl Setup {
    /// A node's contribution: its own record. The merged record is checked by `merge`, too.
    pub fn new(record: Vec<u8>, merge: Merge) -> Setup {
        let same = Arc::clone(&merge);
        let check = move |merged: &[u8]| (same)(&[merged]).map(drop);
        Setup { length: record.len(), record, merge, check: Arc::new(check), same: false }
    }

    /// The same with another check of the merged record, which has a form of its own.
    #[must_use]
    pub fn with_check(self, check: Check) -> Setup {
        Setup { check, ..self }
    }

    /// Whether nodes have kept the merged record from before.
    pub(in crate::gossip) fn is_kept(&self) -> bool {
        self.same
    }

    /// The length of the records that nodes send.
    pub(in crate::gossip) fn length(&self) -> usize {
        self.length
    }

    /// Sends a merged record that this node has kept to all nodes; nodes without one give an empty
    /// record.
    #[must_use]
    pub fn keep(self, merged: Vec<u8>) -> Setup {
        let Setup { check, length, .. } = self;
        let checked = Arc::clone(&check);
        let first = move |records: &[&[u8]]| {
            let mut kept = records.iter().filter(|record| !record.is_empty());
            let Some(first) = kept.next() else { return Ok(Vec::new()) };
            if kept.any(|other| other != first) {
                return Err("two nodes have kept different records".into());
            }
            if first.len() > setup_limit(length) {
                return Err(format!("{} bytes", first.len()));
            }
            checked(first).map(|()| first.to_vec())
        };
        let none = move |merged: &[u8]| if merged.is_empty() { Ok(()) } else { check(merged) };
        Setup { record: merged, merge: Arc::new(first), check: Arc::new(none), length, same: true }
    }
}

/// Gathers every node's setup record at the root, sends them to all nodes, and merges them.
pub(crate) struct Agreement {
    records: Signed,
    merge: Merge,
    check: Check,
    same: bool,
    /// The merged record that this node has kept from before, if it has one.
    kept: Option<Vec<u8>>,
    merged: Vec<u8>,
}

impl Agreement {
    /// Starts with this node's own record.
    ///
    /// # Panics
    /// If the record exceeds the plan's limit, or is malformed.
    pub(crate) fn new(
        plan: &TreePlan,
        node: NodeId,
        setup: Setup,
        signatures: &Signatures,
    ) -> Agreement {
        let Setup { record, merge, check, same, .. } = setup;
        let kept = (same && !record.is_empty()).then(|| record.clone());
        let records = Signed::new(plan, node, record, signatures);
        let mut agreement = Agreement { records, merge, check, same, kept, merged: Vec::new() };
        if plan.height() == 0 {
            agreement.agree().expect(CHECKED);
        }
        agreement
    }

    /// The merged record of all nodes, once the flight has landed.
    pub(crate) fn into_merged(self) -> Vec<u8> {
        self.merged
    }

    /// Merges the records of all nodes, which are present.
    fn agree(&mut self) -> Received {
        let records: Vec<&[u8]> = self.records.held().collect();
        self.merged = (self.merge)(&records).map_err(of_all)?;
        Ok(())
    }

    /// Compares the records that a child has gathered with each other, and with those present.
    fn compare(&self, child: NodeId, records: &[(NodeId, Vec<u8>)]) -> Received {
        let theirs = unsigned(records).map(|(_, record)| record);
        let mut kept = self.records.held().chain(theirs).filter(|record| !record.is_empty());
        let first = kept.next();
        match kept.any(|record| Some(record) != first) {
            true => Err(Malformed(format!(
                "node {child} and those below it have kept other setup records than the others"
            ))),
            false => Ok(()),
        }
    }
}

const CHECKED: &str = "the records were checked as they came";

fn of_all(why: String) -> Malformed {
    Malformed(format!("setup record of all nodes: {why}"))
}

impl Party for Agreement {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if self.records.travel_in(at) {
            return self.records.outgoing(local, at, out);
        }
        out.records(&self.merged);
        Ok(())
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let Payload::Records(bytes) = p else { unreachable!("the plan carries records") };
        if self.records.travel_in(at) {
            let records = self.records.parse(bytes)?;
            for (node, record) in unsigned(&records) {
                let wrong = |why| Malformed(format!("setup record of node {node}: {why}"));
                (self.merge)(&[record]).map_err(wrong)?;
            }
            // Each alone is right, and nodes may still have kept different ones.
            if self.same && self.records.is_at_root() {
                self.compare(from, &records)?;
            }
            return match self.records.take(at, from, records)? {
                true => self.agree(),
                false => Ok(()),
            };
        }
        if self.kept.as_ref().is_some_and(|kept| kept != bytes) {
            return Err(of_all("it is not the one that this node has kept".into()));
        }
        (self.check)(bytes).map_err(of_all)?;
        self.merged = bytes.to_vec();
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        if self.records.are_gathered(at) {
            self.agree().expect(CHECKED);
        }
    }
}
