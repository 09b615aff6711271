//! A run on objectives that a program brings itself: no data file, and no model of the registry.

use std::sync::Arc;

use super::{
    design::{self, check_run},
    record::Closing,
};
use crate::{
    compress,
    config::ConfigError,
    drive::{Conclusion, Learner, NodeSpec},
    experiment::{Experiment, Weighting},
    gossip::{
        NodeConfig,
        rule::{self, Setting},
        tree::{self, Readers},
    },
    learn::{Objective, Optimizer, Ready, Tensor},
    mixing::Schedule,
    units::{NodeId, Round},
    vector,
};

/// Every node's core and learner, for [`crate::sim::run`]: node i minimises the mean of all
/// `objectives` by steps on its own, the i-th.
///
/// Of the experiment the sections `[run]`, `[topology]`, `[rule]`, `[compressor]`, `[optimizer]`
/// and `data.weighting` count. All nodes start at `initial`; its length is the dimension d.
///
/// # Errors
/// If the number of objectives is not that of the nodes, one of them has another dimension or no
/// rows, or the experiment is wrong.
///
/// ```
/// use gradvine::{experiment::Experiment, run::{self}, drive::NoopObserver, learn::{Batch, Objective, Tensor}, sim};
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
/// let bowl = |centre| Box::new(Bowl { centre, tensors: vec![Tensor::new("x", &[1])] }) as Box<dyn Objective>;
/// let seats = run::seats(&Experiment::parse(text, &[])?, &[0.0], vec![bowl(1.0), bowl(2.0), bowl(6.0)])?;
/// let ended = sim::run(seats, &mut NoopObserver).expect("the simulated network is ideal");
/// assert!((ended[0].mean[0] - 3.0).abs() < 1e-3);
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
pub fn seats(
    experiment: &Experiment,
    initial: &[f32],
    objectives: Vec<Box<dyn Objective>>,
) -> Result<Vec<NodeSpec>, ConfigError> {
    check_run(experiment)?;
    let run = &experiment.run;
    let topology = Arc::new(design::topology(&experiment.topology, &experiment.folder, run.seed)?);
    tree::check(&topology)?;
    check(&objectives, initial, topology.nodes())?;
    let compressor = compress::build(&experiment.compressor)?.compressor;
    let setting = Setting {
        topology: &topology,
        schedule: &Arc::new(Schedule::new(&experiment.topology.schedule, &topology, run.seed)?),
        nominal_delta: compress::nominal_delta(&*compressor, initial.len()),
        compressor: &compressor,
        parameters: initial.len(),
        shapes: &objectives[0].tensors().iter().map(Tensor::matrix).collect::<Vec<_>>(),
        seed: run.seed,
        allow_unstable: run.allow_unstable,
    };
    let prepared = rule::prepare(&experiment.rule, &setting)?;
    let optimizer = experiment.optimizer.check(run.rounds)?;
    let (momentum, step) = (experiment.optimizer.momentum, experiment.optimizer.step);
    rule::advise(&prepared.resolved, momentum, step, run.allow_unstable)?;
    let rows: usize = objectives.iter().map(|objective| objective.rows()).sum();
    let nodes = objectives.len();
    let seat = |(node, objective): (usize, Box<dyn Objective>)| {
        let id = NodeId::from(node);
        let weight = match experiment.data.weighting {
            Weighting::Nodes => 1.0,
            Weighting::Rows => (nodes * objective.rows()) as f64 / rows as f64,
        };
        let config = NodeConfig {
            id,
            topology: Arc::clone(&topology),
            plan: Arc::clone(&prepared.plan),
            rule: (prepared.spawn)(id, initial.to_vec()),
            seed: run.seed,
            rounds: run.rounds,
            evaluate_every: run.evaluate_every,
            parameters: initial.len(),
            setup: None,
            readers: Readers::Root,
        };
        let optimizer =
            Optimizer::new(optimizer.clone(), run.seed, id, objective.rows(), initial.len());
        NodeSpec {
            config,
            learner: Box::new(OwnLearner { objective, optimizer, weight: weight as f32 }),
        }
    };
    Ok(objectives.into_iter().enumerate().map(seat).collect())
}

fn check(
    objectives: &[Box<dyn Objective>],
    initial: &[f32],
    nodes: usize,
) -> Result<(), ConfigError> {
    if objectives.len() != nodes {
        let problem = format!("the topology has {nodes} nodes: one objective for each is needed");
        return Err(ConfigError::new("objectives", objectives.len(), problem));
    }
    if initial.is_empty() {
        return Err(ConfigError::at("initial", "no numbers: at least one parameter is needed"));
    }
    for (node, objective) in objectives.iter().enumerate() {
        let wrong = |key: &str, value: usize, problem: String| {
            Err(ConfigError::new(format!("objectives[{node}].{key}"), value, problem))
        };
        if objective.parameters() != initial.len() {
            return wrong(
                "parameters",
                objective.parameters(),
                format!("the initial x has {}", initial.len()),
            );
        }
        if objective.rows() == 0 || u32::try_from(objective.rows()).is_err() {
            return wrong(
                "rows",
                objective.rows(),
                "from 1 to 4294967295 rows are accepted".into(),
            );
        }
    }
    match vector::first_non_finite(initial) {
        Some(at) => Err(ConfigError::new(
            format!("initial[{at}]"),
            initial[at],
            "a finite number is needed",
        )),
        None => Ok(()),
    }
}

/// One node's objective and optimizer. Its record of the run is a [`Closing`] without a test set.
struct OwnLearner {
    objective: Box<dyn Objective>,
    optimizer: Optimizer,
    /// n m_i / m where nodes count by rows.
    weight: f32,
}

impl Learner for OwnLearner {
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
        self.optimizer.update_by_parts(
            round,
            x,
            &mut *self.objective,
            update,
            &mut |range, update| {
                if self.weight != 1.0 {
                    vector::scale(self.weight, &mut update[range.clone()]);
                }
                ready(range, update);
            },
        )
    }

    fn step(&self, round: Round) -> f32 {
        self.optimizer.step_of(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        Closing {
            rounds: conclusion.rounds.0,
            missed: Vec::new(),
            digest: crate::digest::of_model(conclusion.model),
            mean: Some(crate::digest::of_model(conclusion.mean)),
            rows: self.objective.rows() as u64,
            classes: Vec::new(),
            train_loss_of_mean: self.objective.loss(conclusion.mean),
            distance_squared: vector::distance_squared(conclusion.model, conclusion.mean),
            test: None,
            test_of_mean: None,
            arithmetic: crate::run::arithmetic::name(),
            bytes: Closing::traffic(conclusion.traffic),
            time_s: conclusion.elapsed.time.seconds(),
            computing_s: conclusion.elapsed.computing.seconds(),
            links: Closing::links(conclusion.links),
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
            let seats =
                seats(&experiment(more), &[0.0, 1.0], bowls(&[(2.0, 3), (6.0, 1)], 2)).unwrap();
            let ended = sim::run(seats, &mut NoopObserver).unwrap();
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
    fn what_does_not_fit_is_refused() {
        let error = |initial: &[f32], objectives| {
            let Err(error) = seats(&experiment(""), initial, objectives) else {
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
            "objectives[0].parameters = 3: the initial x has 1"
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
            "initial: no numbers: at least one parameter is needed"
        );
    }
}
