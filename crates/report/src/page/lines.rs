//! Curves of whole runs: means over the nodes with bands from the least to the greatest; of runs
//! that differ in their seeds only, means with their 95 % intervals.

use std::collections::BTreeMap;

use gradvine::run::{Point, Run, Span};
use gradvine_page::Series;

use super::{
    MOST_RUNS,
    graph::content,
    words::{count, seven_digits},
};
use crate::{chart::Dot, interval::Interval};

/// Points of the lines of all runs together, and of one.
const ALL: usize = 20_000;
const MOST: usize = 400;
const LEAST: usize = 50;

/// A figure of a run: its key on the page, and its value at a point.
type Figure = (&'static str, fn(&Point) -> Option<Span>);

const FIGURES: [Figure; 4] = [
    ("loss", |point| point.train_loss),
    ("consensus", |point| {
        point.consensus.map(|value| Span { mean: value, least: value, greatest: value })
    }),
    ("test_accuracy", |point| point.test_accuracy),
    ("test_loss", |point| point.test_loss),
];

/// The maximum number of points of a line on a page of so many runs.
pub(super) fn most(runs: usize) -> usize {
    (ALL / runs).clamp(LEAST, MOST)
}

/// The line of a run on a page of so many runs.
pub(super) fn whole(run: &Run, name: &str, runs: usize) -> Series {
    let kept = kept(&run.points, most(runs));
    let mut series = Series::named(name);
    for point in &kept {
        begin(&mut series, point.round, point.time_s, point.payload);
    }
    for (key, figure) in FIGURES {
        let spans: Vec<Option<Span>> = kept.iter().map(|point| figure(point)).collect();
        put(&mut series, key, &spans);
    }
    series
}

fn begin(series: &mut Series, round: u64, time_s: f64, payload: f64) {
    series.round.push(round);
    series.time_s.push(seven_digits(time_s).unwrap_or(0.0));
    series.bytes.push(payload.round() as u64);
}

/// Puts the values of a figure, with a band where there is one.
fn put(series: &mut Series, key: &str, spans: &[Option<Span>]) {
    let of = |value: fn(&Span) -> f64| -> Vec<Option<f64>> {
        spans.iter().map(|span| span.as_ref().map(value).and_then(seven_digits)).collect()
    };
    let means = of(|span| span.mean);
    match key {
        "loss" => series.loss = means,
        _ if spans.iter().all(Option::is_none) => return,
        "consensus" => series.consensus = means,
        _ => {
            series.measures.insert(key.into(), means);
        }
    }
    if spans.iter().flatten().any(|span| span.least < span.greatest) {
        series.low.insert(key.into(), of(|span| span.least));
        series.high.insert(key.into(), of(|span| span.greatest));
    }
}

/// At most so many points, with the first, the last, and the peaks of the loss.
fn kept(points: &[Point], most: usize) -> Vec<&Point> {
    let height = |point: &Point| {
        point.train_loss.or(point.test_loss).or(point.test_accuracy).map_or(0.0, |span| span.mean)
    };
    let dot = |(index, point): (usize, &Point)| {
        let y = height(point);
        Dot { x: index as f64, y, low: y, high: y }
    };
    let dots: Vec<Dot> = points.iter().enumerate().map(dot).collect();
    let kept = super::pictures::thinned(&dots, most);
    kept.iter().filter_map(|dot| points.get(dot.x as usize)).collect()
}

/// One line for each group of runs in which only the seeds differ, and one for each other run;
/// empty without such a group. Two runs with the same seeds are never in one group: a repeated run
/// is no second seed.
pub(super) fn groups(runs: &[&Run]) -> Vec<Series> {
    let mut groups: Vec<(String, Vec<(String, &Run)>)> = Vec::new();
    for run in runs.iter().take(MOST_RUNS) {
        let plan = settings(run, false) + &content(&run.topology);
        let seeds = settings(run, true);
        let takes = |(known, members): &&mut (String, Vec<(String, &Run)>)| {
            *known == plan && members.iter().all(|(others, _)| *others != seeds)
        };
        match groups.iter_mut().find(takes) {
            Some((_, members)) => members.push((seeds, run)),
            None => groups.push((plan, vec![(seeds, run)])),
        }
    }
    if groups.iter().all(|(_, members)| members.len() == 1) {
        return Vec::new();
    }
    let line = |(_, members): &(String, Vec<(String, &Run)>)| {
        let members: Vec<&Run> = members.iter().map(|(_, run)| *run).collect();
        match members.as_slice() {
            [run] => whole(run, &run.name, runs.len()),
            several => over_seeds(several, runs.len()),
        }
    };
    groups.iter().map(line).collect()
}

/// The seeds of a run, or all its other settings.
fn settings(run: &Run, seeds: bool) -> String {
    let is_seed = |key: &str| key == "seed" || key.ends_with(".seed");
    let settings = run.settings.iter().filter(|(key, _)| is_seed(key) == seeds);
    settings.map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// The mean of runs at the rounds that all have, and its interval.
fn over_seeds(runs: &[&Run], all: usize) -> Series {
    let mut rounds: BTreeMap<u64, Vec<&Point>> = BTreeMap::new();
    for point in runs.iter().flat_map(|run| &run.points) {
        rounds.entry(point.round).or_default().push(point);
    }
    rounds.retain(|_, points| points.len() == runs.len());
    let means: Vec<Point> = rounds.iter().map(|(round, points)| mean(*round, points)).collect();
    let others = count(runs.len() - 1, "more seed");
    let mut series = Series::named(format!("{} and {others}", runs[0].name));
    let kept = kept(&means, most(all));
    for point in &kept {
        begin(&mut series, point.round, point.time_s, point.payload);
    }
    for (key, figure) in FIGURES {
        let spans: Vec<Option<Span>> = kept
            .iter()
            .map(|point| {
                let values = rounds[&point.round].iter().map(|point| Some(figure(point)?.mean));
                let values: Vec<f64> = values.collect::<Option<_>>()?;
                let Interval { mean, low, high } = Interval::of(&values)?;
                Some(Span { mean, least: low, greatest: high })
            })
            .collect();
        put(&mut series, key, &spans);
    }
    series
}

/// The means of points of one round.
fn mean(round: u64, points: &[&Point]) -> Point {
    let mean = |of: &dyn Fn(&Point) -> f64| {
        points.iter().map(|point| of(point)).sum::<f64>() / points.len() as f64
    };
    let span = |of: fn(&Point) -> Option<Span>| {
        let values: Option<Vec<f64>> = points.iter().map(|point| Some(of(point)?.mean)).collect();
        let Interval { mean, .. } = Interval::of(&values?)?;
        Some(Span { mean, least: mean, greatest: mean })
    };
    Point {
        round,
        time_s: mean(&|point| point.time_s),
        train_loss: span(|point| point.train_loss),
        test_loss: span(|point| point.test_loss),
        test_accuracy: span(|point| point.test_accuracy),
        consensus: None,
        payload: mean(&|point| point.payload),
    }
}
