//! What the driver of a node holds while its rounds run: the learner, the clocks, the results.

use std::{
    sync::{
        Arc, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use super::{
    companion::{Job, Owned, SharedLearner, companion, lock},
    saver::Saver,
    status::Status,
};
use crate::{
    cluster::event::Event,
    drive::{Elapsed, Lent, RunError},
    gossip::{Input, Traffic},
    units::Time,
};

/// A node while its rounds run.
pub(super) struct Work {
    pub learner: SharedLearner,
    companion: Option<Sender<Job>>,
    own: Sender<Event>,
    started: Instant,
    /// The time of the rounds before the checkpoint from which it continues.
    before: Duration,
    /// The merged setup records of all nodes.
    pub setup: Vec<u8>,
    pub saver: Option<Saver>,
    pub traffic: Traffic,
    pub model: Arc<Vec<f32>>,
    pub mean: Vec<f32>,
}

impl Work {
    /// Begins now, with these clocks of the rounds before.
    pub(super) fn new(
        (before, setup): (Elapsed, Vec<u8>),
        (learner, ends): (Owned, Arc<AtomicBool>),
        saver: Option<Saver>,
        own: Sender<Event>,
        status: Arc<Status>,
    ) -> Work {
        let Elapsed { time, computing } = before;
        let waits = lock(&learner).waits();
        Work {
            learner: SharedLearner {
                waits,
                learner,
                computing: Arc::new(AtomicU64::new(computing.0)),
                lent: Lent::default(),
                status,
                ends,
            },
            companion: None,
            own,
            started: Instant::now(),
            before: Duration::from_nanos(time.0),
            setup,
            saver,
            traffic: Traffic::default(),
            model: Arc::default(),
            mean: Vec::new(),
        }
    }

    pub(super) fn elapsed(&self) -> Elapsed {
        let time = self.before + self.started.elapsed();
        Elapsed {
            time: Time(time.as_nanos() as u64),
            computing: Time(self.learner.computing.load(Ordering::Relaxed)),
        }
    }

    /// Computes in place if there is nothing else to do meanwhile, and hands the inputs over; else
    /// on another thread.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(super) fn compute(
        &mut self,
        job: Job,
        overlaps: bool,
        hand: &mut dyn FnMut(Input),
    ) -> Result<(), RunError> {
        if !overlaps && !self.learner.waits {
            job.compute(&self.learner, hand);
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
    pub(super) fn is_computing(&self) -> bool {
        self.companion.is_some()
            && matches!(self.learner.learner.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Runs something that may take long while the neighbours know that this node is at work.
    pub(super) fn at_work<T>(&self, what: impl FnOnce() -> T) -> T {
        self.learner.status.set_working(true);
        let result = what();
        self.learner.status.set_working(false);
        result
    }
}
