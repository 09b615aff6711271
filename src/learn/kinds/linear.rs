//! Models of one dense layer: they differ in their loss, and in what they predict from its outputs.

use std::fmt;

use ndarray::{ArrayView2, ArrayViewMut2};

use super::affine::{Affine, buffer};
use crate::{
    data::{Scale, Task},
    learn::{Block, Gradient, Kind, Learner, ModelShape, Sums, Targets, Tensor},
    rng::Stream,
};

/// A kind of such models.
pub(crate) trait OneLayer: Send + Sync + fmt::Debug {
    const NAME: &'static str;
    const SUMMARY: &'static str;
    const REFERENCE: &'static str;
    const TASKS: &'static [Task];
    const LOSS: Loss;
    const PREDICT: Predict;
}

impl<M: OneLayer> Kind for M {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn summary(&self) -> &'static str {
        M::SUMMARY
    }

    fn reference(&self) -> &'static str {
        M::REFERENCE
    }

    fn tasks(&self) -> &'static [Task] {
        M::TASKS
    }

    /// `weight` and `bias`: there is only one layer, so the names have no number.
    fn tensors(&self, shape: &ModelShape) -> Vec<Tensor> {
        let mut tensors = vec![Tensor::new("weight", &[shape.inputs, shape.outputs])];
        if shape.bias {
            tensors.push(Tensor::new("bias", &[shape.outputs]));
        }
        tensors
    }

    /// Normal weights of variance 2 / (inputs + outputs), zero bias.
    fn initial(&self, shape: &ModelShape, stream: Stream, x: &mut [f32]) {
        layer(shape).initial(2.0 / (shape.inputs + shape.outputs) as f64, stream, x);
    }

    fn learner(&self, shape: &ModelShape, _targets: Option<&Scale>) -> Box<dyn Learner> {
        let (layer, loss, predict) = (layer(shape), M::LOSS, M::PREDICT);
        Box::new(Linear { layer, outputs: Vec::new(), loss, predict })
    }
}

fn layer(shape: &ModelShape) -> Affine {
    Affine { inputs: shape.inputs, outputs: shape.outputs, bias: shape.bias, offset: 0 }
}

/// The sum of the losses of a block's outputs; with a weight, the outputs become weight times its
/// gradient.
pub(crate) type Loss = fn(&mut ArrayViewMut2<'_, f32>, Targets<'_>, Option<f32>) -> Sums;

pub(crate) type Predict = fn(&mut ArrayViewMut2<'_, f32>);

struct Linear {
    layer: Affine,
    outputs: Vec<f32>,
    loss: Loss,
    predict: Predict,
}

impl Learner for Linear {
    fn block(&mut self, x: &[f32], rows: Block<'_>, gradient: Option<Gradient<'_>>) -> Sums {
        let Block { features, targets } = rows;
        let mut outputs = buffer(&mut self.outputs, features.nrows(), self.layer.outputs);
        self.layer.forward(x, &features, &mut outputs);
        let weight = gradient.as_ref().map(|gradient| gradient.weight);
        let sums = (self.loss)(&mut outputs, targets, weight);
        if let Some(mut gradient) = gradient {
            self.layer.backward(&features, &outputs.view(), &mut gradient);
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
        (self.predict)(&mut out);
    }
}
