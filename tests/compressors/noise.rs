//! Every payload is rounded by dice of its own, which both of its ends know.

use std::collections::BTreeMap;

use common::Run;
use gradvine::{
    compress,
    gossip::{party::payload_noise, plan::At},
    rng::{Purpose, Stream},
    units::{NodeId, Round},
};

#[test]
fn no_two_payloads_of_a_run_share_their_noise() {
    let mut known = BTreeMap::new();
    for seed in [1, 2] {
        for from in 0..4 {
            for to in [None, Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(2))] {
                for round in [0, 1, 2, 1 << 40] {
                    for (flight, exchange) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)] {
                        let at = At { round: Round(round), flight, exchange };
                        let word = payload_noise(seed, NodeId(from), to, &at).u64_at(0);
                        let name = format!("seed {seed}, from {from} to {to:?}, {at}");
                        if let Some(other) = known.insert(word, name.clone()) {
                            panic!("the same noise for {name} and for {other}");
                        }
                    }
                }
            }
        }
    }
}

/// |x' - x|^2 after one round of plain averaging of what each of n equal models became in a compressor.
fn error_of_the_mean(nodes: usize) -> f64 {
    let mut run =
        Run::new(&format!("complete:{nodes}"), "kind = 'naive'", "kind = 'min-max'\nbits = 2");
    (run.rounds, run.step, run.d) = (1, 0.0, 4000);
    let (x, models) = (run.start(0), run.models());
    x.iter().zip(&models[0]).map(|(x, after)| (f64::from(*x) - f64::from(*after)).powi(2)).sum()
}

/// Errors of n independent roundings average to an n-th; those of one stream that all share do not
/// average at all.
#[test]
fn roundings_of_different_nodes_average_out() {
    let one = error_of_the_mean(1);
    for nodes in [2, 4, 8, 16] {
        let part = error_of_the_mean(nodes) / one * nodes as f64;
        // A sum of squares of 4000 numbers varies by a few percent.
        assert!(
            (0.85..1.15).contains(&part),
            "{nodes} nodes: {part} of what independent errors leave"
        );
    }
}

#[test]
fn roundings_of_different_rounds_average_out() {
    // Of one vector in many rounds, by the compressor alone: the mean of the noise is nothing.
    let compressor =
        compress::build(&toml::from_str("kind = 'min-max'\nbits = 2").unwrap()).unwrap().compressor;
    let mut dice = Stream::new(9, Purpose::Test).sequence();
    let v: Vec<f32> = (0..2000).map(|_| dice.normal() as f32).collect();
    let rounds = 64;
    let error = |rounds: u64| {
        let mut sum = vec![0.0f32; v.len()];
        for round in 0..rounds {
            let noise = payload_noise(
                3,
                NodeId(1),
                None,
                &At { round: Round(round), flight: 0, exchange: 0 },
            );
            let mut bytes = Vec::new();
            compressor.encode(&v, noise, &mut bytes).unwrap();
            compressor.add_into(&bytes, noise, 1.0 / rounds as f32, &mut sum);
        }
        sum.iter().zip(&v).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    let part = error(rounds) / error(1) * rounds as f64;
    assert!((0.85..1.15).contains(&part), "{part} of what independent errors leave");
}
