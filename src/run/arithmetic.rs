//! The start-up self-test: two machines whose matrix products round differently end with different
//! bits, so neighbours compare it.
//!
//! Mixing, compression and replicas give the same bits everywhere; matrix products depend on
//! whether the processor fuses multiplication and addition. Each node hashes a few products and
//! elementary functions, and neighbours compare the hashes.

use std::sync::LazyLock;

use ndarray::Array2;

use crate::rng::{Purpose, Stream};

/// The hash of this process's arithmetic.
pub(crate) fn class() -> u64 {
    static CLASS: LazyLock<u64> = LazyLock::new(compute);
    *CLASS
}

/// `class` in hexadecimal, as summaries record it.
pub fn name() -> String {
    format!("{:016x}", class())
}

/// Products of several shapes (kernels treat edges separately), then exp, ln and cos of their
/// elements.
fn compute() -> u64 {
    let noise = Stream::new(0, Purpose::Test);
    let mut hash = 0u64;
    for (number, &(rows, inner, columns)) in
        [(1, 64, 10), (16, 64, 33), (37, 129, 65)].iter().enumerate()
    {
        let words = noise.with(number as u64);
        let fill = |stream: Stream, rows, columns| {
            Array2::from_shape_fn((rows, columns), |(i, j)| {
                stream.f64_at((i * columns + j) as u64) as f32 - 0.5
            })
        };
        let product = fill(words.with(0), rows, inner).dot(&fill(words.with(1), inner, columns));
        for &x in &product {
            let x64 = f64::from(x);
            let functions = [libm::exp(x64), libm::log(x64.abs() + 1.0), libm::cos(x64)];
            let words = functions.map(f64::to_bits).into_iter().chain([u64::from(x.to_bits())]);
            hash = words.fold(hash, |hash, word| crate::rng::mix64(hash ^ word).wrapping_add(1));
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_same_process_has_one_class() {
        assert_eq!(super::class(), super::compute());
        assert_ne!(super::class(), 0);
    }
}
