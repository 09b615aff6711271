//! Rows that are both trained on and tested on.

use std::collections::HashMap;

use super::dataset::Dataset;

/// Numbers that are hashed side by side.
const LANES: usize = 8;

/// A remark on test rows whose features are those of a row that is trained on, because the data has
/// rows several times. Targets do not count: a row with another target is learned all the same.
pub(crate) fn on_both_sides<'a>(
    train: impl Iterator<Item = &'a Dataset>,
    tests: impl Iterator<Item = &'a Dataset>,
) -> Option<String> {
    let mut found: HashMap<u64, (usize, bool)> = HashMap::new();
    let mut rows = 0;
    for tests in tests {
        rows += tests.rows();
        hashes(tests).into_iter().for_each(|hash| found.entry(hash).or_default().0 += 1);
    }
    if rows == 0 {
        return None;
    }
    for train in train {
        for hash in hashes(train) {
            if let Some((_, is_trained)) = found.get_mut(&hash) {
                *is_trained = true;
            }
        }
    }
    let trained: usize = found.values().filter(|(_, is)| *is).map(|(count, _)| count).sum();
    (trained > 0).then(|| {
        format!(
            "{trained} of the {rows} test rows have the features of rows that are trained on, as \
             the data has rows several times: in part the test figures show what was learned by \
             heart"
        )
    })
}

/// A hash of the features of each row.
fn hashes(data: &Dataset) -> Vec<u64> {
    let of = |values: ndarray::ArrayView1<'_, f32>| hash(values.to_slice().expect("row-major"));
    let mut hashes: Vec<u64> = data.features.rows().into_iter().map(of).collect();
    // A missing value has a 0 in its place.
    for gaps in &data.gaps {
        for &row in &gaps.rows {
            let hash = &mut hashes[row as usize];
            *hash = mix(*hash, gaps.feature as u64 + 1);
        }
    }
    hashes
}

fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 32
}

fn hash(values: &[f32]) -> u64 {
    // 0 and -0 are one number.
    let bits = |value: &f32| u64::from((value + 0.0).to_bits());
    let mut lanes = [0; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane = mix(*lane, bits(value)));
    }
    let all = lanes.into_iter().chain(rest.iter().map(bits));
    all.fold(values.len() as u64, |hash, value| mix(hash, value))
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
