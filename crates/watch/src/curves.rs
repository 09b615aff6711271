//! The curves of a run as one node has seen them.

use gradvine_page::{Curves, Network, Point, Series};

/// Points of a series, at the most. Then every second one is dropped.
const MOST: usize = 1000;

/// Adds what nodes say so long after the first look.
pub(crate) fn look(curves: &mut Curves, network: &Network, time_s: f64) {
    if curves.series.is_empty() {
        curves.series = network.nodes.iter().map(|node| Series::named(&node.name)).collect();
    }
    for (series, node) in curves.series.iter_mut().zip(&network.nodes) {
        if node.round == 0 {
            continue;
        }
        let point = Point {
            round: node.round,
            time_s,
            bytes: node.sent_bytes,
            loss: node.loss,
            measures: &node.measures,
        };
        series.push(&point, MOST);
    }
}
