//! Runs a whole experiment in the simulator, with the absences that it names: members change after
//! a round, all at once and at no cost.

use std::collections::BTreeMap;

use crate::{
    config::ConfigError,
    drive::{Change, Elapsed, Learner, Observer, RunError},
    gossip::{Byzantine, LinkTraffic, Node, OwnModel, Rejoin, RoundDone, Traffic, tree::Readers},
    links::Conditions,
    run::{Design, Driven, OwnRun, Summary, Whole, check_history},
    sim::{self, Paused, RunPart, Running, Simulated},
    units::{NodeId, Round, Time},
};

/// Runs an experiment in the simulator, with the absences and the Byzantine nodes that it names.
///
/// # Errors
/// If a node fails, or the nodes wait for each other.
pub fn simulate(whole: &Whole, observer: &mut dyn Observer) -> Result<Simulated, RunError> {
    run_with(whole, &whole.absences, &whole.byzantine, &whole.conditions, observer)
}

/// Runs the training of another program in the simulator, and returns the summary: with the same
/// updates it has the digest of the real run.
///
/// # Errors
/// If a node fails, or the nodes wait for each other.
pub fn simulate_own(
    run: OwnRun,
    observer: &mut dyn Observer,
) -> Result<(Summary, Simulated), RunError> {
    let OwnRun { design, conditions, specs } = run;
    let simulated = sim::run_on(specs, &conditions, observer)?;
    let summary = Summary::of_run(&design, &simulated.ended[0].records, &[])
        .map_err(|why| RunError::Setup(ConfigError::at("records of the run", why.to_string())))?;
    Ok((summary, simulated))
}

impl From<Simulated> for Driven {
    fn from(simulated: Simulated) -> Driven {
        Driven { ended: simulated.ended, trace: Some(simulated.trace) }
    }
}

/// Runs an experiment with this history of its members.
pub(crate) fn run_with(
    whole: &Whole,
    history: &[Change],
    byzantine: &BTreeMap<NodeId, Byzantine>,
    conditions: &Conditions,
    observer: &mut dyn Observer,
) -> Result<Simulated, RunError> {
    if history.is_empty() {
        let mut specs = whole.specs();
        specs
            .iter_mut()
            .for_each(|spec| spec.config.byzantine = byzantine.get(&spec.config.id).copied());
        return sim::run_on(specs, conditions, observer);
    }
    check_history(&whole.design, history).map_err(RunError::Setup)?;
    let mut members: Vec<NodeId> = (0..whole.design.topology.nodes()).map(NodeId::from).collect();
    let mut nodes = start(whole, &whole.design, &members, byzantine, None, &BTreeMap::new())?;
    let (mut now, mut around) = (Time(0), conditions.clone());
    // The bytes that each node had sent when it was last a member.
    let mut sent: BTreeMap<NodeId, Traffic> = BTreeMap::new();
    for (index, next) in history.iter().map(Some).chain([None]).enumerate() {
        let mut paused = Vec::new();
        if next.is_none_or(|change| !change.models.is_empty()) {
            let rounds = next.map(|change| change.round);
            let mut observer = Renumbering { members: &members, observer };
            match sim::run_part(nodes, &around, now, rounds, &mut observer)? {
                RunPart::Paused(states, time) => (paused, now) = (states, time),
                RunPart::Over(mut simulated) => {
                    // The user, or `run.stop_early`, may have ended it before the last change.
                    simulated
                        .ended
                        .iter_mut()
                        .for_each(|one| one.history = history[..index].into());
                    return Ok(simulated);
                }
            }
        }
        let Some(change) = next else { break };
        let paused: BTreeMap<NodeId, Paused> = members.iter().copied().zip(paused).collect();
        sent.extend(paused.iter().map(|(node, state)| (*node, state.snapshot.traffic)));
        let design = whole.design.restricted(&change.members, &change.cut);
        let design = design.map_err(RunError::Setup)?;
        members.clone_from(&change.members);
        nodes = start(whole, &design, &members, byzantine, Some((change, paused)), &sent)?;
        around = conditions.restricted(&members);
    }
    Err(RunError::Stuck("the last part of the run has no end".into()))
}

/// Passes events on, with the numbers of nodes in the topology of the run.
struct Renumbering<'a> {
    members: &'a [NodeId],
    observer: &'a mut dyn Observer,
}

impl Observer for Renumbering<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        self.observer.round(self.members[node.index()], elapsed, done);
    }

    fn save(&mut self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        let number =
            |link: &LinkTraffic| LinkTraffic { to: self.members[link.to.index()], ..*link };
        let own = OwnModel { links: own.links.iter().map(number).collect(), ..own.clone() };
        self.observer.save(self.members[node.index()], elapsed, &own);
    }

    fn mean(&mut self, mean: &[f32]) {
        self.observer.mean(mean);
    }

    fn stop_after(&mut self) -> Option<Round> {
        self.observer.stop_after()
    }
}

/// The nodes of a part of the run: at its beginning, or after a change.
fn start(
    whole: &Whole,
    design: &Design,
    members: &[NodeId],
    byzantine: &BTreeMap<NodeId, Byzantine>,
    change: Option<(&Change, BTreeMap<NodeId, Paused>)>,
    sent: &BTreeMap<NodeId, Traffic>,
) -> Result<Vec<Running>, RunError> {
    let mut paused = BTreeMap::new();
    let mut round = None;
    if let Some((change, states)) = change
        && !change.models.is_empty()
    {
        let place = |node: &NodeId| members.iter().position(|member| member == node);
        let givers: Vec<NodeId> =
            change.models.iter().filter_map(place).map(NodeId::from).collect();
        round = Some((change.round, givers));
        for (node, state) in states {
            if change.models.contains(&node) {
                paused.insert(node, state);
            }
        }
    }
    let node = |(place, &node): (usize, &NodeId)| {
        // A learner starts from the beginning with each change, like its optimizer.
        let mut learner: Box<dyn Learner> = Box::new(whole.learner(node));
        let mut config = design.node(place.into(), learner.setup(), Readers::Root);
        config.byzantine = byzantine.get(&node).copied();
        let core = match (round.clone(), paused.remove(&node)) {
            (None, _) => Node::new(config),
            (Some((rounds, givers)), Some(Paused { snapshot, merged })) => {
                let (traffic, own) = (snapshot.traffic, Some(snapshot.into_model()));
                Node::rejoin(config, Rejoin { rounds, own, givers, merged, traffic })
            }
            (Some((rounds, givers)), None) => {
                let traffic = sent.get(&node).copied().unwrap_or_default();
                Node::rejoin(config, Rejoin { rounds, givers, traffic, ..Rejoin::default() })
            }
        };
        (core, learner)
    };
    Ok(members.iter().enumerate().map(node).collect())
}
