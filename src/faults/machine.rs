//! A machine: its disk, and the program that runs on it.

use std::{collections::VecDeque, path::Path, sync::Arc};

use super::disk::Memory;
use crate::{
    cluster::{Cluster, Input, members::ban::Ban, message::Origin, statements::Retained},
    config::ConfigError,
    drive::{Elapsed, Ended, Learner},
    gossip::Traffic,
    run::{
        Checkpoint, Checkpoints, Design,
        checkpoint::{Every, Owner, Written},
    },
    state::State,
    status::Board,
    units::{NodeId, Time},
};

/// A program that runs.
pub(super) struct Program<'a> {
    pub cluster: Cluster<'a>,
    pub learner: Box<dyn Learner>,
    pub checkpoints: Checkpoints,
    /// Checkpoints that are being written, and when the last of them is.
    pub writes: VecDeque<Checkpoint>,
    pub written: Time,
    /// It waits for its disk.
    pub blocked: bool,
    /// The results that it had when it started, and whether it has gone back since.
    pub complete: bool,
    pub resumed: bool,
    /// The learner's state at the beginning.
    pub initial: State,
    /// The number of the links that it has opened last.
    pub incarnation: u64,
    /// The number of its last attempt.
    pub attempt: u64,
    /// The members between which these links are: the cluster may already know others.
    pub numbers: Vec<NodeId>,
    /// Which node was the first to go back, or to choose, as it says.
    pub because: Option<Origin>,
    /// Whether these links are for the choice of members.
    pub chooses: bool,
    /// The neighbours whose connections it refuses.
    pub bans: Vec<(NodeId, Ban)>,
    /// Whether the rounds have begun over these links.
    pub begun: bool,
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
    /// What nodes say about themselves.
    pub board: Board,
    /// The statements that its neighbours are told.
    pub statements: Retained,
    /// Tells it from other programs of this machine.
    pub number: u64,
}

impl<'a> Program<'a> {
    /// A program that starts now.
    pub(super) fn new(
        cluster: Cluster<'a>,
        learner: Box<dyn Learner>,
        checkpoints: Checkpoints,
        board: Board,
        now: Time,
        number: u64,
    ) -> Program<'a> {
        Program {
            cluster,
            learner,
            checkpoints,
            writes: VecDeque::new(),
            written: now,
            blocked: false,
            complete: false,
            resumed: false,
            initial: State::default(),
            incarnation: 0,
            attempt: 0,
            numbers: Vec::new(),
            because: None,
            chooses: false,
            bans: Vec::new(),
            begun: false,
            bytes: 0,
            inputs: VecDeque::new(),
            computing: false,
            spent: Time(0),
            started: now,
            before: Time(0),
            setup: Vec::new(),
            traffic: Traffic::default(),
            model: Arc::default(),
            mean: Vec::new(),
            acted: now,
            closing: None,
            waits_for: Vec::new(),
            share: None,
            statements: Retained::default(),
            board,
            number,
        }
    }

    /// The number in the topology of a node of its links.
    pub(super) fn number(&self, node: NodeId) -> NodeId {
        self.numbers[node.index()]
    }

    /// The time of its rounds, and of its gradients.
    pub(super) fn elapsed(&self, now: Time) -> Elapsed {
        let time = Time(self.before.0 + now.0 - self.started.0);
        Elapsed { time, computing: self.spent }
    }
}

/// A machine.
#[derive(Default)]
pub(super) struct Machine<'a> {
    pub files: Arc<Memory>,
    /// The results on its disk.
    pub results: Option<Ended>,
    /// How often a program was started here.
    pub starts: u64,
    pub program: Option<Program<'a>>,
    /// How many faults keep it down.
    pub down: u32,
    /// How much longer its gradients take.
    pub slow: f64,
    /// How much longer its disk takes for a checkpoint.
    pub slow_disk: u64,
    /// How it ended last: with results, or with an error.
    pub ended: Option<Result<(), String>>,
    /// How often its program has ended with an error since the last fault was over.
    pub tries: u32,
    /// The rounds that it has done, in all attempts.
    pub rounds: u64,
}

impl Machine<'_> {
    /// The checkpoints of this node, as its program finds them, which writes them so often.
    ///
    /// # Errors
    /// If its disk is full, or has files that cannot be used.
    pub(super) fn checkpoints(
        &self,
        design: &Design,
        node: NodeId,
        every: Every,
    ) -> Result<Checkpoints, ConfigError> {
        // No other run has files there.
        let sections = Default::default();
        let owner = Owner::new(design, node, &sections);
        let disk = self.files.clone();
        let mut all = Checkpoints::open_on(disk, Path::new("run"), every, owner, &sections)?;
        let results = self.results.as_ref();
        all.results = results.map(|made| Written::of(&made.mean, &made.history));
        Ok(all)
    }
}
