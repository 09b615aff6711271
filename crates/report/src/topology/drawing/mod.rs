//! Pictures of a topology: a small one for the terminal and an SVG with its spectrum beside it.
//!
//! Both use the same positions: a torus on its grid, a star around its hub, a hypercube as a
//! projected cube, all others on a circle. Graphs that are too large to draw are summarised
//! instead: a histogram of degrees, and the adjacency matrix as dots.

mod canvas;
mod chart;
mod layout;
mod svg;
mod text;

use std::collections::BTreeMap;

use gradvine::mixing::{Graph, Topology};

use layout::Layout;

pub use svg::svg;
pub use text::draw;

/// The number of nodes with each degree, ascending.
fn degrees(graph: &Graph) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    graph.degrees().for_each(|degree| *counts.entry(degree).or_insert(0) += 1);
    counts
}

/// The histogram's rows, at most `most`: neighbouring degrees share a row if there are more.
/// `(least, greatest, nodes)`
fn histogram(topology: &Topology, most: usize) -> Vec<(usize, usize, usize)> {
    let counts = degrees(topology.graph());
    let (Some((&least, _)), Some((&greatest, _))) =
        (counts.first_key_value(), counts.last_key_value())
    else {
        return Vec::new();
    };
    if counts.len() <= most {
        return counts.into_iter().map(|(degree, nodes)| (degree, degree, nodes)).collect();
    }
    let width = (greatest - least + 1).div_ceil(most);
    let mut rows: Vec<(usize, usize, usize)> = Vec::new();
    for (degree, nodes) in counts {
        let start = least + (degree - least) / width * width;
        match rows.last_mut() {
            Some(row) if row.0 == start => row.2 += nodes,
            _ => rows.push((start, start + width - 1, nodes)),
        }
    }
    rows
}

/// Describes a histogram row's degrees.
fn range(least: usize, greatest: usize) -> String {
    if least == greatest { least.to_string() } else { format!("{least}-{greatest}") }
}

/// A figure with about four digits, without trailing zeros.
fn figure(x: f64) -> String {
    let size = x.abs();
    if size < 1e-12 {
        "0".into()
    } else if size < 1e-3 {
        format!("{x:.2e}")
    } else {
        let digits = format!("{x:.4}");
        digits.trim_end_matches('0').trim_end_matches('.').to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (x, text) in [
            (1.0 / 3.0, "0.3333"),
            (0.125, "0.125"),
            (1.0, "1"),
            (1e-17, "0"),
            (-0.5, "-0.5"),
            (4e-5, "4.00e-5"),
            (70.0, "70"),
        ] {
            assert_eq!(figure(x), text);
        }
    }

    #[test]
    fn many_degrees_share_rows() {
        let path = Topology::parse("path:5", 0).unwrap();
        assert_eq!(histogram(&path, 12), [(1, 1, 2), (2, 2, 3)]);
        // Node i of this graph is linked to all before it: degrees 1 to 40 in rows of 4.
        let lines: String = (0..41)
            .flat_map(|i| (0..i).map(move |j| format!("{i},{j}\n")))
            .filter(|line| {
                let (i, j) = line.trim().split_once(',').unwrap();
                i.parse::<u32>().unwrap() + j.parse::<u32>().unwrap() >= 40
            })
            .collect();
        let graph = Topology::from_text(&lines, gradvine::mixing::FileFormat::Csv, "half").unwrap();
        let rows = histogram(&graph, 10);
        assert!(
            rows.len() <= 10 && rows.iter().map(|row| row.2).sum::<usize>() == graph.nodes(),
            "{rows:?}"
        );
        assert!(rows.iter().all(|(least, greatest, _)| greatest - least == 3), "{rows:?}");
    }
}
