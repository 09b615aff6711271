//! Nodes are linked if their numbers differ in one bit: `hypercube:8` has 3 links each.

use super::{Family, MAX_NODES, Refusal, Size};

pub(super) const HYPERCUBE: Family = Family {
    name: "hypercube",
    about: "2^d nodes, linked if their numbers differ in one bit; gap 2 / (1 + d)",
    size,
    links: |arguments| {
        let bits = arguments[0].ilog2();
        Ok((0..arguments[0] as u32)
            .flat_map(|a| (0..bits).map(move |bit| (a, a ^ (1 << bit))))
            .collect())
    },
    // 2 k, binomial(d, k) times: node number v stands for k = its number of ones.
    laplacian: |arguments, visit| {
        (1..arguments[0]).for_each(|v| visit(f64::from(2 * v.count_ones())));
        true
    },
    diameter: |arguments| Some(arguments[0].ilog2() as usize),
    cube: true,
    ..Family::BLANK
};

fn size(arguments: &[u64]) -> Result<Size, Refusal> {
    let nodes = arguments[0];
    if !nodes.is_power_of_two() && nodes <= MAX_NODES as u64 {
        let (below, above) = (nodes.next_power_of_two() / 2, nodes.next_power_of_two());
        let problem = format!("expected a power of two, such as {below} or {above}");
        return Err(Refusal::new("nodes", problem));
    }
    Ok(Size { nodes: nodes.into(), links: u128::from(nodes) * u128::from(nodes.ilog2()) })
}
