//! One node of a network of machines, in this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use libp2p::{Multiaddr, PeerId, identity::Keypair};

use super::{
    assemble::Assembler,
    ban::Bans,
    companion::{Owned, lock},
    dial::{Reachable, address, dials, peer_of},
    event::Event,
    hello::RunCard,
    host::{Host, HostConfig, Neighbour},
    limits::{Deadlines, Limits},
    reach,
    reservations::is_relayed,
    runtime,
    wire::ASSEMBLY,
    worker::{NodeObserver, Start, Stopped, Worker},
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
    run::{Checkpoints, Design, Security},
    state::State,
    units::{NodeId, Round},
};

/// Where a node is in its network: its number, its addresses, the neighbours that it dials.
pub struct Place {
    pub(super) key: Keypair,
    pub(super) listen: Vec<Multiaddr>,
    /// Which node of the topology this is.
    pub node: NodeId,
    pub(super) neighbours: Vec<Neighbour>,
    /// The addresses of this node in the topology.
    pub(super) own_addresses: Vec<Multiaddr>,
    /// All addresses of the neighbours.
    addresses: BTreeMap<NodeId, Vec<Multiaddr>>,
    dialled: BTreeSet<NodeId>,
    warnings: Vec<String>,
    /// How its TCP connections are encrypted.
    pub(super) security: Security,
}

impl Place {
    /// Looks up the key in the topology and checks that every link has an end that can dial.
    ///
    /// # Errors
    /// If the topology does not name this key or a neighbour's, an address is wrong, or a link has
    /// no address at either end.
    pub fn new(key: Keypair, listen: &[String], topology: &Topology) -> Result<Place, ConfigError> {
        let me = key.public().to_peer_id();
        let listen = listen
            .iter()
            .map(|text| address("node.listen", text))
            .collect::<Result<Vec<_>, _>>()?;
        let peers = (0..topology.nodes())
            .map(|node| peer_of(topology, NodeId::from(node)))
            .collect::<Result<Vec<PeerId>, _>>()?;
        let Some(node) = peers.iter().position(|peer| *peer == me).map(NodeId::from) else {
            return Err(ConfigError::new(
                "node.key",
                me,
                "the topology names no node with this PeerId: add it, or use the right key",
            ));
        };
        let addresses = |node: NodeId| {
            let info = topology.node(node);
            let place = format!("node {}: addresses", info.name);
            info.addresses.iter().map(|text| address(&place, text)).collect::<Result<Vec<_>, _>>()
        };
        let mine = addresses(node)?;
        let (relayed, direct): (Vec<_>, Vec<_>) = mine.iter().cloned().partition(is_relayed);
        let warnings = reach::unreached(&listen, &direct);
        let (mut neighbours, mut dialled) = (Vec::new(), BTreeSet::new());
        let mut all_addresses = BTreeMap::new();
        for &other in topology.neighbours(node) {
            let (name, peer, theirs) =
                (topology.node(other).name.clone(), peers[other.index()], addresses(other)?);
            if mine.is_empty() && theirs.is_empty() {
                let place = format!("link {} - {name}", topology.node(node).name);
                return Err(ConfigError::at(
                    place,
                    "neither end has an address: give one of them `addresses` in the topology",
                ));
            }
            if dials(&me, Reachable::at(&mine), &peer, Reachable::at(&theirs)) {
                dialled.insert(other);
            } else if listen.is_empty() && relayed.is_empty() {
                return Err(ConfigError::at(
                    "node.listen",
                    format!("{name} will dial this node, which listens nowhere: name an address"),
                ));
            }
            all_addresses.insert(other, theirs.clone());
            let addresses = theirs;
            neighbours.push(Neighbour {
                node: other,
                name,
                peer,
                visits: false,
                addresses,
                ban: None,
            });
        }
        let security = Security::default();
        let (own_addresses, addresses) = (mine, all_addresses);
        Ok(Place {
            key,
            listen,
            node,
            neighbours,
            own_addresses,
            addresses,
            dialled,
            warnings,
            security,
        })
    }

    /// What may be wrong, a line each: addresses of this node in the topology on which it does not
    /// listen.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The same place with another choice of encryption.
    #[must_use]
    pub fn with_security(mut self, security: Security) -> Place {
        self.security = security;
        self
    }

    /// The number of neighbours.
    pub fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// Whether this node dials that neighbour, not the other way round.
    pub fn dials(&self, node: NodeId) -> bool {
        self.dialled.contains(&node)
    }

    /// All addresses of this node and its neighbours.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Multiaddr> {
        self.own_addresses.iter().chain(self.addresses.values().flatten())
    }

    /// The addresses of a neighbour.
    pub(super) fn addresses_of(&self, node: NodeId) -> &[Multiaddr] {
        self.addresses.get(&node).map_or(&[], Vec::as_slice)
    }

    /// This node's PeerId.
    pub fn peer(&self) -> PeerId {
        self.key.public().to_peer_id()
    }
}

/// Runs one node to its end. The observer receives every round and the models to save; `stop` is
/// called again and again and returns whether to leave now.
///
/// With `checkpoints` the node goes on where it was, and goes back to a checkpoint when a neighbour
/// was started again, if its learner can.
///
/// # Errors
/// If a link breaks, a deadline passes, the node fails, or `stop` returns true; the neighbours get
/// the reason.
pub fn alone(
    mut place: Place,
    spec: NodeSpec,
    design: &Design,
    checkpoints: Option<Checkpoints>,
    observer: &mut dyn Observer,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ended, RunError> {
    let NodeSpec { config, mut learner } = spec;
    let mut initial = State::default();
    let checkpoints = checkpoints.filter(|_| learner.state(&mut initial));
    let nodes = design.topology.nodes();
    let goes_on = design.experiment.absence.policy == Policy::Continue;
    if goes_on && checkpoints.is_none() {
        let problem = "this node writes no checkpoints: it needs a run directory, and a learner \
                       that can be put back";
        return Err(RunError::Setup(ConfigError::new("absence.policy", "continue", problem)));
    }
    let adopted = checkpoints.as_ref().map(Checkpoints::membership).transpose();
    let adopted = adopted.map_err(RunError::Setup)?.flatten();
    let mut current = adopted.unwrap_or_else(|| Membership::all(nodes));
    let mut part = Part::new(&place, design, current.clone())?;
    let mut bans = Bans::default();
    let learner: Owned = Arc::new(Mutex::new(learner));
    let mut start = Start {
        config: match current.is_whole(nodes) {
            true => config,
            false => part.config(lock(&learner).setup()),
        },
        membership: current.clone(),
        learner: Arc::clone(&learner),
        checkpoints: checkpoints.clone(),
        again: false,
        confirms: true,
        results: None,
    };
    loop {
        let mut local = LocalObserver { node: place.node, numbers: &part.numbers, observer };
        let stopped = match part.attempt(&mut place, start, &mut local, stop) {
            Ok(ended) => return Ok(ended),
            Err(stopped) => stopped,
        };
        let (absence, results) = match stopped {
            Stopped::Failed(error) => return Err(part.blame(error)),
            Stopped::Restarted(peer, results) => {
                tracing::warn!(
                    "node {} begins again: this node goes back to the newest checkpoint that all \
                     nodes have",
                    part.topology().node(peer).name
                );
                (None, results.map(|results| *results))
            }
            Stopped::Absent(absence) => (Some(absence), None),
            Stopped::Broken(peer, failure) => {
                let number = part.numbers[peer.index()];
                let reason = failure.describe(&|node| part.topology().node(node).name.clone());
                let seconds = bans.add(number, reason.clone(), Instant::now()).as_secs();
                tracing::warn!(
                    "{reason}; this node refuses node {} for {seconds} s",
                    design.topology.node(number).name
                );
                (Some(Absence::of(peer)), None)
            }
        };
        bans.apply(&mut place.neighbours, Instant::now());
        if let Some(absence) = absence {
            let numbers = |peers: Vec<NodeId>| -> Vec<NodeId> {
                peers.into_iter().map(|peer| part.numbers[peer.index()]).collect()
            };
            let (mut late, back) = (numbers(absence.late), numbers(absence.back));
            late.extend(part.unused().filter(|peer| !back.contains(peer)));
            let absence = Absence { late, back };
            let kept = checkpoints.as_ref().expect("a run that goes on has checkpoints");
            current = choose(&mut place, design, &current, absence, kept, observer, stop)?;
            part = Part::new(&place, design, current.clone())?;
        }
        let setup = {
            let mut learner = lock(&learner);
            // Its state at the beginning; a checkpoint replaces it.
            let _ = initial.clone().restore(|visitor| _ = learner.state(visitor));
            learner.setup()
        };
        start = Start {
            config: part.config(setup),
            membership: current.clone(),
            learner: Arc::clone(&learner),
            checkpoints: checkpoints.clone(),
            again: true,
            confirms: true,
            results,
        };
    }
}

/// A membership as this node sees it.
struct Part<'a> {
    /// The design of the run.
    whole: &'a Design,
    /// The design of the members, if they are not all nodes.
    restricted: Option<Design>,
    membership: Membership,
    /// This node's number among the members.
    id: NodeId,
    /// The numbers in the topology of the run: of the members, then of neighbours that are none.
    numbers: Vec<NodeId>,
    /// The neighbours with their numbers here.
    neighbours: Vec<Neighbour>,
}

impl<'a> Part<'a> {
    /// # Errors
    /// If the run cannot go on with these members.
    fn new(place: &Place, whole: &'a Design, membership: Membership) -> Result<Part<'a>, RunError> {
        let is_whole = membership.is_whole(whole.topology.nodes());
        let Membership { members, cut, .. } = &membership;
        let restricted = (!is_whole).then(|| whole.restricted(members, cut)).transpose();
        let restricted = restricted.map_err(|error| {
            let why = format!("the run cannot go on without the missing nodes: {error}");
            RunError::Deadline(why)
        })?;
        let Some(id) = membership.place(place.node) else {
            let problem = "names members without this node".to_string();
            return Err(RunError::Setup(ConfigError::at("membership", problem)));
        };
        let mut numbers = members.clone();
        let used = |other: NodeId| {
            let link = (place.node.min(other), place.node.max(other));
            membership.place(other).filter(|_| !cut.contains(&link))
        };
        let neighbours = place.neighbours.iter().map(|neighbour| {
            let (node, visits) = match (used(neighbour.node), membership.place(neighbour.node)) {
                (Some(node), _) => (node, false),
                (None, Some(node)) => (node, true),
                (None, None) => {
                    numbers.push(neighbour.node);
                    (NodeId::from(numbers.len() - 1), true)
                }
            };
            Neighbour { node, visits, ..neighbour.clone() }
        });
        let neighbours = neighbours.collect();
        Ok(Part { whole, restricted, membership, id, numbers, neighbours })
    }

    fn design(&self) -> &Design {
        self.restricted.as_ref().unwrap_or(self.whole)
    }

    fn topology(&self) -> &Arc<Topology> {
        &self.design().topology
    }

    /// The neighbours, by their numbers in the topology, whose links are not used.
    fn unused(&self) -> impl Iterator<Item = NodeId> {
        let unused = self.neighbours.iter().filter(|neighbour| neighbour.visits);
        unused.map(|neighbour| self.numbers[neighbour.node.index()])
    }

    /// This node's core.
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
            other => other,
        }
    }

    /// One attempt: the links are made anew.
    fn attempt(
        &self,
        place: &mut Place,
        start: Start,
        observer: &mut dyn NodeObserver,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, Stopped> {
        let runtime = runtime()?;
        let restarts = start.checkpoints.is_some();
        let (host, events, own) = runtime.block_on(self.host(place, restarts, false))?;
        let worker = Worker {
            id: self.id,
            topology: Arc::clone(self.topology()),
            host,
            events,
            own,
            limits: Limits::of(&self.whole.experiment),
        };
        let ended = worker.run(start, observer, stop);
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended
    }

    /// Starts a host that dials the neighbours; in an `assembly`, one for the choice of members.
    async fn host(
        &self,
        place: &mut Place,
        restarts: bool,
        assembly: bool,
    ) -> Result<(Host, Receiver<Event>, Sender<Event>), RunError> {
        let run = &self.whole.experiment.run;
        let (own, events) = mpsc::channel();
        let id = if assembly { ASSEMBLY } else { self.membership.id };
        let config = HostConfig {
            key: place.key.clone(),
            listen: place.listen.clone(),
            addresses: place.own_addresses.clone(),
            relayed: run.relayed,
            node: self.id,
            nodes: self.topology().nodes(),
            neighbours: self.neighbours.clone(),
            card: RunCard::new(self.whole).in_membership(id, self.numbers.clone()),
            frame_limit: self.design().frame_limit(),
            congestion: run.congestion.clone(),
            security: place.security,
            deadlines: Deadlines::of(&self.whole.experiment),
            restarts,
            assembly: assembly.then(|| Arc::clone(self.topology())),
            events: own.clone(),
        };
        let host = Host::start(config)
            .await
            .map_err(|error| RunError::Setup(self.whole.experiment.blame(error)))?;
        for address in host.listen_addresses() {
            let name = &self.whole.topology.node(place.node).name;
            tracing::info!("node {name} ({}) listens on {address}", host.peer());
        }
        // The next attempt keeps the ports that were free now.
        place.listen = host.listen_addresses().to_vec();
        let dialled = self.neighbours.iter().filter_map(|neighbour| {
            let number = self.numbers[neighbour.node.index()];
            let addresses = place.addresses.get(&number)?.clone();
            place.dialled.contains(&number).then_some((neighbour.node, addresses))
        });
        host.connect(dialled.collect());
        Ok((host, events, own))
    }
}

/// Chooses the members together with all nodes that are here.
fn choose(
    place: &mut Place,
    design: &Design,
    current: &Membership,
    absence: Absence,
    checkpoints: &Checkpoints,
    observer: &mut dyn Observer,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Membership, RunError> {
    let (nodes, experiment) = (design.topology.nodes(), &design.experiment);
    let part = Part::new(place, design, Membership::all(nodes))?;
    let runtime = runtime()?;
    let (host, events, _own) = runtime.block_on(part.host(place, true, true))?;
    let mut local = LocalObserver { node: place.node, numbers: &part.numbers, observer };
    let quorum = experiment.absence.quorum_of(nodes);
    let first = experiment.run.start.quorum().map_or(nodes, |quorum| quorum as usize);
    let mut record = |membership: &Membership| {
        Part::new(place, design, membership.clone())?;
        checkpoints.adopt(membership).map_err(RunError::Setup)
    };
    let chosen = Assembler {
        id: place.node,
        topology: &design.topology,
        host: &host,
        events: &events,
        observer: &mut local,
        stop,
        adopted: current.clone(),
        begun: checkpoints.has_begun(),
        round: Round(checkpoints.newest()),
        quorums: [first, quorum],
        deadline: [experiment.run.start.within(), experiment.absence.deadline()],
        patience: Duration::from_secs_f64(experiment.absence.wait_s),
        late: absence.late.into_iter().collect(),
        back: absence.back,
        record: &mut record,
    }
    .choose();
    match &chosen {
        Ok(_) => drop(host),
        // The others need not wait.
        Err(error) => {
            host.finish(Some(error.cause(place.node, &design.topology)), &mut || false);
        }
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    chosen
}

/// Passes the events of the one local node to the observer.
struct LocalObserver<'a> {
    node: NodeId,
    /// The numbers of nodes in the topology of the run.
    numbers: &'a [NodeId],
    observer: &'a mut dyn Observer,
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
