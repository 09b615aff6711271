//! One bit per number: `sign`, the scaled sign.
//!
//! C(x) = (|x|_1 / n) sign(x) in each bucket of n numbers (Karimireddy et al. 2019, Error Feedback
//! Fixes SignSGD, section 4.2): |C(x) - x|^2 = (1 - delta) |x|^2 with delta = |x|_1^2 / (n |x|_2^2)
//! exactly, at least 1/n (Lemma 8), and 2/pi for many Gaussian numbers. sign(0) = +1, whatever the
//! sign of the zero.
//!
//! Bytes of a bucket: |x|_1 / n as `f32`, then a bit per number, 1 for negative, planar in blocks.
//! DIFFERENCE: buckets of 512 where the paper takes the whole vector (`bucket = 0`) or a layer of
//! the model.

use super::bucketed::{self, Quantizer};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "sign",
    summary: "the sign of each number times its bucket's mean magnitude",
    paper: "Karimireddy et al. 2019, Error Feedback Fixes SignSGD",
    constants: &[("bucket", "512: numbers that share a magnitude; 0 for the whole vector")],
    build: |table| bucketed::build_one_bit(table, 4, Sign),
    ..bucketed::ONE_BIT
};

#[derive(Debug)]
struct Sign;

impl Quantizer for Sign {
    type Packing = u32;

    const NAME: &'static str = ENTRY.name;

    fn class(&self, count: usize) -> Class {
        Class::Contraction { delta: 1.0 / count as f64 }
    }

    fn greatest(&self) -> u8 {
        1
    }

    #[inline(always)]
    fn check(&self, header: &[u8]) -> Result<(), String> {
        block::check_magnitude(header)
    }

    fn encode(&self, v: &[f32], bucket: usize, _noise: Stream, out: &mut Vec<u8>) -> bool {
        encode(v, bucket, out)
    }

    fn add(&self, bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        add(bytes, bucket, bucket_bytes, weight, acc);
    }
}

kernel! {
    /// Appends all buckets, or returns false at one that holds a NaN or an infinity.
    fn encode(v: &[f32], bucket: usize, out: &mut Vec<u8>) -> bool {
        for numbers in v.chunks(bucket) {
            let sum = kernel::sum(numbers, |x| f64::from(x.abs()));
            if !sum.is_finite() {
                return false;
            }
            out.extend_from_slice(&((sum / numbers.len() as f64) as f32).to_le_bytes());
            block::encode(numbers, &[], 0, 1, None, out, |x| if x < 0.0 { 1.0 } else { 0.0 });
        }
        true
    }

    fn add(bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        for (acc, mut bytes) in block::buckets(acc, bucket, bytes, bucket_bytes) {
            let mean = block::take_float(&mut bytes);
            block::add(bytes, 1, weight, acc, |code| mean * (1.0 - 2.0 * code));
        }
    }
}
