//! The learner of a data shard, for every run on a data file.

use std::sync::{Arc, Mutex, PoisonError};

use ndarray::ArrayView1;

use super::{merged::Merged, opening::Opening, row_constants::setup, rows::join};
use crate::{
    config::ConfigError,
    data::{self, Dataset, Preprocessing, Target},
    drive::{Conclusion, Learner},
    experiment::RunParams,
    gossip::{Tally, tree::Setup},
    learn::{Counts, Evaluation, MOST_OUTPUTS, Model, Objective, Optimizer, Ready},
    run::{Agreed, Design, RowConstants, results::record::Closing},
    state::Visitor,
    units::{NodeId, Round},
    vector,
};

/// Tells the stream that draws validation rows from that of test rows.
const VALIDATION: u64 = 0x7661_6c69_6461_7465;

/// In larger runs records hold no counts: the root keeps the records of all nodes in memory.
const MOST_COUNTING: usize = 256;

/// Data that the first learner to know the run's constants prepares once, and that all of them
/// share.
#[derive(Debug)]
pub struct Shared {
    raw: Arc<Dataset>,
    prepared: Mutex<Option<ReadyRows>>,
    /// Rows that are kept for validation.
    validation: Option<Validation>,
}

/// Rows as the model sees them, with the constants that made them so.
#[derive(Debug)]
struct ReadyRows {
    by: Arc<Preprocessing>,
    rows: Arc<Dataset>,
}

/// Rows that are kept for validation.
#[derive(Debug)]
struct Validation {
    rows: Box<Shared>,
    /// The positions of all rows, in the order of their source, in the training rows and then
    /// these.
    order: Vec<usize>,
}

impl Shared {
    /// Not yet prepared.
    pub(crate) fn new(raw: Dataset) -> Arc<Shared> {
        Arc::new(Shared::of(raw, None))
    }

    /// Training rows, of which a share is kept for validation if the run may stop early.
    ///
    /// # Errors
    /// If no row is left for training.
    pub(crate) fn training(all: Arc<Shared>, run: &RunParams) -> Result<Arc<Shared>, ConfigError> {
        let Some(stop) = &run.stop_early else { return Ok(all) };
        let raw = all.raw();
        // Another stream than that of the test rows.
        let split = data::split_test(raw, stop.share, run.seed ^ VALIDATION);
        let (train, validation) =
            split.map_err(|error| ConfigError::from(error).with_place("run.stop_early.share"))?;
        if validation.is_empty() {
            return Ok(all);
        }
        let mut order = vec![0; raw.rows()];
        for (at, &row) in train.iter().chain(&validation).enumerate() {
            order[row] = at;
        }
        let validation =
            Validation { rows: Box::new(Shared::of(raw.select(&validation), None)), order };
        Ok(Arc::new(Shared::of(raw.select(&train), Some(validation))))
    }

    fn of(raw: Dataset, validation: Option<Validation>) -> Shared {
        Shared { raw: Arc::new(raw), prepared: Mutex::default(), validation }
    }

    /// The rows as loaded, before any scale is known.
    pub fn raw(&self) -> &Arc<Dataset> {
        &self.raw
    }

    /// The rows that are kept for validation, as loaded.
    pub fn validation(&self) -> Option<&Arc<Dataset>> {
        self.validation.as_ref().map(|validation| validation.rows.raw())
    }

    /// All rows as they were before some were kept for validation.
    pub fn all_rows(&self) -> Arc<Dataset> {
        match &self.validation {
            Some(Validation { rows, order }) => {
                Arc::new(join(&[&self.raw, rows.raw()]).select(order))
            }
            None => Arc::clone(&self.raw),
        }
    }

    /// The data as the model sees it, once the run has started.
    pub fn ready(&self) -> Option<Arc<Dataset>> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.as_ref().map(|ready| Arc::clone(&ready.rows))
    }

    /// Prepares them by these constants, unless they are.
    fn prepare(&self, by: &Arc<Preprocessing>) -> Result<Arc<Dataset>, ConfigError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = prepared.as_ref().filter(|ready| ready.by == *by) {
            return Ok(Arc::clone(&ready.rows));
        }
        // Those of another beginning need no place beside the new ones.
        *prepared = None;
        let rows = if by.is_none() {
            Arc::clone(&self.raw)
        } else {
            let mut data = Dataset::clone(&self.raw);
            by.apply(&mut data)?;
            Arc::new(data)
        };
        Ok(Arc::clone(&prepared.insert(ReadyRows { by: Arc::clone(by), rows }).rows))
    }
}

/// One node's shard with its objective and optimizer.
pub struct ShardLearner {
    node: NodeId,
    design: Arc<Design>,
    model: Model,
    shard: Arc<Shared>,
    test: Option<Arc<Shared>>,
    /// The constants that all nodes use, once known.
    agreed: Agreed<RowConstants>,
    started: Option<Started>,
}

struct Started {
    objective: Box<dyn Objective>,
    optimizer: Optimizer,
    /// n m_i / m if nodes are weighted by rows.
    weight: f32,
    data: Arc<Dataset>,
    test: Option<Arc<Dataset>>,
    /// Rows that are kept for validation.
    validation: Option<Arc<Dataset>>,
    /// The loss on them in the last round, if it was asked for.
    tally: Option<Tally>,
    /// The loss above which the run has diverged.
    limit: f64,
}

/// A run has diverged if its loss is this many times that of a model that knows nothing.
const DIVERGED: f64 = 1e9;

/// The loss above which a run on these rows has diverged: that of equal probabilities, or of
/// predicting 0, times [`DIVERGED`].
fn limit(model: &Model, data: &Dataset) -> f64 {
    let loss = match &data.target {
        Target::Classes { .. } => libm::log(model.shape().outputs.max(2) as f64),
        Target::Values(values) => {
            let squares: f64 = values.iter().map(|&y| f64::from(y) * f64::from(y)).sum();
            0.5 * squares / data.rows() as f64
        }
    };
    // If all targets are 0, nothing says how large a loss may be.
    if loss > 0.0 { DIVERGED * loss } else { f64::MAX }
}

impl ShardLearner {
    /// A learner that has not started. It sets `agreed` when it knows the constants of the run.
    pub(crate) fn new(
        design: Arc<Design>,
        model: Model,
        node: NodeId,
        shard: Arc<Shared>,
        test: Option<Arc<Shared>>,
        agreed: Agreed<RowConstants>,
    ) -> ShardLearner {
        ShardLearner { node, design, model, shard, test, agreed, started: None }
    }

    /// The loss at x on the rows for validation, in rounds that begin with an evaluation.
    fn validate(&mut self, round: Round, x: &[f32]) -> Option<Tally> {
        let stop = self.design.experiment.run.stop_early.as_ref()?;
        if round.0 == 0 || !round.0.is_multiple_of(stop.every) {
            return None;
        }
        let started = self.started.as_ref()?;
        let Some(validation) = started.validation.as_deref() else { return Some(Tally::default()) };
        let rows = validation.rows() as u64;
        Some(Tally { loss: evaluate(&self.model, x, validation).loss * rows as f64, rows })
    }

    /// The loss of some of its rows after its own update, if that is longer than the model and its
    /// start: a usual one is far shorter, and then neither is read.
    fn loss_after(&self, x: &[f32], update: &[f32]) -> Option<f64> {
        const ROWS: usize = 64;
        let started = self.started.as_ref()?;
        let length = started.optimizer.length() * f64::from(started.weight);
        let start = (x.len() as f64).sqrt();
        // What is not finite is found in the model.
        let is_long = length.is_finite() && length > start;
        if !is_long || length <= vector::norm_squared(x).sqrt() + start {
            return None;
        }
        let data = &started.data;
        let every = data.rows().div_ceil(ROWS).max(1);
        let some: Vec<usize> = (0..data.rows()).step_by(every).collect();
        let after: Vec<f32> = x.iter().zip(update).map(|(x, update)| x - update).collect();
        Some(evaluate(&self.model, &after, &data.select(&some)).loss)
    }

    fn started(&mut self) -> &mut Started {
        self.started.as_mut().expect("the core asks for gradients after the setup records are in")
    }
}

impl Learner for ShardLearner {
    fn setup(&mut self) -> Option<Setup> {
        let sums = self.design.sums();
        let record = Opening::of(self.node, self.shard.raw(), &sums).to_bytes();
        Some(setup(record, sums))
    }

    fn prepare(&mut self, merged: &[u8]) -> Result<(), ConfigError> {
        let design = &self.design;
        let merged = Merged::from_bytes(merged, &design.sums())
            .map_err(|error| ConfigError::at("setup record of all nodes", error))?;
        let constants = RowConstants::new(design, merged, self.shard.raw().columns.as_ref())?;
        // Those of the members now: the run may begin again without nodes that were there before.
        let (agreed, is_new) = self.agreed.set(constants);
        if is_new {
            agreed.warn();
        }
        let preprocessing = &agreed.preprocessing;
        self.model = self.model.clone().with_targets(preprocessing.targets.clone());
        let data = self.shard.prepare(preprocessing)?;
        let nodes = design.topology.nodes();
        let weight =
            if design.by_rows() { (nodes * data.rows()) as f64 / agreed.rows as f64 } else { 1.0 };
        self.started = Some(Started {
            objective: self.model.objective(Arc::clone(&data))?,
            optimizer: self.design.optimizer(self.node, data.rows()),
            weight: weight as f32,
            test: self.test.as_ref().map(|test| test.prepare(preprocessing)).transpose()?,
            validation: self
                .shard
                .validation
                .as_ref()
                .map(|validation| validation.rows.prepare(preprocessing))
                .transpose()?,
            tally: None,
            // A rule that withstands wrong models continues although one node's has diverged.
            limit: match design.sums().byzantine {
                Some(_) => f64::MAX,
                None => limit(&self.model, &data),
            },
            data,
        });
        Ok(())
    }

    fn diverged(&self, loss: f64, x: &[f32], update: &[f32]) -> Option<f64> {
        let started = self.started.as_ref()?;
        let is_beyond = |loss: &f64| loss.is_nan() || *loss > started.limit;
        Some(loss).filter(is_beyond).or_else(|| {
            // In the mean with its neighbours' models, this step would end all of them at once.
            let after = self.loss_after(x, update).filter(|_| started.limit < f64::MAX);
            after.filter(is_beyond)
        })
    }

    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.compute_by_parts(round, x, update, &mut |_, _| {})
    }

    fn compute_by_parts(
        &mut self,
        round: Round,
        x: &[f32],
        update: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        let tally = self.validate(round, x);
        let started = self.started();
        started.tally = tally;
        started.optimizer.update_by_parts(
            round,
            x,
            &mut *started.objective,
            update,
            &mut |range, update| {
                if started.weight != 1.0 {
                    vector::scale(started.weight, &mut update[range.clone()]);
                }
                ready(range, update);
            },
        )
    }

    fn tally(&mut self) -> Option<Tally> {
        self.started().tally
    }

    fn state(&mut self, visitor: &mut dyn Visitor) -> bool {
        if let Some(started) = &mut self.started {
            started.optimizer.state(visitor);
        }
        true
    }

    fn step(&self, round: Round) -> f32 {
        self.started.as_ref().map_or(0.0, |started| started.optimizer.step_of(round))
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        let (model, nodes) = (self.model.clone(), self.design.topology.nodes());
        let started = self.started();
        let test = started.test.as_deref();
        let score = |x: &[f32]| test.map(|test| evaluate(&model, x, test).into());
        let count = |x: &[f32]| Counts::of(&model, x, test.filter(|_| nodes <= MOST_COUNTING)?);
        Closing {
            classes: Closing::classes(class_counts(&started.data)),
            train_loss_of_mean: evaluate(&model, conclusion.mean, &started.data).loss,
            test: score(conclusion.model),
            test_of_mean: score(conclusion.mean),
            counts: count(conclusion.model),
            counts_of_mean: count(conclusion.mean),
            targets: target_means(&started.data),
            ..Closing::of(conclusion, started.data.rows() as u64)
        }
        .to_bytes()
    }
}

/// Scores a model on rows that were checked against it when the run was prepared.
///
/// # Panics
/// If they do not fit the model.
pub(crate) fn evaluate(model: &Model, x: &[f32], data: &Dataset) -> Evaluation {
    model.evaluate(x, data).expect("the data was checked against the model before the run")
}

/// The mean of each target; empty if there are classes, or more targets than are summed.
fn target_means(data: &Dataset) -> Vec<f64> {
    match &data.target {
        Target::Values(values) if values.ncols() <= MOST_OUTPUTS => {
            let mean = |column: ArrayView1<'_, f32>| {
                column.iter().map(|&y| f64::from(y)).sum::<f64>() / column.len() as f64
            };
            values.columns().into_iter().map(mean).collect()
        }
        _ => Vec::new(),
    }
}

/// Rows per class; empty if there are no classes.
pub(crate) fn class_counts(data: &Dataset) -> Vec<u64> {
    match &data.target {
        Target::Classes { labels, names } => {
            let mut counts = vec![0; names.len()];
            for &label in labels {
                counts[label as usize] += 1;
            }
            counts
        }
        Target::Values(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::{
        experiment::{Experiment, Keep, StopParams},
        run::{Whole, shards::merged::merge},
    };

    fn rows(target: Target) -> Arc<Shared> {
        let features = Array2::from_shape_fn((20, 2), |(row, column)| (2 * row + column) as f32);
        Shared::new(Dataset::new("rows", features, target).unwrap())
    }

    #[test]
    fn rows_for_validation_are_no_training_rows() {
        let stop = |share| StopParams { share, every: 5, patience: 2, keep: Keep::Last };
        let run = |share| RunParams { stop_early: Some(stop(share)), ..RunParams::default() };
        let classes = Target::Classes {
            labels: (0..20).map(|row| u32::from(row % 4 == 0)).collect(),
            names: vec!["a".into(), "b".into()],
        };
        let values = Target::Values(Array2::from_shape_fn((20, 1), |(row, _)| row as f32));
        for target in [classes, values] {
            let all = rows(target);
            let part = Shared::training(Arc::clone(&all), &run(0.2)).unwrap();
            let validation = part.validation().unwrap();
            assert_eq!((part.raw().rows(), validation.rows()), (16, 4));
            for row in validation.features.rows() {
                assert!(part.raw().features.rows().into_iter().all(|other| other != row));
            }
            assert_eq!(part.all_rows().features, all.raw().features);
            assert_eq!(part.all_rows().target, all.raw().target);
            let untouched = Shared::training(Arc::clone(&all), &RunParams::default()).unwrap();
            assert!(Arc::ptr_eq(&untouched, &all));
            assert!(Arc::ptr_eq(&untouched.all_rows(), all.raw()));
            // Too few rows for the share: all are for training.
            let none = Shared::training(Arc::clone(&all), &run(0.01)).unwrap();
            assert_eq!(none.raw().rows(), 20);
            let error = Shared::training(all, &run(0.99)).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("run.stop_early.share = 0.99")));
        }
    }

    /// A node whose run begins again without others takes the constants of those that are there: so
    /// does one that is started then, and a repetition in the simulator.
    #[test]
    fn the_constants_are_those_of_the_members_at_the_last_beginning() {
        let sets = ["topology.file=ring:4", "data.standardize=true", "data.source=breast-cancer"];
        let whole = || {
            let experiment = Experiment::default_with(&sets.map(String::from)).unwrap();
            Whole::new(experiment).unwrap()
        };
        let (first, again) = (whole(), whole());
        let merged = |nodes: &[usize]| {
            let setup = |node: &usize| first.spec((*node).into()).learner.setup().unwrap();
            let records: Vec<Vec<u8>> = nodes.iter().map(|node| setup(node).record).collect();
            let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            merge(&records, &first.design.sums()).unwrap()
        };
        let (all, without) = (merged(&[0, 1, 2, 3]), merged(&[0, 1, 2]));
        let mut learner = first.spec(NodeId(0)).learner;
        learner.prepare(&all).unwrap();
        let of_all = first.agreed.get().unwrap();
        learner.prepare(&without).unwrap();
        again.spec(NodeId(0)).learner.prepare(&without).unwrap();
        let of_some = again.agreed.get().unwrap();
        assert_ne!(of_all, of_some);
        assert_eq!(first.agreed.get().unwrap(), of_some);
        let rows = |whole: &Whole| whole.shards[0].ready().unwrap();
        assert_eq!(rows(&first).features, rows(&again).features);
        // The same constants prepare nothing again.
        let before = rows(&first);
        learner.prepare(&without).unwrap();
        assert!(Arc::ptr_eq(&before, &rows(&first)));
    }
}
