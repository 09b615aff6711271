//! `metrics.jsonl`: one object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One evaluation of one node. Bytes are cumulative and sent by that node; values that were not
/// evaluated are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metric {
    /// The rounds done at this evaluation.
    pub round: u64,
    /// The node's number in the topology.
    pub node: u32,
    /// Seconds since the start; virtual time in a simulation.
    pub time_s: f64,
    /// The part of them spent on gradients.
    #[serde(default)]
    pub computing_s: f64,
    /// f at the mean of the models of all nodes that take part, if one process has them. Else the
    /// mean loss of this node's batches since its record before (or since the checkpoint from which
    /// it resumed), each at the model of its round.
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
    /// Bytes of payloads, without headers.
    pub bytes_payload: u64,
    /// Envelopes, headers and payloads, before encryption.
    pub bytes_wire: u64,
    /// Bytes that dense gossip would have sent.
    pub bytes_dense: u64,
    /// Measures of the program, of this node's model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, f64>,
}

impl Metric {
    /// Reads a line of `metrics.jsonl`.
    ///
    /// # Errors
    /// If it is not a metric.
    pub fn from_json(line: &[u8]) -> serde_json::Result<Metric> {
        serde_json::from_slice(line)
    }
}

/// The mean loss of batches between two records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanLoss {
    sum: f64,
    rounds: u64,
    /// Whether the next round starts from the beginning.
    recorded: bool,
}

impl MeanLoss {
    /// Adds the loss over the batches of a round, of which all have as many. Returns the mean since
    /// the last record; `records`: this round has one.
    pub(crate) fn add(&mut self, loss: f64, records: bool) -> f64 {
        if self.recorded {
            *self = MeanLoss::default();
        }
        self.sum += loss;
        self.rounds += 1;
        self.recorded = records;
        self.sum / self.rounds as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_begins_anew_after_each_record() {
        let mut mean = MeanLoss::default();
        assert_eq!(mean.add(4.0, false), 4.0);
        assert_eq!(mean.add(2.0, true), 3.0);
        assert_eq!(mean.add(9.0, true), 9.0);
        assert!(mean.add(f64::NAN, false).is_nan());
        assert!(mean.add(1.0, true).is_nan(), "a loss that is not known is not hidden");
        assert_eq!(mean.add(1.0, true), 1.0);
    }
}
