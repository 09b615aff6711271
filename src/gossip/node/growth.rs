//! Detects divergence while values are still finite: a model has grown more than its start and its
//! gradients explain.
//!
//! If updates per step never become longer than the longest of the first 16 rounds, then
//!
//! ```text
//! |x_t| <= |x_0| + S_t G
//! S_t = the sum of the steps until t
//! G = the longest |update| / step of the first 16 rounds
//! ```
//! and gossip adds the changes of neighbours. A model has diverged if `|x_t| > 1000 (|x_0| +
//! sqrt(d) + S_t G)`. The term sqrt(d) allows values of the order of 1 even if x_0 and the first
//! gradients are 0. G follows the scale of the data. The factor 1000 leaves room for momentum, for
//! neighbours with steeper gradients, and for a start on a plateau. Updates that grow with x, or
//! copies that oscillate, exceed every such bound.
//!
//! x is checked in every 16th round and at the end, updates in the first 16 rounds: one pass over a
//! vector each. These checks depend on the round only, never on time or on evaluations, so every
//! driver decides alike. Before each checkpoint x is checked too: a run must be able to continue
//! from it. That finds what the next check would find some rounds later. So are the other vectors
//! that the rule keeps, with a bound that is 1000 times greater.

use crate::{gossip::event::Failure, units::Round, vector};

/// Rounds between two checks of x; also the number of first rounds whose updates are measured.
const EVERY: u64 = 16;

/// The factor by which a model may exceed its expected length.
const TIMES: f64 = 1000.0;

/// The growth of one node's model.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// |x_0| + sqrt(d); 0 before it is known.
    start: f64,
    /// S.
    steps: f64,
    /// G.
    gradient: f64,
}

impl Growth {
    /// Its three numbers, for a snapshot.
    pub(super) fn numbers(&self) -> [f64; 3] {
        [self.start, self.steps, self.gradient]
    }

    /// The growth with these numbers.
    pub(super) fn of([start, steps, gradient]: [f64; 3]) -> Growth {
        Growth { start, steps, gradient }
    }

    /// The length above which a model has diverged.
    fn most(&self) -> f64 {
        match self.start == 0.0 {
            true => f64::MAX,
            false => TIMES * (self.start + self.steps * self.gradient),
        }
    }

    /// The length above which a neighbour's vector is the cause if this node's model diverges: its
    /// own is shorter than a thousandth of that, or it has been stopped before.
    pub(super) fn most_of_others(&self) -> f64 {
        TIMES * self.most()
    }

    /// Records an update that was computed at `x`, before it is applied. `each`: checks x in every
    /// round.
    ///
    /// # Errors
    /// If x has diverged.
    pub(super) fn computed(
        &mut self,
        round: Round,
        x: &[f32],
        update: &[f32],
        step: f32,
        each: bool,
    ) -> Result<(), Failure> {
        if self.start == 0.0 {
            self.start = vector::norm_squared(x).sqrt() + (x.len() as f64).sqrt();
        } else if each || round.0.is_multiple_of(EVERY) {
            self.check(round, x)?;
        }
        self.steps += f64::from(step);
        if round.0 < EVERY && step > 0.0 {
            let length = vector::norm_squared(update).sqrt() / f64::from(step);
            // `max` ignores a NaN: its cause appears in x.
            self.gradient = self.gradient.max(length);
        }
        Ok(())
    }

    /// Checks a model at any time; before the first update every finite one passes.
    ///
    /// # Errors
    /// If it has diverged. The failure names its greatest value, or the first that is not finite.
    pub(super) fn check(&self, round: Round, x: &[f32]) -> Result<(), Failure> {
        Growth::check_below(self.most(), round, x)
    }

    /// Checks a vector that the rule keeps besides x, as a copy or a sum of gradients. If it is far
    /// too large, x diverges later.
    ///
    /// # Errors
    /// If x would diverge.
    pub(super) fn check_kept(&self, round: Round, kept: &[f32]) -> Result<(), Failure> {
        Growth::check_below(self.most_of_others().max(TIMES * TIMES * self.gradient), round, kept)
    }

    fn check_below(most: f64, round: Round, x: &[f32]) -> Result<(), Failure> {
        let length = vector::norm_squared(x).sqrt();
        if length <= most {
            return Ok(());
        }
        let index = vector::first_non_finite(x).unwrap_or_else(|| {
            let greater = |best: usize, (index, value): (usize, &f32)| {
                if value.abs() > x[best].abs() { index } else { best }
            };
            x.iter().enumerate().fold(0, greater)
        });
        Err(Failure::Diverged { round, index, value: x[index] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds until a model of two numbers that grows by `factor` a round is stopped; the update is
    /// its growth.
    fn stopped(start: f32, factor: f32, rounds: u64) -> Option<u64> {
        let (mut growth, mut x) = (Growth::default(), vec![start; 2]);
        for round in 0..rounds {
            let update: Vec<f32> = x.iter().map(|x| x * (factor - 1.0)).collect();
            if growth.computed(Round(round), &x, &update, 0.1, false).is_err() {
                return Some(round);
            }
            x.iter_mut().zip(&update).for_each(|(x, u)| *x += u);
        }
        growth.check(Round(rounds), &x).is_err().then_some(rounds)
    }

    #[test]
    fn growth_without_end_is_stopped_whatever_the_scale_and_a_straight_way_is_not() {
        for start in [1e-3, 1.0, 1e6] {
            assert!(
                stopped(start, 1.5, 200).is_some_and(|round| round.is_multiple_of(EVERY)),
                "{start}"
            );
        }
        assert_eq!(stopped(1.0, 1.0, 200), None);
        let (mut growth, mut x) = (Growth::default(), vec![0.0f32; 2]);
        for round in 0..100_000 {
            growth.computed(Round(round), &x, &[-10.0; 2], 0.1, false).unwrap();
            x.iter_mut().for_each(|x| *x += 10.0);
        }
        growth.check(Round(100_000), &x).unwrap();
    }

    #[test]
    fn what_is_not_finite_is_named_first_and_else_the_greatest() {
        let growth = Growth { start: 1.0, steps: 1.0, gradient: 1.0 };
        let at = |x: &[f32]| match growth.check(Round(3), x) {
            Err(Failure::Diverged { round: Round(3), index, .. }) => index,
            other => panic!("{other:?}"),
        };
        assert_eq!(at(&[1e9, f32::NAN, f32::INFINITY]), 1);
        assert_eq!(at(&[1.0, -1e9, 1e8]), 1);
        growth.check(Round(3), &[1999.0]).unwrap();
        Growth::default().check(Round(0), &[f32::MAX]).unwrap();
    }
}
