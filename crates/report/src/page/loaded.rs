//! A run with the curves of its nodes.

use std::{collections::BTreeMap, path::Path};

use gradvine::{
    config::ConfigError,
    run::{Metric, Run},
};
use gradvine_page::{Curves, Point, Series};

use super::{MOST_NODES, words::seven_digits};

/// Points that are kept of each node while the file is read.
const KEPT: usize = 400;
/// Points of all curves of nodes on a page, and the least number of one.
const ALL: usize = 10_000;
const LEAST: usize = 10;

/// A run, read from its directory, with the curves of its nodes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The run.
    pub run: Run,
    series: BTreeMap<u32, Series>,
}

impl Loaded {
    /// Reads a run directory; the run may be going on.
    ///
    /// # Errors
    /// As [`Run::load`].
    pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
        let mut series: BTreeMap<u32, Series> = BTreeMap::new();
        let run = Run::load_with(path, true, &mut |metric| {
            if (metric.node as usize) < MOST_NODES {
                add(series.entry(metric.node).or_default(), metric, KEPT);
            }
        })?;
        Ok(Loaded { run, series })
    }

    /// What a reader should know of a run that is not over.
    pub fn warning(&self) -> Option<String> {
        self.run.summary.is_none().then(|| {
            format!(
                "{} has no summary.json: it runs, or was killed; it is shown as far as it has come",
                self.run.path.display()
            )
        })
    }

    /// The curves of its nodes, on a page of so many runs.
    pub(super) fn curves(&self, runs: usize) -> Curves {
        let most = (ALL / runs / self.series.len().max(1)).clamp(LEAST, KEPT);
        // One process that sees all nodes knows the loss of their mean model: it is no node's.
        let is_shared = self.run.points.iter().any(|point| point.consensus.is_some());
        let series = self.series.iter().map(|(node, series)| {
            let mut series = series.clone();
            series.node.clone_from(&self.run.topology.node((*node as usize).into()).name);
            series.keep(most);
            if let Some(last) = self.run.last.get(node) {
                add(&mut series, last, usize::MAX);
            }
            if is_shared {
                series.loss.fill(None);
            }
            series.time_s.iter_mut().for_each(|time| *time = seven_digits(*time).unwrap_or(0.0));
            let values = series.loss.iter_mut().chain(series.measures.values_mut().flatten());
            values.for_each(|value| *value = value.and_then(seven_digits));
            series
        });
        Curves { series: series.collect(), ..Curves::default() }
    }
}

/// The figures of an evaluation by their names.
pub(super) fn measures(metric: &Metric) -> BTreeMap<String, f64> {
    let own = [("test_loss", metric.test_loss), ("test_accuracy", metric.test_accuracy)];
    let own = own.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?)));
    metric.measures.clone().into_iter().chain(own).collect()
}

/// Adds a line of `metrics.jsonl`.
fn add(series: &mut Series, metric: &Metric, most: usize) {
    let point = Point {
        round: metric.round,
        time_s: metric.time_s,
        bytes: metric.bytes_payload,
        loss: metric.train_loss,
        measures: &measures(metric),
    };
    series.push(&point, most);
}
