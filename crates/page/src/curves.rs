//! The figures of nodes over rounds, time and bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::network::VERSION;

/// The curves of all nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Curves {
    /// [`VERSION`].
    pub version: u32,
    /// One for each node.
    pub series: Vec<Series>,
}

/// The figures of a node, or of what `node` names; all vectors are equally long.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Its name.
    pub node: String,
    /// The rounds done, ascending.
    pub round: Vec<u64>,
    /// Seconds since the start.
    pub time_s: Vec<f64>,
    /// Bytes sent.
    pub bytes: Vec<u64>,
    /// The training loss.
    pub loss: Vec<Option<f64>>,
    /// The mean squared distance of the nodes' models from their mean; empty if not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consensus: Vec<Option<f64>>,
    /// Figures of evaluations by name.
    pub measures: BTreeMap<String, Vec<Option<f64>>>,
    /// The lower ends of bands: by `loss`, or the name of a measure.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub low: BTreeMap<String, Vec<Option<f64>>>,
    /// Their upper ends.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub high: BTreeMap<String, Vec<Option<f64>>>,
    /// A point is kept of so many; 0 before the first.
    #[serde(skip)]
    every: u64,
    #[serde(skip)]
    seen: u64,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// The rounds that it has done.
    pub round: u64,
    /// Seconds since the start.
    pub time_s: f64,
    /// Bytes that it has sent.
    pub bytes: u64,
    /// Its training loss.
    pub loss: Option<f64>,
    /// Figures of its evaluation.
    pub measures: &'a BTreeMap<String, f64>,
}

impl Default for Curves {
    fn default() -> Curves {
        Curves { version: VERSION, series: Vec::new() }
    }
}

impl Series {
    /// One without points.
    pub fn named(node: impl Into<String>) -> Series {
        Series { node: node.into(), ..Series::default() }
    }

    /// Adds a point, unless nothing has happened since the last one. Points of later rounds are
    /// dropped: the run has gone back to a checkpoint. At most `most` points are kept, evenly.
    pub fn push(&mut self, point: &Point<'_>, most: usize) {
        if self.round.last() == Some(&point.round) {
            return;
        }
        self.truncate(self.round.partition_point(|round| *round < point.round));
        self.every = self.every.max(1);
        self.seen += 1;
        if self.seen.is_multiple_of(self.every) {
            let points = self.round.len();
            self.round.push(point.round);
            self.time_s.push(point.time_s);
            self.bytes.push(point.bytes);
            self.loss.push(point.loss);
            for (name, value) in point.measures {
                let values = self.measures.entry(name.clone()).or_default();
                values.resize(points, None);
                values.push(Some(*value));
            }
            self.measures.values_mut().for_each(|values| values.resize(points + 1, None));
        }
        if self.round.len() > most {
            self.thin();
        }
    }

    /// Keeps at most `most` of the points, evenly; from now on each that comes is kept.
    pub fn keep(&mut self, most: usize) {
        while self.round.len() > most.max(1) {
            self.thin();
        }
        self.every = 1;
    }

    fn truncate(&mut self, points: usize) {
        self.round.truncate(points);
        self.time_s.truncate(points);
        self.bytes.truncate(points);
        self.loss.truncate(points);
        self.measures.values_mut().for_each(|values| values.truncate(points));
    }

    fn thin(&mut self) {
        fn half<T>(values: &mut Vec<T>) {
            let mut index = 0;
            values.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        half(&mut self.round);
        half(&mut self.time_s);
        half(&mut self.bytes);
        half(&mut self.loss);
        self.measures.values_mut().for_each(half);
        self.every *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_grow_are_thinned_and_go_back_with_their_run() {
        const MOST: usize = 1000;
        let mut first = Series::named("berlin");
        let look = |series: &mut Series, round: u64, measure: Option<f64>| {
            let measures = measure.map(|value| ("accuracy".into(), value)).into_iter().collect();
            let (time_s, loss) = (round as f64, Some(1.0 / round as f64));
            let point = Point { round, time_s, bytes: 8 * round, loss, measures: &measures };
            series.push(&point, MOST);
        };
        look(&mut first, 1, None);
        look(&mut first, 2, Some(0.5));
        // Nothing has happened since.
        look(&mut first, 2, Some(0.5));
        look(&mut first, 3, None);
        assert_eq!((first.node.as_str(), &first.round[..]), ("berlin", &[1, 2, 3][..]));
        assert_eq!(first.measures["accuracy"], [None, Some(0.5), None]);
        // The run has gone back to a checkpoint.
        look(&mut first, 2, Some(0.75));
        assert_eq!((&first.round[..], first.loss[1]), (&[1, 2][..], Some(0.5)));
        assert_eq!(first.measures["accuracy"], [None, Some(0.75)]);
        for round in 3..5000 {
            look(&mut first, round, Some(0.9));
        }
        let points = first.round.len();
        assert!((MOST / 2..=MOST).contains(&points), "{points}");
        assert_eq!((first.round[0], first.time_s.len()), (1, points));
        assert_eq!((first.bytes.len(), first.loss.len()), (points, points));
        assert_eq!(first.measures["accuracy"].len(), points);
        assert!(first.round.is_sorted_by(|a, b| a < b) && first.round[points - 1] > 4980);
    }
}
