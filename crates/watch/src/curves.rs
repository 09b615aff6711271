//! The curves of a run as one node has seen them: of each node, its figures over rounds, time and
//! bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::network::{Network, VERSION};

/// Points of a series, at the most. Then every second one is dropped.
const MOST: usize = 1000;

/// The curves of all nodes.
#[derive(Debug, Serialize)]
pub(crate) struct Curves {
    version: u32,
    series: Vec<Series>,
}

impl Default for Curves {
    fn default() -> Curves {
        Curves { version: VERSION, series: Vec::new() }
    }
}

#[derive(Debug, Default, Serialize)]
struct Series {
    node: String,
    round: Vec<u64>,
    time_s: Vec<f64>,
    bytes: Vec<u64>,
    loss: Vec<Option<f64>>,
    measures: BTreeMap<String, Vec<Option<f64>>>,
    /// A point is added after so many looks.
    #[serde(skip)]
    every: u64,
    #[serde(skip)]
    looks: u64,
}

impl Curves {
    /// Adds what nodes say so long after the first look.
    pub(crate) fn look(&mut self, network: &Network, time_s: f64) {
        if self.series.is_empty() {
            let names = network.nodes.iter().map(|node| node.name.clone());
            let series = |node| Series { node, every: 1, ..Series::default() };
            self.series = names.map(series).collect();
        }
        for (series, node) in self.series.iter_mut().zip(&network.nodes) {
            if node.round == 0 || series.round.last() == Some(&node.round) {
                continue;
            }
            // The run went back to a checkpoint: what came after it has not happened.
            let kept = series.round.partition_point(|round| *round < node.round);
            series.truncate(kept);
            series.looks += 1;
            if series.looks % series.every == 0 {
                let points = series.round.len();
                series.round.push(node.round);
                series.time_s.push(time_s);
                series.bytes.push(node.sent_bytes);
                series.loss.push(node.loss);
                for (name, value) in &node.measures {
                    let values = series.measures.entry(name.clone()).or_default();
                    values.resize(points, None);
                    values.push(Some(*value));
                }
                series.measures.values_mut().for_each(|values| values.resize(points + 1, None));
            }
            if series.round.len() > MOST {
                series.thin();
            }
        }
    }
}

impl Series {
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
    use crate::network::tests::example;

    #[test]
    fn curves_grow_are_thinned_and_go_back_with_their_run() {
        let (mut curves, mut network) = (Curves::default(), example());
        let mut look = |curves: &mut Curves, round: u64, measure: Option<f64>| {
            let node = &mut network.nodes[0];
            (node.round, node.loss) = (round, Some(1.0 / round as f64));
            node.measures = measure.map(|value| ("accuracy".into(), value)).into_iter().collect();
            curves.look(&network, round as f64);
        };
        look(&mut curves, 1, None);
        look(&mut curves, 2, Some(0.5));
        // Nothing has happened since.
        look(&mut curves, 2, Some(0.5));
        look(&mut curves, 3, None);
        let first = &curves.series[0];
        assert_eq!((first.node.as_str(), &first.round[..]), ("berlin", &[1, 2, 3][..]));
        assert_eq!(first.measures["accuracy"], [None, Some(0.5), None]);
        // The run has gone back to a checkpoint.
        look(&mut curves, 2, Some(0.75));
        let first = &curves.series[0];
        assert_eq!((&first.round[..], first.loss[1]), (&[1, 2][..], Some(0.5)));
        assert_eq!(first.measures["accuracy"], [None, Some(0.75)]);
        for round in 3..5000 {
            look(&mut curves, round, Some(0.9));
        }
        let first = &curves.series[0];
        let points = first.round.len();
        assert!((MOST / 2..=MOST).contains(&points), "{points}");
        assert_eq!((first.round[0], first.time_s.len()), (1, points));
        assert_eq!((first.bytes.len(), first.loss.len()), (points, points));
        assert_eq!(first.measures["accuracy"].len(), points);
        assert!(first.round.is_sorted_by(|a, b| a < b) && first.round[points - 1] > 4980);
    }
}
