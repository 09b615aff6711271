//! Node 0 linked to all others.

use super::{Family, Refusal};

/// `star:8`: node 0 is the hub, like a parameter server.
#[derive(Debug)]
pub(super) struct Star;

impl Family for Star {
    fn name(&self) -> &'static str {
        "star"
    }

    fn about(&self) -> &'static str {
        "node 0 linked to all others, as a parameter server would be"
    }

    fn links(&self, arguments: &[u64]) -> Result<Vec<(u32, u32)>, Refusal> {
        Ok((1..arguments[0] as u32).map(|leaf| (0, leaf)).collect())
    }

    /// 1, n - 2 times, and n.
    fn laplacian(&self, arguments: &[u64], visit: &mut dyn FnMut(f64)) -> bool {
        (2..arguments[0]).for_each(|_| visit(1.0));
        if arguments[0] > 1 {
            visit(arguments[0] as f64);
        }
        true
    }

    fn diameter(&self, arguments: &[u64]) -> Option<usize> {
        Some((arguments[0] as usize - 1).min(2))
    }

    fn hub(&self) -> bool {
        true
    }
}
