//! How good predictions are: figures that a practitioner compares, beside trivial predictions.
//!
//! Everything follows from counts and sums in `f64`; only the area under the curve needs the
//! predictions sorted.

use std::collections::BTreeMap;

use ndarray::{ArrayView2, Axis};

use super::{
    ModelError,
    confidence::{Bin, CONFIDENCE_BINS, most_probable},
    counts::{ClassCounts, ValueSums},
};

/// Areas under curves are computed for up to this many classes: each sorts all rows.
pub const MAX_CURVES: usize = 256;

/// The quality of predicted classes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassQuality {
    classes: usize,
    /// The rows of each class.
    rows: Vec<u64>,
    /// The rows that were predicted to be of each class.
    predicted: Vec<u64>,
    /// (class, predicted class) -> rows; absent if none.
    confusion: BTreeMap<(u32, u32), u64>,
    areas: Vec<Option<f64>>,
    bins: Vec<Bin>,
}

impl ClassQuality {
    /// Compares predicted probabilities (rows x classes) with the classes of the rows. A row is
    /// predicted to be of its most probable class, of equal ones the first.
    ///
    /// # Errors
    /// If a probability is not finite.
    ///
    /// # Panics
    /// If there is not one label a row, or a label is not below the number of classes.
    pub fn new(
        probabilities: ArrayView2<'_, f32>,
        labels: &[u32],
    ) -> Result<ClassQuality, ModelError> {
        let classes = probabilities.ncols();
        assert_eq!(probabilities.nrows(), labels.len(), "one label a row");
        let mut quality = ClassQuality {
            classes,
            rows: vec![0; classes],
            predicted: vec![0; classes],
            confusion: BTreeMap::new(),
            areas: Vec::new(),
            bins: vec![Bin::default(); CONFIDENCE_BINS],
        };
        for (row, (of_row, &label)) in probabilities.rows().into_iter().zip(labels).enumerate() {
            check_finite(row, of_row.iter())?;
            let (best, confidence) = most_probable(of_row);
            quality.rows[label as usize] += 1;
            quality.predicted[best] += 1;
            *quality.confusion.entry((label, best as u32)).or_default() += 1;
            quality.bins[Bin::of(confidence)].add(confidence, best == label as usize);
        }
        if classes <= MAX_CURVES {
            quality.areas = (0..classes).map(|class| area(probabilities, labels, class)).collect();
        }
        Ok(quality)
    }

    /// The figures that follow from counts. Areas are those of scores that are equal within a bin;
    /// without a confusion matrix only the rows that were found are known, and no mistakes.
    pub(crate) fn of_counts(counts: &ClassCounts) -> ClassQuality {
        let classes = counts.classes();
        let mut quality = ClassQuality {
            classes,
            rows: counts.rows().to_vec(),
            predicted: counts.predicted().to_vec(),
            confusion: BTreeMap::new(),
            areas: (0..classes).map(|class| counts.area(class)).collect(),
            bins: counts.bins().to_vec(),
        };
        for (class, &right) in counts.right().iter().enumerate() {
            quality.confusion.insert((class as u32, class as u32), right);
        }
        if counts.is_detailed() {
            for (class, predicted) in (0..classes * classes).map(|at| (at / classes, at % classes))
            {
                let rows = counts.confused(class, predicted);
                quality.confusion.insert((class as u32, predicted as u32), rows);
            }
        }
        quality.confusion.retain(|_, rows| *rows > 0);
        quality
    }

    /// The number of classes of the model; rows may lack some.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The rows of each class.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// The rows that were predicted to be of each class.
    pub fn predicted(&self) -> &[u64] {
        &self.predicted
    }

    /// The rows of this class that were predicted to be of the other.
    pub fn confused(&self, class: usize, predicted: usize) -> u64 {
        self.confusion.get(&(class as u32, predicted as u32)).copied().unwrap_or(0)
    }

    /// The mistakes, the most frequent first: class, predicted class, rows.
    pub fn mistakes(&self) -> Vec<(usize, usize, u64)> {
        let mut mistakes: Vec<(usize, usize, u64)> = self
            .confusion
            .iter()
            .filter(|((class, predicted), _)| class != predicted)
            .map(|(&(class, predicted), &rows)| (class as usize, predicted as usize, rows))
            .collect();
        mistakes.sort_by_key(|&(class, predicted, rows)| (u64::MAX - rows, class, predicted));
        mistakes
    }

    /// The rows that were classified correctly.
    pub fn correct(&self) -> u64 {
        (0..self.classes).map(|class| self.confused(class, class)).sum()
    }

    /// The share of rows that were classified correctly.
    pub fn accuracy(&self) -> f64 {
        self.correct() as f64 / self.total()
    }

    /// Of the rows of this class, the share that was found; `None` if there are none.
    pub fn recall(&self, class: usize) -> Option<f64> {
        share(self.confused(class, class), self.rows[class])
    }

    /// Of the rows that were predicted to be of this class, the share that is; `None` if there are
    /// none.
    pub fn precision(&self, class: usize) -> Option<f64> {
        share(self.confused(class, class), self.predicted[class])
    }

    /// The mean recall of the classes that have rows: always predicting one of k such classes gives
    /// 1/k.
    pub fn balanced_accuracy(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.recall(class))).unwrap_or(f64::NAN)
    }

    /// The area under the receiver operating characteristic of this class against all others: the
    /// probability that a row of the class has a greater score than a row of another, where equal
    /// scores count one half. `None` if the class has no rows or all, or beyond [`MAX_CURVES`]
    /// classes.
    pub fn area(&self, class: usize) -> Option<f64> {
        self.areas.get(class).copied().flatten()
    }

    /// The mean of the areas of all classes that have one.
    pub fn mean_area(&self) -> Option<f64> {
        mean(self.areas.iter().copied().flatten())
    }

    /// Ten bins of equal width of the greatest probability.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// The expected calibration error (Naeini, Cooper and Hauskrecht, "Obtaining well calibrated
    /// probabilities using Bayesian binning", 2015): the mean over rows of the distance between
    /// confidence and accuracy of their bin.
    pub fn calibration_error(&self) -> f64 {
        let distance = |bin: &Bin| (bin.confidence - bin.correct as f64).abs();
        self.bins.iter().map(distance).sum::<f64>() / self.total()
    }

    /// The most frequent class of these rows and its share: the accuracy of always predicting it.
    pub fn baseline(&self) -> (usize, f64) {
        let (mut class, mut rows) = (0, 0);
        for (other, &count) in self.rows.iter().enumerate() {
            if count > rows {
                (class, rows) = (other, count);
            }
        }
        (class, rows as f64 / self.total())
    }

    fn total(&self) -> f64 {
        self.rows.iter().sum::<u64>() as f64
    }
}

/// The quality of a predicted number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ValueQuality {
    /// The mean of |predicted - true|.
    pub mae: f64,
    /// The root of the mean square error.
    pub rmse: f64,
    /// 1 - sum of square errors / sum of square distances from the mean of these rows; `None` if
    /// all are equal.
    pub r2: Option<f64>,
    /// The root of the mean square error of always predicting one number: the mean of these rows,
    /// unless another one is given.
    pub baseline: f64,
}

impl ValueQuality {
    /// Compares predicted numbers with the true ones, both rows x outputs: one result an output.
    ///
    /// # Errors
    /// If a predicted number is not finite.
    ///
    /// # Panics
    /// If the shapes differ, or there are no rows.
    pub fn of_outputs(
        predicted: ArrayView2<'_, f32>,
        values: ArrayView2<'_, f32>,
    ) -> Result<Vec<ValueQuality>, ModelError> {
        assert_eq!(predicted.dim(), values.dim(), "one prediction a value");
        for (row, of_row) in predicted.rows().into_iter().enumerate() {
            check_finite(row, of_row.iter())?;
        }
        let outputs = predicted.axis_iter(Axis(1)).zip(values.axis_iter(Axis(1)));
        Ok(outputs
            .map(|(predicted, values)| {
                let mut sums = ValueSums::around(values.iter());
                sums.add(predicted.iter().zip(values));
                ValueQuality::of_sums(&sums, sums.mean)
            })
            .collect())
    }

    /// The figures that follow from sums, beside always predicting `middle`.
    pub(crate) fn of_sums(sums: &ValueSums, middle: f64) -> ValueQuality {
        let rows = sums.rows as f64;
        ValueQuality {
            mae: sums.absolute / rows,
            rmse: (sums.square / rows).sqrt(),
            r2: (sums.around > 0.0).then(|| 1.0 - sums.square / sums.around),
            baseline: (sums.around / rows + (sums.mean - middle).powi(2)).sqrt(),
        }
    }
}

fn check_finite<'a>(
    row: usize,
    mut values: impl Iterator<Item = &'a f32>,
) -> Result<(), ModelError> {
    match values.find(|value| !value.is_finite()) {
        Some(&output) => Err(ModelError::Diverged { row, output }),
        None => Ok(()),
    }
}

/// Mann and Whitney's statistic over its maximum, with mean ranks for equal scores.
fn area(probabilities: ArrayView2<'_, f32>, labels: &[u32], class: usize) -> Option<f64> {
    let mut scores: Vec<(f32, bool)> = labels
        .iter()
        .zip(probabilities.column(class))
        .map(|(&label, &p)| (p, label as usize == class))
        .collect();
    scores.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ranks, mut positives) = (0.0, 0.0);
    let mut before = 0;
    // Zeros of both signs are equal, and adjacent.
    for equal in scores.chunk_by(|a, b| a.0 == b.0) {
        let found = equal.iter().filter(|(_, positive)| *positive).count() as f64;
        ranks += found * (before as f64 + (equal.len() as f64 + 1.0) / 2.0);
        positives += found;
        before += equal.len();
    }
    let negatives = before as f64 - positives;
    let pairs = positives * negatives;
    (pairs > 0.0).then(|| (ranks - positives * (positives + 1.0) / 2.0) / pairs)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn figures_of_a_small_table() {
        let p = array![[0.9f32, 0.1, 0.0], [0.4, 0.6, 0.0], [0.2, 0.8, 0.0], [0.05, 0.95, 0.0]];
        let quality = ClassQuality::new(p.view(), &[0, 0, 1, 0]).unwrap();
        assert_eq!((quality.rows(), quality.predicted()), (&[3, 1, 0][..], &[1, 3, 0][..]));
        assert_eq!(quality.correct(), 2);
        assert_eq!(quality.recall(0), Some(1.0 / 3.0));
        assert_eq!((quality.recall(1), quality.recall(2)), (Some(1.0), None));
        assert_eq!((quality.precision(1), quality.precision(2)), (Some(1.0 / 3.0), None));
        assert!((quality.balanced_accuracy() - 2.0 / 3.0).abs() < 1e-15);
        assert_eq!(quality.baseline(), (0, 0.75));
        assert_eq!(quality.mistakes(), [(0, 1, 2)]);
        // Of class 1 against the rest, 0.8 is above 0.1 and 0.6 and below 0.95.
        assert_eq!((quality.area(1), quality.area(2)), (Some(2.0 / 3.0), None));
        let expected = (0.1 + 0.6 + 0.2 + 0.95) / 4.0;
        assert!((quality.calibration_error() - expected).abs() < 1e-7);
    }

    #[test]
    fn the_area_is_the_share_of_pairs_in_order() {
        let mut random = Stream::new(1, Purpose::Split).sequence();
        for rows in [2, 3, 10, 60] {
            // Few different scores, so that many are equal.
            let mut draw = |below: u64| (random.word() % below) as u32;
            let labels: Vec<u32> = (0..rows).map(|_| draw(2)).collect();
            let scores: Vec<f32> = (0..rows).map(|_| draw(7) as f32 / 7.0).collect();
            let p = Array2::from_shape_fn((rows, 2), |(row, class)| {
                if class == 1 { scores[row] } else { 1.0 - scores[row] }
            });
            let quality = ClassQuality::new(p.view(), &labels).unwrap();
            let (mut won, mut pairs) = (0.0, 0.0);
            for a in (0..rows).filter(|&a| labels[a] == 1) {
                for b in (0..rows).filter(|&b| labels[b] == 0) {
                    pairs += 1.0;
                    won += match scores[a].total_cmp(&scores[b]) {
                        std::cmp::Ordering::Greater => 1.0,
                        std::cmp::Ordering::Equal => 0.5,
                        std::cmp::Ordering::Less => 0.0,
                    };
                }
            }
            match quality.area(1) {
                Some(area) => assert!((area - won / pairs).abs() < 1e-12, "{area}"),
                None => assert_eq!(pairs, 0.0),
            }
        }
    }

    #[test]
    fn figures_of_numbers() {
        let predicted = array![[1.0f32, 5.0], [2.0, 5.0], [6.0, 5.0]];
        let values = array![[1.0f32, 5.0], [4.0, 5.0], [4.0, 5.0]];
        let both = ValueQuality::of_outputs(predicted.view(), values.view()).unwrap();
        assert!((both[0].mae - 4.0 / 3.0).abs() < 1e-15);
        assert!((both[0].rmse - (8.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert!((both[0].r2.unwrap() - (1.0 - 8.0 / 6.0)).abs() < 1e-15);
        assert!((both[0].baseline - 2f64.sqrt()).abs() < 1e-15);
        let same = ValueQuality { mae: 0.0, rmse: 0.0, r2: None, baseline: 0.0 };
        assert_eq!(both[1], same);
    }

    #[test]
    fn outputs_that_are_not_finite_are_refused() {
        let p = array![[0.5f32, 0.5], [f32::NAN, 0.5]];
        let error = ClassQuality::new(p.view(), &[0, 1]).unwrap_err();
        assert!(matches!(error, ModelError::Diverged { row: 1, .. }), "{error}");
        assert!(ValueQuality::of_outputs(p.view(), p.view()).is_err());
    }
}
