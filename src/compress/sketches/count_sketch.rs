//! A table of sums from which each number is estimated: `count-sketch`.
//!
//! Charikar, Chen and Farach-Colton 2002, Finding Frequent Items in Data Streams; for gradients
//! Ivkin et al. 2019, Communication-efficient Distributed SGD with Sketching. C(x) is the estimate
//! of every number from a [sketch](crate::compress::CountSketch), whose hashes come from the
//! payload's own stream. Made for a rule that adds tables and queries them for the largest numbers;
//! as a compressor of its own it loses more than it keeps if the table is smaller than the vector.
//!
//! The errors of a row are symmetric, because the sign of each number is random with probability
//! 1/2, and rows are independent: the median is unbiased. A row's variance is at most (n - 1) / c
//! |x|^2, and half of the rows or more are at least as far off as their median: E|C(x) - x|^2 <= f
//! (n - 1) / c |x|^2 with f = 1 for one row, 1/2 for two, 2r / (r + 1) for odd r and 2 for even.
//!
//! Bytes: the r c cells as `f32`, row after row.

use super::{cells, sketch::MOST_COLUMNS};
use crate::{
    compress::{SketchShape, prelude::*},
    rng::{Purpose, Sequence},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "count-sketch",
    summary: "a table of sums of numbers with random signs; the median of its rows estimates each \
              number",
    paper: "Charikar et al. 2002, Finding Frequent Items in Data Streams; Ivkin et al. 2019, \
            Sketched-SGD",
    class_words: "unbiased (nominal delta below 0 where the vector has more numbers than the \
                  table: no error feedback)",
    constants: &[
        ("rows", "5: rows of the table, 1 to 15, of which medians are taken"),
        ("columns", "1000: cells of a row, 1 to 67108864"),
    ],
    variants: &["rows = 1\ncolumns = 40", "rows = 4\ncolumns = 100", "rows = 7\ncolumns = 20000"],
    build,
    ..Entry::BLANK
};

params! {
    rows: i64 = 5,
    columns: i64 = 1000,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let rows = within("rows", params.rows, 1, cells::MOST_ROWS as i64)? as usize;
    let columns = within("columns", params.columns, 1, MOST_COLUMNS as i64)? as usize;
    let compressor = Table { shape: SketchShape { rows, columns } };
    Ok(Built::new(compressor, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct Table {
    shape: SketchShape,
}

impl Compressor for Table {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, len: usize) -> Class {
        let rows = self.shape.rows as f64;
        let factor = match self.shape.rows {
            1 => 1.0,
            2 => 0.5,
            odd if odd % 2 == 1 => 2.0 * rows / (rows + 1.0),
            _ => 2.0,
        };
        Class::Unbiased {
            alpha: (factor * len.saturating_sub(1) as f64 / self.shape.columns as f64).sqrt(),
        }
    }

    fn size(&self, _len: usize) -> Size {
        Size::Exact(4 * self.shape.cells())
    }

    fn encode(&self, v: &[f32], noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let start = out.len();
        out.resize(start + 4 * self.shape.cells(), 0);
        let (hashes, table) = (self.shape.hashes(noise), out[start..].as_chunks_mut::<4>().0);
        cells::accumulate_bytes(v, &hashes[..self.shape.rows], self.shape.columns, table)
            .inspect_err(|_| out.truncate(start))
    }

    fn check(&self, _len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, 4 * self.shape.cells())?;
        check_floats(bytes)
    }

    fn add_into(&self, bytes: &[u8], noise: Stream, weight: f32, acc: &mut [f32]) {
        let hashes = self.shape.hashes(noise);
        let table = bytes.as_chunks::<4>().0;
        cells::add_estimates(&hashes[..self.shape.rows], self.shape.columns, table, weight, acc);
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        (len > nominal::MOST_SAMPLED).then(|| {
            let load = (len - 1) as f64 / self.shape.columns as f64;
            limiting_error(self.shape.rows, load)
        })
    }

    fn sketch(&self) -> Option<SketchShape> {
        Some(self.shape)
    }
}

/// The mean square of the median of `rows` errors, from seeded samples. Each error is the sum of a
/// Poisson number of normal ones, `load` on average: with many numbers, the number of others in a
/// cell has this distribution in the limit (and hardly varies if `load` is large).
fn limiting_error(rows: usize, load: f64) -> f64 {
    const DRAWN: u32 = 1 << 15;
    let mut random = Stream::new(0, Purpose::Compress).with(rows as u64).sequence();
    let mut errors = [0f64; cells::MOST_ROWS];
    let errors = &mut errors[..rows];
    let mut total = 0.0;
    for _ in 0..DRAWN {
        for error in errors.iter_mut() {
            let others = if load > 100.0 { load } else { arrivals(load, &mut random) };
            *error = others.sqrt() * random.normal();
        }
        errors.sort_unstable_by(f64::total_cmp);
        let middle = if rows % 2 == 1 {
            errors[rows / 2]
        } else {
            0.5 * (errors[rows / 2 - 1] + errors[rows / 2])
        };
        total += middle * middle;
    }
    total / f64::from(DRAWN)
}

/// A Poisson number: the arrivals of unit rate before time `load`.
fn arrivals(load: f64, random: &mut Sequence) -> f64 {
    let (mut count, mut time) = (-1.0, 0.0);
    while time <= load {
        time -= libm::log(1.0 - random.uniform());
        count += 1.0;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::nominal_delta;

    fn built(rows: i64, columns: i64) -> Built {
        let constants = [("rows", rows), ("columns", columns)];
        build(&constants.map(|(key, value)| (key.to_string(), value.into())).into_iter().collect())
            .unwrap()
    }

    #[test]
    fn the_limit_continues_the_samples() {
        for (rows, columns) in [(1, 3000), (2, 40_000), (5, 1000), (5, 60_000), (7, 20_000)] {
            let compressor = built(rows, columns).compressor;
            let sampled = 1.0 - nominal_delta(&*compressor, nominal::MOST_SAMPLED);
            let formula = compressor.gaussian_error(nominal::MOST_SAMPLED + 1).unwrap();
            assert!(
                (sampled / formula - 1.0).abs() < 0.06,
                "{rows} x {columns}: {sampled} and {formula}"
            );
        }
    }

    #[test]
    fn only_a_sketch_says_that_it_is_one() {
        for entry in &crate::compress::COMPRESSORS {
            let built = (entry.build)(&toml::Table::new()).unwrap();
            assert_eq!(built.compressor.sketch().is_some(), entry.name == "count-sketch");
        }
        assert_eq!(built(7, 20).compressor.sketch(), Some(SketchShape { rows: 7, columns: 20 }));
    }
}
