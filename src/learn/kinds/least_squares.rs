//! Linear least squares: f(w) = 1/(2m) sum over m rows of |x w + b - y|^2 (Gauss 1809; Legendre
//! 1805).
//!
//! One tensor `weight` (inputs x outputs) and, with a bias, `bias` (outputs). Convex; smooth with
//! constant L = largest eigenvalue of X'X / m, so that gradient descent needs a step below 2 / L.

use ndarray::{ArrayView2, ArrayViewMut2};

use super::linear::{Loss, OneLayer, Predict};
use crate::{
    data::{Scale, Task},
    learn::{Sums, Targets},
};

#[derive(Debug)]
pub(crate) struct LeastSquares;

impl OneLayer for LeastSquares {
    const NAME: &'static str = "least-squares";
    const SUMMARY: &'static str = "linear regression, 1/(2m) sum |x w + b - y|^2; convex";
    const REFERENCE: &'static str = "Gauss, Theoria motus corporum coelestium, 1809";
    const TASKS: &'static [Task] = &[Task::Regression];
    const LOSS: Loss =
        |outputs, targets, weight| squared_error(outputs, values(targets), weight, None);
    const PREDICT: Predict = |_| ();
}

/// The numbers to be predicted of a block: rows x outputs.
///
/// # Panics
/// If there are none: then the model was not checked against its data.
pub(crate) fn values(targets: Targets<'_>) -> ArrayView2<'_, f32> {
    let Targets::Values(values) = targets else {
        panic!("squares of classes: the model was not checked against its data")
    };
    values
}

/// Half the sum over rows of |z - y|^2; with a weight, `outputs` becomes weight * (z - y), its
/// gradient. With a scale, z is scaled, and the gradient is that of the error of scaled numbers,
/// |z - (y - mean) / deviation|^2; the sum has the units of y.
pub(super) fn squared_error(
    outputs: &mut ArrayViewMut2<'_, f32>,
    values: ArrayView2<'_, f32>,
    weight: Option<f32>,
    scale: Option<&Scale>,
) -> Sums {
    let mut sum = 0.0;
    match scale {
        None => {
            for (z, y) in outputs.iter_mut().zip(values) {
                *z -= y;
                sum += f64::from(*z) * f64::from(*z);
            }
        }
        Some(Scale { mean, deviation }) => {
            for (mut row, values) in outputs.rows_mut().into_iter().zip(values.rows()) {
                let scale = mean.iter().zip(deviation);
                for ((z, y), (mean, deviation)) in row.iter_mut().zip(values).zip(scale) {
                    *z -= ((f64::from(*y) - mean) / deviation) as f32;
                    sum += (f64::from(*z) * deviation).powi(2);
                }
            }
        }
    }
    if let Some(weight) = weight {
        outputs.map_inplace(|z| *z *= weight);
    }
    Sums { loss: 0.5 * sum, correct: 0 }
}
