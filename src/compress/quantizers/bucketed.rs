//! What quantizers of buckets share: the layout of a bucket's header and codes, and all of a
//! [`Compressor`] that follows from it.

use std::fmt;

use crate::compress::prelude::*;

/// How a vector is laid out: buckets of `bucket` numbers, the last one shorter, each as a header
/// and its packed codes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout<P = u32> {
    /// Numbers in a bucket; 0 for the whole vector.
    bucket: usize,
    /// Bytes before a bucket's codes.
    header: usize,
    /// How codes are packed: the bits of one, 1 to 8, or another way.
    pub(super) packing: P,
}

impl<P: Packing> Layout<P> {
    /// The layout with the constant `bucket`.
    ///
    /// # Errors
    /// If it is negative or 2^32 or more.
    pub(super) fn new(bucket: i64, header: usize, packing: P) -> Result<Layout<P>, ConfigError> {
        let bucket = within("bucket", bucket, 0, i64::from(u32::MAX))? as usize;
        Ok(Layout { bucket, header, packing })
    }

    /// Numbers in each bucket but the last of a vector of `len`; never 0.
    fn bucket_of(&self, len: usize) -> usize {
        if self.bucket == 0 { len.max(1) } else { self.bucket.min(len.max(1)) }
    }

    /// Bytes of one bucket of `count` numbers.
    fn bucket_bytes(&self, count: usize) -> usize {
        self.header + self.packing.packed_len(count)
    }

    /// Bytes of a vector of `len` numbers.
    fn bytes(&self, len: usize) -> usize {
        let bucket = self.bucket_of(len);
        let last = len % bucket;
        len / bucket * self.bucket_bytes(bucket)
            + if last == 0 { 0 } else { self.bucket_bytes(last) }
    }

    /// Checks the length, each header by `header`, that no code exceeds `greatest`, and that unused
    /// bits are 0.
    fn check(
        &self,
        len: usize,
        bytes: &[u8],
        greatest: u8,
        header: impl Fn(&[u8]) -> Result<(), String>,
    ) -> Result<(), Malformed> {
        expect_length(bytes, self.bytes(len))?;
        let bucket = self.bucket_of(len);
        for (index, bytes) in bytes.chunks(self.bucket_bytes(bucket)).enumerate() {
            let wrong = |what: String| Malformed(format!("bucket {index}: {what}"));
            let count = bucket.min(len - index * bucket);
            let (head, packed) = bytes.split_at(self.header);
            header(head).map_err(wrong)?;
            let last = count - count % BLOCK;
            if !self.packing.is_padded(&packed[self.packing.packed_len(last)..], count - last) {
                return Err(wrong("an unused bit is set".into()));
            }
            if !self.packing.is_within(packed, count, greatest) {
                return Err(wrong(format!("a code is above {greatest}")));
            }
        }
        Ok(())
    }
}

/// A quantizer of buckets: what distinguishes it from the others.
pub(super) trait Quantizer: Send + Sync + fmt::Debug {
    /// How its codes are packed.
    type Packing: Packing + Send + Sync + fmt::Debug;

    /// Its name in the registry.
    const NAME: &'static str;

    /// As [`Compressor::class`], for buckets of `count` numbers.
    fn class(&self, count: usize) -> Class;

    fn greatest(&self) -> u8;

    /// Checks a bucket's header.
    ///
    /// # Errors
    /// If no encoder writes it, in words.
    fn check(&self, header: &[u8]) -> Result<(), String>;

    /// Appends all buckets of `bucket` numbers, or returns false at one that holds a NaN or an
    /// infinity.
    fn encode(&self, v: &[f32], bucket: usize, noise: Stream, out: &mut Vec<u8>) -> bool;

    /// `acc += weight * C(v)` for buckets of `bucket` numbers in `bucket_bytes` bytes.
    fn add(&self, bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]);

    /// As [`Compressor::gaussian_error`].
    fn gaussian_error(&self, _len: usize) -> Option<f64> {
        None
    }

    /// As [`Compressor::residual_error`], for buckets of `count` numbers.
    fn residual_error(&self, _count: usize) -> Option<f64> {
        None
    }
}

/// The compressor of a quantizer.
#[derive(Debug)]
pub(super) struct Bucketed<Q: Quantizer> {
    pub(super) layout: Layout<Q::Packing>,
    pub(super) quantizer: Q,
}

impl<Q: Quantizer> Compressor for Bucketed<Q> {
    fn name(&self) -> &'static str {
        Q::NAME
    }

    fn class(&self, len: usize) -> Class {
        self.quantizer.class(self.bucket(len))
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(self.layout.bytes(len))
    }

    fn encode(&self, v: &[f32], noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let start = out.len();
        out.reserve(self.layout.bytes(v.len()));
        if !self.quantizer.encode(v, self.bucket(v.len()), noise, out) {
            out.truncate(start);
            return Err(NonFinite::known_in(v));
        }
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        let header = |header: &[u8]| self.quantizer.check(header);
        self.layout.check(len, bytes, self.quantizer.greatest(), header)
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        let bucket = self.bucket(acc.len());
        self.quantizer.add(bytes, bucket, self.layout.bucket_bytes(bucket), weight, acc);
    }

    /// The buckets, if there are several.
    fn blocks(&self, len: usize) -> Option<Blocks> {
        let numbers = self.bucket(len);
        (numbers < len).then(|| Blocks { numbers, bytes: self.layout.bucket_bytes(numbers) })
    }

    fn bucket(&self, len: usize) -> usize {
        self.layout.bucket_of(len)
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        self.quantizer.gaussian_error(len)
    }

    fn residual_error(&self, len: usize) -> Option<f64> {
        self.quantizer.residual_error(self.bucket(len))
    }
}

params! {
    /// The constants of a quantizer that has only `bucket`.
    struct Params {
        bucket: i64 = 512,
    }
}

/// Constants of one bit per number, for the law tests and the benches.
const VARIANTS: &[&str] = &["bucket = 0", "bucket = 1", "bucket = 100"];

/// The values that contractions with one bit per number share.
pub(super) const ONE_BIT: Entry =
    Entry { class_words: "contraction", variants: VARIANTS, ..Entry::BLANK };

/// Builds a quantizer with one bit per number behind a header of so many bytes.
///
/// # Errors
/// If there is another constant than `bucket`, or it is out of range.
pub(super) fn build_one_bit<Q: Quantizer<Packing = u32> + 'static>(
    table: &toml::Table,
    header: usize,
    quantizer: Q,
) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let layout = Layout::new(params.bucket, header, 1)?;
    Ok(Built::new(Bucketed { layout, quantizer }, config::resolved(Q::NAME, &params)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_add_up() {
        let layout = Layout::new(512, 8, 4).unwrap();
        assert_eq!(
            [0, 1, 511, 512, 513, 1024].map(|n| layout.bytes(n)),
            [0, 9, 264, 264, 273, 528]
        );
        let whole = Layout::new(0, 4, 3).unwrap();
        assert_eq!([0, 1, 8, 1024, 1030].map(|n| whole.bytes(n)), [0, 6, 7, 388, 391]);
    }
}
