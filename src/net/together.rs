//! All nodes of a run in this process, each a libp2p host of its own on loopback.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use libp2p::{Multiaddr, PeerId, identity::Keypair};

use super::{
    driver::{
        self, Network, Opens, Role,
        links::{Links, OwnRuntime},
        observer::NodeObserver,
    },
    host::{Host, HostConfig},
    link::{hello::RunCard, limits::Deadlines},
    neighbour::Neighbour,
    runtime_for,
    transport::{
        dial::{Reachable::Directly, dials},
        layers::Connecting,
    },
};
use crate::{
    cluster::{Opening, event::Event, members::keys::Named, part::Part, waiting::limits::Limits},
    drive::{Elapsed, Ended, Lent, NodeSpec, Observer, RunError, Waiting},
    experiment::Transport,
    gossip::{Failure, OwnModel, RoundDone},
    run::{Checkpoints, Design, Whole},
    status::Board,
    threads,
    units::{NodeId, Round},
};

/// The maximum number of rounds, over all nodes, that workers may be ahead of the observer: models
/// to evaluate take memory.
const MAX_UNSEEN: usize = 64;

/// How long the nodes of one process wait for each other.
const CONNECT: Duration = Duration::from_secs(60);

/// How long the last round may take, once the observer has asked to stop.
const LAST_ROUND: Duration = Duration::from_secs(1);

/// How often the observer is asked whether to stop.
const POLL: Duration = Duration::from_millis(100);

/// The round after which all nodes stop: later than every round that a node has started, so that
/// all of them can complete it.
#[derive(Default)]
struct StopRound {
    /// The latest round that any node has started.
    newest: Round,
    last: Option<Round>,
}

impl StopRound {
    /// A node reports a round before it can end the next: that takes a gradient, and it gets none
    /// meanwhile.
    fn done(&mut self, round: Round) -> Option<Round> {
        self.newest = self.newest.max(Round(round.0 + 1));
        self.last
    }

    fn ask(&mut self) {
        self.last.get_or_insert(Round(self.newest.0 + 1));
    }
}

enum Report {
    Begins(NodeId, Lent),
    Resumes(NodeId, Round),
    Linked(NodeId, NodeId, usize, usize),
    LinkLost(NodeId, NodeId, String),
    Waits(NodeId, Waiting),
    Round(NodeId, Elapsed, RoundDone),
    Save(NodeId, Elapsed, OwnModel),
    Mean(Vec<f32>),
    Ended(NodeId, Result<Ended, RunError>),
}

impl Report {
    /// Tells the observer. The end of a node is for its caller.
    fn pass_on(self, observer: &mut dyn Observer) {
        match self {
            Report::Begins(id, lent) => observer.begins(id, &lent),
            Report::Resumes(id, rounds) => observer.resumes(id, rounds),
            Report::Linked(id, peer, up, links) => observer.linked(id, peer, up, links),
            Report::LinkLost(id, peer, reason) => observer.link_lost(id, peer, &reason),
            Report::Waits(id, waiting) => observer.waits(id, &waiting),
            Report::Round(id, elapsed, done) => observer.round(id, elapsed, done),
            Report::Save(id, elapsed, own) => observer.save(id, elapsed, &own),
            Report::Mean(mean) => observer.mean(&mean),
            Report::Ended(..) => {}
        }
    }
}

/// Sends one node's events to the observer's thread, which runs until all nodes have ended.
struct Reporter<'a> {
    node: NodeId,
    stop_round: &'a Mutex<StopRound>,
    reports: SyncSender<Report>,
}

impl NodeObserver for Reporter<'_> {
    fn round(&mut self, elapsed: Elapsed, done: RoundDone) -> Option<Round> {
        let last = lock(self.stop_round).done(done.round);
        let _ = self.reports.send(Report::Round(self.node, elapsed, done));
        last
    }

    fn linked(&mut self, peer: NodeId, up: usize, links: usize) {
        let _ = self.reports.send(Report::Linked(self.node, peer, up, links));
    }

    fn link_lost(&mut self, peer: NodeId, reason: &str) {
        let _ = self.reports.send(Report::LinkLost(self.node, peer, reason.to_string()));
    }

    fn waits(&mut self, waiting: &Waiting) {
        let _ = self.reports.send(Report::Waits(self.node, waiting.clone()));
    }

    fn resumes(&mut self, rounds: Round) {
        let _ = self.reports.send(Report::Resumes(self.node, rounds));
    }

    fn begins(&mut self, lent: &Lent) {
        let _ = self.reports.send(Report::Begins(self.node, lent.clone()));
    }

    fn save(&mut self, elapsed: Elapsed, own: OwnModel) {
        let _ = self.reports.send(Report::Save(self.node, elapsed, own));
    }

    fn ended(&mut self, _ended: &Ended) -> bool {
        true
    }

    fn mean(&mut self, mean: &[f32]) {
        // The mean has the same bits at every node.
        if self.node == NodeId(0) {
            let _ = self.reports.send(Report::Mean(mean.to_vec()));
        }
    }
}

fn lock(stop_round: &Mutex<StopRound>) -> MutexGuard<'_, StopRound> {
    stop_round.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all nodes to their end. This thread calls the observer.
///
/// # Errors
/// The first failure of a node; the others then stop too.
///
/// ```
/// use gradvine::{experiment::Transport, net, prelude::*};
///
/// let settings = ["run.rounds=5", "topology.file=ring:3", "rule.kind=choco"].map(String::from);
/// let whole = Whole::new(Experiment::default_with(&settings)?)?;
/// let ended =
///     net::together(whole.specs(), &whole.design, Transport::Quic, &mut NoopObserver)?;
/// let summary = Summary::new(&whole.design, &ended[0].records)?;
/// assert_eq!((ended.len(), summary.nodes), (3, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn together(
    specs: Vec<NodeSpec>,
    design: &Design,
    transport: Transport,
    observer: &mut dyn Observer,
) -> Result<Vec<Ended>, RunError> {
    together_from(specs, design, transport, &|_| None, observer)
}

/// Runs all nodes of an experiment on loopback, with checkpoints in this run directory: it
/// continues where the run was.
///
/// # Errors
/// The first failure of a node; the others then stop too.
pub fn together_in(
    whole: &Whole,
    folder: &Path,
    observer: &mut dyn Observer,
) -> Result<Vec<Ended>, RunError> {
    let design = &whole.design;
    let card = RunCard::new(design);
    let checkpoints = Checkpoints::of_all(design, folder, card.texts()).map_err(RunError::Setup)?;
    let of_node = |node: NodeId| Some(checkpoints[node.index()].clone());
    together_from(whole.specs(), design, design.experiment.run.transport, &of_node, observer)
}

/// As [`together`], but continues where the run was. `checkpoints` returns those of a node.
fn together_from(
    specs: Vec<NodeSpec>,
    design: &Design,
    transport: Transport,
    checkpoints: &dyn Fn(NodeId) -> Option<Checkpoints>,
    observer: &mut dyn Observer,
) -> Result<Vec<Ended>, RunError> {
    let count = specs.len();
    // The runtime outlives the workers, whose hosts run on it.
    let runtime = runtime_for(count)?;
    let workers = runtime.block_on(hosts(count, design, transport))?;
    let stop_round = Mutex::new(StopRound::default());
    let limits = Limits::of(&design.experiment);
    // In one process no node can be absent, or be started later.
    let limits =
        Limits { may_continue: false, start: None, connect: limits.connect.min(CONNECT), ..limits };
    let (leave, mut asked) = (AtomicBool::new(false), None);
    let leave = &leave;
    let (sender, reports) = mpsc::sync_channel(MAX_UNSEEN.max(2 * count));
    let mut results = Results { of: (0..count).map(|_| None).collect(), known: 0 };
    thread::scope(|scope| {
        for (mut worker, spec) in workers.into_iter().zip(specs) {
            let (id, board) = (worker.id, Arc::clone(&worker.board));
            let checkpoints = checkpoints(id);
            let mut reporter =
                Reporter { node: id, stop_round: &stop_round, reports: sender.clone() };
            let started = threads::spawn_scoped(scope, "gradvine-node", move || {
                let mut stop = || leave.load(Ordering::Relaxed);
                // Members are never chosen here.
                let keys = Arc::new(Named(id));
                let ends = Arc::default();
                let role = Role { design, limits, checkpoints, confirms: false, keys, board, ends };
                let ended = driver::run(spec, role, &mut worker, &mut reporter, &mut stop);
                let _ = reporter.reports.send(Report::Ended(id, ended));
            });
            if let Err(error) = started {
                let text = format!("node {id} cannot be started: {error}");
                results.add(id, Err(RunError::Host(text)));
                leave.store(true, Ordering::Relaxed);
            }
        }
        drop(sender);
        loop {
            match reports.recv_timeout(POLL) {
                Ok(Report::Ended(id, ended)) => results.add(id, ended),
                Ok(report) => report.pass_on(observer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if observer.stop_after().is_some() {
                lock(&stop_round).ask();
                // Longer rounds are not awaited: each node saves its model.
                if asked.get_or_insert_with(Instant::now).elapsed() >= LAST_ROUND {
                    leave.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    results.verdict()
}

/// The host of one node of all, which opens its links once.
struct Worker {
    id: NodeId,
    board: Arc<Board>,
    /// Its links, and the sender of its own events.
    opened: Option<(Links, mpsc::Sender<Event>)>,
}

impl Network for Worker {
    fn open(&mut self, _part: &Part<'_>, _opening: &Opening, _resumes: bool) -> Opens {
        let again = || RunError::Network("the links of one process are opened once".into());
        self.opened.take().ok_or_else(again)
    }
}

/// How the nodes have ended, with the order in which they did.
struct Results {
    of: Vec<Option<(usize, Result<Ended, RunError>)>>,
    known: usize,
}

impl Results {
    fn add(&mut self, node: NodeId, ended: Result<Ended, RunError>) {
        self.of[node.index()] = Some((self.known, ended));
        self.known += 1;
    }

    /// All results, or the failure that caused the others: of those of one kind the first.
    fn verdict(self) -> Result<Vec<Ended>, RunError> {
        let (mut ended, mut failures) = (Vec::new(), Vec::new());
        let last = self.known;
        for result in self.of {
            match result {
                Some((_, Ok(one))) => ended.push(one),
                Some((order, Err(error))) => failures.push((order, error)),
                None => {
                    let text = "a node's thread ended without a result".into();
                    failures.push((last, RunError::Network(text)));
                }
            }
        }
        let kind = |error: &RunError| match error {
            RunError::Failed { failure: Failure::Left { .. }, .. } => 3,
            RunError::Failed { failure: Failure::Link { .. }, .. } => 2,
            // All nodes share this host, and the first one to give up may not know the cause.
            RunError::Host(_) => 0,
            _ => 1,
        };
        failures.sort_by_key(|(order, error)| (kind(error), *order));
        failures.into_iter().next().map_or(Ok(ended), |(_, error)| Err(error))
    }
}

/// One host and worker per node, on free ports, with keys made for this run.
async fn hosts(
    count: usize,
    design: &Design,
    transport: Transport,
) -> Result<Vec<Worker>, RunError> {
    let listen: Multiaddr = match transport {
        Transport::Tcp => "/ip4/127.0.0.1/tcp/0",
        Transport::Quic => "/ip4/127.0.0.1/udp/0/quic-v1",
    }
    .parse()
    .expect("a multiaddress");
    let keys: Vec<Keypair> = (0..count).map(|_| Keypair::generate_ed25519()).collect();
    let peers: Vec<_> = keys.iter().map(|key| key.public().to_peer_id()).collect();
    let run = &design.experiment.run;
    let card = RunCard::new(design);
    let mut hosts = Vec::with_capacity(count);
    for (index, key) in keys.into_iter().enumerate() {
        let id = NodeId::from(index);
        let board = Arc::new(Board::of_one_process(id, count));
        let (own, events) = mpsc::channel();
        let config = HostConfig {
            key,
            listen: vec![listen.clone()],
            node: id,
            nodes: count,
            neighbours: neighbours_of(id, design, &peers),
            card: card.clone(),
            frame_limit: design.frame_limit(),
            congestion: run.congestion.clone(),
            addresses: Vec::new(),
            relayed: false,
            connecting: Connecting::default(),
            outside: None,
            deadlines: Deadlines::of(&design.experiment),
            restarts: false,
            assembly: None,
            documents: None,
            board: Arc::clone(&board),
            events: own.clone(),
        };
        let host = Host::start(config).await;
        let host = host.map_err(|error| RunError::Setup(design.experiment.blame(error)))?;
        hosts.push((host, board, events, own));
    }
    let addresses: Vec<Vec<Multiaddr>> =
        hosts.iter().map(|(host, ..)| host.listen_addresses().to_vec()).collect();
    let worker = |(index, (host, board, events, own)): (usize, (Host, _, _, _))| {
        let id = NodeId::from(index);
        let ours = |node: &&NodeId| dials(&host.peer(), Directly, &peers[node.index()], Directly);
        let dialled = design.topology.neighbours(id).iter().filter(ours);
        host.connect(dialled.map(|&node| (node, addresses[node.index()].clone())));
        let links = Links { host, events, runtime: OwnRuntime::default() };
        Worker { id, board, opened: Some((links, own)) }
    };
    Ok(hosts.into_iter().enumerate().map(worker).collect())
}

/// The neighbours of a node, whose addresses are known once their hosts listen.
fn neighbours_of(id: NodeId, design: &Design, peers: &[PeerId]) -> Vec<Neighbour> {
    let neighbour = |&node: &NodeId| Neighbour {
        node,
        name: design.topology.node(node).name.clone(),
        peer: peers[node.index()],
        unused: false,
        addresses: Vec::new(),
        ban: None,
    };
    design.topology.neighbours(id).iter().map(neighbour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_its_kind_is_the_cause() {
        let failed = |text: &str| Err(RunError::Network(text.into()));
        let told = |ends: &[(u32, Result<Ended, RunError>)]| {
            let mut results = Results { of: (0..3).map(|_| None).collect(), known: 0 };
            for (node, ended) in ends {
                let Err(error) = ended else { continue };
                results.add(NodeId(*node), Err(error.clone()));
            }
            results.verdict().unwrap_err().to_string()
        };
        let waits = (0, failed("node 0 waits for 1"));
        let file = (1, failed("a file cannot be opened"));
        let host = (2, Err(RunError::Host("this host is out of files".into())));
        assert!(told(&[file.clone(), waits.clone()]).contains("a file cannot be opened"));
        assert!(told(&[waits.clone(), file.clone()]).contains("node 0 waits for 1"));
        assert!(told(&[waits, file, host]).contains("this host is out of files"));
    }
}
