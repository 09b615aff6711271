//! Long and large: `cargo test --release --test soak -- --ignored --nocapture` (some 12 GB of
//! memory, three minutes).
#![cfg(feature = "net")]

use std::{sync::Arc, time::Instant};

use gradvine::{
    drive::{Conclusion, Elapsed, Ended, Learner, NodeSpec, NoopObserver, Observer},
    experiment::{Experiment, Transport},
    gossip::{RoundDone, tree::Readers},
    net,
    run::{Design, Whole, record::Closing},
    sim::{self},
    units::{NodeId, Round},
};

/// A different update on every node and in every round: a shifted ramp.
struct Ramp(NodeId);

impl Learner for Ramp {
    fn compute(&mut self, round: Round, _x: &[f32], update: &mut [f32]) -> f64 {
        let start = (7 * round.0 + 3 * u64::from(self.0.0)) as usize;
        for (i, update) in update.iter_mut().enumerate() {
            *update = ((start + i) % 1000) as f32 * 1e-6;
        }
        0.0
    }

    fn step(&self, _round: Round) -> f32 {
        1.0
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        let closing = Closing::of(conclusion, 1);
        Closing { train_loss_of_mean: 0.0, ..closing }.to_bytes()
    }
}

struct Told(Instant);

impl Observer for Told {
    fn round(&mut self, node: NodeId, _elapsed: Elapsed, done: RoundDone) {
        println!(
            "{:>7.2} s  node {node} has done round {}",
            self.0.elapsed().as_secs_f64(),
            done.round
        );
    }
}

fn design(topology: &str, side: usize, rounds: u64, rule: &str) -> Design {
    let text = format!(
        "[run]\nrounds = {rounds}\nevaluate_every = 1000000\n[topology]\nfile \
         = \"{topology}\"\n[model]\nkind = \"softmax\"\n[rule]\n{rule}\n[compressor]\nkind \
         = \"identity\"\n[optimizer]\nstep = 0.1\n"
    );
    let experiment = Experiment::parse(&text, &[]).unwrap();
    let topology = Arc::new(gradvine::run::topology(&experiment).unwrap());
    Design::new(experiment, topology, side - 1, side).unwrap()
}

fn specs(design: &Design) -> Vec<NodeSpec> {
    let spec = |node: usize| NodeSpec {
        config: design.node(node.into(), None, Readers::Root),
        learner: Box::new(Ramp(node.into())),
    };
    (0..design.topology.nodes()).map(spec).collect()
}

fn digests(ended: &[Ended]) -> Vec<String> {
    ended.iter().map(|one| gradvine::digest::of_model(&one.model)).collect()
}

#[test]
#[ignore = "12 GB of memory and a minute"]
fn soak_eight_nodes_send_a_hundred_megabytes_to_both_neighbours_at_once() {
    let design = design("ring:8", 5000, 3, "kind = \"d-psgd\"");
    assert_eq!(design.parameters(), 25_000_000);
    let ended =
        net::together(specs(&design), &design, Transport::Tcp, &mut Told(Instant::now())).unwrap();
    assert!(ended.iter().all(|one| one.mean == ended[0].mean));
    assert_eq!(ended[0].traffic.payload, 3 * 2 * 100_000_000);
}

#[test]
#[ignore = "half a minute"]
fn soak_quic_carries_frames_of_a_hundred_megabytes() {
    let design = design("path:2", 5000, 2, "kind = \"d-psgd\"\norder = \"cta\"");
    let ended =
        net::together(specs(&design), &design, Transport::Quic, &mut Told(Instant::now())).unwrap();
    assert_eq!(ended[0].mean, ended[1].mean);
}

#[test]
#[ignore = "half a minute"]
fn soak_sixty_four_nodes_in_one_process_end_with_the_simulators_bits() {
    for rule in ["kind = \"d-psgd\"\norder = \"cta\"", "kind = \"choco\"", "kind = \"dcd\""] {
        let design = design("hypercube:64", 100, 20, rule);
        let real =
            net::together(specs(&design), &design, Transport::Tcp, &mut Told(Instant::now()))
                .unwrap();
        let virtual_ = sim::run(specs(&design), &mut Told(Instant::now())).unwrap();
        assert_eq!(digests(&real), digests(&virtual_), "{rule}");
    }
}

#[test]
#[ignore = "a minute"]
fn soak_ten_thousand_nodes_are_simulated() {
    let experiment = Experiment::load("experiments/ten-thousand.toml".as_ref(), &[]).unwrap();
    let whole = Arc::new(Whole::new(experiment).unwrap());
    assert_eq!((whole.shards.len(), whole.design.parameters()), (10_000, 1_000));
    let started = Instant::now();
    let simulated = sim::run_on(whole.specs(), &whole.conditions, &mut NoopObserver).unwrap();
    println!(
        "{:.1} s, {:.1} s of virtual time",
        started.elapsed().as_secs_f64(),
        simulated.time.seconds()
    );
    assert!(simulated.ended.iter().all(|one| one.mean == simulated.ended[0].mean));
    let summary = gradvine::run::Summary::new(&whole.design, &simulated.ended[0].records).unwrap();
    assert_eq!((summary.rounds, summary.participation.len()), (100, 10_000));
}

#[test]
#[ignore = "a minute: hosts that start and end again and again"]
fn soak_a_hundred_runs_in_a_row_connect_and_end() {
    let reference = digests(
        &sim::run(specs(&design("ring:8", 10, 5, "kind = \"dcd\"")), &mut Told(Instant::now()))
            .unwrap(),
    );
    for transport in [Transport::Tcp, Transport::Quic] {
        for _ in 0..50 {
            let design = design("ring:8", 10, 5, "kind = \"dcd\"");
            let ended =
                net::together(specs(&design), &design, transport, &mut Told(Instant::now()))
                    .unwrap();
            assert_eq!(digests(&ended), reference);
        }
    }
}
