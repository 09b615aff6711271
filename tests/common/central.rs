//! The common part of the tests of centralized rules: dense `f64` references with one x for all
//! nodes, and scripted updates.

use gradvine::{
    drive::{Conclusion, Learner, NoopObserver},
    rng::{Purpose, Stream},
    sim,
    units::Round,
};

pub use super::dense::{Matrix, plus};
use super::{Run, difference, sgd::Updates, widen};

pub const IDENTITY: &str = "kind = 'identity'";

pub fn sum(of: &[Vec<f64>]) -> Vec<f64> {
    of.iter().skip(1).fold(of[0].clone(), |sum, v| plus(&sum, 1.0, v))
}

/// The indices of the k greatest magnitudes, ascending; of equal ones the first.
pub fn greatest(v: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..v.len()).collect();
    order.sort_by(|&a, &b| v[b].abs().total_cmp(&v[a].abs()).then(a.cmp(&b)));
    order.truncate(k);
    order.sort_unstable();
    order
}

/// `v` at these indices, 0 elsewhere.
pub fn only(v: &[f64], indices: &[usize]) -> Vec<f64> {
    let mut kept = vec![0.0; v.len()];
    indices.iter().for_each(|&i| kept[i] = v[i]);
    kept
}

pub fn top(v: &[f64], k: usize) -> Vec<f64> {
    only(v, &greatest(v, k))
}

pub fn start(run: &Run) -> Vec<f64> {
    widen(&[run.start(0)]).remove(0)
}

/// The model after all rounds of `round(x, updates)`.
pub fn reference(run: &Run, mut round: impl FnMut(&mut Vec<f64>, Matrix)) -> Vec<f64> {
    reference_by_steps(run, |x, u, _| round(x, u))
}

/// The model after all rounds of `round(x, updates, sum of the step sizes in them)`.
pub fn reference_by_steps(
    run: &Run,
    mut round: impl FnMut(&mut Vec<f64>, Matrix, f64),
) -> Vec<f64> {
    let (mut updates, mut x) = (Updates::new(run), start(run));
    for _ in 0..run.rounds {
        let (u, step) = updates.next(&vec![x.clone(); run.nodes()]);
        round(&mut x, u, step);
    }
    x
}

pub fn centralized(run: &Run) -> Vec<f64> {
    let n = run.nodes() as f64;
    reference(run, |x, u| *x = plus(x, -1.0 / n, &sum(&u)))
}

/// The distance of the models from the reference; the nodes must agree to the bit.
pub fn distance(run: &Run, reference: &[f64]) -> f64 {
    let models = run.models();
    assert!(models.iter().all(|model| *model == models[0]), "{}: the nodes differ", run.rule);
    difference(&[reference.to_vec()], &models[..1])
}

pub fn check(run: &Run, reference: &[f64]) {
    let distance = distance(run, reference);
    assert!(distance < 2e-5, "{}: {distance:e}", run.words());
}

/// Returns updates that were written beforehand, then zeros.
pub struct Scripted {
    pub updates: Vec<Vec<f32>>,
}

impl Learner for Scripted {
    fn compute(&mut self, round: Round, _x: &[f32], update: &mut [f32]) -> f64 {
        match self.updates.get(round.0 as usize) {
            Some(scripted) => update.copy_from_slice(scripted),
            None => update.fill(0.0),
        }
        0.0
    }

    fn step(&self, _round: Round) -> f32 {
        1.0
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        conclusion.rounds.0.to_le_bytes().to_vec()
    }
}

/// Normal updates of each round and node.
pub fn script(run: &Run, rounds: u64, seed: u64) -> Vec<Matrix> {
    let draw = |round: u64, node: usize| {
        let mut dice = Stream::new(seed, Purpose::Test).with(round).with(node as u64).sequence();
        (0..run.d).map(|_| f64::from(dice.normal() as f32)).collect()
    };
    (0..rounds).map(|round| (0..run.nodes()).map(|node| draw(round, node)).collect()).collect()
}

/// The negated change of x after `run.rounds` rounds of these updates, which are 0 once the script
/// is over.
pub fn moved(run: &Run, script: &[Matrix]) -> Vec<f64> {
    let mut specs = run.specs();
    for (node, spec) in specs.iter_mut().enumerate() {
        let narrow = |u: &Vec<f64>| u.iter().map(|&u| u as f32).collect();
        spec.learner = Box::new(Scripted {
            updates: script.iter().map(|round| narrow(&round[node])).collect(),
        });
    }
    let models: Vec<Vec<f32>> =
        sim::run(specs, &mut NoopObserver).unwrap().into_iter().map(|ended| ended.model).collect();
    assert!(models.iter().all(|model| *model == models[0]), "{}: the nodes differ", run.rule);
    plus(&start(run), -1.0, &widen(&models[..1])[0])
}

/// The share of all updates that is missing from the model after everything had time to be sent.
pub fn leak(run: &Run, script: &[Matrix]) -> f64 {
    let produced = sum(&script.iter().map(|round| sum(round)).collect::<Vec<_>>());
    let missing = plus(&produced, -(run.nodes() as f64), &moved(run, script));
    let size = |v: &[f64]| v.iter().map(|v| v.abs()).sum::<f64>();
    size(&missing) / size(&produced)
}
