//! Zero mean and unit deviation, from sums that nodes can add up without showing rows to each
//! other.

use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

use super::twofold::Twofold;
use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::{Dataset, check_one},
    },
};

/// The share of the mean square down to which the variance is the plain difference of `f64`. Three
/// of their sixteen digits may cancel; where more would, all digits are computed.
const PLAIN: f64 = 1e-3;

/// The maximum number of rows: up to 2^53 whole numbers are exact in `f64`.
const MOST_ROWS: f64 = 9_007_199_254_740_992.0;

/// The largest square of a feature, with room for rounding. Sums over the maximum number of rows
/// are far from the end of `f64`, so no node's record can make the sums of all nodes overflow.
const LARGEST: f64 = f32::MAX as f64 * f32::MAX as f64 * (1.0 + 1e-6);

/// Count, sums and sums of squares of each feature, with twice the digits of `f64`: so the order of
/// rows and their division among nodes hardly ever change a bit of what follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    pub(crate) count: f64,
    /// The sum of each feature.
    sums: Vec<Twofold>,
    /// The sum of the squares of each feature.
    squares: Vec<Twofold>,
}

impl Moments {
    /// The moments of no rows.
    pub fn empty(inputs: usize) -> Moments {
        let zeros = vec![Twofold::default(); inputs];
        Moments { count: 0.0, sums: zeros.clone(), squares: zeros }
    }

    /// The moments of the features of a dataset's rows.
    pub fn of(data: &Dataset) -> Moments {
        Moments::over(data.features.view())
    }

    /// The moments of rows x columns.
    pub(crate) fn over(values: ArrayView2<'_, f32>) -> Moments {
        let mut moments = Moments::empty(values.ncols());
        for row in values.rows() {
            moments.count += 1.0;
            for ((&x, sum), square) in row.iter().zip(&mut moments.sums).zip(&mut moments.squares) {
                let x = f64::from(x);
                *sum = sum.plus(x);
                // The square of an f32 is exact.
                *square = square.plus(x * x);
            }
        }
        moments
    }

    /// Adds the moments of other rows. For equal bits, nodes merge in ascending order.
    ///
    /// # Panics
    /// If they have another number of features.
    pub fn merge(&mut self, other: &Moments) {
        assert_eq!(self.inputs(), other.inputs(), "moments of different features");
        self.count = (self.count + other.count).min(MOST_ROWS);
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            *sum = sum.plus_all(*other);
        }
        for (square, other) in self.squares.iter_mut().zip(&other.squares) {
            *square = square.plus_all(*other);
        }
    }

    /// The sum of a feature.
    pub(crate) fn sum(&self, feature: usize) -> f64 {
        self.sums[feature].value()
    }

    /// Puts a number in the place of this many zeros of a feature.
    pub(crate) fn fill(&mut self, feature: usize, zeros: f64, fill: f32) {
        let fill = f64::from(fill);
        let add = |number: &mut Twofold, value: f64| {
            *number = number.plus_all(Twofold::default().plus(value).times(zeros));
        };
        add(&mut self.sums[feature], fill);
        add(&mut self.squares[feature], fill * fill);
    }

    /// The root of the mean square of a feature, over all rows but this many zeros; 0 of none.
    pub(crate) fn size(&self, feature: usize, zeros: f64) -> f64 {
        let count = self.count - zeros;
        if count > 0.0 { libm::sqrt(self.squares[feature].value() / count) } else { 0.0 }
    }

    /// How many times greater than [`Moments::size`] the numbers of a feature may be that are not
    /// 0: the size divided by the mean, at most the root of the number of rows. A column of many
    /// zeros and ones has the root of its number of rows for each one.
    pub(crate) fn peak(&self, feature: usize, zeros: f64) -> f64 {
        let count = self.count - zeros;
        let mean = self.sums[feature].value().abs() / count;
        (self.size(feature, zeros) / mean).clamp(1.0, libm::sqrt(count).max(1.0))
    }

    /// The mean of a feature, and its variance: the mean squared distance from the mean, divided by
    /// the count, not by one less.
    pub(crate) fn spread(&self, feature: usize) -> (f64, f64) {
        let (count, sum, square) = (self.count, self.sums[feature], self.squares[feature]);
        let (mean, mean_square) = (sum.value() / count, square.value() / count);
        let plain = mean_square - mean * mean;
        if plain > PLAIN * mean_square {
            return (mean, plain);
        }
        let scaled = square.times(count).plus_all(-sum.squared());
        (mean, scaled.value() / count / count)
    }

    pub(crate) fn inputs(&self) -> usize {
        self.sums.len()
    }

    /// The length of [`Moments::to_bytes`].
    pub(crate) fn byte_len(inputs: usize) -> usize {
        inputs.saturating_mul(32).saturating_add(8)
    }

    /// Count, sums, squares as little-endian `f64`: a sum has two of them.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let sums = self.sums.iter().chain(&self.squares).flat_map(|sum| sum.parts());
        let numbers = std::iter::once(self.count).chain(sums);
        numbers.flat_map(f64::to_le_bytes).collect()
    }

    /// Decodes the bytes of [`Moments::to_bytes`] for this many features.
    ///
    /// # Errors
    /// If the length differs, the count is not a whole number from 1, a number is not finite, a
    /// square is negative, or a sum is larger than its squares allow.
    pub(crate) fn from_bytes(bytes: &[u8], inputs: usize) -> Result<Moments, DataError> {
        let fail = |place: &str, value: f64, problem: &str| {
            let (place, value) = (format!("moments, {place}"), Some(value.to_string()));
            Err(DataError::Format { place, value, problem: problem.into() })
        };
        if bytes.len() != Moments::byte_len(inputs) {
            let problem = format!(
                "{} bytes, but count, sums and squares of {inputs} features are needed",
                bytes.len()
            );
            return Err(DataError::format("moments", problem));
        }
        let (words, _) = bytes.as_chunks::<8>();
        let numbers: Vec<f64> = words.iter().map(|word| f64::from_le_bytes(*word)).collect();
        let count = numbers[0];
        if !(1.0..=MOST_ROWS).contains(&count) || count.fract() != 0.0 {
            return fail("count", count, "a whole number from 1 is needed");
        }
        let (pairs, _) = numbers[1..].as_chunks::<2>();
        let (mut sums, mut squares) = (Vec::with_capacity(inputs), Vec::with_capacity(inputs));
        for (i, (sum, square)) in pairs.iter().zip(&pairs[inputs..]).enumerate() {
            let feature = format!("feature {i}");
            let parts = |[high, low]: [f64; 2]| Twofold::of_parts(high, low);
            let (Some(whole), Some(whole_square)) = (parts(*sum), parts(*square)) else {
                return fail(&feature, sum[0], "finite sums are needed");
            };
            let (sum, square) = (whole.value(), whole_square.value());
            if square < 0.0 {
                return fail(&feature, square, "nonnegative squares are needed");
            }
            if square > count * LARGEST {
                let problem = "larger than the squares of this many f32 features can be";
                return fail(&format!("{feature}, sum of squares"), square, problem);
            }
            // The Cauchy-Schwarz inequality, with room for rounding.
            if sum * sum > count * square * (1.0 + 1e-6) {
                return fail(&feature, sum, "the sum is larger than its squares allow");
            }
            sums.push(whole);
            squares.push(whole_square);
        }
        Ok(Moments { count, sums, squares })
    }
}

/// Half the distance between neighbouring `f32` near a number: the most by which a cell near it is
/// rounded.
fn rounding(near: f64) -> f64 {
    step(near) / 2.0
}

/// The distance between neighbouring `f32` near a number.
fn step(near: f64) -> f64 {
    let near = (near.abs() as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
    let power = f32::from_bits(near.to_bits() & 0x7f80_0000);
    f64::from(power) * f64::from(f32::EPSILON)
}

/// The mean to subtract from each feature, and the deviation by which it is then divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The subtrahends, one per feature.
    pub mean: Vec<f64>,
    /// The divisors, one per feature; positive.
    pub deviation: Vec<f64>,
}

impl Scale {
    /// The scale with mean and deviation. A feature that varies by less than the rounding of its
    /// cells is constant: it is divided by 1.
    pub fn from_moments(moments: &Moments) -> Scale {
        Scale::from_spreads((0..moments.inputs()).map(|feature| moments.spread(feature)))
    }

    /// The scale of the mean and the variance of each feature.
    pub(crate) fn from_spreads(spreads: impl Iterator<Item = (f64, f64)>) -> Scale {
        let of = |(mean, variance)| {
            let deviation = libm::sqrt(variance);
            // Not the reverse comparison: NaN, of no rows, must also divide by 1.
            let varies = deviation >= rounding(mean);
            (mean, if varies { deviation } else { 1.0 })
        };
        let (mean, deviation) = spreads.map(of).unzip();
        Scale { mean, deviation }
    }

    /// The distance between the neighbouring `f32` near the mean of a feature; 0 if it is constant.
    pub(crate) fn step(&self, feature: usize) -> f64 {
        let mean = self.mean[feature];
        if self.deviation[feature] == 1.0 { 0.0 } else { step(mean) }
    }

    /// Checks that this scale is for this many features and can be applied.
    ///
    /// # Errors
    /// If the lengths differ, a mean is not finite or a deviation is not positive. `key` is its
    /// place.
    pub(crate) fn check(&self, key: &str, inputs: usize) -> Result<(), ConfigError> {
        let keys = [("mean", &self.mean), ("deviation", &self.deviation)];
        for (part, values) in keys {
            let found = values.len();
            if found != inputs {
                let problem =
                    format!("{found} numbers for {inputs} features: one for each is needed");
                return Err(ConfigError::at(format!("{key}.{part}"), problem));
            }
        }
        for (part, values) in keys {
            let is_mean = part == "mean";
            let fits = |value: &f64| value.is_finite() && (is_mean || *value > 0.0);
            if let Some(i) = values.iter().position(|value| !fits(value)) {
                let kind = if is_mean { "finite" } else { "positive" };
                let more = if is_mean { "" } else { " (1 for a constant feature)" };
                let problem = format!("a {kind} number is needed{more}");
                return Err(ConfigError::new(format!("{key}.{part}[{i}]"), values[i], problem));
            }
        }
        Ok(())
    }
}

impl Dataset {
    /// Replaces every feature by (feature - mean) / deviation, computed in `f64` and rounded once.
    ///
    /// # Errors
    /// If the scale has another number of inputs, or a scaled value is beyond `f32`. The dataset is
    /// then unchanged.
    pub fn apply(&mut self, scale: &Scale) -> Result<(), DataError> {
        scale.check("data.scale", self.inputs()).map_err(|error| error.within(&self.name))?;
        let scaled = |x: f32, column: usize| {
            ((f64::from(x) - scale.mean[column]) / scale.deviation[column]) as f32
        };
        // Two passes instead of a copy: large files fill the memory.
        for (row, values) in self.features.rows().into_iter().enumerate() {
            for (column, &x) in values.iter().enumerate() {
                check_one("scaled features, row", (row, column), scaled(x, column))
                    .map_err(|error| error.within(&self.name))?;
            }
        }
        for mut values in self.features.rows_mut() {
            for (column, x) in values.iter_mut().enumerate() {
                *x = scaled(*x, column);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use crate::data::{Target, load};

    use super::*;

    fn data(features: Array2<f32>) -> Dataset {
        let rows = features.nrows();
        Dataset::new(
            "t",
            features,
            Target::Classes { labels: vec![0; rows], names: vec!["0".into()] },
        )
        .unwrap()
    }

    #[test]
    fn scaled_features_have_zero_mean_and_unit_deviation() {
        let mut cancer = load("breast-cancer", &Default::default()).unwrap();
        let scale = Scale::from_moments(&Moments::of(&cancer));
        cancer.apply(&scale).unwrap();
        for column in cancer.features.columns() {
            let n = column.len() as f64;
            let mean = column.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let variance = column.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
            assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{mean} {variance}");
        }
    }

    #[test]
    fn a_constant_feature_is_divided_by_one() {
        // Sums of 0.1 round, so their difference is not exactly zero.
        let features = Array2::from_shape_fn(
            (1000, 2),
            |(row, column)| if column == 0 { 0.1 } else { row as f32 },
        );
        let mut constant = data(features);
        let scale = Scale::from_moments(&Moments::of(&constant));
        assert_eq!(scale.deviation[0], 1.0);
        assert!((scale.deviation[1] - ((1000f64 * 1000.0 - 1.0) / 12.0).sqrt()).abs() < 1e-9);
        constant.apply(&scale).unwrap();
        assert!(constant.features.column(0).iter().all(|x| x.abs() < 1e-7));
        assert_eq!(Scale::from_moments(&Moments::empty(1)).deviation, [1.0]);
    }

    /// The values of numpy: `numpy.float32(column).astype(float)`, its `mean()` and `std()`.
    #[test]
    fn a_deviation_far_below_the_mean_is_found() {
        let columns = |row: usize| {
            [
                1_700_000_000.0 + 13.0 * row as f64,
                1e6 + 0.0625 * (row % 3) as f64,
                16_777_216.0 + 2.0 * (row % 2) as f64,
                1_700_000_000.0,
            ]
        };
        let table = Array2::from_shape_fn((400, 4), |(row, column)| columns(row)[column] as f32);
        let expected = [
            (1_700_002_593.28, 1_501.328_145_876_177_4),
            (1_000_000.062_343_75, 0.051_062_681_685_723_29),
            (16_777_217.0, 1.0),
            (1_700_000_000.0, 1.0),
        ];
        let whole = Scale::from_moments(&Moments::of(&data(table.clone())));
        for (column, (mean, deviation)) in expected.into_iter().enumerate() {
            assert!((whole.mean[column] / mean - 1.0).abs() < 1e-15, "{column}: {whole:?}");
            let error = (whole.deviation[column] / deviation - 1.0).abs();
            assert!(error < 1e-14, "{column}: {whole:?}");
        }
        // The same bits from any division among nodes, in any order of rows.
        for nodes in [2, 3, 7] {
            let mut pooled = Moments::empty(4);
            for node in 0..nodes {
                let rows: Vec<usize> = (0..400).rev().filter(|row| row % nodes == node).collect();
                pooled.merge(&Moments::of(&data(table.clone()).select(&rows)));
            }
            assert_eq!(Scale::from_moments(&pooled), whole, "{nodes} nodes");
        }
    }

    #[test]
    fn bytes_of_a_peer_are_checked() {
        let moments = Moments::of(&data(array![[1.0, 2.0], [3.0, -4.0]]));
        let bytes = moments.to_bytes();
        assert_eq!(
            (bytes.len(), Moments::from_bytes(&bytes, 2).unwrap()),
            (8 * (1 + 2 * 2 * 2), moments.clone())
        );
        assert!(Moments::from_bytes(&bytes, 3).is_err());
        assert!(Moments::from_bytes(&bytes, usize::MAX).is_err());
        assert!(Moments::from_bytes(&bytes[1..], 2).is_err());
        let spoil = |change: &dyn Fn(&mut Moments)| {
            let mut spoilt = moments.clone();
            change(&mut spoilt);
            Moments::from_bytes(&spoilt.to_bytes(), 2).unwrap_err()
        };
        spoil(&|m| m.count = 0.0);
        spoil(&|m| m.count = 1.5);
        spoil(&|m| m.count = f64::NAN);
        let number = |value| Twofold::default().plus(value);
        spoil(&|m| m.sums[1] = number(f64::INFINITY));
        spoil(&|m| m.sums[1] = number(1e9));
        spoil(&|m| m.squares[0] = number(-1.0));
        spoil(&|m| m.squares[0] = number(f64::NAN));
        spoil(&|m| m.squares[0] = number(1e300));
        let mut spoilt = bytes.clone();
        spoilt[16..24].copy_from_slice(&1.0f64.to_le_bytes());
        Moments::from_bytes(&spoilt, 2).unwrap_err();
        // The largest sums that rows of f32 can make are accepted, and two of them do not overflow.
        let row = [f32::MAX; 2];
        let mut largest = Moments::of(&data(array![row, row]));
        largest.merge(&largest.clone());
        assert_eq!(Moments::from_bytes(&largest.to_bytes(), 2).unwrap(), largest);
    }

    #[test]
    fn a_given_scale_is_checked() {
        let problem = |mean: &[f64], deviation: &[f64]| {
            Scale { mean: mean.to_vec(), deviation: deviation.to_vec() }
                .check("data.scale", 1)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            problem(&[], &[1.0]),
            "data.scale.mean: 0 numbers for 1 features: one for each is needed"
        );
        assert_eq!(
            problem(&[0.0], &[0.0]),
            "data.scale.deviation[0] = 0: a positive number is needed (1 for a constant feature)"
        );
        assert_eq!(
            problem(&[f64::NAN], &[1.0]),
            "data.scale.mean[0] = NaN: a finite number is needed"
        );
    }

    #[test]
    fn a_scale_that_does_not_fit_changes_nothing() {
        let mut data =
            Dataset::new("a", array![[1.0f32], [3.0]], Target::Values(array![[0.0], [0.0]]))
                .unwrap();
        let before = data.clone();
        assert!(data.apply(&Scale { mean: vec![0.0; 2], deviation: vec![1.0; 2] }).is_err());
        assert!(data.apply(&Scale { mean: vec![0.0], deviation: vec![1e-300] }).is_err());
        assert_eq!(data, before);
        data.apply(&Scale { mean: vec![2.0], deviation: vec![0.5] }).unwrap();
        assert_eq!(data.features, array![[-2.0], [2.0]]);
    }
}
