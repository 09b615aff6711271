//! The most probable class of a row, and how often it is right.

use ndarray::ArrayView1;

/// The number of bins of the greatest probability, for calibration.
pub(super) const CONFIDENCE_BINS: usize = 10;

/// The rows whose greatest probability is in one tenth of [0, 1].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Bin {
    /// The number of rows in this tenth.
    pub rows: u64,
    /// The sum of their greatest probabilities.
    pub confidence: f64,
    /// How many of them are classified correctly.
    pub correct: u64,
}

impl Bin {
    /// The number of the bin of a greatest probability.
    pub(super) fn of(confidence: f64) -> usize {
        ((confidence * CONFIDENCE_BINS as f64) as usize).min(CONFIDENCE_BINS - 1)
    }

    pub(super) fn add(&mut self, confidence: f64, is_correct: bool) {
        self.rows += 1;
        self.confidence += confidence;
        self.correct += u64::from(is_correct);
    }
}

/// The most probable class, of equal ones the first, and its probability.
pub fn most_probable(of_row: ArrayView1<'_, f32>) -> (usize, f64) {
    let mut best = 0;
    for (class, p) in of_row.iter().enumerate() {
        if *p > of_row[best] {
            best = class;
        }
    }
    (best, f64::from(of_row[best]))
}
