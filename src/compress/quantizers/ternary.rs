//! Minus one, zero or one times a bucket's greatest magnitude: `ternary`.
//!
//! Wen, Xu, Yan, Wu, Wang, Chen and Li 2017, TernGrad: Ternary Gradients to Reduce Communication in
//! Distributed Deep Learning, section 3.1:
//!
//! ```text
//! C(x)_i = s sign(x_i) b_i        s = max |x|        P(b_i = 1) = |x_i| / s
//! ```
//!
//! Unbiased, E|C(x) - x|^2 = s |x|_1 - |x|^2 <= (sqrt(n) - 1) / 2 |x|^2 for n numbers (one of them
//! sqrt(n) + 1 times as large as the others). `clamp` = c first cuts each number off at c sigma
//! (gradient clipping, section 3.3; the paper takes 2.5): a smaller s, hence less noise, but
//! biased, E|C(x) - x|^2 <= (1 + t) |x|^2 with t = c^2/8 up to c = 4 and c - 2 beyond.
//!
//! Bytes of a bucket: s as `f32`, then codes sign * b + 1, [five to a
//! byte](crate::compress::trits): 1.6 bits a number where two bits would take 2, at no cost in
//! time. DIFFERENCE: buckets of 512 where the paper takes the layers of a model, because s, a
//! maximum, grows with their size. DIFFERENCE: sigma is the deviation from 0 and not from the mean,
//! which is nearly the same for gradients, because equal numbers would be cut off to 0.
//! Probabilities are multiples of 2^-15.

use super::bucketed::{Bucketed, Layout, Quantizer};
use crate::compress::{prelude::*, trits::Trits};

pub(crate) const ENTRY: Entry = Entry {
    name: "ternary",
    summary: "-1, 0 or 1 at random times the greatest magnitude of each bucket",
    paper: "Wen et al. 2017, TernGrad",
    class_words: "unbiased (clamp: biased, and no contraction in general)",
    constants: &[
        ("bucket", "512: numbers that share a magnitude; 0 for the whole vector"),
        (
            "clamp",
            "0: unbiased; from 1 on: cut off at so many standard deviations (2.5 in the paper), \
             biased",
        ),
    ],
    variants: &["clamp = 2.5", "bucket = 0", "bucket = 100\nclamp = 1.0", "bucket = 1"],
    build,
    ..Entry::BLANK
};

params! {
    bucket: i64 = 512,
    clamp: f64 = 0.0,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let layout = Layout::new(params.bucket, 4, Trits)?;
    if params.clamp != 0.0 && !(1.0..=1000.0).contains(&params.clamp) {
        let problem = "expected 0 (none) or a number from 1 to 1000";
        return Err(ConfigError::new("compressor.clamp", params.clamp, problem));
    }
    let quantizer = Ternary { clamp: params.clamp };
    Ok(Built::new(Bucketed { layout, quantizer }, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct Ternary {
    clamp: f64,
}

impl Quantizer for Ternary {
    type Packing = Trits;

    const NAME: &'static str = ENTRY.name;

    fn class(&self, count: usize) -> Class {
        let squared = ((count as f64).sqrt() - 1.0) / 2.0;
        if self.clamp == 0.0 {
            return Class::Unbiased { alpha: squared.sqrt() };
        }
        let c = self.clamp;
        let clamped = 1.0 + if c <= 4.0 { c * c / 8.0 } else { c - 2.0 };
        Class::Contraction { delta: 1.0 - clamped.min(squared.max(1.0)) }
    }

    fn greatest(&self) -> u8 {
        2
    }

    #[inline(always)]
    fn check(&self, header: &[u8]) -> Result<(), String> {
        block::check_magnitude(header)
    }

    fn encode(&self, v: &[f32], bucket: usize, noise: Stream, out: &mut Vec<u8>) -> bool {
        encode(v, bucket, self.clamp, noise, out)
    }

    fn add(&self, bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        add(bytes, bucket, bucket_bytes, weight, acc);
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        (len > nominal::MOST_SAMPLED).then(|| {
            // The greatest magnitude of many normal numbers hardly varies: it is the greatest of
            // twice as many numbers, or c if that is less.
            let greatest = nominal::expected_greatest(2 * len);
            let s = if self.clamp == 0.0 { greatest } else { greatest.min(self.clamp) };
            nominal::expectation(|z| {
                let cut = z.abs().min(s);
                (z.abs() - cut).powi(2) + cut * (s - cut)
            })
        })
    }
}

/// s of a bucket whose numbers lie from `low` to `high`: the greatest magnitude, cut off at `clamp`
/// deviations.
#[inline(always)]
fn magnitude(numbers: &[f32], low: f32, high: f32, clamp: f64) -> f32 {
    let greatest = if -low > high { -low } else { high };
    if clamp == 0.0 {
        return greatest;
    }
    let squares = kernel::sum(numbers, |x| f64::from(x) * f64::from(x));
    let limit = clamp * (squares / numbers.len() as f64).sqrt();
    if limit < f64::from(greatest) { limit as f32 } else { greatest }
}

kernel! {
    /// Appends all buckets, or returns false at one that holds a NaN or an infinity.
    fn encode(v: &[f32], bucket: usize, clamp: f64, noise: Stream, out: &mut Vec<u8>) -> bool {
        for (index, numbers) in v.chunks(bucket).enumerate() {
            let Some((low, high)) = range(numbers) else { return false };
            let s = magnitude(numbers, low, high, clamp);
            out.extend_from_slice(&s.to_le_bytes());
            let ahead = &v[v.len().min((index + 1) * bucket)..];
            block::encode(numbers, ahead, index * bucket, Trits, Some(noise), out, |x| {
                let t = x / s + 1.0;
                // In this order a NaN (0 / 0 of a bucket of zeros) becomes 1, which stands for 0.
                let t = if t >= 0.0 { t } else if t < 0.0 { 0.0 } else { 1.0 };
                if t < 2.0 { t } else { 2.0 }
            });
        }
        true
    }

    fn add(bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        for (acc, mut bytes) in block::buckets(acc, bucket, bytes, bucket_bytes) {
            let s = block::take_float(&mut bytes);
            block::add(bytes, Trits, weight, acc, |code| s * (code - 1.0));
        }
    }
}
