//! Links that outlive their connections: through a proxy that breaks them, every run ends with the
//! bits of an undisturbed one.

#![cfg(feature = "net")]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    experiment::{Experiment, Transport},
    learn::Tensor,
    mixing::{FileFormat, Topology},
    net::{Keypair, free_ports},
    node::{EndError, Event, Node, NodeBuilder, NodeResult},
};

use crate::{
    bowl::{Bowl, file, simulated},
    until, until_event,
};

const D: usize = 20_000;

fn bowl(node: usize, pause: Duration) -> Bowl {
    Bowl::new(node, &[Tensor::new("x", &[D])], pause)
}

/// Passes TCP connections on to a node, until told otherwise.
struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    open: Mutex<Vec<TcpStream>>,
    /// Accepts and passes nothing.
    black_hole: AtomicBool,
    /// Closes new connections at once.
    refuses: AtomicBool,
    accepted: AtomicU64,
    /// The bytes that a connection carries in one direction before it breaks; 0 for any number.
    most: AtomicU64,
}

impl Proxy {
    fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if shared.refuses.load(Ordering::Relaxed) {
                    continue;
                }
                let Some(far) = connect(port) else { continue };
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                let mut open = shared.open.lock().unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    open.push(from.try_clone().unwrap());
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || pass(from, to, &shared));
                }
            }
        });
        Proxy { port: own, state }
    }

    /// Breaks all connections, in the middle of whatever they carry.
    fn cut(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether it closes new connections at once.
    fn refuses(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Whether it accepts and passes nothing.
    fn swallows(&self, swallows: bool) {
        self.state.black_hole.store(swallows, Ordering::Relaxed);
    }
}

/// Connects to a node that may not listen yet.
fn connect(port: u16) -> Option<TcpStream> {
    for _ in 0..250 {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            return Some(stream);
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 3000];
    let mut carried = 0;
    loop {
        let most = state.most.load(Ordering::Relaxed);
        if most > 0 && carried > most {
            break;
        }
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(_) if state.black_hole.load(Ordering::Relaxed) => {}
            Ok(read) if to.write_all(&buffer[..read]).is_err() => break,
            Ok(read) => carried += read as u64,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn experiment(more: &str) -> Experiment {
    let text = format!(
        "run.evaluate_every = 1000\nrun.connect_s = 20.0\ntopology.file = 'ring:3'\n\
         optimizer = {{ step = 0.1, batch = 'full' }}\n{more}"
    );
    Experiment::parse(&text, &[]).unwrap()
}

/// Builders of a ring of three whose links go through one proxy per node; with `quic`, each node
/// also has an address of QUIC, without a proxy.
fn builders(experiment: &Experiment, quic: bool) -> (Vec<NodeBuilder>, Vec<Proxy>) {
    let keys: Vec<Keypair> = (0..3).map(|_| Keypair::generate_ed25519()).collect();
    let ports = free_ports(Transport::Tcp, keys.len()).unwrap();
    let proxies: Vec<Proxy> = ports.iter().map(|&port| Proxy::to(port)).collect();
    let addresses = |(proxy, &port): (&Proxy, &u16)| {
        let first = format!("/ip4/127.0.0.1/tcp/{}", proxy.port);
        std::iter::once(first).chain(quic.then(|| quic_address(port))).collect()
    };
    let addresses: Vec<_> = proxies.iter().zip(&ports).map(addresses).collect();
    let text = file("ring", &keys, &addresses);
    let topology = Topology::from_text(&text, FileFormat::Toml, "ring").unwrap();
    let builder = |(key, port): (Keypair, u16)| {
        let builder = NodeBuilder::new(key, topology.clone(), experiment.clone())
            .listen(format!("/ip4/127.0.0.1/tcp/{port}"))
            .initial(vec![0.0; D]);
        if quic { builder.listen(quic_address(port)) } else { builder }
    };
    (keys.into_iter().zip(ports).map(builder).collect(), proxies)
}

fn quic_address(port: u16) -> String {
    format!("/ip4/127.0.0.1/udp/{port}/quic-v1")
}

/// Connections of all proxies so far.
fn connections(proxies: &[Proxy]) -> u64 {
    proxies.iter().map(|proxy| proxy.state.accepted.load(Ordering::Relaxed)).sum()
}

/// Runs three nodes while `disturb`, which begins with the first round, has the proxies and the
/// first node.
fn run_disturbed(
    experiment: &Experiment,
    pause: Duration,
    disturb: impl FnOnce(&[Proxy], &mut Node),
) -> Vec<Result<NodeResult, EndError>> {
    run_of(builders(experiment, false), pause, disturb)
}

fn run_of(
    (builders, proxies): (Vec<NodeBuilder>, Vec<Proxy>),
    pause: Duration,
    disturb: impl FnOnce(&[Proxy], &mut Node),
) -> Vec<Result<NodeResult, EndError>> {
    thread::scope(|scope| {
        let nodes: Vec<_> = builders
            .into_iter()
            .enumerate()
            .map(|(i, builder)| {
                scope.spawn(move || builder.objective(bowl(i, pause)).spawn_blocking().unwrap())
            })
            .collect();
        let mut nodes: Vec<_> = nodes.into_iter().map(|node| node.join().unwrap()).collect();
        until_event(&mut nodes[0], "the first round", |event| matches!(event, Event::Round { .. }));
        disturb(&proxies, &mut nodes[0]);
        nodes.into_iter().map(Node::join_blocking).collect()
    })
}

fn check(experiment: &Experiment, results: Vec<Result<NodeResult, EndError>>) {
    let bowls = (0..3).map(|i| bowl(i, Duration::ZERO));
    let models = simulated(experiment, &[0.0; D], bowls);
    let results: Vec<NodeResult> = results.into_iter().map(Result::unwrap).collect();
    for (i, result) in results.iter().enumerate() {
        assert!(result.model == models[i], "node {i} ends with other bits");
        assert_eq!(result.summary, results[0].summary);
    }
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
#[ignore = "slow"]
fn connections_that_break_again_and_again_change_nothing() {
    let rules = [
        "rule.kind = 'choco'\ncompressor = { kind = 'min-max', bits = 4 }",
        "rule.kind = 'd-psgd'",
        "rule.kind = 'gradient-tracking'",
    ];
    for rule in rules {
        let experiment = experiment(&format!("run.rounds = 150\n{rule}"));
        let results = run_disturbed(&experiment, MS(10), |proxies, _| {
            let before = connections(proxies);
            assert_eq!(before, 3, "a connection for each link");
            for turn in 0..12 {
                proxies[turn % 3].cut();
                thread::sleep(MS(97));
            }
            let after = connections(proxies);
            assert!(after >= before + 3, "{after} connections: nothing was broken");
        });
        check(&experiment, results);
    }
}

/// No connection lasts for a whole frame of 80 or 160 kB.
#[test]
#[ignore = "slow"]
fn a_frame_continues_on_the_next_connection() {
    let experiment = experiment("run.rounds = 1\nrule.kind = 'd-psgd'");
    let results = run_disturbed(&experiment, MS(10), |proxies, _| {
        for proxy in proxies {
            proxy.state.most.store(70_000, Ordering::Relaxed);
        }
    });
    check(&experiment, results);
}

/// The results of asynchronous rules depend on times; but no call is lost or answered twice.
#[test]
#[ignore = "slow"]
fn calls_of_asynchronous_rules_outlive_their_connections() {
    for rule in ["ad-psgd", "swarm"] {
        let experiment = experiment(&format!("run.rounds = 120\nrule.kind = '{rule}'"));
        let results = run_disturbed(&experiment, MS(10), |proxies, _| {
            for turn in 0..8 {
                proxies[turn % 3].cut();
                thread::sleep(MS(131));
            }
        });
        for result in results {
            assert_eq!(result.unwrap().summary.rounds, 120, "{rule}");
        }
    }
}

#[test]
#[ignore = "slow"]
fn a_node_without_any_connection_for_a_while_goes_on_where_it_was() {
    let experiment = experiment("run.rounds = 100\nrule.kind = 'd-psgd'\nrun.patience_s = 1");
    let results = run_disturbed(&experiment, MS(10), |proxies, node| {
        proxies.iter().for_each(|proxy| proxy.refuses(true));
        proxies.iter().for_each(Proxy::cut);
        // It says so after five seconds. `patience_s` is no limit for lost links.
        until_event(
            node,
            "it waits for its links",
            |event| matches!(event, Event::Waiting { text, .. } if text.contains("the link to")),
        );
        proxies.iter().for_each(|proxy| proxy.refuses(false));
    });
    check(&experiment, results);
}

#[test]
fn a_link_that_does_not_come_back_ends_the_run_with_its_reason() {
    let experiment =
        experiment("run.rounds = 100000\nrule.kind = 'd-psgd'\nabsence.deadline_s = 1.5");
    let started = Instant::now();
    let ends = run_disturbed(&experiment, MS(5), |proxies, _| {
        proxies.iter().for_each(|proxy| proxy.refuses(true));
        proxies.iter().for_each(Proxy::cut);
    });
    for end in ends {
        let text = end.unwrap_err().to_string();
        assert!(text.contains("did not return within 2 s (absence.deadline_s)"), "{text}");
    }
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
#[ignore = "slow"]
fn a_connection_that_swallows_everything_is_replaced() {
    let experiment = experiment("run.rounds = 60\nrule.kind = 'd-psgd'");
    let results = run_disturbed(&experiment, MS(10), |proxies, _| {
        proxies.iter().for_each(|proxy| proxy.swallows(true));
        // After three heartbeats of five seconds.
        until("each link has another connection", || connections(proxies) >= 6);
        proxies.iter().for_each(|proxy| proxy.swallows(false));
        proxies.iter().for_each(Proxy::cut);
    });
    check(&experiment, results);
}

/// The TCP addresses die for good: the links continue over QUIC.
#[test]
#[ignore = "slow"]
fn a_link_moves_to_another_address_and_transport() {
    let experiment = experiment("run.rounds = 150\nrule.kind = 'choco'\ncompressor.kind = 'sign'");
    let results = run_of(builders(&experiment, true), MS(10), |proxies, _| {
        assert_eq!(connections(proxies), 3, "TCP is tried first");
        proxies.iter().for_each(|proxy| proxy.refuses(true));
        proxies.iter().for_each(Proxy::cut);
    });
    check(&experiment, results);
}

#[test]
#[ignore = "a minute; docs/testing.md"]
fn soak_connections_that_are_reset_every_fifty_rounds_for_a_minute_change_nothing() {
    let experiment = experiment("run.rounds = 3100\nrule.kind = 'd-psgd'");
    let results = run_disturbed(&experiment, MS(10), |proxies, node| {
        for turn in 1..=60 {
            proxies.iter().for_each(Proxy::cut);
            until_event(
                node,
                "fifty rounds more",
                |event| matches!(event, Event::Round { rounds, .. } if *rounds >= 50 * turn),
            );
        }
    });
    check(&experiment, results);
}
