//! Gradients: in place, or on a thread of their own beside the core.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    time::Instant,
};

use super::status::Status;
use crate::{
    cluster::event::Event,
    drive::{self, Learner, Lent},
    gossip::{Input, UpdatePart},
    threads,
    units::Round,
};

/// A learner that outlives the attempts of its node at a run.
pub(crate) type Owned = Arc<Mutex<Box<dyn Learner>>>;

/// The learner, the nanoseconds that it has computed, and the model lent to it.
#[derive(Clone)]
pub(crate) struct SharedLearner {
    pub learner: Owned,
    pub computing: Arc<AtomicU64>,
    pub lent: Lent,
    pub status: Arc<Status>,
    /// Whether gradients wait for another program.
    pub waits: bool,
    /// Set once the node asks all others to end the run.
    pub ends: Arc<AtomicBool>,
}

impl SharedLearner {
    /// Runs the learner while the neighbours know that this node is at work.
    pub(crate) fn work<T>(&self, what: impl FnOnce(&mut dyn Learner) -> T) -> T {
        self.status.set_working(true);
        let result = what(&mut **lock(&self.learner));
        self.status.set_working(false);
        result
    }
}

pub(crate) struct Job {
    pub round: Round,
    pub x: Vec<f32>,
    pub update: Vec<f32>,
    pub parts: Vec<UpdatePart>,
}

impl Job {
    pub(crate) fn compute(self, learner: &SharedLearner, hand: &mut dyn FnMut(Input)) {
        let Job { round, x, update, parts } = self;
        let (started, mut counted) = (Instant::now(), 0);
        let x = Arc::new(x);
        learner.lent.set(round, &x);
        learner.work(|learns| {
            drive::compute(learns, round, x, update, parts, &mut |mut input| {
                if let Input::Computed { ends, .. } = &mut input {
                    *ends |= learner.ends.load(Ordering::Relaxed);
                }
                let so_far = started.elapsed().as_nanos() as u64;
                // Counted before it can have an effect.
                learner.computing.fetch_add(so_far - counted, Ordering::Relaxed);
                counted = so_far;
                hand(input);
            });
        });
    }
}

/// Waits for the learner: another thread may compute a gradient.
pub(crate) fn lock(learner: &Owned) -> MutexGuard<'_, Box<dyn Learner>> {
    learner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that computes gradients while the worker handles frames.
///
/// # Errors
/// If the system refuses the thread.
pub(crate) fn companion(learner: SharedLearner, own: Sender<Event>) -> io::Result<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    threads::spawn("gradvine-learner", move || {
        for job in queue {
            let mut open = true;
            job.compute(&learner, &mut |input| open &= own.send(Event::Computed(input)).is_ok());
            if !open {
                return;
            }
        }
    })?;
    Ok(jobs)
}
