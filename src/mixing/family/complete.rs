//! Every node linked to every other: `complete:8`.

use super::{Family, Size};

pub(super) const COMPLETE: Family = Family {
    name: "complete",
    about: "every node linked to every other: rho = 0, one round is the exact mean",
    size: |arguments| {
        let nodes = u128::from(arguments[0]);
        Ok(Size { nodes, links: nodes * (nodes - 1) / 2 })
    },
    links: |arguments| {
        Ok((0..arguments[0] as u32).flat_map(|b| (0..b).map(move |a| (a, b))).collect())
    },
    // The eigenvalue n, n - 1 times.
    laplacian: |arguments, visit| {
        (1..arguments[0]).for_each(|_| visit(arguments[0] as f64));
        true
    },
    diameter: |arguments| Some(usize::from(arguments[0] > 1)),
    ..Family::BLANK
};
