//! Predictions equal the simulator's results, for every rule with a fixed plan.

use std::collections::BTreeMap;

use common::Run;
use gradvine::{
    drive::{Elapsed, Observer},
    gossip::{RoundDone, plan, rule},
    links::{ComputeModel, Conditions, LinkModel},
    predict::{clockwork, predict},
    sim::{self},
    units::{NodeId, Time},
};

/// The time at which the last node ended each round.
#[derive(Default)]
struct Rounds(BTreeMap<u64, Time>);

impl Observer for Rounds {
    fn round(&mut self, _node: NodeId, elapsed: Elapsed, done: RoundDone) {
        let over = self.0.entry(done.round.0).or_default();
        *over = elapsed.time.max(*over);
    }
}

/// Links of 20 Mbit/s whose latencies differ from 5 to 40 ms, and gradients of 3 ms.
fn conditions(nodes: usize) -> Conditions {
    let link = |a: usize, b: usize| LinkModel {
        latency: (5 + (a * 7 + b * 3) as u64 % 36) * 1_000_000,
        rate: 20e6,
        ..LinkModel::IDEAL
    };
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    Conditions {
        links: pairs.map(|(a, b)| ((NodeId::from(a), NodeId::from(b)), link(a, b))).collect(),
        compute: ComputeModel { mean: 3_000_000, ..ComputeModel::NONE },
        ..Conditions::ideal()
    }
}

fn simulated(run: &Run, conditions: &Conditions) -> Vec<Time> {
    let mut rounds = Rounds::default();
    sim::run_on(run.specs(), conditions, &mut rounds).unwrap();
    rounds.0.into_values().collect()
}

#[test]
#[ignore = "slow"]
fn every_rule_with_a_fixed_plan_takes_the_predicted_time() {
    let mut seen = 0;
    for entry in &rule::RULES {
        let compressor = match entry.name {
            "sketched-sgd" => "kind = 'count-sketch'\ncolumns = 30",
            "top-k-all-gather" => "kind = 'top-k'\nk = 3",
            _ if entry.compresses => "kind = 'min-max'\nbits = 4",
            _ => "kind = 'identity'",
        };
        for topology in ["ring:6", "star:6", "complete:6"] {
            let mut run = Run::new(topology, &format!("kind = '{}'", entry.name), compressor);
            (run.d, run.rounds, run.step, run.allow_unstable) = (4_000, 40, 1e-4, true);
            let Ok(prepared) = run.try_prepare() else { continue };
            if plan::is_asynchronous(&*prepared.plan) {
                continue;
            }
            seen += 1;
            let conditions = conditions(run.nodes());
            let measured = simulated(&run, &conditions);
            let course =
                clockwork::follow(&*prepared.plan, run.nodes(), run.d, &conditions, run.rounds);
            let what = format!("{} with {compressor} on {topology}", entry.name);
            let seconds = |rounds: &[Time]| (rounds[39].seconds() - rounds[9].seconds()) / 30.0;
            let (predicted, found) = (seconds(&course.rounds), seconds(&measured));
            assert!(
                (predicted / found - 1.0).abs() < 0.05,
                "{what}: predicted {predicted}, simulated {found}"
            );
            let steady = predict(&*prepared.plan, run.nodes(), run.d, &conditions).round_s;
            assert!(
                (steady / found - 1.0).abs() < 0.05,
                "{what}: in the mean {steady}, simulated {found}"
            );
            // Without latencies it would be another figure: the test could fail.
            let near = Conditions {
                links: BTreeMap::new(),
                rest: LinkModel { rate: 20e6, ..LinkModel::IDEAL },
                ..conditions
            };
            let nearer = predict(&*prepared.plan, run.nodes(), run.d, &near).round_s;
            assert!(nearer < 0.95 * found, "{what}: {nearer} without latencies, {found} with them");
        }
    }
    assert!(seen > 40, "{seen} combinations");
}

#[test]
fn nodes_report_their_computing_time() {
    struct Clocks(Vec<Elapsed>);
    impl Observer for Clocks {
        fn round(&mut self, node: NodeId, elapsed: Elapsed, _done: RoundDone) {
            self.0[node.index()] = elapsed;
        }
    }
    let ms = |ms: u64| Time(ms * 1_000_000);
    let conditions = Conditions {
        rest: LinkModel { latency: ms(50).0, ..LinkModel::IDEAL },
        compute: ComputeModel { mean: ms(100).0, ..ComputeModel::NONE },
        ..Conditions::ideal()
    };
    // 30 rounds: gradient, then gossip; gossip beside the gradient; gossip that lands rounds later.
    for (rule, time) in [
        ("kind = 'd-psgd'", ms(30 * 150)),
        ("kind = 'd-psgd'\norder = 'cta'", ms(30 * 100)),
        ("kind = 'deep-squeeze'\ndelay = 4", ms(30 * 100)),
    ] {
        let mut clocks = Clocks(vec![Elapsed::default(); 2]);
        sim::run_on(
            Run::new("complete:2", rule, "kind = 'identity'").specs(),
            &conditions,
            &mut clocks,
        )
        .unwrap();
        assert_eq!(clocks.0, vec![Elapsed { time, computing: ms(30 * 100) }; 2], "{rule}");
    }
}

#[test]
fn a_simulation_has_one_trace_for_one_seed() {
    let run = Run::new("torus:3x3", "kind = 'dcd'", "kind = 'min-max'");
    let shaky = |seed| Conditions {
        seed,
        rest: LinkModel {
            latency: 5_000_000,
            rate: 1e6,
            jitter: 3_000_000,
            loss: 0.02,
            variation: 0.4,
            ..LinkModel::IDEAL
        },
        compute: ComputeModel { mean: 1_000_000, spread: 0.5, stragglers: 0.2, factor: 3.0 },
        ..Conditions::ideal()
    };
    let at = |conditions: &Conditions| {
        sim::run_on(run.specs(), conditions, &mut gradvine::drive::NoopObserver).unwrap()
    };
    let (a, b, other, ideal) =
        (at(&shaky(1)), at(&shaky(1)), at(&shaky(2)), at(&Conditions::ideal()));
    assert_eq!((&a.trace, a.time), (&b.trace, b.time));
    assert_ne!(a.trace, other.trace);
    // The times of frames do not change the result of learning.
    for run in [&b, &other, &ideal] {
        assert!(a.ended.iter().zip(&run.ended).all(|(a, b)| a.model == b.model));
    }
    assert_eq!(ideal.time, Time(0));
}
