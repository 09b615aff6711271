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
    drive::NoopObserver,
    experiment::{Experiment, Transport},
    learn::{Batch, Objective, Tensor},
    mixing::{FileFormat, Topology},
    net::{Keypair, free_ports},
    node::{EndError, Event, NodeBuilder, NodeResult},
    run, sim,
};

const D: usize = 20_000;

/// f_i(x) = (1/2) |x - c_i|^2; a gradient takes a moment, so that a run lasts for some seconds.
struct Bowl {
    tensors: Vec<Tensor>,
    centre: Vec<f32>,
    pause: Duration,
}

fn bowl(node: usize, pause: Duration) -> Bowl {
    let centre = (0..D).map(|k| ((k * (node + 1)) as f32 * 0.37).sin()).collect();
    Bowl { tensors: vec![Tensor::new("x", &[D])], centre, pause }
}

impl Objective for Bowl {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        3
    }

    fn gradient(&mut self, x: &[f32], _batch: Batch<'_>, out: &mut [f32]) -> f64 {
        thread::sleep(self.pause);
        for ((out, x), centre) in out.iter_mut().zip(x).zip(&self.centre) {
            *out = x - centre;
        }
        self.loss(x)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        let square = |(x, centre): (&f32, &f32)| f64::from(x - centre).powi(2);
        x.iter().zip(&self.centre).map(square).sum::<f64>() / 2.0
    }
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

    /// Breaks all connections and accepts no new ones for a while.
    fn cut_for(&self, time: Duration) {
        self.state.refuses.store(true, Ordering::Relaxed);
        self.cut();
        thread::sleep(time);
        self.state.refuses.store(false, Ordering::Relaxed);
    }

    fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
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
    let mut text = "family = \"ring\"\nnodes = 3\n".to_string();
    for (i, key) in keys.iter().enumerate() {
        let (peer, port) = (key.public().to_peer_id(), proxies[i].port);
        let second = if quic { format!(", \"{}\"", quic_address(ports[i])) } else { String::new() };
        text += &format!(
            "[[node]]\nname = \"n{i}\"\npeer = \"{peer}\"\n\
             addresses = [\"/ip4/127.0.0.1/tcp/{port}\"{second}]\n"
        );
    }
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

fn simulated(experiment: &Experiment) -> Vec<Vec<f32>> {
    let objective = |i| Box::new(bowl(i, Duration::ZERO)) as Box<dyn Objective>;
    let specs = run::specs(experiment, &[0.0; D], (0..3).map(objective).collect()).unwrap();
    sim::run(specs, &mut NoopObserver).unwrap().into_iter().map(|ended| ended.model).collect()
}

/// Runs three nodes while `disturb` has the proxies, which begins with the first round.
fn run_disturbed(
    experiment: &Experiment,
    pause: Duration,
    disturb: impl FnOnce(&[Proxy]) + Send,
) -> Vec<Result<NodeResult, EndError>> {
    run_of(builders(experiment, false), pause, disturb)
}

fn run_of(
    (builders, proxies): (Vec<NodeBuilder>, Vec<Proxy>),
    pause: Duration,
    disturb: impl FnOnce(&[Proxy]) + Send,
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
        while !matches!(nodes[0].next_blocking(), Some(Event::Round { .. }) | None) {}
        scope.spawn(move || disturb(&proxies));
        nodes.into_iter().map(gradvine::node::Node::join_blocking).collect()
    })
}

fn check(experiment: &Experiment, results: Vec<Result<NodeResult, EndError>>) {
    let models = simulated(experiment);
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
        let results = run_disturbed(&experiment, MS(10), |proxies| {
            let before: u64 = proxies.iter().map(Proxy::accepted).sum();
            assert_eq!(before, 3, "a connection for each link");
            for turn in 0..12 {
                proxies[turn % 3].cut();
                thread::sleep(MS(97));
            }
            let connections: u64 = proxies.iter().map(Proxy::accepted).sum();
            assert!(connections >= before + 3, "{connections} connections: nothing was broken");
        });
        check(&experiment, results);
    }
}

/// No connection lasts for a whole frame of 80 or 160 kB.
#[test]
#[ignore = "slow"]
fn a_frame_continues_on_the_next_connection() {
    let experiment = experiment("run.rounds = 2\nrule.kind = 'd-psgd'");
    let results = run_disturbed(&experiment, MS(10), |proxies| {
        for proxy in proxies {
            proxy.state.most.store(50_000, Ordering::Relaxed);
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
        let results = run_disturbed(&experiment, MS(10), |proxies| {
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
    let results = run_disturbed(&experiment, MS(10), |proxies| {
        thread::scope(|scope| {
            for proxy in proxies {
                // Longer than `patience_s`, which is no limit for lost links.
                scope.spawn(|| proxy.cut_for(MS(8000)));
            }
        });
    });
    check(&experiment, results);
}

#[test]
fn a_link_that_does_not_come_back_ends_the_run_with_its_reason() {
    let experiment =
        experiment("run.rounds = 100000\nrule.kind = 'd-psgd'\nabsence.deadline_s = 1.5");
    let started = Instant::now();
    let ends = run_disturbed(&experiment, MS(5), |proxies| {
        proxies.iter().for_each(|proxy| proxy.state.refuses.store(true, Ordering::Relaxed));
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
    let results = run_disturbed(&experiment, MS(10), |proxies| {
        proxies.iter().for_each(|proxy| proxy.state.black_hole.store(true, Ordering::Relaxed));
        // Found after three heartbeats of five seconds.
        thread::sleep(Duration::from_secs(18));
        proxies.iter().for_each(|proxy| proxy.state.black_hole.store(false, Ordering::Relaxed));
        proxies.iter().for_each(Proxy::cut);
    });
    check(&experiment, results);
}

/// The TCP addresses die for good: the links continue over QUIC.
#[test]
#[ignore = "slow"]
fn a_link_moves_to_another_address_and_transport() {
    let experiment = experiment("run.rounds = 150\nrule.kind = 'choco'\ncompressor.kind = 'sign'");
    let results = run_of(builders(&experiment, true), MS(10), |proxies| {
        let before: u64 = proxies.iter().map(Proxy::accepted).sum();
        assert_eq!(before, 3, "TCP is tried first");
        proxies.iter().for_each(|proxy| proxy.state.refuses.store(true, Ordering::Relaxed));
        proxies.iter().for_each(Proxy::cut);
    });
    check(&experiment, results);
}

#[test]
#[ignore = "a minute; docs/testing.md"]
fn soak_connections_that_are_reset_every_second_for_a_minute_change_nothing() {
    let experiment = experiment("run.rounds = 4000\nrule.kind = 'd-psgd'");
    let results = run_disturbed(&experiment, MS(10), |proxies| {
        for _ in 0..60 {
            proxies.iter().for_each(Proxy::cut);
            thread::sleep(MS(1000));
        }
    });
    check(&experiment, results);
}
