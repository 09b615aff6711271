//! Each node linked to the next.

use super::{Family, Refusal, wave};

/// `path:8`: a line of nodes, without a ring's last link.
#[derive(Debug)]
pub(super) struct Path;

impl Family for Path {
    fn name(&self) -> &'static str {
        "path"
    }

    fn about(&self) -> &'static str {
        "each node linked to the next; gap about pi^2 / (3 n^2), a quarter of a ring's"
    }

    fn links(&self, arguments: &[u64]) -> Result<Vec<(u32, u32)>, Refusal> {
        Ok((1..arguments[0] as u32).map(|i| (i - 1, i)).collect())
    }

    /// `2 - 2 cos(pi k / n)`.
    fn laplacian(&self, arguments: &[u64], visit: &mut dyn FnMut(f64)) -> bool {
        let n = arguments[0];
        (1..n).for_each(|k| visit(wave(std::f64::consts::PI * k as f64 / n as f64)));
        true
    }

    fn diameter(&self, arguments: &[u64]) -> Option<usize> {
        Some(arguments[0] as usize - 1)
    }
}
