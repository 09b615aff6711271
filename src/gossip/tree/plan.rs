//! Who sends what to whom in exchanges over a spanning tree, and when.
//!
//! | flight | up (leaves to root) | down (root to leaves) |
//! |---|---|---|
//! | [`SETUP`] | every node's setup record, signed | the same |
//! | `INITIAL` | the initial model of the node that gives it, signed | the same |
//! | the same, of a mean | as `MEAN` | as `MEAN` |
//! | `MEAN` | the `f64` sum of a subtree's models | the `f32` mean |
//! | with a rule that withstands wrong models | each model, signed | the same |
//! | [`SUMMARY`] | every node's record of the run | the same |
//!
//! So each node forms for itself what it needs of signed records, and the root cannot form other
//! things. Where one process runs all nodes the root sends what it has formed, and no summary.
//!
//! Exchanges go level by level: with a tree of height H, exchange e < H sends from depth H - e to
//! depth H - e - 1, and exchange H + e from depth e to depth e + 1. Children are summed in
//! ascending order, so the sum has the same bits in every driver.

use std::sync::Arc;

use super::{averaging::Averaging, signatures::SIGNATURE};
use crate::{
    compress::{Format, Payload},
    config::ConfigError,
    gossip::{
        party::{Encoded, Local, Party, Received, Writer},
        plan::{At, LAST_CALL, Meeting, Plan, SETUP, SUMMARY, Step},
    },
    mixing::{SpanningTree, Topology},
    units::{NodeId, Round},
};

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

/// The most bytes of the records of so many nodes, each of at most `record` bytes.
pub(crate) fn records_limit(nodes: usize, record: usize) -> usize {
    nodes.saturating_mul(record.saturating_add(8))
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
    /// Whether they carry the records of all nodes, and not what the root has formed of them.
    passes_on: bool,
    steps: [Step; 2],
    up: Format,
    down: Format,
}

impl TreePlan {
    /// Setup records of all nodes to the root, and to all nodes them or, without `passes_on`, the
    /// merged one; `own` is the length of this node's.
    pub(crate) fn setup(topology: &Topology, own: usize, passes_on: bool) -> TreePlan {
        let merged = setup_limit(own);
        let record = merged + SIGNATURE;
        let all = Format::Records(records_limit(topology.nodes(), record));
        let down = if passes_on { all.clone() } else { Format::Records(merged) };
        TreePlan { record, passes_on, ..TreePlan::new(topology, SETUP, all, down) }
    }

    /// Records of all nodes to their readers.
    pub(crate) fn summary(topology: &Topology, readers: Readers) -> TreePlan {
        let record = RECORD_LIMIT + SEAL;
        let limit = records_limit(topology.nodes(), record);
        let plan = TreePlan::new(topology, SUMMARY, Format::Records(limit), Format::Records(limit));
        TreePlan { record, down_again: readers == Readers::Everyone, ..plan }
    }

    /// The models of some nodes, of `len` numbers, to the root, and their mean to all nodes: at the
    /// end (`MEAN`), or as the model that all begin at (`INITIAL`).
    pub(crate) fn models(
        topology: &Topology,
        flight: u8,
        len: usize,
        averaging: &Averaging,
        readers: Readers,
    ) -> TreePlan {
        let record = 4 * len + SIGNATURE;
        let each = Format::Records(records_limit(topology.nodes(), record));
        let passes_on = readers == Readers::Everyone && averaging.liars.is_some();
        let (up, down) = match averaging.liars {
            None => (Format::Doubles(len), Format::Floats(len)),
            Some(_) if passes_on => (each.clone(), each),
            Some(_) => (each, Format::Floats(len)),
        };
        TreePlan { record, passes_on, ..TreePlan::new(topology, flight, up, down) }
    }

    fn new(topology: &Topology, flight: u8, up: Format, down: Format) -> TreePlan {
        let tree = topology.spanning_tree();
        assert!(tree.height() <= HEIGHT_LIMIT, "the topology of a run is checked when it is read");
        let height = tree.height() as u16;
        let steps = [Step::Launch(flight), Step::Land { flight, lag: 0 }];
        let (record, down_again, passes_on) = (RECORD_LIMIT, true, false);
        TreePlan { tree, height, record, down_again, passes_on, steps, up, down }
    }

    /// Whether frames of the tree go between these two nodes.
    pub(crate) fn connects(&self, one: NodeId, other: NodeId) -> bool {
        self.tree.parent(one) == Some(other) || self.tree.parent(other) == Some(one)
    }

    pub(super) fn tree(&self) -> &Arc<SpanningTree> {
        &self.tree
    }

    pub(super) fn is_root(&self, node: NodeId) -> bool {
        self.tree.parent(node).is_none()
    }

    /// How many exchanges there are up the tree.
    pub(super) fn height(&self) -> u16 {
        self.height
    }

    /// Whether each node gets the records of all, and not what the root has formed of them.
    pub(super) fn passes_on(&self) -> bool {
        self.passes_on
    }

    /// The largest record of a node, in bytes.
    pub(super) fn record(&self) -> usize {
        self.record
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
