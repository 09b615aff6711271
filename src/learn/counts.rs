//! Counts and sums from which figures of quality follow. Those of several nodes add up, and they
//! hold no row: so they may leave a node.

use ndarray::{Array2, ArrayView2, Axis, Slice};
use serde::{Deserialize, Serialize};

use super::{
    BLOCK_ROWS, Model,
    confidence::{Bin, CONFIDENCE_BINS, most_probable},
};
use crate::data::{Dataset, Target};

/// The greatest number of classes with a confusion matrix and scores.
pub(crate) const MOST_CONFUSED: usize = 64;

/// The greatest number of classes that are counted at all.
pub(super) const MOST_COUNTED: usize = 4096;

/// The greatest number of predicted values that are summed.
pub(crate) const MOST_OUTPUTS: usize = 64;

/// The greatest number of bins of the scores of one class, and of all classes together.
const SCORE_BINS: usize = 256;
const ALL_SCORE_BINS: usize = 4096;

/// Counts above it are not exact in `f64`.
const MOST_ROWS: u64 = 1 << 53;

/// How good a model is on some rows, in counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Counts {
    /// Of predicted classes: how often each is taken for each.
    Classes(ClassCounts),
    /// Of predicted numbers: one entry an output.
    Values(Vec<ValueSums>),
}

impl Counts {
    /// Counts a model's predictions for these rows. `None` if there are more classes or outputs
    /// than are counted, or a prediction is not finite.
    ///
    /// # Panics
    /// If the rows or `x` do not fit the model.
    pub(crate) fn of(model: &Model, x: &[f32], data: &Dataset) -> Option<Counts> {
        let outputs = model.shape().outputs;
        match &data.target {
            Target::Classes { labels, .. } => {
                let mut counts = ClassCounts::new(outputs)?;
                let mut whole = true;
                predict(model, x, data, |start, predicted| {
                    let labels = &labels[start..start + predicted.nrows()];
                    whole &= counts.add(predicted, labels).is_some();
                });
                whole.then_some(Counts::Classes(counts))
            }
            Target::Values(values) => {
                if outputs > MOST_OUTPUTS {
                    return None;
                }
                let mut sums: Vec<ValueSums> = values
                    .axis_iter(Axis(1))
                    .map(|values| ValueSums::around(values.iter()))
                    .collect();
                predict(model, x, data, |start, predicted| {
                    let rows = Slice::from(start..start + predicted.nrows());
                    let values = values.slice_axis(Axis(0), rows);
                    let outputs = predicted.axis_iter(Axis(1)).zip(values.axis_iter(Axis(1)));
                    for (sums, (predicted, values)) in sums.iter_mut().zip(outputs) {
                        sums.add(predicted.iter().zip(values));
                    }
                });
                sums.iter().all(ValueSums::is_possible).then_some(Counts::Values(sums))
            }
        }
    }

    /// Adds the counts of other rows. `None` if they are not of the same outputs.
    #[must_use]
    pub(crate) fn merged(self, other: &Counts) -> Option<Counts> {
        match (self, other) {
            (Counts::Classes(one), Counts::Classes(other)) => {
                one.merged(other).map(Counts::Classes)
            }
            (Counts::Values(one), Counts::Values(other)) if one.len() == other.len() => {
                Some(Counts::Values(one.iter().zip(other).map(|(a, b)| a.merged(b)).collect()))
            }
            _ => None,
        }
    }

    /// Checks that they can be those of a model with this many outputs on this many rows.
    ///
    /// # Errors
    /// The value that is impossible.
    pub(crate) fn check(&self, outputs: usize, rows: u64) -> Result<(), String> {
        let (has, counted) = match self {
            Counts::Classes(counts) => (counts.classes, counts.total()),
            Counts::Values(sums) => {
                let wrong = sums.iter().find(|sums| sums.rows != rows || !sums.is_possible());
                if let Some(wrong) = wrong {
                    return Err(format!("sums that {rows} rows cannot have: {wrong:?}"));
                }
                (sums.len(), rows)
            }
        };
        if (has, counted) == (outputs, rows) {
            return Ok(());
        }
        Err(format!("counts of {counted} rows and {has} outputs: expected {rows} and {outputs}"))
    }
}

/// Predicts block by block; `take` gets the first row of each block and its predictions.
fn predict(
    model: &Model,
    x: &[f32],
    data: &Dataset,
    mut take: impl FnMut(usize, ArrayView2<'_, f32>),
) {
    let mut learner = model.learner();
    let mut out = Array2::zeros((BLOCK_ROWS.min(data.rows()), model.shape().outputs));
    for start in (0..data.rows()).step_by(BLOCK_ROWS) {
        let rows = BLOCK_ROWS.min(data.rows() - start);
        let features = data.features.slice_axis(Axis(0), Slice::from(start..start + rows));
        let block = Slice::from(0..rows);
        learner.predict(x, features, out.slice_axis_mut(Axis(0), block));
        take(start, out.slice_axis(Axis(0), block));
    }
}

/// How often each class was predicted for rows of each class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub struct ClassCounts {
    classes: usize,
    /// The rows of each class.
    rows: Vec<u64>,
    /// The rows that were predicted to be of each class.
    predicted: Vec<u64>,
    /// Of the rows of each class, those that were found.
    right: Vec<u64>,
    /// classes x classes: rows of a class that were predicted to be of another. Empty beyond
    /// `MOST_CONFUSED` classes.
    confusion: Vec<u64>,
    /// classes x bins x 2: the rows of other classes, and those of this class, whose probability of
    /// this class is in the bin. Empty where `confusion` is.
    scores: Vec<u64>,
    bins: Vec<Bin>,
}

impl ClassCounts {
    /// Counts of no rows; `None` if so many classes are not counted.
    pub(crate) fn new(classes: usize) -> Option<ClassCounts> {
        let detailed = if classes <= MOST_CONFUSED { classes } else { 0 };
        (1..=MOST_COUNTED).contains(&classes).then(|| ClassCounts {
            classes,
            rows: vec![0; classes],
            predicted: vec![0; classes],
            right: vec![0; classes],
            confusion: vec![0; detailed * detailed],
            scores: vec![0; 2 * detailed * score_bins(classes)],
            bins: vec![Bin::default(); CONFIDENCE_BINS],
        })
    }

    /// Counts rows: their probabilities, rows x classes, and their classes. `None` if a probability
    /// is not finite; then the counts are of no use.
    ///
    /// # Panics
    /// If there is not one label a row, or a label is not below the number of classes.
    pub(crate) fn add(&mut self, probabilities: ArrayView2<'_, f32>, labels: &[u32]) -> Option<()> {
        assert_eq!(probabilities.dim(), (labels.len(), self.classes), "one label a row");
        for (of_row, &label) in probabilities.rows().into_iter().zip(labels) {
            if of_row.iter().any(|p| !p.is_finite()) {
                return None;
            }
            let (label, (best, confidence)) = (label as usize, most_probable(of_row));
            self.rows[label] += 1;
            self.predicted[best] += 1;
            self.right[label] += u64::from(best == label);
            self.bins[Bin::of(confidence)].add(confidence, best == label);
            if !self.is_detailed() {
                continue;
            }
            self.confusion[label * self.classes + best] += 1;
            let bins = score_bins(self.classes);
            for (class, &p) in of_row.iter().enumerate() {
                let bin = class * bins + score_bin(p, bins);
                self.scores[2 * bin + usize::from(class == label)] += 1;
            }
        }
        Some(())
    }

    /// The number of classes of the model; rows may lack some.
    pub(crate) fn classes(&self) -> usize {
        self.classes
    }

    /// Whether there is a confusion matrix and areas under curves.
    pub(crate) fn is_detailed(&self) -> bool {
        !self.confusion.is_empty()
    }

    /// The rows of each class.
    pub(crate) fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// The rows that were predicted to be of each class.
    pub(crate) fn predicted(&self) -> &[u64] {
        &self.predicted
    }

    /// Of the rows of each class, those that were found.
    pub(crate) fn right(&self) -> &[u64] {
        &self.right
    }

    /// Ten bins of the greatest probability.
    pub(crate) fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// Rows of this class that were predicted to be of the other, if there is a confusion matrix.
    pub(super) fn confused(&self, class: usize, predicted: usize) -> u64 {
        self.confusion.get(class * self.classes + predicted).copied().unwrap_or(0)
    }

    /// The area under the receiver operating characteristic of this class against all others, of
    /// scores that are equal within a bin; `None` if the class has no rows or all, or without
    /// scores.
    pub(super) fn area(&self, class: usize) -> Option<f64> {
        let bins = score_bins(self.classes);
        let scores = self.scores.get(2 * class * bins..2 * (class + 1) * bins)?;
        let (mut below, mut won, mut positives) = (0.0, 0.0, 0.0);
        for bin in scores.as_chunks::<2>().0 {
            let [others, of_class] = bin.map(|count| count as f64);
            won += of_class * (below + others / 2.0);
            (below, positives) = (below + others, positives + of_class);
        }
        let pairs = below * positives;
        (pairs > 0.0).then(|| won / pairs)
    }

    /// The receiver operating characteristic of this class against all others: for each bin of
    /// scores with rows, from the greatest down, the shares of the rows of other classes and of
    /// this class that score as high or higher. It begins with (0, 0). `None` where [`Self::area`]
    /// is.
    pub(crate) fn characteristic(&self, class: usize) -> Option<Vec<[f64; 2]>> {
        self.area(class)?;
        let bins = score_bins(self.classes);
        let scores = self.scores[2 * class * bins..2 * (class + 1) * bins].as_chunks::<2>().0;
        let add = |[a, b]: [u64; 2], [c, d]: &[u64; 2]| [a + c, b + d];
        let all = scores.iter().fold([0, 0], add).map(|count| count as f64);
        let (mut above, mut points) = ([0, 0], vec![[0.0, 0.0]]);
        for bin in scores.iter().rev().filter(|bin| **bin != [0, 0]) {
            above = add(above, bin);
            points.push([above[0] as f64 / all[0], above[1] as f64 / all[1]]);
        }
        Some(points)
    }

    fn total(&self) -> u64 {
        self.rows.iter().sum()
    }

    fn merged(mut self, other: &ClassCounts) -> Option<ClassCounts> {
        if self.classes != other.classes {
            return None;
        }
        let pairs = [
            (&mut self.rows, &other.rows),
            (&mut self.predicted, &other.predicted),
            (&mut self.right, &other.right),
            (&mut self.confusion, &other.confusion),
            (&mut self.scores, &other.scores),
        ];
        for (one, other) in pairs {
            one.iter_mut().zip(other).for_each(|(one, other)| *one = one.saturating_add(*other));
        }
        for (one, other) in self.bins.iter_mut().zip(&other.bins) {
            one.rows = one.rows.saturating_add(other.rows);
            one.correct = one.correct.saturating_add(other.correct);
            one.confidence += other.confidence;
        }
        Some(self)
    }
}

/// The bins of each class: fewer of more classes, so that all have at most [`ALL_SCORE_BINS`].
fn score_bins(classes: usize) -> usize {
    SCORE_BINS.min(ALL_SCORE_BINS / classes.max(1))
}

/// The bin of a probability. Bins have equal widths of arcsin(sqrt(p)), so that they are narrow
/// near 0 and 1, where most probabilities are.
fn score_bin(p: f32, bins: usize) -> usize {
    let angle = libm::asin(f64::from(p).clamp(0.0, 1.0).sqrt());
    ((angle / std::f64::consts::FRAC_PI_2 * bins as f64) as usize).min(bins - 1)
}

/// Sums over the rows of one predicted number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueSums {
    /// The number of rows in the sums.
    pub rows: u64,
    /// The sum of |predicted - true|.
    pub absolute: f64,
    /// The sum of (predicted - true)^2.
    pub square: f64,
    /// The mean of the true values.
    pub mean: f64,
    /// The sum of (true - mean)^2.
    pub around: f64,
}

impl ValueSums {
    /// The part of the sums that depends on the true values only.
    pub(super) fn around<'a>(values: impl ExactSizeIterator<Item = &'a f32> + Clone) -> ValueSums {
        let rows = values.len() as u64;
        let mean = values.clone().map(|&y| f64::from(y)).sum::<f64>() / rows.max(1) as f64;
        let around = values.map(|&y| (f64::from(y) - mean).powi(2)).sum();
        ValueSums { rows, mean, around, ..ValueSums::default() }
    }

    /// Adds the errors of rows that the sums were made for: pairs of predicted and true values.
    pub(super) fn add<'a>(&mut self, pairs: impl Iterator<Item = (&'a f32, &'a f32)>) {
        for (&predicted, &value) in pairs {
            let error = f64::from(predicted) - f64::from(value);
            self.absolute += error.abs();
            self.square += error * error;
        }
    }

    /// Adds those of other rows (Chan, Golub and LeVeque, "Updating formulae and a pairwise
    /// algorithm for computing sample variances", 1979).
    fn merged(&self, other: &ValueSums) -> ValueSums {
        let (m, n) = (self.rows as f64, other.rows as f64);
        let (total, apart) = (m + n, other.mean - self.mean);
        ValueSums {
            rows: self.rows.saturating_add(other.rows),
            absolute: self.absolute + other.absolute,
            square: self.square + other.square,
            mean: self.mean + apart * n / total,
            around: self.around + other.around + apart * apart * m * n / total,
        }
    }

    fn is_possible(&self) -> bool {
        let sums = [self.absolute, self.square, self.around];
        (1..=MOST_ROWS).contains(&self.rows)
            && sums.iter().all(|sum| sum.is_finite() && *sum >= 0.0)
            && self.mean.is_finite()
    }
}

/// The form of [`ClassCounts`] in a record. In lists, -n stands for n zeros.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Packed {
    classes: usize,
    /// The rows, the predicted and the found ones of each class; not of so few classes that they
    /// have a confusion matrix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    margins: Vec<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    confusion: Vec<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scores: Vec<i64>,
    bins: Vec<(u64, f64, u64)>,
}

fn pack(counts: &[u64]) -> Vec<i64> {
    let mut packed = Vec::new();
    for equal in counts.chunk_by(|a, b| *a == 0 && *b == 0) {
        match equal[0] {
            0 => packed.push(-(equal.len() as i64)),
            // A node cannot hold as many rows.
            count => packed.push(i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }
    packed
}

fn unpack(packed: &[i64], length: usize) -> Result<Vec<u64>, String> {
    let mut counts = Vec::with_capacity(length);
    let mut sum = 0u64;
    for &count in packed {
        let zeros = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let more = if count < 0 { zeros } else { 1 };
        if more > length - counts.len() {
            return Err(format!("counts for more than {length} places"));
        }
        sum = sum.saturating_add(count.max(0).unsigned_abs());
        counts.resize(counts.len() + more, count.max(0).unsigned_abs());
    }
    if counts.len() < length || sum > MOST_ROWS.saturating_mul(MOST_CONFUSED as u64) {
        return Err(format!("counts for {} of {length} places, {sum} in all", counts.len()));
    }
    Ok(counts)
}

impl From<ClassCounts> for Packed {
    fn from(counts: ClassCounts) -> Packed {
        let margins = match counts.is_detailed() {
            true => Vec::new(),
            false => pack(&[&counts.rows[..], &counts.predicted, &counts.right].concat()),
        };
        Packed {
            classes: counts.classes,
            margins,
            confusion: pack(&counts.confusion),
            scores: pack(&counts.scores),
            bins: counts.bins.iter().map(|bin| (bin.rows, bin.confidence, bin.correct)).collect(),
        }
    }
}

impl TryFrom<Packed> for ClassCounts {
    type Error = String;

    fn try_from(packed: Packed) -> Result<ClassCounts, String> {
        let classes = packed.classes;
        let mut counts = ClassCounts::new(classes)
            .ok_or_else(|| format!("counts of {classes} classes: 1 to {MOST_COUNTED}"))?;
        if counts.is_detailed() {
            counts.confusion = unpack(&packed.confusion, counts.confusion.len())?;
            for (at, &rows) in counts.confusion.iter().enumerate() {
                let (class, predicted) = (at / classes, at % classes);
                counts.rows[class] += rows;
                counts.predicted[predicted] += rows;
                counts.right[class] += if class == predicted { rows } else { 0 };
            }
            counts.scores = unpack(&packed.scores, counts.scores.len())?;
        } else {
            let margins = unpack(&packed.margins, 3 * classes)?;
            let (rows, rest) = margins.split_at(classes);
            let (predicted, right) = rest.split_at(classes);
            (counts.rows, counts.predicted) = (rows.to_vec(), predicted.to_vec());
            counts.right = right.to_vec();
        }
        if packed.bins.len() != CONFIDENCE_BINS {
            return Err(format!("{} bins: expected {CONFIDENCE_BINS}", packed.bins.len()));
        }
        let bin = |(rows, confidence, correct)| Bin { rows, confidence, correct };
        counts.bins = packed.bins.into_iter().map(bin).collect();
        counts.check()?;
        Ok(counts)
    }
}

impl ClassCounts {
    /// Checks that some rows can have these counts.
    fn check(&self) -> Result<(), String> {
        let total = self.total();
        let right: u64 = self.right.iter().sum();
        let of_class = |class: usize| {
            let (rows, right) = (self.rows[class], self.right[class]);
            right <= rows.min(self.predicted[class])
        };
        if total > MOST_ROWS
            || self.predicted.iter().sum::<u64>() != total
            || !(0..self.classes).all(of_class)
        {
            return Err(format!("counts of classes that {total} rows cannot have"));
        }
        let bins = score_bins(self.classes);
        for (class, scores) in self.scores.chunks(2 * bins).enumerate() {
            let sum = |side: usize| scores.iter().skip(side).step_by(2).sum::<u64>();
            if [sum(0), sum(1)] != [total - self.rows[class], self.rows[class]] {
                return Err(format!("scores of class {class} that its rows cannot have"));
            }
        }
        // A probability may exceed 1 by rounding.
        let confident = |bin: &Bin| (0.0..=1.001 * bin.rows as f64).contains(&bin.confidence);
        let in_bins = self.bins.iter().try_fold((0u64, 0u64), |(rows, correct), bin| {
            let fits = bin.correct <= bin.rows && confident(bin);
            fits.then(|| (rows.saturating_add(bin.rows), correct.saturating_add(bin.correct)))
        });
        if in_bins != Some((total, right)) {
            return Err(format!("bins of confidence that {total} rows cannot have"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        learn::ClassQuality,
        rng::{Purpose, Stream},
    };

    /// Probabilities of rows and their classes, more often right than not.
    fn drawn(rows: usize, classes: usize, seed: u64) -> (Array2<f32>, Vec<u32>) {
        let mut dice = Stream::new(seed, Purpose::Test).sequence();
        let labels: Vec<u32> = (0..rows).map(|_| (dice.word() % classes as u64) as u32).collect();
        let mut scores = Array2::zeros((rows, classes));
        for (mut row, &label) in scores.rows_mut().into_iter().zip(&labels) {
            let towards = |class| if class == label as usize { 1.5 } else { 0.0 };
            let odds: Vec<f64> =
                (0..classes).map(|class| (towards(class) + 2.0 * dice.normal()).exp()).collect();
            let sum: f64 = odds.iter().sum();
            row.iter_mut().zip(odds).for_each(|(p, odds)| *p = (odds / sum) as f32);
        }
        (scores, labels)
    }

    fn counted(scores: &Array2<f32>, labels: &[u32]) -> ClassCounts {
        let mut counts = ClassCounts::new(scores.ncols()).unwrap();
        counts.add(scores.view(), labels).unwrap();
        counts
    }

    fn json(counts: &ClassCounts) -> String {
        serde_json::to_string(counts).unwrap()
    }

    #[test]
    fn counts_of_parts_add_up_to_those_of_all_rows_and_come_back_from_a_record() {
        for (rows, classes) in [(50, 2), (300, 10), (200, 64), (200, 65), (1, 4096)] {
            let (scores, labels) = drawn(rows, classes, classes as u64);
            let all = counted(&scores, &labels);
            let cut = rows / 3;
            let part = |from: usize, to: usize| {
                counted(
                    &scores.slice_axis(Axis(0), Slice::from(from..to)).to_owned(),
                    &labels[from..to],
                )
            };
            let mut merged = part(0, cut).merged(&part(cut, rows)).unwrap();
            for (bin, of_all) in merged.bins.iter_mut().zip(&all.bins) {
                assert!((bin.confidence - of_all.confidence).abs() < 1e-9);
                bin.confidence = of_all.confidence;
            }
            assert_eq!(merged, all);
            assert_eq!(serde_json::from_str::<ClassCounts>(&json(&all)).unwrap(), all);
            assert!(Counts::Classes(all).check(classes, rows as u64).is_ok());
        }
        let three = ClassCounts::new(3).unwrap();
        assert_eq!(three.merged(&ClassCounts::new(4).unwrap()), None);
        assert_eq!((ClassCounts::new(0), ClassCounts::new(4097)), (None, None));
    }

    #[test]
    fn figures_of_counts_are_those_of_the_rows() {
        for classes in [2, 10, 64] {
            let (scores, labels) = drawn(1500, classes, 7);
            let exact = ClassQuality::new(scores.view(), &labels).unwrap();
            let from_counts = ClassQuality::of_counts(&counted(&scores, &labels));
            assert_eq!(from_counts.mistakes(), exact.mistakes());
            assert_eq!(
                (from_counts.accuracy(), from_counts.balanced_accuracy()),
                (exact.accuracy(), exact.balanced_accuracy())
            );
            assert_eq!(from_counts.calibration_error(), exact.calibration_error());
            // Pairs of rows one after the other, whose scores are equal within a bin.
            let bins = [256, 256, 64][[2, 10, 64].iter().position(|k| *k == classes).unwrap()];
            let bin = |row: usize| {
                let p = f64::from(scores[(row, 0)]).sqrt();
                (p.asin() / (std::f64::consts::PI / 2.0) * f64::from(bins)) as u32
            };
            let (mut won, mut pairs) = (0.0, 0.0);
            for a in (0..1500).filter(|&a| labels[a] == 0) {
                for b in (0..1500).filter(|&b| labels[b] != 0) {
                    pairs += 1.0;
                    won += match bin(a).cmp(&bin(b)) {
                        std::cmp::Ordering::Greater => 1.0,
                        std::cmp::Ordering::Equal => 0.5,
                        std::cmp::Ordering::Less => 0.0,
                    };
                }
            }
            let area = from_counts.area(0).unwrap();
            assert!((area - won / pairs).abs() < 1e-12, "{area}");
            // The same rows above each bin, counted one by one.
            let share = |of_class: bool, least: u32| {
                let rows = || (0..1500).filter(|&row| (labels[row] == 0) == of_class);
                rows().filter(|&row| bin(row) >= least).count() as f64 / rows().count() as f64
            };
            let mut expected: Vec<[f64; 2]> = (0..=bins as u32)
                .rev()
                .map(|least| [share(false, least), share(true, least)])
                .collect();
            expected.dedup();
            let points = counted(&scores, &labels).characteristic(0).unwrap();
            assert_eq!(points, expected);
            assert_eq!((points[0], points[points.len() - 1]), ([0.0; 2], [1.0; 2]));
            let apart = (area - exact.area(0).unwrap()).abs();
            assert!(apart < if classes < 64 { 2e-3 } else { 2e-2 }, "{classes}: {apart}");
        }
    }

    #[test]
    fn bins_are_narrow_near_0_and_1() {
        let bin = |p| score_bin(p, 256);
        assert_eq!([bin(0.0), bin(-1.0), bin(1.0), bin(2.0)], [0, 0, 255, 255]);
        assert_eq!([bin(3.7e-5), bin(3.8e-5), bin(0.499_99), bin(0.5001)], [0, 1, 127, 128]);
        assert_eq!((score_bins(16), score_bins(17), score_bins(64)), (256, 240, 64));
    }

    #[test]
    fn sums_of_parts_add_up_to_those_of_all_rows() {
        let mut dice = Stream::new(3, Purpose::Test).sequence();
        let values: Vec<f32> = (0..400).map(|_| 1e4 + dice.normal() as f32).collect();
        let predicted: Vec<f32> = values.iter().map(|y| y + dice.normal() as f32).collect();
        let sums = |from: usize, to: usize| {
            let mut sums = ValueSums::around(values[from..to].iter());
            sums.add(predicted[from..to].iter().zip(&values[from..to]));
            sums
        };
        let (merged, all) = (sums(0, 31).merged(&sums(31, 400)), sums(0, 400));
        assert_eq!(merged.rows, 400);
        for (merged, all) in [
            (merged.absolute, all.absolute),
            (merged.square, all.square),
            (merged.mean, all.mean),
            (merged.around, all.around),
        ] {
            assert!((merged - all).abs() <= 1e-12 * all, "{merged} {all}");
        }
        assert!(Counts::Values(vec![all]).check(1, 400).is_ok());
        assert!(Counts::Values(vec![all]).check(2, 400).is_err());
        assert!(Counts::Values(vec![all]).check(1, 399).is_err());
        let wrong = ValueSums { square: -1.0, ..all };
        assert!(Counts::Values(vec![wrong]).check(1, 400).is_err());
    }

    #[test]
    fn impossible_counts_of_a_peer_are_refused() {
        let (scores, labels) = drawn(40, 3, 9);
        let counts = counted(&scores, &labels);
        let good: serde_json::Value = serde_json::from_str(&json(&counts)).unwrap();
        assert!(serde_json::from_value::<ClassCounts>(good.clone()).is_ok());
        let refuses = |edit: &dyn Fn(&mut serde_json::Value), why: &str| {
            let mut value = good.clone();
            edit(&mut value);
            let error = serde_json::from_value::<ClassCounts>(value).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refuses(&|v| v["classes"] = 5000.into(), "counts of 5000 classes: 1 to 4096");
        refuses(&|v| v["classes"] = 4.into(), "of 16 places");
        refuses(&|v| v["confusion"] = vec![i64::MIN].into(), "for more than 9 places");
        refuses(&|v| v["confusion"] = vec![i64::MAX; 9].into(), "of 9 places");
        refuses(&|v| v["confusion"] = vec![-9].into(), "scores of class 0");
        refuses(&|v| v["confusion"][0] = (counts.confusion[0] + 1).into(), "scores of class 0");
        refuses(&|v| v["scores"] = vec![-1536].into(), "scores of class 0");
        refuses(&|v| v["scores"] = vec![-1535].into(), "for 1535 of 1536 places");
        refuses(&|v| v["bins"] = serde_json::json!([]), "0 bins: expected 10");
        refuses(&|v| v["bins"][0][0] = 41.into(), "bins of confidence");
        refuses(&|v| v["bins"][9][1] = (-1.0).into(), "bins of confidence");
        refuses(&|v| v["bins"][9][2] = 41.into(), "bins of confidence");
        let (scores, labels) = drawn(40, 65, 9);
        let mut many = serde_json::to_value(counted(&scores, &labels)).unwrap();
        many["margins"][0] = 40.into();
        assert!(serde_json::from_value::<ClassCounts>(many).is_err());
        let nan = Array2::from_elem((1, 3), f32::NAN);
        assert_eq!(ClassCounts::new(3).unwrap().add(nan.view(), &[0]), None);
    }

    /// Rows are numbered by 32 bits, so no count has more digits. Sums of lengths are greatest
    /// where all counts of a sum are equal.
    #[test]
    fn the_greatest_counts_fit_a_record_twice() {
        let rows = u64::from(u32::MAX);
        for classes in [16, MOST_CONFUSED, MOST_COUNTED] {
            let mut counts = ClassCounts::new(classes).unwrap();
            let places = counts.confusion.len() as u64;
            counts.confusion.fill(rows / places.max(1));
            let bins = score_bins(classes) as u64;
            counts.scores.fill(rows / bins);
            for margin in [&mut counts.rows, &mut counts.predicted, &mut counts.right] {
                margin.fill(rows / classes as u64);
            }
            counts.bins.fill(Bin { rows: rows / 10, confidence: 0.1 + 1e8, correct: rows / 10 });
            let bytes = json(&counts).len();
            assert!(2 * bytes < 210 * 1024, "{classes}: {bytes} bytes");
        }
    }
}
