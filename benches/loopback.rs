//! Rounds over loopback, encrypted, compared with bare streams that move the same bytes.
//!
//! `cargo bench --bench loopback` prints everything; a word behind `--` narrows it: `dense`, `dcd`,
//! `memory`, `digits`; with `dense` also numbers of nodes and parameters: `dense 2 25000000`.
//! `profile dcd min-max 8 25000000 100` makes only rounds, 100 of them, for a profiler.
//!
//! Every figure is printed with the limit that this machine sets in the same run: plain TCP and
//! bare Noise+Yamux streams with the same bytes in the same ring, both directions of every link at
//! once, with alternating measurements.

mod common;

use std::{sync::Arc, time::Instant};

use common::{Clock, Supplied, WARM, best, copy_speed, cpu, gradient, mean, median, peak_memory};
use futures::{AsyncReadExt as _, AsyncWriteExt as _, StreamExt as _};
use gradvine::{
    compress,
    drive::{NodeSpec, NoopObserver},
    experiment::{Experiment, Transport},
    gossip::tree::Readers,
    net,
    rng::{Purpose, Stream},
    run::{Design, Whole, topology},
    units::NodeId,
};
use libp2p::{StreamProtocol, SwarmBuilder, noise, swarm::SwarmEvent, tcp, yamux};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let requested = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!(
        "{threads} processors; a copy of 25e6 floats runs at {:.1} GB/s",
        copy_speed(25_000_000)
    );
    if let [mode, rule, compressor, sizes @ ..] = &wanted[..]
        && mode == "profile"
    {
        return profile(rule, compressor, sizes);
    }
    if requested("digits") {
        digits();
    }
    if requested("memory") {
        memory();
    }
    if requested("dense") {
        let narrowed: Vec<usize> = wanted.iter().filter_map(|word| word.parse().ok()).collect();
        dense(&narrowed);
    }
    if requested("dcd") {
        dcd();
    }
}

/// Rounds of one rule and nothing else: the number of nodes, of parameters and of rounds.
fn profile(rule: &str, compressor: &str, sizes: &[String]) {
    let sizes: Vec<usize> =
        sizes.iter().map(|word| word.parse().expect("nodes, parameters, rounds")).collect();
    let [nodes, parameters, count] = sizes[..] else { panic!("nodes, parameters, rounds") };
    let (wall, cpu) = rounds(nodes, parameters, rule, compressor, count as u64);
    println!(
        "{rule} {compressor}, {nodes} nodes x {parameters}: {:.1} ms a round, {:.1} CPU ms",
        1e3 * wall,
        1e3 * cpu
    );
}

/// The digits perceptron 64-256-10, batch 16, 550 steps of dense D-PSGD on a ring of 8, from
/// reading the data to the summary's digest.
fn digits() {
    println!(
        "\nd-psgd, dense, ring of 8, digits 64-256-10, batch 16, 550 rounds, start and end included"
    );
    let sets = [
        "model.hidden=[256]",
        "rule.kind=d-psgd",
        "compressor.kind=identity",
        "run.rounds=550",
        "run.evaluate_every=550",
    ];
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let seconds: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let whole =
                Whole::new(Experiment::default_with(&sets).expect("settings")).expect("a run");
            net::together(whole.specs(), &whole.design, Transport::Tcp, &mut NoopObserver)
                .expect("the run ends");
            start.elapsed().as_secs_f64()
        })
        .collect();
    println!("  {:.2} s (median of 5)", median(seconds));
}

/// 64 nodes with a million parameters each in this process.
fn memory() {
    println!("\n64 nodes x 1e6 parameters, ring, one process");
    for (rule, compressor) in [("choco", "min-max"), ("d-psgd", "identity")] {
        let before = peak_memory();
        let (wall, _) = rounds(64, 1_000_000, rule, compressor, WARM as u64 + 4);
        println!(
            "  {rule:<8} {compressor:<10} {:>7.1} ms a round, peak memory {:.2} GB (before: {:.2})",
            1e3 * wall,
            peak_memory() as f64 / 1e9,
            before as f64 / 1e9
        );
    }
}

/// Dense D-PSGD compared with bare streams; only with these numbers of nodes and of parameters, if
/// any is given.
fn dense(narrowed: &[usize]) {
    let requested = |sizes: &[usize], size: usize| {
        narrowed.contains(&size) || !sizes.iter().any(|size| narrowed.contains(size))
    };
    println!("\ndense D-PSGD, gradients supplied: ms a round, medians of 9 or 5 taken in turn");
    println!(
        "{:>6} {:>10} {:>10} {:>14} {:>14} {:>16} {:>18}",
        "nodes",
        "params",
        "gradvine",
        "noise+yamux",
        "plain tcp",
        "of noise+yamux",
        "CPU ms of the two"
    );
    let (counts, sizes) = ([2, 4, 8], [1_000_000, 25_000_000]);
    for nodes in counts.into_iter().filter(|&nodes| requested(&counts, nodes)) {
        for parameters in sizes.into_iter().filter(|&size| requested(&sizes, size)) {
            let (count, samples) = if parameters > 1_000_000 { (8, 5) } else { (24, 9) };
            let count = WARM as u64 + count;
            let (mut ours, mut noise, mut plain) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..samples {
                ours.push(rounds(nodes, parameters, "d-psgd", "identity", count));
                noise.push(bare_noise(nodes, 4 * parameters, count));
                plain.push(bare_tcp(nodes, 4 * parameters, count));
            }
            let middle = |both: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| {
                1e3 * median(both.iter().map(pick).collect())
            };
            let (wall, cpu) = (|both: &(f64, f64)| both.0, |both: &(f64, f64)| both.1);
            println!(
                "{nodes:>6} {parameters:>10} {:>10.1} {:>14.1} {:>14.1} {:>15.2}x {:>9.0} {:>8.0}",
                middle(&ours, wall),
                middle(&noise, wall),
                1e3 * median(plain),
                middle(&ours, wall) / middle(&noise, wall),
                middle(&ours, cpu),
                middle(&noise, cpu)
            );
        }
    }
}

/// DCD with min-max 4 bit compared with the sum of its parts: each measured alone, and on all
/// processors at once, which share the memory.
fn dcd() {
    const NODES: usize = 8;
    const PARAMETERS: usize = 25_000_000;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let table: toml::Table = toml::from_str("kind = 'min-max'\nbits = 4").expect("a table");
    let compressor = compress::build(&table).expect("a compressor").compressor;
    let noise = Stream::new(1, Purpose::Test);
    let mut frame = Vec::new();
    compressor.encode(&gradient(1, PARAMETERS), noise, &mut frame).expect("finite");
    let encode = alone_and_at_once(cores, || {
        let (compressor, v, mut bytes) =
            (Arc::clone(&compressor), gradient(1, PARAMETERS), Vec::new());
        Box::new(move || {
            bytes.clear();
            compressor.encode(&v, noise, &mut bytes).expect("finite");
        })
    });
    let decode = alone_and_at_once(cores, || {
        let (compressor, bytes, mut acc) =
            (Arc::clone(&compressor), frame.clone(), vec![0.0f32; PARAMETERS]);
        Box::new(move || compressor.add_into(&bytes, noise, 1.0, &mut acc))
    });
    let copy = alone_and_at_once(cores, || {
        let (from, mut to) = (gradient(1, PARAMETERS), vec![0.0f32; PARAMETERS]);
        Box::new(move || to.copy_from_slice(std::hint::black_box(&from)))
    });
    println!(
        "\ndcd with min-max 4 bit, ring of {NODES} x {PARAMETERS} parameters, gradients supplied, \
         {} bytes a frame",
        frame.len()
    );
    let samples: Vec<[f64; 4]> = (0..5)
        .map(|_| {
            let (ours, bare) = (
                rounds(NODES, PARAMETERS, "dcd", "min-max", WARM as u64 + 48),
                bare_noise(NODES, frame.len(), WARM as u64 + 48),
            );
            [ours.0, ours.1, bare.0, bare.1]
        })
        .collect();
    let middle = |at: usize| median(samples.iter().map(|sample| sample[at]).collect());
    let nodes = NODES as f64;
    // A copy makes two passes. A supplied gradient is written; the sum over x, update and two
    // copies has four reads and a write.
    let times = |(alone, at_once): (f64, f64), count: f64| (count * alone, count * at_once);
    let parts = [
        ("bare Noise+Yamux streams, these bytes", (middle(3), middle(3))),
        ("encode, once a node", times(encode, nodes)),
        ("decode and add, three times a node", times(decode, 3.0 * nodes)),
        ("six dense passes a node at copy speed", times(copy, 3.0 * nodes)),
    ];
    println!("  {:<42} {:>12} {:>22}", "CPU seconds", "kernels alone", "on all processors");
    for (what, (alone, at_once)) in parts {
        println!("  {what:<42} {alone:>12.3} {at_once:>22.3}");
    }
    let sum = parts.iter().fold((0.0, 0.0), |sum, (_, part)| (sum.0 + part.0, sum.1 + part.1));
    let (wall, cpu, cores) = (middle(0), middle(1), cores as f64);
    println!("  {:<42} {:>12.3} {:>22.3}", "sum of the parts", sum.0, sum.1);
    println!(
        "  {:<42} {:>12.3} {:>22.3}",
        "the sum over the processors, seconds",
        sum.0 / cores,
        sum.1 / cores
    );
    println!("  a round: {wall:.3} s ({cpu:.3} CPU s; bare streams alone {:.3} s)", middle(2));
    println!(
        "  which is {:.2} and {:.2} times the sums",
        wall * cores / sum.0,
        wall * cores / sum.1
    );
}

/// Seconds of a call: the best of 9 on one processor while the others are idle, and the mean with
/// the same work on all processors at once.
fn alone_and_at_once(cores: usize, make: impl Fn() -> Box<dyn FnMut() + Send>) -> (f64, f64) {
    const CALLS: u32 = 8;
    let mut one = make();
    one();
    let alone = best(9, &mut one);
    drop(one);
    let barrier = Arc::new(std::sync::Barrier::new(cores));
    let threads: Vec<_> = (0..cores)
        .map(|_| {
            let (mut work, barrier) = (make(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                work();
                barrier.wait();
                let start = Instant::now();
                (0..CALLS).for_each(|_| work());
                start.elapsed().as_secs_f64() / f64::from(CALLS)
            })
        })
        .collect();
    let seconds: Vec<f64> =
        threads.into_iter().map(|thread| thread.join().expect("a measurement")).collect();
    (alone, mean(&seconds))
}

/// Wall and CPU seconds of a round of a rule over libp2p.
fn rounds(nodes: usize, parameters: usize, rule: &str, compressor: &str, count: u64) -> (f64, f64) {
    let outputs = (1..=parameters)
        .rev()
        .find(|outputs| parameters.is_multiple_of(*outputs) && outputs * outputs <= parameters)
        .expect("1 divides");
    let inputs = parameters / outputs - 1;
    let text = format!(
        "[run]\nrounds = {count}\nevaluate_every = 1000000000\n[topology]\nfile \
         = \"{}:{nodes}\"\n[data]\n[model]\nkind = \"softmax\"\n[rule]\nkind \
         = \"{rule}\"\n[compressor]\nkind = \"{compressor}\"\n[optimizer]\nstep = 0.1\n",
        if nodes == 2 { "path" } else { "ring" },
    );
    let experiment = Experiment::parse(&text, &[]).expect("an experiment");
    let graph = Arc::new(topology(&experiment).expect("a topology"));
    let design = Design::new(experiment, graph, inputs, outputs).expect("a design");
    assert_eq!(design.parameters(), parameters);
    let spec = |node: usize| NodeSpec {
        config: design.node(NodeId::from(node), None, Readers::Root),
        learner: Box::new(Supplied::new(node)),
    };
    let mut clock = Clock::new(nodes, count);
    net::together((0..nodes).map(spec).collect(), &design, Transport::Tcp, &mut clock)
        .expect("the run ends");
    clock.round()
}

/// Ring neighbours: node i and i + 1; a pair has one link.
fn pairs(nodes: usize) -> Vec<(usize, usize)> {
    if nodes == 2 {
        vec![(0, 1)]
    } else {
        (0..nodes).map(|node| (node, (node + 1) % nodes)).collect()
    }
}

const CHUNK: usize = 1 << 20;

/// Wall seconds of a round of plain TCP: every node sends this many bytes to each neighbour and
/// reads as many.
fn bare_tcp(nodes: usize, bytes: usize, count: u64) -> f64 {
    let runtime = net::runtime().expect("a runtime");
    runtime.block_on(async {
        let mut ends = Vec::new();
        for _ in pairs(nodes) {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let (a, b) = tokio::join!(
                tokio::net::TcpStream::connect(listener.local_addr().expect("bound")),
                listener.accept()
            );
            ends.extend([a.expect("connected"), b.expect("accepted").0]);
        }
        let mut seconds = Vec::new();
        for _ in 0..count {
            let start = Instant::now();
            let mut tasks = Vec::new();
            for end in ends.drain(..) {
                let _ = end.set_nodelay(true);
                let (mut read, mut write) = end.into_split();
                tasks.push(tokio::spawn(async move {
                    let (out, mut into) = (vec![1u8; CHUNK], vec![0u8; CHUNK]);
                    let send = async {
                        for at in (0..bytes).step_by(CHUNK) {
                            write.write_all(&out[..CHUNK.min(bytes - at)]).await.expect("sent");
                        }
                    };
                    let receive = async {
                        for at in (0..bytes).step_by(CHUNK) {
                            read.read_exact(&mut into[..CHUNK.min(bytes - at)])
                                .await
                                .expect("received");
                        }
                    };
                    tokio::join!(send, receive);
                    read.reunite(write).expect("the same stream")
                }));
            }
            for task in tasks {
                ends.push(task.await.expect("a task"));
            }
            seconds.push(start.elapsed().as_secs_f64());
        }
        mean(&seconds[WARM..])
    })
}

/// Wall and CPU seconds of a round of bare Noise+Yamux streams: one stream per direction on every
/// link, as in gradvine.
#[expect(clippy::too_many_lines)]
fn bare_noise(nodes: usize, bytes: usize, count: u64) -> (f64, f64) {
    const PROTOCOL: StreamProtocol = StreamProtocol::new("/bare");
    let runtime = net::runtime().expect("a runtime");
    let result = runtime.block_on(async {
        let mut hosts = Vec::new();
        for _ in 0..nodes {
            let mut swarm = SwarmBuilder::with_new_identity()
                .with_tokio()
                .with_tcp(
                    tcp::Config::default().nodelay(true),
                    noise::Config::new,
                    yamux::Config::default,
                )
                .expect("tcp")
                .with_behaviour(|_| libp2p_stream::Behaviour::new())
                .expect("a behaviour")
                .with_swarm_config(|config| {
                    config.with_idle_connection_timeout(std::time::Duration::from_secs(600))
                })
                .build();
            swarm
                .listen_on("/ip4/127.0.0.1/tcp/0".parse().expect("an address"))
                .expect("listening");
            let address = loop {
                if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                    break address;
                }
            };
            hosts.push((swarm, address));
        }
        let addresses: Vec<_> = hosts
            .iter()
            .map(|(swarm, address)| (*swarm.local_peer_id(), address.clone()))
            .collect();
        for (a, b) in pairs(nodes) {
            hosts[a].0.dial(addresses[b].1.clone()).expect("dialling");
        }
        let mut controls: Vec<_> =
            hosts.iter().map(|(swarm, _)| swarm.behaviour().new_control()).collect();
        let mut incoming: Vec<_> = controls
            .iter_mut()
            .map(|control| control.accept(PROTOCOL).expect("one acceptor"))
            .collect();
        for (mut swarm, _) in hosts {
            tokio::spawn(async move {
                loop {
                    swarm.select_next_some().await;
                }
            });
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let mut streams = Vec::new();
        for (a, b) in pairs(nodes) {
            for (from, to) in [(a, b), (b, a)] {
                // A stream's acceptor learns of it with its first byte.
                let opened = controls[from].open_stream(addresses[to].0, PROTOCOL);
                let (out, into) = tokio::join!(opened, incoming[to].next());
                streams.push((out.expect("opened"), into.expect("accepted").1));
            }
        }
        let (mut marks, mut start) = (Vec::new(), (Instant::now(), cpu()));
        for _ in 0..count {
            let mut tasks = Vec::new();
            for (mut out, mut into) in streams.drain(..) {
                let sending = tokio::spawn(async move {
                    let data = vec![1u8; CHUNK];
                    for at in (0..bytes).step_by(CHUNK) {
                        out.write_all(&data[..CHUNK.min(bytes - at)]).await.expect("sent");
                    }
                    out.flush().await.expect("flushed");
                    out
                });
                let receiving = tokio::spawn(async move {
                    let mut data = vec![0u8; CHUNK];
                    for at in (0..bytes).step_by(CHUNK) {
                        into.read_exact(&mut data[..CHUNK.min(bytes - at)])
                            .await
                            .expect("received");
                    }
                    into
                });
                tasks.push((sending, receiving));
            }
            for (sending, receiving) in tasks {
                streams.push((sending.await.expect("a task"), receiving.await.expect("a task")));
            }
            let now = (Instant::now(), cpu());
            marks.push(((now.0 - start.0).as_secs_f64(), (now.1 - start.1).as_secs_f64()));
            start = now;
        }
        let marks = &marks[WARM..];
        let all =
            |pick: fn(&(f64, f64)) -> f64| mean(&marks.iter().map(pick).collect::<Vec<f64>>());
        (all(|mark| mark.0), all(|mark| mark.1))
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}
