//! A machine: its disk, and the program that runs on it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{
    cluster::{
        Cluster, Input,
        members::ban::Ban,
        message::{Beginning, Saved},
    },
    drive::{Ended, Learner, Membership},
    gossip::Traffic,
    run::{Checkpoint, checkpoint::Written},
    state::State,
    units::{NodeId, Time},
};

/// The disk of a machine.
#[derive(Default)]
pub(super) struct Disk {
    pub checkpoints: BTreeMap<u64, Checkpoint>,
    pub membership: Option<Membership>,
    /// Whether the run has begun here.
    pub begun: bool,
    pub results: Option<Ended>,
    /// How many faults keep it full.
    pub full: u32,
    /// How often a program was started here.
    pub starts: u64,
}

impl Disk {
    /// The results that are written, if any.
    pub(super) fn written(&self) -> Option<Written> {
        self.results.as_ref().map(|made| Written::of(&made.mean, &made.history))
    }

    /// What other nodes must know of its checkpoints; `me` is this node's number among the members.
    pub(super) fn saved(&self, me: NodeId) -> Saved {
        Saved::of(me, self.checkpoints.values())
    }
}

/// A program that runs.
pub(super) struct Program<'a> {
    pub cluster: Cluster<'a>,
    pub learner: Box<dyn Learner>,
    /// The learner's state at the beginning.
    pub initial: State,
    /// The number of the links that it has opened last.
    pub incarnation: u64,
    /// Because of whom it has gone back to a checkpoint.
    pub because: Option<NodeId>,
    /// Whether these links are for the choice of members.
    pub chooses: bool,
    /// The neighbours whose connections it refuses.
    pub bans: Vec<(NodeId, Ban)>,
    /// Whether the rounds have begun over these links.
    pub begun: bool,
    /// Where they have begun, for neighbours that connect later.
    pub begins: Option<Beginning>,
    /// The bytes of frames that they have carried.
    pub bytes: u64,
    pub inputs: VecDeque<Input>,
    /// Whether a gradient is being computed.
    pub computing: bool,
    /// The time of all gradients.
    pub spent: Time,
    /// When the rounds began, and the time of those before.
    pub started: Time,
    pub before: Time,
    /// The merged setup records of all nodes.
    pub setup: Vec<u8>,
    pub traffic: Traffic,
    pub model: Arc<Vec<f32>>,
    pub mean: Vec<f32>,
    /// When the effects of its last event were performed.
    pub acted: Time,
    /// When it says goodbye no longer, and whether it gave a reason.
    pub closing: Option<(Time, bool)>,
    /// For whom it waits, as it says.
    pub waits_for: Vec<NodeId>,
    pub share: Option<u8>,
    /// Tells it from other programs of this machine.
    pub number: u64,
}

/// A machine.
#[derive(Default)]
pub(super) struct Machine<'a> {
    pub disk: Disk,
    pub program: Option<Program<'a>>,
    /// How many faults keep it down.
    pub down: u32,
    /// How much longer its gradients take.
    pub slow: f64,
    /// How it ended last: with results, or with an error.
    pub ended: Option<Result<(), String>>,
    /// How often its program has ended with an error since the last fault was over.
    pub tries: u32,
    /// The rounds that it has done, in all attempts.
    pub rounds: u64,
}
