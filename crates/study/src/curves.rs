//! Charts of outcomes: one line per outcome, the mean over its seeds, and a band from the least to
//! the greatest.

use serde::{Deserialize, Serialize};

use crate::{
    figure::{Figure, Spread},
    runs::{
        outcome::Outcome,
        trace::{Status, Trace},
    },
};
use gradvine_report::chart::{Axis, Chart, Dot, Line, Spacing, Unit};

/// Lines that rise above this many times their start leave the picture.
const CEILING: f64 = 3.0;
/// An axis of bytes is logarithmic if outcomes differ by more than this factor.
const WIDE: f64 = 4.0;

/// The two axes of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    /// The horizontal axis: rounds, time, payload or wire.
    pub x: Figure,
    /// The vertical axis: a figure of an evaluation.
    pub y: Figure,
}

/// The chart of some outcomes; outcomes without a point have no line.
pub fn chart(title: &str, subtitle: &str, curve: Curve, outcomes: &[(&str, &Outcome)]) -> Chart {
    let lines: Vec<Line> = outcomes
        .iter()
        .map(|(name, outcome)| line(name, outcome, curve))
        .filter(|line| line.dots.len() > 1)
        .collect();
    let ends: Vec<f64> =
        lines.iter().filter_map(|line| line.dots.last()).map(|dot| dot.x).collect();
    let wide = ends.iter().any(|end| ends.iter().any(|other| *end > WIDE * other));
    let bytes = matches!(curve.x, Figure::Payload | Figure::Wire);
    let accuracy = curve.y.better() == Some(std::cmp::Ordering::Greater);
    let starts =
        lines.iter().filter_map(|line| line.dots.first()).map(|dot| dot.y).fold(0.0, f64::max);
    Chart {
        title: title.into(),
        subtitle: subtitle.into(),
        x: Axis {
            words: along(curve.x).into(),
            unit: if bytes { Unit::Bytes } else { Unit::Plain },
            spacing: match (bytes || curve.x == Figure::Time) && wide {
                true => Spacing::Log,
                false => Spacing::Linear,
            },
        },
        y: Axis {
            words: upwards(curve.y).into(),
            unit: if accuracy { Unit::Percent } else { Unit::Plain },
            spacing: if accuracy { Spacing::Linear } else { Spacing::Log },
        },
        ceiling: matches!(curve.y, Figure::TrainLoss | Figure::Excess).then_some(CEILING * starts),
        lines,
    }
}

fn along(figure: Figure) -> &'static str {
    match figure {
        Figure::Payload => "payload that a node has sent",
        Figure::Wire => "bytes that a node has sent, with headers",
        Figure::Time => "virtual seconds",
        _ => "rounds",
    }
}

fn upwards(figure: Figure) -> &'static str {
    match figure {
        Figure::TrainLoss => "train loss of the mean model",
        Figure::Excess => "train loss of the mean model above the least possible",
        Figure::TestAccuracy => "test accuracy of the mean model",
        Figure::NodeAccuracy => "test accuracy, mean of the nodes",
        Figure::WorstAccuracy => "test accuracy of the worst node",
        Figure::Consensus => "consensus distance",
        other => other.words(),
    }
}

/// The points up to the last evaluation that all seeds have.
fn line(name: &str, outcome: &Outcome, curve: Curve) -> Line {
    let shortest = outcome.runs.iter().map(|run| run.points.len()).min().unwrap_or(0);
    let dot = |index: usize| {
        let of = |figure: Figure| {
            let value = |run: &Trace| figure.at(run, &run.points[index]);
            Spread::of(&outcome.runs.iter().map(value).collect::<Option<Vec<f64>>>()?)
        };
        let (x, y) = (of(curve.x)?, of(curve.y)?);
        Some(Dot { x: x.mean, y: y.mean, low: y.least, high: y.greatest })
    };
    let broken = outcome.runs.iter().any(|run| matches!(run.status, Status::Diverged(_)));
    Line { name: name.into(), dots: (0..shortest).filter_map(dot).collect(), broken }
}
