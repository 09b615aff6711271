//! The dense layer y = x W + b, its gradient, and its initial weights, on slices of the flat
//! vector.
//!
//! A layer's part of the vector is `W` (inputs x outputs, row-major), then `b` (outputs) if there
//! is one.

use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};

use crate::{
    learn::{Gradient, Tensor},
    rng::Stream,
};

/// The sizes of one layer and its place in the flat vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    pub inputs: usize,
    pub outputs: usize,
    pub bias: bool,
    /// The index of its first weight.
    pub offset: usize,
}

impl Affine {
    /// A chain of layers with these widths.
    pub(super) fn chain(widths: &[usize], bias: bool) -> Vec<Affine> {
        let mut offset = 0;
        let layer = |pair: &[usize]| {
            let layer = Affine { inputs: pair[0], outputs: pair[1], bias, offset };
            offset += layer.len();
            layer
        };
        widths.windows(2).map(layer).collect()
    }

    /// The names `NAME.weight` and `NAME.bias`.
    pub(crate) fn tensors(&self, name: &str) -> Vec<Tensor> {
        let mut tensors = vec![Tensor::new(format!("{name}.weight"), &[self.inputs, self.outputs])];
        if self.bias {
            tensors.push(Tensor::new(format!("{name}.bias"), &[self.outputs]));
        }
        tensors
    }

    /// Weights from a normal distribution with this variance, zero bias.
    pub(crate) fn initial(&self, variance: f64, stream: Stream, x: &mut [f32]) {
        let deviation = libm::sqrt(variance);
        let mut normal = stream.sequence();
        for weight in &mut x[self.offset..][..self.inputs * self.outputs] {
            *weight = (deviation * normal.normal()) as f32;
        }
    }

    /// `out = input W + b`.
    pub(super) fn forward(
        &self,
        x: &[f32],
        input: &ArrayView2<'_, f32>,
        out: &mut ArrayViewMut2<'_, f32>,
    ) {
        if self.bias {
            let bias = &x[self.offset + self.inputs * self.outputs..][..self.outputs];
            for mut row in out.rows_mut() {
                row.as_slice_mut().expect("a buffer's rows are contiguous").copy_from_slice(bias);
            }
        }
        general_mat_mul(1.0, input, &self.weight(x), f32::from(self.bias), out);
    }

    /// The layer's part of the gradient, from its input and the (already weighted) gradient `delta`
    /// of its output.
    pub(super) fn backward(
        &self,
        input: &ArrayView2<'_, f32>,
        delta: &ArrayView2<'_, f32>,
        gradient: &mut Gradient<'_>,
    ) {
        let part = &mut gradient.out[self.offset..][..self.len()];
        let (weight, bias) = part.split_at_mut(self.inputs * self.outputs);
        let mut weight = view_mut(weight, self.inputs, self.outputs);
        general_mat_mul(1.0, &input.t(), delta, f32::from(gradient.add), &mut weight);
        if !gradient.add {
            bias.fill(0.0);
        }
        if self.bias {
            for row in delta.rows() {
                for (sum, delta) in bias.iter_mut().zip(row) {
                    *sum += delta;
                }
            }
        }
    }

    /// `out = delta W'`, the gradient of the layer's input.
    pub(super) fn input_gradient(
        &self,
        x: &[f32],
        delta: &ArrayView2<'_, f32>,
        out: &mut ArrayViewMut2<'_, f32>,
    ) {
        general_mat_mul(1.0, delta, &self.weight(x).t(), 0.0, out);
    }

    /// Its place in the flat vector.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }

    /// The number of parameters, weights and biases.
    pub(crate) fn len(&self) -> usize {
        (self.inputs + usize::from(self.bias)) * self.outputs
    }

    fn weight<'a>(&self, x: &'a [f32]) -> ArrayView2<'a, f32> {
        view(&x[self.offset..][..self.inputs * self.outputs], self.inputs, self.outputs)
    }
}

/// A matrix over a slice of exactly its size.
pub(crate) fn view(values: &[f32], rows: usize, columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns), values).expect("a slice of rows x columns numbers")
}

/// A matrix over a slice of exactly its size.
pub(super) fn view_mut(values: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns), values).expect("a slice of rows x columns numbers")
}

/// The first rows x columns numbers of a buffer as a matrix; the buffer grows if necessary.
pub(crate) fn buffer(buffer: &mut Vec<f32>, rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    let len = rows * columns;
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    view_mut(&mut buffer[..len], rows, columns)
}
