//! Zero mean and unit deviation, from sums that nodes can add up without showing rows to each
//! other.

use serde::{Deserialize, Serialize};

use super::{DataError, dataset::Dataset};
use crate::config::ConfigError;

/// Variance below this share of the mean square counts as a constant feature. It is four digits
/// above the rounding that the sum of a million equal `f64` can leave, and no larger than the steps
/// of `f32` features (relative steps of 6e-8, squared, are 4e-15, but such a feature has no
/// information).
const CONSTANT: f64 = 1e-12;

/// The maximum number of rows: up to 2^53 whole numbers are exact in `f64`.
const MOST_ROWS: f64 = 9_007_199_254_740_992.0;

/// The largest square of a feature, with room for rounding. Sums over the maximum number of rows
/// are far from the end of `f64`, so no node's record can make the sums of all nodes overflow.
const LARGEST: f64 = f32::MAX as f64 * f32::MAX as f64 * (1.0 + 1e-6);

/// Count, sums and sums of squares of each feature, in `f64`, added in the order of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The number of rows.
    pub(crate) count: f64,
    /// The sum of each feature.
    pub(crate) sums: Vec<f64>,
    /// The sum of the squares of each feature.
    pub(crate) squares: Vec<f64>,
}

impl Moments {
    /// The moments of no rows.
    pub fn empty(inputs: usize) -> Moments {
        Moments { count: 0.0, sums: vec![0.0; inputs], squares: vec![0.0; inputs] }
    }

    /// The moments of a dataset's rows.
    pub fn of(data: &Dataset) -> Moments {
        let mut moments = Moments::empty(data.inputs());
        for row in data.features.rows() {
            moments.count += 1.0;
            for ((&x, sum), square) in row.iter().zip(&mut moments.sums).zip(&mut moments.squares) {
                let x = f64::from(x);
                *sum += x;
                *square += x * x;
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
            *sum += other;
        }
        for (square, other) in self.squares.iter_mut().zip(&other.squares) {
            *square += other;
        }
    }

    /// The number of features.
    pub(crate) fn inputs(&self) -> usize {
        self.sums.len()
    }

    /// Count, sums, squares as little-endian `f64`.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let numbers = std::iter::once(&self.count).chain(&self.sums).chain(&self.squares);
        numbers.flat_map(|number| number.to_le_bytes()).collect()
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
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty()
            || Some(words.len()) != inputs.checked_mul(2).and_then(|n| n.checked_add(1))
        {
            let problem = format!(
                "{} bytes, but count, sums and squares of {inputs} features are needed",
                bytes.len()
            );
            return Err(DataError::format("moments", problem));
        }
        let count = f64::from_le_bytes(words[0]);
        if !(1.0..=MOST_ROWS).contains(&count) || count.fract() != 0.0 {
            return fail("count", count, "a whole number from 1 is needed");
        }
        let numbers: Vec<f64> = words[1..].iter().map(|word| f64::from_le_bytes(*word)).collect();
        let (sums, squares) = numbers.split_at(inputs);
        for (i, (&sum, &square)) in sums.iter().zip(squares).enumerate() {
            let feature = format!("feature {i}");
            if !sum.is_finite() || !square.is_finite() || square < 0.0 {
                return fail(&feature, sum, "finite sums and nonnegative squares are needed");
            }
            if square > count * LARGEST {
                let problem = "larger than the squares of this many f32 features can be";
                return fail(&format!("{feature}, sum of squares"), square, problem);
            }
            // The Cauchy-Schwarz inequality, with room for rounding.
            let bound = count * square;
            if sum * sum > bound * (1.0 + 1e-6) {
                return fail(&feature, sum, "the sum is larger than its squares allow");
            }
        }
        Ok(Moments { count, sums: sums.to_vec(), squares: squares.to_vec() })
    }
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
    /// The scale with mean and deviation (square root of the mean squared distance from the mean,
    /// divided by the count, not by one less). A constant feature is divided by 1.
    pub fn from_moments(moments: &Moments) -> Scale {
        let of = |(&sum, &square): (&f64, &f64)| {
            let mean = sum / moments.count;
            let mean_square = square / moments.count;
            let variance = mean_square - mean * mean;
            // Not the reverse comparison: NaN, of no rows, must also divide by 1.
            let varies = variance > CONSTANT * mean_square;
            (mean, if varies { libm::sqrt(variance) } else { 1.0 })
        };
        let (mean, deviation) = moments.sums.iter().zip(&moments.squares).map(of).unzip();
        Scale { mean, deviation }
    }

    /// Checks that this scale is for this many features and can be applied.
    ///
    /// # Errors
    /// If the lengths differ, a mean is not finite or a deviation is not positive; the place is
    /// `data.scale`.
    pub(crate) fn check(&self, inputs: usize) -> Result<(), ConfigError> {
        let keys = [("mean", &self.mean), ("deviation", &self.deviation)];
        for (key, values) in keys {
            let found = values.len();
            if found != inputs {
                let problem =
                    format!("{found} numbers for {inputs} features: one for each is needed");
                return Err(ConfigError::at(format!("data.scale.{key}"), problem));
            }
        }
        for (key, values) in keys {
            let is_mean = key == "mean";
            let fits = |value: &f64| value.is_finite() && (is_mean || *value > 0.0);
            if let Some(i) = values.iter().position(|value| !fits(value)) {
                let kind = if is_mean { "finite" } else { "positive" };
                let more = if is_mean { "" } else { " (1 for a constant feature)" };
                let problem = format!("a {kind} number is needed{more}");
                return Err(ConfigError::new(format!("data.scale.{key}[{i}]"), values[i], problem));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::super::{Target, load};
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

    #[test]
    fn bytes_of_a_peer_are_checked() {
        let moments = Moments::of(&data(array![[1.0, 2.0], [3.0, -4.0]]));
        let bytes = moments.to_bytes();
        assert_eq!(
            (bytes.len(), Moments::from_bytes(&bytes, 2).unwrap()),
            (8 * (1 + 2 * 2), moments.clone())
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
        spoil(&|m| m.sums[1] = f64::INFINITY);
        spoil(&|m| m.sums[1] = 1e9);
        spoil(&|m| m.squares[0] = -1.0);
        spoil(&|m| m.squares[0] = f64::NAN);
        spoil(&|m| m.squares[0] = 1e300);
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
                .check(1)
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
}
