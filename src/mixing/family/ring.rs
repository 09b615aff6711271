//! Each node linked to the next, the last to the first: `ring:8`. A ring of 2 is one link.

use super::{Family, ring_eigenvalue, ring_links};

pub(super) const RING: Family = Family {
    name: "ring",
    about: "each node linked to the next, the last to the first; gap about 4 pi^2 / (3 n^2)",
    links: |arguments| {
        let mut links = Vec::new();
        ring_links(arguments[0], |i| i as u32, &mut links);
        Ok(links)
    },
    // 2 - 2 cos(2 pi k / n).
    laplacian: |arguments, visit| {
        (1..arguments[0]).for_each(|k| visit(ring_eigenvalue(arguments[0], k)));
        true
    },
    diameter: |arguments| Some(arguments[0] as usize / 2),
    ..Family::BLANK
};
