//! What a host tells the thread that drives a node's core.

use crate::{
    job::RunError,
    units::{NodeId, Round},
};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A link is up: hellos agree, streams are open.
    Up(NodeId),
    /// A whole frame, as it was sent; checksums are the core's business.
    Frame {
        /// From this neighbour.
        from: NodeId,
        /// Header and payload; to be given back by [`super::Host::recycle`].
        bytes: Vec<u8>,
    },
    /// The oldest frame handed to this link is written: its slot is free.
    Taken(NodeId),
    /// A link that was up broke.
    Down {
        /// To this neighbour.
        peer: NodeId,
        /// Stage and cause.
        reason: String,
    },
    /// A neighbour is done and sends nothing more.
    Goodbye(NodeId),
    /// The run cannot begin.
    Fatal(RunError),
    /// A gradient that was computed beside the core is ready.
    Computed {
        /// Of this round.
        round: Round,
        /// The model, back.
        x: Vec<f32>,
        /// The update.
        update: Vec<f32>,
        /// Mean loss over the batches.
        loss: f64,
        /// The sum of the step sizes in the update.
        step: f32,
    },
}
