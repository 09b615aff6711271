//! What a Byzantine node sends: an attack to test rules with.

use crate::rng::Stream;

/// What a Byzantine node sends in place of each vector of its rule.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Byzantine {
    /// The vector times a factor; -1 turns it round.
    Scaled(f32),
    /// Normal numbers with this standard deviation.
    Random(f32),
}

impl Byzantine {
    /// The vector that is sent in place of `v`. `noise` is the payload's stream.
    pub(crate) fn distort(self, v: &[f32], noise: Stream) -> Vec<f32> {
        match self {
            Byzantine::Scaled(factor) => v.iter().map(|v| factor * v).collect(),
            Byzantine::Random(deviation) => {
                // The compressor's noise must be independent of these numbers.
                let mut numbers = noise.with(u64::MAX).sequence();
                v.iter().map(|_| deviation * numbers.normal() as f32).collect()
            }
        }
    }
}
