//! Statistics beside the parameters: averaged plainly under every rule, computed again in `f64`.

use std::sync::Arc;

use crate::properties::{ALL, home};
use gradvine::{
    drive::{Computed, NoopObserver, Wanted},
    experiment::Experiment,
    gossip::{
        plan::{self, Plan, Step},
        rule,
    },
    learn::{Ready, Tensor},
    mixing::Topology,
    run::{Design, Gradients, OwnRun},
    sim,
    units::{NodeId, Round},
};

pub(crate) const NODES: usize = 8;
const PARAMETERS: usize = 40;
const STATISTICS: usize = 3;
const ROUNDS: u64 = 30;
/// What a running variance keeps of itself in a round.
const KEPT: f64 = 0.6;

/// The variance of a node's rows, which its running variance approaches. Those of the first are a
/// thousand times those of the others, so that an outer momentum would overshoot below zero.
fn variance(node: usize, k: usize) -> f64 {
    (if node == 0 { 100.0 } else { 0.1 }) + 0.01 * k as f64
}

/// Steps of a bowl for the parameters, a running mean for the statistics.
struct Training {
    node: usize,
    rows: u64,
}

impl Gradients for Training {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        let Wanted { x, mut update, .. } = wanted;
        for (k, (out, x)) in update.iter_mut().zip(&**x).enumerate() {
            *out = match k.checked_sub(PARAMETERS) {
                None => 0.02 * (x - self.node as f32),
                Some(k) => ((1.0 - KEPT) * (f64::from(*x) - variance(self.node, k))) as f32,
            };
        }
        ready(0..update.len(), &mut update);
        Ok((update, 0.0))
    }

    fn step(&self, _round: Round) -> f32 {
        0.02
    }

    fn loss(&mut self, _x: &[f32]) -> f64 {
        f64::NAN
    }
}

fn tensors() -> Vec<Tensor> {
    vec![
        Tensor::new("weight", &[4, 8]),
        Tensor::new("bias", &[8]),
        Tensor::of_statistics("variance", &[STATISTICS]),
    ]
}

fn initial() -> Vec<f32> {
    (0..PARAMETERS + STATISTICS)
        .map(|k| if k < PARAMETERS { 0.01 * k as f32 } else { 1.0 })
        .collect()
}

pub(crate) fn run(rule: &str, compressor: &str, more: &str) -> OwnRun {
    let text = format!(
        "run.rounds = {ROUNDS}\nrun.allow_unstable = true\ntopology.file = '{}:{NODES}'\n{more}\n\
         [rule]\n{rule}\n[compressor]\n{compressor}",
        home(rule)
    );
    let experiment = Experiment::parse(&text, &[]).unwrap();
    let rows = |node| if more.contains("weighting") { 10 + 30 * node as u64 } else { 10 };
    let training = |node| -> Box<dyn Gradients> { Box::new(Training { node, rows: rows(node) }) };
    let all = (0..NODES).map(training).collect();
    OwnRun::new(&experiment, tensors(), initial(), all, None).unwrap()
}

/// How statistics travel: `None` if they stay local; otherwise whether they leave before the
/// update, and how many rounds later they are taken.
fn travel(design: &Design) -> Option<(bool, u64)> {
    let plan: &dyn Plan = &*design.rule.plan;
    if plan::is_asynchronous(plan) || rule::find(design.rule_name()).unwrap().defends {
        return None;
    }
    let steps = plan.steps();
    let gradient = steps.iter().position(|step| *step == Step::Gradient).unwrap();
    let lag = |step: &Step| if let Step::Land { lag, .. } = step { u64::from(*lag) } else { 0 };
    let before = steps[..gradient].iter().any(|step| matches!(step, Step::Launch(_)));
    Some((before, steps.iter().map(lag).max().unwrap()))
}

/// The statistics after the run, by the equation.
fn expected(travel: Option<(bool, u64)>, topology: &Topology) -> Vec<Vec<f64>> {
    let mut own = vec![vec![1.0; STATISTICS]; NODES];
    let mut sent: Vec<Vec<Vec<f64>>> = Vec::new();
    let mix = |own: &mut Vec<Vec<f64>>, sent: &[Vec<f64>]| {
        for (i, own) in own.iter_mut().enumerate() {
            let id = NodeId::from(i);
            for (k, s) in own.iter_mut().enumerate() {
                let matrix = topology.matrix();
                let others = topology.neighbours(id).iter().zip(matrix.neighbour_weights(id));
                let sum: f64 = others.map(|(j, weight)| weight * sent[j.index()][k]).sum();
                *s = matrix.self_weight(id) * *s + sum;
            }
        }
    };
    for round in 0..ROUNDS {
        let before = own.clone();
        for (i, own) in own.iter_mut().enumerate() {
            for (k, s) in own.iter_mut().enumerate() {
                *s -= (1.0 - KEPT) * (*s - variance(i, k));
            }
        }
        let Some((leaves_before, lag)) = travel else { continue };
        sent.push(if leaves_before { before } else { own.clone() });
        if let Some(launched) = round.checked_sub(lag) {
            mix(&mut own, &sent[launched as usize]);
        }
    }
    if let Some((_, lag)) = travel {
        (ROUNDS - lag.min(ROUNDS)..ROUNDS).for_each(|round| mix(&mut own, &sent[round as usize]));
    }
    own
}

/// The mean of one number of all nodes: without the extremes if the rule withstands wrong models.
pub(crate) fn mean_of(design: &Design, mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let defends = rule::find(design.rule_name()).unwrap().defends;
    let out = if defends { (numbers.len() / 4).max(1) } else { 0 };
    let kept = &numbers[out..numbers.len() - out];
    kept.iter().sum::<f64>() / kept.len() as f64
}

fn check(rule: &str, compressor: &str, more: &str) {
    let run = run(rule, compressor, more);
    let design = Arc::clone(&run.design);
    let expected = expected(travel(&run.design), &run.design.topology);
    let near = |s: f32, expected: f64| (f64::from(s) - expected).abs() < 1e-5 * expected;
    for (node, ended) in sim::run(run.specs, &mut NoopObserver).unwrap().iter().enumerate() {
        for k in 0..STATISTICS {
            let (s, mean) = (ended.model[PARAMETERS + k], ended.mean[PARAMETERS + k]);
            let of_all = mean_of(&design, expected.iter().map(|s| s[k]).collect());
            assert!(near(s, expected[node][k]), "{rule}: {node}: {s}, {}", expected[node][k]);
            assert!(near(mean, of_all), "{rule}: mean {mean}, expected {of_all}");
        }
    }
}

#[test]
fn under_every_rule_statistics_are_averaged_plainly() {
    ALL.iter().for_each(|(rule, compressor)| check(rule, compressor, ""));
}

#[test]
fn rows_are_no_weights_of_statistics() {
    for (rule, compressor) in ALL.iter().filter(|(rule, _)| rule.contains("d-psgd")) {
        check(rule, compressor, "data.weighting = 'rows'");
    }
}

#[test]
fn the_parameters_are_those_of_a_run_without_statistics() {
    for (rule, compressor) in &*ALL {
        let with = run(rule, compressor, "");
        if plan::is_asynchronous(&*with.design.rule.plan) {
            continue;
        }
        let (tensors, initial) = (tensors()[..2].to_vec(), initial()[..PARAMETERS].to_vec());
        let all = (0..NODES)
            .map(|node| -> Box<dyn Gradients> { Box::new(Training { node, rows: 10 }) })
            .collect();
        let experiment = &with.design.experiment;
        let without = OwnRun::new(experiment, tensors, initial, all, None).unwrap();
        let models = |run: OwnRun| -> Vec<Vec<f32>> {
            let ended = sim::run(run.specs, &mut NoopObserver).unwrap();
            ended.into_iter().map(|one| one.model[..PARAMETERS].to_vec()).collect()
        };
        assert_eq!(models(with), models(without), "{rule}");
    }
}
