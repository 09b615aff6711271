//! The step size of each round.

use serde::{Deserialize, Serialize};

use crate::units::Round;

/// The shape of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScheduleKind {
    /// The same in every round.
    #[default]
    Constant,
    /// Half a cosine from `step` to `final_step`.
    Cosine,
    /// Multiplied by `decay_factor` at each of `decay_at`.
    Step,
}

/// A step size for each round.
///
/// - constant: g(t) = step;
/// - cosine (Loshchilov and Hutter, "SGDR", 2017, equation 5, one period): with w rounds of warm-up
///   and T rounds in all, g(t) = final + (step - final) (1 + cos(pi (t - w) / (T - w))) / 2;
/// - step: g(t) = step * factor^(number of marked rounds at t or before).
///
/// In the first w rounds g(t) is multiplied by (t + 1) / (w + 1), so that round w is the first with
/// the full step (Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2: gradual
/// warm-up).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepSchedule {
    /// The step size after the warm-up, before `decay` changes it.
    pub step: f64,
    /// w, the number of rounds of warm-up.
    pub warmup: u64,
    /// How the step size changes after the warm-up.
    pub decay: Decay,
}

/// The change of a step size after warm-up.
#[derive(Clone, Debug, PartialEq)]
pub enum Decay {
    /// The step size stays as it is.
    Constant,
    /// Half a cosine down to `last`.
    Cosine {
        /// The step size that round T would have.
        last: f64,
        /// T, the number of rounds in all.
        rounds: u64,
    },
    /// Multiplied by `factor` from each of these rounds on.
    Step {
        /// The rounds from which it is multiplied, ascending.
        at: Vec<u64>,
        /// Above 0, up to 1.
        factor: f64,
    },
}

impl StepSchedule {
    /// The same step size in every round.
    pub fn constant(step: f64) -> StepSchedule {
        StepSchedule { step, warmup: 0, decay: Decay::Constant }
    }

    /// The step size of a round.
    pub fn at(&self, round: Round) -> f64 {
        let t = round.0;
        let full = match &self.decay {
            Decay::Constant => self.step,
            Decay::Cosine { last, rounds } => {
                let (passed, length) =
                    (t.saturating_sub(self.warmup), rounds.saturating_sub(self.warmup));
                if passed >= length {
                    *last
                } else {
                    let angle = std::f64::consts::PI * passed as f64 / length as f64;
                    last + (self.step - last) * 0.5 * (1.0 + libm::cos(angle))
                }
            }
            Decay::Step { at, factor } => {
                at.iter().take_while(|&&round| round <= t).fold(self.step, |step, _| step * factor)
            }
        };
        if t < self.warmup { full * ((t + 1) as f64 / (self.warmup + 1) as f64) } else { full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(schedule: &StepSchedule, rounds: u64) -> Vec<f64> {
        (0..rounds).map(|t| schedule.at(Round(t))).collect()
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        assert!(
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
            "{found:?} {expected:?}"
        );
    }

    #[test]
    fn schedules_by_hand() {
        close(&sizes(&StepSchedule::constant(0.3), 3), &[0.3; 3]);
        let step = Decay::Step { at: vec![2, 4], factor: 0.1 };
        close(
            &sizes(&StepSchedule { step: 1.0, warmup: 0, decay: step }, 6),
            &[1.0, 1.0, 0.1, 0.1, 0.01, 0.01],
        );
        let cosine = Decay::Cosine { last: 0.0, rounds: 4 };
        let half = std::f64::consts::FRAC_1_SQRT_2 / 2.0;
        close(
            &sizes(&StepSchedule { step: 1.0, warmup: 0, decay: cosine }, 6),
            &[1.0, 0.5 + half, 0.5, 0.5 - half, 0.0, 0.0],
        );
    }

    #[test]
    fn warm_up_rises_to_the_full_step() {
        let warm = StepSchedule { step: 1.0, warmup: 3, decay: Decay::Constant };
        close(&sizes(&warm, 5), &[0.25, 0.5, 0.75, 1.0, 1.0]);
        let cosine =
            StepSchedule { step: 2.0, warmup: 1, decay: Decay::Cosine { last: 1.0, rounds: 3 } };
        close(&sizes(&cosine, 4), &[1.0, 2.0, 1.5, 1.0]);
        // Warm-up as long as the run, or longer.
        let long =
            StepSchedule { step: 2.0, warmup: 9, decay: Decay::Cosine { last: 0.0, rounds: 3 } };
        assert!(sizes(&long, 20).iter().all(|step| step.is_finite()));
    }
}
