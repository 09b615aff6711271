//! Gradients against finite differences of a loss written here in `f64`, and the optimizer against
//! a plain one.
//!
//! The second loss is written from the formulas in the models' documentation, one row at a time,
//! without code of the crate. Its central differences with h = 1e-5 err by h^2 times a third
//! derivative and by 1e-16 / h: under 1e-8 here, far below the rounding of `f32`.

use std::sync::Arc;

use gradvine::state::State;
use gradvine::{
    data::{Dataset, Target, Task},
    learn::{
        BLOCK_ROWS, Batch, BatchSize, Batches, KINDS, Model, ModelParams, Objective, Optimizer,
        OptimizerKind, OptimizerParams, ScheduleKind, Tensor,
    },
    rng::{Purpose, Sequence, Stream},
    units::{NodeId, Round},
};
use ndarray::Array2;

fn dice(name: u64) -> Sequence {
    Stream::new(31, Purpose::Test).with(name).sequence()
}

/// A model as the test computes it.
struct Reference {
    kind: &'static str,
    task: Task,
    /// Inputs, hidden layers, outputs.
    widths: Vec<usize>,
    bias: bool,
}

impl Reference {
    fn model(&self) -> Model {
        let (inputs, outputs) = (self.widths[0], self.widths[self.widths.len() - 1]);
        let hidden = self.widths[1..self.widths.len() - 1].to_vec();
        let params = ModelParams {
            kind: self.kind.into(),
            task: Some(self.task),
            hidden: (self.kind == "mlp").then_some(hidden),
            bias: self.bias,
            ..ModelParams::default()
        };
        Model::resolve(&params, Some(inputs), Some(outputs)).unwrap()
    }

    /// Scores of one row: y = x W + b from layer to layer, ReLU between them. W is inputs x
    /// outputs, row-major, then b.
    fn scores(&self, parameters: &[f64], row: &[f64]) -> Vec<f64> {
        let (mut values, mut at) = (row.to_vec(), 0);
        for (layer, pair) in self.widths.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let weight = &parameters[at..at + inputs * outputs];
            at += inputs * outputs;
            let mut next = vec![0.0; outputs];
            if self.bias {
                next.copy_from_slice(&parameters[at..at + outputs]);
                at += outputs;
            }
            for (i, value) in values.iter().enumerate() {
                for (o, next) in next.iter_mut().enumerate() {
                    *next += value * weight[i * outputs + o];
                }
            }
            if layer + 2 < self.widths.len() {
                next.iter_mut().for_each(|z| *z = z.max(0.0));
            }
            values = next;
        }
        assert_eq!(at, parameters.len(), "every parameter is used");
        values
    }

    fn row_loss(&self, parameters: &[f64], data: &Dataset, row: usize) -> f64 {
        let features: Vec<f64> = data.features.row(row).iter().map(|&x| f64::from(x)).collect();
        let scores = self.scores(parameters, &features);
        match &data.target {
            Target::Classes { labels, .. } => {
                let sum: f64 = scores.iter().map(|z| z.exp()).sum();
                sum.ln() - scores[labels[row] as usize]
            }
            Target::Values(values) => {
                let square = |(z, y): (&f64, &f32)| (z - f64::from(*y)).powi(2);
                scores.iter().zip(values.row(row)).map(square).sum::<f64>() / 2.0
            }
        }
    }

    fn loss(&self, parameters: &[f64], data: &Dataset, rows: &[u32]) -> f64 {
        rows.iter().map(|&row| self.row_loss(parameters, data, row as usize)).sum::<f64>()
            / rows.len() as f64
    }

    /// By central differences.
    fn gradient(&self, parameters: &[f64], data: &Dataset, rows: &[u32]) -> Vec<f64> {
        const H: f64 = 1e-5;
        let mut x = parameters.to_vec();
        let mut slope = |i: usize| {
            let mut at = |offset: f64| {
                x[i] = parameters[i] + offset;
                self.loss(&x, data, rows)
            };
            let slope = (at(H) - at(-H)) / (2.0 * H);
            x[i] = parameters[i];
            slope
        };
        (0..parameters.len()).map(&mut slope).collect()
    }

    fn data(&self, rows: usize) -> Dataset {
        let (inputs, outputs) = (self.widths[0], self.widths[self.widths.len() - 1]);
        let mut random = dice(rows as u64);
        let features = Array2::from_shape_simple_fn((rows, inputs), || random.normal() as f32);
        let target = match self.task {
            Task::Regression => {
                let value = || random.normal() as f32;
                Target::Values(Array2::from_shape_simple_fn((rows, outputs), value))
            }
            _ => {
                let labels = (0..rows).map(|_| random.below(outputs as u64) as u32).collect();
                Target::Classes { labels, names: (0..outputs).map(|c| c.to_string()).collect() }
            }
        };
        Dataset::new("generated", features, target).unwrap()
    }
}

/// Each kind of the registry with each of its tasks, with and without bias; for a new kind this
/// fails until it is written here.
fn references() -> Vec<Reference> {
    let mut all = Vec::new();
    for kind in KINDS {
        let widths: &[&[usize]] = match kind.name() {
            "least-squares" => &[&[1, 1], &[6, 1], &[5, 3]],
            "softmax" => &[&[1, 2], &[6, 3], &[4, 1]],
            "mlp" => &[&[4, 8, 3], &[3, 1, 2], &[5, 7, 6, 3], &[2, 3, 4, 5, 2], &[4, 3]],
            other => panic!("`{other}` is new: say its sizes here and its loss in row_loss"),
        };
        for &task in kind.tasks() {
            for widths in widths {
                for bias in [true, false] {
                    let widths = widths.to_vec();
                    all.push(Reference { kind: kind.name(), task, widths, bias });
                }
            }
        }
    }
    all
}

/// Parameters that `f32` holds exactly, off zero.
fn parameters(count: usize) -> Vec<f32> {
    let mut random = dice(1);
    (0..count).map(|_| 0.7 * random.normal() as f32).collect()
}

/// The tolerance for numbers of this magnitude: every partial sum of a product or a batch errs by
/// 2^-24 of it, and these sums have at most a few hundred terms whose errors hardly add up: 64
/// units.
fn tolerance(magnitude: f64) -> f64 {
    64.0 * magnitude.max(0.1) / f64::from(1u32 << 24)
}

#[test]
#[ignore = "slow"]
fn gradients_are_the_slopes_of_the_loss() {
    for reference in references() {
        let model = reference.model();
        // More rows than a block, and not a multiple of it.
        let rows = BLOCK_ROWS + 44;
        let data = Arc::new(reference.data(rows));
        let x = parameters(model.parameters());
        let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let mut objective = model.objective(Arc::clone(&data)).unwrap();
        let all: Vec<u32> = (0..rows as u32).collect();
        let long: Vec<u32> =
            all.iter().map(|row| (row * 7 + 3) % rows as u32).chain([5, 5, 5]).collect();
        for (batch, rows) in [
            (Batch::All, &all[..]),
            (Batch::Rows(&all[9..10]), &all[9..10]),
            (Batch::Rows(&[3, 250, 3, 299, 0]), &[3, 250, 3, 299, 0]),
            (Batch::Rows(&long), &long),
        ] {
            let name = format!(
                "{} for {} {:?} bias {} over {} rows",
                reference.kind,
                reference.task.name(),
                reference.widths,
                reference.bias,
                rows.len()
            );
            let expected = reference.gradient(&exact, &data, rows);
            // The former contents of `out` must not matter.
            let mut found = vec![f32::NAN; x.len()];
            let loss = objective.gradient(&x, batch, &mut found);
            let exact_loss = reference.loss(&exact, &data, rows);
            assert!(
                (loss - exact_loss).abs() <= tolerance(exact_loss),
                "{name}: loss {loss}, {exact_loss} expected"
            );
            let magnitude = expected.iter().fold(0f64, |a, g| a.max(g.abs()));
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let error = (f64::from(*found) - expected).abs();
                assert!(
                    error <= tolerance(magnitude),
                    "{name}: slope {i} is {found}, {expected} expected"
                );
            }
        }
        let exact_loss = reference.loss(&exact, &data, &all);
        assert!((objective.loss(&x) - exact_loss).abs() <= tolerance(exact_loss));
    }
}

/// The control: if one parameter's slope is taken for its neighbour's, the comparison above fails
/// by far.
#[test]
fn the_tolerance_detects_a_wrong_slope() {
    for reference in references().iter().filter(|reference| reference.widths[0] > 2) {
        let data = reference.data(40);
        let rows: Vec<u32> = (0..40).collect();
        let x: Vec<f64> =
            parameters(reference.model().parameters()).iter().map(|&x| f64::from(x)).collect();
        let slopes = reference.gradient(&x, &data, &rows);
        let magnitude = slopes.iter().fold(0f64, |a, g| a.max(g.abs()));
        let apart = slopes
            .windows(2)
            .filter(|pair| (pair[0] - pair[1]).abs() > tolerance(magnitude))
            .count();
        // One class has the loss 0 for any x.
        assert!(
            apart * 2 > slopes.len()
                || reference.widths.ends_with(&[1]) && reference.task == Task::Classification
        );
    }
}

#[test]
fn tasks_are_those_of_the_references() {
    use Task::{Classification, Regression};
    let tasks: Vec<_> = KINDS.iter().map(|kind| (kind.name(), kind.tasks())).collect();
    let expected: [(&str, &[Task]); 3] = [
        ("least-squares", &[Regression]),
        ("softmax", &[Classification]),
        ("mlp", &[Classification, Regression]),
    ];
    assert_eq!(tasks, expected);
}

/// f(x) = mean over rows of (a_r / 2) |x - c_r|^2, whose batches are kept.
struct Bowls {
    tensors: Vec<Tensor>,
    centres: Vec<Vec<f32>>,
    asked: Vec<Vec<u32>>,
}

const ROWS: usize = 10;
const D: usize = 3;

impl Bowls {
    fn new() -> Bowls {
        let mut random = dice(2);
        let centres = (0..ROWS).map(|_| (0..D).map(|_| random.normal() as f32).collect()).collect();
        Bowls { tensors: vec![Tensor::new("x", &[D])], centres, asked: Vec::new() }
    }

    /// a_r, so that rows differ in more than their place.
    fn curvature(row: usize) -> f64 {
        0.5 + row as f64 / ROWS as f64
    }

    fn slope(&self, x: &[f64], rows: &[u32]) -> Vec<f64> {
        let slope = |k: usize| {
            let of = |&row: &u32| {
                Bowls::curvature(row as usize) * (x[k] - f64::from(self.centres[row as usize][k]))
            };
            rows.iter().map(of).sum::<f64>() / rows.len() as f64
        };
        (0..D).map(slope).collect()
    }

    fn value(&self, x: &[f64], rows: &[u32]) -> f64 {
        let of = |&row: &u32| {
            let centre = &self.centres[row as usize];
            let square =
                x.iter().zip(centre).map(|(x, c)| (x - f64::from(*c)).powi(2)).sum::<f64>();
            Bowls::curvature(row as usize) * square / 2.0
        };
        rows.iter().map(of).sum::<f64>() / rows.len() as f64
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

impl Objective for Bowls {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        ROWS
    }

    fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64 {
        let rows = match batch {
            Batch::All => (0..ROWS as u32).collect(),
            Batch::Rows(rows) => rows.to_vec(),
        };
        for (out, slope) in out.iter_mut().zip(self.slope(&wide(x), &rows)) {
            *out = slope as f32;
        }
        let loss = self.value(&wide(x), &rows);
        self.asked.push(rows);
        loss
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        self.value(&wide(x), &(0..ROWS as u32).collect::<Vec<u32>>())
    }
}

const ROUNDS: u64 = 40;

/// g(t) of a run of [`ROUNDS`], from the formulas in the documentation of `Schedule`.
fn step_size(params: &OptimizerParams, t: u64) -> f64 {
    let (t, rounds, warmup) = (t as f64, ROUNDS as f64, params.warmup as f64);
    let full = match params.schedule {
        ScheduleKind::Constant => params.step,
        ScheduleKind::Cosine => {
            let last = params.final_step.unwrap_or(0.0);
            let passed = ((t - warmup) / (rounds - warmup)).max(0.0);
            last + (params.step - last) * (1.0 + (std::f64::consts::PI * passed).cos()) / 2.0
        }
        ScheduleKind::Step => {
            let marks = params.decay_at.clone().unwrap_or(vec![0.5, 0.75]);
            let passed = marks.iter().filter(|mark| (**mark * rounds).round() <= t).count() as i32;
            params.step * params.decay_factor.unwrap_or(0.1).powi(passed)
        }
        other => panic!("{other:?}: its formula is missing here"),
    };
    if t < warmup { full * (t + 1.0) / (warmup + 1.0) } else { full }
}

/// All optimizers to be compared: each schedule with each of momentum, weight decay, local steps
/// and batch.
fn optimizers() -> Vec<OptimizerParams> {
    let base = OptimizerParams { step: 0.2, ..OptimizerParams::default() };
    let schedules = [
        base.clone(),
        OptimizerParams { warmup: 7, ..base.clone() },
        OptimizerParams { schedule: ScheduleKind::Cosine, ..base.clone() },
        OptimizerParams {
            schedule: ScheduleKind::Cosine,
            final_step: Some(0.05),
            warmup: 5,
            ..base.clone()
        },
        OptimizerParams { schedule: ScheduleKind::Step, ..base.clone() },
        OptimizerParams {
            schedule: ScheduleKind::Step,
            decay_at: Some(vec![0.26, 0.26, 0.9]),
            decay_factor: Some(0.5),
            ..base
        },
    ];
    let mut all = Vec::new();
    for schedule in schedules {
        for (momentum, weight_decay) in [(0.0, 0.0), (0.9, 0.0), (0.0, 0.05), (0.5, 0.01)] {
            for (local_steps, batch) in [
                (1, BatchSize::Full),
                (1, BatchSize::Rows(4)),
                (3, BatchSize::Rows(4)),
                (5, BatchSize::Full),
            ] {
                all.push(OptimizerParams {
                    momentum,
                    weight_decay,
                    local_steps,
                    batch,
                    ..schedule.clone()
                });
            }
        }
        for (weight_decay, local_steps, batch) in
            [(0.0, 1, BatchSize::Full), (0.05, 3, BatchSize::Rows(4))]
        {
            let (kind, step) = (OptimizerKind::AdamW, schedule.step / 4.0);
            let adamw = OptimizerParams {
                kind,
                step,
                final_step: schedule.final_step.map(|last| last / 4.0),
                weight_decay,
                local_steps,
                batch,
                ..schedule.clone()
            };
            let constants = (Some(0.8), Some(0.95), Some(1e-3));
            let (beta1, beta2, epsilon) = constants;
            all.push(OptimizerParams { beta1, beta2, epsilon, ..adamw.clone() });
            all.push(adamw);
        }
    }
    all
}

/// AdamW, from algorithm 2 of its paper: the direction of step `t`, from 1.
struct PlainAdamW {
    m: [f64; D],
    v: [f64; D],
    t: i32,
}

impl PlainAdamW {
    fn direction(&mut self, params: &OptimizerParams, y: &[f64], slope: &[f64]) -> Vec<f64> {
        self.t += 1;
        let (one, two) = (params.beta1.unwrap_or(0.9), params.beta2.unwrap_or(0.999));
        (0..D)
            .map(|k| {
                self.m[k] = one * self.m[k] + (1.0 - one) * slope[k];
                self.v[k] = two * self.v[k] + (1.0 - two) * slope[k] * slope[k];
                let mean = self.m[k] / (1.0 - one.powi(self.t));
                let square = self.v[k] / (1.0 - two.powi(self.t));
                mean / (square.sqrt() + params.epsilon.unwrap_or(1e-8)) + params.weight_decay * y[k]
            })
            .collect()
    }
}

/// A whole run in `f64`, each update taken from the same point as the optimizer's; they are
/// compared round by round.
fn compare(params: &OptimizerParams, node: NodeId) {
    let mut optimizer = Optimizer::new(params.check(ROUNDS).unwrap(), 9, node, ROWS, D);
    let mut bowls = Bowls::new();
    let mut batches = Batches::new(
        9,
        node,
        ROWS,
        match params.batch {
            BatchSize::Full => None,
            BatchSize::Rows(rows) => Some(rows),
        },
    );
    let all: Vec<u32> = (0..ROWS as u32).collect();
    let (mut x, mut momentum) = (vec![2.0f32, -1.0, 0.5], [0.0; D]);
    let mut plain = PlainAdamW { m: [0.0; D], v: [0.0; D], t: 0 };
    for round in 0..ROUNDS {
        let mut update = vec![f32::NAN; D];
        let loss = optimizer.update(Round(round), &x, &mut bowls, &mut update);
        let (mut y, mut losses) = (wide(&x), 0.0);
        for h in 0..u64::from(params.local_steps) {
            let rows = match batches.at(round * u64::from(params.local_steps) + h) {
                Batch::All => all.clone(),
                Batch::Rows(rows) => rows.to_vec(),
            };
            assert_eq!(bowls.asked.remove(0), rows, "{params:?}: round {round}, local step {h}");
            losses += bowls.value(&y, &rows);
            let slope = bowls.slope(&y, &rows);
            if params.kind == OptimizerKind::AdamW {
                let direction = plain.direction(params, &y, &slope);
                for k in 0..D {
                    y[k] -= step_size(params, round) * direction[k];
                }
                continue;
            }
            for k in 0..D {
                let gradient = slope[k] + f64::from(params.weight_decay as f32) * y[k];
                momentum[k] = f64::from(params.momentum as f32) * momentum[k] + gradient;
                y[k] -= step_size(params, round) * momentum[k];
            }
        }
        assert!(bowls.asked.is_empty());
        assert!(
            (loss - losses / f64::from(params.local_steps)).abs() < 1e-5,
            "{params:?}: round {round}: {loss}"
        );
        for k in 0..D {
            // Rounding of f32: of numbers up to 3, in a sum with momentum 0.9 that is ten times as
            // long.
            let (found, expected) = (f64::from(update[k]), f64::from(x[k]) - y[k]);
            assert!(
                (found - expected).abs() < 2e-5,
                "{params:?}: round {round}: {found}, {expected} expected"
            );
            x[k] -= update[k];
        }
    }
    let kept = State::copy(|visitor| optimizer.state(visitor)).vectors;
    let numbers: usize = kept.iter().map(|(_, values)| values.len()).sum();
    let expected = match params.kind {
        OptimizerKind::AdamW => 2 * D,
        _ if params.momentum > 0.0 => D,
        _ => 0,
    };
    assert_eq!(numbers, expected);
}

#[test]
fn updates_are_those_of_a_plain_optimizer() {
    for params in optimizers() {
        compare(&params, NodeId(2));
    }
}

#[test]
fn step_sizes_are_those_of_the_formulas() {
    for params in optimizers() {
        let optimizer = Optimizer::new(params.check(ROUNDS).unwrap(), 9, NodeId(0), ROWS, D);
        for t in 0..ROUNDS {
            let (found, expected) = (optimizer.step_size(Round(t)), step_size(&params, t));
            assert!(
                (found - expected).abs() < 1e-12,
                "{params:?}: round {t}: {found}, {expected} expected"
            );
        }
    }
}

#[test]
fn an_update_depends_on_the_round_and_not_on_those_before() {
    // Without momentum: a node that returns continues from the same round as the others.
    let params =
        OptimizerParams { local_steps: 3, batch: BatchSize::Rows(4), ..OptimizerParams::default() };
    let update = |rounds: &[u64]| {
        let mut optimizer = Optimizer::new(params.check(ROUNDS).unwrap(), 9, NodeId(2), ROWS, D);
        let mut update = vec![0.0; D];
        for round in rounds {
            optimizer.update(Round(*round), &[1.0, 2.0, 3.0], &mut Bowls::new(), &mut update);
        }
        update
    };
    assert_eq!(update(&[0, 1, 2, 3, 17]), update(&[17]));
    assert_ne!(update(&[16]), update(&[17]));
}

#[test]
fn epochs_cover_every_row_once() {
    for (rows, size) in [(10, 3), (10, 4), (64, 16), (7, 6), (100, 1), (2, 1), (97, 32)] {
        let mut batches = Batches::new(3, NodeId(1), rows, Some(size));
        let mut again = Batches::new(3, NodeId(1), rows, Some(size));
        let mut other = Batches::new(4, NodeId(1), rows, Some(size));
        let (mut list, mut differs) = (Vec::new(), false);
        for k in 0..5 * rows as u64 {
            let Batch::Rows(batch) = batches.at(k) else {
                panic!("{size} of {rows} rows are not all")
            };
            assert_eq!(batch.len(), size as usize);
            assert_eq!(again.at(k), Batch::Rows(batch));
            differs |= other.at(k) != Batch::Rows(batch);
            list.extend_from_slice(batch);
        }
        assert!(differs || rows < 3, "the seed makes no difference to {rows} rows");
        for epoch in list.chunks_exact(rows) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert!(
                sorted.iter().copied().eq(0..rows as u32),
                "{size} of {rows}: an epoch is {epoch:?}"
            );
        }
    }
}

#[test]
fn a_full_batch_is_every_row_in_order() {
    for size in [None, Some(10), Some(4_000_000_000)] {
        assert_eq!(Batches::new(3, NodeId(1), 10, size).at(4), Batch::All);
    }
    // A full batch and one that lists all rows are the same mean.
    let (task, widths) = (Task::Classification, vec![6, 3]);
    let reference = Reference { kind: "softmax", task, widths, bias: true };
    let model = reference.model();
    let mut objective = model.objective(Arc::new(reference.data(70))).unwrap();
    let (x, all) = (parameters(model.parameters()), (0..70).collect::<Vec<u32>>());
    let (mut whole, mut listed) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    assert_eq!(
        objective.gradient(&x, Batch::All, &mut whole),
        objective.gradient(&x, Batch::Rows(&all), &mut listed)
    );
    assert_eq!(whole, listed);
}
