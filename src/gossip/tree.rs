//! Exchanges over a spanning tree: before the rounds ([`SETUP`], `INITIAL`) and after them.
//!
//! | flight | up (leaves to root) | down (root to leaves) |
//! |---|---|---|
//! | [`SETUP`] | every node's setup record | the merged record |
//! | `INITIAL` | the initial model of the node that gives it; zeros of the others | that model |
//! | `MEAN` | the `f64` sum of a subtree's models | the `f32` mean |
//! | [`SUMMARY`] | every node's record of the run | all of them; nothing if one process runs all nodes |
//!
//! Exchanges go level by level: with a tree of height H, exchange e < H sends from depth H - e to
//! depth H - e - 1, and exchange H + e from depth e to depth e + 1. Children are summed in
//! ascending order, so the sum has the same bits in every driver.

use std::sync::Arc;

use super::{
    party::{Encoded, Local, Party, Received, Writer},
    plan::{At, Meeting, Plan, Step},
};
use crate::{
    compress::{Format, Malformed, Payload},
    config::ConfigError,
    mixing::{SpanningTree, Topology},
    units::{NodeId, Round},
    vector::update,
};

/// The flight of a notice, if the plan calls: its sender makes no more calls.
pub const LAST_CALL: u8 = 249;
/// The flight of setup records.
pub const SETUP: u8 = 250;
/// The flight of the exact mean.
pub(crate) const MEAN: u8 = 251;
/// The flight of the records at the end.
pub const SUMMARY: u8 = 252;

/// The flight of a notice that all nodes end after the round of its frame.
pub const STOP: u8 = 253;
/// The flight of the sum of a subtree's losses on validation rows, to the parent; its round is that
/// of the evaluation.
pub(crate) const TALLY: u8 = 255;
/// The flight of the initial model, if one node gives it to all.
pub(crate) const INITIAL: u8 = 254;

/// The largest record that a node may contribute, in bytes; a setup record may be larger, see
/// `setup_limit`.
pub const RECORD_LIMIT: usize = 256 * 1024;

/// The most bytes that the signature of a record may add to it.
pub(crate) const SEAL: usize = 192;

/// The largest setup record of any run, in bytes. Its length fits 32 bits, and the sums of 33
/// million features fit in it.
pub const SETUP_LIMIT: usize = 1 << 30;

/// The most levels of a tree below its root: exchanges up and down are numbered by 16 bits.
pub(crate) const HEIGHT_LIMIT: usize = u16::MAX as usize / 2;

/// The largest setup record that a neighbour may send, in bytes, if this node's own has `own`: all
/// nodes' records of a run cover the same features.
pub(crate) fn setup_limit(own: usize) -> usize {
    own.max(RECORD_LIMIT)
}

/// Checks that sums can travel over a topology's spanning tree.
///
/// # Errors
/// If the tree has more levels than exchange numbers.
pub(crate) fn check(topology: &Topology) -> Result<(), ConfigError> {
    let height = topology.spanning_tree().height();
    if height <= HEIGHT_LIMIT {
        return Ok(());
    }
    let problem = format!(
        "the mean and the records travel over a tree that is {height} links high from node 0; a \
         run \
         takes at most {HEIGHT_LIMIT}: number a node in the middle as 0, add links, or take fewer \
         nodes"
    );
    Err(ConfigError::new("topology", topology.name(), problem))
}

/// The meetings of a tree exchange.
#[derive(Debug)]
pub(crate) struct TreePlan {
    tree: Arc<SpanningTree>,
    height: u16,
    /// The largest record of a node, in bytes, if records are exchanged.
    record: usize,
    /// Whether there are exchanges down.
    down_again: bool,
    steps: [Step; 2],
    up: Format,
    down: Format,
}

impl TreePlan {
    /// Records of all nodes to the root, and the merged record to all nodes; `own` is the length of
    /// this node's.
    pub(crate) fn setup(topology: &Topology, own: usize) -> TreePlan {
        let record = setup_limit(own);
        let up = Format::Records(topology.nodes().saturating_mul(record + 8));
        TreePlan { record, ..TreePlan::new(topology, SETUP, up, Format::Records(record)) }
    }

    /// Records of all nodes to their readers.
    pub(crate) fn summary(topology: &Topology, readers: Readers) -> TreePlan {
        let record = RECORD_LIMIT + SEAL;
        let limit = topology.nodes() * (record + 8);
        let plan = TreePlan::new(topology, SUMMARY, Format::Records(limit), Format::Records(limit));
        TreePlan { record, down_again: readers == Readers::Everyone, ..plan }
    }

    /// The mean of all nodes' vectors of `len` numbers to all nodes.
    pub(crate) fn mean(topology: &Topology, len: usize) -> TreePlan {
        TreePlan::new(topology, MEAN, Format::Doubles(len), Format::Floats(len))
    }

    /// The vector of one node to all nodes, as a sum to which the others add zeros.
    pub(crate) fn initial(topology: &Topology, len: usize) -> TreePlan {
        TreePlan::new(topology, INITIAL, Format::Doubles(len), Format::Floats(len))
    }

    fn new(topology: &Topology, flight: u8, up: Format, down: Format) -> TreePlan {
        let tree = topology.spanning_tree();
        assert!(tree.height() <= HEIGHT_LIMIT, "the topology of a run is checked when it is read");
        let height = tree.height() as u16;
        let steps = [Step::Launch(flight), Step::Land { flight, lag: 0 }];
        TreePlan { tree, height, record: RECORD_LIMIT, down_again: true, steps, up, down }
    }

    /// Whether frames of the tree go between these two nodes.
    pub(crate) fn connects(&self, one: NodeId, other: NodeId) -> bool {
        self.tree.parent(one) == Some(other) || self.tree.parent(other) == Some(one)
    }

    /// The only place of this flight's launch.
    pub(crate) fn launch(&self) -> At {
        let [Step::Launch(flight), _] = self.steps else {
            unreachable!("a tree's program begins with its launch")
        };
        At { round: Round(0), flight, exchange: 0 }
    }
}

impl Plan for TreePlan {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        if self.down_again { 2 * self.height } else { self.height }
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        let depth = self.tree.depth(node);
        let parent = self.tree.parent(node);
        let children = self.tree.children(node);
        if at.exchange < self.height {
            let from = usize::from(self.height - at.exchange);
            if depth == from {
                out.send.extend(parent);
            } else if depth + 1 == from {
                out.wait.extend_from_slice(children);
            }
        } else {
            let from = usize::from(at.exchange - self.height);
            if depth == from && !children.is_empty() {
                out.send.extend_from_slice(children);
                out.shared = true;
            } else if depth == from + 1 {
                out.wait.extend(parent);
            }
        }
    }

    fn format(&self, at: &At, _from: NodeId) -> &Format {
        if at.exchange < self.height { &self.up } else { &self.down }
    }
}

/// A notice to all neighbours: this node has made its last call. The core counts those of its
/// neighbours when they arrive.
pub(crate) struct EndOfCalls(pub Arc<Topology>);

impl EndOfCalls {
    /// The only place of this flight's launch.
    pub(crate) fn launch(&self) -> At {
        At { round: Round(0), flight: LAST_CALL, exchange: 0 }
    }
}

impl Plan for EndOfCalls {
    fn steps(&self) -> &[Step] {
        &[Step::Launch(LAST_CALL), Step::Land { flight: LAST_CALL, lag: 0 }]
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        1
    }

    fn meet(&self, node: NodeId, _at: &At, out: &mut Meeting) {
        out.send.extend_from_slice(self.0.neighbours(node));
        out.shared = true;
    }

    fn format(&self, _at: &At, _from: NodeId) -> &Format {
        &Format::Empty
    }
}

/// Sends the notices: their arrival is the message.
#[derive(Debug)]
pub(crate) struct Leaving;

impl Party for Leaving {
    fn outgoing(&mut self, _: &mut Local, _at: &At, _out: &mut Writer<'_>) -> Encoded {
        Ok(())
    }

    fn received(
        &mut self,
        _: &mut Local,
        _at: &At,
        _from: NodeId,
        _payload: &Payload<'_>,
    ) -> Received {
        Ok(())
    }
}

/// Which nodes receive all nodes' records of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readers {
    /// Every node: each writes the same summary.
    Everyone,
    /// The tree's root, node 0: for a process that runs all nodes.
    Root,
}

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

    /// The length of the records that nodes send.
    pub(super) fn length(&self) -> usize {
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

/// Gathers every node's record at the root and sends all of them to their readers.
#[derive(Debug)]
pub struct Records {
    tree: Arc<SpanningTree>,
    height: u16,
    nodes: usize,
    /// The largest record, in bytes.
    limit: usize,
    /// Ascending by node.
    held: Vec<(NodeId, Vec<u8>)>,
}

impl Records {
    /// Starts with this node's own record.
    ///
    /// # Panics
    /// If the record exceeds the plan's limit.
    pub(crate) fn new(plan: &TreePlan, nodes: usize, node: NodeId, record: Vec<u8>) -> Records {
        let limit = plan.record;
        assert!(record.len() <= limit, "a record of {} bytes", record.len());
        Records {
            tree: Arc::clone(&plan.tree),
            height: plan.height,
            nodes,
            limit,
            held: vec![(node, record)],
        }
    }

    /// The records in node order, once the flight has landed: all of them for a reader, else none.
    pub(crate) fn into_all(self) -> Vec<Vec<u8>> {
        if self.held.len() < self.nodes {
            return Vec::new();
        }
        self.held.into_iter().map(|(_, record)| record).collect()
    }

    /// Adds the records that a child has gathered: its own and those of all nodes below it, no
    /// others.
    fn gather(&mut self, from: NodeId, records: Vec<(NodeId, Vec<u8>)>) -> Result<(), Malformed> {
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

    fn parse(&self, bytes: &[u8]) -> Result<Vec<(NodeId, Vec<u8>)>, Malformed> {
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
}

/// Gathers every node's setup record at the root and sends the merged record to all nodes.
pub(crate) struct Agreement {
    root: bool,
    records: Records,
    merge: Merge,
    check: Check,
    same: bool,
    merged: Vec<u8>,
}

impl Agreement {
    /// Starts with this node's own record.
    ///
    /// # Panics
    /// If the record exceeds [`SETUP_LIMIT`], or is malformed.
    pub(crate) fn new(plan: &TreePlan, nodes: usize, node: NodeId, setup: Setup) -> Agreement {
        let root = plan.tree.parent(node).is_none();
        let Setup { record, merge, check, same, .. } = setup;
        let mut agreement = Agreement {
            root,
            records: Records::new(plan, nodes, node, record),
            merge,
            check,
            same,
            merged: Vec::new(),
        };
        if plan.height == 0 {
            agreement.agree();
        }
        agreement
    }

    /// The merged record of all nodes, once the flight has landed.
    pub(crate) fn into_merged(self) -> Vec<u8> {
        self.merged
    }

    fn agree(&mut self) {
        let records: Vec<&[u8]> =
            self.records.held.iter().map(|(_, record)| record.as_slice()).collect();
        self.merged = (self.merge)(&records).expect("the records were checked as they came");
        self.records.held = Vec::new();
    }

    /// Compares the records that a child has gathered with each other, and with one that is here.
    fn fit(&self, child: NodeId, records: &[(NodeId, Vec<u8>)]) -> Received {
        let kept = self.records.held.iter().chain(records).map(|(_, record)| record);
        let mut kept = kept.filter(|record| !record.is_empty());
        let first = kept.next();
        let differs = |(_, record): &(NodeId, Vec<u8>)| !record.is_empty() && Some(record) != first;
        match records.iter().any(differs) {
            true => Err(Malformed(format!(
                "node {child} and those below it have kept other setup records than the others"
            ))),
            false => Ok(()),
        }
    }

    fn checked(&self, record: &[u8], node: NodeId) -> Result<(), Malformed> {
        (self.merge)(&[record])
            .map(drop)
            .map_err(|why| Malformed(format!("setup record of node {node}: {why}")))
    }
}

impl Party for Agreement {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.exchange < self.records.height {
            return self.records.outgoing(local, at, out);
        }
        out.records(&self.merged);
        Ok(())
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let Payload::Records(bytes) = p else { unreachable!("the plan carries records") };
        if at.exchange < self.records.height {
            let records = self.records.parse(bytes)?;
            for (node, record) in &records {
                self.checked(record, *node)?;
            }
            // Each alone is right, and nodes may still have kept different ones.
            if self.root && self.same {
                self.fit(from, &records)?;
            }
            return self.records.gather(from, records);
        }
        (self.check)(bytes)
            .map_err(|why| Malformed(format!("setup record of all nodes: {why}")))?;
        self.merged = bytes.to_vec();
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        if self.root && at.exchange + 1 == self.records.height {
            self.agree();
        }
    }
}

/// Forms the exact mean of all nodes' vectors, or their sum.
#[derive(Debug)]
pub struct Mean {
    height: u16,
    nodes: usize,
    root: bool,
    sum: Vec<f64>,
    mean: Vec<f32>,
}

impl Mean {
    /// Starts with this node's own vector.
    pub(crate) fn new(plan: &TreePlan, nodes: usize, node: NodeId, own: &[f32]) -> Mean {
        let root = plan.tree.parent(node).is_none();
        let sum = own.iter().map(|&x| f64::from(x)).collect();
        let mut mean = Mean { height: plan.height, nodes, root, sum, mean: Vec::new() };
        if plan.height == 0 {
            mean.divide();
        }
        mean
    }

    /// Forms the mean of the models of some nodes, `models` in all. `own` is the model of this node
    /// if it is one of them.
    pub(crate) fn of_some(
        plan: &TreePlan,
        models: usize,
        node: NodeId,
        len: usize,
        own: Option<&[f32]>,
    ) -> Mean {
        match own {
            Some(own) => Mean::new(plan, models, node, own),
            None => Mean::new(plan, models, node, &vec![0.0; len]),
        }
    }

    /// The mean, once the flight has landed.
    pub(crate) fn into_mean(self) -> Vec<f32> {
        self.mean
    }

    fn divide(&mut self) {
        let nodes = self.nodes as f64;
        self.mean =
            std::mem::take(&mut self.sum).into_iter().map(|sum| (sum / nodes) as f32).collect();
    }
}

impl Party for Mean {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.exchange < self.height {
            out.doubles(&self.sum);
            self.sum = Vec::new();
            Ok(())
        } else {
            out.vector(&self.mean)
        }
    }

    fn received(
        &mut self,
        _: &mut Local,
        _at: &At,
        _from: NodeId,
        payload: &Payload<'_>,
    ) -> Received {
        match payload {
            Payload::Doubles(bytes) => {
                update(&mut self.sum, bytes.as_chunks().0, |sum, x| *sum += f64::from_le_bytes(*x));
            }
            Payload::Floats(bytes) => {
                self.mean =
                    bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
            }
            other => unreachable!("the plan carries sums and means, not {other:?}"),
        }
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        if self.root && at.exchange + 1 == self.height {
            self.divide();
        }
    }
}
