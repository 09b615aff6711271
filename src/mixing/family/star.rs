//! Node 0 linked to all others, like a parameter server: `star:8`.

use super::Family;

pub(super) const STAR: Family = Family {
    name: "star",
    about: "node 0 linked to all others, as a parameter server would be",
    links: |arguments| Ok((1..arguments[0] as u32).map(|leaf| (0, leaf)).collect()),
    // 1, n - 2 times, and n.
    laplacian: |arguments, visit| {
        (2..arguments[0]).for_each(|_| visit(1.0));
        if arguments[0] > 1 {
            visit(arguments[0] as f64);
        }
        true
    },
    diameter: |arguments| Some((arguments[0] as usize - 1).min(2)),
    hub: true,
    ..Family::BLANK
};
