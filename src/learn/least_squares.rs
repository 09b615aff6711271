//! Linear least squares: f(w) = 1/(2m) sum over m rows of |x w + b - y|^2 (Gauss 1809; Legendre
//! 1805).
//!
//! One tensor `weight` (inputs x outputs) and, with a bias, `bias` (outputs). Convex; smooth with
//! constant L = largest eigenvalue of X'X / m, so that gradient descent needs a step below 2 / L.

use ndarray::{ArrayView2, ArrayViewMut2};

use super::{
    Gradient, Kind, Learner, Shape, Sums, Targets, Tensor,
    affine::{Affine, buffer},
};
use crate::{
    data::{Scale, Task},
    rng::Stream,
};

/// The kind `least-squares`.
#[derive(Debug)]
pub(super) struct LeastSquares;

impl Kind for LeastSquares {
    fn name(&self) -> &'static str {
        "least-squares"
    }

    fn summary(&self) -> &'static str {
        "linear regression, 1/(2m) sum |x w + b - y|^2; convex"
    }

    fn reference(&self) -> &'static str {
        "Gauss, Theoria motus corporum coelestium, 1809"
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Regression]
    }

    fn tensors(&self, shape: &Shape) -> Vec<Tensor> {
        linear_tensors(shape)
    }

    fn initial(&self, shape: &Shape, stream: Stream, x: &mut [f32]) {
        let layer = linear(shape);
        layer.initial(2.0 / (layer.inputs + layer.outputs) as f64, stream, x);
    }

    fn learner(&self, shape: &Shape, _targets: Option<&Scale>) -> Box<dyn Learner> {
        Box::new(Linear { layer: linear(shape), residual: Vec::new() })
    }
}

/// The one layer of a linear model.
pub(super) fn linear(shape: &Shape) -> Affine {
    Affine { inputs: shape.inputs, outputs: shape.outputs, bias: shape.bias, offset: 0 }
}

/// `weight` and `bias`: a linear model has only one layer, so the names have no number.
pub(super) fn linear_tensors(shape: &Shape) -> Vec<Tensor> {
    let mut tensors = vec![Tensor::new("weight", &[shape.inputs, shape.outputs])];
    if shape.bias {
        tensors.push(Tensor::new("bias", &[shape.outputs]));
    }
    tensors
}

struct Linear {
    layer: Affine,
    residual: Vec<f32>,
}

impl Learner for Linear {
    fn block(
        &mut self,
        x: &[f32],
        features: ArrayView2<'_, f32>,
        targets: Targets<'_>,
        gradient: Option<Gradient<'_>>,
    ) -> Sums {
        let mut residual = buffer(&mut self.residual, features.nrows(), self.layer.outputs);
        self.layer.forward(x, &features, &mut residual);
        let weight = gradient.as_ref().map(|gradient| gradient.weight);
        let sums = squared_error(&mut residual, values(targets), weight, None);
        if let Some(mut gradient) = gradient {
            self.layer.backward(&features, &residual.view(), &mut gradient);
        }
        sums
    }

    fn predict(
        &mut self,
        x: &[f32],
        features: ArrayView2<'_, f32>,
        mut out: ArrayViewMut2<'_, f32>,
    ) {
        self.layer.forward(x, &features, &mut out);
    }
}

/// The numbers to be predicted of a block: rows x outputs.
///
/// # Panics
/// If there are none: then the model was not checked against its data.
pub(super) fn values(targets: Targets<'_>) -> ArrayView2<'_, f32> {
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
