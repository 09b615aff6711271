//! A grid whose rows and columns are rings: `torus:4x4`.
//!
//! Node `row * columns + column`; a side of 2 is one link, a side of 1 none.

use super::{Family, Size, ring_eigenvalue, ring_links};

pub(super) const TORUS: Family = Family {
    name: "torus",
    about: "a grid that wraps around, rows x columns; 4 links per node, gap about 4 pi^2 / (5 \
            side^2)",
    keys: &["rows", "columns"],
    separator: 'x',
    example: &[4, 4],
    size: |arguments| {
        let nodes = u128::from(arguments[0]).saturating_mul(u128::from(arguments[1]));
        Ok(Size { nodes, links: nodes.saturating_mul(2) })
    },
    links: |arguments| {
        let (rows, columns) = (arguments[0], arguments[1]);
        let mut links = Vec::with_capacity(2 * (rows * columns) as usize);
        for row in 0..rows {
            ring_links(columns, |column| (row * columns + column) as u32, &mut links);
        }
        for column in 0..columns {
            ring_links(rows, |row| (row * columns + column) as u32, &mut links);
        }
        Ok(links)
    },
    // Sums of the two rings' eigenvalues: the torus is their Cartesian product.
    laplacian: |arguments, visit| {
        let across: Vec<f64> =
            (0..arguments[1]).map(|k| ring_eigenvalue(arguments[1], k)).collect();
        for j in 0..arguments[0] {
            let down = ring_eigenvalue(arguments[0], j);
            let skip = usize::from(j == 0); // the trivial one
            across[skip..].iter().for_each(|value| visit(down + value));
        }
        true
    },
    diameter: |arguments| Some(arguments[0] as usize / 2 + arguments[1] as usize / 2),
    grid: |arguments| Some((arguments[0] as usize, arguments[1] as usize)),
    ..Family::BLANK
};
