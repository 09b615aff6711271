//! Nodes are linked if their numbers differ in one bit.

use super::{Family, Refusal, Size};

/// `hypercube:8`: 8 nodes, 3 links each.
#[derive(Debug)]
pub(super) struct Hypercube;

impl Family for Hypercube {
    fn name(&self) -> &'static str {
        "hypercube"
    }

    fn about(&self) -> &'static str {
        "2^d nodes, linked if their numbers differ in one bit; gap 2 / (1 + d)"
    }

    fn size(&self, arguments: &[u64]) -> Result<Size, Refusal> {
        let nodes = arguments[0];
        if !nodes.is_power_of_two() && nodes <= super::MAX_NODES as u64 {
            let (below, above) = (nodes.next_power_of_two() / 2, nodes.next_power_of_two());
            return Err(Refusal::new(
                "nodes",
                format!("expected a power of two, such as {below} or {above}"),
            ));
        }
        Ok(Size { nodes: nodes.into(), links: u128::from(nodes) * u128::from(nodes.ilog2()) })
    }

    fn links(&self, arguments: &[u64]) -> Result<Vec<(u32, u32)>, Refusal> {
        let bits = arguments[0].ilog2();
        Ok((0..arguments[0] as u32)
            .flat_map(|a| (0..bits).map(move |bit| (a, a ^ (1 << bit))))
            .collect())
    }

    /// `2 k`, binomial(d, k) times: node number v stands for k = its number of ones.
    fn laplacian(&self, arguments: &[u64], visit: &mut dyn FnMut(f64)) -> bool {
        (1..arguments[0]).for_each(|v| visit(f64::from(2 * v.count_ones())));
        true
    }

    fn diameter(&self, arguments: &[u64]) -> Option<usize> {
        Some(arguments[0].ilog2() as usize)
    }

    fn cube(&self) -> bool {
        true
    }
}
