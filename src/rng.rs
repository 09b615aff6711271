//! Randomness as named streams of the run's seed.
//!
//! A [`Stream`] is a key, not a position: the value at index `i` depends only on the seed, the
//! purpose, the sub-streams (such as node and round) and `i`. Two machines, threads or drivers that
//! read in different orders get the same bits, and a receiver can draw the sender's values (the
//! indices of random-k are not sent).
//!
//! ```
//! use gradvine::rng::{Purpose, Stream};
//! let noise = Stream::new(7, Purpose::Compress).with(3).with(12);
//! assert_eq!(noise.u64_at(5), Stream::new(7, Purpose::Compress).with(3).with(12).u64_at(5));
//! assert_ne!(noise.u64_at(5), noise.u64_at(6));
//! ```
//!
//! Values come from SplitMix64's finaliser (Steele, Lea and Flood 2014) over a counter; the 32-bit
//! variant for vector kernels is a two-round multiply-xorshift hash. Neither is cryptographic: keys
//! come from libp2p.

use crate::units::{NodeId, Round};

/// What a stream is for. Each purpose is an independent family of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[non_exhaustive]
pub enum Purpose {
    /// The model's initial parameters (the same on every node).
    Init = 1,
    /// The rows of a mini-batch.
    Batch = 2,
    /// A compressor's rounding noise and shared indices.
    Compress = 3,
    /// Which rows go to the test set and to which shard.
    Split = 4,
    /// The links of random families of topologies.
    Graph = 5,
    /// The rows of a synthetic dataset.
    Data = 6,
    /// A rule's own shared randomness (a sketch's hashes, a random pairing).
    Rule = 7,
    /// Virtual networks: latency jitter, loss.
    Link = 8,
    /// Inputs of tests and of benches.
    Test = 9,
    /// Faults of simulated runs.
    Fault = 10,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser: a bijection of 64-bit words in which each input bit changes each output
/// bit half the time.
#[inline]
pub(crate) const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A key for an endless sequence of random words, any of which can be read at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of a purpose under a run's seed.
    pub fn new(seed: u64, purpose: Purpose) -> Stream {
        Stream { key: mix64(seed ^ mix64((purpose as u64).wrapping_mul(GOLDEN))) }
    }

    /// The sub-stream named `word`. Order matters: `with(1).with(2)` is not `with(2).with(1)`.
    #[must_use]
    pub fn with(self, word: u64) -> Stream {
        Stream { key: mix64(self.key.wrapping_add(GOLDEN) ^ mix64(word.wrapping_add(GOLDEN))) }
    }

    /// The sub-stream of a node.
    #[must_use]
    pub fn node(self, node: NodeId) -> Stream {
        self.with(u64::from(node.0))
    }

    /// The sub-stream of a round.
    #[must_use]
    pub fn round(self, round: Round) -> Stream {
        self.with(round.0)
    }

    /// The key, for vector kernels that hash it with an index themselves.
    #[inline]
    pub fn key(self) -> u64 {
        self.key
    }

    /// The 64-bit word at `index`.
    #[inline]
    pub fn u64_at(self, index: u64) -> u64 {
        mix64(self.key.wrapping_add(index.wrapping_mul(GOLDEN)))
    }

    /// The 32-bit word at `index`: two multiplications, so that a loop over it vectorises. A
    /// different sequence from [`Stream::u64_at`].
    #[inline]
    pub fn u32_at(self, index: u32) -> u32 {
        let mut x = index ^ (self.key as u32);
        x = (x ^ (x >> 16)).wrapping_mul(0x21F0_AAAD);
        x = (x ^ (x >> 15)).wrapping_add((self.key >> 32) as u32).wrapping_mul(0xD35A_2D97);
        x ^ (x >> 15)
    }

    /// A number in [0, 1) with 53 random bits.
    #[inline]
    pub fn f64_at(self, index: u64) -> f64 {
        (self.u64_at(index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A reader that walks the stream from its start.
    pub fn sequence(self) -> Sequence {
        Sequence { stream: self, index: 0 }
    }
}

/// A position in a [`Stream`], for code that wants the next value.
#[derive(Clone, Debug)]
pub struct Sequence {
    stream: Stream,
    index: u64,
}

impl Sequence {
    /// The next 64 random bits of the stream.
    pub fn word(&mut self) -> u64 {
        let word = self.stream.u64_at(self.index);
        self.index += 1;
        word
    }

    /// The next number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// The next number in 0..bound without modulo bias (Lemire 2019).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.word()) * u128::from(bound);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// The next standard normal number (Box and Muller 1958; `libm`, so the same bits on every
    /// platform).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// The next Gamma(shape, 1) number (Marsaglia and Tsang 2000; shape > 0).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = libm::pow(1.0 - self.uniform(), 1.0 / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if libm::log(1.0 - self.uniform()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }

    /// Shuffles in place (Fisher and Yates; every order equally likely).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(word: u64) -> Sequence {
        Stream::new(1, Purpose::Test).with(word).sequence()
    }

    #[test]
    fn golden_words() {
        let stream = Stream::new(42, Purpose::Test).node(NodeId(3)).round(Round(9));
        assert_eq!((stream.u64_at(0), stream.u32_at(0)), golden());
    }

    fn golden() -> (u64, u32) {
        (14_010_737_850_886_451_362, 1_219_614_476)
    }

    #[test]
    fn purposes_and_names_are_independent() {
        let a = Stream::new(1, Purpose::Init);
        assert_ne!(a.u64_at(0), Stream::new(1, Purpose::Batch).u64_at(0));
        assert_ne!(a.u64_at(0), Stream::new(2, Purpose::Init).u64_at(0));
        assert_ne!(a.with(1).with(2), a.with(2).with(1));
    }

    #[test]
    fn u32_words_are_uniform_and_uncorrelated() {
        for key in 0..8 {
            let stream = Stream::new(key, Purpose::Test);
            let n = 1 << 16;
            let value = |i: u32| f64::from(stream.u32_at(i)) / 4_294_967_296.0 - 0.5;
            let mean = (0..n).map(value).sum::<f64>() / f64::from(n);
            let lag = (0..n).map(|i| value(i) * value(i + 1)).sum::<f64>() / f64::from(n);
            assert!(
                mean.abs() < 5.0 * (1.0 / 12f64 / f64::from(n)).sqrt(),
                "key {key}: mean {mean}"
            );
            assert!(lag.abs() < 5.0 / 12.0 / f64::from(n).sqrt(), "key {key}: lag {lag}");
        }
    }

    #[test]
    fn moments() {
        let mut s = sequence(1);
        let n = 100_000;
        let normals: Vec<f64> = (0..n).map(|_| s.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(n);
        let square = normals.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
        for shape in [0.1, 0.5, 1.0, 4.0] {
            let gamma = (0..n).map(|_| s.gamma(shape)).sum::<f64>() / f64::from(n);
            assert!((gamma - shape).abs() < 0.05 * shape.max(0.5), "shape {shape}: {gamma}");
        }
    }

    #[test]
    fn shuffle_is_a_permutation_and_below_stays_below() {
        let mut s = sequence(2);
        let mut items: Vec<usize> = (0..100).collect();
        s.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[s.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
    }
}
