//! Uniform grids between the least and the greatest number of a bucket: `min-max`.
//!
//! L + 1 = 2^bits points from min to max, both included. Stochastic rounding goes to one of the two
//! neighbouring points with an expectation of x (the randomized quantization of Tang et al. 2018,
//! section 5; Zhang et al. 2017, ZipML, section 2); nearest rounding is the biased one of Bagua's
//! `MinMaxUInt8` (Gan et al. 2021), for any number of bits.
//!
//! Bytes of a bucket: middle m and half step h as `f32`, then codes c, packed. C(x) = m + h (2 c -
//! L), which, unlike min + step c, cannot overflow between -f32::MAX and f32::MAX. DIFFERENCE to
//! Bagua: it sends min and max, and scales by 255 exactly as many levels as there are, so the
//! values agree up to the rounding of `f32`.
//!
//! Error: |C(x) - x| <= step (stochastic), variance at most step^2/4; <= step/2 (nearest). Since
//! (max - min)^2 <= 2 |x|^2 in each bucket of n numbers, E|C(x) - x|^2 <= n / (2 L^2) |x|^2 for
//! both: alpha 1.07 in the worst case for 4 bits in buckets of 512, and 0.17 for Gaussian numbers.

use serde::{Deserialize, Serialize};

use super::bucketed::{Bucketed, Layout, Quantizer};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "min-max",
    summary: "2^bits grid points between the least and the greatest number of each bucket",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training; Gan et al. \
            2021, Bagua",
    class_words: "unbiased (rounding = \"nearest\": biased)",
    constants: &[
        ("bits", "4: bits per number, 1 to 8"),
        ("bucket", "512: numbers that share a grid; 0 for the whole vector"),
        ("rounding", "\"stochastic\": unbiased; or \"nearest\": half the error, biased"),
    ],
    variants: &[
        "bits = 1",
        "bits = 2\nbucket = 100",
        "bits = 3\nrounding = 'nearest'",
        "bits = 5",
        "bits = 7\nbucket = 0",
        "bits = 8",
        "bits = 8\nrounding = 'nearest'",
        "rounding = 'nearest'",
    ],
    build,
    cheaper: |own| match own.get("bits")?.as_integer()? {
        bits @ (2 | 4 | 8) => Some(Cheaper::new("bits", bits / 2, "half the bytes")),
        _ => None,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rounding {
    Stochastic,
    Nearest,
}

params! {
    bits: i64 = 4,
    bucket: i64 = 512,
    rounding: Rounding = Rounding::Stochastic,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let bits = within("bits", params.bits, 1, 8)? as u32;
    let layout = Layout::new(params.bucket, 8, bits)?;
    let quantizer = MinMax { bits, rounding: params.rounding };
    Ok(Built::new(Bucketed { layout, quantizer }, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct MinMax {
    bits: u32,
    rounding: Rounding,
}

impl MinMax {
    /// L: the steps between min and max.
    fn steps(&self) -> u32 {
        (1 << self.bits) - 1
    }
}

impl Quantizer for MinMax {
    type Packing = u32;

    const NAME: &'static str = ENTRY.name;

    fn class(&self, count: usize) -> Class {
        let steps = f64::from(self.steps());
        let squared = count as f64 / (2.0 * steps * steps);
        match self.rounding {
            Rounding::Stochastic => Class::Unbiased { alpha: squared.sqrt() },
            Rounding::Nearest => Class::Contraction { delta: 1.0 - squared },
        }
    }

    fn greatest(&self) -> u8 {
        self.steps() as u8
    }

    #[inline(always)]
    fn check(&self, mut header: &[u8]) -> Result<(), String> {
        let (middle, half) = (block::take_float(&mut header), block::take_float(&mut header));
        if half >= 0.0 && (Grid { middle, half, steps: self.steps() as f32 }).is_finite() {
            Ok(())
        } else {
            Err(format!("no grid has its middle at {middle} and steps of twice {half}"))
        }
    }

    fn encode(&self, v: &[f32], bucket: usize, noise: Stream, out: &mut Vec<u8>) -> bool {
        let noise = (self.rounding == Rounding::Stochastic).then_some(noise);
        encode(v, bucket, self.bits, noise, out)
    }

    fn add(&self, bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        add(bytes, bucket, bucket_bytes, self.bits, weight, acc);
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        (len > nominal::MOST_SAMPLED).then(|| {
            // The range of many normal numbers hardly varies: twice the expectation of the
            // greatest.
            let greatest = nominal::expected_greatest(len);
            let step = 2.0 * greatest / f64::from(self.steps());
            nominal::expectation(|z| {
                let part = ((z + greatest) / step).rem_euclid(1.0);
                let error = match self.rounding {
                    Rounding::Stochastic => part * (1.0 - part),
                    Rounding::Nearest => part.min(1.0 - part).powi(2),
                };
                step * step * error
            })
        })
    }
}

/// A bucket's grid: `middle + half * (2 c - steps)` for c = 0..=steps.
#[derive(Clone, Copy)]
struct Grid {
    middle: f32,
    half: f32,
    steps: f32,
}

impl Grid {
    /// The grid from `low` to `high`, extended only as far as rounding requires.
    #[inline(always)]
    fn between(low: f32, high: f32, steps: f32) -> Grid {
        let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
        let half = ((f64::from(high) - f64::from(low)) / (2.0 * f64::from(steps))) as f32;
        // A range of denormals may be below the least possible half step.
        let half = if half == 0.0 && high > low { f32::from_bits(1) } else { half };
        let mut grid = Grid { middle, half, steps };
        // At the edge of `f32` the last point may round to infinity: use the widest finite grid.
        while !grid.is_finite() {
            grid.half = grid.half.next_down();
        }
        grid
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        self.value(0.0).is_finite() && self.value(self.steps).is_finite()
    }

    #[inline(always)]
    fn value(self, code: f32) -> f32 {
        self.middle + self.half * (2.0 * code - self.steps)
    }

    /// The position of x on the grid, from 0 to `steps`; 0 if the grid has one point.
    #[inline(always)]
    fn place(self, x: f32) -> f32 {
        let t = (x - self.middle) / self.half * 0.5 + self.steps * 0.5;
        // In this order a NaN (0 / 0 of the grid with one point) becomes 0.
        let t = if t > 0.0 { t } else { 0.0 };
        if t < self.steps { t } else { self.steps }
    }
}

kernel! {
    /// Appends all buckets, or returns false at one that holds a NaN or an infinity.
    fn encode(
        v: &[f32],
        bucket: usize,
        width: u32,
        noise: Option<Stream>,
        out: &mut Vec<u8>,
    ) -> bool {
        let steps = ((1u32 << width) - 1) as f32;
        for (index, numbers) in v.chunks(bucket).enumerate() {
            let Some((low, high)) = range(numbers) else { return false };
            let grid = Grid::between(low, high, steps);
            out.extend_from_slice(&grid.middle.to_le_bytes());
            out.extend_from_slice(&grid.half.to_le_bytes());
            let ahead = &v[v.len().min((index + 1) * bucket)..];
            block::encode(numbers, ahead, index * bucket, width, noise, out, |x| grid.place(x));
        }
        true
    }

    fn add(
        bytes: &[u8],
        bucket: usize,
        bucket_bytes: usize,
        width: u32,
        weight: f32,
        acc: &mut [f32],
    ) {
        let steps = ((1u32 << width) - 1) as f32;
        for (acc, mut bytes) in block::buckets(acc, bucket, bytes, bucket_bytes) {
            let middle = block::take_float(&mut bytes);
            let half = block::take_float(&mut bytes);
            let grid = Grid { middle, half, steps };
            block::add(bytes, width, weight, acc, |code| grid.value(code));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_at_the_edges_of_f32_stay_finite_and_cover() {
        let tiny = f32::from_bits(1);
        let edges =
            [-f32::MAX, f32::MAX, f32::MAX.next_down(), f32::MAX / 2.0, 0.0, -tiny, tiny, 1.0];
        for steps in [1.0, 3.0, 7.0, 15.0, 127.0, 255.0] {
            for low in edges {
                for high in edges.into_iter().filter(|high| *high >= low) {
                    let grid = Grid::between(low, high, steps);
                    assert!(grid.is_finite(), "{low} {high} {steps}");
                    let slack = f64::from(high - low).min(1e38) * 1e-6
                        + f64::from(high.abs().max(low.abs())) * 1e-6;
                    let slack = slack + 300.0 * f64::from(tiny);
                    for (x, code) in [(low, 0.0), (high, steps)] {
                        let place = grid.place(x);
                        assert!(place >= 0.0 && place <= steps);
                        let error = f64::from(grid.value(place)) - f64::from(x);
                        assert!(error.abs() <= slack, "{x} of {low}..{high}: {error}");
                        // Only if the range is more than a few units in the last place.
                        let is_wide = f64::from(high) - f64::from(low)
                            > 1e-2 * f64::from(high.abs().max(low.abs()));
                        let is_normal = high.abs().max(low.abs()) >= 1.0;
                        assert!(!is_wide || !is_normal || (place - code).abs() < 1e-3);
                    }
                }
            }
        }
    }
}
