//! Tunes and runs many cases on threads. Every run is deterministic and independent, so the results
//! do not depend on the number of threads.

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

use super::{
    case::Case,
    figure::Target,
    grid::Grid,
    kept::Kept,
    optimum::Optima,
    trace::{Status, Trace, Until},
    tune::{self, Tuned},
};

/// The number of simultaneous runs: as asked, or one per processor.
pub fn jobs(asked: Option<NonZeroUsize>) -> usize {
    asked.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// The runs of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case, without the tuned settings.
    pub case: Case,
    /// The result of tuning, if the case has a grid.
    pub tuned: Option<Tuned>,
    /// One run per seed, in the order of the seeds.
    pub runs: Vec<Trace>,
}

/// How to run cases.
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
    /// The number of threads.
    pub jobs: usize,
    /// Whether to compute the least value of f.
    pub optimum: bool,
    /// The folder of runs that need not be repeated.
    pub kept: Option<&'a Kept>,
    /// Returns whether the user has interrupted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Called after every run: runs done, runs known so far, and the name of the last one.
    pub done: &'a (dyn Fn(usize, usize, &str) + Sync),
}

impl Bench<'_> {
    /// Tunes each case on its grid, then runs it with every seed. The result has the order of the
    /// cases.
    pub fn run(&self, cases: &[(Case, Vec<Grid>)]) -> Vec<Outcome> {
        let optima = Optima::default();
        let optima = self.optimum.then_some(&optima);
        let tally = Count {
            done: AtomicUsize::new(0),
            total: AtomicUsize::new(cases.len() * self.seeds.len()),
        };
        let tuned = tune::all(self, cases, optima, &tally);
        let tasks: Vec<(usize, u64)> = (0..cases.len())
            .flat_map(|index| self.seeds.iter().map(move |seed| (index, *seed)))
            .collect();
        let runs = in_parallel(&tasks, self.jobs, |&(index, seed)| {
            let case = &cases[index].0;
            let mut sets =
                tuned[index].as_ref().map_or_else(Vec::new, |tuned| tuned.chosen.clone());
            sets.push(format!("run.seed={seed}"));
            let until = Until { target: self.until.as_ref(), ..Until::LAST_ROUND };
            let mut trace = self.trace(case, &sets, optima, until);
            trace.seed = seed;
            tally.report(self, &format!("{}, seed {seed}", case.name));
            trace
        });
        let mut runs = runs.into_iter();
        let outcome = |((case, _), tuned): (&(Case, Vec<Grid>), Option<Tuned>)| Outcome {
            case: case.clone(),
            tuned,
            runs: runs.by_ref().take(self.seeds.len()).collect(),
        };
        cases.iter().zip(tuned).map(outcome).collect()
    }

    /// One run of a case with these settings, or the one that is kept.
    pub(super) fn trace(
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
pub(super) struct Count {
    done: AtomicUsize,
    total: AtomicUsize,
}

impl Count {
    /// Adds this many expected runs.
    pub(super) fn expect(&self, more: usize) {
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

impl Outcome {
    /// Describes how the runs ended: in one word if they agree.
    pub fn status(&self) -> String {
        let diverged: Vec<u64> = (self.runs.iter())
            .filter_map(
                |run| if let Status::Diverged(round) = run.status { Some(round) } else { None },
            )
            .collect();
        if let Some(run) =
            self.runs.iter().find(|run| !matches!(run.status, Status::Ok | Status::Diverged(_)))
        {
            return run.status.to_string();
        }
        let (Some(least), Some(most)) = (diverged.iter().min(), diverged.iter().max()) else {
            return "ok".into();
        };
        let rounds = if least == most {
            format!("round {least}")
        } else {
            format!("rounds {least} to {most}")
        };
        if diverged.len() == self.runs.len() {
            format!("diverged at {rounds}")
        } else {
            format!("{} of {} diverged at {rounds}", diverged.len(), self.runs.len())
        }
    }

    /// Whether every run did all its rounds without divergence.
    pub fn is_ok(&self) -> bool {
        self.runs.iter().all(|run| run.status == Status::Ok)
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
