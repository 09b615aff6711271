//! Levels of a bucket's norm, rounded at random: `qsgd`.
//!
//! Alistarh et al. 2017, QSGD, section 3.1: Q(x)_i = |x|_2 sign(x_i) xi_i, where xi_i is s |x_i| /
//! |x|_2 rounded at random to one of its two neighbours, over s. Unbiased, E|Q(x) - x|^2 <=
//! min(n/s^2, sqrt(n)/s) |x|^2 for n numbers (Lemma 3.1). With `scaled` it is divided by tau = 1 +
//! min(n/s^2, sqrt(n)/s), which makes it a contraction with delta = 1/tau (Koloskova et al. 2019,
//! CHOCO-SGD, section 3.5), n being the length of each bucket.
//!
//! Bytes of a bucket: the step |x|_2 / s (or |x|_2 / (s tau)) as `f32`, then codes c = level + s in
//! 0..=2s, packed in ceil(log2(2 s + 1)) bits: the sign is included, so seven levels take four
//! bits. C(x) = step (c - s). DIFFERENCE: fixed width where the paper uses Elias codes, so that the
//! size is known before encoding.
//!
//! Limits: the step is rounded up if it would lose digits, and limited if it would overflow `f32`
//! (norms under 1e-38 or over `f32::MAX`): still unbiased, since |x_i| <= s step always.
//! Probabilities are multiples of 2^-15: expectations are exact to 2^-16 of a step.

use super::bucketed::{Bucketed, Layout, Quantizer};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "qsgd",
    summary: "sign and random level of each number relative to its bucket's norm",
    paper: "Alistarh et al. 2017, QSGD; Koloskova et al. 2019, CHOCO-SGD (scaled)",
    class_words: "unbiased (scaled = true: contraction)",
    constants: &[
        ("levels", "7: levels s beside zero, 1 to 127; a number takes ceil(log2(2 s + 1)) bits"),
        ("bucket", "512: numbers that share a norm; 0 for the whole vector"),
        (
            "scaled",
            "false: unbiased; true: divided by tau = 1 + min(n/s^2, sqrt(n)/s), a contraction",
        ),
    ],
    variants: &[
        "levels = 1",
        "levels = 127\nbucket = 100",
        "levels = 3\nbucket = 0",
        "scaled = true",
        "levels = 1\nscaled = true",
        "levels = 40",
    ],
    build,
    cheaper: |own| match own.get("levels")?.as_integer()? {
        levels @ 2.. => {
            Some(Cheaper::new("levels", levels / 2, "about a bit less for each number"))
        }
        _ => None,
    },
};

params! {
    levels: i64 = 7,
    bucket: i64 = 512,
    scaled: bool = false,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let levels = within("levels", params.levels, 1, 127)? as u8;
    let width = (2 * u32::from(levels)).ilog2() + 1;
    let layout = Layout::new(params.bucket, 4, width)?;
    let quantizer = Qsgd { levels, width, scaled: params.scaled };
    Ok(Built::new(Bucketed { layout, quantizer }, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct Qsgd {
    levels: u8,
    width: u32,
    scaled: bool,
}

/// min(n/s^2, sqrt(n)/s): the bound on the relative variance.
#[inline(always)]
fn variance_bound(count: usize, levels: f64) -> f64 {
    let ratio = (count as f64).sqrt() / levels;
    if ratio < 1.0 { ratio * ratio } else { ratio }
}

impl Quantizer for Qsgd {
    type Packing = u32;

    const NAME: &'static str = ENTRY.name;

    fn class(&self, count: usize) -> Class {
        let bound = variance_bound(count, f64::from(self.levels));
        if self.scaled {
            Class::Contraction { delta: 1.0 / (1.0 + bound) }
        } else {
            Class::Unbiased { alpha: bound.sqrt() }
        }
    }

    fn greatest(&self) -> u8 {
        2 * self.levels
    }

    #[inline(always)]
    fn check(&self, mut header: &[u8]) -> Result<(), String> {
        let step = block::take_float(&mut header);
        if step >= 0.0 && (step * f32::from(self.levels)).is_finite() {
            Ok(())
        } else {
            Err(format!("{step} is not a step"))
        }
    }

    fn encode(&self, v: &[f32], bucket: usize, noise: Stream, out: &mut Vec<u8>) -> bool {
        encode(v, bucket, self.width, f32::from(self.levels), self.scaled, noise, out)
    }

    fn add(&self, bytes: &[u8], bucket: usize, bucket_bytes: usize, weight: f32, acc: &mut [f32]) {
        add(bytes, bucket, bucket_bytes, self.width, f32::from(self.levels), weight, acc);
    }

    /// n / (4 s^2): each of n numbers errs by at most half a step |x|_2 / s (in the mean square).
    /// Vectors of +-|x|_2 / (2 s) attain it, and leave errors of the same form.
    fn residual_error(&self, count: usize) -> Option<f64> {
        let levels = f64::from(self.levels);
        (!self.scaled).then(|| count as f64 / (4.0 * levels * levels))
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        (len > nominal::MOST_SAMPLED).then(|| {
            // The norm of many normal numbers hardly varies.
            let s = f64::from(self.levels);
            let step = (len as f64).sqrt() / s;
            let variance = nominal::expectation(|z| {
                let part = (z.abs() / step).fract();
                step * step * part * (1.0 - part)
            });
            if self.scaled {
                let tau = 1.0 + variance_bound(len, s);
                (variance + (tau - 1.0).powi(2)) / (tau * tau)
            } else {
                variance
            }
        })
    }
}

/// The step of a bucket with this norm: norm / s, but large enough that s steps reach every number
/// of the bucket, and small enough that s steps do not overflow `f32`.
#[inline(always)]
fn step_of(norm: f64, levels: f32) -> f32 {
    let wanted = norm / f64::from(levels);
    let greatest = (f64::from(f32::MAX) / f64::from(levels)) as f32;
    let greatest = if greatest * levels == f32::INFINITY { greatest.next_down() } else { greatest };
    if wanted >= f64::from(greatest) {
        return greatest;
    }
    let step = wanted as f32;
    if f64::from(step) < wanted { step.next_up() } else { step }
}

kernel! {
    /// Appends all buckets, or returns false at one that holds a NaN or an infinity.
    fn encode(
        v: &[f32],
        bucket: usize,
        width: u32,
        levels: f32,
        scaled: bool,
        noise: Stream,
        out: &mut Vec<u8>,
    ) -> bool {
        for (index, numbers) in v.chunks(bucket).enumerate() {
            let squares = kernel::sum(numbers, |x| f64::from(x) * f64::from(x));
            if !squares.is_finite() {
                return false;
            }
            let step = step_of(squares.sqrt(), levels);
            let sent = if scaled {
                (f64::from(step) / (1.0 + variance_bound(numbers.len(), f64::from(levels)))) as f32
            } else {
                step
            };
            out.extend_from_slice(&sent.to_le_bytes());
            let ahead = &v[v.len().min((index + 1) * bucket)..];
            block::encode(numbers, ahead, index * bucket, width, Some(noise), out, |x| {
                let t = x / step + levels;
                // In this order a NaN (0 / 0 of a bucket of zeros) becomes level 0.
                let t = if t >= 0.0 { t } else if t < 0.0 { 0.0 } else { levels };
                if t < 2.0 * levels { t } else { 2.0 * levels }
            });
        }
        true
    }

    fn add(
        bytes: &[u8],
        bucket: usize,
        bucket_bytes: usize,
        width: u32,
        levels: f32,
        weight: f32,
        acc: &mut [f32],
    ) {
        for (acc, mut bytes) in block::buckets(acc, bucket, bytes, bucket_bytes) {
            let step = block::take_float(&mut bytes);
            block::add(bytes, width, weight, acc, |code| step * (code - levels));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Size;

    #[test]
    fn steps_reach_the_norm_and_stay_finite() {
        for levels in 1..=127u8 {
            let s = f32::from(levels);
            for norm in [0.0, 1e-50, 1.4e-45, 1e-40, 1e-30, 1.0, 1e30, 3.4e38] {
                let step = step_of(norm, s);
                assert!((step * s).is_finite());
                let reached = f64::from(step) * f64::from(s);
                assert!(
                    reached >= norm.min(f64::from(f32::MAX) * (1.0 - 1e-6)),
                    "{norm} / {levels}: {step}"
                );
                assert!(norm < 1e-37 || reached <= norm * (1.0 + 1e-6));
                assert!(step > 0.0 || norm == 0.0);
            }
            assert!((step_of(1e42, s) * s).is_finite());
        }
    }

    #[test]
    fn widths_count_the_sign() {
        for (levels, width) in
            [(1, 2), (2, 3), (3, 3), (7, 4), (8, 5), (15, 5), (40, 7), (63, 7), (64, 8), (127, 8)]
        {
            let table =
                toml::Table::from_iter([("levels".to_string(), toml::Value::Integer(levels))]);
            let built = build(&table).unwrap();
            assert_eq!(built.compressor.size(512), Size::Exact(4 + 64 * width), "{levels}");
        }
    }
}
