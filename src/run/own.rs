//! A run on objectives of another program: no data file, and no model of the registry.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    Design,
    results::record::{Closing, MEASURE_NAME, MOST_MEASURES, MOST_ROWS},
    shards::{
        merged::Merged,
        opening::{Opening, Sums},
        row_constants::setup,
    },
    topology,
};
use crate::{
    config::ConfigError,
    drive::{Computed, Conclusion, Learner, NodeSpec, Wanted},
    experiment::Experiment,
    gossip::tree::{Readers, Setup},
    learn::{Objective, Optimizer, Ready, count_trained},
    state::Visitor,
    units::{NodeId, Round},
    vector,
};

/// Makes every node's core and learner, for [`crate::sim::run`]: node i takes steps on the i-th
/// objective, and all nodes minimise the mean of `objectives`.
///
/// The sections `[run]`, `[topology]`, `[rule]`, `[compressor]`, `[optimizer]` and `data.weighting`
/// of the experiment count. All nodes start at `initial`; its length is the dimension d.
///
/// # Errors
/// If the number of objectives is not the number of nodes, an objective has another dimension or no
/// rows, or the experiment is wrong.
///
/// ```
/// use gradvine::{learn::Batch, prelude::*, run};
///
/// /// f(x) = 1/2 (x - centre)^2 over one row.
/// struct Bowl { centre: f32, tensors: Vec<Tensor> }
///
/// impl Objective for Bowl {
///     fn tensors(&self) -> &[Tensor] { &self.tensors }
///     fn rows(&self) -> usize { 1 }
///     fn gradient(&mut self, x: &[f32], _batch: Batch<'_>, out: &mut [f32]) -> f64 {
///         out[0] = x[0] - self.centre;
///         self.loss(x)
///     }
///     fn loss(&mut self, x: &[f32]) -> f64 { 0.5 * f64::from(x[0] - self.centre).powi(2) }
/// }
///
/// let text = "run.rounds = 200\ntopology.file = 'complete:3'\nrule.kind = 'd-psgd'";
/// let bowl = |centre| -> Box<dyn Objective> {
///     Box::new(Bowl { centre, tensors: vec![Tensor::new("x", &[1])] })
/// };
/// let bowls = vec![bowl(1.0), bowl(2.0), bowl(6.0)];
/// let specs = run::specs(&Experiment::parse(text, &[])?, &[0.0], bowls)?;
/// let ended = sim::run(specs, &mut NoopObserver).expect("the simulated network is ideal");
/// assert!((ended[0].mean[0] - 3.0).abs() < 1e-3);
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
pub fn specs(
    experiment: &Experiment,
    initial: &[f32],
    objectives: Vec<Box<dyn Objective>>,
) -> Result<Vec<NodeSpec>, ConfigError> {
    let topology = Arc::new(topology(experiment)?);
    let nodes = topology.nodes();
    if objectives.len() != nodes {
        let problem = format!("the topology has {nodes} nodes: one objective for each is needed");
        return Err(ConfigError::new("objectives", objectives.len(), problem));
    }
    let tensors = objectives[0].tensors().to_vec();
    let design = Design::of_tensors(experiment.clone(), topology, tensors, initial.to_vec())?;
    let spec = |(node, objective): (usize, Box<dyn Objective>)| {
        let id = NodeId::from(node);
        let mut learner = OwnLearner::of_objective(&design, id, objective)?;
        let config = design.node(id, learner.setup(), Readers::Root);
        Ok(NodeSpec { config, learner: Box::new(learner) })
    };
    objectives.into_iter().enumerate().map(spec).collect()
}

/// Measures of a program, by name.
pub type Measures = BTreeMap<String, f64>;

type EvaluateModel = dyn FnMut(&[f32]) -> Measures + Send;

/// Evaluates a model for a program. Clones share one function.
#[derive(Clone)]
pub struct Evaluate(Arc<Mutex<EvaluateModel>>);

impl Evaluate {
    /// Calls this function with a model of d numbers.
    pub fn new(evaluate: impl FnMut(&[f32]) -> Measures + Send + 'static) -> Evaluate {
        Evaluate(Arc::new(Mutex::new(evaluate)))
    }

    /// The measures of the model at `x`. Only the first `MOST_MEASURES` count; values that are
    /// not finite and names longer than `MEASURE_NAME` bytes are left out.
    pub(crate) fn of(&self, x: &[f32]) -> Measures {
        let mut evaluate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        usable(evaluate(x))
    }
}

/// The measures that count.
fn usable(measures: Measures) -> Measures {
    let is_usable = |(name, value): &(String, f64)| name.len() <= MEASURE_NAME && value.is_finite();
    measures.into_iter().filter(is_usable).take(MOST_MEASURES).collect()
}

/// The source of a node's updates, instead of a file's rows.
pub trait Gradients: Send {
    /// The number of rows that the node trains on.
    fn rows(&self) -> u64;

    /// As [`Learner::compute_lent`].
    ///
    /// # Errors
    /// Why this node cannot continue.
    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed;

    /// As [`Learner::step`].
    fn step(&self, round: Round) -> f32;

    /// As [`Learner::state`].
    fn state(&mut self, _visitor: &mut dyn Visitor) -> bool {
        false
    }

    /// As [`Learner::waits`].
    fn waits(&self) -> bool {
        false
    }

    /// As [`Learner::ends`].
    fn ends(&self) -> bool {
        false
    }

    /// f_i(`x`); NaN if it is not known.
    fn loss(&mut self, x: &[f32]) -> f64;

    /// Measures of a model after the rounds: first of the node's own one, then of the mean. `None`
    /// if the node's [`Evaluate`] gives them.
    fn measures(&mut self, _x: &[f32]) -> Option<Measures> {
        None
    }
}

/// An objective and the experiment's optimizer.
struct ObjectiveLearner {
    objective: Box<dyn Objective>,
    optimizer: Optimizer,
}

impl Gradients for ObjectiveLearner {
    fn rows(&self) -> u64 {
        self.objective.rows() as u64
    }

    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        let Wanted { round, x, mut update } = wanted;
        let objective = &mut *self.objective;
        let loss = self.optimizer.update_by_parts(round, x, objective, &mut update, ready);
        Ok((update, loss))
    }

    fn state(&mut self, visitor: &mut dyn Visitor) -> bool {
        self.objective.state(visitor);
        self.optimizer.state(visitor);
        true
    }

    fn step(&self, round: Round) -> f32 {
        self.optimizer.step_of(round)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        self.objective.loss(x)
    }
}

/// One node's learner if the model is not the experiment's. Its record of the run is a [`Closing`]
/// without a test set.
pub struct OwnLearner {
    gradients: Box<dyn Gradients>,
    by_rows: bool,
    nodes: usize,
    /// The numbers that are weighted: those of an update but the statistics.
    trained: usize,
    /// n m_i / m if nodes are weighted by rows.
    weight: f32,
    evaluate: Option<Evaluate>,
}

impl OwnLearner {
    /// A learner for an objective, with the experiment's optimizer.
    ///
    /// # Errors
    /// If it has another dimension than the design, or no rows.
    pub(crate) fn of_objective(
        design: &Design,
        node: NodeId,
        objective: Box<dyn Objective>,
    ) -> Result<OwnLearner, ConfigError> {
        let wrong = |key: &str, value: usize, problem: String| {
            Err(ConfigError::new(format!("objectives[{node}].{key}"), value, problem))
        };
        if objective.parameters() != design.parameters() {
            let problem = format!("the initial x has {}", design.parameters());
            return wrong("parameters", objective.parameters(), problem);
        }
        if objective.rows() == 0 || u32::try_from(objective.rows()).is_err() {
            let problem = "from 1 to 4294967295 rows are accepted".into();
            return wrong("rows", objective.rows(), problem);
        }
        let optimizer = design.optimizer(node, objective.rows());
        OwnLearner::of_gradients(design, Box::new(ObjectiveLearner { objective, optimizer }))
    }

    /// A learner for any source of updates.
    ///
    /// # Errors
    /// If it has no rows, or more than can be counted.
    pub(crate) fn of_gradients(
        design: &Design,
        gradients: Box<dyn Gradients>,
    ) -> Result<OwnLearner, ConfigError> {
        if !(1..=MOST_ROWS).contains(&gradients.rows()) {
            let problem = format!("expected from 1 to {MOST_ROWS} rows");
            return Err(ConfigError::new("rows", gradients.rows(), problem));
        }
        let (by_rows, nodes) = (design.by_rows(), design.topology.nodes());
        let trained = count_trained(&design.tensors);
        Ok(OwnLearner { gradients, by_rows, nodes, trained, weight: 1.0, evaluate: None })
    }

    /// Adds measures of the program.
    #[must_use]
    pub(crate) fn evaluated(mut self, evaluate: Option<Evaluate>) -> OwnLearner {
        self.evaluate = evaluate;
        self
    }

    fn measures(&mut self, x: &[f32]) -> Measures {
        let evaluate = self.evaluate.as_ref();
        let given = || evaluate.map_or_else(Measures::new, |evaluate| evaluate.of(x));
        self.gradients.measures(x).map_or_else(given, usable)
    }
}

impl Learner for OwnLearner {
    fn setup(&mut self) -> Option<Setup> {
        let record = Opening::of_rows(self.gradients.rows()).to_bytes();
        Some(setup(record, Sums::default()))
    }

    fn prepare(&mut self, merged: &[u8]) -> Result<(), ConfigError> {
        let all = Merged::from_bytes(merged, &Sums::default())
            .map_err(|error| ConfigError::at("setup record of all nodes", error))?;
        if self.by_rows {
            let own = self.nodes as f64 * self.gradients.rows() as f64;
            self.weight = (own / all.rows.max(1) as f64) as f32;
        }
        Ok(())
    }

    /// Copies the vectors; drivers call [`Learner::compute_lent`].
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        let (x, buffer) = (Arc::new(x.to_vec()), update.to_vec());
        let wanted = Wanted { round, x: &x, update: buffer };
        let Ok((values, loss)) = self.compute_lent(wanted, &mut |_, _| {}) else { return f64::NAN };
        update.copy_from_slice(&values);
        loss
    }

    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        let (weight, trained) = (self.weight, self.trained);
        self.gradients.compute_lent(wanted, &mut |range, update| {
            if weight != 1.0 {
                let end = range.end.min(trained);
                vector::scale(weight, &mut update[range.start.min(end)..end]);
            }
            ready(range, update);
        })
    }

    fn state(&mut self, visitor: &mut dyn Visitor) -> bool {
        self.gradients.state(visitor)
    }

    fn waits(&self) -> bool {
        self.gradients.waits()
    }

    fn ends(&self) -> bool {
        self.gradients.ends()
    }

    fn step(&self, round: Round) -> f32 {
        self.gradients.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        let (x, mean) = (conclusion.model, conclusion.mean);
        Closing {
            train_loss_of_mean: self.gradients.loss(mean),
            measures: self.measures(x),
            measures_of_mean: self.measures(mean),
            ..Closing::of(conclusion, self.gradients.rows())
        }
        .to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        drive::NoopObserver,
        learn::{Batch, Tensor},
        sim,
    };

    /// f(x) = 1/2 |x - centre|^2, the same for each of its rows.
    struct Bowl {
        centre: f32,
        rows: usize,
        tensors: Vec<Tensor>,
    }

    impl Objective for Bowl {
        fn tensors(&self) -> &[Tensor] {
            &self.tensors
        }

        fn rows(&self) -> usize {
            self.rows
        }

        fn gradient(&mut self, x: &[f32], _batch: Batch<'_>, out: &mut [f32]) -> f64 {
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x - self.centre);
            self.loss(x)
        }

        fn loss(&mut self, x: &[f32]) -> f64 {
            x.iter().map(|x| 0.5 * f64::from(x - self.centre).powi(2)).sum()
        }
    }

    fn bowls(of: &[(f32, usize)], d: usize) -> Vec<Box<dyn Objective>> {
        let bowl = |&(centre, rows): &(f32, usize)| {
            Box::new(Bowl { centre, rows, tensors: vec![Tensor::new("x", &[d])] })
                as Box<dyn Objective>
        };
        of.iter().map(bowl).collect()
    }

    fn experiment(more: &str) -> Experiment {
        let text =
            format!("run.rounds = 300\ntopology.file = 'complete:2'\nrule.kind = 'd-psgd'\n{more}");
        Experiment::parse(&text, &[]).unwrap()
    }

    #[test]
    fn nodes_count_alike_or_by_their_rows() {
        for (more, minimum) in [("", 4.0), ("data.weighting = 'rows'", 3.0)] {
            let specs =
                specs(&experiment(more), &[0.0, 1.0], bowls(&[(2.0, 3), (6.0, 1)], 2)).unwrap();
            let ended = sim::run(specs, &mut NoopObserver).unwrap();
            assert!(
                ended[0].mean.iter().all(|x| (x - minimum).abs() < 1e-4),
                "{more}: {:?}",
                ended[0].mean
            );
            let closing = Closing::from_bytes(&ended[0].records[1]).unwrap();
            assert_eq!((closing.rounds, closing.rows, closing.test), (300, 1, None));
            assert!((closing.train_loss_of_mean - f64::from(6.0 - minimum).powi(2)).abs() < 1e-2);
        }
    }

    #[test]
    fn objectives_that_do_not_fit_are_refused() {
        let error = |initial: &[f32], objectives| {
            let Err(error) = specs(&experiment(""), initial, objectives) else {
                panic!("it was accepted")
            };
            error.to_string()
        };
        let two = &[(1.0, 1), (2.0, 1)];
        assert_eq!(
            error(&[0.0], bowls(&two[..1], 1)),
            "objectives = 1: the topology has 2 nodes: one objective for each is needed"
        );
        assert_eq!(
            error(&[0.0], bowls(two, 3)),
            "initial = 1 numbers: the tensors hold 3 numbers: expected as many initial values, and \
             at least one"
        );
        assert_eq!(
            error(&[0.0], bowls(&[(1.0, 1), (2.0, 0)], 1)),
            "objectives[1].rows = 0: from 1 to 4294967295 rows are accepted"
        );
        assert_eq!(
            error(&[f32::NAN], bowls(two, 1)),
            "initial[0] = NaN: a finite number is needed"
        );
        assert_eq!(
            error(&[], bowls(two, 0)),
            "initial = 0 numbers: the tensors hold 0 numbers: expected as many initial values, and \
             at least one"
        );
    }
}
