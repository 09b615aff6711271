//! A wheel: node 0 in the middle, the others around it in a ring, each linked with the middle.

use gradvine::mixing::family::{Family, Refusal, Size};

/// The family `wheel:N`.
#[derive(Debug)]
pub(crate) struct Wheel;

impl Family for Wheel {
    fn name(&self) -> &'static str {
        "wheel"
    }

    fn about(&self) -> &'static str {
        "a hub and a ring around it"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["nodes"]
    }

    fn example(&self) -> &'static [u64] {
        &[6]
    }

    fn size(&self, arguments: &[u64]) -> Result<Size, Refusal> {
        if arguments[0] < 4 {
            return Err(Refusal::new("nodes", "expected 4 or more"));
        }
        let nodes = u128::from(arguments[0]);
        Ok(Size { nodes, links: 2 * (nodes - 1) })
    }

    fn links(&self, arguments: &[u64]) -> Result<Vec<(u32, u32)>, Refusal> {
        let rim = u32::try_from(arguments[0]).unwrap_or(u32::MAX) - 1;
        let links = (0..rim).flat_map(|k| [(0, k + 1), (k + 1, (k + 1) % rim + 1)]);
        Ok(links.collect())
    }

    fn laplacian(&self, _arguments: &[u64], _visit: &mut dyn FnMut(f64)) -> bool {
        false
    }

    fn diameter(&self, arguments: &[u64]) -> Option<usize> {
        Some(if arguments[0] == 4 { 1 } else { 2 })
    }

    fn hub(&self) -> bool {
        true
    }
}
