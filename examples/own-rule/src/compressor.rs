//! One byte a number: the sign and the nearest quarter of a power of two.
//!
//! A code c > 0 stands for 2^((c - 97) / 4) in 1 to 127, which spans 2^-24 to 2^7.5; 0 stands for
//! what is smaller. Larger numbers become the largest code. The relative error is below 2^(1/8) - 1
//! or 9 % in between, so |C(v) - v|^2 <= 0.0082 |v|^2 for vectors in that range.

use gradvine::{
    compress::{Built, Class, Compressor, Entry, Malformed, NonFinite, Size},
    config::{self, ConfigError},
    rng::Stream,
};
use serde::{Deserialize, Serialize};

/// The line of the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "log-byte",
    summary: "the sign and the nearest quarter of a power of two: 8 bits",
    paper: "an example",
    class_words: "contraction (relative error 9 %)",
    build,
    ..Entry::BLANK
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    Ok(Built::new(LogByte, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct LogByte;

/// The boundary between two codes' numbers is their geometric mean; no logarithm is taken, whose
/// last bits differ between systems.
fn code(x: f32) -> u8 {
    let magnitude = x.abs();
    let (mut low, mut high) = (0u8, 127u8);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if magnitude >= 0.917_004_05 * value(middle) { low = middle } else { high = middle - 1 }
    }
    low | if x.is_sign_negative() { 0x80 } else { 0 }
}

fn value(code: u8) -> f32 {
    const QUARTERS: [f32; 4] = [1.0, 1.189_207_1, std::f32::consts::SQRT_2, 1.681_792_9];
    let size = code & 0x7F;
    if size == 0 {
        return 0.0;
    }
    let quarters = i32::from(size) - 97;
    let power = f32::from_bits(((127 + quarters.div_euclid(4)) as u32) << 23);
    let magnitude = power * QUARTERS[quarters.rem_euclid(4) as usize];
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

impl Compressor for LogByte {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, _len: usize) -> Class {
        Class::Contraction { delta: 1.0 - 0.0082 }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(len)
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        if let Some(error) = NonFinite::first_in(v) {
            return Err(error);
        }
        out.extend(v.iter().map(|&x| code(x)));
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() == len {
            return Ok(());
        }
        Err(Malformed(format!("{} bytes, {len} are needed", bytes.len())))
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        for (a, &code) in acc.iter_mut().zip(bytes) {
            *a += weight * value(code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_nearest_and_read_back() {
        for c in 1..=127u8 {
            assert_eq!((code(value(c)), code(-value(c))), (c, c | 0x80));
        }
        for x in [0.001f32, 0.3, 1.0, 1.1, 7.0, 100.0] {
            assert!((value(code(x)) / x - 1.0).abs() < 0.0906, "{x}");
        }
        assert_eq!(value(code(1e-12)), 0.0);
    }
}
