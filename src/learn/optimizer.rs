//! One node's local steps: stochastic gradient descent with momentum and weight decay.

use std::ops::Range;

use super::{Batch, BatchSize, Batches, Objective, OptimizerConfig, Ready};
use crate::{
    state::Visitor,
    units::{NodeId, Round},
    vector,
};

/// Stochastic gradient descent of one node. In local step h of a round, at y (which starts as x):
///
/// ```text
/// g = gradient of the batch at y, plus lambda y
/// m = mu m + g                      (Polyak 1964, in the form of Sutskever et al. 2013 without its (1 - mu))
/// y = y - step m
/// ```
///
/// The update of the round is x - y after H local steps, kept as the sum of step * m: so H = 1 has
/// no rounding from an addition and its reversal.
///
/// **Memory:** d numbers with momentum, 2 d more with several local steps, and the batch's row
/// numbers.
#[derive(Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    batches: Batches,
    /// m; empty without momentum.
    momentum: Vec<f32>,
    /// y and the gradient at y; empty with one local step.
    point: Vec<f32>,
    gradient: Vec<f32>,
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
        let momentum = if config.momentum > 0.0 { parameters } else { 0 };
        Optimizer {
            batches: Batches::new(seed, node, rows, size),
            momentum: vec![0.0; momentum],
            point: vec![0.0; several],
            gradient: vec![0.0; several],
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
        if steps == 1 {
            let batch: Batch<'_> = self.batches.at(first);
            return objective.gradient_by_parts(x, batch, update, &mut |range, update| {
                direct(&self.config, range.clone(), x, &mut self.momentum, update);
                vector::scale(step, &mut update[range.clone()]);
                ready(range, update);
            });
        }
        update.fill(0.0);
        self.point.copy_from_slice(x);
        let mut loss = 0.0;
        for h in 0..steps {
            let batch: Batch<'_> = self.batches.at(first.wrapping_add(h));
            if h + 1 == steps {
                loss += objective.gradient_by_parts(
                    &self.point,
                    batch,
                    &mut self.gradient,
                    &mut |range, gradient| {
                        direct(
                            &self.config,
                            range.clone(),
                            &self.point,
                            &mut self.momentum,
                            gradient,
                        );
                        vector::axpy(step, &gradient[range.clone()], &mut update[range.clone()]);
                        ready(range, update);
                    },
                );
                break;
            }
            loss += objective.gradient(&self.point, batch, &mut self.gradient);
            direct(&self.config, 0..x.len(), &self.point, &mut self.momentum, &mut self.gradient);
            vector::axpy(step, &self.gradient, update);
            for ((y, x), update) in self.point.iter_mut().zip(x).zip(&*update) {
                *y = x - update;
            }
        }
        loss / steps as f64
    }

    /// The step size of a round.
    pub fn step_size(&self, round: Round) -> f64 {
        self.config.schedule.at(round)
    }

    /// The sum of the step sizes of a round's local steps.
    pub fn step_of(&self, round: Round) -> f32 {
        self.config.local_steps as f32 * self.step_size(round) as f32
    }

    /// Visits what must survive a restart: the momentum, d numbers, or none.
    pub fn state(&mut self, visitor: &mut dyn Visitor) {
        if !self.momentum.is_empty() {
            visitor.vector("momentum", &mut self.momentum);
        }
    }

    /// The constants.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }
}

/// Turns a range of a gradient into that of the direction of a step: m = mu m + (g + lambda x).
fn direct(
    config: &OptimizerConfig,
    range: Range<usize>,
    x: &[f32],
    momentum: &mut [f32],
    gradient: &mut [f32],
) {
    let gradient = &mut gradient[range.clone()];
    if config.weight_decay > 0.0 {
        vector::axpy(config.weight_decay, &x[range.clone()], gradient);
    }
    if !momentum.is_empty() {
        for (m, g) in momentum[range].iter_mut().zip(gradient) {
            *m = config.momentum * *m + *g;
            *g = *m;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OptimizerParams, Tensor, schedule::ScheduleKind};
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
                (ScheduleKind::Step, Some(vec![0.01, 0.02]), Some(0.5))
        };
        assert_eq!(path(optimizer(steps)), [6.0, 5.0, 4.625]);
    }

    #[test]
    fn local_steps_equal_as_many_rounds() {
        for (momentum, weight_decay) in [(0.0, 0.0), (0.5, 0.5)] {
            let single =
                path(optimizer(|p| (p.momentum, p.weight_decay) = (momentum, weight_decay)));
            let mut several = optimizer(|p| {
                (p.momentum, p.weight_decay, p.local_steps) = (momentum, weight_decay, 3)
            });
            let (mut objective, mut update) = (Parabola::new(), [f32::NAN]);
            let loss = several.update(Round(0), &[10.0], &mut objective, &mut update);
            assert_eq!(10.0 - update[0], single[2]);
            assert!(loss < 10.0f64.powi(2) && loss > 0.0);
        }
    }

    #[test]
    fn batches_follow_the_round_and_the_local_step() {
        let seen = |local_steps, rounds: std::ops::Range<u64>| {
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
    }
}
