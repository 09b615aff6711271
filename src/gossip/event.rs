//! The inputs and effects of the core: all that a driver needs to know.

use std::sync::Arc;

use super::{
    plan::At,
    snapshot::Snapshot,
    stopping::Tally,
    traffic::{LinkTraffic, Traffic},
};
use crate::units::{NodeId, Round};

/// An event that a driver reports.
#[derive(Debug)]
pub enum Input {
    /// All links of the node are up: begin.
    Start,
    /// A frame arrived. A link's frames arrive in order, each exactly once.
    Frame {
        /// The neighbour that has sent it.
        from: NodeId,
        /// Header and payload. [`Effect::Recycle`] returns the buffer.
        bytes: Vec<u8>,
    },
    /// A piece of a long frame arrived, in place of [`Input::Frame`]. The pieces of a frame arrive
    /// in order, and those of a link's frames one frame after the other.
    Piece {
        /// The neighbour that has sent it.
        from: NodeId,
        /// The length of the frame in bytes.
        length: usize,
        /// The next bytes of it. [`Effect::Recycle`] returns the buffer of each piece; after the
        /// last one, the link may deliver its next frame.
        bytes: Vec<u8>,
    },
    /// The link has sent its oldest frame: a slot is free.
    Taken(NodeId),
    /// A link ended. Before [`Input::Start`] it may come up again; the node drops what it received
    /// over it.
    LinkDown {
        /// The neighbour at its other end.
        peer: NodeId,
        /// Stage and cause, for the log.
        reason: String,
    },
    /// A neighbour left the run early and gave the cause.
    Left {
        /// The neighbour that has left.
        peer: NodeId,
        /// The first cause of the end.
        cause: Cause,
    },
    /// A part of the update is final while the rest is still computed. Parts come in the order of
    /// [`Effect::Compute`], all before [`Input::Computed`].
    Part {
        /// The round it was requested for.
        round: Round,
        /// Its position in that order.
        part: u8,
        /// Its values of the update.
        values: Vec<f32>,
    },
    /// The loss on validation rows of the model that is lent for this round, before
    /// [`Input::Computed`].
    Tally {
        /// The round that it was lent for.
        round: Round,
        /// The sum of the losses over the rows.
        tally: Tally,
    },
    /// The gradient is computed: `update` is the sum of step times direction, `x` the lent model,
    /// unchanged.
    Computed {
        /// The round it was requested for.
        round: Round,
        /// The model that was lent, unchanged.
        x: Vec<f32>,
        /// The sum of steps times directions, d numbers.
        update: Vec<f32>,
        /// Mean loss over the batches.
        loss: f64,
        /// The sum of the step sizes in the update.
        step: f32,
        /// Whether this node requests an early end of the run.
        ends: bool,
    },
    /// The gradient cannot be computed, so this node cannot continue.
    ComputeFailed {
        /// The model that was lent, unchanged.
        x: Vec<f32>,
        /// The reason; it is sent to the neighbours.
        reason: String,
    },
    /// The loss of the gradient's batches shows that the run has diverged.
    Diverged {
        /// The round of the gradient.
        round: Round,
        /// The model that was lent, unchanged.
        x: Vec<f32>,
        /// The mean loss over the batches, which may be no number.
        loss: f64,
    },
    /// This node's record for the final table, in reply to [`Effect::Conclude`].
    Record(Vec<u8>),
    /// End after this round, or after the current one if that is later; then conclude as usual. All
    /// nodes must get it, since this one tells no other.
    StopAfter(Round),
    /// Copy the state after this many rounds, or after the last one if that is earlier. A newer
    /// request replaces an older one. Only if the plan [can pause](super::plan::can_pause).
    Snapshot(Round),
}

impl Input {
    /// Whether it comes of [`Effect::Compute`].
    pub(crate) fn is_of_gradient(&self) -> bool {
        matches!(
            self,
            Input::Part { .. }
                | Input::Tally { .. }
                | Input::Computed { .. }
                | Input::ComputeFailed { .. }
                | Input::Diverged { .. }
        )
    }

    /// The model that it returns.
    pub(crate) fn into_model(self) -> Option<Vec<f32>> {
        match self {
            Input::Computed { x, .. }
            | Input::ComputeFailed { x, .. }
            | Input::Diverged { x, .. } => Some(x),
            _ => None,
        }
    }
}

/// An action for the driver.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// All neighbours of a node have a copy of its vector, and got the same frame: it is this one.
    /// In rounds 0, 16, 32, 64, 128, 256, and each multiple of 256.
    Shared {
        /// The round of the frame.
        round: Round,
        /// Its flight: a rule may compare several in a round.
        flight: u8,
        /// The node whose vector it is: this one or a neighbour.
        of: NodeId,
        /// The first half of a SHA-256 over all frames of this flight so far and the vector after
        /// each of them: `gossip/fingerprint.rs`.
        fingerprint: [u8; 16],
    },
    /// Compute the update at `x` into `update`. Reply with [`Input::Part`] for each of the parts,
    /// then with [`Input::Computed`].
    Compute {
        /// The step t of the gradient.
        round: Round,
        /// The model, lent until the reply.
        x: Vec<f32>,
        /// A buffer of the same length; contents arbitrary.
        update: Vec<f32>,
        /// The parts wanted before the whole update, from the end of the vector on.
        parts: Vec<UpdatePart>,
        /// Whether frames may be handled meanwhile; if not, computing in place loses nothing.
        overlaps: bool,
    },
    /// Pass this frame to the link; reply with [`Input::Taken`] when it has been sent.
    Send {
        /// The neighbour that receives it.
        to: NodeId,
        /// Header and payload, shared between neighbours.
        frame: Arc<Vec<u8>>,
    },
    /// The buffer of a frame or of a piece, or another one, is free, and the link may deliver its
    /// next frame or one more piece.
    Recycle {
        /// The link it came from.
        from: NodeId,
        /// A buffer to write into, with any content.
        buffer: Vec<u8>,
    },
    /// The setup is complete: the merged setup records of all nodes.
    Prepared(Vec<u8>),
    /// The model at which all nodes begin has come over the tree, if nodes give it.
    Initial {
        /// The first half of its SHA-256.
        fingerprint: [u8; 16],
    },
    /// This node has done a round of the run.
    RoundDone(RoundDone),
    /// The state that [`Input::Snapshot`] asked for.
    Snapshot(Box<Snapshot>),
    /// The rounds are over and this node's own model is final: save it, before the mean is formed.
    Save(OwnModel),
    /// The mean is formed: save it, evaluate it and the node's own model, and reply with
    /// [`Input::Record`].
    Conclude {
        /// This node's own model, as in [`Effect::Save`], with the traffic of the mean.
        own: OwnModel,
        /// The mean of all nodes' models, the same bits everywhere.
        mean: Vec<f32>,
    },
    /// The run is complete: all nodes' records in node order if this node is one of their readers,
    /// else none.
    Finished(Vec<Vec<u8>>),
    /// The run cannot continue. No effect follows.
    Failed(Failure),
}

/// A node's own model, with its rounds and traffic.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OwnModel {
    /// The number of rounds done.
    pub rounds: Round,
    /// The model x_i of this node, d numbers.
    pub x: Arc<Vec<f32>>,
    /// Bytes that the node has sent.
    pub traffic: Traffic,
    /// Bytes of the rule by neighbour, in ascending order.
    pub links: Vec<LinkTraffic>,
}

/// A part of the update, from `start` on.
#[derive(Debug, PartialEq)]
pub struct UpdatePart {
    /// Its start in the update.
    pub start: usize,
    /// A buffer of its length; contents arbitrary.
    pub values: Vec<f32>,
}

/// A node's report at the end of a round.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RoundDone {
    /// The step t that is done.
    pub round: Round,
    /// How many nodes take part in it.
    pub members: usize,
    /// Mean loss over this round's batches, before the update.
    pub loss: f64,
    /// Sent so far, by the rule.
    pub traffic: Traffic,
    /// The model, in rounds that are evaluated.
    pub model: Option<Vec<f32>>,
    /// The mean of all models after this round, in rounds that form it.
    pub mean: Option<Vec<f32>>,
}

/// Why a node cannot continue.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// A neighbour sent a frame that cannot belong to this run; it changed no state.
    Peer {
        /// The neighbour that has sent the frame.
        peer: NodeId,
        /// What is wrong with the frame.
        reason: String,
    },
    /// The copy of a neighbour's model differs from its owner's: a difference was lost or applied
    /// twice.
    Replica {
        /// The owner of the model.
        peer: NodeId,
        /// The frame after which they differ.
        at: At,
    },
    /// A value is not finite, or the model exceeds the bound of `gossip/node/growth.rs`: the run
    /// has diverged.
    Diverged {
        /// The step t in which it was noticed.
        round: Round,
        /// The index in the vector.
        index: usize,
        /// NaN, an infinity, or the greatest value of a model that exceeds the bound.
        value: f32,
    },
    /// The loss of a batch is not a number, or far above that of a model that knows nothing: the
    /// run has diverged.
    Loss {
        /// The step t of the gradient.
        round: Round,
        /// The mean loss over the batches.
        loss: f64,
    },
    /// This node's gradient could not be computed.
    Gradient {
        /// The step t of the gradient.
        round: Round,
        /// The reason that the learner gave.
        reason: String,
    },
    /// The snapshot from which this node should continue does not fit its rule.
    Snapshot {
        /// The rounds that the snapshot has done.
        round: Round,
        /// What in it differs from the rule's state.
        reason: String,
    },
    /// A link ended before the run did.
    Link {
        /// The neighbour at its other end.
        peer: NodeId,
        /// The round this node was in.
        round: Round,
        /// Stage and cause, as the driver gave it.
        reason: String,
    },
    /// A neighbour left the run before its end.
    Left {
        /// The neighbour that has left.
        peer: NodeId,
        /// The round this node was in.
        round: Round,
        /// The first cause of the end.
        cause: Cause,
    },
}

/// The first cause of the end of a run. Nodes pass it on unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The node at which it happened.
    pub node: NodeId,
    /// What has happened at that node, in words.
    pub text: String,
    /// Whether that node only leaves: a run that can continue without it does.
    pub leaves: bool,
}

impl Failure {
    /// The same failure, with other numbers of the nodes.
    #[must_use]
    pub(crate) fn renumbered(mut self, number: impl Fn(NodeId) -> NodeId) -> Failure {
        match &mut self {
            Failure::Peer { peer, .. }
            | Failure::Replica { peer, .. }
            | Failure::Link { peer, .. } => *peer = number(*peer),
            Failure::Left { peer, cause, .. } => {
                (*peer, cause.node) = (number(*peer), number(cause.node));
            }
            Failure::Diverged { .. }
            | Failure::Loss { .. }
            | Failure::Gradient { .. }
            | Failure::Snapshot { .. } => {}
        }
        self
    }

    /// The neighbour that sent what no honest node sends, if that is the failure.
    pub(crate) fn culprit(&self) -> Option<NodeId> {
        match self {
            Failure::Peer { peer, .. } | Failure::Replica { peer, .. } => Some(*peer),
            _ => None,
        }
    }

    /// Whether this node's model has diverged, which may be because of others.
    pub(crate) fn is_divergence(&self) -> bool {
        matches!(self, Failure::Diverged { .. } | Failure::Loss { .. })
    }

    /// The message, with nodes named by `name`.
    pub fn describe(&self, name: &dyn Fn(NodeId) -> String) -> String {
        match self {
            Failure::Peer { peer, reason } => {
                format!("node {} sent a frame that cannot be used: {reason}", name(*peer))
            }
            Failure::Replica { peer, at } => {
                format!(
                    "the copy of node {} differs from its owner's after {at}: a difference was \
                     lost",
                    name(*peer)
                )
            }
            Failure::Diverged { round, index, value } if value.is_finite() => format!(
                "diverged in round {round}: the model is over 1000 times as long as its start and \
                 its first gradients can make it \
                 (the value at index {index} is {value:e}); try a smaller step"
            ),
            Failure::Diverged { round, index, value } => {
                format!(
                    "diverged in round {round}: the value at index {index} is {value}; try a \
                     smaller step"
                )
            }
            Failure::Loss { round, loss } => {
                let far = if loss.is_finite() {
                    ", over 10^9 times that of a model that knows nothing"
                } else {
                    ""
                };
                format!(
                    "diverged in round {round}: the loss of its rows is {loss:e}{far}; try a \
                     smaller step"
                )
            }
            Failure::Gradient { round, reason } => {
                format!("the gradient of round {round} could not be computed: {reason}")
            }
            Failure::Snapshot { round, reason } => {
                format!("the checkpoint of round {round} does not fit the rule: {reason}")
            }
            Failure::Link { peer, round, reason } => {
                format!("the link to node {} broke in round {round}: {reason}", name(*peer))
            }
            Failure::Left { peer, round, cause } => {
                let (origin, Cause { node, text, .. }) = (name(cause.node), cause);
                if node == peer {
                    format!("node {origin} left the run: {text} (this node was in round {round})")
                } else {
                    let by = name(*peer);
                    format!(
                        "node {origin} left the run: {text} (told by node {by}; this node was in \
                         round {round})"
                    )
                }
            }
        }
    }

    /// The round in which it happened, if known.
    pub fn round(&self) -> Option<Round> {
        match self {
            Failure::Replica { at, .. } => Some(at.round),
            Failure::Diverged { round, .. }
            | Failure::Loss { round, .. }
            | Failure::Gradient { round, .. }
            | Failure::Snapshot { round, .. }
            | Failure::Link { round, .. }
            | Failure::Left { round, .. } => Some(*round),
            Failure::Peer { .. } => None,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe(&|node| node.to_string()))
    }
}

impl std::error::Error for Failure {}
