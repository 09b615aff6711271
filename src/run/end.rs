//! Errors of runs that end early.

use std::path::PathBuf;

use crate::{
    config::ConfigError,
    drive::RunError,
    gossip::Failure,
    mixing::Topology,
    units::{NodeId, Round},
};

/// How a run ended early. Its results are written by then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// This node's own files are wrong, or they differ from those of its neighbours.
    #[error(transparent)]
    Setup(ConfigError),
    /// All rounds are done and the models are saved, but records of nodes are missing.
    #[error("{0}")]
    Short(Ending),
    /// The run could not continue.
    #[error("{0}")]
    Failed(Ending),
    /// The run was asked to stop.
    #[error("{0}")]
    Interrupted(Ending),
    /// The node was asked to leave ([`leave`](super::leave)); the others continue.
    #[error("{0}")]
    Left(Ending),
}

/// Where and when a run ended early. What is not known is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// All of it in words.
    pub text: String,
    /// The name of the node that failed first: if a link broke, of the node at its other end.
    pub node: Option<String>,
    /// The round that this node had reached.
    pub rounds: Option<u64>,
    /// The names of the nodes that were awaited when a deadline passed, or a link stayed broken.
    pub awaited: Vec<String>,
    /// The run directory with the results so far.
    pub folder: Option<PathBuf>,
}

impl Ending {
    /// What an error of a run says.
    pub(crate) fn of(error: &RunError, topology: &Topology) -> Ending {
        let name = |node: NodeId| topology.node(node).name.clone();
        let (node, rounds, awaited) = match error {
            RunError::Failed { failure: Failure::Link { peer, round, .. }, .. } => {
                (Some(*peer), Some(*round), std::slice::from_ref(peer))
            }
            RunError::Failed { node, failure } => {
                let first = failure.culprit();
                let first = first.unwrap_or_else(|| error.cause(*node, topology).node);
                (Some(first), failure.round(), &[][..])
            }
            RunError::Interrupted(round) => (None, Some(*round), &[][..]),
            RunError::Deadline { nodes, .. } => (None, None, &nodes[..]),
            _ => (None, None, &[][..]),
        };
        Ending {
            text: error.describe(topology),
            node: node.map(name),
            rounds: rounds.map(|Round(round)| round),
            awaited: awaited.iter().copied().map(name).collect(),
            folder: None,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for Ending {
    fn from(text: String) -> Ending {
        Ending { text, ..Ending::default() }
    }
}

impl From<&str> for Ending {
    fn from(text: &str) -> Ending {
        text.to_string().into()
    }
}

impl From<std::io::Error> for EndError {
    fn from(error: std::io::Error) -> EndError {
        EndError::failed(error.to_string())
    }
}

/// An error of a topology, of data or of a model is one of this node's own files.
impl<E: Into<ConfigError>> From<E> for EndError {
    fn from(error: E) -> EndError {
        EndError::Setup(error.into())
    }
}

impl EndError {
    /// A failure of which only the text is known.
    pub fn failed(text: impl Into<Ending>) -> EndError {
        EndError::Failed(text.into())
    }

    /// The same error for a run that writes no files.
    pub fn of(error: RunError, topology: &Topology) -> EndError {
        let ending = Ending::of(&error, topology);
        match error {
            RunError::Setup(error) => EndError::Setup(error),
            RunError::Interrupted(round) => EndError::Interrupted(Ending {
                text: format!("stopped in round {round}"),
                ..ending
            }),
            _ => EndError::Failed(ending),
        }
    }

    /// Where and when the run ended; `None` if a file is wrong.
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            EndError::Setup(_) => None,
            EndError::Short(ending)
            | EndError::Failed(ending)
            | EndError::Interrupted(ending)
            | EndError::Left(ending) => Some(ending),
        }
    }

    /// Adds a message. An interruption that loses data is a failure.
    pub(crate) fn and(self, more: impl std::fmt::Display) -> EndError {
        match self {
            EndError::Setup(mut error) => {
                error.problem += &format!("; {more}");
                EndError::Setup(error)
            }
            EndError::Short(first)
            | EndError::Failed(first)
            | EndError::Interrupted(first)
            | EndError::Left(first) => {
                let text = format!("{}; {more}", first.text);
                EndError::Failed(Ending { text, ..first })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_link_names_the_node_at_its_other_end() {
        let topology = Topology::parse("path:3", 1).unwrap();
        let of = |failure| Ending::of(&RunError::Failed { node: NodeId(1), failure }, &topology);
        let reason = || "the connection was reset".to_string();
        let link = of(Failure::Link { peer: NodeId(2), round: Round(7), reason: reason() });
        assert_eq!((link.node.as_deref(), link.rounds), (Some("2"), Some(7)));
        assert_eq!(link.awaited, ["2"]);
        let faulty = of(Failure::Peer { peer: NodeId(0), reason: reason() });
        assert_eq!((faulty.node.as_deref(), faulty.awaited.len()), (Some("0"), 0));
        let own = of(Failure::Gradient { round: Round(7), reason: reason() });
        assert_eq!((own.node.as_deref(), own.awaited.len()), (Some("1"), 0));
    }
}
