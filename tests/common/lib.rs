//! A small decentralized problem with known numbers: f_i(x) = 1/2 |A_i x - b_i|^2 / m, exact
//! gradients.

#![allow(missing_docs, reason = "used by the tests alone")]

pub mod central;
pub mod dense;
pub mod driver;
pub mod hook;
pub mod sgd;
pub mod sketch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use gradvine::{
    compress::{self, Compressor},
    config::ConfigError,
    drive::{Conclusion, Ended, Learner, NodeSpec, NoopObserver, RunError},
    gossip::{
        Failure, NodeConfig,
        rule::{self, Prepared, Rule, Setting},
    },
    mixing::{Schedule, Topology},
    rng::{Purpose, Stream},
    sim::{self},
    units::{NodeId, Round},
};
use sgd::Sgd;

/// Rows of each node's A_i.
const ROWS: usize = 12;

/// Larger than one and several of the blocks of 512 and 2,048 numbers that kernels use, and no
/// round number.
pub const WIDE: [usize; 2] = [2_501, 5_003];

/// Five nodes with links of all kinds of weights; [`GIVEN_W`] is their W.
pub const GIVEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/given.toml");

/// W of [`GIVEN`]: rows and columns have the sum 1.
pub const GIVEN_W: [[f64; 5]; 5] = [
    [0.50, 0.35, 0.15, 0.00, 0.00],
    [0.35, 0.50, 0.10, 0.00, 0.05],
    [0.15, 0.10, 0.45, 0.30, 0.00],
    [0.00, 0.00, 0.30, 0.25, 0.45],
    [0.00, 0.05, 0.00, 0.45, 0.50],
];

/// One node's least-squares problem in f64.
#[derive(Clone)]
pub struct Problem {
    pub a: Vec<Vec<f64>>,
    pub b: Vec<f64>,
}

/// Problems that were drawn, by node, length, and the bits of the spread.
type Drawn = BTreeMap<(usize, usize, u64), Problem>;

impl Problem {
    /// Heterogeneous: every node has its own solution.
    pub fn new(node: usize, d: usize, spread: f64) -> Problem {
        static DRAWN: Mutex<Drawn> = Mutex::new(BTreeMap::new());
        let key = (node, d, spread.to_bits());
        // To draw one takes longer than the rounds of a short run.
        if let Some(drawn) = DRAWN.lock().unwrap().get(&key) {
            return drawn.clone();
        }
        let drawn = Problem::drawn(node, d, spread);
        DRAWN.lock().unwrap().insert(key, drawn.clone());
        drawn
    }

    fn drawn(node: usize, d: usize, spread: f64) -> Problem {
        let mut dice = Stream::new(77, Purpose::Test).with(node as u64).sequence();
        let a: Vec<Vec<f64>> = (0..ROWS).map(|_| (0..d).map(|_| dice.normal()).collect()).collect();
        let target: Vec<f64> =
            (0..d).map(|k| libm::sin(k as f64 * 0.7) + spread * dice.normal()).collect();
        let b = a.iter().map(|row| row.iter().zip(&target).map(|(a, t)| a * t).sum()).collect();
        Problem { a, b }
    }

    pub fn gradient(&self, x: &[f64]) -> Vec<f64> {
        let mut gradient = vec![0.0; x.len()];
        for (row, b) in self.a.iter().zip(&self.b) {
            let residual: f64 = row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() - b;
            for (g, a) in gradient.iter_mut().zip(row) {
                *g += residual * a / ROWS as f64;
            }
        }
        gradient
    }

    pub fn loss(&self, x: &[f64]) -> f64 {
        let square = |(row, b): (&Vec<f64>, &f64)| {
            (row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() - b).powi(2)
        };
        self.a.iter().zip(&self.b).map(square).sum::<f64>() / (2 * ROWS) as f64
    }
}

/// A learner of a [`Problem`] with a constant step.
pub struct Exact {
    pub problem: Problem,
    pub step: f64,
}

impl Learner for Exact {
    fn compute(&mut self, _round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        for (update, gradient) in update.iter_mut().zip(self.problem.gradient(&x)) {
            *update = (self.step * gradient) as f32;
        }
        self.problem.loss(&x)
    }

    fn step(&self, _round: Round) -> f32 {
        self.step as f32
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        conclusion.rounds.0.to_le_bytes().to_vec()
    }
}

/// A run to be made.
#[derive(Clone)]
pub struct Run {
    pub topology: Arc<Topology>,
    pub schedule: Arc<Schedule>,
    pub rule: String,
    pub compressor: String,
    pub rounds: u64,
    pub step: f64,
    pub d: usize,
    pub spread: f64,
    /// Whether all nodes start at the same point.
    pub same_start: bool,
    pub allow_unstable: bool,
    /// Whether all nodes have the problem of node 0.
    pub same_data: bool,
    pub sgd: Sgd,
}

/// A section of an experiment from a kind and its constants: "choco gamma=0.3".
pub fn section(words: &str) -> String {
    let mut words = words.split(' ');
    let kind = words.next().unwrap_or_default();
    words.fold(format!("kind = '{kind}'"), |section, constant| section + "\n" + constant)
}

impl Run {
    pub fn new(topology: &str, rule: &str, compressor: &str) -> Run {
        Run::scheduled(topology, "static", rule, compressor)
    }

    pub fn scheduled(topology: &str, schedule: &str, rule: &str, compressor: &str) -> Run {
        let topology = Arc::new(Topology::parse(topology, 1).unwrap());
        Run {
            schedule: Arc::new(Schedule::new(schedule, &topology, 1).unwrap()),
            topology,
            rule: rule.into(),
            compressor: compressor.into(),
            rounds: 30,
            step: 0.05,
            d: 40,
            spread: 0.5,
            same_start: true,
            allow_unstable: false,
            same_data: false,
            sgd: Sgd::PLAIN,
        }
    }

    /// The same with this many numbers, and a step as far from the limit of stability as that of
    /// 40.
    pub fn wide(&self, d: usize) -> Run {
        Run { d, step: self.step * self.d as f64 / d as f64, ..self.clone() }
    }

    /// The run itself; with other ways to make updates of gradients; with more numbers than the
    /// kernels take at a time.
    pub fn varied(&self) -> Vec<Run> {
        let mut all = vec![self.clone()];
        all.extend(Sgd::VARIED.map(|sgd| Run { sgd, ..self.clone() }));
        // Blocks are the same in every round.
        let rounds = self.rounds.min(40);
        all.extend(WIDE.map(|d| Run { sgd: Sgd::VARIED[0], rounds, ..self.wide(d) }));
        all
    }

    /// Describes how to repeat it.
    pub fn words(&self) -> String {
        let Run { rule, compressor, topology, d, sgd, same_start, .. } = self;
        let topology = topology.name();
        format!(
            "{rule}\nwith {compressor} on {topology}, d = {d}, {sgd:?}, same start: {same_start}"
        )
    }

    pub fn nodes(&self) -> usize {
        self.topology.nodes()
    }

    pub fn problems(&self) -> Vec<Problem> {
        (0..self.nodes())
            .map(|node| Problem::new(if self.same_data { 0 } else { node }, self.d, self.spread))
            .collect()
    }

    pub fn start(&self, node: usize) -> Vec<f32> {
        let node = if self.same_start { 0 } else { node };
        let dice = Stream::new(5, Purpose::Test).with(node as u64);
        (0..self.d).map(|k| (dice.f64_at(k as u64) - 0.5) as f32).collect()
    }

    pub fn prepare(&self) -> Prepared {
        self.try_prepare().unwrap()
    }

    pub fn try_prepare(&self) -> Result<Prepared, ConfigError> {
        let compressor =
            compress::build(&toml::from_str(&self.compressor).unwrap()).unwrap().compressor;
        let setting = Setting {
            topology: &self.topology,
            schedule: &self.schedule,
            nominal_delta: self.nominal_delta(&*compressor),
            compressor: &compressor,
            parameters: self.d,
            shapes: &self.shapes(),
            seed: 3,
            allow_unstable: self.allow_unstable,
        };
        rule::prepare(&toml::from_str(&self.rule).unwrap(), &setting)
    }

    pub fn refusal(&self) -> String {
        self.try_prepare().unwrap_err().to_string()
    }

    /// Whether it diverges if it may: it fails, or ends far from the minimum.
    pub fn diverges(&self) -> bool {
        let run = Run { allow_unstable: true, ..self.clone() };
        match run.ended() {
            Err(RunError::Failed { failure: Failure::Diverged { .. }, .. }) => true,
            Ok(ended) => {
                let models: Vec<Vec<f32>> = ended.into_iter().map(|ended| ended.model).collect();
                run.suboptimality(&models) > 1e3
            }
            Err(other) => panic!("{}: {other}", run.words()),
        }
    }

    /// A matrix and a bias, or a vector if there are few numbers; three layers if a rule sends each
    /// by itself.
    fn shapes(&self) -> Vec<(usize, usize)> {
        match self.d {
            d if d < 16 => vec![(d, 1), (0, 1)],
            d if self.rule.contains("layers = true") => {
                vec![(2, 3), (3, 1), (1, 2), (1, 2), (2, 1), (d - 15, 1)]
            }
            d => vec![(d / 8 - 1, 8), (8 + d % 8, 1)],
        }
    }

    /// The nominal delta of its compressor, sampled once.
    pub fn nominal(&self) -> f64 {
        let table = toml::from_str(&self.compressor).unwrap();
        self.nominal_delta(&*compress::build(&table).unwrap().compressor)
    }

    fn nominal_delta(&self, compressor: &dyn Compressor) -> f64 {
        static KNOWN: Mutex<BTreeMap<(String, usize), f64>> = Mutex::new(BTreeMap::new());
        let key = (self.compressor.clone(), self.d);
        let known = KNOWN.lock().unwrap().get(&key).copied();
        known.unwrap_or_else(|| {
            let delta = compress::nominal_delta(compressor, self.d);
            KNOWN.lock().unwrap().insert(key, delta);
            delta
        })
    }

    pub fn specs(&self) -> Vec<NodeSpec> {
        self.specs_with(|_, rule| rule)
    }

    /// All nodes, which start from what one of them gives.
    pub fn specs_from(&self, from: NodeId, x: Vec<f32>) -> Vec<NodeSpec> {
        let prepared = self.prepare();
        let mut specs = self.specs();
        for (node, spec) in specs.iter_mut().enumerate() {
            let (spawn, id) = (Arc::clone(&prepared.spawn), NodeId::from(node));
            spec.config.rule = Box::new(move |x| spawn(id, x));
            spec.config.initial_from = Some(from);
            if id == from {
                spec.config.x.clone_from(&x);
            }
        }
        specs
    }

    /// All nodes, with each rule wrapped, to plant a bug.
    pub fn specs_with(
        &self,
        wrap: impl Fn(NodeId, Box<dyn Rule>) -> Box<dyn Rule>,
    ) -> Vec<NodeSpec> {
        let prepared = self.prepare();
        let problems = self.problems();
        (0..self.nodes())
            .map(|node| {
                let id = NodeId::from(node);
                let rule = wrap(id, (prepared.spawn)(id, &self.start(node)));
                let (topology, plan) = (Arc::clone(&self.topology), Arc::clone(&prepared.plan));
                let rule = Box::new(|_: &[f32]| rule);
                let mut config = NodeConfig::new(id, topology, plan, rule, self.start(node));
                (config.seed, config.rounds) = (3, self.rounds);
                let problem = problems[node].clone();
                let learner: Box<dyn Learner> = match self.sgd {
                    Sgd::PLAIN => Box::new(Exact { problem, step: self.step }),
                    sgd => sgd.learner(self, node, problem),
                };
                NodeSpec { config, learner }
            })
            .collect()
    }

    pub fn ended(&self) -> Result<Vec<Ended>, RunError> {
        sim::run(self.specs(), &mut NoopObserver)
    }

    /// The models after the last round.
    pub fn models(&self) -> Vec<Vec<f32>> {
        self.ended().unwrap().into_iter().map(|ended| ended.model).collect()
    }

    /// f at the mean of these models, minus f at the minimum of f.
    pub fn suboptimality(&self, models: &[Vec<f32>]) -> f64 {
        let problems = self.problems();
        let n = models.len() as f64;
        let mean: Vec<f64> =
            (0..self.d).map(|k| models.iter().map(|x| f64::from(x[k])).sum::<f64>() / n).collect();
        let f = |x: &[f64]| problems.iter().map(|p| p.loss(x)).sum::<f64>() / n;
        let mut best = vec![0.0; self.d];
        for _ in 0..20_000 {
            let mut gradient = vec![0.0; self.d];
            for problem in &problems {
                gradient.iter_mut().zip(problem.gradient(&best)).for_each(|(g, p)| *g += p / n);
            }
            best.iter_mut().zip(&gradient).for_each(|(x, g)| *x -= 0.05 * g);
        }
        f(&mean) - f(&best)
    }
}

/// (1/n) sum |x_i - mean|^2 in f64.
pub fn consensus(models: &[Vec<f32>]) -> f64 {
    let n = models.len() as f64;
    let d = models[0].len();
    let mean = |k: usize| models.iter().map(|x| f64::from(x[k])).sum::<f64>() / n;
    (0..d)
        .map(|k| models.iter().map(|x| (f64::from(x[k]) - mean(k)).powi(2)).sum::<f64>())
        .sum::<f64>()
        / n
}

/// The largest difference of two sets of models, relative to the largest value.
pub fn difference(a: &[Vec<f64>], b: &[Vec<f32>]) -> f64 {
    let largest = a.iter().flatten().fold(1e-30f64, |m, x| m.max(x.abs()));
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max) / largest
}

pub fn widen(models: &[Vec<f32>]) -> Vec<Vec<f64>> {
    models.iter().map(|x| x.iter().map(|&x| f64::from(x)).collect()).collect()
}
