//! What one run did: its curve, and how it ended.

use serde::{Deserialize, Serialize};

/// How a run ended, and why if it did not end well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All rounds are done; this is the last one.
    Ok,
    /// In this round a parameter became infinite or NaN, or the train loss of the mean model passed
    /// 1000 times that at the start.
    Diverged(u64),
    /// It never began: the combination cannot work, for this reason.
    Refused(String),
    /// It could not continue, for this reason.
    Failed(String),
    /// It had not reached its target when its virtual time had passed a bound.
    GivenUp,
    /// The user has stopped it before its last round.
    Interrupted,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Ok => f.write_str("ok"),
            Status::Diverged(round) => write!(f, "diverged at round {round}"),
            Status::Refused(why) => write!(f, "refused: {why}"),
            Status::Failed(why) => write!(f, "failed: {why}"),
            Status::GivenUp => f.write_str("given up"),
            Status::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// One point of a run's curve; bytes are averaged over nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Rounds done at this point.
    pub rounds: u64,
    /// Virtual seconds since the start; 0 on an ideal network.
    pub time_s: f64,
    /// The part of them that nodes spent on gradients, as a mean.
    pub computing_s: f64,
    /// f at the mean of all models.
    pub train_loss: f64,
    /// The mean model's test accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// The mean over nodes of their own models' test accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_accuracy: Option<f64>,
    /// The least of the nodes' own models' test accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_accuracy: Option<f64>,
    /// (1/n) sum |x_i - mean|^2.
    pub consensus: f64,
    /// Payload bytes sent per node so far.
    pub payload: f64,
    /// Bytes per node with headers.
    pub wire: f64,
}

/// The curve and the end of one run with one seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// The value of `run.seed` of this run.
    pub seed: u64,
    /// How and in which round it ended.
    pub status: Status,
    /// The points from x_0 on, after every evaluation.
    pub points: Vec<Point>,
    /// The least value that f can take, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimum: Option<f64>,
    /// The dimension d of the model.
    pub parameters: usize,
    /// max(|lambda_2|, |lambda_n|) of W.
    pub rho: f64,
    /// Gradients that a node computes per round.
    pub local_steps: u32,
    /// Virtual seconds before the first gradient, in which nodes agree on sums over all rows.
    pub setup_s: f64,
    /// Warnings about settings that are allowed but doubtful.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// A hash over the nodes' models; empty if the run did not end.
    pub digest: String,
    /// Wall time in seconds: the only value here that is not repeatable.
    #[serde(skip)]
    pub seconds: f64,
}
