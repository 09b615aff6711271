//! One node of a network of machines, in this process.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool, mpsc},
};

use libp2p::{
    Multiaddr, PeerId,
    identity::{Keypair, PublicKey},
};
use sha2::{Digest, Sha256};

use super::{
    deployment::{addresses_of, check_link},
    documents::Answers,
    driver::{
        self, Network, Opens, Role,
        links::{Links, OwnRuntime},
        observer::LocalObserver,
    },
    host::{Host, HostConfig},
    link::{hello::RunCard, limits::Deadlines, wire::ASSEMBLY},
    neighbour::Neighbour,
    relay::reservations::is_relayed,
    runtime,
    transport::{
        dial::{Reachable, address, dials, peer_of},
        layers::{Connecting, Proxy},
        reach,
    },
    upnp::{self, Forwarding},
};
#[cfg(feature = "internals")]
use crate::cluster::statements::{Said, Statement};
use crate::{
    cluster::{
        Opening,
        members::keys::{Keys, Named},
        part::{Adjacent, Part},
        waiting::limits::Limits,
    },
    config::ConfigError,
    drive::{Ended, NodeSpec, Observer, RunError},
    mixing::Topology,
    run::{Checkpoints, Design, Security},
    status::Board,
    units::NodeId,
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
    dialled: BTreeSet<NodeId>,
    warnings: Vec<String>,
    /// How it connects.
    pub(super) connecting: Connecting,
    /// Whether it asks its router for ports, and those that it has.
    pub(super) upnp: bool,
    forwarding: Forwarding,
    /// What it answers to sites that ask for documents.
    documents: Option<Answers>,
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
        let addresses = |node: NodeId| addresses_of(topology, node);
        let mine = addresses(node)?;
        let (relayed, direct): (Vec<_>, Vec<_>) = mine.iter().cloned().partition(is_relayed);
        let warnings = reach::unreached(&listen, &direct);
        let (mut neighbours, mut dialled) = (Vec::new(), BTreeSet::new());
        for &other in topology.neighbours(node) {
            let (name, peer, theirs) =
                (topology.node(other).name.clone(), peers[other.index()], addresses(other)?);
            check_link(topology, node, other)?;
            if dials(&me, Reachable::at(&mine), &peer, Reachable::at(&theirs)) {
                dialled.insert(other);
            } else if listen.is_empty() && relayed.is_empty() {
                return Err(ConfigError::at(
                    "node.listen",
                    format!("{name} will dial this node, which listens nowhere: name an address"),
                ));
            }
            neighbours.push(Neighbour {
                node: other,
                name,
                peer,
                unused: false,
                addresses: theirs,
                ban: None,
            });
        }
        let (connecting, upnp, forwarding) = (Connecting::default(), false, Forwarding::default());
        Ok(Place {
            key,
            listen,
            node,
            neighbours,
            own_addresses: mine,
            dialled,
            warnings,
            connecting,
            upnp,
            forwarding,
            documents: None,
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
        self.connecting.security = security;
        self
    }

    /// The same place; connections of TCP leave it through this proxy.
    ///
    /// # Errors
    /// As [`Proxy::parse`].
    pub fn with_proxy(mut self, proxy: Option<&str>) -> Result<Place, ConfigError> {
        self.connecting.proxy = proxy.map(|text| Proxy::parse("node.proxy", text)).transpose()?;
        Ok(self)
    }

    /// The same place; with `upnp` it asks its router to forward the ports on which it listens.
    ///
    /// # Errors
    /// If it listens on no address to which a router can forward a port.
    pub fn with_upnp(mut self, upnp: bool) -> Result<Place, ConfigError> {
        if upnp {
            upnp::check(&self.listen)?;
        }
        self.upnp = upnp;
        Ok(self)
    }

    /// The same place; its host answers sites that ask for documents.
    #[must_use]
    pub fn with_documents(mut self, answers: Option<Answers>) -> Place {
        self.documents = answers;
        self
    }

    /// The number of neighbours in the topology.
    pub fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// Whether this node dials that neighbour, not the other way round.
    pub fn dials(&self, node: NodeId) -> bool {
        self.dialled.contains(&node)
    }

    /// All addresses of this node and its neighbours.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Multiaddr> {
        let theirs = self.neighbours.iter().flat_map(|neighbour| &neighbour.addresses);
        self.own_addresses.iter().chain(theirs)
    }

    /// The addresses of a neighbour.
    pub(super) fn addresses_of(&self, node: NodeId) -> &[Multiaddr] {
        let mut neighbours = self.neighbours.iter();
        let found = neighbours.find(|neighbour| neighbour.node == node);
        found.map_or(&[], |neighbour| &neighbour.addresses)
    }

    /// The addresses of this node in the topology.
    pub fn own_addresses(&self) -> &[Multiaddr] {
        &self.own_addresses
    }

    /// The PeerId that follows from this node's key.
    pub fn peer(&self) -> PeerId {
        self.key.public().to_peer_id()
    }
}

/// Runs one node to its end. The observer receives every round and the models to save; `stop` is
/// called again and again and returns whether to leave now.
///
/// With `checkpoints` the node continues where it was, and goes back to a checkpoint when a
/// neighbour was started again, if its learner can.
///
/// # Errors
/// If a link breaks, a deadline passes, the node fails, or `stop` returns true; the neighbours get
/// the reason.
pub(crate) fn alone(
    site: Site,
    spec: NodeSpec,
    design: &Design,
    checkpoints: Option<Checkpoints>,
    observer: &mut dyn Observer,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ended, RunError> {
    let limits = Limits::of(&design.experiment);
    let (keys, board) = (Arc::clone(&site.keys), Arc::clone(&site.board));
    let ends = Arc::clone(&site.ends);
    let role = Role { design, limits, checkpoints, confirms: true, keys, board, ends };
    let mut local = LocalObserver { node: site.place.node, observer };
    driver::run(spec, role, &mut { site }, &mut local, stop)
}

/// The place of a node, what it signs with, and what nodes say about themselves.
pub(crate) struct Site {
    pub place: Place,
    keys: Arc<dyn Keys>,
    pub board: Arc<Board>,
    /// Set once this node asks all others to end the run.
    pub ends: Arc<AtomicBool>,
}

impl Site {
    /// The node at this place in the run of this design.
    ///
    /// # Errors
    /// If members may be chosen, and the PeerId of a node does not have its public key in it.
    pub(crate) fn new(place: Place, design: &Design) -> Result<Site, ConfigError> {
        let keys: Arc<dyn Keys> = match NodeKeys::new(&place.key, design) {
            Ok(keys) => Arc::new(keys),
            Err(error) if Limits::of(&design.experiment).may_continue => return Err(error),
            // Members are never chosen, and PeerIds of other kinds may take part.
            Err(_) => Arc::new(Named(place.node)),
        };
        let nodes = design.topology.nodes();
        let board = Arc::new(Board::new(place.node, nodes, Arc::clone(&keys)));
        Ok(Site { place, keys, board, ends: Arc::default() })
    }

    /// Signs what this node says in its first attempt, while all nodes are members.
    #[cfg(feature = "internals")]
    pub(crate) fn signer(&self) -> impl Fn(Said) -> Statement + Send + Sync + use<> {
        let (me, keys) = (self.place.node, Arc::clone(&self.keys));
        move |said| Statement::signed(&*keys, (me, me), (0, 1), said)
    }
}

/// The key of a node, and the public keys that the topology names.
#[derive(Debug)]
struct NodeKeys {
    key: Keypair,
    public: Vec<PublicKey>,
    /// What all statements of this run begin with.
    run: Vec<u8>,
}

impl NodeKeys {
    /// # Errors
    /// If the PeerId of a node does not have its public key in it, as those of Ed25519 do.
    fn new(key: &Keypair, design: &Design) -> Result<NodeKeys, ConfigError> {
        let topology = &design.topology;
        let public = |node: usize| {
            let peer = peer_of(topology, node.into())?;
            let digest = peer.as_ref().digest();
            PublicKey::try_decode_protobuf(digest).map_err(|error| {
                let place = format!("node {}: peer", topology.node(node.into()).name);
                ConfigError::new(place, peer, format!("it is not that of an Ed25519 key: {error}"))
            })
        };
        let public = (0..topology.nodes()).map(public).collect::<Result<Vec<_>, _>>()?;
        let texts = RunCard::new(design).texts().join("\n");
        let run = [design.experiment.run.id.as_bytes(), texts.as_bytes()].join(&0);
        Ok(NodeKeys { key: key.clone(), public, run: Sha256::digest(run).to_vec() })
    }

    fn bytes(&self, statement: &[u8]) -> Vec<u8> {
        [&self.run, statement].concat()
    }
}

impl Keys for NodeKeys {
    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        self.key.sign(&self.bytes(statement)).expect("an Ed25519 key signs")
    }

    fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
        let key = self.public.get(node.index());
        key.is_some_and(|key| key.verify(&self.bytes(statement), signature))
    }
}

impl Place {
    /// The neighbours, by their numbers among the members.
    fn neighbours_in(&self, part: &Part<'_>, opening: &Opening) -> Vec<Neighbour> {
        let one = |(neighbour, adjacent): (&Neighbour, &Adjacent)| {
            let ban = opening.bans.iter().find(|(node, _)| *node == adjacent.number);
            let ban = ban.map(|(_, ban)| ban.clone());
            let Adjacent { node, unused, .. } = *adjacent;
            Neighbour { node, unused, ban, ..neighbour.clone() }
        };
        self.neighbours.iter().zip(&part.neighbours).map(one).collect()
    }
}

impl Network for Site {
    fn open(&mut self, part: &Part<'_>, opening: &Opening, resumes: bool) -> Opens {
        let runtime = runtime()?;
        let experiment = &part.whole.experiment;
        let (own, events) = mpsc::channel();
        let id = if opening.chooses { ASSEMBLY } else { part.membership.id };
        let neighbours = self.place.neighbours_in(part, opening);
        let config = HostConfig {
            key: self.place.key.clone(),
            listen: self.place.listen.clone(),
            addresses: self.place.own_addresses.clone(),
            relayed: experiment.run.relayed,
            node: part.id,
            nodes: part.topology().nodes(),
            neighbours,
            card: RunCard::new(part.whole)
                .in_membership(id, part.numbers.clone())
                .because(opening.because.clone()),
            frame_limit: part.design().frame_limit(),
            congestion: experiment.run.congestion.clone(),
            connecting: self.place.connecting.clone(),
            outside: self.place.upnp.then(|| self.place.forwarding.outside()),
            deadlines: Deadlines::of(experiment),
            restarts: resumes,
            assembly: opening.chooses.then(|| Arc::clone(part.topology())),
            board: Arc::clone(&self.board),
            documents: self.place.documents.clone(),
            events: own.clone(),
        };
        let host = runtime.block_on(Host::start(config));
        let host = host.map_err(|error| RunError::Setup(experiment.blame(error)))?;
        for address in host.listen_addresses() {
            let name = &part.whole.topology.node(self.place.node).name;
            tracing::info!("node {name} ({}) listens on {address}", host.peer());
        }
        // The next attempt keeps the ports that were free now.
        self.place.listen = host.listen_addresses().to_vec();
        if self.place.upnp {
            self.place.forwarding.start(&self.place.listen);
        }
        let dialled = self.place.neighbours.iter().zip(&part.neighbours);
        let dialled = dialled.filter(|(_, adjacent)| self.place.dialled.contains(&adjacent.number));
        let dialled =
            dialled.map(|(neighbour, adjacent)| (adjacent.node, neighbour.addresses.clone()));
        host.connect(dialled);
        let runtime = OwnRuntime(Some(runtime));
        Ok((Links { host, events, runtime }, own))
    }
}
