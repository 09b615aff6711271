//! One bit per number and two means: `one-bit`.
//!
//! Seide, Fu, Droppo, Li and Yu 2014, 1-Bit Stochastic Gradient Descent and its Application to
//! Data-Parallel Distributed Training of Speech DNNs (with its threshold of 0): in each bucket of n
//! numbers, m+ of them not negative and m- negative,
//!
//! ```text
//! C(x)_i = a if x_i >= 0, else b        a = mean of the x_i >= 0        b = mean of the x_i < 0
//! ```
//!
//! the two values that minimise |C(x) - x|^2. It is then (1 - delta) |x|^2 with delta = (m+ a^2 +
//! m- b^2) / |x|^2, never worse than the scaled sign's |x|_1^2 / (n |x|^2), so at least 1/n; 2/pi
//! for many Gaussian numbers. A zero of either sign is not negative; the mean of no numbers is 0.
//!
//! Bytes of a bucket: a and b as `f32`, then a bit per number, 1 for negative, planar in blocks.
//! DIFFERENCE: buckets of 512 where the paper takes the columns of each weight matrix, which a
//! compressor does not know. The paper's residual is error feedback, which is part of rules here.

use super::bucketed::{self, Quantizer};
use crate::{compress::prelude::*, vector::LANES};

pub(crate) const ENTRY: Entry = Entry {
    name: "one-bit",
    summary: "the mean of each bucket's negative numbers or of its others",
    paper: "Seide et al. 2014, 1-Bit Stochastic Gradient Descent",
    constants: &[("bucket", "512: numbers that share two means; 0 for the whole vector")],
    build: |table| bucketed::build_one_bit(table, 8, OneBit),
    ..bucketed::ONE_BIT
};

#[derive(Debug)]
struct OneBit;

impl Quantizer for OneBit {
    type Packing = u32;

    const NAME: &'static str = ENTRY.name;

    fn class(&self, count: usize) -> Class {
        Class::Contraction { delta: 1.0 / count as f64 }
    }

    fn greatest(&self) -> u8 {
        1
    }

    #[inline(always)]
    fn check(&self, mut header: &[u8]) -> Result<(), String> {
        let (above, below) = (block::take_float(&mut header), block::take_float(&mut header));
        if above >= 0.0 && above.is_finite() && below <= 0.0 && below.is_finite() {
            Ok(())
        } else {
            Err(format!("{above} and {below} are not means of numbers from 0 and below"))
        }
    }

    fn encode(&self, v: &[f32], bucket: usize, _noise: Stream, out: &mut Vec<u8>) -> bool {
        encode(v, bucket, out)
    }

    fn add(&self, bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        add(bytes, bucket, bucket_bytes, weight, acc);
    }
}

/// The means of the non-negative and of the negative numbers; 0 if there are none. One of them is
/// not finite if a number is not.
#[inline(always)]
fn means(x: &[f32]) -> [f64; 2] {
    let (mut above, mut below, mut negative) = ([0f64; LANES], [0f64; LANES], [0u32; LANES]);
    let mut see = |block: &[f32]| {
        update(&mut above, block, |sum, &x| *sum += f64::from(if x < 0.0 { 0.0 } else { x }));
        update(&mut below, block, |sum, &x| *sum += f64::from(if x < 0.0 { x } else { 0.0 }));
        update(&mut negative, block, |count, &x| *count += u32::from(x < 0.0));
    };
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        see(block);
    }
    see(rest);
    let negative: usize = negative.iter().map(|count| *count as usize).sum();
    // The sum of no numbers is 0.
    let mean = |sums: &[f64; LANES], count: usize| sums.iter().sum::<f64>() / count.max(1) as f64;
    [mean(&above, x.len() - negative), mean(&below, negative)]
}

kernel! {
    /// Appends all buckets, or returns false at one that holds a NaN or an infinity.
    fn encode(v: &[f32], bucket: usize, out: &mut Vec<u8>) -> bool {
        for numbers in v.chunks(bucket) {
            for mean in means(numbers) {
                if !mean.is_finite() {
                    return false;
                }
                // Adding 0 turns -0 into 0, whose bytes differ.
                out.extend_from_slice(&(mean as f32 + 0.0).to_le_bytes());
            }
            block::encode(numbers, &[], 0, 1, None, out, |x| if x < 0.0 { 1.0 } else { 0.0 });
        }
        true
    }

    fn add(bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        for (acc, mut bytes) in block::buckets(acc, bucket, bytes, bucket_bytes) {
            let above = block::take_float(&mut bytes);
            let below = block::take_float(&mut bytes);
            block::add(bytes, 1, weight, acc, |code| if code > 0.0 { below } else { above });
        }
    }
}
