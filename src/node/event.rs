//! The events that a node reports while it runs.

use std::sync::Arc;

use crate::{drive::Elapsed, gossip::Traffic, run::metrics::Metric};

/// An event of a node. Neighbours have their names in the topology.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The link to a neighbour is up.
    Linked {
        /// The neighbour at its other end.
        peer: String,
        /// The number of links that are up.
        up: usize,
        /// The number of links of this node.
        links: usize,
    },
    /// A connection broke. [`Event::Linked`] follows when the link is up again.
    LinkLost {
        /// The neighbour at its other end.
        peer: String,
        /// Where it broke and why, for people.
        reason: String,
    },
    /// The node has waited for some seconds.
    Waiting {
        /// The neighbours that it waits for, as far as they are known.
        peers: Vec<String>,
        /// The step of the run, and the cause as far as it is known.
        text: String,
    },
    /// All nodes are linked, and the rounds begin.
    Started,
    /// The run continues after this many rounds, because a node was started again: this one, or
    /// another one. [`Event::Started`] follows, and rounds may be reported again.
    Resumed {
        /// The rounds that the checkpoint has done.
        rounds: u64,
    },
    /// The model was evaluated; the same is a line of `metrics.jsonl`.
    Evaluation(Metric),
    /// This node has done a round.
    Round {
        /// Rounds done, this one included.
        rounds: u64,
        /// The mean loss over this node's batches of the round.
        loss: f64,
        /// The mean loss over its batches since the last [`Event::Evaluation`] of an earlier round.
        mean_loss: f64,
        /// Bytes that the node has sent so far.
        traffic: Traffic,
        /// The node's clocks since its start.
        elapsed: Elapsed,
    },
    /// The mean of all models after these rounds, with `run.mean_every`: the same at every node.
    Averaged {
        /// The rounds that the mean is taken after.
        rounds: u64,
        /// The mean of all models, d numbers.
        mean: Arc<Vec<f32>>,
    },
    /// The rounds are over, or the run ends early: the node's own model is final.
    Final {
        /// The rounds that the run has done.
        rounds: u64,
    },
    /// The mean of all models is final.
    Mean,
    /// Events were dropped because they were not read in time.
    Missed(u64),
    /// The run is over; [`Node::join`](super::Node::join) returns its result. No event follows.
    Ended,
}
