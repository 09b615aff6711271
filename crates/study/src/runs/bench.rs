//! Runs on threads. Every run is deterministic and independent, so the results do not depend on the
//! number of threads.

use std::{
    num::NonZeroUsize,
    panic,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use gradvine::threads;

use super::{cache::RunCache, case::Case, optimum::Optima, running::Until, trace::Trace};
use crate::figure::Target;

/// The number of simultaneous runs: as asked, or one per processor.
pub fn jobs(asked: Option<NonZeroUsize>) -> usize {
    asked.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// On which seeds, by how many threads and up to what end cases run.
pub struct Bench<'a> {
    /// The seeds, one run each.
    pub seeds: Vec<u64>,
    /// The seeds of tuning, different from the others.
    pub tuning_seeds: Vec<u64>,
    /// The most points of each grid that run on the seeds of tuning after the first; without it all
    /// that are not hopeless.
    pub finalists: Option<NonZeroUsize>,
    /// The target to which tuning counts rounds or seconds; without it the final train loss
    /// decides.
    pub goal: Option<Target>,
    /// The target at which runs end early.
    pub until: Option<Target>,
    /// How many runs are computed at once, one thread each.
    pub jobs: usize,
    /// Whether to compute the least value of f.
    pub optimum: bool,
    /// The folder of runs that need not be repeated.
    pub kept: Option<&'a RunCache>,
    /// Returns whether the user has interrupted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Called after every run: runs done, runs known so far, and the name of the last one.
    pub done: &'a (dyn Fn(usize, usize, &str) + Sync),
}

impl Bench<'_> {
    /// One run of a case with these settings, or the one that is kept.
    pub(crate) fn trace(
        &self,
        case: &Case,
        sets: &[String],
        optima: Option<&Optima>,
        until: Until<'_>,
    ) -> Trace {
        let run = |experiment, until: Until<'_>| Trace::of(experiment, optima, until, self.stop);
        match (self.kept.filter(|_| optima.is_none()), case.experiment(sets)) {
            (Some(kept), Ok(experiment)) => {
                kept.or_run(&experiment, until, &|until| run(Ok(experiment.clone()), until))
            }
            (_, experiment) => run(experiment, until),
        }
    }
}

/// Runs done, and runs known so far: tuning adds some.
pub(crate) struct Count {
    done: AtomicUsize,
    total: AtomicUsize,
}

impl Count {
    /// Of this many expected runs.
    pub(crate) fn of(total: usize) -> Count {
        Count { done: AtomicUsize::new(0), total: AtomicUsize::new(total) }
    }

    /// Adds this many expected runs.
    pub(crate) fn expect(&self, more: usize) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts a run that is done.
    pub(super) fn report(&self, bench: &Bench<'_>, what: &str) {
        (bench.done)(
            self.done.fetch_add(1, Ordering::Relaxed) + 1,
            self.total.load(Ordering::Relaxed),
            what,
        );
    }
}

/// Does all tasks on this many threads; the results are in the tasks' order.
pub(super) fn in_parallel<T: Sync, R: Send>(
    tasks: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = tasks.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        let worker = || {
            while let Some(index) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < tasks.len())
            {
                let result = work(&tasks[index]);
                *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        };
        // Fewer threads do all tasks, too.
        let start = |_| threads::spawn_scoped(scope, "gradvine-bench", worker).ok();
        let threads: Vec<_> = (0..jobs.clamp(1, tasks.len().max(1))).map_while(start).collect();
        if threads.is_empty() {
            worker();
        }
        for thread in threads {
            if let Err(panicked) = thread.join() {
                panic::resume_unwind(panicked);
            }
        }
    });
    let take = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(|slot| take(slot).expect("every task was done")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_tasks() {
        let tasks: Vec<u64> = (0..100).collect();
        for jobs in [1, 7, 1000] {
            assert_eq!(
                in_parallel(&tasks, jobs, |x| x * x),
                tasks.iter().map(|x| x * x).collect::<Vec<_>>()
            );
        }
        assert!(in_parallel(&[] as &[u64], 3, |x| *x).is_empty());
    }
}
