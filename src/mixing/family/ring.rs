//! Each node linked to the next, the last to the first.

use super::{Family, Refusal, ring_eigenvalue, ring_links};

/// `ring:8`. A ring of 2 is one link.
#[derive(Debug)]
pub(super) struct Ring;

impl Family for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn about(&self) -> &'static str {
        "each node linked to the next, the last to the first; gap about 4 pi^2 / (3 n^2)"
    }

    fn links(&self, arguments: &[u64]) -> Result<Vec<(u32, u32)>, Refusal> {
        let mut links = Vec::new();
        ring_links(arguments[0], |i| i as u32, &mut links);
        Ok(links)
    }

    /// `2 - 2 cos(2 pi k / n)`.
    fn laplacian(&self, arguments: &[u64], visit: &mut dyn FnMut(f64)) -> bool {
        (1..arguments[0]).for_each(|k| visit(ring_eigenvalue(arguments[0], k)));
        true
    }

    fn diameter(&self, arguments: &[u64]) -> Option<usize> {
        Some(arguments[0] as usize / 2)
    }
}
