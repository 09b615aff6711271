//! The figures of a run, and their mean and spread over seeds.

use serde::{Deserialize, Serialize};

use crate::runs::trace::{Point, Status, Trace};
use gradvine::units::Bytes;
use gradvine_report::interval::Interval;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// f at the mean of all models, at the end.
    TrainLoss,
    /// The same above the least value that f can take: least squares only.
    Excess,
    /// The mean model's test accuracy.
    TestAccuracy,
    /// The mean over nodes of their own models' test accuracy.
    NodeAccuracy,
    /// The worst node's test accuracy.
    WorstAccuracy,
    /// (1/n) sum |x_i - mean|^2.
    Consensus,
    /// Payload bytes sent per node.
    Payload,
    /// Bytes sent per node, with headers.
    Wire,
    /// Payload bytes per node and round.
    PayloadPerRound,
    /// Bytes per node and round, with headers.
    WirePerRound,
    /// Rounds to the target.
    RoundsTo,
    /// Payload bytes per node to the target.
    PayloadTo,
    /// Virtual seconds.
    Time,
    /// Virtual seconds per round, without the setup.
    TimePerRound,
    /// Virtual seconds to the target.
    TimeTo,
    /// The same without the setup: from the first gradient on.
    TrainingTo,
    /// The share of the virtual time after the setup in which nodes computed gradients.
    Computing,
    /// Rounds done.
    Rounds,
    /// Gradients per round.
    LocalSteps,
    /// The run's rho.
    Rho,
    /// The model's dimension.
    Parameters,
}

/// `[rounds_to]`: a figure that a run must pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Which figure.
    pub metric: Figure,
    /// The value to be passed. Losses, excess and consensus pass it from above, accuracies from
    /// below.
    ///
    /// Accepts: any number.
    pub value: f64,
}

/// Mean and spread over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean over all seeds.
    pub mean: f64,
    /// The standard deviation (n - 1); 0 for one seed.
    pub deviation: f64,
    /// Half the 95 % t-interval of the mean; 0 for one seed.
    pub half: f64,
    /// The least value of a seed.
    pub least: f64,
    /// The greatest value of a seed.
    pub greatest: f64,
}

impl Spread {
    /// The spread of some values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
        Some(Spread {
            mean,
            deviation: if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() },
            half: Interval::of(values).map_or(0.0, |interval| interval.half()),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

impl Figure {
    /// Whether it counts up to the target.
    pub fn is_to_target(self) -> bool {
        matches!(self, Figure::RoundsTo | Figure::PayloadTo | Figure::TimeTo | Figure::TrainingTo)
    }

    /// Its name in files.
    ///
    /// # Panics
    /// Never: a figure serialises to a word.
    pub fn name(self) -> String {
        let word = serde_json::to_value(self).expect("a figure serialises");
        word.as_str().unwrap_or_default().to_string()
    }

    /// The head of its column.
    pub fn words(self) -> &'static str {
        match self {
            Figure::TrainLoss => "train loss",
            Figure::Excess => "f - f*",
            Figure::TestAccuracy => "accuracy",
            Figure::NodeAccuracy => "mean of nodes",
            Figure::WorstAccuracy => "worst node",
            Figure::Consensus => "consensus",
            Figure::Payload => "payload/node",
            Figure::Wire => "wire/node",
            Figure::PayloadPerRound => "payload/node/round",
            Figure::WirePerRound => "wire/node/round",
            Figure::RoundsTo => "rounds to target",
            Figure::PayloadTo => "payload/node to target",
            Figure::Time => "virtual time",
            Figure::TimePerRound => "time/round",
            Figure::TimeTo => "time to target",
            Figure::TrainingTo => "time to target after the setup",
            Figure::Computing => "computing",
            Figure::Rounds => "rounds",
            Figure::LocalSteps => "gradients a round",
            Figure::Rho => "rho",
            Figure::Parameters => "d",
        }
    }

    /// Whether less is better, more is better, or neither.
    pub fn better(self) -> Option<std::cmp::Ordering> {
        use std::cmp::Ordering::{Greater, Less};
        match self {
            Figure::TestAccuracy
            | Figure::NodeAccuracy
            | Figure::WorstAccuracy
            | Figure::Computing => Some(Greater),
            Figure::TrainLoss
            | Figure::Excess
            | Figure::Consensus
            | Figure::Payload
            | Figure::Wire => Some(Less),
            Figure::PayloadPerRound
            | Figure::WirePerRound
            | Figure::RoundsTo
            | Figure::PayloadTo => Some(Less),
            Figure::Time | Figure::TimePerRound | Figure::TimeTo | Figure::TrainingTo => Some(Less),
            Figure::Rounds | Figure::LocalSteps | Figure::Rho | Figure::Parameters => None,
        }
    }

    /// The figure of one evaluation; `None` if evaluations do not have it.
    pub fn at(self, trace: &Trace, point: &Point) -> Option<f64> {
        match self {
            Figure::TrainLoss => Some(point.train_loss),
            // Not `max`: a NaN must stay a NaN.
            Figure::Excess => trace
                .optimum
                .map(|least| if point.train_loss < least { 0.0 } else { point.train_loss - least }),
            Figure::TestAccuracy => point.test_accuracy,
            Figure::NodeAccuracy => point.node_accuracy,
            Figure::WorstAccuracy => point.worst_accuracy,
            Figure::Consensus => Some(point.consensus),
            Figure::Payload => Some(point.payload),
            Figure::Wire => Some(point.wire),
            Figure::Rounds => Some(point.rounds as f64),
            Figure::Time => Some(point.time_s),
            Figure::Computing => {
                let training_s = point.time_s - trace.setup_s;
                (training_s > 0.0).then(|| point.computing_s / training_s)
            }
            _ => None,
        }
    }

    /// The figure at the end of a run. It is infinite if the run diverged and the figure would have
    /// grown without bound, or if a target was not reached; `None` if it is unknown.
    pub fn of(self, trace: &Trace, target: Option<&Target>) -> Option<f64> {
        let diverged = matches!(trace.status, Status::Diverged(_));
        let per_round = |what: fn(&Point) -> f64| {
            let last = trace.points.last().filter(|point| point.rounds > 0)?;
            Some(what(last) / last.rounds as f64)
        };
        match self {
            Figure::Rho => (!trace.points.is_empty()).then_some(trace.rho),
            Figure::Parameters => (!trace.points.is_empty()).then_some(trace.parameters as f64),
            Figure::LocalSteps => {
                (!trace.points.is_empty()).then_some(f64::from(trace.local_steps))
            }
            Figure::PayloadPerRound => per_round(|point| point.payload),
            Figure::WirePerRound => per_round(|point| point.wire),
            Figure::TimePerRound => {
                let last = trace.points.last().filter(|point| point.rounds > 0)?;
                // On an ideal network the setup takes no time either.
                Some((last.time_s - trace.setup_s).max(0.0) / last.rounds as f64)
            }
            _ if self.is_to_target() && trace.points.is_empty() => None,
            Figure::RoundsTo | Figure::PayloadTo | Figure::TimeTo | Figure::TrainingTo => {
                // Without classes an accuracy cannot be a target.
                let target =
                    target.filter(|target| target.metric.at(trace, &trace.points[0]).is_some())?;
                let passed = trace.points.iter().find(|point| target.passed(trace, point));
                let there = passed.map(|point| match self {
                    Figure::RoundsTo => point.rounds as f64,
                    Figure::TimeTo => point.time_s,
                    Figure::TrainingTo => point.time_s - trace.setup_s,
                    _ => point.payload,
                });
                Some(there.unwrap_or(f64::INFINITY))
            }
            Figure::TrainLoss | Figure::Excess | Figure::Consensus if diverged => {
                Some(f64::INFINITY)
            }
            _ => self.at(trace, trace.last()?),
        }
    }

    /// Mean and spread over runs; `None` unless every run has it.
    pub fn over(self, runs: &[Trace], target: Option<&Target>) -> Option<Spread> {
        Spread::of(&self.values(runs, target)?)
    }

    /// The figure of each run; `None` unless every run has it.
    pub fn values(self, runs: &[Trace], target: Option<&Target>) -> Option<Vec<f64>> {
        runs.iter().map(|trace| self.of(trace, target)).collect()
    }

    /// Whether it is a share of 1.
    pub fn is_share(self) -> bool {
        matches!(
            self,
            Figure::TestAccuracy
                | Figure::NodeAccuracy
                | Figure::WorstAccuracy
                | Figure::Computing
                | Figure::Rho
        )
    }

    /// Whether it is an accuracy: differences are shown in points.
    pub fn is_accuracy(self) -> bool {
        matches!(self, Figure::TestAccuracy | Figure::NodeAccuracy | Figure::WorstAccuracy)
    }

    /// A value with its unit, as tables show it.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return if self.is_to_target() { "not reached" } else { "-" }.into();
        }
        match self {
            Figure::TestAccuracy | Figure::NodeAccuracy | Figure::WorstAccuracy => {
                format!("{:.2} %", 100.0 * value)
            }
            Figure::Computing => format!("{:.1} %", 100.0 * value),
            Figure::Time | Figure::TimePerRound | Figure::TimeTo | Figure::TrainingTo
                if value == 0.0 =>
            {
                "0 s".into()
            }
            Figure::Time | Figure::TimePerRound | Figure::TimeTo | Figure::TrainingTo
                if value < 0.1 =>
            {
                format!("{} ms", rounded(1e3 * value, 3))
            }
            Figure::Time | Figure::TimePerRound | Figure::TimeTo | Figure::TrainingTo => {
                format!("{} s", rounded(value, 3))
            }
            Figure::Payload
            | Figure::Wire
            | Figure::PayloadPerRound
            | Figure::WirePerRound
            | Figure::PayloadTo => Bytes(value.round() as u64).to_string(),
            Figure::Rounds | Figure::LocalSteps | Figure::Parameters => format!("{value:.0}"),
            Figure::RoundsTo if value.fract() == 0.0 => format!("{value:.0}"),
            Figure::RoundsTo => format!("{value:.1}"),
            Figure::TrainLoss | Figure::Excess | Figure::Consensus | Figure::Rho => {
                rounded(value, 4)
            }
        }
    }

    /// Formats mean and 95 % interval; the interval is left out if all seeds agree.
    pub fn show_spread(self, spread: &Spread) -> String {
        let mean = self.show(spread.mean);
        if !spread.mean.is_finite()
            || spread.deviation == 0.0
            || spread.deviation < 1e-9 * spread.mean.abs()
        {
            return mean;
        }
        match self {
            Figure::TestAccuracy | Figure::NodeAccuracy | Figure::WorstAccuracy => {
                format!("{} ± {:.2} %", mean.trim_end_matches(" %"), 100.0 * spread.half)
            }
            Figure::TrainLoss
            | Figure::Excess
            | Figure::Consensus
            | Figure::Rho
            | Figure::RoundsTo => {
                format!("{mean} ± {}", rounded(spread.half, 2))
            }
            // Not "± 0 B".
            _ if self.show(spread.half).starts_with("0 ") => mean,
            _ => format!("{mean} ± {}", self.show(spread.half)),
        }
    }
}

impl Target {
    /// Whether an evaluation has passed the target.
    pub fn passed(&self, trace: &Trace, point: &Point) -> bool {
        self.metric.at(trace, point).is_some_and(|value| self.holds(value))
    }

    /// The same from the evaluation alone.
    pub fn passed_by(&self, point: &Point) -> bool {
        let value = match self.metric {
            Figure::TrainLoss => Some(point.train_loss),
            Figure::TestAccuracy => point.test_accuracy,
            Figure::NodeAccuracy => point.node_accuracy,
            Figure::WorstAccuracy => point.worst_accuracy,
            _ => None,
        };
        value.is_some_and(|value| self.holds(value))
    }

    fn holds(&self, value: f64) -> bool {
        match self.metric.better() {
            Some(std::cmp::Ordering::Greater) => value >= self.value,
            _ => value <= self.value,
        }
    }

    /// Describes the target: `train loss <= 0.1`.
    pub fn words(&self) -> String {
        let sign =
            if self.metric.better() == Some(std::cmp::Ordering::Greater) { ">=" } else { "<=" };
        let value =
            if sign == ">=" { self.metric.show(self.value) } else { self.value.to_string() };
        format!("{} {sign} {value}", self.metric.words())
    }
}

/// Formats a value with this many significant digits, with an exponent where it is shorter.
pub fn rounded(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let exponent = value.abs().log10().floor();
    if (-3.0..5.0).contains(&exponent) {
        let places = (digits as f64 - 1.0 - exponent).max(0.0) as usize;
        return format!("{value:.places$}");
    }
    format!("{value:.*e}", digits - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(losses: &[f64], status: Status) -> Trace {
        let point = |(index, loss): (usize, &f64)| Point {
            rounds: 10 * index as u64,
            train_loss: *loss,
            test_accuracy: Some(0.1 * index as f64),
            node_accuracy: None,
            worst_accuracy: None,
            consensus: 0.0,
            time_s: 2.0 * index as f64,
            computing_s: 0.5 * index as f64,
            payload: 100.0 * index as f64,
            wire: 0.0,
        };
        Trace {
            seed: 1,
            status,
            points: losses.iter().enumerate().map(point).collect(),
            optimum: Some(0.5),
            parameters: 3,
            rho: 0.5,
            local_steps: 4,
            setup_s: 0.5,
            warnings: Vec::new(),
            digest: String::new(),
            seconds: 0.0,
        }
    }

    #[test]
    fn figures_of_a_run() {
        let run = trace(&[4.0, 2.0, 1.0], Status::Ok);
        let target = Target { metric: Figure::TrainLoss, value: 2.0 };
        let of = |figure: Figure| figure.of(&run, Some(&target));
        assert_eq!(of(Figure::TrainLoss), Some(1.0));
        assert_eq!(of(Figure::Excess), Some(0.5));
        assert_eq!(of(Figure::RoundsTo), Some(10.0));
        assert_eq!(of(Figure::PayloadTo), Some(100.0));
        assert_eq!(of(Figure::PayloadPerRound), Some(10.0));
        assert_eq!(
            [Figure::TimeTo, Figure::TrainingTo, Figure::TimePerRound, Figure::Computing].map(of),
            [Some(2.0), Some(1.5), Some(0.175), Some(1.0 / 3.5)]
        );
        assert_eq!(of(Figure::WorstAccuracy), None);
        let accurate = Target { metric: Figure::TestAccuracy, value: 0.2 };
        assert_eq!(Figure::RoundsTo.of(&run, Some(&accurate)), Some(20.0));
        let never = Target { metric: Figure::Excess, value: 0.1 };
        assert_eq!(Figure::RoundsTo.of(&run, Some(&never)), Some(f64::INFINITY));
        let unknown = Target { metric: Figure::WorstAccuracy, value: 0.1 };
        assert_eq!(Figure::RoundsTo.of(&run, Some(&unknown)), None);
        let blind = trace(&[4.0, f64::NAN], Status::Ok);
        assert_eq!(
            Figure::RoundsTo.of(&blind, Some(&never)),
            Some(f64::INFINITY),
            "what is no number has passed nothing"
        );
        let lost = trace(&[4.0, 9.0], Status::Diverged(11));
        assert_eq!(Figure::TrainLoss.of(&lost, None), Some(f64::INFINITY));
        assert_eq!(Figure::TestAccuracy.of(&lost, None), None);
        let refused = trace(&[], Status::Refused("no".into()));
        assert_eq!(Figure::TrainLoss.of(&refused, None), None);
        assert_eq!(Figure::RoundsTo.of(&refused, Some(&target)), None);
    }

    #[test]
    fn mean_and_deviation_by_hand() {
        let spread = Spread::of(&[1.0, 2.0, 6.0]).unwrap();
        assert_eq!((spread.mean, spread.least, spread.greatest), (3.0, 1.0, 6.0));
        assert!((spread.deviation - 7f64.sqrt()).abs() < 1e-15);
        assert_eq!(Spread::of(&[2.0]).unwrap().deviation, 0.0);
        assert_eq!(Spread::of(&[]), None);
        // One run without the figure, and there is no mean over all.
        let runs = [trace(&[1.0, 2.0], Status::Ok), trace(&[], Status::Refused("no".into()))];
        assert_eq!(Figure::TrainLoss.over(&runs, None), None);
    }

    #[test]
    fn figures_are_formatted_for_readers() {
        let spread = Spread::of(&[0.5, 0.51]).unwrap();
        // Two seeds: 12.706 times half their distance.
        assert_eq!(Figure::TestAccuracy.show_spread(&spread), "50.50 ± 6.35 %");
        assert_eq!(Figure::TrainLoss.show_spread(&spread), "0.5050 ± 0.064");
        assert_eq!(Figure::Payload.show_spread(&Spread::of(&[1500.0, 1500.0]).unwrap()), "1.5 kB");
        assert_eq!(Figure::RoundsTo.show(f64::INFINITY), "not reached");
        assert_eq!(
            [rounded(123_456.0, 3), rounded(12.345, 3), rounded(1e-9, 2)],
            ["1.23e5", "12.3", "1.0e-9"]
        );
        assert_eq!(Figure::PayloadPerRound.name(), "payload_per_round");
    }
}
