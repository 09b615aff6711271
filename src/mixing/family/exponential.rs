//! The static exponential graph (Assran et al. 2019; Ying et al. 2021), made symmetric:
//! `exponential:16` links node i to i + 2^k and i - 2^k mod n for every 2^k below n.
//!
//! DIFFERENCE to the papers: theirs is directed, i -> i + 2^k with the weight 1 / (1 + ceil(log2
//! n)); here links go both ways.

use crate::units::NodeId;

use super::{Family, Graph, Links, Refusal, Size, wave};

pub(super) const EXPONENTIAL: Family = Family {
    name: "exponential",
    about: "node i linked to i +- 2^k mod n: few links, large gap (the static exponential graph, \
            made symmetric)",
    example: &[16],
    size: |arguments| {
        let nodes = u128::from(arguments[0]);
        let hops = u64::BITS - (arguments[0] - 1).leading_zeros();
        Ok(Size { nodes, links: nodes * u128::from(hops) })
    },
    links,
    // The eigenvalue of a circulant: the sum over its offsets s of 1 - cos(2 pi k s / n).
    laplacian: |arguments, visit| {
        let n = arguments[0];
        let offsets = offsets(n);
        for k in 1..n {
            // k s mod n first: the angle stays small, and so does its error.
            let angle = |s: u64| std::f64::consts::TAU * (k * s % n) as f64 / n as f64;
            visit(offsets.iter().map(|&s| wave(angle(s)) / 2.0).sum());
        }
        true
    },
    // The graph is the same from every node, so the farthest node from node 0 gives the diameter.
    diameter: |arguments| {
        let graph = Graph::new(arguments[0] as usize, links(arguments).ok()?).ok()?;
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        graph.distances(NodeId(0), &mut distances, &mut order);
        Some(distances.iter().max().map_or(0, |&farthest| farthest as usize))
    },
    ..Family::BLANK
};

/// The distances around the ring at which nodes are linked, each once, with the opposite ones.
fn offsets(n: u64) -> Vec<u64> {
    let mut offsets: Vec<u64> =
        (0..).map(|k| 1 << k).take_while(|&hop| hop < n).flat_map(|hop| [hop, n - hop]).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

fn links(arguments: &[u64]) -> Result<Links, Refusal> {
    let n = arguments[0];
    let hops = offsets(n).into_iter().filter(|&hop| 2 * hop <= n);
    Ok(hops.flat_map(|hop| (0..n).map(move |i| (i as u32, ((i + hop) % n) as u32))).collect())
}
