//! A wheel: node 0 in the middle, the others around it in a ring, each linked with the middle.

use gradvine::mixing::family::{Family, Refusal, Size};

/// The family `wheel:N`.
pub(crate) const WHEEL: Family = Family {
    name: "wheel",
    about: "a hub and a ring around it",
    example: &[6],
    size: |arguments| {
        if arguments[0] < 4 {
            return Err(Refusal::new("nodes", "expected 4 or more"));
        }
        let nodes = u128::from(arguments[0]);
        Ok(Size { nodes, links: 2 * (nodes - 1) })
    },
    links: |arguments| {
        let rim = u32::try_from(arguments[0]).unwrap_or(u32::MAX) - 1;
        Ok((0..rim).flat_map(|k| [(0, k + 1), (k + 1, (k + 1) % rim + 1)]).collect())
    },
    diameter: |arguments| Some(if arguments[0] == 4 { 1 } else { 2 }),
    hub: true,
    ..Family::BLANK
};
