//! One node's local steps: stochastic gradient descent with momentum and weight decay, or AdamW.

use std::ops::Range;

use super::{Adam, Batch, BatchSize, Batches, Objective, OptimizerConfig, Ready};
use crate::{
    state::Visitor,
    units::{NodeId, Round},
    vector,
};

/// The local steps of one node. In local step h of a round, at y (which starts as x), stochastic
/// gradient descent is
///
/// ```text
/// g = gradient of the batch at y, plus lambda y
/// m = mu m + g                      (Polyak 1964, in the form of Sutskever et al. 2013 without its (1 - mu))
/// y = y - step m
/// ```
///
/// and AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2)
///
/// ```text
/// g = gradient of the batch at y,   t = this node's local steps so far, with this one
/// m = beta_1 m + (1 - beta_1) g
/// v = beta_2 v + (1 - beta_2) g g
/// y = y - step (m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + lambda y)
/// ```
///
/// DIFFERENCE: lambda is multiplied by the step size, as in PyTorch; the paper has a separate one.
///
/// The update of the round is x - y after H local steps, kept as the sum of step * direction: so H
/// = 1 has no rounding from an addition and its reversal.
///
/// **Memory:** d numbers with momentum, 2 d with AdamW, 2 d more with several local steps, and the
/// batch's row numbers.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    batches: Batches,
    moments: Moments,
    /// y and the gradient at y; empty with one local step.
    point: Vec<f32>,
    gradient: Vec<f32>,
    /// The squared norm of the last update.
    squared: f64,
}

impl Optimizer {
    /// The optimizer of a node with this many rows and parameters. `node` only names the stream of
    /// its batches.
    pub fn new(
        config: OptimizerConfig,
        seed: u64,
        node: NodeId,
        rows: usize,
        parameters: usize,
    ) -> Optimizer {
        let size = match config.batch {
            BatchSize::Full => None,
            BatchSize::Rows(rows) => Some(rows),
        };
        let several = if config.local_steps > 1 { parameters } else { 0 };
        let adam = config.adam.is_some();
        let length = |kept: bool| if kept { parameters } else { 0 };
        let moments = Moments {
            first: vec![0.0; length(adam || config.momentum > 0.0)],
            second: vec![0.0; length(adam)],
            steps: 0.0,
        };
        Optimizer {
            batches: Batches::new(seed, node, rows, size),
            moments,
            point: vec![0.0; several],
            gradient: vec![0.0; several],
            squared: 0.0,
            config,
        }
    }

    /// Writes the update of a round at `x`, to be subtracted from it; `x` is not changed. Returns
    /// the mean loss of the batches.
    ///
    /// Batches depend on the round, not on the number of calls; the momentum depends on the calls.
    ///
    /// # Panics
    /// If a length is not the objective's.
    pub fn update(
        &mut self,
        round: Round,
        x: &[f32],
        objective: &mut dyn Objective,
        update: &mut [f32],
    ) -> f64 {
        self.update_by_parts(round, x, objective, update, &mut |_, _| {})
    }

    /// The same, to the bit, but reports each part as soon as it is final: each coordinate of the
    /// last local step's gradient becomes one of the update at once.
    ///
    /// # Panics
    /// If a length is not the objective's.
    pub fn update_by_parts(
        &mut self,
        round: Round,
        x: &[f32],
        objective: &mut dyn Objective,
        update: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        let step = self.step_size(round) as f32;
        let steps = u64::from(self.config.local_steps);
        let first = round.0.wrapping_mul(steps);
        self.squared = 0.0;
        if steps == 1 {
            let batch: Batch<'_> = self.batches.at(first);
            let method = self.moments.begin(&self.config);
            return objective.gradient_by_parts(x, batch, update, &mut |range, update| {
                method.direct(range.clone(), x, &mut self.moments, update);
                self.squared += vector::scale_and_measure(step, &mut update[range.clone()]);
                ready(range, update);
            });
        }
        update.fill(0.0);
        self.point.copy_from_slice(x);
        let mut loss = 0.0;
        for h in 0..steps {
            let batch: Batch<'_> = self.batches.at(first.wrapping_add(h));
            let method = self.moments.begin(&self.config);
            if h + 1 == steps {
                loss += objective.gradient_by_parts(
                    &self.point,
                    batch,
                    &mut self.gradient,
                    &mut |range, gradient| {
                        method.direct(range.clone(), &self.point, &mut self.moments, gradient);
                        let part = &mut update[range.clone()];
                        vector::axpy(step, &gradient[range.clone()], part);
                        self.squared += vector::norm_squared(part);
                        ready(range, update);
                    },
                );
                break;
            }
            loss += objective.gradient(&self.point, batch, &mut self.gradient);
            method.direct(0..x.len(), &self.point, &mut self.moments, &mut self.gradient);
            vector::axpy(step, &self.gradient, update);
            for ((y, x), update) in self.point.iter_mut().zip(x).zip(&*update) {
                *y = x - update;
            }
        }
        loss / steps as f64
    }

    /// The Euclidean norm of the last update, formed while it was written.
    pub(crate) fn length(&self) -> f64 {
        self.squared.sqrt()
    }

    /// The step size of a round.
    pub fn step_size(&self, round: Round) -> f64 {
        self.config.schedule.at(round)
    }

    /// The sum of the step sizes of a round's local steps.
    pub fn step_of(&self, round: Round) -> f32 {
        self.config.local_steps as f32 * self.step_size(round) as f32
    }

    /// Visits what must survive a restart: the momentum, d numbers; or AdamW's two moments, 2 d,
    /// and the count of its steps.
    pub fn state(&mut self, visitor: &mut dyn Visitor) {
        let Moments { first, second, steps } = &mut self.moments;
        if self.config.adam.is_some() {
            visitor.vector("first moment", first);
            visitor.vector("second moment", second);
            visitor.number("steps", steps);
        } else if !first.is_empty() {
            visitor.vector("momentum", first);
        }
    }
}

/// What is kept of earlier gradients.
#[derive(Debug)]
struct Moments {
    /// m; empty without momentum.
    first: Vec<f32>,
    /// v; empty without AdamW.
    second: Vec<f32>,
    /// t, a whole number.
    steps: f64,
}

impl Moments {
    /// Counts a local step, and returns how its gradient becomes a direction.
    fn begin(&mut self, config: &OptimizerConfig) -> Method {
        let decay = config.weight_decay;
        match config.adam {
            None => Method::Sgd { momentum: config.momentum, decay },
            Some(Adam { beta1, beta2, epsilon }) => {
                self.steps += 1.0;
                let kept = |beta: f64| 1.0 - libm::pow(beta, self.steps);
                Method::Adam {
                    first: (beta1 as f32, (1.0 - beta1) as f32, (1.0 / kept(beta1)) as f32),
                    second: (beta2 as f32, (1.0 - beta2) as f32, (1.0 / kept(beta2).sqrt()) as f32),
                    epsilon,
                    decay,
                }
            }
        }
    }
}

/// How the gradient of a local step becomes its direction.
#[derive(Clone, Copy, Debug)]
enum Method {
    Sgd {
        momentum: f32,
        decay: f32,
    },
    /// For each moment: beta, 1 - beta, and what undoes its start from 0.
    Adam {
        first: (f32, f32, f32),
        second: (f32, f32, f32),
        epsilon: f32,
        decay: f32,
    },
}

impl Method {
    /// Turns a range of the gradient at `x` into that of the direction.
    fn direct(self, range: Range<usize>, x: &[f32], moments: &mut Moments, gradient: &mut [f32]) {
        let gradient = &mut gradient[range.clone()];
        match self {
            Method::Sgd { momentum, decay } => {
                if decay > 0.0 {
                    vector::axpy(decay, &x[range.clone()], gradient);
                }
                if !moments.first.is_empty() {
                    for (m, g) in moments.first[range].iter_mut().zip(gradient) {
                        *m = momentum * *m + *g;
                        *g = *m;
                    }
                }
            }
            Method::Adam { first, second, epsilon, decay } => {
                let both = moments.first[range.clone()].iter_mut();
                let both = both.zip(&mut moments.second[range.clone()]);
                for (((m, v), x), g) in both.zip(&x[range]).zip(gradient) {
                    *m = first.0 * *m + first.1 * *g;
                    *v = second.0 * *v + second.1 * (*g * *g);
                    *g = first.2 * *m / (second.2 * v.sqrt() + epsilon) + decay * x;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OptimizerKind, OptimizerParams, Tensor, schedule::ScheduleKind};
    use super::*;
    use crate::state::State;

    /// f(x) = mean over the batch's rows r of (x - r)^2 / 2: the gradient is x - mean of the rows.
    struct Parabola {
        tensors: Vec<Tensor>,
        seen: Vec<Vec<u32>>,
    }

    impl Parabola {
        fn new() -> Parabola {
            Parabola { tensors: vec![Tensor::new("x", &[1])], seen: Vec::new() }
        }
    }

    impl Objective for Parabola {
        fn tensors(&self) -> &[Tensor] {
            &self.tensors
        }

        fn rows(&self) -> usize {
            5
        }

        fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64 {
            let rows: Vec<u32> = match batch {
                Batch::All => (0..5).collect(),
                Batch::Rows(rows) => rows.to_vec(),
            };
            let mean = rows.iter().map(|&r| r as f32).sum::<f32>() / rows.len() as f32;
            out[0] = x[0] - mean;
            let loss = rows.iter().map(|&r| f64::from(x[0] - r as f32).powi(2) / 2.0).sum::<f64>()
                / rows.len() as f64;
            self.seen.push(rows);
            loss
        }

        fn loss(&mut self, x: &[f32]) -> f64 {
            self.gradient(x, Batch::All, &mut [0.0])
        }
    }

    fn optimizer(change: impl Fn(&mut OptimizerParams)) -> Optimizer {
        let mut params =
            OptimizerParams { step: 0.5, batch: BatchSize::Full, ..OptimizerParams::default() };
        change(&mut params);
        Optimizer::new(params.check(100).unwrap(), 1, NodeId(0), 5, 1)
    }

    /// x after each of three rounds from x = 10 (the optimum is 2).
    fn path(mut optimizer: Optimizer) -> Vec<f32> {
        let mut objective = Parabola::new();
        let (mut x, mut update) = ([10.0f32], [f32::NAN]);
        (0..3)
            .map(|round| {
                optimizer.update(Round(round), &x, &mut objective, &mut update);
                assert_eq!(optimizer.length(), f64::from(update[0]).abs());
                x[0] -= update[0];
                x[0]
            })
            .collect()
    }

    #[test]
    fn sequences_by_hand() {
        assert_eq!(path(optimizer(|_| ())), [6.0, 4.0, 3.0]);
        // m = 8, 8, 4: x = 10 - 4, 6 - 4, 2 - 2 (m = 0.5 m + g).
        assert_eq!(path(optimizer(|p| p.momentum = 0.5)), [6.0, 2.0, 0.0]);
        // g = 1.5 x - 2: 13, 3.25, 0.8125.
        assert_eq!(path(optimizer(|p| p.weight_decay = 0.5)), [3.5, 1.875, 1.46875]);
        // g = 13, m = 13, x = 3.5; g = 3.25, m = 9.75, x = -1.375; g = -4.0625, m = 0.8125, x =
        // -1.78125.
        let both = |p: &mut OptimizerParams| (p.weight_decay, p.momentum) = (0.5, 0.5);
        assert_eq!(path(optimizer(both)), [3.5, -1.375, -1.78125]);
        let steps = |p: &mut OptimizerParams| {
            (p.schedule, p.decay_at, p.decay_factor) =
                (ScheduleKind::Step, Some(vec![0.01, 0.02]), Some(0.5));
        };
        assert_eq!(path(optimizer(steps)), [6.0, 5.0, 4.625]);
    }

    #[test]
    fn adamw_by_hand() {
        // The first direction is the sign of the gradient; with equal betas of 0 it always is.
        let signs = path(optimizer(|p| {
            (p.kind, p.beta1, p.beta2) = (OptimizerKind::AdamW, Some(0.0), Some(0.0));
        }));
        assert_eq!(signs, [9.5, 9.0, 8.5]);
        // g = 8: m = 4, v = 16, corrected 8 and 64, and lambda x = 1; then g = 7.
        let path = path(optimizer(|p| {
            (p.kind, p.beta1, p.beta2) = (OptimizerKind::AdamW, Some(0.5), Some(0.75));
            p.weight_decay = 0.1;
        }));
        let second = 9.0 - 0.5 * ((0.5 * 4.0 + 3.5) / 0.75 / f64::sqrt(24.25 / 0.4375) + 0.9);
        assert_eq!(path[0], 9.0);
        assert!((f64::from(path[1]) - second).abs() < 1e-6, "{} {second}", path[1]);
    }

    #[test]
    fn local_steps_equal_as_many_rounds() {
        let adamw = OptimizerKind::AdamW;
        for (kind, momentum, weight_decay) in
            [(OptimizerKind::Sgd, 0.0, 0.0), (OptimizerKind::Sgd, 0.5, 0.5), (adamw, 0.0, 0.5)]
        {
            let same = |p: &mut OptimizerParams| {
                (p.kind, p.momentum, p.weight_decay) = (kind, momentum, weight_decay);
            };
            let single = path(optimizer(same));
            let mut several = optimizer(|p| (same(p), p.local_steps = 3).1);
            let (mut objective, mut update) = (Parabola::new(), [f32::NAN]);
            let loss = several.update(Round(0), &[10.0], &mut objective, &mut update);
            // Steps of AdamW are no powers of two: their sum is rounded.
            let rounding = if kind == adamw { 1e-6 } else { 0.0 };
            assert!((10.0 - update[0] - single[2]).abs() <= rounding, "{update:?} {single:?}");
            assert!(loss < 10.0f64.powi(2) && loss > 0.0);
            assert_eq!(several.length(), f64::from(update[0]).abs());
        }
    }

    #[test]
    fn batches_follow_the_round_and_the_local_step() {
        let seen = |local_steps, rounds: Range<u64>| {
            let mut optimizer =
                optimizer(|p| (p.batch, p.local_steps) = (BatchSize::Rows(2), local_steps));
            let mut objective = Parabola::new();
            for round in rounds {
                optimizer.update(Round(round), &[0.0], &mut objective, &mut [0.0]);
            }
            objective.seen
        };
        assert_eq!(seen(1, 0..6), seen(3, 0..2));
        assert_eq!(seen(1, 3..6), seen(1, 0..6)[3..]);
    }

    #[test]
    fn the_state_is_the_momentum() {
        let mut optimizer = optimizer(|p| p.momentum = 0.5);
        optimizer.update(Round(0), &[10.0], &mut Parabola::new(), &mut [0.0]);
        let state = State::copy(|visitor| optimizer.state(visitor));
        assert_eq!(state.vectors, [("momentum".to_string(), vec![8.0])]);
        let mut plain = self::optimizer(|_| ());
        assert_eq!(State::copy(|visitor| plain.state(visitor)), State::default());
        let mut adamw = self::optimizer(|p| p.kind = OptimizerKind::AdamW);
        adamw.update(Round(0), &[10.0], &mut Parabola::new(), &mut [0.0]);
        let state = State::copy(|visitor| adamw.state(visitor));
        assert_eq!(state.numbers, [("steps".to_string(), 1.0)]);
        assert_eq!(state.vectors.len(), 2);
    }
}
