//! k numbers chosen at random: `random-k`.
//!
//! Stich et al. 2018, Definition 2.2. The choice is drawn without replacement from the stream that
//! sender and receivers share, so indices are not sent: 4 k bytes. Unscaled it is a contraction
//! with delta = k/d in expectation; with `scaled` the values are multiplied by d/k, which makes it
//! unbiased with alpha^2 = d/k - 1 (values beyond `f32::MAX` saturate).
//!
//! Drawn by Vitter's method D (1987, An Efficient Algorithm for Sequential Random Sampling): gaps
//! between chosen indices, in ascending order, O(k) without memory; logarithms and exponentials
//! from `libm`, so the same choice on every CPU. Dense choices by his method A, whose walk from one
//! index to the next is mostly [computed](super::gaps) instead.

use super::{
    gaps::{self, BATCH, LANES},
    kept::{self, Ahead, Kept, adder, floats},
};
use crate::{compress::prelude::*, rng::Sequence};

pub(crate) const ENTRY: Entry = Entry {
    name: "random-k",
    summary: "numbers chosen at random; the choice is shared and costs nothing",
    paper: "Stich et al. 2018, Sparsified SGD with Memory; Wangni et al. 2018, Gradient \
            Sparsification",
    class_words: "contraction (scaled = true: unbiased)",
    constants: &[
        kept::K,
        kept::FRACTION,
        ("scaled", "false: a contraction; true: multiplied by d/k, unbiased"),
    ],
    variants: &[
        "scaled = true",
        "k = 1",
        "k = 40\nscaled = true",
        "fraction = 0.1\nscaled = true",
        "fraction = 0.5",
        "fraction = 1.0",
    ],
    build,
    cheaper: kept::cheaper,
};

params! {
    k: Option<i64> = None,
    fraction: Option<f64> = None,
    scaled: bool = false,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let kept = Kept::read(params.k, params.fraction)?;
    let mut resolved = config::resolved(ENTRY.name, &kept);
    resolved.insert("scaled".into(), params.scaled.into());
    Ok(Built::new(RandomK { kept, scaled: params.scaled }, resolved))
}

#[derive(Debug)]
struct RandomK {
    kept: Kept,
    scaled: bool,
}

impl Compressor for RandomK {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, len: usize) -> Class {
        let part = self.kept.of(len) as f64 / len.max(1) as f64;
        match self.scaled {
            true if len == 0 => Class::Unbiased { alpha: 0.0 },
            true => Class::Unbiased { alpha: (1.0 / part - 1.0).sqrt() },
            false => Class::Contraction { delta: part },
        }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(4 * self.kept.of(len))
    }

    fn encode(&self, v: &[f32], noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        if let Some(error) = NonFinite::first_in(v) {
            return Err(error);
        }
        let k = self.kept.of(v.len());
        let start = out.len();
        out.resize(start + 4 * k, 0);
        let (values, mut position) = (out[start..].as_chunks_mut().0, 0);
        let scale = if self.scaled { v.len() as f64 / k.max(1) as f64 } else { 1.0 };
        let most = f64::from(f32::MAX);
        let mut ahead = Ahead::new(|block| {
            update(&mut values[position..], block, |bytes, &index| {
                let value = f64::from(v[index as usize]) * scale;
                let value = if value > most { most } else { value };
                let value = if value < -most { -most } else { value };
                *bytes = (value as f32).to_le_bytes();
            });
            position += block.len();
        });
        choose(v.len(), k, noise, |index| ahead.push(index as u32));
        ahead.finish();
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, 4 * self.kept.of(len))?;
        check_floats(bytes)
    }

    fn add_into(&self, bytes: &[u8], noise: Stream, weight: f32, acc: &mut [f32]) {
        let (len, k) = (acc.len(), self.kept.of(acc.len()));
        let mut adder = adder(weight, bytes, acc);
        choose(len, k, noise, |index| adder.push(index as u32));
        adder.finish();
    }

    fn entries(&self, len: usize, bytes: &[u8], noise: Stream, visit: Visit<'_>) -> bool {
        let mut values = floats(bytes);
        choose(len, self.kept.of(len), noise, |index| {
            visit(index as u32, values.next().unwrap_or(0.0));
        });
        true
    }

    fn most_entries(&self, len: usize) -> Option<usize> {
        Some(self.kept.of(len))
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        let part = self.kept.of(len) as f64 / len.max(1) as f64;
        Some(match self.scaled {
            _ if len == 0 => 0.0,
            true => 1.0 / part - 1.0,
            false => 1.0 - part,
        })
    }
}

/// The part chosen above which method A walks few steps.
const DENSE: f64 = 0.75;

/// Calls `visit` with `k <= len` different indices below `len` in ascending order, every set
/// equally likely.
pub(crate) fn choose(len: usize, k: usize, noise: Stream, mut visit: impl FnMut(usize)) {
    if k == len {
        return (0..len).for_each(visit);
    }
    let mut draw = Draw { random: noise.sequence(), next: 0, left: len as f64, wanted: k as f64 };
    // A power of a uniform number that method D keeps from one gap to the next.
    let mut kept = draw.root(draw.wanted);
    while draw.wanted > 1.0 && 13.0 * draw.wanted < draw.left {
        let gap = draw.long_gap(&mut kept);
        visit(draw.take(gap));
    }
    while draw.wanted >= BATCH as f64 && draw.wanted <= DENSE * draw.left {
        draw.short_gaps(&mut visit);
    }
    while draw.wanted >= 1.0 {
        let at = draw.uniform();
        let gap = draw.short_gap(at);
        visit(draw.take(gap));
    }
}

/// The state of a sequential draw. Counts are `f64`: integers below 2^53.
struct Draw {
    random: Sequence,
    next: usize,
    left: f64,
    wanted: f64,
}

impl Draw {
    /// The index after a gap.
    fn take(&mut self, gap: f64) -> usize {
        let index = self.next + gap as usize;
        self.next = index + 1;
        self.left -= gap + 1.0;
        self.wanted -= 1.0;
        index
    }

    /// A number in (0, 1].
    fn uniform(&mut self) -> f64 {
        1.0 - self.random.uniform()
    }

    /// The n-th root of a uniform number.
    fn root(&mut self, n: f64) -> f64 {
        libm::exp(libm::log(self.uniform()) / n)
    }

    /// Method A for the next [`BATCH`] choices: computes the gaps that are sure, walks the others.
    fn short_gaps(&mut self, visit: &mut impl FnMut(usize)) {
        let (mut at, mut logs) = ([0.0; BATCH], [0.0; BATCH]);
        gaps::draw(&mut self.random, &mut at, &mut logs);
        for (at, logs) in at.as_chunks::<LANES>().0.iter().zip(logs.as_chunks().0) {
            let mut lane = 0;
            while lane < LANES {
                let (sure, ends) = gaps::sure(logs, lane, self.left, self.wanted);
                for &end in &ends[lane..sure] {
                    visit(self.next + end as usize - 1);
                }
                if sure > lane {
                    self.next += ends[sure - 1] as usize;
                    self.left -= f64::from(ends[sure - 1]);
                    self.wanted -= (sure - lane) as f64;
                }
                if let Some(&at) = at.get(sure) {
                    let gap = self.short_gap(at);
                    visit(self.take(gap));
                }
                lane = sure + 1;
            }
        }
    }

    /// Method A: the gap from its distribution function, step by step; for dense choices.
    fn short_gap(&self, at: f64) -> f64 {
        let (mut gap, mut left) = (0.0, self.left);
        let mut others = left - self.wanted;
        let mut quotient = others / left;
        while quotient > at && others > 0.0 {
            gap += 1.0;
            others -= 1.0;
            left -= 1.0;
            quotient *= others / left;
        }
        gap
    }

    /// Method D: the gap by rejection from a continuous distribution that nearly fits; `kept` is
    /// the n-th root of a uniform number for this gap, and becomes that for the next.
    fn long_gap(&mut self, kept: &mut f64) -> f64 {
        let (n, left) = (self.wanted, self.left);
        let places = left - n + 1.0;
        loop {
            let (x, gap) = loop {
                let x = left * (1.0 - *kept);
                if x.floor() < places {
                    break (x, x.floor());
                }
                *kept = self.root(n);
            };
            let y = libm::exp(libm::log(self.uniform() * left / places) / (n - 1.0));
            *kept = y * (1.0 - x / left) * (places / (places - gap));
            if *kept <= 1.0 {
                return gap;
            }
            let (mut bottom, limit) =
                if n - 1.0 > gap { (left - n, left - gap) } else { (left - gap - 1.0, places) };
            let (mut ratio, mut top) = (1.0, left - 1.0);
            while top >= limit {
                ratio *= top / bottom;
                top -= 1.0;
                bottom -= 1.0;
            }
            if left / (left - x) >= y * libm::exp(libm::log(ratio) / (n - 1.0)) {
                *kept = self.root(n - 1.0);
                return gap;
            }
            *kept = self.root(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::kernel::plainly;
    use crate::rng::Purpose;

    fn chosen(len: usize, k: usize, trial: u64) -> Vec<usize> {
        let mut indices = Vec::new();
        choose(len, k, Stream::new(trial, Purpose::Test), |index| indices.push(index));
        indices
    }

    #[test]
    fn choices_are_ascending_distinct_and_complete() {
        for len in [1, 2, 3, 10, 100, 1000, 5000] {
            for k in
                [0, 1, 2, 3, 7, len / 20, len / 2, len - 1, len].into_iter().filter(|k| *k <= len)
            {
                for trial in 0..50 {
                    let indices = chosen(len, k, trial);
                    assert_eq!(indices.len(), k);
                    assert!(indices.is_sorted_by(|a, b| a < b));
                    assert!(indices.last().is_none_or(|last| *last < len));
                }
            }
        }
    }

    /// The walk of method A alone.
    fn walked(len: usize, k: usize, trial: u64) -> Vec<usize> {
        let random = Stream::new(trial, Purpose::Test).sequence();
        let mut draw = Draw { random, next: 0, left: len as f64, wanted: k as f64 };
        let _ = draw.root(draw.wanted);
        let mut step = || {
            let at = draw.uniform();
            let gap = draw.short_gap(at);
            draw.take(gap)
        };
        (0..k).map(|_| step()).collect()
    }

    #[test]
    fn computed_gaps_are_those_of_the_walk() {
        for (len, trials) in [(70, 300), (200, 300), (1000, 300), (30_000, 20), (1_000_000, 2)] {
            for part in [0.077, 0.1, 0.3, 0.5, 0.74, 0.76, 0.95] {
                let k = (part * len as f64).ceil() as usize;
                for trial in 0..trials {
                    let expected = walked(len, k, trial);
                    assert!(chosen(len, k, trial) == expected, "{k} of {len}, {trial}");
                    let plain = plainly(|| chosen(len, k, trial));
                    assert!(plain == expected, "{k} of {len}, {trial}, plain");
                }
            }
        }
    }

    /// Each index, and each pair of adjacent indices, is chosen equally often; k / len on both
    /// sides of 1/13.
    #[test]
    fn every_index_and_every_pair_is_as_likely() {
        for (len, k) in [(40, 2), (60, 4), (100, 5), (20, 5), (12, 11), (9, 1)] {
            let trials = 40_000u64;
            let (mut singles, mut pairs) = (vec![0f64; len], vec![0f64; len - 1]);
            for trial in 0..trials {
                let indices = chosen(len, k, trial);
                indices.iter().for_each(|i| singles[*i] += 1.0);
                indices.windows(2).filter(|w| w[1] == w[0] + 1).for_each(|w| pairs[w[0]] += 1.0);
            }
            let (d, k, n) = (len as f64, k as f64, trials as f64);
            let z = |count: f64, p: f64| (count - n * p) / (n * p * (1.0 - p) + 1.0).sqrt();
            for count in singles {
                assert!(z(count, k / d).abs() < 5.0, "{k} of {d}: {count}");
            }
            for count in pairs {
                assert!(
                    z(count, k * (k - 1.0) / (d * (d - 1.0))).abs() < 5.0,
                    "{k} of {d}: {count} pairs"
                );
            }
        }
    }
}
