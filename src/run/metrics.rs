//! `metrics.jsonl`: one object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One evaluation of one node. Bytes are cumulative and sent by that node; values that were not
/// evaluated are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Rounds done.
    pub round: u64,
    /// The node.
    pub node: u32,
    /// Seconds since the start; virtual time in a simulation.
    pub time_s: f64,
    /// The part of them spent on gradients.
    #[serde(default)]
    pub computing_s: f64,
    /// f at the mean of all models, if one process has all nodes; else the loss over this node's
    /// last batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// Mean loss of this node's model on its test rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// The share of this node's test rows that its model classifies correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// (1/n) sum |x_i - mean|^2, if one process has all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consensus: Option<f64>,
    /// Bytes of payloads.
    pub bytes_payload: u64,
    /// Envelopes, headers and payloads, before encryption.
    pub bytes_wire: u64,
    /// Bytes that dense gossip would have sent.
    pub bytes_dense: u64,
    /// Measures of the program, of this node's model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
}
