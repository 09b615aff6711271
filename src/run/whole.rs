//! A run with all nodes in this process: data split into shards, one learner each.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Agreed, DataRecord, RowConstants,
    design::{
        resolved::{self, Design},
        warm_start,
    },
    results::record::Score,
    shards::{
        division::{Division, Origin, TestRows, check_order, name_by_sources},
        rows,
        shard::{ShardLearner, Shared, class_counts, evaluate},
    },
};
use crate::{
    config::ConfigError,
    data::{self, Dataset},
    drive::{Change, Learner, NodeSpec},
    experiment::{Compute, Experiment},
    gossip::{Byzantine, tree::Readers},
    learn::{Model, Optimizer},
    links::{Conditions, conditions},
    units::{NodeId, Round},
};

/// An experiment with its data split and everything checked: ready for `train` or `simulate`.
///
/// ```
/// use gradvine::prelude::*;
///
/// let settings = ["run.rounds=30", "topology.file=ring:4", "data.source=breast-cancer"];
/// let whole = Whole::new(Experiment::default_with(&settings.map(String::from))?)?;
/// assert_eq!((whole.shards.len(), whole.classes.len()), (4, 2));
/// let ended = sim::run(whole.specs(), &mut NoopObserver)?;
/// let summary = Summary::new(&whole.design, &ended[0].records)?;
/// assert_eq!(summary.nodes, 4);
/// assert!(summary.outcome.test_accuracy_of_mean > Some(0.85));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub struct Whole {
    /// The design that all nodes share.
    pub design: Arc<Design>,
    /// The model, with its sizes from the data.
    pub model: Model,
    /// The rows that each node trains on.
    pub shards: Vec<Arc<Shared>>,
    /// Rows that no node trains on.
    pub tests: TestRows,
    /// Where the rows are from.
    pub(super) origin: Origin,
    /// Class names, if there are classes.
    pub classes: Vec<String>,
    /// What the nodes have agreed on, such as what is done with features before the model sees
    /// them; set when the run begins.
    pub agreed: Agreed<RowConstants>,
    /// The conditions of links and machines for `simulate` and `plan`.
    pub conditions: Conditions,
    /// The absences that a simulation has.
    pub absences: Vec<Change>,
    /// The Byzantine nodes of a simulation, with what they send.
    pub byzantine: BTreeMap<NodeId, Byzantine>,
}

impl Whole {
    /// Loads the data, splits it and resolves the experiment.
    ///
    /// # Errors
    /// If any file or value of it is wrong; nothing has been started.
    pub fn new(experiment: Experiment) -> Result<Whole, ConfigError> {
        Whole::checked(experiment.clone()).map_err(|error| experiment.blame(error))
    }

    fn checked(mut experiment: Experiment) -> Result<Whole, ConfigError> {
        let mut topology = resolved::topology(&experiment)?;
        check_order(&experiment.data, &topology)?;
        if let Some(sources) = &experiment.data.sources {
            topology = name_by_sources(topology, sources);
        }
        warm_start::keep_fills(&mut experiment);
        let Division { shards, tests, classes, inputs, outputs, origin, remarks } =
            Division::read(&mut experiment, topology.nodes())?;
        if experiment.data.sources.is_some() || experiment.data.sizes.is_some() {
            let weighting = resolved::weighting_of_files(&experiment);
            experiment.data.weighting.get_or_insert(weighting);
        }
        warm_start::check(&experiment, shards[0].raw())?;
        let mut design = Design::new(experiment, Arc::new(topology), inputs, outputs)?;
        design.remarks = remarks;
        design.targets = rows::target_names(shards[0].raw());
        let tested = tests.all();
        let before =
            tested.filter_map(|rows| DataRecord::tested_before(&design.experiment, rows.raw()));
        design.remarks.extend(before.take(1));
        design.remarks.extend(data::on_both_sides(
            shards.iter().map(|shard| &**shard.raw()),
            tests.all().map(|tests| &**tests.raw()),
        ));
        let run = &design.experiment.run;
        let keep = |shard| Shared::training(shard, run);
        let shards = shards.into_iter().map(keep).collect::<Result<Vec<_>, _>>()?;
        let model = design.table_model()?;
        let conditions = measured_conditions(&mut design, &model, &shards[0])?;
        Ok(Whole {
            absences: super::results::history::absences(&design)?,
            byzantine: super::design::byzantine::of(&design)?,
            conditions,
            design: Arc::new(design),
            model,
            shards,
            tests,
            origin,
            classes,
            agreed: Agreed::default(),
        })
    }

    /// Every node's core and learner.
    pub fn specs(&self) -> Vec<NodeSpec> {
        (0..self.shards.len()).map(|node| self.spec(NodeId::from(node))).collect()
    }

    /// One node's core and learner.
    pub fn spec(&self, node: NodeId) -> NodeSpec {
        let mut learner = self.learner(node);
        NodeSpec {
            config: self.design.node(node, learner.setup(), Readers::Root),
            learner: Box::new(learner),
        }
    }

    pub(crate) fn learner(&self, node: NodeId) -> ShardLearner {
        ShardLearner::new(
            Arc::clone(&self.design),
            self.model.clone(),
            node,
            Arc::clone(&self.shards[node.index()]),
            self.tests.of(node).cloned(),
            self.agreed.clone(),
        )
    }

    /// A node's rows as loaded: those that it trains on, and those that it keeps for validation.
    pub fn rows_of(&self, node: NodeId) -> Arc<Dataset> {
        self.shards[node.index()].all_rows()
    }

    /// f(x): the nodes' losses at x, with the experiment's weights; `None` before the run has
    /// begun.
    pub fn train_loss(&self, x: &[f32]) -> Option<f64> {
        let (mut sum, mut weights, model) = (0.0, 0.0, self.scaled_model());
        for shard in &self.shards {
            let shard = shard.ready()?;
            let weight = if self.design.by_rows() { shard.rows() as f64 } else { 1.0 };
            sum += weight * evaluate(&model, x, &shard).loss;
            weights += weight;
        }
        Some(sum / weights)
    }

    /// Scores a model on the test rows of all nodes; `None` without test rows, or before the run
    /// has started.
    pub fn score(&self, x: &[f32]) -> Option<Score> {
        self.tests.score(&self.scaled_model(), x)
    }

    /// Scores a model on the test rows of a node; `None` without any, or before the run has
    /// started.
    pub(crate) fn score_at(&self, node: NodeId, x: &[f32]) -> Option<Score> {
        let test = self.tests.of(node)?.ready()?;
        Some(evaluate(&self.scaled_model(), x, &test).into())
    }

    /// The model with the scale of the predicted numbers, once the run has started.
    fn scaled_model(&self) -> Model {
        let targets = self.agreed.get().and_then(|agreed| agreed.preprocessing.targets.clone());
        self.model.clone().with_targets(targets)
    }

    /// Rows per class of a node's shard.
    pub fn classes_of(&self, node: NodeId) -> Vec<u64> {
        class_counts(self.shards[node.index()].raw())
    }

    /// Plain SGD on the pooled data: as many rounds, a batch n times as large, the same schedule,
    /// started from the same x_0.
    ///
    /// # Errors
    /// If the pooled data does not fit the model; it does if the shards do.
    pub fn pooled_baseline(&self) -> Result<Pooled, ConfigError> {
        let design = &self.design;
        let preprocessing = RowConstants::over(design, &self.shards)?.preprocessing;
        let model = self.model.clone().with_targets(preprocessing.targets.clone());
        let mut pooled = self.origin.pooled(&self.shards);
        let mut tests: Vec<Dataset> =
            self.tests.all().map(|test| Dataset::clone(test.raw())).collect();
        preprocessing.apply(&mut pooled)?;
        tests.iter_mut().try_for_each(|test| preprocessing.apply(test))?;
        let rows = pooled.rows();
        let config = design.optimizer.pooled(self.shards.len());
        let mut optimizer = Optimizer::new(
            config,
            design.experiment.run.seed,
            NodeId(0),
            rows,
            design.parameters(),
        );
        let pooled = Arc::new(pooled);
        let mut objective = model.objective(Arc::clone(&pooled))?;
        let (mut x, mut update) = (design.initial.to_vec(), vec![0.0; design.parameters()]);
        for round in 0..design.experiment.run.rounds {
            optimizer.update(Round(round), &x, &mut *objective, &mut update);
            crate::vector::subtract(&update, &mut x);
        }
        let train_loss = evaluate(&model, &x, &pooled).loss;
        let scores: Vec<Score> =
            tests.iter().map(|test| evaluate(&model, &x, test).into()).collect();
        Ok(Pooled { train_loss, test: Score::merged(&scores) })
    }
}

/// The conditions of `[network]`. The time of gradients is measured if the experiment asks for it,
/// and written into it.
fn measured_conditions(
    design: &mut Design,
    model: &Model,
    shard: &Shared,
) -> Result<Conditions, ConfigError> {
    let network = design.experiment.network.clone();
    let mut took = None;
    let mut measure = || *took.insert(gradients_take(design, model, shard).unwrap_or(0.0));
    let run = &design.experiment.run;
    let conditions = conditions(&network, &design.topology, run, &mut measure)?;
    if let Some(seconds) = took {
        let network = &mut design.experiment.network;
        (network.compute, network.compute_ms) =
            (Compute::Fixed, Some((seconds * 1e9).round() / 1e6));
    }
    Ok(conditions)
}

/// Seconds of a round's gradients on this machine: the median of some tries on the first node's
/// rows.
pub(super) fn gradients_take(
    design: &Design,
    model: &Model,
    shard: &Shared,
) -> Result<f64, ConfigError> {
    const TRIES: u64 = 15;
    let rows = Arc::clone(shard.raw());
    let count = rows.rows();
    super::design::needs::one_copy(design.parameters())?;
    let mut objective = model.objective(rows)?;
    let mut optimizer = Optimizer::new(
        design.optimizer.clone(),
        design.experiment.run.seed,
        NodeId(0),
        count,
        design.parameters(),
    );
    let (x, mut update) = (design.initial.to_vec(), vec![0.0; design.parameters()]);
    let mut times: Vec<f64> = (0..TRIES)
        .map(|round| {
            let started = std::time::Instant::now();
            optimizer.update(Round(round), &x, &mut *objective, &mut update);
            started.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// The result of plain SGD on the pooled data.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Pooled {
    /// Mean loss over all training rows.
    pub train_loss: f64,
    /// The mean loss and the accuracy on the test rows.
    pub test: Option<Score>,
}
