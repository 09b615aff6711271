//! Compressors: a vector as fewer bytes.
//!
//! ```text
//! v: &[f32] --encode--> bytes --(a link)--> check --> add_into: acc += weight * C(v)
//! ```
//!
//! A [`Compressor`] is one file and one line of the [registry](COMPRESSORS); rules, links and the
//! command line use it only through the trait. It writes straight into the frame's buffer and reads
//! straight into the accumulator: no dense copy in between, and no allocation once the buffer has
//! grown.
//!
//! ```
//! use gradvine::{compress, rng::{Purpose, Stream}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let built = compress::build(&toml::from_str("kind = 'min-max'\nbits = 4")?)?;
//! let v: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.1).sin()).collect();
//! let noise = Stream::new(7, Purpose::Compress).with(3);
//! let mut bytes = Vec::new();
//! built.compressor.encode(&v, noise, &mut bytes)?;
//! assert_eq!(bytes.len(), built.compressor.size(v.len()).limit());
//! built.compressor.check(v.len(), &bytes)?;
//! let mut sum = vec![0.0; v.len()];
//! built.compressor.add_into(&bytes, noise, 1.0, &mut sum);
//! assert!(sum.iter().zip(&v).all(|(c, v)| (c - v).abs() <= 2.0 / 15.0 + 1e-6));
//! # Ok(())
//! # }
//! ```
//!
//! **Buckets.** With one scale for the whole vector, the error of QSGD and of min-max grows with
//! its length, so the quantizers work on buckets of 512 numbers, each with its own scale.
//!
//! **Same bits everywhere.** C(v) is a function of v, the constants and the stream: `f32` products
//! and sums are never fused, sums run in fixed lanes, and the kernels compiled for wider vectors
//! give the same bits as the plain ones (tested).
//!
//! **Limits.** A vector has fewer than 2^32 numbers. The bounds of [`Compressor::class`] are those
//! of real arithmetic: they hold up to the rounding of `f32`, and not for numbers so small (under
//! 1e-38) that `f32` itself loses their digits.

mod bits;
mod entry;
mod identity;
mod kernel;
mod list;
mod low_rank;
mod nominal;
mod payload;
mod prelude;
mod quantizers;
mod sketches;
mod sparse;
mod trits;

use std::fmt;

use crate::{rng::Stream, vector};
pub use entry::{Built, Cheaper, Entry};
pub(crate) use list::build_in;
pub use list::{COMPRESSORS, build};
pub use nominal::nominal_delta;
pub use payload::{Format, Payload};
pub(crate) use payload::{encode_codes, encode_entries, encode_indices};
pub use sketches::sketch::{CountSketch, SketchShape};
pub use sparse::entries::Entries;

/// Takes the index and the value of an entry.
pub type Visit<'a> = &'a mut dyn FnMut(u32, f32);

/// A lossy code for vectors: encodes `len` floats as bytes, and adds decoded bytes to a vector.
///
/// The bytes and the random stream together determine C(v); all nodes that hold both add the same
/// bits.
pub trait Compressor: Send + Sync + fmt::Debug {
    /// Its name in the registry.
    fn name(&self) -> &'static str;

    /// Unbiased or contraction, with the worst-case constant for vectors of `len` numbers.
    fn class(&self, len: usize) -> Class;

    /// The payload's size for a vector of `len` numbers, known before it is encoded.
    fn size(&self, len: usize) -> Size;

    /// Appends C(`v`) to `out`, which is reused: no allocation once it has grown.
    ///
    /// # Errors
    /// If `v` holds a NaN or an infinity; `out` is then as it was.
    fn encode(&self, v: &[f32], noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite>;

    /// Whether `bytes` is a payload of this compressor for `len` numbers. Called once on arrival,
    /// before any state changes.
    ///
    /// # Errors
    /// If the length, an index or a scale is not what an encoder can have written.
    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed>;

    /// `acc += weight * C(v)` in one pass; a sparse payload touches only its own entries. `bytes`
    /// has passed [`Compressor::check`] for `acc.len()` numbers and `noise` is the encoder's
    /// stream.
    fn add_into(&self, bytes: &[u8], noise: Stream, weight: f32, acc: &mut [f32]);

    /// The entries of a sparse payload in ascending order of index, or `false` if C(v) is dense.
    fn entries(&self, _len: usize, _bytes: &[u8], _noise: Stream, _visit: Visit<'_>) -> bool {
        false
    }

    /// The most entries of a payload for `len` numbers, if C(v) is sparse. All other numbers of
    /// C(v) are 0. The default encodes zeros and counts.
    fn most_entries(&self, len: usize) -> Option<usize> {
        nominal::count_entries(self, len)
    }

    /// Whether the payload is the vector itself: its `f32`, little-endian.
    fn is_plain(&self) -> bool {
        false
    }

    /// The blocks of a vector of `len` numbers, if each is encoded by itself, in order, and decoded
    /// without noise: then any stretch of whole blocks of a payload is the payload of a stretch of
    /// the vector. The last block may be shorter.
    fn blocks(&self, _len: usize) -> Option<Blocks> {
        None
    }

    /// The number of numbers that C treats as one, of a vector of `len`: `len` itself unless it
    /// works in buckets.
    fn bucket(&self, len: usize) -> usize {
        len
    }

    /// E|C(x) - x|^2 / |x|^2 for x ~ N(0, I) of `len` numbers (one bucket), if a formula is known.
    /// Otherwise [`nominal_delta`] draws samples of at most 2^16 numbers; a compressor whose error
    /// depends on the length beyond that must give a formula.
    fn gaussian_error(&self, _len: usize) -> Option<f64> {
        None
    }

    /// The worst E|C(r) - r|^2 / |r|^2 on the errors r that C itself leaves, if these have a form
    /// that is worse than Gaussian. Error feedback diverges when it is 1 or more.
    fn residual_error(&self, _len: usize) -> Option<f64> {
        None
    }

    /// Rows and columns, if its payload is the table of a [`CountSketch`]: for a rule that adds
    /// tables and queries them itself.
    fn sketch(&self) -> Option<SketchShape> {
        None
    }
}

/// The size of the blocks of a payload that are encoded by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Numbers of a block, at least 1.
    pub numbers: usize,
    /// The bytes that a block is encoded into.
    pub bytes: usize,
}

/// A bound on the error of C for every v.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// E C(v) = v, and E|C(v) - v|^2 <= alpha^2 |v|^2.
    Unbiased {
        /// The root of the largest relative squared error of any vector.
        alpha: f64,
    },
    /// E|C(v) - v|^2 <= (1 - delta) |v|^2, biased in general.
    Contraction {
        /// The worst-case delta; 1 is exact. At or below 0 the error may exceed the vector: nothing
        /// is promised.
        delta: f64,
    },
}

impl Class {
    /// Whether C loses nothing of any vector.
    pub fn is_exact(self) -> bool {
        match self {
            Class::Unbiased { alpha } => alpha == 0.0,
            Class::Contraction { delta } => delta >= 1.0,
        }
    }
}

/// The size of a payload in bytes, before encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Every vector of this length has exactly this size.
    Exact(usize),
    /// The size depends on the vector, and is at most this.
    AtMost(usize),
}

impl Size {
    /// The most bytes that a payload can have.
    pub fn limit(self) -> usize {
        match self {
            Size::Exact(bytes) | Size::AtMost(bytes) => bytes,
        }
    }
}

/// A vector to compress holds a NaN or an infinity: the run has diverged, and no part of it may
/// reach a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the value at index {index} is {value}: only finite numbers can be sent")]
pub struct NonFinite {
    /// The index of the first one.
    pub index: usize,
    /// The number itself: NaN or an infinity.
    pub value: f32,
}

impl NonFinite {
    /// The first one in `v`, if any.
    pub fn first_in(v: &[f32]) -> Option<NonFinite> {
        vector::first_non_finite(v).map(|index| NonFinite { index, value: v[index] })
    }

    /// The first one in `v`, after a kernel has detected that there is one.
    fn known_in(v: &[f32]) -> NonFinite {
        NonFinite::first_in(v).expect("sums and ranges of finite numbers are finite")
    }
}

/// Bytes that no encoder of this kind writes. The sender is at fault; no state has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed payload: {0}")]
pub struct Malformed(pub String);
