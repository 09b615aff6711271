//! The local optimizer, twice: varying steps, momentum, weight decay, several local steps by the
//! crate's optimizer, and in plain f64 from the equations.

use gradvine::{
    drive::{Conclusion, Learner},
    learn::{Batch, BatchSize, Objective, Optimizer, OptimizerParams, ScheduleKind, Tensor},
    units::{NodeId, Round},
};

use super::{Problem, Run, dense::Matrix, widen};

/// The step size of a round, of `run.step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    Constant,
    /// Half a cosine from the step to a tenth of it, after four rounds in which it rises.
    Cosine,
    /// A half from a third of the run on, a quarter from its half on.
    Halving,
}

const WARMUP: u64 = 4;

/// The settings of `[optimizer]`, without the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    pub steps: Steps,
    pub momentum: f64,
    pub weight_decay: f64,
    pub local_steps: u32,
}

impl Sgd {
    pub const PLAIN: Sgd =
        Sgd { steps: Steps::Constant, momentum: 0.0, weight_decay: 0.0, local_steps: 1 };

    /// Each part alone and all of them together.
    pub const VARIED: [Sgd; 4] = [
        Sgd { steps: Steps::Cosine, ..Sgd::PLAIN },
        Sgd { momentum: 0.6, weight_decay: 0.05, ..Sgd::PLAIN },
        Sgd { local_steps: 3, ..Sgd::PLAIN },
        Sgd { steps: Steps::Halving, momentum: 0.5, weight_decay: 0.02, local_steps: 2 },
    ];

    /// The step size of a round.
    pub fn step(&self, run: &Run, round: u64) -> f64 {
        let (t, rounds) = (round as f64, run.rounds as f64);
        run.step
            * match self.steps {
                Steps::Constant => 1.0,
                Steps::Cosine if round < WARMUP => (t + 1.0) / (WARMUP + 1) as f64,
                Steps::Cosine => {
                    let passed = (t - WARMUP as f64) / (rounds - WARMUP as f64);
                    0.1 + 0.9 * (1.0 + (std::f64::consts::PI * passed).cos()) / 2.0
                }
                Steps::Halving if t < (rounds / 3.0).round() => 1.0,
                Steps::Halving if t < (rounds / 2.0).round() => 0.5,
                Steps::Halving => 0.25,
            }
    }

    /// The crate's optimizer with these settings, on the whole problem of a node.
    pub fn learner(&self, run: &Run, node: usize, problem: Problem) -> Box<dyn Learner> {
        let mut params = OptimizerParams {
            step: run.step,
            momentum: self.momentum,
            weight_decay: self.weight_decay,
            batch: BatchSize::Full,
            local_steps: self.local_steps,
            ..OptimizerParams::default()
        };
        match self.steps {
            Steps::Constant => {}
            Steps::Cosine => {
                params.schedule = ScheduleKind::Cosine;
                (params.final_step, params.warmup) = (Some(0.1 * run.step), WARMUP.min(run.rounds));
            }
            Steps::Halving => {
                params.schedule = ScheduleKind::Step;
                (params.decay_at, params.decay_factor) = (Some(vec![1.0 / 3.0, 0.5]), Some(0.5));
            }
        }
        let config = params.check(run.rounds).unwrap();
        let optimizer = Optimizer::new(config, 3, NodeId::from(node), 1, run.d);
        let objective = Whole { problem, tensors: vec![Tensor::new("x", &[run.d])] };
        Box::new(OptimizerLearner { objective, optimizer })
    }
}

/// A problem as an objective of one row.
struct Whole {
    problem: Problem,
    tensors: Vec<Tensor>,
}

impl Objective for Whole {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        1
    }

    fn gradient(&mut self, x: &[f32], _batch: Batch<'_>, out: &mut [f32]) -> f64 {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        out.iter_mut().zip(self.problem.gradient(&x)).for_each(|(out, g)| *out = g as f32);
        self.problem.loss(&x)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        self.problem.loss(&widen(&[x.to_vec()])[0])
    }
}

struct OptimizerLearner {
    objective: Whole,
    optimizer: Optimizer,
}

impl Learner for OptimizerLearner {
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.optimizer.update(round, x, &mut self.objective, update)
    }

    fn step(&self, round: Round) -> f32 {
        self.optimizer.step_of(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        conclusion.rounds.0.to_le_bytes().to_vec()
    }
}

/// The updates of nodes in f64, round after round for each node.
pub struct Updates {
    run: Run,
    problems: Vec<Problem>,
    /// m of each node.
    m: Matrix,
    /// Rounds that each node has made.
    rounds: Vec<u64>,
}

impl Updates {
    pub fn new(run: &Run) -> Updates {
        let zeros = vec![0.0; run.d];
        let (m, rounds) = (vec![zeros; run.nodes()], vec![0; run.nodes()]);
        Updates { run: run.clone(), problems: run.problems(), m, rounds }
    }

    /// The change that each node's local steps subtract from its row of `x`, and the sum of the
    /// sizes of these steps.
    pub fn next(&mut self, x: &Matrix) -> (Matrix, f64) {
        let sgd = self.run.sgd;
        let step = sgd.step(&self.run, self.rounds[0]) * f64::from(sgd.local_steps);
        (x.iter().enumerate().map(|(node, x)| self.next_of(node, x)).collect(), step)
    }

    /// The same of one node.
    pub fn next_of(&mut self, node: usize, x: &[f64]) -> Vec<f64> {
        let (sgd, step) = (self.run.sgd, self.run.sgd.step(&self.run, self.rounds[node]));
        self.rounds[node] += 1;
        let mut y = x.to_vec();
        for _ in 0..sgd.local_steps {
            let g = self.problems[node].gradient(&y);
            for ((m, y), g) in self.m[node].iter_mut().zip(&mut y).zip(g) {
                *m = sgd.momentum * *m + g + sgd.weight_decay * *y;
                *y -= step * *m;
            }
        }
        x.iter().zip(&y).map(|(x, y)| x - y).collect()
    }
}
