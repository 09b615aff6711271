//! The state of one node on its worker's thread.

use std::{
    collections::VecDeque,
    sync::{
        Arc, TryLockError,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use super::{
    companion::{Job, Owned, SharedLearner, companion, lock},
    status::Status,
};
use crate::{
    drive::{Change, Elapsed, Ended, Lent, RunError},
    gossip::{Effect, Input, Node, NodeConfig, Rejoin, Traffic},
    net::{
        life::{clock, event::Event},
        link::wire::Beginning,
    },
    run::Checkpoint,
    units::{Round, Time},
};

/// The state of a node that the worker keeps.
pub(crate) struct NodeState {
    pub node: Node,
    pub learner: SharedLearner,
    companion: Option<Sender<Job>>,
    own: Sender<Event>,
    pub started: Instant,
    /// The time of the rounds before the checkpoint from which it continues.
    before: Duration,
    /// The merged setup records of all nodes.
    pub setup: Vec<u8>,
    /// The changes of the run's members so far.
    pub history: Vec<Change>,
    /// How often this program was started again.
    pub restarts: u64,
    pub traffic: Traffic,
    pub model: Arc<Vec<f32>>,
    pub mean: Vec<f32>,
    pub records: Option<Vec<Vec<u8>>>,
    pub inputs: VecDeque<Input>,
    pub effects: Vec<Effect>,
}

impl NodeState {
    /// A node that begins, or resumes from a checkpoint.
    pub(crate) fn new(
        config: NodeConfig,
        (at, restored): (&Beginning, Option<Checkpoint>),
        learner: Owned,
        own: Sender<Event>,
        status: Arc<Status>,
    ) -> NodeState {
        let times = restored.as_ref().map(|restored| (restored.time, restored.computing));
        let (time, computing) = times.unwrap_or_default();
        let models = config.topology.nodes() - at.without.len();
        let (node, setup) = match restored {
            Some(Checkpoint { snapshot, setup, .. }) if !at.from_mean => {
                (Node::resume(config, snapshot), setup)
            }
            restored if at.from_mean => {
                let rejoin = Rejoin { rounds: Round(at.rounds), models, ..Rejoin::default() };
                let rejoin = match restored {
                    Some(Checkpoint { snapshot, setup: merged, .. }) => {
                        let traffic = snapshot.traffic;
                        Rejoin { own: Some(snapshot.into_model()), merged, traffic, ..rejoin }
                    }
                    None => rejoin,
                };
                (Node::rejoin(config, rejoin), Vec::new())
            }
            _ => (Node::new(config), Vec::new()),
        };
        let waits = lock(&learner).waits();
        NodeState {
            node,
            setup,
            history: Vec::new(),
            restarts: 0,
            before: Duration::from_nanos(time.0),
            learner: SharedLearner {
                waits,
                learner,
                computing: Arc::new(AtomicU64::new(computing.0)),
                lent: Lent::default(),
                status,
            },
            companion: None,
            own,
            started: clock::now(),
            traffic: Traffic::default(),
            model: Arc::default(),
            mean: Vec::new(),
            records: None,
            inputs: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    pub(crate) fn elapsed(&self) -> Elapsed {
        let time = self.before + clock::since(self.started);
        Elapsed {
            time: Time(time.as_nanos() as u64),
            computing: Time(self.learner.computing.load(Ordering::Relaxed)),
        }
    }

    /// Computes in place if there is nothing else to do meanwhile, else on another thread.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn compute(&mut self, job: Job, overlaps: bool) -> Result<(), RunError> {
        if (!overlaps && !self.learner.waits) || clock::is_virtual() {
            job.compute(&self.learner, &mut |input| self.inputs.push_back(input));
            return Ok(());
        }
        let companion = match self.companion.take() {
            Some(companion) => companion,
            None => companion(self.learner.clone(), self.own.clone())
                .map_err(|error| RunError::Host(format!("no gradient can be computed: {error}")))?,
        };
        companion.send(job).expect("the companion lives as long as its queue");
        self.companion = Some(companion);
        Ok(())
    }

    /// Whether another thread computes a gradient.
    pub(crate) fn is_computing(&self) -> bool {
        self.companion.is_some()
            && matches!(self.learner.learner.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) fn end(self) -> Ended {
        let records = self.records.unwrap_or_default();
        Ended {
            model: Arc::unwrap_or_clone(self.model),
            mean: self.mean,
            records,
            traffic: self.traffic,
            history: self.history,
        }
    }
}
