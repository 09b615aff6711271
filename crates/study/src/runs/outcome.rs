//! Tunes and runs many cases.

use super::{
    bench::{Bench, Count, in_parallel},
    case::Case,
    grid::Grid,
    optimum::Optima,
    running::Until,
    trace::{Status, Trace},
    tune::{self, Tuned},
};

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

impl Bench<'_> {
    /// Tunes each case on its grid, then runs it with every seed. The result has the order of the
    /// cases.
    pub fn run(&self, cases: &[(Case, Vec<Grid>)]) -> Vec<Outcome> {
        let optima = Optima::default();
        let optima = self.optimum.then_some(&optima);
        let tally = Count::of(cases.len() * self.seeds.len());
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
}
