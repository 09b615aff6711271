//! The key figures of a schedule.

use std::fmt;

use gradvine::{
    mixing::{Schedule, Topology, schedule::Rate},
    units::{NodeId, Round},
};
use serde::Serialize;

use super::figures::{self, Span, number};
use crate::text::count;

/// The key figures of a schedule on a topology.
#[derive(Clone, Debug, Serialize)]
pub struct Rounds {
    name: String,
    paper: &'static str,
    period: u64,
    directed: bool,
    /// Whether the rounds are random.
    random: bool,
    /// Receivers per node and round.
    degree: Span,
    /// The factor per round by which a period shrinks disagreement.
    rho: f64,
    gap: f64,
    mixing_time: Option<u64>,
    /// Whether the mixing time was counted on the matrices; else it is derived from rho.
    counted: bool,
}

impl Rounds {
    /// Follows the schedule through one period.
    pub fn of(schedule: &Schedule, topology: &Topology) -> Rounds {
        let Rate { rho, gap, mixing_time, counted } = *schedule.rate(topology);
        let (nodes, period) = (schedule.nodes(), schedule.period());
        let all: Vec<f64> = (0..period)
            .flat_map(|t| (0..nodes).map(move |node| (Round(t), NodeId::from(node))))
            .map(|(t, node)| schedule.turn(t, node).to.len() as f64)
            .collect();
        Rounds {
            name: schedule.name().into(),
            paper: schedule.recipe().paper,
            period,
            directed: schedule.is_directed(),
            random: schedule.recipe().is_random,
            degree: Span::of(all.into_iter()).expect("a period has a round and a topology a node"),
            rho,
            gap,
            mixing_time,
            counted,
        }
    }
}

/// The figures in lines, each with its meaning.
impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = |rounds: u64| count(usize::try_from(rounds).unwrap_or(usize::MAX), "round");
        let degree = if self.degree.flat() {
            format!("{:.0}", self.degree.max)
        } else {
            format!(
                "{:.0} to {:.0}, mean {:.2}",
                self.degree.min, self.degree.max, self.degree.mean
            )
        };
        let rho = match self.rho {
            0.0 => "a period ends in exact agreement",
            _ if self.random && !self.counted => {
                "lambda_2 of the mean W, the limit for products of many rounds"
            }
            _ if self.random => "measured on products of consecutive rounds",
            _ => "|W_(T-1) ... W_0 - J|^(1/T): the factor per round over a period of T",
        };
        let about = if self.counted { "" } else { "about " };
        let time = self
            .mixing_time
            .map_or_else(|| "never".into(), |time| format!("{about}{}", rounds(time)));
        writeln!(f, "\n{}{}\n", self.name, if self.directed { ", directed" } else { "" })?;
        figures::write(
            f,
            &[
                ("period", rounds(self.period), "then the same rounds again"),
                ("degree", degree, "receivers per node and round"),
                ("rho", number(self.rho), rho),
                ("gap", number(self.gap), "1 - rho"),
                ("mixing time", time, "rounds until any disagreement is a hundredth"),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(name: &str, spec: &str) -> Rounds {
        let topology = Topology::parse(spec, 0).unwrap();
        Rounds::of(&Schedule::new(name, &topology, 0).unwrap(), &topology)
    }

    #[test]
    fn exact_agreement_is_reported() {
        let text = rounds("one-peer-exponential", "exponential:8").to_string();
        for line in [
            "one-peer-exponential, directed",
            "period       3 rounds",
            "degree       1",
            "rho          0                a period ends in exact agreement",
            "mixing time  3 rounds",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let text = rounds("base-2", "complete:5").to_string();
        assert!(
            text.contains("degree       0 to 1, mean 0.72")
                && text.contains("mixing time  5 rounds"),
            "{text}"
        );
    }

    #[test]
    fn json_has_the_figures() {
        let value = serde_json::to_value(rounds("random-matching", "ring:8")).unwrap();
        let keys = ["name", "period", "directed", "degree", "rho", "gap", "mixing_time", "counted"];
        assert!(keys.iter().all(|key| !value[key].is_null()), "{value}");
        assert_eq!((&value["period"], &value["directed"]), (&1024.into(), &false.into()));
    }
}
