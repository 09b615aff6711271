//! What a compressor keeps of a vector: the part of Gaussian vectors, and the number of entries.
//! Default step sizes are derived from both.
//!
//! Worst-case bounds are attained by vectors that no model has. The error on N(0, I) is near that
//! of training. It is computed from a formula if there is one and otherwise from seeded samples,
//! the same on every machine.

use super::{Compressor, Size};
use crate::rng::{Purpose, Stream};

/// The greatest length that [`nominal_delta`] draws samples of.
pub(super) const MOST_SAMPLED: usize = 1 << 16;

/// Numbers drawn in total: the relative error of the result is of the order of 1 / sqrt(this).
const DRAWN: usize = 1 << 17;
const MOST_SAMPLES: usize = 2048;

/// The nominal delta of a compressor for vectors of `len` numbers: 1 - E|C(x) - x|^2 / |x|^2 for x
/// ~ N(0, I) of one bucket (of the whole vector for top-k and random-k), to 9 significant digits. 1
/// for an exact code; negative where the error exceeds the vector.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sign = gradvine::compress::build(&toml::from_str("kind = 'sign'")?)?;
/// let delta = gradvine::compress::nominal_delta(&*sign.compressor, 1_000_000);
/// assert!((delta - 2.0 / std::f64::consts::PI).abs() < 0.01);
/// # Ok(())
/// # }
/// ```
pub fn nominal_delta(compressor: &dyn Compressor, len: usize) -> f64 {
    let bucket = compressor.bucket(len);
    if len == 0 || bucket == 0 {
        return 1.0;
    }
    let error = compressor
        .gaussian_error(bucket)
        .unwrap_or_else(|| sampled(compressor, bucket.min(MOST_SAMPLED)));
    rounded(1.0 - error)
}

fn sampled(compressor: &dyn Compressor, len: usize) -> f64 {
    let samples = (DRAWN / len).clamp(1, MOST_SAMPLES);
    let stream = Stream::new(0, Purpose::Compress).with(len as u64);
    let mut normal = stream.with(0).sequence();
    let (mut bytes, mut x, mut y) = (Vec::new(), vec![0f32; len], vec![0f32; len]);
    let mut total = 0.0;
    for sample in 1..=samples as u64 {
        x.fill_with(|| normal.normal() as f32);
        let noise = stream.with(sample);
        bytes.clear();
        compressor.encode(&x, noise, &mut bytes).expect("normal numbers are finite");
        y.fill(0.0);
        compressor.add_into(&bytes, noise, 1.0, &mut y);
        total += crate::vector::distance_squared(&y, &x) / crate::vector::norm_squared(&x);
    }
    total / samples as f64
}

/// [`Compressor::most_entries`] from the payload of zeros. Whether C is sparse is asked of a single
/// number, so that codes for whole vectors cost nothing.
pub(super) fn count_entries<C: Compressor + ?Sized>(compressor: &C, len: usize) -> Option<usize> {
    let noise = Stream::new(0, Purpose::Compress);
    let count = |len: usize| {
        let (mut bytes, mut count) = (Vec::new(), 0);
        compressor.encode(&vec![0.0; len], noise, &mut bytes).ok()?;
        compressor.entries(len, &bytes, noise, &mut |_, _| count += 1).then_some(count)
    };
    count(1)?;
    if matches!(compressor.size(len), Size::Exact(_)) { count(len) } else { Some(len) }
}

/// To 9 significant digits.
fn rounded(x: f64) -> f64 {
    format!("{x:.8e}").parse().unwrap_or(x)
}

/// The density of N(0, 1).
pub(super) fn density(z: f64) -> f64 {
    libm::exp(-0.5 * z * z) / libm::sqrt(std::f64::consts::TAU)
}

/// z with P(|N(0, 1)| > z) = `part`, by bisection.
pub(super) fn quantile_of_magnitude(part: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if libm::erfc(middle / std::f64::consts::SQRT_2) > part {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The expectation of the greatest of `count` normal numbers (Blom 1958: the quantile of (count -
/// 3/8) / (count + 1/4)).
pub(super) fn expected_greatest(count: usize) -> f64 {
    quantile_of_magnitude(2.0 * 0.625 / (count as f64 + 0.25))
}

/// E f(Z) for Z ~ N(0, 1), by the midpoint rule on [-8, 8].
pub(super) fn expectation(f: impl Fn(f64) -> f64) -> f64 {
    const POINTS: u32 = 1 << 16;
    let width = 16.0 / f64::from(POINTS);
    (0..POINTS)
        .map(|i| {
            let z = -8.0 + (f64::from(i) + 0.5) * width;
            f(z) * density(z) * width
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::build;

    fn compressor(text: &str) -> std::sync::Arc<dyn Compressor> {
        build(&toml::from_str(text).unwrap()).unwrap().compressor
    }

    #[test]
    fn formulas_for_long_vectors_continue_the_samples() {
        for text in [
            "kind = 'qsgd'\nbucket = 0",
            "kind = 'qsgd'\nbucket = 0\nlevels = 100\nscaled = true",
            "kind = 'min-max'\nbucket = 0",
            "kind = 'min-max'\nbucket = 0\nbits = 2\nrounding = 'nearest'",
            "kind = 'top-k'",
            "kind = 'top-k'\nfraction = 0.3",
            "kind = 'ternary'\nbucket = 0",
            "kind = 'ternary'\nbucket = 0\nclamp = 2.5",
            "kind = 'low-rank'\nrank = 100",
        ] {
            let compressor = compressor(text);
            let samples = sampled(&*compressor, MOST_SAMPLED);
            let formula = compressor.gaussian_error(MOST_SAMPLED + 1).unwrap();
            assert!((samples - formula).abs() < 0.05 * formula, "{text}: {samples} and {formula}");
        }
    }

    #[test]
    fn published_figures() {
        // alpha on Gaussian vectors of 64 numbers; alpha^2 = 1 - delta.
        for (text, alpha) in [
            ("kind = 'min-max'\nbits = 8", 0.008),
            ("kind = 'min-max'", 0.124),
            ("kind = 'min-max'\nbits = 2", 0.632),
            ("kind = 'qsgd'\nlevels = 127", 0.026),
            ("kind = 'qsgd'", 0.471),
            ("kind = 'qsgd'\nlevels = 1", 2.35),
            ("kind = 'top-k'\nfraction = 0.25", 0.54),
            ("kind = 'top-k'\nfraction = 0.05", 0.87),
            ("kind = 'sign'", 0.59),
            // Two digits to base 2, the leading one among them.
            ("kind = 'truncate'\nbits = 1", 0.18),
        ] {
            let found = (1.0 - nominal_delta(&*compressor(text), 64)).sqrt();
            assert!((found / alpha - 1.0).abs() < 0.08, "{text}: {found}, {alpha} expected");
        }
    }

    #[test]
    fn exact_codes_keep_all() {
        assert_eq!(nominal_delta(&*compressor("kind = 'identity'"), 1000), 1.0);
        assert_eq!(nominal_delta(&*compressor("kind = 'top-k'\nfraction = 1.0"), 1000), 1.0);
        assert_eq!(nominal_delta(&*compressor("kind = 'random-k'\nfraction = 0.25"), 1000), 0.25);
        assert_eq!(nominal_delta(&*compressor("kind = 'sign'"), 0), 1.0);
    }

    #[test]
    fn sparse_compressors_know_the_number_of_their_entries() {
        for entry in &crate::compress::COMPRESSORS {
            for variant in [""].iter().chain(entry.variants) {
                let compressor = compressor(&format!("kind = '{}'\n{variant}", entry.name));
                for len in [0, 1, 63, 64, 700, 9000] {
                    let counted = count_entries(&*compressor, len);
                    assert_eq!(compressor.most_entries(len), counted, "{compressor:?}, {len}");
                }
            }
        }
        assert_eq!(compressor("kind = 'top-k'").most_entries(900), Some(9));
        assert_eq!(compressor("kind = 'sign'").most_entries(900), None);
    }

    #[test]
    fn quantiles() {
        assert!((quantile_of_magnitude(0.05) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!((quantile_of_magnitude(0.01) - 2.575_829_303_548_9).abs() < 1e-12);
        assert!((expectation(|z| z * z) - 1.0).abs() < 1e-9);
        assert_eq!(rounded(0.123_456_789_49), 0.123_456_789);
    }
}
