//! Curves over rounds, bytes and time as SVG files: one line per run, and a band over its nodes.

use super::MOST_CURVES;
use gradvine::run::{Point, Run, Span, Status};

use crate::chart::{Axis, Chart, Dot, Line, Spacing, Unit};

/// A curve with more evaluations than this is thinned.
const MOST_DOTS: usize = 500;
/// Losses that rise above this many times the highest of the runs that did not diverge leave the
/// picture.
const CEILING: f64 = 3.0;
/// An axis of bytes or seconds is logarithmic if the runs' ends differ by more than this factor.
const WIDE: f64 = 4.0;

/// A picture of some runs.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Letters and hyphens: its name as a file.
    pub name: String,
    /// An SVG file.
    pub svg: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum X {
    Rounds,
    Payload,
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Y {
    Accuracy,
    TestLoss,
    TrainLoss,
    Consensus,
}

impl X {
    const fn slug(self) -> &'static str {
        match self {
            X::Rounds => "rounds",
            X::Payload => "bytes",
            X::Time => "time",
        }
    }

    const fn over(self) -> &'static str {
        match self {
            X::Rounds => "rounds",
            X::Payload => "bytes sent",
            X::Time => "time",
        }
    }

    fn words(self, runs: &[&Run]) -> &'static str {
        let simulated = |run: &&Run| run.simulated();
        match self {
            X::Rounds => "rounds",
            X::Payload => "payload that a node has sent",
            X::Time if runs.iter().all(simulated) => "seconds of virtual time",
            X::Time if runs.iter().any(simulated) => "seconds, virtual where a run was simulated",
            X::Time => "seconds",
        }
    }

    fn of(self, point: &Point) -> f64 {
        match self {
            X::Rounds => point.round as f64,
            X::Payload => point.payload,
            X::Time => point.time_s,
        }
    }
}

impl Y {
    const fn slug(self) -> &'static str {
        match self {
            Y::Accuracy => "accuracy",
            Y::TestLoss => "test-loss",
            Y::TrainLoss => "loss",
            Y::Consensus => "consensus",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Y::Accuracy => "Test accuracy",
            Y::TestLoss => "Test loss",
            Y::TrainLoss => "Training loss",
            Y::Consensus => "Consensus distance",
        }
    }

    fn of(self, point: &Point) -> Option<Span> {
        match self {
            Y::Accuracy => point.test_accuracy,
            Y::TestLoss => point.test_loss,
            Y::TrainLoss => point.train_loss,
            Y::Consensus => {
                point.consensus.map(|value| Span { mean: value, least: value, greatest: value })
            }
        }
    }

    /// The meaning of the curve, for these runs.
    fn subtitle(self, runs: &[&Run]) -> String {
        let sees = |run: &&&Run| run.points.iter().any(|point| point.consensus.is_some());
        match self {
            Y::Accuracy => "the nodes' own models on the test rows: mean, band from the worst \
                            node to the best"
                .into(),
            Y::TestLoss => "the nodes' own models on the test rows: mean, band from the least to \
                            the greatest"
                .into(),
            Y::TrainLoss => match runs.iter().filter(sees).count() {
                all if all == runs.len() => "f at the mean of all models".into(),
                0 => {
                    "losses over each node's batches since its record before: mean, band from the \
                      least to the greatest"
                        .into()
                }
                _ => "f at the mean of all models; where no process sees all nodes, losses over \
                      their batches since the record before"
                    .into(),
            },
            Y::Consensus => "(1/n) sum |x_i - mean|²: how far the nodes' models are from their \
                             mean"
                .into(),
        }
    }
}

/// The curves of runs as pictures: each figure over each axis on which a run has a point.
pub(super) fn pictures(runs: &[&Run]) -> Vec<Picture> {
    let drawn = &runs[..runs.len().min(MOST_CURVES)];
    let all = [Y::Accuracy, Y::TestLoss, Y::TrainLoss, Y::Consensus];
    let figures = all.into_iter().flat_map(|y| {
        let axes: &[X] =
            if y == Y::Consensus { &[X::Rounds] } else { &[X::Rounds, X::Payload, X::Time] };
        axes.iter().map(move |x| (*x, y))
    });
    figures.filter_map(|(x, y)| picture(drawn, x, y)).collect()
}

/// The picture of one figure over another; `None` if no run has a point of it.
fn picture(runs: &[&Run], x: X, y: Y) -> Option<Picture> {
    let curves: Vec<(&Run, Vec<Dot>)> = runs.iter().map(|run| (*run, dots(run, x, y))).collect();
    if curves.iter().all(|(_, dots)| dots.is_empty()) {
        return None;
    }
    let name = format!("{}-{}", y.slug(), x.slug());
    Some(Picture { name, svg: chart(runs, &curves, x, y).svg() })
}

/// Every evaluation that has the figure.
fn dots(run: &Run, x: X, y: Y) -> Vec<Dot> {
    if x == X::Time && run.points.iter().all(|point| point.time_s <= 0.0) {
        return Vec::new();
    }
    let dot = |point: &Point| {
        let Span { mean, least, greatest } = y.of(point)?;
        Some(Dot { x: x.of(point), y: mean, low: least, high: greatest })
    };
    run.points.iter().filter_map(dot).collect()
}

fn chart(runs: &[&Run], curves: &[(&Run, Vec<Dot>)], x: X, y: Y) -> Chart {
    let broken = |run: &Run| matches!(run.status(), Status::Diverged(_));
    let ends: Vec<f64> =
        curves.iter().filter_map(|(_, dots)| dots.last()).map(|dot| dot.x).collect();
    let wide = ends.iter().any(|end| ends.iter().any(|other| *end > WIDE * other));
    let sound = curves.iter().filter(|(run, _)| !broken(run));
    let highest = sound.flat_map(|(_, dots)| dots).map(|dot| dot.y).reduce(f64::max);
    let line = |(run, dots): &(&Run, Vec<Dot>)| Line {
        name: run.name.clone(),
        dots: thinned(dots, MOST_DOTS),
        broken: broken(run),
    };
    Chart {
        title: format!("{} over {}", y.title(), x.over()),
        subtitle: y.subtitle(runs),
        x: Axis {
            words: x.words(runs).into(),
            unit: if x == X::Payload { Unit::Bytes } else { Unit::Plain },
            spacing: if x != X::Rounds && wide { Spacing::Log } else { Spacing::Linear },
        },
        y: Axis {
            words: y.title().to_lowercase(),
            unit: if y == Y::Accuracy { Unit::Percent } else { Unit::Plain },
            spacing: if y == Y::Accuracy { Spacing::Error } else { Spacing::Log },
        },
        ceiling: highest
            .filter(|_| matches!(y, Y::TestLoss | Y::TrainLoss))
            .map(|highest| CEILING * highest),
        lines: curves.iter().map(line).collect(),
    }
}

/// At most this many dots: the first, the last, and from each stretch between them the lowest and
/// the highest, with the stretch's band.
pub(super) fn thinned(dots: &[Dot], most: usize) -> Vec<Dot> {
    if dots.len() <= most {
        return dots.to_vec();
    }
    let (inner, stretches) = (&dots[1..dots.len() - 1], most / 2 - 1);
    let mut kept = vec![dots[0]];
    for stretch in 0..stretches {
        let range = inner.len() * stretch / stretches..inner.len() * (stretch + 1) / stretches;
        let part = &inner[range];
        let low = part.iter().map(|dot| dot.low).fold(f64::INFINITY, f64::min);
        let high = part.iter().map(|dot| dot.high).fold(f64::NEG_INFINITY, f64::max);
        let by_height = |a: &(usize, &Dot), b: &(usize, &Dot)| a.1.y.total_cmp(&b.1.y);
        let lowest = part.iter().enumerate().min_by(by_height).map(|(index, _)| index);
        let highest = part.iter().enumerate().max_by(by_height).map(|(index, _)| index);
        let (Some(a), Some(b)) = (lowest, highest) else { continue };
        kept.push(Dot { low, high, ..part[a.min(b)] });
        if a != b {
            kept.push(Dot { low, high, ..part[a.max(b)] });
        }
    }
    kept.extend(dots.last());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_ends_peaks_and_order() {
        let dot = |i: usize| {
            let y = if i == 71_234 { 99.0 } else { (i as f64 / 500.0).sin() };
            Dot { x: i as f64, y, low: y - 0.5, high: y + if i == 3_210 { 7.0 } else { 0.5 } }
        };
        let all: Vec<Dot> = (0..100_000).map(dot).collect();
        let kept = thinned(&all, 500);
        assert!(kept.len() <= 500 && kept.len() > 400, "{}", kept.len());
        assert_eq!((kept[0], kept[kept.len() - 1]), (all[0], all[99_999]));
        assert!(kept.windows(2).all(|pair| pair[0].x < pair[1].x));
        assert!(kept.iter().any(|dot| dot.y == 99.0), "the peak stays");
        assert!(kept.iter().any(|dot| dot.high > 6.0), "the band reaches as far");
        assert_eq!(thinned(&all[..500], 500), all[..500]);
    }
}
