//! Repeats a run whose members changed, in the simulator: with the same history it ends with the
//! same bits.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    config::ConfigError,
    drive::{Change, Ended, Learner, NoopObserver, RunError},
    gossip::{Node, Rejoin, plan, tree::Readers},
    run::{Design, Summary, Whole},
    sim::{self, Paused},
    units::NodeId,
};

/// Repeats a run with this history of its members, and returns its summary.
///
/// # Errors
/// If the history does not fit the run, or a node fails.
pub fn replay(whole: &Whole, history: &[Change]) -> Result<Summary, RunError> {
    check(&whole.design, history).map_err(RunError::Setup)?;
    let nodes = whole.design.topology.nodes();
    let mut members: Vec<NodeId> = (0..nodes).map(NodeId::from).collect();
    let mut nodes = start(whole, &whole.design, &members, None)?;
    let mut part: Option<Arc<Design>> = None;
    for change in history {
        let paused = match change.models.is_empty() {
            true => Vec::new(),
            false => sim::run_until(nodes, change.round, &mut NoopObserver)?,
        };
        let paused: BTreeMap<NodeId, Paused> = members.iter().copied().zip(paused).collect();
        let design = whole.design.restricted(&change.members, &change.cut);
        let design = Arc::new(design.map_err(RunError::Setup)?);
        members.clone_from(&change.members);
        nodes = start(whole, &design, &members, Some((change, paused)))?;
        part = Some(design);
    }
    let mut ended = sim::run_nodes(nodes, &mut NoopObserver)?;
    let Ended { records, .. } = ended.swap_remove(0);
    let design = part.as_ref().unwrap_or(&whole.design);
    let mut summary = Summary::new(design, &records)
        .map_err(|why| RunError::Setup(ConfigError::at("records of the repeated run", why)))?;
    summary.add_history(&whole.design.topology, history);
    Ok(summary)
}

/// The nodes of a part of the run: at its beginning, or after a change.
fn start(
    whole: &Whole,
    design: &Design,
    members: &[NodeId],
    change: Option<(&Change, BTreeMap<NodeId, Paused>)>,
) -> Result<Vec<(Node, Box<dyn Learner>)>, RunError> {
    let mut paused = BTreeMap::new();
    let mut round = None;
    if let Some((change, states)) = change
        && !change.models.is_empty()
    {
        round = Some((change.round, change.models.len()));
        for (node, state) in states {
            if change.models.contains(&node) {
                paused.insert(node, state);
            }
        }
        if paused.len() < change.models.len() {
            let problem = "names models of nodes that were no members before".to_string();
            return Err(RunError::Setup(ConfigError::at("history", problem)));
        }
    }
    let node = |(place, &node): (usize, &NodeId)| {
        // A learner begins anew with each change, like its optimizer.
        let mut learner = whole.spec(node).learner;
        let config = design.node(place.into(), learner.setup(), Readers::Root);
        let core = match (round, paused.remove(&node)) {
            (None, _) => Node::new(config),
            (Some((rounds, models)), Some(Paused { snapshot, merged })) => {
                let (traffic, own) = (snapshot.traffic, Some(snapshot.into_model()));
                Node::rejoin(config, Rejoin { rounds, own, models, merged, traffic })
            }
            (Some((rounds, models)), None) => {
                Node::rejoin(config, Rejoin { rounds, models, ..Rejoin::default() })
            }
        };
        (core, learner)
    };
    Ok(members.iter().enumerate().map(node).collect())
}

/// Checks that a history fits a run.
fn check(design: &Design, history: &[Change]) -> Result<(), ConfigError> {
    let wrong = |problem: String| Err(ConfigError::at("history", problem));
    let rounds = design.experiment.run.rounds;
    let mut before = 0;
    for change in history {
        let round = change.round.0;
        if round < before || round >= rounds || (round == 0) != change.models.is_empty() {
            return wrong(format!(
                "a change after round {round}: expected ascending rounds below {rounds}, and \
                 models from round 1 on"
            ));
        }
        if change.members.is_empty() {
            return wrong(format!("no members after round {round}"));
        }
        before = round;
    }
    if !history.is_empty() && !plan::can_pause(&*design.rule.plan) {
        return wrong("the members of a run with this rule cannot change".into());
    }
    Ok(())
}
