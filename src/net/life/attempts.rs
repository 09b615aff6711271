//! The attempts of one node at a run: each has links of its own. A node begins a new attempt when a
//! neighbour was started again, and when the members have changed.

use std::{
    sync::{Arc, Mutex, mpsc::Sender},
    time::Duration,
};

use super::{
    agreement::assemble::Assembler,
    ban::Bans,
    clock,
    event::Event,
    limits::Limits,
    links::Links,
    observer::NodeObserver,
    rounds::companion::{Owned, lock},
    worker::{Start, Stopped, Worker},
};
use crate::{
    config::ConfigError,
    drive::{Absence, Elapsed, Ended, Lent, Membership, NodeSpec, Observer, RunError, Waiting},
    experiment::Policy,
    gossip::{
        LinkTraffic, NodeConfig, OwnModel, RoundDone,
        tree::{Readers, Setup},
    },
    mixing::Topology,
    net::neighbour::Neighbour,
    run::{Checkpoints, Design, checkpoint::Written},
    state::State,
    units::{NodeId, Round},
};

/// The links of an attempt, and the sender of the worker's own events.
pub(crate) type Opened = Result<(Box<dyn Links>, Sender<Event>), RunError>;

/// Opens the links of a node.
pub(crate) trait Network {
    /// The links of an attempt, in an `assembly` those for the choice of members. `restarts` says
    /// whether this node goes back to a checkpoint when the program of a neighbour was started
    /// again.
    ///
    /// # Errors
    /// If they cannot be opened: the port is taken, or the system gives no more threads.
    fn open(&mut self, part: &Part<'_>, restarts: bool, assembly: bool) -> Opened;
}

/// Runs one node to its end, over as many attempts as it takes; `neighbours` are those of the whole
/// topology. The rest is as in [`alone`](crate::net::alone).
///
/// # Errors
/// As [`alone`](crate::net::alone).
#[expect(clippy::too_many_lines)]
pub(crate) fn run_attempts(
    network: &mut dyn Network,
    mut neighbours: Vec<Neighbour>,
    spec: NodeSpec,
    design: &Design,
    checkpoints: Option<Checkpoints>,
    observer: &mut dyn Observer,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ended, RunError> {
    let NodeSpec { config, mut learner } = spec;
    let node = config.id;
    let mut initial = State::default();
    let mut checkpoints = checkpoints.filter(|_| learner.state(&mut initial));
    let nodes = design.topology.nodes();
    let may_continue = design.experiment.absence.policy == Policy::Continue;
    if may_continue && checkpoints.is_none() {
        let problem = "this node writes no checkpoints: it needs a run directory, and a learner \
                       that can be put back";
        return Err(RunError::Setup(ConfigError::new("absence.policy", "continue", problem)));
    }
    let adopted = checkpoints.as_ref().map(Checkpoints::membership).transpose();
    let adopted = adopted.map_err(RunError::Setup)?.flatten();
    let mut current = adopted.unwrap_or_else(|| Membership::all(nodes));
    let mut part = Part::new(ThisNode { node, neighbours: &neighbours, design }, current.clone())?;
    let mut bans = Bans::default();
    let mut written = checkpoints.as_ref().and_then(|checkpoints| checkpoints.results.clone());
    // It has recorded a later membership since.
    written = written.filter(|written| written.is_of(&current, nodes));
    let learner: Owned = Arc::new(Mutex::new(learner));
    let mut start = Start {
        config: match current.is_whole(nodes) {
            true => config,
            false => part.config(lock(&learner).setup()),
        },
        membership: current.clone(),
        learner: Arc::clone(&learner),
        checkpoints: checkpoints.clone(),
        took_part: false,
        confirms: true,
        results: None,
    };
    loop {
        let mut local = LocalObserver { node, numbers: &part.numbers, observer, resumed: false };
        let stopped = match part.attempt(network, start, &mut local, stop) {
            Ok(ended) => return Ok(ended),
            Err(stopped) => stopped,
        };
        let resumed = local.resumed;
        let mut refuse = |peer: NodeId, reason: String| {
            let number = part.numbers[peer.index()];
            let seconds = bans.add(number, reason.clone(), clock::now()).as_secs();
            tracing::warn!(
                "{reason}; this node refuses node {} for {seconds} s",
                design.topology.node(number).name
            );
            (Some(Absence::of(peer)), None)
        };
        let (absence, mut results) = match stopped {
            Stopped::Failed(error) => return Err(part.blame(error)),
            Stopped::Restarted(peer, results) => {
                tracing::warn!(
                    "node {} was started again: this node returns to the newest checkpoint that \
                     all nodes have",
                    part.topology().node(peer).name
                );
                (None, results.map(|results| *results))
            }
            Stopped::Absent(absence, results) => (Some(absence), results.map(|results| *results)),
            Stopped::Broken(peer, failure) => {
                let reason = failure.describe(&|node| part.topology().node(node).name.clone());
                refuse(peer, reason)
            }
            Stopped::Silent(peer, text) => refuse(peer, text),
        };
        // A node that continued forms its results again.
        written = match (&results, resumed) {
            (Some(results), _) => Some(Written::of(&results.mean, &results.history)),
            (None, true) => None,
            (None, false) => written,
        };
        for neighbour in &mut neighbours {
            neighbour.ban = bans.of(neighbour.node, clock::now());
        }
        if let Some(absence) = absence {
            let numbers = |peers: Vec<NodeId>| -> Vec<NodeId> {
                peers.into_iter().map(|peer| part.numbers[peer.index()]).collect()
            };
            let (mut late, returned) = (numbers(absence.late), numbers(absence.returned));
            late.extend(part.unused().filter(|peer| !returned.contains(peer)));
            let absence = Absence { late, returned };
            let kept = checkpoints.as_ref().expect("a run that continues has checkpoints");
            let this = ThisNode { node, neighbours: &neighbours, design };
            let chooses = Chooses {
                current: &current,
                results: written.as_ref().map(|written| written.number),
                absence,
                kept,
            };
            let Some(chosen) = choose(network, this, chooses, observer, stop)? else {
                kept.retain(|_| false);
                return results.ok_or(RunError::Over);
            };
            (current, results, written) = (chosen, None, None);
            part = Part::new(ThisNode { node, neighbours: &neighbours, design }, current.clone())?;
        }
        let setup = {
            let mut learner = lock(&learner);
            // Its state at the beginning; a checkpoint replaces it.
            let _ = initial.clone().restore(|visitor| _ = learner.state(visitor));
            learner.setup()
        };
        if let Some(kept) = &mut checkpoints {
            kept.results.clone_from(&written);
        }
        start = Start {
            config: part.config(setup),
            membership: current.clone(),
            learner: Arc::clone(&learner),
            checkpoints: checkpoints.clone(),
            took_part: true,
            confirms: true,
            results,
        };
    }
}

/// A node in its topology.
#[derive(Clone, Copy)]
struct ThisNode<'n, 'a> {
    node: NodeId,
    /// Its neighbours in the whole topology.
    neighbours: &'n [Neighbour],
    /// The run of all nodes.
    design: &'a Design,
}

/// A membership as this node sees it.
pub(crate) struct Part<'a> {
    /// The design of the run.
    pub whole: &'a Design,
    /// The design of the members, if they are not all nodes.
    restricted: Option<Design>,
    pub membership: Membership,
    /// This node's number among the members.
    pub id: NodeId,
    /// The numbers in the topology of the run: of the members, then of the other neighbours.
    pub numbers: Vec<NodeId>,
    /// The neighbours, by their numbers among `numbers`.
    pub neighbours: Vec<Neighbour>,
}

impl<'a> Part<'a> {
    /// # Errors
    /// If the run cannot continue with these members.
    fn new(
        ThisNode { node, neighbours, design: whole }: ThisNode<'_, 'a>,
        membership: Membership,
    ) -> Result<Part<'a>, RunError> {
        let is_whole = membership.is_whole(whole.topology.nodes());
        let Membership { members, cut, .. } = &membership;
        let restricted = (!is_whole).then(|| whole.restricted(members, cut)).transpose();
        let restricted = restricted.map_err(|error| {
            let nodes = membership.absent(whole.topology.nodes());
            let text = format!("the run cannot continue without the missing nodes: {error}");
            RunError::Deadline { nodes, text }
        })?;
        let Some(id) = membership.place(node) else {
            let problem = "names members without this node".to_string();
            return Err(RunError::Setup(ConfigError::at("membership", problem)));
        };
        let mut numbers = members.clone();
        let used = |other: NodeId| {
            let link = (node.min(other), node.max(other));
            membership.place(other).filter(|_| !cut.contains(&link))
        };
        let neighbours = neighbours.iter().map(|neighbour| {
            let (number, unused) = match (used(neighbour.node), membership.place(neighbour.node)) {
                (Some(number), _) => (number, false),
                (None, Some(number)) => (number, true),
                (None, None) => {
                    numbers.push(neighbour.node);
                    (NodeId::from(numbers.len() - 1), true)
                }
            };
            Neighbour { node: number, unused, ..neighbour.clone() }
        });
        let neighbours = neighbours.collect();
        Ok(Part { whole, restricted, membership, id, numbers, neighbours })
    }

    pub(crate) fn design(&self) -> &Design {
        self.restricted.as_ref().unwrap_or(self.whole)
    }

    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.design().topology
    }

    /// The neighbours, by their numbers in the topology, whose links are not used.
    fn unused(&self) -> impl Iterator<Item = NodeId> {
        let unused = self.neighbours.iter().filter(|neighbour| neighbour.unused);
        unused.map(|neighbour| self.numbers[neighbour.node.index()])
    }

    fn config(&self, setup: Option<Setup>) -> NodeConfig {
        self.design().node(self.id, setup, Readers::Everyone)
    }

    /// The error, with the numbers of the nodes in the topology of the run.
    fn blame(&self, error: RunError) -> RunError {
        let number = |node: NodeId| self.numbers.get(node.index()).copied().unwrap_or(node);
        match error {
            RunError::Failed { node, failure } => {
                RunError::Failed { node: number(node), failure: failure.renumbered(number) }
            }
            RunError::Deadline { nodes, text } => {
                RunError::Deadline { nodes: nodes.into_iter().map(number).collect(), text }
            }
            other => other,
        }
    }

    /// One attempt: the links are made again.
    fn attempt(
        &self,
        network: &mut dyn Network,
        start: Start,
        observer: &mut dyn NodeObserver,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, Stopped> {
        let restarts = start.checkpoints.is_some();
        let (links, own) = network.open(self, restarts, false)?;
        let worker = Worker {
            id: self.id,
            topology: Arc::clone(self.topology()),
            links,
            own,
            limits: Limits::of(&self.whole.experiment),
        };
        worker.run(start, observer, stop)
    }
}

/// A node that chooses members.
struct Chooses<'a> {
    /// The membership that it has adopted last.
    current: &'a Membership,
    /// Identifies its results, if it has written them.
    results: Option<u64>,
    /// The neighbours that it no longer awaits.
    absence: Absence,
    kept: &'a Checkpoints,
}

/// Chooses the members together with all nodes that are present.
fn choose(
    network: &mut dyn Network,
    this: ThisNode<'_, '_>,
    Chooses { current, results, absence, kept }: Chooses<'_>,
    observer: &mut dyn Observer,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Membership>, RunError> {
    let ThisNode { node, design, .. } = this;
    let (nodes, experiment) = (design.topology.nodes(), &design.experiment);
    let part = Part::new(this, Membership::all(nodes))?;
    let (links, _own) = network.open(&part, true, true)?;
    let mut local = LocalObserver { node, numbers: &part.numbers, observer, resumed: false };
    let quorum = experiment.absence.quorum_of(nodes);
    let first = experiment.run.start.quorum().map_or(nodes, |quorum| quorum as usize);
    let mut record = |membership: &Membership| {
        Part::new(this, membership.clone())?;
        kept.adopt(membership).map_err(RunError::Setup)
    };
    let chosen = Assembler {
        id: node,
        topology: &design.topology,
        links: &*links,
        observer: &mut local,
        stop,
        adopted: current.clone(),
        started: kept.has_started(),
        round: Round(kept.newest()),
        quorums: [first, quorum],
        deadline: [experiment.run.start.within(), experiment.absence.deadline()],
        patience: Duration::from_secs_f64(experiment.absence.wait_s),
        late: absence.late.into_iter().collect(),
        returned: absence.returned,
        results,
        record: &mut record,
    }
    .choose();
    if let Err(error) = &chosen {
        // The others need not wait.
        links.finish(Some(error.cause(node, &design.topology)), &mut || false);
    }
    chosen
}

/// Passes the events of the one local node to the observer.
struct LocalObserver<'a> {
    node: NodeId,
    /// The numbers of nodes in the topology of the run.
    numbers: &'a [NodeId],
    observer: &'a mut dyn Observer,
    /// Whether the node has continued.
    resumed: bool,
}

impl LocalObserver<'_> {
    fn number(&self, node: NodeId) -> NodeId {
        self.numbers.get(node.index()).copied().unwrap_or(node)
    }
}

impl NodeObserver for LocalObserver<'_> {
    fn round(&mut self, elapsed: Elapsed, done: RoundDone) -> Option<Round> {
        self.observer.round(self.node, elapsed, done);
        None
    }

    fn begins(&mut self, lent: &Lent) {
        self.observer.begins(self.node, lent);
    }

    fn resumes(&mut self, rounds: Round) {
        self.resumed = true;
        self.observer.resumes(self.node, rounds);
    }

    fn linked(&mut self, peer: NodeId, up: usize, links: usize) {
        self.observer.linked(self.node, self.number(peer), up, links);
    }

    fn link_lost(&mut self, peer: NodeId, reason: &str) {
        self.observer.link_lost(self.node, self.number(peer), reason);
    }

    fn waits(&mut self, waiting: &Waiting) {
        let peers = waiting.peers.iter().map(|peer| self.number(*peer)).collect();
        self.observer.waits(self.node, &Waiting { peers, text: waiting.text.clone() });
    }

    fn away(&mut self, nodes: &[(NodeId, String)]) {
        let numbered = |(node, why): &(NodeId, String)| (self.number(*node), why.clone());
        let nodes: Vec<_> = nodes.iter().map(numbered).collect();
        self.observer.away(self.node, &nodes);
    }

    fn save(&mut self, elapsed: Elapsed, own: OwnModel) {
        let renumbered = |link: &LinkTraffic| LinkTraffic { to: self.number(link.to), ..*link };
        let links = own.links.iter().map(renumbered).collect();
        self.observer.save(self.node, elapsed, &OwnModel { links, ..own });
    }

    fn mean(&mut self, mean: &[f32]) {
        self.observer.mean(mean);
    }

    fn ended(&mut self, ended: &Ended) {
        self.observer.ended(self.node, ended);
    }
}
