//! A rule, a compressor and a family of topologies of another crate, run over libp2p.
//!
//! `cargo run --release -p own-rule`
//!
//! They are registered before the start; from then on experiments name them like gradvine's own.
//! The run here uses real libp2p hosts on loopback, and must end with the simulator's bits.

mod compressor;
mod rule;
mod topology;

use std::error::Error;

use gradvine::{
    drive::NoopObserver,
    experiment::{Experiment, Registries, Transport},
    net,
    run::{Outlook, Summary, Whole},
    sim,
};

const EXPERIMENTS: [&str; 2] = [
    "rule = { kind = 'damped', gamma = 0.6 }",
    "rule = { kind = 'choco' }\ncompressor = { kind = 'log-byte' }",
];

fn main() -> Result<(), Box<dyn Error>> {
    // Of its own, so that other programs of a process do not see them; `RULES.register` would add
    // a rule for all.
    let own = Registries::separate();
    own.rules.register(rule::ENTRY)?;
    own.compressors.register(compressor::ENTRY)?;
    own.families.register(topology::WHEEL)?;
    for text in EXPERIMENTS {
        let whole = || {
            let experiment = Experiment::parse(&format!("{COMMON}\n{text}"), &[])?;
            Whole::new(experiment.with_registries(own))
        };
        let simulated = sim::run(whole()?.specs(), &mut NoopObserver)?;
        let real = whole()?;
        let ended = net::together(real.specs(), &real.design, Transport::Tcp, &mut NoopObserver)?;
        for (one, other) in ended.iter().zip(&simulated) {
            assert_eq!(one.model, other.model, "libp2p and the simulator must agree");
        }
        let summary = Summary::new(&real.design, &ended[0].records)?;
        let accuracy = summary.outcome.test_accuracy_of_mean.unwrap_or_default();
        let bytes = Outlook::of(&real.design, &real.conditions, 1)?.prediction.payload.0;
        println!(
            "{} with {} on {}: accuracy {:.1} %, {} bytes of payload ({bytes:.0} a node and round \
             planned)",
            summary.rule,
            summary.compressor,
            summary.topology,
            100.0 * accuracy,
            summary.bytes.payload
        );
        assert!(accuracy > 0.9, "it has not learned: {accuracy}");
    }
    Ok(())
}

#[test]
fn what_this_crate_adds_runs_over_libp2p_as_in_the_simulator() {
    main().unwrap();
}

const COMMON: &str = "
run.rounds = 150
topology.file = 'wheel:6'
data = { source = 'digits', split = 'iid', test_share = 0.2, standardize = true }
model = { kind = 'softmax' }
optimizer = { step = 0.2, schedule = 'cosine', batch = 16 }
";
