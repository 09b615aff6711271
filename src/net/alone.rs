//! One node of a network of machines, in this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use libp2p::{Multiaddr, PeerId, identity::Keypair};

use super::{
    companion::{Owned, lock},
    dial::{Reachable, address, dials, peer_of},
    hello::RunCard,
    host::{Host, HostConfig, Neighbour},
    limits::{Deadlines, Limits},
    reach,
    reservations::is_relayed,
    runtime,
    worker::{NodeObserver, Start, Stopped, Worker},
};
use crate::{
    config::ConfigError,
    drive::{Elapsed, Ended, Lent, NodeSpec, Observer, RunError, Waiting},
    gossip::{OwnModel, RoundDone, tree::Readers},
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
            all_addresses.insert(other, theirs);
            neighbours.push(Neighbour { node: other, name, peer });
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
    let learner: Owned = Arc::new(Mutex::new(learner));
    let mut observer = LocalObserver { node: place.node, observer };
    let mut start = Start {
        config,
        learner: Arc::clone(&learner),
        checkpoints: checkpoints.clone(),
        again: false,
        confirms: true,
        results: None,
    };
    loop {
        let (peer, results) = match attempt(&mut place, start, design, &mut observer, stop) {
            Ok(ended) => return Ok(ended),
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Restarted(peer, results)) => (peer, results.map(|results| *results)),
        };
        tracing::warn!(
            "node {} begins again: this node goes back to the newest checkpoint that all nodes \
             have",
            design.topology.node(peer).name
        );
        let setup = {
            let mut learner = lock(&learner);
            // Its state at the beginning; a checkpoint replaces it.
            let _ = initial.clone().restore(|visitor| _ = learner.state(visitor));
            learner.setup()
        };
        start = Start {
            config: design.node(place.node, setup, Readers::Everyone),
            learner: Arc::clone(&learner),
            checkpoints: checkpoints.clone(),
            again: true,
            confirms: true,
            results,
        };
    }
}

/// One attempt: the links are made anew.
fn attempt(
    place: &mut Place,
    start: Start,
    design: &Design,
    observer: &mut dyn NodeObserver,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ended, Stopped> {
    let run = &design.experiment.run;
    let runtime = runtime()?;
    let (own, events) = mpsc::channel();
    let id = place.node;
    let config = HostConfig {
        key: place.key.clone(),
        listen: place.listen.clone(),
        addresses: place.own_addresses.clone(),
        relayed: run.relayed,
        node: id,
        nodes: design.topology.nodes(),
        neighbours: place.neighbours.clone(),
        card: RunCard::new(design),
        frame_limit: design.frame_limit(),
        congestion: run.congestion.clone(),
        security: place.security,
        deadlines: Deadlines::of(&design.experiment),
        restarts: start.checkpoints.is_some(),
        events: own.clone(),
    };
    let host = runtime
        .block_on(Host::start(config))
        .map_err(|error| RunError::Setup(design.experiment.blame(error)))?;
    for address in host.listen_addresses() {
        tracing::info!(
            "node {} ({}) listens on {address}",
            design.topology.node(id).name,
            host.peer()
        );
    }
    // The next attempt keeps the ports that were free now.
    place.listen = host.listen_addresses().to_vec();
    let dialled = place.addresses.iter().filter(|(node, _)| place.dialled.contains(node));
    host.connect(dialled.map(|(node, addresses)| (*node, addresses.clone())).collect());
    let worker = Worker {
        id,
        topology: Arc::clone(&design.topology),
        host,
        events,
        own,
        limits: Limits::of(&design.experiment),
    };
    let ended = worker.run(start, observer, stop);
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Passes the events of the one local node to the observer.
struct LocalObserver<'a> {
    node: NodeId,
    observer: &'a mut dyn Observer,
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
        self.observer.linked(self.node, peer, up, links);
    }

    fn link_lost(&mut self, peer: NodeId, reason: &str) {
        self.observer.link_lost(self.node, peer, reason);
    }

    fn waits(&mut self, waiting: &Waiting) {
        self.observer.waits(self.node, waiting);
    }

    fn save(&mut self, elapsed: Elapsed, own: OwnModel) {
        self.observer.save(self.node, elapsed, &own);
    }

    fn mean(&mut self, mean: &[f32]) {
        self.observer.mean(mean);
    }

    fn ended(&mut self, ended: &Ended) {
        self.observer.ended(self.node, ended);
    }
}
