//! A random graph in which every node has the same number of links: `random-regular:16:4`, 16 nodes
//! with 4 links each; a third number is the seed.
//!
//! Drawn by pairing loose ends and putting aside the pairs that would make a loop or a parallel
//! link (Steger and Wormald 1999), repeated until the graph is connected. Asymptotically uniform
//! for small degrees. Above half of all possible links the complement is drawn. An unlucky draw can
//! have a much smaller gap than another, so look at the graph that was drawn, not at the family.

use crate::rng::{Purpose, Sequence, Stream};

use super::{Family, Graph, Links, Refusal, Size};

pub(super) const RANDOM_REGULAR: Family = Family {
    name: "random-regular",
    about: "every node has the same number of links, drawn at random: nodes:degree[:seed]",
    keys: &["nodes", "degree", "seed"],
    optional: 1,
    example: &[16, 4],
    size,
    links,
    ..Family::BLANK
};

/// Draws before giving up; graphs of degree 3 and more are connected at nearly every draw.
const DRAWS: u64 = 300;
/// Reshuffles of the last loose ends that do not fit, before a draw is abandoned.
const PATIENCE: u32 = 30;

fn size(arguments: &[u64]) -> Result<Size, Refusal> {
    let (nodes, degree) = (arguments[0], arguments[1]);
    let problem = if degree >= nodes {
        format!("expected a degree below the {nodes} nodes")
    } else if nodes % 2 == 1 && degree % 2 == 1 {
        format!("{nodes} nodes cannot all have an odd number of links")
    } else if degree < 2 && nodes > degree + 1 {
        format!("expected 2 or more: {nodes} nodes would not be connected")
    } else {
        // The complement of a dense graph is drawn, but its links are then all listed.
        let links = u128::from(nodes) * u128::from(degree) / 2;
        return Ok(Size { nodes: nodes.into(), links });
    };
    Err(Refusal::new("degree", problem))
}

fn links(arguments: &[u64]) -> Result<Links, Refusal> {
    let (nodes, degree) = (arguments[0] as usize, arguments[1] as usize);
    let stream = Stream::new(arguments[2], Purpose::Graph).with(arguments[0]).with(arguments[1]);
    for draw in 0..DRAWS {
        let Some(rows) = draw_regular(nodes, degree, &mut stream.with(draw).sequence()) else {
            continue;
        };
        let ascending = |(a, row): (usize, Vec<u32>)| {
            row.into_iter()
                .filter(move |&b| (a as u32) < b)
                .map(move |b| (a as u32, b))
                .collect::<Vec<_>>()
        };
        let links: Links = rows.into_iter().enumerate().flat_map(ascending).collect();
        let connected =
            Graph::new(nodes, links.iter().copied()).is_ok_and(|graph| graph.unreached().is_none());
        if connected {
            return Ok(links);
        }
    }
    let problem =
        format!("no connected graph in {DRAWS} draws; use a larger degree, or ring for degree 2");
    Err(Refusal::new("degree", problem))
}

/// Draws a simple regular graph, connected or not, as rows of neighbours; `None` after an unlucky
/// draw. Above half of all links the complement is drawn. All numberings of the nodes are equally
/// probable.
pub(in crate::mixing) fn draw_regular(
    nodes: usize,
    degree: usize,
    random: &mut Sequence,
) -> Option<Vec<Vec<u32>>> {
    if degree > (nodes - 1) / 2 {
        Some(complement(&pair(nodes, nodes - 1 - degree, random)?))
    } else {
        pair(nodes, degree, random)
    }
}

/// A simple regular graph as rows of neighbours, or `None` if the last loose ends do not fit.
fn pair(nodes: usize, degree: usize, random: &mut Sequence) -> Option<Vec<Vec<u32>>> {
    let mut rows = vec![Vec::with_capacity(degree); nodes];
    let mut loose: Vec<u32> =
        (0..nodes as u32).flat_map(|node| std::iter::repeat_n(node, degree)).collect();
    let mut left = Vec::new();
    let mut stuck = 0;
    while !loose.is_empty() {
        random.shuffle(&mut loose);
        for ends in loose.chunks_exact(2) {
            let (a, b) = (ends[0], ends[1]);
            if a == b || rows[a as usize].contains(&b) {
                left.extend([a, b]);
            } else {
                rows[a as usize].push(b);
                rows[b as usize].push(a);
            }
        }
        stuck = if left.len() == loose.len() { stuck + 1 } else { 0 };
        if stuck == PATIENCE {
            return None;
        }
        std::mem::swap(&mut loose, &mut left);
        left.clear();
    }
    Some(rows)
}

/// The complement of the graph: it links exactly the other pairs.
fn complement(rows: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut linked = vec![false; rows.len()];
    let mut other = |(a, row): (usize, &Vec<u32>)| {
        linked.fill(false);
        linked[a] = true;
        row.iter().for_each(|&b| linked[b as usize] = true);
        (0..rows.len()).filter(|&b| !linked[b]).map(|b| b as u32).collect()
    };
    rows.iter().enumerate().map(&mut other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_draw_is_simple_regular_connected_and_repeatable() {
        for (nodes, degree) in
            [(4, 2), (16, 3), (16, 4), (10, 9), (10, 8), (30, 15), (64, 4), (101, 6), (200, 2)]
        {
            for seed in 0..5 {
                let drawn = links(&[nodes, degree, seed]).unwrap();
                let graph = Graph::new(nodes as usize, drawn.iter().copied()).unwrap();
                assert_eq!(graph.links().len(), drawn.len(), "parallel links");
                assert!(graph.degrees().all(|d| d as u64 == degree), "{nodes} {degree} {seed}");
                assert_eq!(graph.unreached(), None);
                assert_eq!(drawn, links(&[nodes, degree, seed]).unwrap());
            }
        }
        assert_ne!(links(&[16, 4, 0]), links(&[16, 4, 1]));
    }
}
