//! A whole run on the gradients of another program, for the simulator.

use std::sync::Arc;

use super::{Design, Evaluate, Gradients, Outlook, OwnLearner, design::needs, topology};
use crate::{
    config::ConfigError,
    drive::{Learner as _, NodeSpec},
    experiment::{Compute, Experiment},
    gossip::tree::Readers,
    learn::{Tensor, count_elements},
    links::{Conditions, conditions},
    units::NodeId,
};

/// All nodes of a run whose training belongs to another program.
#[non_exhaustive]
pub struct OwnRun {
    /// The design that all nodes share.
    pub design: Arc<Design>,
    /// The links and the time of gradients.
    pub conditions: Conditions,
    /// Every node's core and learner.
    pub specs: Vec<NodeSpec>,
}

impl OwnRun {
    /// Makes every node: node i takes its updates from the i-th of `gradients`. All nodes start at
    /// `initial`, d numbers in the order of `tensors`. `evaluate` measures each node's model and
    /// the mean at the end.
    ///
    /// # Errors
    /// If the number of `gradients` is not the number of nodes, or the experiment is wrong or asks
    /// for what needs rows of ours: a measured time of gradients, absences, Byzantine nodes.
    pub fn new(
        experiment: &Experiment,
        tensors: Vec<Tensor>,
        initial: Vec<f32>,
        gradients: Vec<Box<dyn Gradients>>,
        evaluate: Option<&Evaluate>,
    ) -> Result<OwnRun, ConfigError> {
        let nodes = gradients.len();
        let (design, conditions) = resolve(experiment, tensors, initial)?;
        if nodes != design.topology.nodes() {
            let problem = format!(
                "the topology has {} nodes: one for each is needed",
                design.topology.nodes()
            );
            return Err(ConfigError::new("gradients", nodes, problem));
        }
        let spec = |(node, gradients): (usize, Box<dyn Gradients>)| {
            let learner = OwnLearner::of_gradients(&design, gradients)?;
            let mut learner = learner.evaluated(evaluate.cloned());
            let config = design.node(NodeId::from(node), learner.setup(), Readers::Root);
            Ok(NodeSpec { config, learner: Box::new(learner) })
        };
        let specs =
            gradients.into_iter().enumerate().map(spec).collect::<Result<_, ConfigError>>()?;
        Ok(OwnRun { design, conditions, specs })
    }
}

/// What a run would take whose training belongs to another program: nothing is computed. The time
/// of a gradient is `network.compute_ms`.
///
/// # Errors
/// If the experiment is wrong, or only a simulation can tell (see [`Outlook::of`]).
pub fn outlook_of_own(
    experiment: &Experiment,
    tensors: Vec<Tensor>,
) -> Result<Outlook, ConfigError> {
    let parameters = count_elements(&tensors).unwrap_or(usize::MAX);
    needs::one_copy(parameters)?;
    let (design, conditions) = resolve(experiment, tensors, vec![0.0; parameters])?;
    let run = &design.experiment;
    let gradients = run.run.rounds.saturating_mul(u64::from(run.optimizer.local_steps));
    Outlook::of(&design, &conditions, gradients)
}

/// Checks what does not depend on the model of the program: rules, compressors, the topology and
/// their constants. A value is refused only if it fits neither a small model nor a large one.
///
/// # Errors
/// If a value is out of range or a combination cannot work.
pub fn check_own(experiment: &Experiment) -> Result<(), ConfigError> {
    let topology = topology(experiment).map_err(|error| experiment.blame(error))?;
    let topology = Arc::new(topology);
    let check = |side: usize| {
        let tensors = vec![Tensor::new("x", &[side, side])];
        let (topology, initial) = (Arc::clone(&topology), vec![0.0; side * side]);
        Design::of_tensors(experiment.clone(), topology, tensors, initial)
    };
    let checked = check(64).or_else(|_| check(1024));
    checked.map(|_| ()).map_err(|error| experiment.blame(error))
}

/// The design, and the links and times of the simulator.
fn resolve(
    experiment: &Experiment,
    tensors: Vec<Tensor>,
    initial: Vec<f32>,
) -> Result<(Arc<Design>, Conditions), ConfigError> {
    let (run, network) = (&experiment.run, &experiment.network);
    if network.compute == Compute::Measured {
        let problem = "expected \"fixed\" with network.compute_ms, or another kind: the \
                       training of a program is not measured";
        return Err(ConfigError::new("network.compute", "\"measured\"", problem));
    }
    for (key, is_set) in
        [("absent", !network.absent.is_empty()), ("liars", !network.liars.is_empty())]
    {
        if is_set {
            let problem = "cannot be simulated with the training of a program";
            return Err(ConfigError::at(format!("network.{key}"), problem));
        }
    }
    let topology = topology(experiment).map_err(|error| experiment.blame(error))?;
    let topology = Arc::new(topology);
    let design = Design::of_tensors(experiment.clone(), topology, tensors, initial)
        .map_err(|error| experiment.blame(error))?;
    let conditions = conditions(network, &design.topology, run, &mut || f64::NAN)?;
    Ok((Arc::new(design), conditions))
}
