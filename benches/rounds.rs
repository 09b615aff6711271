//! A round of every rule at a million parameters: a ring of 8 on one thread, gradients supplied,
//! real frames encoded, checked, decoded and mixed, compared with a copy of the same vectors.
//!
//! `cargo bench --no-default-features --bench rounds`, with names of rules (`-- dcd choco`) only
//! these.

mod common;

use std::sync::Arc;

use common::{Clock, Supplied, WARM, best, gradient, median};
use gradvine::{
    compress,
    drive::NodeSpec,
    gossip::{
        NewRule, NodeConfig,
        rule::{self, Entry, RULES, Setting},
    },
    mixing::{Schedule, Topology},
    sim::{self},
    units::NodeId,
};

const NODES: usize = 8;
const PARAMETERS: usize = 1_000_000;
const ROUNDS: u64 = WARM as u64 + 8;
const SAMPLES: usize = 5;

fn main() {
    let vectors: Vec<Vec<f32>> = (0..NODES).map(|node| gradient(node, PARAMETERS)).collect();
    let mut to = vec![vec![0.0f32; PARAMETERS]; NODES];
    let copy = best(20, || {
        for (to, from) in to.iter_mut().zip(&vectors) {
            to.copy_from_slice(from);
        }
        std::hint::black_box(&mut to);
    });
    println!(
        "{NODES} nodes x {PARAMETERS} parameters, ring, one thread; median of {SAMPLES} runs of \
         {} rounds",
        ROUNDS - WARM as u64
    );
    println!("{:<17} {:<10} {:>12} {:>10}", "rule", "compressor", "ms a round", "copies");
    println!("{:<17} {:<10} {:>12.2} {:>10.1}", "(copy)", "", 1e3 * copy, 1.0);
    for (rule, compressor) in cases() {
        // A rule that adds entries or tables runs only with compressors that have them.
        let Some(samples) = (0..SAMPLES).map(|_| round(rule, compressor)).collect() else {
            continue;
        };
        let seconds = median(samples);
        let rule = rule.name;
        println!("{rule:<17} {compressor:<10} {:>12.2} {:>10.1}", 1e3 * seconds, seconds / copy);
    }
}

fn cases() -> Vec<(&'static Entry, &'static str)> {
    let compressors = |entry: &Entry| match entry.name {
        "sketched-sgd" => &["count-sketch"][..],
        _ if entry.compresses => &["identity", "min-max", "top-k"],
        _ => &["identity"],
    };
    let only: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    RULES
        .iter()
        .filter(|entry| only.is_empty() || only.iter().any(|name| name == entry.name))
        .flat_map(|entry| compressors(entry).iter().map(move |&compressor| (entry, compressor)))
        .collect()
}

/// Seconds of one round of all nodes; `None` if the rule does not run with this compressor.
fn round(rule: &Entry, compressor_kind: &str) -> Option<f64> {
    let table =
        |kind: &str| toml::Table::from_iter([("kind".to_string(), toml::Value::from(kind))]);
    let compressor = compress::build(&table(compressor_kind)).expect("a compressor").compressor;
    // The ring, or the topology that the rule needs.
    let topologies = ["ring", rule.home].map(|family| {
        let topology =
            Arc::new(Topology::parse(&format!("{family}:{NODES}"), 0).expect("a topology"));
        let schedule = Arc::new(Schedule::fixed(&topology));
        (topology, schedule)
    });
    let setting = |(topology, schedule)| Setting {
        topology,
        schedule,
        nominal_delta: compress::nominal_delta(&*compressor, PARAMETERS),
        compressor: &compressor,
        parameters: PARAMETERS,
        shapes: &[(PARAMETERS / 1000, 1000)],
        seed: 1,
        allow_unstable: true,
    };
    let prepare = |(topology, schedule)| {
        Some((topology, rule::prepare(&table(rule.name), &setting((topology, schedule))).ok()?))
    };
    let (topology, prepared) =
        topologies.iter().map(|(topology, schedule)| (topology, schedule)).find_map(prepare)?;
    let new_rule = |id: NodeId| {
        let spawn = Arc::clone(&prepared.spawn);
        Box::new(move |x: &[f32]| spawn(id, x)) as NewRule
    };
    let spec = |node: usize| {
        let (id, x) = (NodeId::from(node), vec![0.0; PARAMETERS]);
        let (topology, plan) = (Arc::clone(topology), Arc::clone(&prepared.plan));
        let new = NodeConfig::new(id, topology, plan, new_rule(id), x);
        let config = NodeConfig { seed: 1, rounds: ROUNDS, ..new };
        NodeSpec { config, learner: Box::new(Supplied::new(node)) }
    };
    let mut clock = Clock::new(NODES, ROUNDS);
    sim::run((0..NODES).map(spec).collect(), &mut clock).expect("the run ends");
    Some(clock.round().0)
}
