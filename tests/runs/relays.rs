//! Links through a relay: nodes without any address of their own end with the bits of the
//! simulation, over a relay that comes and goes, and only if the experiment allows it.

#![cfg(feature = "net")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use gradvine::{
    experiment::{Experiment, Transport},
    learn::Tensor,
    mixing::{FileFormat, Topology},
    net::{Keypair, Relay, RelayEvent, RelayFile, free_ports, identity},
    node::{EndError, Event, Node, NodeBuilder},
    status::Board,
};

use crate::{
    bowl::{self, Bowl},
    until, until_event,
};

const D: usize = 5_000;

fn bowl(node: usize) -> Bowl {
    Bowl::new(node, &[Tensor::new("x", &[D])], Duration::from_millis(5))
}

fn experiment(run: &str) -> Experiment {
    let text = format!(
        "run = {{ evaluate_every = 1000, {run} }}\ntopology.file = 'ring:2'\nrule.kind = 'd-psgd'\n\
         optimizer = {{ step = 0.1, batch = 'full' }}\n"
    );
    Experiment::parse(&text, &[]).unwrap()
}

/// A relay on a thread of its own.
struct Running {
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<RelayEvent>>>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    fn start(file: &RelayFile) -> Running {
        let relay = Relay::start(file).unwrap();
        let (stop, events) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, seen) = (Arc::clone(&stop), Arc::<Mutex<Vec<_>>>::clone(&events));
        let thread = thread::spawn(move || {
            let observe = |event| seen.lock().unwrap().push(event);
            relay.run(observe, || stopped.load(Ordering::Relaxed));
        });
        Running { stop, events, thread }
    }

    fn stop(self) -> Vec<RelayEvent> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        Arc::into_inner(self.events).unwrap().into_inner().unwrap()
    }
}

/// A relay's file, and builders of two nodes that can be reached there only.
struct Setup {
    file: RelayFile,
    keys: Vec<Keypair>,
    topology: Topology,
    /// What the nodes say, once they are prepared.
    boards: Arc<Mutex<Vec<Arc<Board>>>>,
    _folder: tempfile::TempDir,
}

fn relay_file(folder: &Path, port: u16) -> (RelayFile, PathBuf) {
    let topology = folder.join("topology.toml");
    let text = format!(
        "key = 'relay.key'\nlisten = ['/ip4/127.0.0.1/tcp/{port}']\n\
         topologies = ['topology.toml']\n"
    );
    fs::write(folder.join("relay.toml"), text).unwrap();
    (RelayFile::load(&folder.join("relay.toml")).unwrap(), topology)
}

fn setup() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let relay = identity::create(&folder.path().join("relay.key")).unwrap().public().to_peer_id();
    let port = free_ports(Transport::Tcp, 1).unwrap()[0];
    let keys: Vec<Keypair> = (0..2).map(|_| Keypair::generate_ed25519()).collect();
    let address = format!("/ip4/127.0.0.1/tcp/{port}/p2p/{relay}/p2p-circuit");
    let text = bowl::file("ring", &keys, &[vec![address.clone()], vec![address]]);
    let (file, path) = relay_file(folder.path(), port);
    fs::write(path, &text).unwrap();
    let topology = Topology::from_text(&text, FileFormat::Toml, "pair").unwrap();
    Setup { file, keys, topology, boards: Arc::default(), _folder: folder }
}

/// Starts both nodes, which listen nowhere: only the relay connects them.
fn nodes(setup: &Setup, experiment: &Experiment) -> Vec<Result<Node, EndError>> {
    thread::scope(|scope| {
        let both = [0, 1]
            .map(|node| scope.spawn(move || builder(setup, experiment, node).spawn_blocking()));
        both.into_iter().map(|node| node.join().unwrap()).collect()
    })
}

/// A node that listens nowhere.
fn builder(setup: &Setup, experiment: &Experiment, node: usize) -> NodeBuilder {
    NodeBuilder::new(setup.keys[node].clone(), setup.topology.clone(), experiment.clone())
        .initial(vec![0.0; D])
        .objective(bowl(node))
        .beside({
            let boards = Arc::clone(&setup.boards);
            move |prepared| boards.lock().unwrap().push(prepared.board())
        })
}

fn check(experiment: &Experiment, nodes: Vec<Result<Node, EndError>>) {
    let simulated = bowl::simulated(experiment, &[0.0; D], (0..2).map(bowl));
    for (node, simulated) in nodes.into_iter().zip(simulated) {
        let result = node.unwrap().join_blocking().unwrap();
        assert!(result.model == simulated, "other bits than in the simulator");
    }
}

#[test]
fn nodes_without_addresses_run_through_a_relay() {
    let (setup, experiment) = (setup(), experiment("rounds = 40, relayed = true"));
    let relay = Running::start(&setup.file);
    check(&experiment, nodes(&setup, &experiment));
    let events = relay.stop();
    for expected in ["Reserved { node: \"n0\" }", "Reserved { node: \"n1\" }", "Opened"] {
        let found = events.iter().any(|event| format!("{event:?}").contains(expected));
        assert!(found, "{expected} is missing: {events:?}");
    }
}

#[test]
#[ignore = "slow"]
fn a_relay_that_is_started_again_is_found_again() {
    let (setup, experiment) = (setup(), experiment("rounds = 400, relayed = true"));
    let relay = Running::start(&setup.file);
    let mut nodes = nodes(&setup, &experiment);
    let first = nodes[0].as_mut().unwrap();
    until_event(first, "the first round", |event| matches!(event, Event::Round { .. }));
    relay.stop();
    until_event(first, "the link breaks", |event| matches!(event, Event::LinkLost { .. }));
    // Both nodes say that their link goes through a relay, and that it is down.
    let says_so = |board: &Arc<Board>| {
        let heard = board.of(board.node());
        heard.is_some_and(|heard| heard.record.links.iter().any(|link| link.relayed && !link.up))
    };
    let both = || setup.boards.lock().unwrap().iter().filter(|board| says_so(board)).count() == 2;
    until("both nodes say so", both);
    let relay = Running::start(&setup.file);
    check(&experiment, nodes);
    let events = relay.stop();
    assert!(events.iter().any(|event| matches!(event, RelayEvent::Opened { .. })), "{events:?}");
}

#[test]
#[ignore = "slow"]
fn relayed_links_must_be_allowed() {
    let (setup, experiment) = (setup(), experiment("rounds = 40"));
    let relay = Running::start(&setup.file);
    let mut both = [0, 1].map(|node| builder(&setup, &experiment, node).start());
    for node in &mut both {
        until_event(node, "why it does not begin", |event| match event {
            Event::Waiting { text, .. } => text.contains("run.relayed = true"),
            event => {
                assert!(!matches!(event, Event::Linked { .. } | Event::Started), "{event:?}");
                false
            }
        });
    }
    relay.stop();
}

#[test]
#[ignore = "slow"]
fn a_relay_serves_nobody_else() {
    let (setup, experiment) = (setup(), experiment("rounds = 40, connect_s = 4.0, relayed = true"));
    let strangers = RelayFile {
        topologies: Vec::new(),
        peers: vec![Keypair::generate_ed25519().public().to_peer_id().to_string()],
        ..setup.file.clone()
    };
    let relay = Running::start(&strangers);
    for (i, node) in nodes(&setup, &experiment).into_iter().enumerate() {
        let Err(EndError::Failed(ending)) = node else { panic!("it ran") };
        assert_eq!(ending.awaited, [format!("n{}", 1 - i)], "{ending}");
    }
    assert_eq!(relay.stop(), []);
}

#[test]
fn a_relays_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    let good = "key = 'relay.key'\nlisten = ['/ip4/127.0.0.1/tcp/0']\npeers = ['x']\n";
    for (change, words) in [
        ("link_mbps = 0.0", "relay.link_mbps = 0: expected a number from 0.001 to 10000000"),
        ("total_mbps = inf", "relay.total_mbps = inf: expected a number"),
        ("links = 0", "relay.links = 0: expected a whole number from 1 to 65536"),
        ("lings = 3", "links"),
    ] {
        fs::write(&path, format!("{good}{change}\n")).unwrap();
        let error = RelayFile::load(&path).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("relay.toml"), "{error}");
    }
    fs::write(&path, good.replace("peers = ['x']", "")).unwrap();
    let error = RelayFile::load(&path).unwrap_err().to_string();
    assert!(error.contains("expected the nodes to serve"), "{error}");
    fs::write(&path, good).unwrap();
    identity::create(&folder.path().join("relay.key")).unwrap();
    let Err(error) = Relay::start(&RelayFile::load(&path).unwrap()) else { panic!("it starts") };
    assert!(error.to_string().contains("relay.peers = x: this is not a PeerId"), "{error}");
}
