//! The learner of a data shard, for every run on a data file.

use std::sync::{Arc, OnceLock};

use ndarray::ArrayView1;

use super::{
    Design,
    record::{Closing, Opening, merge},
};
use crate::{
    config::ConfigError,
    data::{Dataset, Scale, Target},
    drive::{Conclusion, Learner},
    gossip::tree::Setup,
    learn::{Counts, Evaluation, MOST_OUTPUTS, Model, Objective, Optimizer, Ready},
    state::Visitor,
    units::{NodeId, Round},
    vector,
};

/// In larger runs records hold no counts: the root keeps the records of all nodes in memory.
const MOST_COUNTING: usize = 256;

/// Data that the first learner to know the scale scales once, and that all of them share.
#[derive(Debug)]
pub struct Shared {
    raw: Arc<Dataset>,
    scaled: OnceLock<Arc<Dataset>>,
}

impl Shared {
    /// Not yet scaled.
    pub fn new(raw: Dataset) -> Arc<Shared> {
        Arc::new(Shared { raw: Arc::new(raw), scaled: OnceLock::new() })
    }

    /// The data as loaded.
    pub fn raw(&self) -> &Arc<Dataset> {
        &self.raw
    }

    /// The scaled data for the model, once the run has begun.
    pub fn ready(&self) -> Option<&Arc<Dataset>> {
        self.scaled.get()
    }

    fn scale(&self, scale: Option<&Scale>) -> Result<Arc<Dataset>, ConfigError> {
        if let Some(ready) = self.scaled.get() {
            return Ok(Arc::clone(ready));
        }
        let scaled = match scale {
            Some(scale) => {
                let mut data = Dataset::clone(&self.raw);
                data.apply(scale)?;
                Arc::new(data)
            }
            None => Arc::clone(&self.raw),
        };
        Ok(Arc::clone(self.scaled.get_or_init(|| scaled)))
    }
}

/// One node's shard with its objective and optimizer.
pub struct ShardLearner {
    node: NodeId,
    design: Arc<Design>,
    model: Model,
    shard: Arc<Shared>,
    test: Option<Arc<Shared>>,
    /// The scale that all nodes use, once known.
    scale: Arc<OnceLock<Scale>>,
    started: Option<Started>,
}

struct Started {
    objective: Box<dyn Objective>,
    optimizer: Optimizer,
    /// n m_i / m if nodes are weighted by rows.
    weight: f32,
    data: Arc<Dataset>,
    test: Option<Arc<Dataset>>,
}

impl ShardLearner {
    /// A learner that has not begun. The first learner that knows the scale sets `scale`.
    pub fn new(
        design: Arc<Design>,
        model: Model,
        node: NodeId,
        shard: Arc<Shared>,
        test: Option<Arc<Shared>>,
        scale: Arc<OnceLock<Scale>>,
    ) -> ShardLearner {
        ShardLearner { node, design, model, shard, test, scale, started: None }
    }

    fn started(&mut self) -> &mut Started {
        self.started.as_mut().expect("the core asks for gradients after the setup records are in")
    }
}

fn sums_wanted(design: &Design) -> bool {
    super::design::sums_wanted(&design.experiment)
}

/// The scale from the sums over all rows, or the one of the experiment.
///
/// # Errors
/// If the experiment's scale has another number of features.
pub fn scale_of(design: &Design, all: &Opening) -> Result<Option<Scale>, ConfigError> {
    let data = &design.experiment.data;
    if let Some(scale) = &data.scale {
        scale.check(design.features)?;
        return Ok(Some(scale.clone()));
    }
    Ok(all.moments.as_ref().filter(|_| data.standardize).map(Scale::from_moments))
}

/// The merged setup of a run over these shards.
///
/// # Errors
/// As [`scale_of`].
pub fn scale_over(design: &Design, shards: &[Arc<Shared>]) -> Result<Option<Scale>, ConfigError> {
    let mut openings = shards.iter().map(|shard| Opening::of(shard.raw(), sums_wanted(design)));
    let mut all = openings.next().expect("a run has nodes");
    openings.for_each(|opening| all.merge(&opening));
    scale_of(design, &all)
}

impl Learner for ShardLearner {
    fn setup(&mut self) -> Option<Setup> {
        let (inputs, sums) = (self.design.features, sums_wanted(&self.design));
        let merge = move |records: &[&[u8]]| merge(records, inputs, sums);
        let record = Opening::of(self.shard.raw(), sums).to_bytes();
        Some(Setup::new(record, Arc::new(merge)))
    }

    fn prepare(&mut self, merged: &[u8]) -> Result<(), ConfigError> {
        let design = &self.design;
        let all = Opening::from_bytes(merged, design.features, sums_wanted(design))
            .map_err(|error| ConfigError::at("setup record of all nodes", error))?;
        if let Some(scale) = scale_of(design, &all)? {
            self.scale.get_or_init(|| scale);
        }
        let scale = self.scale.get();
        let data = self.shard.scale(scale)?;
        let nodes = design.topology.nodes();
        let weight =
            if design.by_rows() { (nodes * data.rows()) as f64 / all.rows as f64 } else { 1.0 };
        self.started = Some(Started {
            objective: self.model.objective(Arc::clone(&data))?,
            optimizer: self.design.optimizer(self.node, data.rows()),
            weight: weight as f32,
            test: self.test.as_ref().map(|test| test.scale(scale)).transpose()?,
            data,
        });
        Ok(())
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
        let started = self.started();
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
pub fn evaluate(model: &Model, x: &[f32], data: &Dataset) -> Evaluation {
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
pub fn class_counts(data: &Dataset) -> Vec<u64> {
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
