//! A run with all nodes in this process: data split into shards, one learner each.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use super::{
    design::{self, Design},
    record::Score,
    shard::{ShardLearner, Shared, class_counts, evaluate, scale_over},
};
use crate::{
    config::ConfigError,
    data::{self, Columns, Dataset, Options, SYNTHETIC, Scale, Split, Synthetic, Target, Task},
    drive::{Change, Learner, NodeSpec},
    experiment::{Compute, Experiment, SplitKind},
    gossip::{Lie, tree::Readers},
    learn::{Model, Optimizer},
    links::{Conditions, conditions},
    units::{NodeId, Round},
};

/// An experiment with its data split and everything checked: ready for `train` or `simulate`.
pub struct Whole {
    /// The design that all nodes share.
    pub design: Arc<Design>,
    /// The model.
    pub model: Model,
    /// Each node's rows.
    pub shards: Vec<Arc<Shared>>,
    /// The whole file and its training rows, for the comparison with one machine.
    pub(super) pooled: Arc<Dataset>,
    train: Vec<usize>,
    /// Rows that no node trains on; `None` if `test_share` is 0.
    pub test: Option<Arc<Shared>>,
    /// Class names, if there are classes.
    pub classes: Vec<String>,
    /// The scale, set when the run begins.
    pub scale: Arc<OnceLock<Scale>>,
    /// The conditions of links and machines for `simulate` and `plan`.
    pub conditions: Conditions,
    /// The absences that a simulation has.
    pub absences: Vec<Change>,
    /// The nodes that lie in a simulation.
    pub lies: BTreeMap<NodeId, Lie>,
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
        let seed = experiment.run.seed;
        let topology = Arc::new(design::topology(&experiment.topology, &experiment.folder, seed)?);
        let options = Options { number_classes: true, ..options(&experiment)? };
        let drawn = synthetic(&mut experiment)?;
        let all = Arc::new(match drawn {
            Some(drawn) => drawn.draw(topology.nodes(), seed)?,
            None => load(&experiment, &options)?,
        });
        let classes = match &all.target {
            Target::Classes { names, .. } => names.clone(),
            Target::Values(_) => Vec::new(),
        };
        if experiment.data.classes.is_none() && data::are_named(&classes) {
            // So that nodes which read this experiment number their classes alike.
            experiment.data.classes = Some(classes.clone());
        }
        let (inputs, outputs) = (all.inputs(), all.outputs());
        let split = split(&experiment)?;
        let (train, test) = data::split_test(&all, experiment.data.test_share, seed)?;
        let shards = data::shards(&all, &train, topology.nodes(), split, seed)?;
        let mut design = Design::new(experiment, topology, inputs, outputs)?;
        let shards: Vec<Arc<Shared>> =
            shards.iter().map(|rows| Shared::new(all.select(rows))).collect();
        let model = design.table_model()?;
        let conditions = measured_conditions(&mut design, &model, &shards[0])?;
        Ok(Whole {
            absences: super::history::absences(&design)?,
            lies: super::lies::of(&design)?,
            conditions,
            design: Arc::new(design),
            model,
            pooled: Arc::clone(&all),
            train,
            shards,
            test: (!test.is_empty()).then(|| Shared::new(all.select(&test))),
            classes,
            scale: Arc::default(),
        })
    }

    /// Every node's core and learner.
    pub fn specs(&self) -> Vec<NodeSpec> {
        (0..self.shards.len()).map(|node| self.spec(NodeId::from(node))).collect()
    }

    /// One node's core and learner.
    pub fn spec(&self, node: NodeId) -> NodeSpec {
        let shard = Arc::clone(&self.shards[node.index()]);
        let mut learner = ShardLearner::new(
            Arc::clone(&self.design),
            self.model.clone(),
            node,
            shard,
            self.test.clone(),
            Arc::clone(&self.scale),
        );
        NodeSpec {
            config: self.design.node(node, learner.setup(), Readers::Root),
            learner: Box::new(learner),
        }
    }

    /// f(x): the nodes' losses at x, with the experiment's weights; `None` before the run has
    /// begun.
    pub fn train_loss(&self, x: &[f32]) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for shard in &self.shards {
            let shard = shard.ready()?;
            let weight = if self.design.by_rows() { shard.rows() as f64 } else { 1.0 };
            sum += weight * evaluate(&self.model, x, shard).loss;
            weights += weight;
        }
        Some(sum / weights)
    }

    /// Scores a model on the test rows; `None` without test rows, or before the run has begun.
    pub fn score(&self, x: &[f32]) -> Option<Score> {
        let test = self.test.as_ref()?.ready()?;
        Some(evaluate(&self.model, x, test).into())
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
        let scale = scale_over(design, &self.shards)?;
        let mut pooled = self.pooled.select(&self.train);
        let mut test = self.test.as_ref().map(|test| Dataset::clone(test.raw()));
        if let Some(scale) = &scale {
            pooled.apply(scale)?;
            test.iter_mut().try_for_each(|test| test.apply(scale))?;
        }
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
        let mut objective = self.model.objective(Arc::clone(&pooled))?;
        let (mut x, mut update) = (design.initial.to_vec(), vec![0.0; design.parameters()]);
        for round in 0..design.experiment.run.rounds {
            optimizer.update(Round(round), &x, &mut *objective, &mut update);
            crate::vector::subtract(&update, &mut x);
        }
        let train_loss = evaluate(&self.model, &x, &pooled).loss;
        let test = test.map(|test| evaluate(&self.model, &x, &test).into());
        Ok(Pooled { train_loss, test })
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
    super::needs::one_copy(design.parameters())?;
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
            let begun = std::time::Instant::now();
            optimizer.update(Round(round), &x, &mut *objective, &mut update);
            begun.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// The result of plain SGD on the pooled data.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// Mean loss over all training rows.
    pub train_loss: f64,
    /// On the test rows.
    pub test: Option<Score>,
}

/// How to read the experiment's data file.
///
/// # Errors
/// If there is no such model.
pub fn options(experiment: &Experiment) -> Result<Options, ConfigError> {
    let data = &experiment.data;
    Ok(Options {
        header: data.header,
        target: data.target.clone(),
        columns: data.columns.clone().map(|features| Columns { features, targets: Vec::new() }),
        by_position: false,
        class_names: data.classes.clone(),
        number_classes: false,
        task: experiment.model.task()?,
        classes: experiment.model.outputs,
        inputs: experiment.model.inputs,
        bare: false,
        labels_file: data.labels.as_ref().map(|labels| experiment.folder.join(labels)),
    })
}

fn load(experiment: &Experiment, options: &Options) -> Result<Dataset, ConfigError> {
    data::load(&data::beside(&experiment.folder, &experiment.data.source), options)
}

/// The synthetic data to draw, with all defaults written into the experiment; `None` if rows come
/// from a file.
fn synthetic(experiment: &mut Experiment) -> Result<Option<Synthetic>, ConfigError> {
    let task = experiment.model.task()?;
    let data = &mut experiment.data;
    if data.source != SYNTHETIC {
        let keys = [
            ("rows", data.rows.map(|x| x.to_string())),
            ("features", data.features.map(|x| x.to_string())),
            ("noise", data.noise.map(|x| x.to_string())),
            ("heterogeneity", data.heterogeneity.map(|x| x.to_string())),
        ];
        return match keys.into_iter().find_map(|(key, value)| Some((key, value?))) {
            Some((key, value)) => Err(ConfigError::new(
                format!("data.{key}"),
                value,
                "only source = \"synthetic\" has this key",
            )),
            None => Ok(None),
        };
    }
    if data.columns.is_some() {
        let problem = "only CSV files with a header name their columns: leave the key out";
        return Err(ConfigError::at("data.columns", problem));
    }
    if task != Task::Regression {
        let problem = "synthetic rows have numbers as targets: expected \"least-squares\", or \
                       \"mlp\" with task = \"regression\"";
        return Err(ConfigError::new(
            "model.kind",
            format!("\"{}\"", experiment.model.kind),
            problem,
        ));
    }
    let drawn = Synthetic {
        rows: *data.rows.get_or_insert(2048),
        features: *data.features.get_or_insert(64),
        noise: *data.noise.get_or_insert(0.1),
        heterogeneity: *data.heterogeneity.get_or_insert(0.0),
    };
    if drawn.heterogeneity != 0.0 && (data.split != SplitKind::Contiguous || data.test_share != 0.0)
    {
        let problem = "each node's rows are a block with its own optimum: set split \
                       = \"contiguous\" and test_share = 0";
        return Err(ConfigError::new("data.heterogeneity", drawn.heterogeneity, problem));
    }
    Ok(Some(drawn))
}

fn split(experiment: &Experiment) -> Result<Split, ConfigError> {
    let data = &experiment.data;
    match (data.split, data.alpha) {
        (SplitKind::Dirichlet, Some(alpha)) if alpha.is_finite() && alpha > 0.0 => {
            Ok(Split::Dirichlet { alpha })
        }
        (SplitKind::Dirichlet, Some(alpha)) => {
            Err(ConfigError::new("data.alpha", alpha, "expected a number above 0"))
        }
        (SplitKind::Dirichlet, None) => Err(ConfigError::at(
            "data.alpha",
            "a dirichlet split needs it: 0.1 is very uneven, 100 nearly even",
        )),
        (_, Some(alpha)) => {
            Err(ConfigError::new("data.alpha", alpha, "only a dirichlet split has an alpha"))
        }
        (SplitKind::Iid, None) => Ok(Split::Iid),
        (SplitKind::Contiguous, None) => Ok(Split::Contiguous),
        (SplitKind::ByLabel, None) => Ok(Split::ByLabel),
    }
}
