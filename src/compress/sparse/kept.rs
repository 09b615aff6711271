//! Shared code of top-k and random-k: how many entries are kept, and adding them.

use serde::{Deserialize, Serialize};

use crate::{
    compress::entry::{Cheaper, within},
    config::ConfigError,
};

/// The constants of [`Kept`], as entries of compressors list them.
pub(super) const K: (&str, &str) = ("k", "how many; instead of fraction");
pub(super) const FRACTION: (&str, &str) =
    ("fraction", "0.01: which part of the vector, above 0, at most 1; instead of k");

/// The suggestion to halve the fraction.
pub(super) fn cheaper(own: &toml::Table) -> Option<Cheaper> {
    let fraction = own.get("fraction")?.as_float()?;
    Some(Cheaper::new("fraction", fraction / 2.0, "half the bytes"))
}

/// How many entries of a vector are kept: `k`, or a fraction of its length. The default fraction is
/// 0.01 (the sparsity at which Deep Gradient Compression, Lin et al. 2018, starts to be worth its
/// indices).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Kept {
    /// This many, or all if there are fewer.
    Count {
        /// At least 1.
        k: usize,
    },
    /// This part, rounded to the nearest whole number, at least one.
    Fraction {
        /// Above 0, at most 1.
        fraction: f64,
    },
}

impl Kept {
    /// From the two constants, of which at most one may be given.
    pub(super) fn read(k: Option<i64>, fraction: Option<f64>) -> Result<Kept, ConfigError> {
        match (k, fraction) {
            (Some(_), Some(_)) => {
                Err(ConfigError::at("compressor", "expected either k or fraction, not both"))
            }
            (Some(k), None) => {
                Ok(Kept::Count { k: within("k", k, 1, i64::from(u32::MAX))? as usize })
            }
            (None, fraction) => {
                let fraction = fraction.unwrap_or(0.01);
                if fraction > 0.0 && fraction <= 1.0 {
                    Ok(Kept::Fraction { fraction })
                } else {
                    let problem = "expected a number above 0 and at most 1";
                    Err(ConfigError::new("compressor.fraction", fraction, problem))
                }
            }
        }
    }

    /// The number kept of `len`: 0 of 0, else at least one.
    pub(super) fn of(self, len: usize) -> usize {
        let wanted = match self {
            Kept::Count { k } => k,
            Kept::Fraction { fraction } => (fraction * len as f64).round() as usize,
        };
        wanted.max(1).min(len)
    }
}

/// The floats of a payload's values.
#[inline(always)]
pub(super) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

/// Indices that are collected before their entries are used.
const AHEAD: usize = 128;

/// Passes indices on in blocks. A mispredicted branch of the code that finds them would discard
/// pending loads, and entries far apart all wait for memory.
pub(super) struct Ahead<F> {
    block: [u32; AHEAD],
    held: usize,
    each: F,
}

impl<F: FnMut(&[u32])> Ahead<F> {
    pub(super) fn new(each: F) -> Ahead<F> {
        Ahead { block: [0; AHEAD], held: 0, each }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, index: u32) {
        self.block[self.held] = index;
        self.held += 1;
        if self.held == AHEAD {
            (self.each)(&self.block);
            self.held = 0;
        }
    }

    /// Passes the last ones on.
    pub(super) fn finish(mut self) {
        (self.each)(&self.block[..self.held]);
    }
}

/// Adds `weight * value` to `acc[index]` for each index that is pushed.
pub(super) fn adder(weight: f32, values: &[u8], acc: &mut [f32]) -> Ahead<impl FnMut(&[u32])> {
    let mut values = values.as_chunks().0;
    Ahead::new(move |block| {
        let (here, rest) = values.split_at(block.len());
        for (i, index) in block.iter().enumerate() {
            acc[*index as usize] += weight * f32::from_le_bytes(here[i]);
        }
        values = rest;
    })
}
