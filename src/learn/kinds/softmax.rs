//! Softmax regression: f(W, b) = mean over rows of -log softmax(x W + b)[class] (Cox 1958; Bishop
//! 2006, section 4.3.4).
//!
//! Tensors `weight` (inputs x classes) and, with a bias, `bias` (classes). Convex. With two classes
//! it is logistic regression with one redundant column.

use ndarray::ArrayViewMut2;

use super::linear::{Loss, OneLayer, Predict};
use crate::{
    data::Task,
    learn::{Sums, Targets},
};

#[derive(Debug)]
pub(crate) struct Softmax;

impl OneLayer for Softmax {
    const NAME: &'static str = "softmax";
    const SUMMARY: &'static str =
        "multinomial logistic regression, cross-entropy of softmax(x w + b); convex";
    const REFERENCE: &'static str =
        "Bishop, Pattern Recognition and Machine Learning, 2006, section 4.3.4";
    const TASKS: &'static [Task] = &[Task::Classification];
    const LOSS: Loss = |scores, targets, weight| cross_entropy(scores, classes(targets), weight);
    const PREDICT: Predict = probabilities;
}

/// The labels of a block.
///
/// # Panics
/// If there are none: then the model was not checked against its data.
pub(crate) fn classes(targets: Targets<'_>) -> &[u32] {
    let Targets::Classes(labels) = targets else {
        panic!("classes of numbers: the model was not checked against its data")
    };
    labels
}

/// The sum over rows of log(sum exp z) - z\[label\]; with a weight, `scores` becomes weight *
/// (softmax(z) - one-hot), its gradient.
pub(super) fn cross_entropy(
    scores: &mut ArrayViewMut2<'_, f32>,
    labels: &[u32],
    weight: Option<f32>,
) -> Sums {
    let mut sums = Sums::default();
    for (mut row, &label) in scores.rows_mut().into_iter().zip(labels) {
        let row = row.as_slice_mut().expect("a buffer's rows are contiguous");
        let label = label as usize;
        let (best, largest) = largest(row);
        let own = row[label];
        let total = exponentials(row, largest);
        let loss = f64::from(largest) - f64::from(own) + libm::log(f64::from(total));
        sums.loss += loss;
        sums.correct += u64::from(best == label && loss.is_finite());
        if let Some(weight) = weight {
            let share = weight / total;
            for z in row.iter_mut() {
                *z *= share;
            }
            row[label] -= weight;
        }
    }
    sums
}

/// Turns each row into its softmax.
pub(crate) fn probabilities(scores: &mut ArrayViewMut2<'_, f32>) {
    for mut row in scores.rows_mut() {
        let row = row.as_slice_mut().expect("a buffer's rows are contiguous");
        let (_, largest) = largest(row);
        let total = exponentials(row, largest);
        for z in row {
            *z /= total;
        }
    }
}

/// The first largest number and its position. NaN never compares as larger, and nothing is larger
/// than a leading NaN.
fn largest(row: &[f32]) -> (usize, f32) {
    let mut best = (0, row[0]);
    for (i, &z) in row.iter().enumerate() {
        if z > best.1 {
            best = (i, z);
        }
    }
    best
}

/// Turns z into exp(z - largest); returns their sum, at least 1, so that no log is of zero and no
/// exponential overflows.
fn exponentials(row: &mut [f32], largest: f32) -> f32 {
    let mut total = 0.0;
    for z in row {
        *z = libm::expf(*z - largest);
        total += *z;
    }
    total
}
