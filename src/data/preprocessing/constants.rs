//! What is done with the features of all rows before a model sees them, with constants that the
//! nodes have formed from sums over all of them.

use std::collections::BTreeMap;

use super::scale::Scale;
use crate::data::{
    DataError,
    dataset::{Dataset, Gaps},
    table::schema::Missing,
};

impl Dataset {
    /// Puts these numbers in the place of missing values: one for each of [`Dataset::gaps`].
    ///
    /// # Errors
    /// If there are more or fewer.
    pub(crate) fn fill(&mut self, fills: &[f32]) -> Result<(), DataError> {
        let (found, needed) = (fills.len(), self.gaps.len());
        if found != needed {
            let problem = format!(
                "{found} numbers for {needed} features with missing values: one for each is needed"
            );
            let place = "missing values".into();
            return Err(DataError::Count { place, found, needed, problem }.within(&self.name));
        }
        for (gaps, fill) in std::mem::take(&mut self.gaps).iter().zip(fills) {
            for &row in &gaps.rows {
                self.features[(row as usize, gaps.feature)] = *fill;
            }
        }
        Ok(())
    }
}

impl Gaps {
    /// Those of the rows of several parts, one after another, which have the same features.
    pub(crate) fn join(parts: &[&Dataset]) -> Vec<Gaps> {
        let mut joined = parts.first().map(|first| first.gaps.clone()).unwrap_or_default();
        let mut before = 0;
        for (at, part) in parts.iter().enumerate() {
            for (all, gaps) in joined.iter_mut().zip(&part.gaps).filter(|_| at > 0) {
                all.rows.extend(gaps.rows.iter().map(|row| row + before));
            }
            before += part.rows() as u32;
        }
        joined
    }
}

/// The constants of a run: what missing values become, and how features are scaled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preprocessing {
    /// What the missing values of each feature become that has such, in the order of
    /// [`Dataset::gaps`].
    pub fills: Vec<f32>,
    /// The scale of the features, if they are scaled.
    pub scale: Option<Scale>,
    /// The scale of the predicted numbers, if the model was trained on scaled ones: what it
    /// computes is multiplied by the deviation, and the mean is added.
    pub targets: Option<Scale>,
}

impl Preprocessing {
    /// Whether nothing is done with the features.
    pub(crate) fn is_none(&self) -> bool {
        self.fills.is_empty() && self.scale.is_none()
    }

    /// Fills in missing values, and scales the features.
    ///
    /// # Errors
    /// If the data has other features, or a scaled one is beyond `f32`.
    pub fn apply(&self, data: &mut Dataset) -> Result<(), DataError> {
        data.fill(&self.fills)?;
        match &self.scale {
            Some(scale) => data.apply(scale),
            None => Ok(()),
        }
    }
}

/// The missing values of one feature at one or several nodes, and what is needed to replace them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GapSums {
    /// The number of rows without a value.
    pub(crate) missing: u64,
    /// For a median: how many values are in each bin. The bin of a value is the upper 16 bits of
    /// its `f32`, changed so that bins are in the order of the numbers.
    pub(crate) bins: Option<BTreeMap<u16, u64>>,
}

/// The bin of a finite number: the upper 16 bits of its `f32`, changed so that bins are in the
/// order of the numbers. A bin spans at most 1/128 of its numbers.
fn bin(value: f32) -> u16 {
    let bits = (value.to_bits() >> 16) as u16;
    if bits & 0x8000 == 0 { bits | 0x8000 } else { !bits }
}

/// The middle of a bin; `None` if there are no finite numbers in it.
fn middle(bin: u16) -> Option<f64> {
    let bits = if bin & 0x8000 == 0 { !bin } else { bin & 0x7fff };
    let first = f32::from_bits(u32::from(bits) << 16);
    let last = f32::from_bits(u32::from(bits) << 16 | 0xffff);
    let (first, last) = (f64::from(first), f64::from(last));
    (first.is_finite() && last.is_finite()).then_some((first + last) / 2.0)
}

impl GapSums {
    /// Of the rows of a dataset.
    pub(crate) fn of(data: &Dataset, gaps: &Gaps, missing: Missing) -> GapSums {
        let bins = (missing == Missing::Median).then(|| {
            let mut bins = BTreeMap::new();
            let mut absent = gaps.rows.iter().peekable();
            for (row, &value) in data.features.column(gaps.feature).iter().enumerate() {
                if absent.next_if(|&&absent| absent as usize == row).is_none() {
                    *bins.entry(bin(value)).or_insert(0) += 1;
                }
            }
            bins
        });
        GapSums { missing: gaps.rows.len() as u64, bins }
    }

    /// Adds those of another node.
    pub(crate) fn merge(&mut self, other: &GapSums) {
        self.missing = self.missing.saturating_add(other.missing);
        if let (Some(bins), Some(others)) = (&mut self.bins, &other.bins) {
            for (bin, count) in others {
                let sum = bins.entry(*bin).or_insert(0);
                *sum = sum.saturating_add(*count);
            }
        }
    }

    /// What a missing value becomes; `None` if there is no value at any node. `sum` is that of the
    /// values, `rows` counts all rows.
    pub(crate) fn fill(&self, rows: u64, sum: f64) -> Option<f32> {
        let count = rows.checked_sub(self.missing).filter(|&count| count > 0)?;
        let Some(bins) = &self.bins else { return Some((sum / count as f64) as f32) };
        let at = |rank: u64| {
            let mut before = 0;
            let found = bins.iter().find(|(_, inside)| {
                before += **inside;
                before > rank
            });
            found.and_then(|(bin, _)| middle(*bin))
        };
        Some(((at((count - 1) / 2)? + at(count / 2)?) / 2.0) as f32)
    }

    /// The maximum length of [`GapSums::to_bytes`].
    pub(crate) fn byte_len(missing: Missing) -> usize {
        if missing == Missing::Median { 12 + 10 * (1 << 16) } else { 8 }
    }

    /// The number of missing values; of a median also the number of bins, then each with its count.
    /// Little-endian.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.missing.to_le_bytes().to_vec();
        if let Some(bins) = &self.bins {
            bytes.extend((bins.len() as u32).to_le_bytes());
            for (bin, count) in bins {
                bytes.extend(bin.to_le_bytes());
                bytes.extend(count.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes the beginning of `bytes`, of a record of so many rows. Returns the rest.
    ///
    /// # Errors
    /// If it is cut short, or the counts are not those of so many rows.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        missing: Missing,
        rows: u64,
    ) -> Result<(GapSums, &[u8]), String> {
        let short = || "counts of missing values are cut short".to_string();
        let (absent, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let absent = u64::from_le_bytes(*absent);
        let present = rows
            .checked_sub(absent)
            .ok_or_else(|| format!("{absent} missing values in {rows} rows"))?;
        if missing != Missing::Median {
            return Ok((GapSums { missing: absent, bins: None }, rest));
        }
        let (count, after) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        rest = after;
        let (mut bins, mut total) = (BTreeMap::new(), 0u64);
        for _ in 0..u32::from_le_bytes(*count) {
            let (bin, after) = rest.split_first_chunk::<2>().ok_or_else(short)?;
            let (inside, after) = after.split_first_chunk::<8>().ok_or_else(short)?;
            let (bin, inside) = (u16::from_le_bytes(*bin), u64::from_le_bytes(*inside));
            total = total.saturating_add(inside);
            if inside == 0 || middle(bin).is_none() || bins.insert(bin, inside).is_some() {
                return Err(format!("{inside} values in bin {bin}"));
            }
            rest = after;
        }
        if total != present {
            return Err(format!("{total} values in bins, but {present} rows have one"));
        }
        Ok((GapSums { missing: absent, bins: Some(bins) }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_the_order_of_numbers() {
        let numbers =
            [-3e38f32, -54.5, -54.0, -1.0, -1e-40, 0.0, 1e-40, 0.5, 1.0, 54.0, 54.5, 3e38];
        for pair in numbers.windows(2) {
            assert!(bin(pair[0]) <= bin(pair[1]), "{pair:?}");
        }
        for number in numbers {
            let middle = middle(bin(number)).unwrap();
            assert!((middle - f64::from(number)).abs() <= f64::from(number.abs()) / 128.0 + 1e-38);
        }
        assert!(middle(bin(f32::INFINITY)).is_none());
    }
}
