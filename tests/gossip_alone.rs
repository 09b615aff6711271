//! Gossip without gradients: the default steps of rules that feed compression errors back must let disagreement fall.

use std::sync::Arc;

use gradvine::{
    compress,
    gossip::{
        NodeConfig,
        rule::{self, Setting},
        tree::Readers,
    },
    job::{Blind, Conclusion, Learner},
    mixing::{Schedule, Topology},
    rng::{Purpose, Stream},
    sim::{self, Seat},
    units::{NodeId, Round},
};

/// A learner whose update is always the same: zero, or a share of a sum that is zero over the nodes.
struct Constant {
    update: Vec<f32>,
    step: f32,
}

impl Learner for Constant {
    fn compute(&mut self, _round: Round, _x: &[f32], update: &mut [f32]) -> f64 {
        update.copy_from_slice(&self.update);
        0.0
    }

    fn step(&self, _round: Round) -> f32 {
        self.step
    }

    fn conclude(&mut self, _conclusion: &Conclusion<'_>) -> Vec<u8> {
        Vec::new()
    }
}

/// What the models start as, before their mean is taken away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// N(0, 1) in every coordinate.
    Gaussian,
    /// The same in every coordinate of a node.
    Flat,
    /// The k-th coordinate is of the order of 1 / k.
    Tapered,
    /// A tenth of the coordinates is 100 times as large as the others, in one block.
    Layered,
    /// As Flat, with opposite signs on nodes of even and odd number: the mode of W that swings most on a ring.
    Swinging,
}

fn starts(start: Start, nodes: usize, d: usize) -> Vec<Vec<f32>> {
    let dice = |node: usize| Stream::new(9, Purpose::Test).with(node as u64).sequence();
    let mut x: Vec<Vec<f32>> = (0..nodes)
        .map(|node| {
            let mut dice = dice(node);
            let common = dice.normal();
            let sign = if node % 2 == 0 { 1.0 } else { -1.0 };
            let value = |k: usize| match start {
                Start::Gaussian => dice.normal(),
                Start::Flat => common,
                Start::Tapered => dice.normal() / (k + 1) as f64,
                Start::Layered => dice.normal() * if k < d / 10 { 100.0 } else { 1.0 },
                Start::Swinging => sign,
            };
            (0..d).map(value).map(|x| x as f32).collect()
        })
        .collect();
    for k in 0..d {
        let mean = x.iter().map(|x| f64::from(x[k])).sum::<f64>() / nodes as f64;
        x.iter_mut().for_each(|x| x[k] = (f64::from(x[k]) - mean) as f32);
    }
    x
}

fn consensus(models: &[Vec<f32>]) -> f64 {
    let (n, d) = (models.len() as f64, models[0].len());
    let mean = |k: usize| models.iter().map(|x| f64::from(x[k])).sum::<f64>() / n;
    (0..d).map(|k| models.iter().map(|x| (f64::from(x[k]) - mean(k)).powi(2)).sum::<f64>()).sum::<f64>() / n
}

/// Consensus after the rounds, relative to that of the start; infinite where a number is not finite. And the resolved rule.
fn after(
    topology: &str,
    rule: &str,
    compressor: &str,
    start: Start,
    d: usize,
    rounds: u64,
) -> Result<(f64, toml::Table), String> {
    let topology = Arc::new(Topology::parse(topology, 1).unwrap());
    let schedule = Arc::new(Schedule::new("static", &topology, 1).unwrap());
    let compressor = compress::build(&toml::from_str(compressor).unwrap()).unwrap().compressor;
    let setting = Setting {
        topology: &topology,
        schedule: &schedule,
        nominal_delta: compress::nominal_delta(&*compressor, d),
        compressor: &compressor,
        parameters: d,
        shapes: &[(d, 1)],
        seed: 3,
        allow_unstable: false,
    };
    let prepared = rule::prepare(&toml::from_str(rule).unwrap(), &setting).map_err(|error| error.to_string())?;
    let nodes = topology.nodes();
    let from = starts(start, nodes, d);
    let before = consensus(&from);
    let seats = from.iter().enumerate().map(|(node, x)| {
        let id = NodeId::from(node);
        let config = NodeConfig {
            id,
            topology: Arc::clone(&topology),
            plan: Arc::clone(&prepared.plan),
            rule: (prepared.spawn)(id, x.clone()),
            seed: 3,
            rounds,
            evaluate_every: u64::MAX,
            parameters: d,
            setup: None,
            readers: Readers::Root,
        };
        Seat { config, learner: Box::new(Constant { update: vec![0.0; d], step: 0.0 }) }
    });
    let ratio = match sim::run(seats.collect(), &mut Blind) {
        Ok(ended) => consensus(&ended.into_iter().map(|ended| ended.model).collect::<Vec<_>>()) / before,
        Err(_) => f64::INFINITY,
    };
    Ok((ratio, prepared.resolved))
}

#[test]
#[ignore = "explores"]
fn explore() {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or(default.into());
    let number = |name: &str, default: &str| var(name, default).parse::<f64>().unwrap();
    let (d, rounds) = (number("D", "1000") as usize, number("ROUNDS", "5000") as u64);
    let starts = [Start::Gaussian, Start::Flat, Start::Tapered, Start::Layered, Start::Swinging];
    for compressor in var("COMP", "kind = 'sign'").split(';') {
        for topology in var("TOPO", "ring:8").split(',') {
            for rule in var("RULE", "choco").split(',') {
                let built =
                    compress::build(&toml::from_str(&compressor.replace('|', "\n")).unwrap()).unwrap().compressor;
                let delta = compress::nominal_delta(&*built, d);
                print!("{rule:12} {topology:10} {compressor:40} delta {delta:.3e}:");
                for start in starts {
                    let key = if rule == "deep-squeeze" { "eta" } else { "gamma" };
                    let at = |gamma: f64| {
                        let rule = format!("kind = '{rule}'\n{key} = {gamma:?}");
                        after(topology, &rule, &compressor.replace('|', "\n"), start, d, rounds).unwrap().0
                    };
                    if std::env::var("DEFAULT").is_ok() {
                        let now = std::time::Instant::now();
                        match after(
                            topology,
                            &format!("kind = '{rule}'"),
                            &compressor.replace('|', "\n"),
                            start,
                            d,
                            rounds,
                        ) {
                            Ok((ratio, resolved)) => {
                                print!("  {ratio:.2e}@{} {:.1}s", resolved[key], now.elapsed().as_secs_f64())
                            }
                            Err(error) => print!("{}", &error[..40]),
                        }
                        continue;
                    }
                    // The greatest stable factor of delta.
                    let mut best = 0.0;
                    let mut factor = 12.0;
                    while factor > 0.02 {
                        let ratio = at(factor * delta);
                        if ratio < 1.0 {
                            best = factor;
                            print!("  {start:?} {best:.2} ({ratio:.0e})");
                            break;
                        }
                        factor /= 1.3;
                    }
                    if best == 0.0 {
                        print!("  {start:?} none");
                    }
                    use std::io::Write;
                    std::io::stdout().flush().unwrap();
                }
                println!();
            }
        }
    }
}
