//! How a run ends.

use super::Change;
use crate::{
    config::ConfigError,
    gossip::{Cause, Failure, Traffic},
    mixing::Topology,
    units::{NodeId, Round},
};

/// One node at the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Ended {
    /// Its model after the last round.
    pub model: Vec<f32>,
    /// The mean of all models.
    pub mean: Vec<f32>,
    /// All nodes' records, in node order, if this node collects them.
    pub records: Vec<Vec<u8>>,
    /// Bytes that it sent, the final tree exchange included.
    pub traffic: Traffic,
    /// The changes of the run's members.
    pub history: Vec<Change>,
}

/// Why members are chosen again.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Absence {
    /// Neighbours that are no longer awaited.
    pub late: Vec<NodeId>,
    /// Neighbours that were not members and have returned.
    pub returned: Vec<NodeId>,
}

impl Absence {
    /// The absence of one neighbour.
    pub(crate) fn of(peer: NodeId) -> Absence {
        Absence { late: vec![peer], returned: Vec::new() }
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A node could not continue.
    #[error("node {node}: {failure}")]
    Failed {
        /// The node that could not continue.
        node: NodeId,
        /// Its reason, as the core gives it.
        failure: Failure,
    },
    /// This node's own files are wrong, or they differ from those of all its neighbours.
    #[error("{0}")]
    Setup(ConfigError),
    /// The merged setup records of all nodes are invalid: a record of another node is wrong.
    #[error("the merged setup records of all nodes cannot be used: {0}")]
    Agreement(ConfigError),
    /// No node can move: a bug in a rule's plan.
    #[error("no node can continue: {0}")]
    Stuck(String),
    /// Nodes did not answer before a deadline.
    #[error("{text}")]
    Deadline {
        /// The nodes that were awaited, if they are known.
        nodes: Vec<NodeId>,
        /// What was awaited, and for how long.
        text: String,
    },
    /// This host lacks what a run needs, such as threads, or a deadline passed and it lacks open
    /// files.
    #[error("{0}")]
    Host(String),
    /// The user stopped it before it could conclude.
    #[error("interrupted in round {0}")]
    Interrupted(Round),
    /// The program of a neighbour was started again: this node must go back to a checkpoint.
    #[error("the program of node {0} was started again")]
    Restarted(NodeId),
    /// This node waits for the others no longer; they may continue, or have ended.
    #[error("{0}")]
    Alone(String),
    /// A quorum has the results of the run, which this node has in its files, too.
    #[error("the run is over")]
    Over,
    /// The members must be chosen again.
    #[error("the members are chosen again")]
    Absent(Absence),
    /// A link or host failed outside the rounds.
    #[error("{0}")]
    Network(String),
}

impl RunError {
    /// Describes the error, with the nodes' names.
    pub fn describe(&self, topology: &Topology) -> String {
        let name = |node: NodeId| topology.node(node).name.clone();
        match self {
            RunError::Failed { node, failure } => {
                format!("node {}: {}", name(*node), failure.describe(&name))
            }
            other => other.to_string(),
        }
    }

    /// The round in which the run diverged, if it did.
    pub fn diverged_at(&self) -> Option<Round> {
        match self {
            RunError::Failed {
                failure: Failure::Diverged { round, .. } | Failure::Loss { round, .. },
                ..
            } => Some(*round),
            _ => None,
        }
    }

    /// Whether the results that a node had when it began are those of the run, if it ended so.
    /// `resumed` says whether the node has continued since then, `may_continue` whether the others
    /// may have continued without it.
    pub(crate) fn confirms(&self, resumed: bool, may_continue: bool) -> bool {
        match self {
            RunError::Over => true,
            // The others have left, and no node leaves before all have their results.
            RunError::Deadline { .. } => !resumed && !may_continue,
            _ => false,
        }
    }

    /// The first failure of the run, as `node` knows it: the reason of a neighbour that left, or
    /// its own failure.
    pub(crate) fn cause(&self, node: NodeId, topology: &Topology) -> Cause {
        let name = |node: NodeId| topology.node(node).name.clone();
        match self {
            RunError::Failed { failure: Failure::Left { cause, .. }, .. } => cause.clone(),
            RunError::Failed { node, failure } => {
                Cause { node: *node, text: failure.describe(&name), leaves: false }
            }
            other => Cause {
                node,
                text: other.to_string(),
                leaves: matches!(other, RunError::Interrupted(_) | RunError::Alone(_)),
            },
        }
    }
}
