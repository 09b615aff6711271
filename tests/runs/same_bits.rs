//! The same experiment ends with the same bits in the simulator and over libp2p, for every rule and
//! every compressor.
#![cfg(feature = "net")]

use std::sync::Arc;

use gradvine::{
    compress::COMPRESSORS,
    drive::{Ended, NodeSpec, NoopObserver},
    experiment::{Experiment, Transport},
    gossip::{plan, rule::RULES, tree::Readers},
    net,
    run::{Summary, Whole},
    sim::{self},
};

/// A short run on the breast-cancer rows: 62 parameters, uneven shards, standardised over the
/// network.
const BASE: &str = r#"
[run]
rounds = 7
evaluate_every = 3
allow_unstable = true
[topology]
file = "path:3"
[data]
source = "breast-cancer"
split = "by-label"
standardize = true
[model]
kind = "softmax"
[rule]
kind = "d-psgd"
[compressor]
kind = "identity"
[optimizer]
step = 0.1
batch = 8
momentum = 0.5
"#;

fn whole(sets: &[String]) -> Result<Arc<Whole>, gradvine::config::ConfigError> {
    Ok(Arc::new(Whole::new(Experiment::parse(BASE, sets)?)?))
}

/// All nodes; each reads all records, as nodes in processes of their own do.
fn specs(whole: &Whole) -> Vec<NodeSpec> {
    let reading = |mut spec: NodeSpec| {
        spec.config.readers = Readers::Everyone;
        spec
    };
    whole.specs().into_iter().map(reading).collect()
}

fn digest(whole: &Whole, ended: &[Ended]) -> String {
    let summaries: Vec<Summary> =
        ended.iter().map(|one| Summary::new(&whole.design, &one.records).unwrap()).collect();
    assert!(
        summaries.iter().all(|summary| summary.digest == summaries[0].digest),
        "all nodes write the same summary"
    );
    assert!(ended.iter().all(|one| one.mean == ended[0].mean), "all nodes form the same mean");
    summaries[0].digest.clone()
}

fn simulated(sets: &[String]) -> String {
    let whole = whole(sets).unwrap();
    digest(&whole, &sim::run(specs(&whole), &mut NoopObserver).unwrap())
}

fn networked(sets: &[String], transport: Transport) -> String {
    let whole = whole(sets).unwrap();
    digest(
        &whole,
        &net::together(specs(&whole), &whole.design, transport, &mut NoopObserver).unwrap(),
    )
}

/// `kind=...` and each constant of a registry variant as settings.
fn settings(section: &str, kind: &str, constants: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(constants).unwrap();
    let kind = format!("{section}.kind='{kind}'");
    std::iter::once(kind)
        .chain(table.iter().map(|(key, value)| format!("{section}.{key}={value}")))
        .collect()
}

#[test]
#[ignore = "slow"]
fn every_rule_with_every_compressor_ends_with_the_same_bits_over_tcp() {
    let mut digests = std::collections::BTreeSet::new();
    let mut ran = std::collections::BTreeMap::new();
    for rule in &RULES {
        for compressor in &COMPRESSORS {
            // Constants belong to the compressor: one rule tries them all.
            let variants = if rule.name == "choco" { compressor.variants } else { &[] };
            for constants in std::iter::once(&"").chain(variants) {
                let mut sets = settings("rule", rule.name, "");
                sets.push(format!("topology.file='{}:4'", rule.home));
                sets.extend(settings("compressor", compressor.name, constants));
                if whole(&sets).is_err() {
                    // A combination that cannot work at all, such as compression with a rule that
                    // has none.
                    continue;
                }
                let plan = Arc::clone(&whole(&sets).unwrap().design.rule.plan);
                let (a, b) = (simulated(&sets), networked(&sets, Transport::Tcp));
                if plan::is_asynchronous(&*plan) {
                    // Over libp2p the order of events depends on the machine: it ran, and the
                    // simulator repeats itself.
                    assert_eq!(a, simulated(&sets), "{sets:?}");
                } else {
                    assert_eq!(a, b, "{sets:?}");
                }
                digests.insert(a);
                *ran.entry(rule.name).or_insert(0) += 1;
            }
        }
    }
    println!("combinations run: {ran:?}, different results: {}", digests.len());
    for rule in &RULES {
        let least = match rule.name {
            // It adds up entries: top-k, random-k.
            "top-k-all-gather" => 2,
            // Tables are: count-sketch.
            "sketched-sgd" => 1,
            _ if rule.compresses => COMPRESSORS.len(),
            _ => 1,
        };
        assert!(ran.get(rule.name).is_some_and(|&count| count >= least), "{}: {ran:?}", rule.name);
    }
    // The digests of different runs differ.
    assert!(digests.len() > ran.values().max().copied().unwrap_or(0));
}

#[test]
fn the_orders_of_d_psgd_and_choco_overlap_gossip_and_gradients_with_the_same_bits() {
    for sets in
        [["rule.kind='d-psgd'", "rule.order='cta'"], ["rule.kind='choco'", "rule.order='iclr'"]]
    {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        assert_eq!(simulated(&sets), networked(&sets, Transport::Tcp), "{sets:?}");
    }
}

#[test]
fn adamw_inside_ends_with_the_same_bits() {
    for rule in ["d-psgd", "diloco", "c-sgd"] {
        let sets = [
            &format!("rule.kind='{rule}'"),
            "optimizer.kind='adamw'",
            "optimizer.momentum=0",
            "optimizer.step=0.01",
            "optimizer.weight_decay=0.1",
            "optimizer.local_steps=2",
            "topology.file='complete:3'",
        ];
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        assert_eq!(simulated(&sets), networked(&sets, Transport::Tcp), "{sets:?}");
    }
}

#[test]
fn layers_leave_while_gradients_are_computed_with_the_same_bits() {
    for (topology, collective) in
        [("complete:4", "ring"), ("star:4", "server"), ("complete:3", "all-to-all")]
    {
        let mut sets =
            vec!["rule.kind='c-sgd'".to_string(), format!("rule.collective='{collective}'")];
        let more = [
            "model.kind='mlp'",
            "model.hidden=[40, 30, 20]",
            "optimizer.local_steps=2",
            "optimizer.batch='full'",
        ];
        sets.extend(more.iter().map(ToString::to_string));
        sets.push(format!("topology.file='{topology}'"));
        let whole = simulated(&sets);
        sets.push("rule.layers=true".into());
        let (a, b) = (simulated(&sets), networked(&sets, Transport::Tcp));
        assert_eq!(a, b, "{sets:?}");
        if collective == "ring" {
            assert_ne!(a, whole, "rings cut each layer into chunks of its own");
        }
    }
}

#[test]
#[ignore = "slow"]
fn schedules_end_with_the_same_bits() {
    for (schedule, topology) in [
        ("one-peer-exponential", "exponential:5"),
        ("base-2", "complete:5"),
        ("random-matching", "path:4"),
        ("epidemic:2", "complete:4"),
    ] {
        for (rule, compressor) in [
            ("d-psgd", "identity"),
            ("naive", "qsgd"),
            ("deep-squeeze", "min-max"),
            ("sgp", "identity"),
            ("noloco", "identity"),
            ("gasloc", "identity"),
            ("qg-dsgdm", "identity"),
        ] {
            let mut sets = settings("rule", rule, "");
            sets.extend(settings("compressor", compressor, ""));
            sets.push(format!("topology.file='{topology}'"));
            let fixed = simulated(&sets);
            sets.push(format!("topology.schedule='{schedule}'"));
            let (a, b) = (simulated(&sets), networked(&sets, Transport::Tcp));
            assert_eq!(a, b, "{sets:?}");
            assert_ne!(a, fixed, "{sets:?}: the schedule decides the links");
        }
    }
}

#[test]
fn quic_carries_the_same_bits() {
    let sets: Vec<String> = settings("rule", "dcd", "")
        .into_iter()
        .chain(settings("compressor", "min-max", "bits = 6"))
        .collect();
    assert_eq!(simulated(&sets), networked(&sets, Transport::Quic));
}

#[test]
fn every_seed_is_repeatable_and_seeds_differ() {
    let seed = |seed: u64| {
        simulated(&[
            format!("run.seed={seed}"),
            "rule.kind='dcd'".into(),
            "compressor.kind='qsgd'".into(),
        ])
    };
    assert_eq!(seed(5), seed(5));
    assert_ne!(seed(5), seed(6));
}
