//! Runs one experiment in the simulator, and records what it did.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Instant,
};

use super::{
    optimum::Optima,
    trace::{Point, Status, Trace},
};
use crate::figure::Target;
use gradvine::{
    config::ConfigError,
    drive::RunError,
    experiment::Experiment,
    run::{Needs, Snapshot, Summary, Watch, Whole},
    simulation::simulate,
    units::Round,
};

/// A run has diverged if its train loss ends above this many times the loss at the start, even if
/// its numbers are still finite.
const DIVERGED_RATIO: f64 = 1000.0;

/// Where a run may end before its last round.
#[derive(Clone, Copy, Debug)]
pub struct Until<'a> {
    /// At the first evaluation that passes this.
    pub target: Option<&'a Target>,
    /// At the first evaluation after this many virtual seconds: the run is given up.
    pub seconds: f64,
}

impl Until<'_> {
    /// The end of the last round.
    pub const LAST_ROUND: Until<'static> = Until { target: None, seconds: f64::INFINITY };
}

impl Trace {
    /// Runs an experiment to its end, or to an earlier one. With `optima` it computes the least
    /// value of f, once for each set of rows.
    pub fn of(
        experiment: Result<Experiment, ConfigError>,
        optima: Option<&Optima>,
        until: Until<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Trace {
        let started = Instant::now();
        let fits = |whole: Whole| Needs::together(&whole).check_run(&whole.design).map(|()| whole);
        let whole = match experiment.and_then(Whole::new).and_then(fits) {
            Ok(whole) => Arc::new(whole),
            Err(error) => return Trace::blank(0, Status::Refused(error.to_string())),
        };
        let mut trace = Trace::blank(whole.design.experiment.run.seed, Status::Ok);
        trace.parameters = whole.design.parameters();
        trace.local_steps = whole.design.experiment.optimizer.local_steps;
        trace.rho = whole.design.topology.spectrum().rho;
        trace.warnings.clone_from(&whole.design.rule.warnings);
        let points = RefCell::new(Vec::new());
        let nodes = whole.shards.len() as f64;
        let (there, late) = (Cell::new(false), Cell::new(false));
        let see = |snapshot: &Snapshot| {
            let point = Point::of(snapshot, nodes);
            // The least value of f is not known yet: a target of f - f* is checked at the end only.
            there.set(there.get() || until.target.is_some_and(|target| target.passed_by(&point)));
            late.set(late.get() || (!there.get() && point.time_s > until.seconds));
            points.borrow_mut().push(point);
        };
        let (result, sent) = {
            let mut watch = Watch::new(Arc::clone(&whole), |_| (), |_| ())
                .seeing(see)
                .stopping(|| there.get() || late.get() || stop());
            (simulate(&whole, &mut watch), watch.sent())
        };
        trace.points.extend(start(&whole));
        trace.points.extend(points.into_inner());
        trace.setup_s = result.as_ref().map_or(0.0, |simulated| simulated.began.seconds());
        match result {
            Ok(_) if stop() => trace.status = Status::Interrupted,
            Ok(_) if late.get() => trace.status = Status::GivenUp,
            Ok(simulated) => match Summary::of_run(
                &whole.design,
                &simulated.ended[0].records,
                &simulated.ended[0].history,
            ) {
                Ok(mut summary) => {
                    summary.add_sent_before(&whole.design.topology, &sent);
                    trace.close(&summary, nodes);
                }
                Err(error) => trace.status = Status::Failed(error.to_string()),
            },
            Err(RunError::Setup(error)) => trace.status = Status::Refused(error.to_string()),
            Err(error) => {
                let failed = || Status::Failed(error.describe(&whole.design.topology));
                let diverged = |round: Round| Status::Diverged(round.0 + 1);
                trace.status = error.diverged_at().map_or_else(failed, diverged);
            }
        }
        if let Some(optima) = optima.filter(|_| !trace.points.is_empty()) {
            trace.optimum = optima.of(&whole);
        }
        trace.seconds = started.elapsed().as_secs_f64();
        trace
    }

    fn blank(seed: u64, status: Status) -> Trace {
        Trace {
            seed,
            status,
            points: Vec::new(),
            optimum: None,
            parameters: 0,
            rho: 0.0,
            local_steps: 0,
            setup_s: 0.0,
            warnings: Vec::new(),
            digest: String::new(),
            seconds: 0.0,
        }
    }

    /// Sets the last point from the summary: rules whose averages arrive late have changed the
    /// models since the last evaluation.
    fn close(&mut self, summary: &Summary, nodes: f64) {
        let outcome = &summary.outcome;
        // Its time is that of its last round: forming the mean of all models is not a part of
        // training.
        let clocks = self.points.last().filter(|point| point.rounds == summary.rounds);
        let (time_s, computing_s) = clocks
            .map_or((summary.time_s, summary.time_s * summary.computing), |point| {
                (point.time_s, point.computing_s)
            });
        let last = Point {
            rounds: summary.rounds,
            time_s,
            computing_s,
            train_loss: outcome.train_loss.unwrap_or(f64::NAN),
            test_accuracy: outcome.test_accuracy_of_mean,
            node_accuracy: outcome.test_accuracy_mean,
            worst_accuracy: outcome.test_accuracy_min,
            consensus: outcome.consensus.unwrap_or(f64::NAN),
            payload: summary.bytes.payload as f64 / nodes,
            wire: summary.bytes.wire as f64 / nodes,
        };
        self.points.retain(|point| point.rounds < last.rounds);
        self.points.push(last);
        self.digest.clone_from(&summary.digest);
        let most = DIVERGED_RATIO * self.points[0].train_loss;
        let blown = |point: &Point| !(point.train_loss <= most && point.consensus.is_finite());
        if self.points.last().is_some_and(blown) {
            let first = self
                .points
                .iter()
                .find(|point| blown(point))
                .map_or(summary.rounds, |point| point.rounds);
            self.status = Status::Diverged(first);
        }
    }

    /// The last point of a run that did all its rounds and did not diverge.
    pub fn last(&self) -> Option<&Point> {
        self.points.last().filter(|_| self.status == Status::Ok)
    }
}

impl Point {
    fn of(snapshot: &Snapshot, nodes: f64) -> Point {
        let own = &snapshot.accuracies;
        Point {
            rounds: snapshot.rounds,
            time_s: snapshot.time_s,
            computing_s: snapshot.computing_s,
            train_loss: snapshot.train_loss.unwrap_or(f64::NAN),
            test_accuracy: snapshot.accuracy_of_mean,
            node_accuracy: (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64),
            worst_accuracy: own.iter().copied().reduce(f64::min),
            consensus: snapshot.consensus,
            payload: snapshot.traffic.payload as f64 / nodes,
            wire: snapshot.traffic.wire as f64 / nodes,
        }
    }
}

/// The point before the first round, when all models are x_0; `None` if the run never began.
fn start(whole: &Whole) -> Option<Point> {
    let accuracy = whole.score(&whole.design.initial).and_then(|score| score.accuracy());
    Some(Point {
        rounds: 0,
        time_s: 0.0,
        computing_s: 0.0,
        train_loss: whole.train_loss(&whole.design.initial)?,
        test_accuracy: accuracy,
        node_accuracy: accuracy,
        worst_accuracy: accuracy,
        consensus: 0.0,
        payload: 0.0,
        wire: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_absent_nodes_are_counted() {
        let sets = [
            "topology.file=ring:4",
            "rule.kind=d-psgd",
            "compressor.kind=identity",
            "data.source=synthetic",
            "data.split=iid",
            "model.kind=least-squares",
            "run.rounds=40",
            "run.evaluate_every=5",
            "absence.policy=continue",
            "network.absent=[{nodes=[\"2\"],from=13,until=25}]",
        ];
        let experiment = Experiment::default_with(&sets.map(String::from));
        let trace = Trace::of(experiment, None, Until::LAST_ROUND, &|| false);
        assert_eq!(trace.status, Status::Ok);
        let frame = 4.0 * trace.parameters as f64;
        // The frames of nodes 0, 1 and 3, and 2: without node 2 its neighbours send one a round.
        for (rounds, frames) in [(10, [20, 20, 20, 20]), (25, [50, 38, 38, 26])] {
            let point = trace.points.iter().find(|point| point.rounds == rounds).unwrap();
            let sent = frames.iter().sum::<u64>() as f64;
            assert_eq!(point.payload, sent * frame / 4.0, "round {rounds}");
        }
        assert_eq!(trace.points.last().unwrap().payload, (80 + 68 + 68 + 56) as f64 * frame / 4.0);
    }
}
