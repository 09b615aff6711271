//! Curves over rounds, bytes and time: one line per run, and a band over its nodes.

use super::{
    Figure, MOST_CURVES,
    markup::{Cell, Table, bytes, grouped, number, percent},
    style::in_the_dark,
};
use gradvine::run::{Point, Run, Span, Status};
use serde_json::{Map, Value, json};

use crate::chart::{Axis, Chart, Dot, Line, Spacing, Unit, style};

/// A curve with more evaluations than this is thinned; also in the narrow picture.
pub(super) const MOST_DOTS: usize = 500;
const MOST_NARROW_DOTS: usize = 120;
/// The maximum number of rows per run in the table behind a picture.
const MOST_ROWS: usize = 40;
/// Losses that rise above this many times the highest of the runs that did not diverge leave the
/// picture.
const CEILING: f64 = 3.0;
/// An axis of bytes or seconds is logarithmic if the runs' ends differ by more than this factor.
const WIDE: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum X {
    Rounds,
    Payload,
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Y {
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

    fn words(self, runs: &[Run]) -> &'static str {
        match self {
            X::Rounds => "rounds",
            X::Payload => "payload that a node has sent",
            X::Time if runs.iter().all(Run::simulated) => "seconds of virtual time",
            X::Time if runs.iter().any(Run::simulated) => {
                "seconds, virtual where a run was simulated"
            }
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

    fn show(self, value: f64) -> String {
        match self {
            X::Rounds => grouped(value as u64),
            X::Payload => bytes(value),
            X::Time => format!("{value:.3} s"),
        }
    }
}

impl Y {
    pub(super) const fn slug(self) -> &'static str {
        match self {
            Y::Accuracy => "accuracy",
            Y::TestLoss => "test-loss",
            Y::TrainLoss => "loss",
            Y::Consensus => "consensus",
        }
    }

    pub(super) const fn title(self) -> &'static str {
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

    fn show(self, value: f64) -> String {
        if self == Y::Accuracy { percent(value) } else { number(value) }
    }

    /// The meaning of the curve, for these runs.
    fn subtitle(self, runs: &[Run]) -> String {
        let sees = |run: &&Run| run.points.iter().any(|point| point.consensus.is_some());
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

    /// Why there is no picture of it.
    pub(super) fn absent(self) -> &'static str {
        match self {
            Y::TrainLoss => "No run has an evaluation with a training loss.",
            Y::TestLoss => "No run has test losses: there were no test rows.",
            Y::Accuracy => {
                "No run has test accuracies: there were no test rows, or the model predicts \
                 numbers."
            }
            Y::Consensus => {
                "No run has consensus distances: they are known where one process sees all nodes \
                 (train, simulate)."
            }
        }
    }
}

/// The picture of one figure over another; `None` if no run has a point of it.
pub(super) fn figure(runs: &[Run], x: X, y: Y) -> Option<Figure> {
    let drawn = &runs[..runs.len().min(MOST_CURVES)];
    let curves: Vec<(&Run, Vec<Dot>)> = drawn.iter().map(|run| (run, dots(run, x, y))).collect();
    if curves.iter().all(|(_, dots)| dots.is_empty()) {
        return None;
    }
    let chart = chart(drawn, &curves, x, y, MOST_DOTS);
    let id = format!("{}-{}", y.slug(), x.slug());
    let thinned = curves.iter().any(|(_, dots)| dots.len() > MOST_DOTS);
    let mut caption = String::new();
    if thinned {
        caption += &format!("Curves are thinned to {MOST_DOTS} points that keep their peaks. ");
    }
    for (run, _) in curves.iter().filter(|(_, dots)| dots.is_empty()) {
        caption += &format!("{} has no point in this picture. ", run.name);
    }
    let mut still = String::new();
    let above = |dot: &Dot| chart.ceiling.is_some_and(|ceiling| dot.y > ceiling);
    for (run, _) in curves.iter().filter(|(_, dots)| dots.iter().any(above)) {
        still += &format!("{} leaves the picture at its top. ", run.name);
    }
    if y != Y::Accuracy && curves.iter().any(|(_, dots)| dots.iter().any(|dot| dot.y <= 0.0)) {
        still += "Values of 0 have no place on the logarithmic axis. ";
    }
    if y == Y::Accuracy {
        still += "The axis separates good models: each step towards 100 % that divides the \
                  error by the same number is equally long. ";
    }
    if y == Y::Accuracy && curves.iter().any(|(_, dots)| dots.iter().any(|dot| dot.high >= 1.0)) {
        still += "100 % is drawn half as far from 100 % as the best other value. ";
    }
    let description = describe(&curves, x, y);
    let small = self::chart(drawn, &curves, x, y, MOST_NARROW_DOTS);
    Some(Figure {
        svg: chart.drawn(&format!("clip-{id}"), &description),
        narrow: Some(small.narrow(&format!("clip-{id}-narrow"), &description)),
        title: chart.title,
        caption: caption.trim_end().into(),
        still: still.trim_end().into(),
        table: table(&curves, x, y),
        id,
    })
}

/// The data of an interactive chart: for each run its points over all axes that it has; `None` if
/// no run has a point. The axes that have no point are left out.
pub(super) fn data(runs: &[Run], y: Y) -> Option<Value> {
    let drawn = &runs[..runs.len().min(MOST_CURVES)];
    let axes = [X::Rounds, X::Payload, X::Time].into_iter();
    let axes: Vec<X> =
        axes.filter(|x| drawn.iter().any(|run| !dots(run, *x, y).is_empty())).collect();
    if axes.is_empty() {
        return None;
    }
    let series = drawn.iter().enumerate().map(|(index, run)| {
        let points: Vec<(&Point, Span)> =
            run.points.iter().filter_map(|point| Some((point, y.of(point)?))).collect();
        let place = |(place, (_, span)): (usize, &(&Point, Span))| Dot {
            x: place as f64,
            y: span.mean,
            low: span.least,
            high: span.greatest,
        };
        let all: Vec<Dot> = points.iter().enumerate().map(place).collect();
        let kept = thinned(&all, MOST_DOTS);
        let of = |figure: &dyn Fn(&Dot) -> f64| -> Vec<Value> {
            kept.iter().map(|dot| short(figure(dot))).collect()
        };
        let (colour, dash) = style(index);
        let mut one = json!({
            "name": run.name,
            "colour": [colour, in_the_dark(colour)],
            "dash": dash,
            "mean": of(&|dot| dot.y),
        });
        if kept.iter().any(|dot| dot.low < dot.high) {
            one["least"] = of(&|dot| dot.low).into();
            one["greatest"] = of(&|dot| dot.high).into();
        }
        for x in &axes {
            let place =
                |dot: &Dot| points.get(dot.x as usize).map_or(0.0, |(point, _)| x.of(point));
            // A run without times has no place on their axis.
            let has = !dots(run, *x, y).is_empty();
            one[x.slug()] = if has { of(&place) } else { Vec::new() }.into();
        }
        one
    });
    let series: Vec<Value> = series.collect();
    let axis = |x: &X| {
        let unit = match x {
            X::Rounds => "plain",
            X::Payload => "bytes",
            X::Time => "seconds",
        };
        (x.slug().to_string(), json!({ "name": x.over(), "words": x.words(drawn), "unit": unit }))
    };
    let changes = drawn.iter().flat_map(|run| &run.summary).flat_map(|summary| &summary.history);
    Some(json!({
        "title": y.title(),
        "unit": if y == Y::Accuracy { "percent" } else { "plain" },
        "log": y != Y::Accuracy,
        "axes": axes.iter().map(axis).collect::<Map<String, Value>>(),
        "series": series,
        "marks": changes.map(|change| json!({ "round": change.round })).collect::<Vec<Value>>(),
    }))
}

/// A number with seven digits; null if it is not finite.
fn short(value: f64) -> Value {
    let digits: Option<f64> = format!("{value:.6e}").parse().ok();
    digits.filter(|value| value.is_finite()).map_or(Value::Null, Value::from)
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

fn chart(runs: &[Run], curves: &[(&Run, Vec<Dot>)], x: X, y: Y, most: usize) -> Chart {
    let broken = |run: &Run| matches!(run.status(), Status::Diverged(_));
    let ends: Vec<f64> =
        curves.iter().filter_map(|(_, dots)| dots.last()).map(|dot| dot.x).collect();
    let wide = ends.iter().any(|end| ends.iter().any(|other| *end > WIDE * other));
    let sound = curves.iter().filter(|(run, _)| !broken(run));
    let highest = sound.flat_map(|(_, dots)| dots).map(|dot| dot.y).reduce(f64::max);
    let line = |(run, dots): &(&Run, Vec<Dot>)| Line {
        name: run.name.clone(),
        dots: thinned(dots, most),
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

fn describe(curves: &[(&Run, Vec<Dot>)], x: X, y: Y) -> String {
    let line = |(run, dots): &(&Run, Vec<Dot>)| {
        let (first, last) = (dots.first()?, dots.last()?);
        let end = match run.status() {
            Status::Diverged(round) => format!(", then diverged in round {round}"),
            _ => String::new(),
        };
        let (from, to) = (x.show(first.x), x.show(last.x));
        Some(format!(
            "{}: {} at {from}, {} at {to}{end}.",
            run.name,
            y.show(first.y),
            y.show(last.y)
        ))
    };
    curves.iter().filter_map(line).collect::<Vec<_>>().join(" ")
}

fn table(curves: &[(&Run, Vec<Dot>)], x: X, y: Y) -> Table {
    let banded = curves.iter().flat_map(|(_, dots)| dots).any(|dot| dot.low < dot.high);
    let mut head = vec!["run".to_string(), x.over().into(), y.title().to_lowercase()];
    if banded {
        head.extend(["least".to_string(), "greatest".into()]);
    }
    let (mut rows, mut cut) = (Vec::new(), false);
    for (run, dots) in curves {
        cut |= dots.len() > MOST_ROWS;
        for dot in spread(dots, MOST_ROWS) {
            let mut row = vec![
                Cell::Name(run.name.clone()),
                Cell::Figure(x.show(dot.x)),
                Cell::Figure(y.show(dot.y)),
            ];
            if banded {
                row.extend([Cell::Figure(y.show(dot.low)), Cell::Figure(y.show(dot.high))]);
            }
            rows.push(row);
        }
    }
    let left_out = if cut {
        format!(
            "At most {MOST_ROWS} evaluations of a run are shown, evenly spread; metrics.jsonl has \
             all."
        )
    } else {
        String::new()
    };
    Table { caption: format!("{} over {}", y.title(), x.over()), head, rows, left_out }
}

/// At most this many of them, evenly spread, with the first and the last.
fn spread(dots: &[Dot], most: usize) -> Vec<&Dot> {
    if dots.len() <= most {
        return dots.iter().collect();
    }
    (0..most).map(|index| &dots[index * (dots.len() - 1) / (most - 1)]).collect()
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
        let rows = spread(&all, 40);
        assert_eq!((rows.len(), rows[0].x, rows[39].x), (40, 0.0, 99_999.0));
    }
}
