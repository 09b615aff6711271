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

use serde::{Deserialize, Serialize};

use super::block::{self, Layout};
use crate::{
    compress::{
        Blocks, Class, Compressor, Malformed, NonFinite, Size,
        entry::{Built, Entry, within},
        kernel::{self, kernel},
    },
    config::{self, ConfigError},
    rng::Stream,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "sign",
    summary: "the sign of each number times its bucket's mean magnitude",
    paper: "Karimireddy et al. 2019, Error Feedback Fixes SignSGD",
    class_words: "contraction",
    constants: &[("bucket", "512: numbers that share a magnitude; 0 for the whole vector")],
    variants: &["bucket = 0", "bucket = 1", "bucket = 100"],
    build,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    bucket: i64,
}

impl Default for Params {
    fn default() -> Self {
        Params { bucket: 512 }
    }
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let bucket = within("bucket", params.bucket, 0, i64::from(u32::MAX))? as usize;
    let compressor = Sign { layout: Layout { bucket, header: 4, packing: 1 } };
    Ok(Built::new(compressor, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct Sign {
    layout: Layout,
}

impl Compressor for Sign {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, len: usize) -> Class {
        Class::Contraction { delta: 1.0 / self.bucket(len) as f64 }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(self.layout.bytes(len))
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let start = out.len();
        out.reserve(self.layout.bytes(v.len()));
        if !encode(v, self.layout.bucket_of(v.len()), out) {
            out.truncate(start);
            return Err(NonFinite::known_in(v));
        }
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        self.layout.check(len, bytes, 1, |mut head| {
            let mean = block::take_float(&mut head);
            if mean >= 0.0 && mean.is_finite() {
                Ok(())
            } else {
                Err(format!("{mean} is not a magnitude"))
            }
        })
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        let bucket = self.layout.bucket_of(acc.len());
        add(bytes, bucket, self.layout.bucket_bytes(bucket), weight, acc);
    }

    fn blocks(&self, len: usize) -> Option<Blocks> {
        self.layout.blocks(len)
    }

    fn bucket(&self, len: usize) -> usize {
        self.layout.bucket_of(len)
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
