//! A node between two rounds: all that it needs to continue from there.

use super::traffic::{LinkTraffic, Traffic};
use crate::{
    state::State,
    units::{NodeId, Round},
};

/// The state of a node after some rounds, when nothing is in flight. If all nodes are put back to
/// their snapshots of the same round, the run continues with the same bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The rounds that are done.
    pub rounds: Round,
    /// The model x, d numbers.
    pub x: Vec<f32>,
    /// The model of the node, if the rule keeps something else in `x`.
    pub(crate) model: Option<Vec<f32>>,
    /// What the rule keeps besides.
    pub(crate) rule: State,
    /// Bytes that the node has sent so far.
    pub traffic: Traffic,
    /// Bytes sent to each neighbour.
    pub(crate) links: Vec<LinkTraffic>,
    /// The measured growth of the model: its start, the steps, the longest gradient.
    pub(crate) growth: [f64; 3],
}

impl Snapshot {
    /// The node's model, d numbers.
    pub(crate) fn into_model(self) -> Vec<f32> {
        self.model.unwrap_or(self.x)
    }
}

/// Where a node continues from the mean of some models.
#[derive(Debug, Default)]
pub struct Rejoin {
    /// The rounds that are done.
    pub rounds: Round,
    /// This node's model, if it is one of them: d numbers.
    pub own: Option<Vec<f32>>,
    /// The nodes whose models the mean is of, ascending.
    pub givers: Vec<NodeId>,
    /// The merged setup record, if this node has kept it: every node with a model has.
    pub merged: Vec<u8>,
    /// The bytes that it has sent in these rounds, as far as they are known.
    pub traffic: Traffic,
}
