//! Rows that are both trained on and tested on.

use std::collections::HashSet;

use super::dataset::Dataset;

/// The numbers of a row at which a glance looks.
const GLANCE: usize = 6;

/// A remark on test rows whose features are those of a row that is trained on, because the data has
/// rows several times. Targets do not count: a row with another target is learned all the same.
pub(crate) fn on_both_sides<'a>(
    train: impl Iterator<Item = &'a Dataset>,
    tests: impl Iterator<Item = &'a Dataset>,
) -> Option<String> {
    let tests: Vec<&Dataset> = tests.collect();
    let rows = tests.iter().map(|tests| tests.rows()).sum();
    let mut glances = Glances::new(rows);
    tests.iter().for_each(|tests| rows_of(tests).for_each(|row| glances.add(row)));
    let train: HashSet<u64> = (train.filter(|_| rows > 0))
        .flat_map(|train| hashes(train, |row| glances.may_have(row)))
        .collect();
    let tested = tests.iter().flat_map(|tests| hashes(tests, |_| true));
    let trained = tested.filter(|hash| train.contains(hash)).count();
    (trained > 0).then(|| {
        format!(
            "{trained} of the {rows} test rows have the features of rows that are trained on, as \
             the data has rows several times: in part the test figures show what was learned by \
             heart"
        )
    })
}

fn rows_of(data: &Dataset) -> impl Iterator<Item = &[f32]> {
    let all = data.features.as_slice().expect("row-major");
    all.chunks_exact(data.inputs().max(1))
}

/// A glance at some numbers of a row tells of most rows that they are not among the tests.
struct Glances(Vec<u64>);

impl Glances {
    fn new(rows: usize) -> Glances {
        Glances(vec![0; (rows / 4).next_power_of_two()])
    }

    /// The place of a row, and its bit there.
    fn place(&self, row: &[f32]) -> (usize, u64) {
        let last = row.len() - 1;
        let at = |number: usize| bits(row[number * last / (GLANCE - 1)]);
        let hash = (0..GLANCE).fold(0, |hash, number| mix(hash, at(number)));
        (hash as usize >> 6 & (self.0.len() - 1), 1 << (hash & 63))
    }

    fn add(&mut self, row: &[f32]) {
        let (place, bit) = self.place(row);
        self.0[place] |= bit;
    }

    fn may_have(&self, row: &[f32]) -> bool {
        let (place, bit) = self.place(row);
        self.0[place] & bit != 0
    }
}

/// Hashes of the features of these rows.
fn hashes(data: &Dataset, of: impl Fn(&[f32]) -> bool) -> impl Iterator<Item = u64> {
    let mut gaps: Vec<_> = data
        .gaps
        .iter()
        .map(|gaps| (gaps.feature as u64, gaps.rows.iter().copied().peekable()))
        .collect();
    rows_of(data).enumerate().filter_map(move |(at, row)| {
        // A missing value has a 0 in its place.
        let mut missing = 0;
        for (feature, rows) in &mut gaps {
            if rows.next_if(|&absent| absent as usize == at).is_some() {
                missing = mix(missing, *feature + 1);
            }
        }
        of(row).then(|| row.iter().fold(missing, |hash, value| mix(hash, bits(*value))))
    })
}

/// 0 and -0 are one number.
fn bits(value: f32) -> u64 {
    u64::from((value + 0.0).to_bits())
}

fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Axis, concatenate};

    use super::super::{Gaps, Target};
    use super::*;

    fn data(features: Array2<f32>) -> Dataset {
        let target = Target::Values(Array2::zeros((features.nrows(), 1)));
        Dataset::new("t", features, target).unwrap()
    }

    #[test]
    fn rows_on_both_sides_are_counted() {
        for width in [1, 7, 8, 9, 31] {
            let number = |(row, column): (usize, usize)| (row * width + column) as f32;
            let all = data(Array2::from_shape_fn((20, width), number));
            let (train, test) = (all.select(&[0, 1, 2, 3, 4]), all.select(&[3, 9, 4, 3]));
            let told = |train: &Dataset, test: &Dataset| {
                on_both_sides([train].into_iter(), [test].into_iter())
            };
            let found = told(&train, &test).unwrap();
            assert!(found.starts_with("3 of the 4 test rows"), "{found}");
            assert_eq!(told(&train, &all.select(&[9, 10])), None);
            assert_eq!(on_both_sides([&all].into_iter(), std::iter::empty()), None);
            // Each number counts.
            let mut other = test.clone();
            other.features.rows_mut().into_iter().for_each(|mut row| row[width - 1] += 0.5);
            assert_eq!(told(&all, &other), None);
            // A missing value is no 0.
            let zeros = data(Array2::zeros((1, width)));
            let mut missing = zeros.clone();
            missing.gaps = vec![Gaps { feature: width - 1, rows: vec![0] }];
            assert_eq!(told(&zeros, &missing), None);
            assert!(told(&missing, &missing).is_some());
            let negative = data(-Array2::<f32>::zeros((1, width)));
            assert!(told(&zeros, &negative).is_some());
            let twice = concatenate![Axis(0), all.features, all.features];
            assert!(told(&data(twice), &all).unwrap().starts_with("20 of the 20"));
        }
    }
}
