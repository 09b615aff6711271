//! The settings of a node's local steps.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::ModelError;
use super::schedule::{Decay, ScheduleKind, StepSchedule};
use crate::config::ConfigError;

/// `[optimizer]`: the local steps of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerParams {
    /// Stochastic gradient descent, or AdamW, whose moments stay at the node.
    pub kind: OptimizerKind,
    /// The step size g; 0 is gossip alone. Default: 0.1, because with standardised features both
    /// convex models and the perceptron learn the embedded sets with it; `adamw` wants less, such
    /// as 0.001.
    ///
    /// Accepts: a number from 0 to 3.4e38.
    pub step: f64,
    /// How the step size changes over the run.
    pub schedule: ScheduleKind,
    /// At which fractions of the run the step size is multiplied by `decay_factor`.
    ///
    /// Accepts: a list of numbers from 0 to 1, ascending; only with `schedule = "step"`. Default:
    /// `[0.5, 0.75]` (He, Zhang, Ren and Sun, "Deep Residual Learning", 2016, section 4.2: 32k and
    /// 48k of 64k).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay_at: Option<Vec<f64>>,
    /// What the step size is multiplied by.
    ///
    /// Accepts: a number above 0, up to 1; only with `schedule = "step"`. Default: 0.1 (the same).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay_factor: Option<f64>,
    /// The step size at the end of the run.
    ///
    /// Accepts: a number from 0 to `step`; only with `schedule = "cosine"`. Default: 0 (Loshchilov
    /// and Hutter 2017).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_step: Option<f64>,
    /// Rounds in which the step rises to its full length.
    ///
    /// Accepts: a whole number from 0 to `run.rounds`.
    pub warmup: u64,
    /// mu: the share of the last direction that is kept. Default: 0, as the papers of this crate's
    /// rules have it.
    ///
    /// Accepts: a number from 0 to below 1; only with `kind = "sgd"`.
    pub momentum: f64,
    /// lambda: lambda x is added to the gradient (`sgd`) or to the direction of the step (`adamw`).
    ///
    /// Accepts: a number from 0 to 3.4e38.
    pub weight_decay: f64,
    /// beta_1: the share of the mean of gradients that is kept.
    ///
    /// Accepts: a number from 0 to below 1; only with `kind = "adamw"`. Default: 0.9 (Kingma and
    /// Ba, "Adam", 2015, algorithm 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// beta_2: the share of the mean of squared gradients that is kept.
    ///
    /// Accepts: a number from 0 to below 1; only with `kind = "adamw"`. Default: 0.999 (the same).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f64>,
    /// epsilon: added to the root of the mean of squared gradients.
    ///
    /// Accepts: a number from 1.2e-38 to 3.4e38; only with `kind = "adamw"`. Default: 1e-8 (the
    /// same).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Rows of a gradient; all rows of a node if it has no more, or with `"full"`.
    ///
    /// Accepts: a whole number from 1 to 4294967295, or `"full"`.
    pub batch: BatchSize,
    /// H: gradients of a round.
    ///
    /// Accepts: a whole number from 1 to 1000000.
    pub local_steps: u32,
}

impl Default for OptimizerParams {
    fn default() -> Self {
        OptimizerParams {
            kind: OptimizerKind::Sgd,
            step: 0.1,
            schedule: ScheduleKind::Constant,
            decay_at: None,
            decay_factor: None,
            final_step: None,
            warmup: 0,
            momentum: 0.0,
            weight_decay: 0.0,
            beta1: None,
            beta2: None,
            epsilon: None,
            batch: BatchSize::Rows(16),
            local_steps: 1,
        }
    }
}

/// How a node turns gradients into steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimizerKind {
    /// Stochastic gradient descent with momentum and weight decay.
    #[default]
    Sgd,
    /// AdamW (Loshchilov and Hutter 2019): each coordinate's step is relative to its gradients.
    AdamW,
}

/// The number of rows that a gradient is the mean over: a number, or `"full"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// Every row of the shard.
    Full,
    /// This many; every row, if the shard has no more.
    Rows(u32),
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            BatchSize::Full => serializer.serialize_str("full"),
            BatchSize::Rows(rows) => serializer.serialize_u32(*rows),
        }
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = BatchSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of rows from 1 to 4294967295, or \"full\"")
            }

            fn visit_i64<E: de::Error>(self, rows: i64) -> Result<BatchSize, E> {
                u32::try_from(rows)
                    .ok()
                    .filter(|&rows| rows > 0)
                    .map(BatchSize::Rows)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(rows), &self))
            }

            fn visit_u64<E: de::Error>(self, rows: u64) -> Result<BatchSize, E> {
                i64::try_from(rows)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(rows), &self))
                    .and_then(|rows| self.visit_i64(rows))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<BatchSize, E> {
                if text == "full" {
                    Ok(BatchSize::Full)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The constants of the local optimizer, whose bounds are checked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OptimizerConfig {
    /// The step size of each round.
    pub schedule: StepSchedule,
    /// mu, at least 0 and below 1.
    pub momentum: f32,
    /// lambda, a number of at least 0.
    pub weight_decay: f32,
    /// The constants of AdamW; without them it is stochastic gradient descent.
    pub adam: Option<Adam>,
    /// The number of rows of a gradient.
    pub batch: BatchSize,
    /// H, the gradients of a round, at least 1.
    pub local_steps: u32,
}

/// The constants of AdamW, whose bounds are checked.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adam {
    /// beta_1, at least 0 and below 1.
    pub beta1: f64,
    /// beta_2, at least 0 and below 1.
    pub beta2: f64,
    /// epsilon, a number above 0.
    pub epsilon: f32,
}

impl OptimizerParams {
    /// Checks the constants for a run with this many rounds.
    ///
    /// # Errors
    /// If one is out of its bounds, or belongs to another schedule; the message names
    /// `optimizer.KEY`, the value and the bound.
    pub fn check(&self, rounds: u64) -> Result<OptimizerConfig, ModelError> {
        let bad = |key: &str, value: &dyn fmt::Display, problem: &str| {
            Err(wrong(key, value, problem).into())
        };
        let sensible = |value: f64| value >= 0.0 && (value as f32).is_finite();
        if !sensible(self.step) {
            return bad("step", &self.step, "a finite number from 0 is needed (0: gossip alone)");
        }
        for (key, value) in [("step", self.step), ("weight_decay", self.weight_decay)] {
            if value > 0.0 && value as f32 == 0.0 {
                let problem = "is 0 as an f32, and would change nothing: 0, or at least 1e-45, is \
                               needed";
                return bad(key, &value, problem);
            }
        }
        if !(0.0..1.0).contains(&self.momentum) || self.momentum as f32 >= 1.0 {
            return bad("momentum", &self.momentum, "a number from 0 to below 1 is needed");
        }
        if !sensible(self.weight_decay) {
            return bad("weight_decay", &self.weight_decay, "a finite number from 0 is needed");
        }
        if self.batch == BatchSize::Rows(0) {
            return bad("batch", &0, "a number of rows from 1, or \"full\", is needed");
        }
        if !(1..=1_000_000).contains(&self.local_steps) {
            return bad("local_steps", &self.local_steps, "a number from 1 to 1000000 is needed");
        }
        if self.warmup > rounds {
            let problem = format!("at most the run's {rounds} rounds are accepted");
            return bad("warmup", &self.warmup, &problem);
        }
        Ok(OptimizerConfig {
            schedule: StepSchedule {
                step: self.step,
                warmup: self.warmup,
                decay: self.decay(rounds)?,
            },
            momentum: self.momentum as f32,
            weight_decay: self.weight_decay as f32,
            adam: self.adam()?,
            batch: self.batch,
            local_steps: self.local_steps,
        })
    }

    fn adam(&self) -> Result<Option<Adam>, ConfigError> {
        let given = [("beta1", self.beta1), ("beta2", self.beta2), ("epsilon", self.epsilon)];
        if self.kind != OptimizerKind::AdamW {
            return match given.into_iter().find(|(_, value)| value.is_some()) {
                Some((key, _)) => Err(ConfigError::at(
                    format!("optimizer.{key}"),
                    "belongs to kind = \"adamw\": leave it out, or use that",
                )),
                None => Ok(None),
            };
        }
        if self.momentum > 0.0 {
            let problem = "belongs to kind = \"sgd\": adamw has beta1 in its place";
            return Err(wrong("momentum", self.momentum, problem));
        }
        let share = |key: &str, value: f64| match (0.0..1.0).contains(&value) {
            true => Ok(value),
            false => Err(wrong(key, value, "a number from 0 to below 1 is needed")),
        };
        let epsilon = self.epsilon.unwrap_or(1e-8);
        if !(epsilon > 0.0 && (epsilon as f32).is_normal()) {
            let problem = "a number from 1.2e-38 to 3.4e38 is needed";
            return Err(wrong("epsilon", epsilon, problem));
        }
        Ok(Some(Adam {
            beta1: share("beta1", self.beta1.unwrap_or(0.9))?,
            beta2: share("beta2", self.beta2.unwrap_or(0.999))?,
            epsilon: epsilon as f32,
        }))
    }

    fn decay(&self, rounds: u64) -> Result<Decay, ConfigError> {
        let foreign = |key: &str, schedule: &str| {
            Err(ConfigError::at(
                format!("optimizer.{key}"),
                format!("belongs to schedule = \"{schedule}\": leave it out, or use that"),
            ))
        };
        if self.schedule != ScheduleKind::Step {
            if self.decay_at.is_some() {
                return foreign("decay_at", "step");
            }
            if self.decay_factor.is_some() {
                return foreign("decay_factor", "step");
            }
        }
        if self.schedule != ScheduleKind::Cosine && self.final_step.is_some() {
            return foreign("final_step", "cosine");
        }
        match self.schedule {
            ScheduleKind::Constant => Ok(Decay::Constant),
            ScheduleKind::Cosine => {
                let last = self.final_step.unwrap_or(0.0);
                if !(0.0..=self.step).contains(&last) {
                    let problem = format!("a number from 0 to the step, {}, is needed", self.step);
                    return Err(wrong("final_step", last, problem));
                }
                Ok(Decay::Cosine { last, rounds })
            }
            ScheduleKind::Step => {
                let fractions = self.decay_at.clone().unwrap_or_else(|| vec![0.5, 0.75]);
                let inside = fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction));
                if !inside || !fractions.is_sorted() {
                    let problem = "fractions of the run from 0 to 1, ascending, are needed";
                    return Err(wrong("decay_at", format!("{fractions:?}"), problem));
                }
                let factor = self.decay_factor.unwrap_or(0.1);
                if !(factor > 0.0 && factor <= 1.0) {
                    let problem = "a number above 0, up to 1, is needed";
                    return Err(wrong("decay_factor", factor, problem));
                }
                let at = fractions
                    .iter()
                    .map(|fraction| (fraction * rounds as f64).round() as u64)
                    .collect();
                Ok(Decay::Step { at, factor })
            }
        }
    }
}

/// The error of a value of this section.
fn wrong(key: &str, value: impl fmt::Display, problem: impl Into<String>) -> ConfigError {
    ConfigError::new(format!("optimizer.{key}"), value, problem)
}

impl OptimizerConfig {
    /// The same on the pooled rows of `nodes` nodes, with batches `nodes` times as large: the
    /// single machine for comparison.
    #[must_use]
    pub fn pooled(&self, nodes: usize) -> OptimizerConfig {
        let times = u32::try_from(nodes).unwrap_or(u32::MAX);
        let batch = match self.batch {
            BatchSize::Full => BatchSize::Full,
            BatchSize::Rows(rows) => BatchSize::Rows(rows.saturating_mul(times)),
        };
        OptimizerConfig { batch, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_checked() {
        let problem = |change: &dyn Fn(&mut OptimizerParams)| {
            let mut params = OptimizerParams::default();
            change(&mut params);
            params.check(10).unwrap_err().to_string()
        };
        assert_eq!(
            problem(&|p| p.step = -0.1),
            "optimizer.step = -0.1: a finite number from 0 is needed (0: gossip alone)"
        );
        assert_eq!(
            problem(&|p| p.momentum = 1.0),
            "optimizer.momentum = 1: a number from 0 to below 1 is needed"
        );
        for bad in [f64::NAN, f64::INFINITY, 1e39] {
            problem(&|p| p.step = bad);
            problem(&|p| p.weight_decay = bad);
        }
        assert!(problem(&|p| p.step = 1e-50).contains("is 0 as an f32, and would change nothing"));
        assert!(problem(&|p| p.weight_decay = 1e-50).contains("is 0 as an f32"));
        problem(&|p| p.momentum = 1.0 - 1e-12);
        problem(&|p| p.batch = BatchSize::Rows(0));
        problem(&|p| p.local_steps = 0);
        assert_eq!(
            problem(&|p| p.warmup = 11),
            "optimizer.warmup = 11: at most the run's 10 rounds are accepted"
        );
        assert!(
            problem(&|p| p.decay_at = Some(vec![0.5])).contains("belongs to schedule = \"step\"")
        );
        assert!(problem(&|p| p.decay_factor = Some(0.5)).contains("optimizer.decay_factor"));
        assert!(
            problem(&|p| p.final_step = Some(0.0)).contains("belongs to schedule = \"cosine\"")
        );
        let step = |p: &mut OptimizerParams| p.schedule = ScheduleKind::Step;
        problem(&|p| (step(p), p.decay_at = Some(vec![0.75, 0.5])).1);
        problem(&|p| (step(p), p.decay_at = Some(vec![1.5])).1);
        problem(&|p| (step(p), p.decay_factor = Some(0.0)).1);
        problem(&|p| (p.schedule, p.final_step) = (ScheduleKind::Cosine, Some(0.2)));
        assert!(problem(&|p| p.beta2 = Some(0.9)).contains("belongs to kind = \"adamw\""));
        let adamw = |p: &mut OptimizerParams| p.kind = OptimizerKind::AdamW;
        assert!(problem(&|p| (adamw(p), p.momentum = 0.9).1).contains("adamw has beta1"));
        problem(&|p| (adamw(p), p.beta1 = Some(1.0)).1);
        problem(&|p| (adamw(p), p.epsilon = Some(0.0)).1);
    }

    #[test]
    fn a_section_is_read_and_written() {
        let read = |text: &str| {
            crate::config::read::<OptimizerParams>("optimizer", &text.parse().unwrap())
        };
        let params = read("step = 0.2\nbatch = 'full'\nschedule = 'cosine'").unwrap();
        assert_eq!((params.batch, params.schedule), (BatchSize::Full, ScheduleKind::Cosine));
        assert_eq!(read("batch = 32").unwrap().batch, BatchSize::Rows(32));
        for (text, start) in [
            ("batch = 0", "optimizer.batch = 0: expected a number of rows from 1"),
            (
                "batch = 'all'",
                "optimizer.batch = \"all\": expected a number of \
                 rows",
            ),
            ("schedule = 'linear'", "optimizer.schedule = \"linear\": unknown variant"),
            ("stpe = 1", "optimizer.stpe = 1: unknown field `stpe`"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
        for params in [params, OptimizerParams::default()] {
            let table = toml::Table::try_from(&params).unwrap();
            assert_eq!(
                crate::config::read::<OptimizerParams>("optimizer", &table).unwrap(),
                params
            );
        }
    }

    #[test]
    fn the_pooled_baseline_takes_batches_as_many_times_as_large() {
        let config = OptimizerParams { batch: BatchSize::Rows(16), ..OptimizerParams::default() }
            .check(1)
            .unwrap();
        assert_eq!(config.pooled(8).batch, BatchSize::Rows(128));
        assert_eq!(config.pooled(usize::MAX).batch, BatchSize::Rows(u32::MAX));
    }
}
