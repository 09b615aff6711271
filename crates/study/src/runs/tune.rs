//! Chooses settings for each case with seeds of its own.
//!
//! Every point of a case's grids runs with the first seed of tuning; hopeless points, at more than
//! twice the best's rounds, seconds or loss, stop there, the others run with the remaining seeds. A
//! study may let only so many of them continue, its finalists. Where seconds to a target are
//! counted, a run is given up as soon as it is hopeless; this changes no choice, in any order of
//! the runs. The best mean over these seeds wins. If the best of a line lies at the edge of its
//! grid, one more point is tried beyond it, and so on, up to [`MOST_ADDED`] of them.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;

use super::{
    bench::{Bench, Count, in_parallel},
    case::Case,
    grid::{Grid, beyond, edge, product},
    optimum::Optima,
    running::Until,
    trace::Status,
};
use crate::figure::Figure;

/// If no point ended well, grids of this key are widened to smaller values.
const STEP: &str = "optimizer.step";
/// The maximum number of points beyond the grid, for each choice of the keys that do not widen.
const MOST_ADDED: usize = 6;
/// A point this many times worse than the best on the first seed is not run on others.
const HOPELESS: f64 = 2.0;

/// A point of the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The values of the grid's keys, each `key=value`.
    pub sets: Vec<String>,
    /// The mean model's train loss at the end, as mean over seeds; `None` if a seed diverged, was
    /// refused or failed.
    pub loss: Option<f64>,
    /// The mean number of rounds to the target, or of virtual seconds on links that take time, if
    /// tuning counts them; infinite if a seed did not reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_target: Option<f64>,
    /// The number of seeds it ran with: one if the first showed it to be hopeless.
    pub seeds: usize,
    /// How it ended: the first seed that did not end well, or ok.
    pub status: Status,
}

/// What tuning has chosen, and how all points of the grid did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The settings with the fewest rounds or seconds to the target, if tuning counts them, then
    /// the least train loss of the mean model at the end; of equals the first.
    pub chosen: Vec<String>,
    /// Keys whose chosen value is still the least or greatest that was tried: the best may lie
    /// outside.
    pub at_the_edge: Vec<String>,
    /// Values tried beyond the grid, as settings.
    pub added: Vec<String>,
    /// The seeds of all trials, different from those of the comparison.
    pub seeds: Vec<u64>,
    /// Every point that was tried, those beyond the grid included.
    pub tried: Vec<Tried>,
}

/// A point of a search.
struct Point {
    /// A value for each key of the grid.
    values: Vec<String>,
    /// One run per seed so far.
    runs: Vec<Run>,
}

/// What one seed gave at a point.
struct Run {
    loss: Option<f64>,
    to_target: Option<f64>,
    /// Whether its links take time, so that `to_target` is in seconds.
    timed: bool,
    status: Status,
}

/// The search of one case.
struct Search<'a> {
    case: &'a Case,
    grids: Vec<&'a Grid>,
    points: Vec<Point>,
    /// Values beyond the grids, by the choice of the keys that do not widen.
    added: BTreeMap<Vec<String>, Vec<String>>,
    /// The least virtual seconds to the target of a run that has ended, with the first seed.
    least: Mutex<f64>,
}

/// Tunes all cases; `None` for those without a grid.
pub(crate) fn all(
    bench: &Bench<'_>,
    cases: &[(Case, Vec<Grid>)],
    optima: Option<&Optima>,
    count: &Count,
) -> Vec<Option<Tuned>> {
    // Only the final loss is compared, unless a target is of f - f*.
    let optima = optima.filter(|_| bench.goal.is_some());
    let mut searches: Vec<Search<'_>> =
        cases.iter().map(|(case, grids)| Search::new(case, grids)).collect();
    if bench.tuning_seeds.is_empty() {
        return searches.iter().map(|_| None).collect();
    }
    // Each pass adds at most one point for each choice, until none is added.
    loop {
        let first = 1;
        run(bench, &mut searches, first, optima, count);
        run(bench, &mut searches, bench.tuning_seeds.len(), optima, count);
        let mut wider = false;
        for search in &mut searches {
            wider |= search.widen(bench.tuning_seeds.len());
        }
        if !wider || (bench.stop)() {
            break;
        }
    }
    searches.iter().map(|search| search.choose(&bench.tuning_seeds)).collect()
}

/// Runs all points that are not hopeless until each has this many seeds.
fn run(
    bench: &Bench<'_>,
    searches: &mut [Search<'_>],
    seeds: usize,
    optima: Option<&Optima>,
    count: &Count,
) {
    let mut tasks = Vec::new();
    for (index, search) in searches.iter().enumerate() {
        let continues = search.selected(bench.finalists);
        for (place, point) in search.points.iter().enumerate() {
            if point.runs.is_empty() || continues[place] {
                tasks.extend((point.runs.len()..seeds).map(|seed| (index, place, seed)));
            }
        }
    }
    count.expect(tasks.len());
    let runs = in_parallel(&tasks, bench.jobs, |&(index, place, seed)| {
        let search = &searches[index];
        let sets = search.sets(&search.points[place].values);
        let seconds = if seed == 0 { HOPELESS * search.least() } else { f64::INFINITY };
        let run = Run::of(bench, search.case, &sets, bench.tuning_seeds[seed], optima, seconds);
        if seed == 0 && bench.until.is_some() {
            search.ended(&run);
        }
        count.report(bench, &format!("tuning {}: {}", search.case.name, sets.join(" ")));
        run
    });
    for ((index, place, _), run) in tasks.into_iter().zip(runs) {
        searches[index].points[place].runs.push(run);
    }
}

impl Run {
    fn of(
        bench: &Bench<'_>,
        case: &Case,
        sets: &[String],
        seed: u64,
        optima: Option<&Optima>,
        seconds: f64,
    ) -> Run {
        let mut all = vec![format!("run.seed={seed}")];
        if bench.goal.is_none() {
            // Only the end counts.
            all.push(format!("run.evaluate_every={}", u32::MAX));
        }
        all.extend_from_slice(sets);
        // Where runs end early, those of tuning end at the goal.
        let target = bench.until.as_ref().map(|until| bench.goal.as_ref().unwrap_or(until));
        let trace = bench.trace(case, &all, optima, Until { target, seconds });
        let timed = trace.points.last().is_some_and(|point| point.time_s > 0.0);
        Run {
            loss: trace.last().map(|point| point.train_loss),
            // A run that diverges later has not reached it either.
            to_target: (bench.goal.as_ref().filter(|_| trace.status == Status::Ok)).and_then(
                |goal| if timed { Figure::TimeTo } else { Figure::RoundsTo }.of(&trace, Some(goal)),
            ),
            timed,
            status: trace.status,
        }
    }

    /// Less is better: first the count to the target, then the loss.
    fn score(&self) -> (f64, f64) {
        let loss = self.loss.filter(|loss| loss.is_finite()).unwrap_or(f64::INFINITY);
        (self.to_target.unwrap_or(f64::INFINITY), loss)
    }
}

impl Point {
    /// The mean over the seeds that it ran with.
    fn score(&self) -> (f64, f64) {
        let count = self.runs.len() as f64;
        let mean = |part: fn((f64, f64)) -> f64| {
            self.runs.iter().map(|run| part(run.score())).sum::<f64>() / count
        };
        (mean(|score| score.0), mean(|score| score.1))
    }

    fn is_hopeless(&self, best: (f64, f64)) -> bool {
        let Some(own) = self.runs.first().map(Run::score) else { return true };
        if best.0.is_finite() {
            own.0 > HOPELESS * best.0
        } else {
            !(own.1 <= HOPELESS * best.1 && own.1.is_finite())
        }
    }

    fn tried(&self, sets: Vec<String>, best: (f64, f64)) -> Tried {
        let (to_target, loss) = self.score();
        let ended = self.runs.iter().map(|run| &run.status).find(|status| **status != Status::Ok);
        // A run that reached the target too late would be given up in another order of the runs.
        if best.0.is_finite()
            && self.is_hopeless(best)
            && self.runs.iter().any(|run| run.timed)
            && ended.is_none_or(|status| *status == Status::GivenUp)
        {
            let status = Status::GivenUp;
            return Tried { sets, loss: None, to_target: None, seeds: self.runs.len(), status };
        }
        Tried {
            sets,
            loss: Some(loss).filter(|loss| loss.is_finite()),
            to_target: self.runs.iter().any(|run| run.to_target.is_some()).then_some(to_target),
            seeds: self.runs.len(),
            status: ended.cloned().unwrap_or(Status::Ok),
        }
    }
}

fn ordered(a: &(f64, f64), b: &(f64, f64)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then_with(|| a.1.total_cmp(&b.1))
}

impl<'a> Search<'a> {
    fn new(case: &'a Case, grids: &'a [Grid]) -> Search<'a> {
        let grids: Vec<&Grid> = grids.iter().filter(|grid| grid.fits(case)).collect();
        let points =
            product(&grids).into_iter().map(|values| Point { values, runs: Vec::new() }).collect();
        Search { case, grids, points, added: BTreeMap::new(), least: Mutex::new(f64::INFINITY) }
    }

    fn least(&self) -> f64 {
        *self.least.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lowers the bound after which runs are given up.
    fn ended(&self, run: &Run) {
        let mut least = self.least.lock().unwrap_or_else(PoisonError::into_inner);
        *least = least.min(run.to_target.filter(|_| run.timed).unwrap_or(f64::INFINITY));
    }

    fn sets(&self, values: &[String]) -> Vec<String> {
        self.grids.iter().zip(values).flat_map(|(grid, value)| grid.sets(value)).collect()
    }

    /// The best of all points on the first seed.
    fn best_first(&self) -> (f64, f64) {
        let scores = self.points.iter().filter_map(|point| point.runs.first()).map(Run::score);
        scores.min_by(ordered).unwrap_or((f64::INFINITY, f64::INFINITY))
    }

    /// Which points run on further seeds: all that are not hopeless on the first, or the best of
    /// them, of equals the first.
    fn selected(&self, finalists: Option<NonZeroUsize>) -> Vec<bool> {
        let best = self.best_first();
        let Some(finalists) = finalists else {
            return self.points.iter().map(|point| !point.is_hopeless(best)).collect();
        };
        let score = |at: &usize| self.points[*at].runs[0].score();
        let mut order: Vec<usize> =
            (0..self.points.len()).filter(|at| !self.points[*at].is_hopeless(best)).collect();
        order.sort_by(|a, b| ordered(&score(a), &score(b)));
        order.truncate(finalists.get());
        (0..self.points.len()).map(|at| order.contains(&at)).collect()
    }

    /// The values of the keys that do not widen.
    fn choice(&self, values: &[String]) -> Vec<String> {
        let kept = self.grids.iter().zip(values).filter(|(grid, _)| !grid.widens());
        kept.map(|(_, value)| value.clone()).collect()
    }

    /// The values of one key at points that share all other values with this one.
    fn line(&self, values: &[String], key: usize) -> Vec<String> {
        let same = |point: &&Point| {
            (0..values.len()).all(|at| at == key || point.values[at] == values[at])
        };
        self.points.iter().filter(same).map(|point| point.values[key].clone()).collect()
    }

    /// The best of some points, if it ended well with this many seeds.
    fn best<'p>(points: impl Iterator<Item = &'p Point>, seeds: usize) -> Option<&'p Point> {
        let best = points.min_by(|a, b| {
            // Fewer seeds mean that the first showed it to be hopeless.
            b.runs.len().cmp(&a.runs.len()).then_with(|| ordered(&a.score(), &b.score()))
        })?;
        (best.runs.len() == seeds && best.score().1.is_finite()).then_some(best)
    }

    /// Adds a point beyond each edge at which the best of a choice lies. Returns whether it added
    /// any.
    fn widen(&mut self, seeds: usize) -> bool {
        let choices: std::collections::BTreeSet<Vec<String>> =
            self.points.iter().map(|point| self.choice(&point.values)).collect();
        let mut more = Vec::new();
        for choice in choices {
            if self.added.get(&choice).map_or(0, Vec::len) >= MOST_ADDED {
                continue;
            }
            let of_choice =
                || self.points.iter().filter(|point| self.choice(&point.values) == choice);
            let Some(best) = Self::best(of_choice(), seeds) else {
                // If no other point ended well either, a smaller step may.
                if self.points.iter().all(|point| !point.score().1.is_finite()) {
                    more.extend(
                        self.smaller(of_choice())
                            .map(|(values, set)| (choice.clone(), values, set)),
                    );
                }
                continue;
            };
            let next = |(key, grid): (usize, &&Grid)| {
                let line = self.line(&best.values, key);
                let above = edge(&line, &best.values[key]).filter(|_| grid.widens())?;
                let mut values = best.values.clone();
                values[key] = beyond(&line, above)?;
                Some((values, format!("{}={}", grid.key, beyond(&line, above)?)))
            };
            more.extend(
                self.grids
                    .iter()
                    .enumerate()
                    .filter_map(next)
                    .map(|(values, set)| (choice.clone(), values, set)),
            );
        }
        let any = !more.is_empty();
        for (choice, values, set) in more {
            self.added.entry(choice).or_default().push(set);
            self.points.push(Point { values, runs: Vec::new() });
        }
        any
    }

    /// A point with a smaller step than the least of some.
    fn smaller<'p>(
        &self,
        points: impl Iterator<Item = &'p Point>,
    ) -> Option<(Vec<String>, String)> {
        let key = self.grids.iter().position(|grid| grid.key == STEP && grid.widens())?;
        let value = |point: &&Point| point.values[key].parse().unwrap_or(f64::INFINITY);
        let least = points.min_by(|a, b| value(a).total_cmp(&value(b)))?;
        let mut values = least.values.clone();
        values[key] = beyond(&self.line(&least.values, key), false)?;
        let set = format!("{STEP}={}", values[key]);
        Some((values, set))
    }

    fn choose(&self, seeds: &[u64]) -> Option<Tuned> {
        let mut order: Vec<&Point> = self.points.iter().collect();
        order.sort_by(|a, b| {
            b.runs.len().cmp(&a.runs.len()).then_with(|| ordered(&a.score(), &b.score()))
        });
        let best = *order.first()?;
        let mut at_the_edge = Vec::new();
        if best.score().1.is_finite() {
            let edges = self.grids.iter().enumerate().filter(|(key, _)| {
                edge(&self.line(&best.values, *key), &best.values[*key]).is_some()
            });
            at_the_edge.extend(edges.map(|(_, grid)| grid.key.clone()));
        }
        let mut added: Vec<String> = Vec::new();
        for set in self.added.values().flatten() {
            if !added.contains(set) {
                added.push(set.clone());
            }
        }
        Some(Tuned {
            chosen: self.sets(&best.values),
            at_the_edge,
            added,
            seeds: seeds.to_vec(),
            tried: (self.points.iter())
                .map(|point| point.tried(self.sets(&point.values), self.best_first()))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::case::Base;

    fn grid(text: &str) -> Grid {
        Grid::parse("--grid", text).unwrap()
    }

    /// Fills in results as runs would: the loss of a point by its step, on each of three seeds.
    fn search<'a>(
        case: &'a Case,
        grids: &'a [Grid],
        loss: impl Fn(&[String], usize) -> Option<f64>,
    ) -> Search<'a> {
        let mut search = Search::new(case, grids);
        fill(&mut search, loss);
        search
    }

    fn fill(search: &mut Search<'_>, loss: impl Fn(&[String], usize) -> Option<f64>) {
        for (seeds, point_seeds) in [(1, 0..1), (3, 1..3)] {
            let best = search.best_first();
            for point in search.points.iter_mut().filter(|point| point.runs.len() < seeds) {
                if seeds == 1 || !point.is_hopeless(best) {
                    for seed in point_seeds.clone() {
                        let loss = loss(&point.values, seed);
                        let status = if loss.is_some() { Status::Ok } else { Status::Diverged(3) };
                        point.runs.push(Run { loss, to_target: None, timed: false, status });
                    }
                }
            }
        }
    }

    fn case() -> Case {
        Case { name: "c".into(), base: Base::Default, sets: Vec::new() }
    }

    fn step(values: &[String]) -> f64 {
        values.last().unwrap().parse().unwrap()
    }

    #[test]
    fn the_best_mean_over_seeds_wins_and_the_hopeless_run_once() {
        let (case, grids) = (case(), [grid("optimizer.step=0.1,0.2,0.4,0.8")]);
        // With the first seed only, 0.1 would win.
        let loss = |values: &[String], seed: usize| match (step(values), seed) {
            (0.1, 0) => Some(0.9),
            (0.1, _) => Some(1.5),
            (0.2, _) => Some(1.0),
            (0.4, _) => Some(2.0),
            _ => None,
        };
        let found = search(&case, &grids, loss);
        let tuned = found.choose(&[7, 8, 9]).unwrap();
        assert_eq!(
            (tuned.chosen, tuned.at_the_edge.len()),
            (vec!["optimizer.step=0.2".to_string()], 0)
        );
        let seeds: Vec<usize> = tuned.tried.iter().map(|tried| tried.seeds).collect();
        assert_eq!(seeds, [3, 3, 1, 1]);
        assert_eq!((tuned.tried[0].loss, tuned.tried[3].loss), (Some(1.3), None));
        assert_eq!(tuned.tried[3].status, Status::Diverged(3));
    }

    #[test]
    fn as_many_finalists_of_every_case_continue() {
        let (case, grids) = (case(), [grid("optimizer.step=0.1,0.2,0.4,0.8")]);
        let mut found = Search::new(&case, &grids);
        assert_eq!(found.selected(NonZeroUsize::new(2)), [false; 4], "none has run yet");
        for (point, loss) in found.points.iter_mut().zip([Some(1.9), Some(1.0), None, Some(2.9)]) {
            point.runs.push(Run { loss, to_target: None, timed: false, status: Status::Ok });
        }
        assert_eq!(found.selected(None), [true, true, false, false], "within twice the best");
        assert_eq!(found.selected(NonZeroUsize::new(1)), [false, true, false, false]);
        assert_eq!(found.selected(NonZeroUsize::new(9)), [true, true, false, false]);
    }

    #[test]
    fn a_run_that_would_be_given_up_in_another_order_counts_as_given_up() {
        let (case, grids) = (case(), [grid("optimizer.step=0.1,0.2,0.4,0.8")]);
        let mut found = Search::new(&case, &grids);
        let ends = [(Some(9.0), Status::Ok), (Some(2.0), Status::Ok), (None, Status::GivenUp)];
        for (point, (to_target, status)) in found.points.iter_mut().zip(ends) {
            let loss = to_target.map(|_| 1.0);
            point.runs.push(Run { loss, to_target, timed: true, status });
        }
        found.points[3].runs.push(Run {
            loss: None,
            to_target: None,
            timed: true,
            status: Status::Diverged(3),
        });
        for run in found.points.iter().map(|point| &point.runs[0]) {
            found.ended(run);
        }
        assert_eq!(found.least(), 2.0);
        let tuned = found.choose(&[7]).unwrap();
        assert_eq!(tuned.chosen, ["optimizer.step=0.2"]);
        let ends: Vec<Status> = tuned.tried.into_iter().map(|tried| tried.status).collect();
        let late = Status::GivenUp;
        assert_eq!(ends, [late.clone(), Status::Ok, late, Status::Diverged(3)]);
    }

    #[test]
    fn a_best_at_the_edge_widens_the_grid_until_it_is_inside() {
        let (case, grids) = (case(), [grid("optimizer.step=0.1,0.2,0.4")]);
        let loss = |values: &[String], _| Some(1.0 + 0.1 * (step(values) / 1.6).ln().abs());
        let mut found = search(&case, &grids, loss);
        let mut turns = 0;
        while found.widen(3) {
            fill(&mut found, loss);
            turns += 1;
        }
        let tuned = found.choose(&[7, 8, 9]).unwrap();
        assert_eq!(
            (tuned.chosen, tuned.at_the_edge.len()),
            (vec!["optimizer.step=1.6".to_string()], 0)
        );
        assert_eq!(tuned.added, ["optimizer.step=0.8", "optimizer.step=1.6", "optimizer.step=3.2"]);
        assert_eq!(turns, 3);
        // If the loss keeps falling, it stops and reports that the best lies at the edge.
        let down = |values: &[String], _| Some(1.0 + 0.01 * step(values));
        let mut found = search(&case, &grids, down);
        while found.widen(3) {
            fill(&mut found, down);
        }
        let tuned = found.choose(&[7, 8, 9]).unwrap();
        assert_eq!(
            (tuned.added.len(), tuned.at_the_edge),
            (MOST_ADDED, vec!["optimizer.step".to_string()])
        );
    }

    #[test]
    fn if_all_steps_diverge_smaller_ones_are_tried() {
        let (case, grids) = (case(), [grid("optimizer.step=0.1,0.2,0.4")]);
        let loss = |values: &[String], _| (step(values) < 0.03).then(|| 1.0 / (1.0 + step(values)));
        let mut found = search(&case, &grids, loss);
        while found.widen(3) {
            fill(&mut found, loss);
        }
        let tuned = found.choose(&[7, 8, 9]).unwrap();
        assert_eq!(
            (tuned.chosen, tuned.at_the_edge.len()),
            (vec!["optimizer.step=0.025".to_string()], 0)
        );
        assert_eq!(
            tuned.added,
            ["optimizer.step=0.05", "optimizer.step=0.025", "optimizer.step=0.0125"]
        );
        // If all steps diverge, it reports that.
        let mut found = search(&case, &grids, |_, _| None);
        while found.widen(3) {
            fill(&mut found, |_, _| None);
        }
        let tuned = found.choose(&[7, 8, 9]).unwrap();
        assert_eq!(tuned.tried.len(), 3 + MOST_ADDED);
        assert!(tuned.words().starts_with("none of 9 trials ended well"), "{}", tuned.words());
    }

    #[test]
    fn each_choice_has_a_line_of_its_own() {
        let (case, grids) =
            (case(), [grid("optimizer.local_steps=1,10"), grid("optimizer.step=0.1,0.2,0.4")]);
        // With one step the best is 0.8, with ten 0.2; the latter is better.
        let loss = |values: &[String], _| {
            let (best, least) = if values[0] == "1" { (0.8, 1.2) } else { (0.2, 1.0) };
            Some(least + 0.1 * (step(values) / best).ln().abs())
        };
        let mut found = search(&case, &grids, loss);
        while found.widen(3) {
            fill(&mut found, loss);
        }
        let tuned = found.choose(&[7, 8, 9]).unwrap();
        assert_eq!(tuned.chosen, ["optimizer.local_steps=10", "optimizer.step=0.2"]);
        assert_eq!(tuned.added, ["optimizer.step=0.8", "optimizer.step=1.6"]);
        assert_eq!(
            tuned.at_the_edge,
            ["optimizer.local_steps"],
            "a choice does not widen, and says so"
        );
        assert_eq!(tuned.tried.len(), 8);
    }

    #[test]
    fn fewer_rounds_count_before_the_loss() {
        let (case, grids) = (case(), [grid("optimizer.step=0.1,0.2,0.4")]);
        let mut found = Search::new(&case, &grids);
        for (point, (loss, rounds)) in
            found.points.iter_mut().zip([(1.0, 90.0), (2.0, 30.0), (3.0, 30.0)])
        {
            for _ in 0..3 {
                point.runs.push(Run {
                    loss: Some(loss),
                    to_target: Some(rounds),
                    timed: false,
                    status: Status::Ok,
                });
            }
        }
        assert_eq!(found.choose(&[7, 8, 9]).unwrap().chosen, ["optimizer.step=0.2"]);
        assert!(Search::new(&case, &[]).choose(&[7]).is_none());
    }
}
