//! Tunes and runs many cases on threads. Every run is deterministic and by itself, so nothing depends on how many threads there are.

use std::{
    panic,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde::Serialize;

use super::{
    case::{Case, cut},
    figure::{Figure, Target},
    trace::{Status, Trace},
};
use crate::{
    compress::COMPRESSORS,
    config::{self, ConfigError},
    gossip::rule::RULES,
};

/// The value in a grid that leaves a key as it is.
const AS_IT_IS: &str = "default";

/// Values of a key from which the best is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grid {
    /// The key, such as `optimizer.step`.
    pub key: String,
    /// Its values, as `--set` takes them; `default` leaves the key as it is.
    pub values: Vec<String>,
}

/// A point of the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Its settings.
    pub sets: Vec<String>,
    /// The mean model's train loss at the end; `None` if it diverged, was refused or failed.
    pub loss: Option<f64>,
    /// The rounds, or on links that take time the virtual seconds, to the target, where tuning goes by these; infinite if it was not reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_target: Option<f64>,
    /// How it ended.
    pub status: Status,
}

/// What tuning chose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The settings with the fewest rounds or seconds to the target, where tuning goes by these, and the least train loss of the mean model at the end; of equals the first.
    pub chosen: Vec<String>,
    /// Keys whose chosen value is the least or greatest of the grid: the best may lie outside.
    pub at_the_edge: Vec<String>,
    /// The seed of all trials, none of those that are compared.
    pub seed: u64,
    /// All trials.
    pub tried: Vec<Tried>,
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case, without what tuning chose.
    pub case: Case,
    /// What tuning chose, where there was a grid.
    pub tuned: Option<Tuned>,
    /// One run a seed, in the order of the seeds.
    pub runs: Vec<Trace>,
}

/// How cases are run.
pub struct Bench<'a> {
    /// The seeds, one run each.
    pub seeds: Vec<u64>,
    /// The seed of tuning.
    pub tuning_seed: u64,
    /// What tuning counts rounds or seconds to; without it the train loss at the end decides.
    pub goal: Option<Target>,
    /// How many threads.
    pub jobs: usize,
    /// Whether the least value of f is wanted.
    pub optimum: bool,
    /// Whether somebody has interrupted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Told after every run: runs done, runs known so far, and which it was.
    pub done: &'a (dyn Fn(usize, usize, &str) + Sync),
}

impl Grid {
    /// Reads `optimizer.step=0.05,0.1,0.2`.
    ///
    /// # Errors
    /// If it is not a key and values.
    ///
    /// ```
    /// let grid = gradvine::study::Grid::parse("--grid", "optimizer.step=0.05,0.1").unwrap();
    /// assert_eq!((grid.key.as_str(), grid.values.len()), ("optimizer.step", 2));
    /// ```
    pub fn parse(place: &str, text: &str) -> Result<Grid, ConfigError> {
        let wrong = || {
            let problem = "expected section.key=value,value,..., such as optimizer.step=0.05,0.1,0.2";
            ConfigError::new(place, format!("\"{text}\""), problem)
        };
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let values = cut(values, &[',']);
        let key = key.trim();
        if !key.contains('.') || key.starts_with("run.seed") || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        check_key(place, text, key)?;
        Ok(Grid { key: key.into(), values })
    }

    /// Whether a case has this key: constants belong to their rules and compressors.
    fn fits(&self, case: &Case) -> bool {
        let Ok(experiment) = case.experiment(&[]) else { return true };
        let known = |table: &toml::Table, name: &str, constants: &dyn Fn(&str) -> Vec<&'static str>| {
            let kind = table.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
            constants(kind).contains(&name)
        };
        match self.key.split_once('.') {
            Some(("rule", "kind") | ("compressor", "kind")) => true,
            Some(("rule", name)) => known(&experiment.rule, name, &|kind| {
                let entries = RULES.iter().filter(|entry| entry.name == kind);
                entries.flat_map(|entry| entry.constants.iter().map(|(key, _)| *key)).collect()
            }),
            Some(("compressor", name)) => known(&experiment.compressor, name, &|kind| {
                let entries = COMPRESSORS.iter().filter(|entry| entry.name == kind);
                entries.flat_map(|entry| entry.constants.iter().map(|(key, _)| *key)).collect()
            }),
            _ => true,
        }
    }

    /// Whether a value is the least or greatest of several numbers.
    fn is_edge(&self, value: &str) -> bool {
        let numbers: Vec<f64> = self.values.iter().filter_map(|value| value.parse().ok()).collect();
        let Ok(own) = value.parse::<f64>() else { return false };
        numbers.len() > 1 && (numbers.iter().all(|x| *x >= own) || numbers.iter().all(|x| *x <= own))
    }
}

/// A constant of a rule or compressor is one that some rule or compressor has; other cases pass over it.
fn check_key(place: &str, text: &str, key: &str) -> Result<(), ConfigError> {
    let constants: Vec<&str> = match key.split_once('.') {
        Some(("rule", _)) => RULES.iter().flat_map(|entry| entry.constants).map(|(name, _)| *name).collect(),
        Some(("compressor", _)) => {
            COMPRESSORS.iter().flat_map(|entry| entry.constants).map(|(name, _)| *name).collect()
        }
        _ => return Ok(()),
    };
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    if name == "kind" || constants.contains(&name) {
        return Ok(());
    }
    let problem = format!("nothing has a constant `{name}`{}", config::hint(name, constants));
    Err(ConfigError::new(place, format!("\"{text}\""), problem))
}

impl Bench<'_> {
    /// Tunes each case on its grid, then runs it with every seed. The result has the order of the cases.
    pub fn run(&self, cases: &[(Case, Vec<Grid>)]) -> Vec<Outcome> {
        let grids: Vec<Vec<&Grid>> =
            cases.iter().map(|(case, grids)| grids.iter().filter(|grid| grid.fits(case)).collect()).collect();
        let points: Vec<Vec<Vec<String>>> = grids.iter().map(|grids| product(grids)).collect();
        let trials: Vec<(usize, &Vec<String>)> = points
            .iter()
            .enumerate()
            .flat_map(|(index, points)| points.iter().map(move |point| (index, point)))
            .collect();
        let (count, total) = (AtomicUsize::new(0), trials.len() + cases.len() * self.seeds.len());
        let tell = |what: &str| (self.done)(count.fetch_add(1, Ordering::Relaxed) + 1, total, what);
        let tried = in_parallel(&trials, self.jobs, |(index, point)| {
            let case = &cases[*index].0;
            let mut sets = vec![format!("run.seed={}", self.tuning_seed)];
            if self.goal.is_none() {
                // Only the end counts.
                sets.push(format!("run.evaluate_every={}", u32::MAX));
            }
            sets.extend_from_slice(point);
            let trace = Trace::of(case.experiment(&sets), self.optimum && self.goal.is_some(), self.stop);
            tell(&format!("tuning {}: {}", case.name, point.join(" ")));
            Tried {
                sets: (*point).clone(),
                loss: trace.last().map(|point| point.train_loss),
                // What diverges later has not got there either.
                to_target: (self.goal.as_ref().filter(|_| trace.status == Status::Ok)).and_then(|goal| {
                    let timed = trace.points.last().is_some_and(|point| point.time_s > 0.0);
                    if timed { Figure::TimeTo } else { Figure::RoundsTo }.of(&trace, Some(goal))
                }),
                status: trace.status,
            }
        });
        let mut tried = tried.into_iter();
        let tuned: Vec<Option<Tuned>> = grids
            .iter()
            .zip(&points)
            .map(|(grids, points)| choose(grids, self.tuning_seed, tried.by_ref().take(points.len()).collect()))
            .collect();
        let tasks: Vec<(usize, u64)> =
            (0..cases.len()).flat_map(|index| self.seeds.iter().map(move |seed| (index, *seed))).collect();
        let runs = in_parallel(&tasks, self.jobs, |&(index, seed)| {
            let case = &cases[index].0;
            let mut sets = tuned[index].as_ref().map_or_else(Vec::new, |tuned| tuned.chosen.clone());
            sets.push(format!("run.seed={seed}"));
            let mut trace = Trace::of(case.experiment(&sets), self.optimum, self.stop);
            trace.seed = seed;
            tell(&format!("{}, seed {seed}", case.name));
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

impl Outcome {
    /// How the runs ended: as one word where they agree.
    pub fn status(&self) -> String {
        let diverged: Vec<u64> = (self.runs.iter())
            .filter_map(|run| if let Status::Diverged(round) = run.status { Some(round) } else { None })
            .collect();
        if let Some(run) = self.runs.iter().find(|run| !matches!(run.status, Status::Ok | Status::Diverged(_))) {
            return run.status.to_string();
        }
        let (Some(least), Some(most)) = (diverged.iter().min(), diverged.iter().max()) else { return "ok".into() };
        let rounds = if least == most { format!("round {least}") } else { format!("rounds {least} to {most}") };
        if diverged.len() == self.runs.len() {
            format!("diverged at {rounds}")
        } else {
            format!("{} of {} diverged at {rounds}", diverged.len(), self.runs.len())
        }
    }

    /// Whether every run did all its rounds and none diverged.
    pub fn is_ok(&self) -> bool {
        self.runs.iter().all(|run| run.status == Status::Ok)
    }
}

/// All combinations of the grids' values as settings, the first key slowest; none if there is no grid.
fn product(grids: &[&Grid]) -> Vec<Vec<String>> {
    if grids.is_empty() {
        return Vec::new();
    }
    let mut points = vec![Vec::new()];
    for grid in grids {
        let set = |point: &Vec<String>, value: &String| {
            let more = (value != AS_IT_IS).then(|| format!("{}={value}", grid.key));
            point.iter().cloned().chain(more).collect::<Vec<String>>()
        };
        points = points.iter().flat_map(|point| grid.values.iter().map(move |value| set(point, value))).collect();
    }
    points
}

fn choose(grids: &[&Grid], seed: u64, tried: Vec<Tried>) -> Option<Tuned> {
    let loss = |tried: &&Tried| tried.loss.filter(|loss| loss.is_finite()).unwrap_or(f64::INFINITY);
    let reached = |tried: &&Tried| tried.to_target.unwrap_or(f64::INFINITY);
    let best =
        tried.iter().min_by(|a, b| reached(a).total_cmp(&reached(b)).then_with(|| loss(a).total_cmp(&loss(b))))?;
    let found = loss(&best).is_finite();
    let chosen = best.sets.clone();
    let edge = |set: &String| {
        let (key, value) = set.split_once('=')?;
        grids.iter().any(|grid| grid.key == key && grid.is_edge(value)).then(|| key.to_string())
    };
    let at_the_edge = if found { chosen.iter().filter_map(edge).collect() } else { Vec::new() };
    Some(Tuned { chosen, at_the_edge, seed, tried })
}

/// Does all tasks on so many threads; the results have the tasks' order.
fn in_parallel<T: Sync, R: Send>(tasks: &[T], jobs: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = tasks.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        let worker = || {
            while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < tasks.len()) {
                let result = work(&tasks[index]);
                *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        };
        let threads: Vec<_> = (0..jobs.clamp(1, tasks.len().max(1))).map(|_| scope.spawn(worker)).collect();
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
    use super::{super::case::Base, *};

    fn case(sets: &[&str]) -> Case {
        Case { name: "c".into(), base: Base::Default, sets: sets.iter().map(ToString::to_string).collect() }
    }

    fn grid(text: &str) -> Grid {
        Grid::parse("--grid", text).unwrap()
    }

    #[test]
    fn results_keep_the_order_of_tasks() {
        let tasks: Vec<u64> = (0..100).collect();
        for jobs in [1, 7, 1000] {
            assert_eq!(in_parallel(&tasks, jobs, |x| x * x), tasks.iter().map(|x| x * x).collect::<Vec<_>>());
        }
        assert!(in_parallel(&[] as &[u64], 3, |x| *x).is_empty());
    }

    #[test]
    fn grids_multiply_and_default_leaves_a_key_alone() {
        let (step, gamma) = (grid("optimizer.step=0.1,0.2"), grid("rule.gamma=default,0.3"));
        let points = product(&[&step, &gamma]);
        assert_eq!(points.len(), 4);
        assert_eq!(points[0], ["optimizer.step=0.1"]);
        assert_eq!(points[3], ["optimizer.step=0.2", "rule.gamma=0.3"]);
        assert!(product(&[]).is_empty());
        for text in ["step=1,2", "optimizer.step", "optimizer.step=0.1,,0.2", "run.seed=1,2"] {
            assert!(Grid::parse("--grid", text).unwrap_err().to_string().contains("such as optimizer.step="), "{text}");
        }
    }

    #[test]
    fn a_constant_is_tuned_only_where_the_rule_has_it() {
        let gamma = grid("rule.gamma=0.1,0.3");
        assert!(gamma.fits(&case(&["rule.kind=choco"])) && !gamma.fits(&case(&["rule.kind=dcd"])));
        let levels = grid("compressor.levels=1,3");
        assert!(levels.fits(&case(&["compressor.kind=qsgd"])) && !levels.fits(&case(&["compressor.kind=sign"])));
        assert!(grid("optimizer.step=1,2").fits(&case(&["rule.kind=dcd"])));
    }

    #[test]
    fn the_least_loss_wins_and_edges_are_told() {
        let step = grid("optimizer.step=0.1,0.2,0.4");
        let tried = |loss: [Option<f64>; 3]| {
            let point = |(set, loss): (Vec<String>, Option<f64>)| Tried {
                sets: set,
                loss,
                to_target: None,
                status: Status::Ok,
            };
            product(&[&step]).into_iter().zip(loss).map(point).collect::<Vec<_>>()
        };
        let tuned = choose(&[&step], 9, tried([Some(3.0), Some(1.0), None])).unwrap();
        assert_eq!((tuned.chosen, tuned.at_the_edge.len(), tuned.seed), (vec!["optimizer.step=0.2".into()], 0, 9));
        let tuned = choose(&[&step], 9, tried([Some(1.0), Some(1.0), Some(f64::NAN)])).unwrap();
        assert_eq!(
            (tuned.chosen, tuned.at_the_edge),
            (vec!["optimizer.step=0.1".into()], vec!["optimizer.step".into()])
        );
        let mut raced = tried([Some(1.0), Some(2.0), Some(3.0)]);
        raced.iter_mut().zip([90.0, 30.0, 30.0]).for_each(|(tried, rounds)| tried.to_target = Some(rounds));
        let tuned = choose(&[&step], 9, raced).unwrap();
        assert_eq!(tuned.chosen, ["optimizer.step=0.2"], "fewer rounds count before the loss");
        let tuned = choose(&[&step], 9, tried([None, None, None])).unwrap();
        assert!(tuned.at_the_edge.is_empty() && tuned.tried.len() == 3);
        assert_eq!(choose(&[], 9, Vec::new()), None);
    }
}
