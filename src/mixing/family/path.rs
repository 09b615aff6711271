//! Each node linked to the next: `path:8`.

use super::{Family, wave};

pub(super) const PATH: Family = Family {
    name: "path",
    about: "each node linked to the next; gap about pi^2 / (3 n^2), a quarter of a ring's",
    links: |arguments| Ok((1..arguments[0] as u32).map(|i| (i - 1, i)).collect()),
    // 2 - 2 cos(pi k / n).
    laplacian: |arguments, visit| {
        let n = arguments[0];
        (1..n).for_each(|k| visit(wave(std::f64::consts::PI * k as f64 / n as f64)));
        true
    },
    diameter: |arguments| Some(arguments[0] as usize - 1),
    ..Family::BLANK
};
