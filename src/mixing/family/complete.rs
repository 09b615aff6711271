//! Every node linked to every other.

use super::{Family, Refusal, Size};

/// `complete:8`. With Metropolis weights one round is the exact mean.
#[derive(Debug)]
pub(super) struct Complete;

impl Family for Complete {
    fn name(&self) -> &'static str {
        "complete"
    }

    fn about(&self) -> &'static str {
        "every node linked to every other: rho = 0, one round is the exact mean"
    }

    fn size(&self, arguments: &[u64]) -> Result<Size, Refusal> {
        let nodes = u128::from(arguments[0]);
        Ok(Size { nodes, links: nodes * (nodes - 1) / 2 })
    }

    fn links(&self, arguments: &[u64]) -> Result<Vec<(u32, u32)>, Refusal> {
        Ok((0..arguments[0] as u32).flat_map(|b| (0..b).map(move |a| (a, b))).collect())
    }

    /// The eigenvalue n, n - 1 times.
    fn laplacian(&self, arguments: &[u64], visit: &mut dyn FnMut(f64)) -> bool {
        (1..arguments[0]).for_each(|_| visit(arguments[0] as f64));
        true
    }

    fn diameter(&self, arguments: &[u64]) -> Option<usize> {
        Some(usize::from(arguments[0] > 1))
    }
}
