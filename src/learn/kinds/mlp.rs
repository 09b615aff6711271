//! A multilayer perceptron: affine layers with ReLU between them (Rumelhart, Hinton and Williams
//! 1986); at the end cross-entropy of softmax for classes, 1/(2m) sum over m rows of |z - y|^2 for
//! numbers, which a run scales to mean 0 and deviation 1.
//!
//! Tensors `layer0.weight` (inputs x hidden), `layer0.bias`, `layer1.weight`, ... Hidden layers
//! start from normal weights of variance 2 / inputs (He, Zhang, Ren and Sun, "Delving Deep into
//! Rectifiers", 2015, equation 10), the last from 2 / (inputs + outputs) (Glorot and Bengio,
//! "Understanding the difficulty of training deep feedforward neural networks", 2010, equation 12);
//! biases from zero. ReLU's derivative at 0 is taken as 0.

use ndarray::{ArrayView2, ArrayViewMut2};

use super::{
    affine::{Affine, buffer, view},
    least_squares::{squared_error, values},
    softmax::{classes, cross_entropy, probabilities},
};
use crate::{
    data::{Scale, Task},
    learn::{Block, Gradient, Init, Kind, Learner, ModelShape, Sums, Tensor},
    rng::Stream,
};

#[derive(Debug)]
pub(crate) struct Mlp;

impl Kind for Mlp {
    fn name(&self) -> &'static str {
        "mlp"
    }

    fn summary(&self) -> &'static str {
        "multilayer perceptron: ReLU layers, then cross-entropy of softmax, or squared errors of \
         numbers; not convex"
    }

    fn reference(&self) -> &'static str {
        "Rumelhart, Hinton and Williams, Learning representations by back-propagating errors, \
         1986; initial weights: He et al. 2015"
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Classification, Task::Regression]
    }

    /// One layer of 256: with the digits d is 19,210, large enough that compressing pays and small
    /// enough for a laptop.
    fn default_hidden(&self) -> Option<&'static [usize]> {
        Some(&[256])
    }

    fn default_init(&self) -> Init {
        Init::Seeded
    }

    fn tensors(&self, shape: &ModelShape) -> Vec<Tensor> {
        layers(shape)
            .iter()
            .enumerate()
            .flat_map(|(i, layer)| layer.tensors(&format!("layer{i}")))
            .collect()
    }

    fn initial(&self, shape: &ModelShape, stream: Stream, x: &mut [f32]) {
        let layers = layers(shape);
        for (i, layer) in layers.iter().enumerate() {
            let fan =
                if i + 1 < layers.len() { layer.inputs } else { layer.inputs + layer.outputs };
            layer.initial(2.0 / fan as f64, stream.with(i as u64), x);
        }
    }

    /// Its gradients grow with more than the square of its targets, so that no step fits all units.
    fn scales_targets(&self) -> bool {
        true
    }

    /// Numbers are multiplied by sqrt(16 / H), for a last hidden layer of H > 16 units: the
    /// parameterisation of Jacot, Gabriel and Hongler ("Neural Tangent Kernel", 2018, section 3),
    /// relative to a width of 16. Without it the curvature of squared errors grows with H, and a
    /// step that suits 16 units diverges with 256.
    fn damping(&self, shape: &ModelShape) -> f64 {
        shape.hidden.last().map_or(1.0, |width| (16.0 / *width as f64).min(1.0))
    }

    fn learner(&self, shape: &ModelShape, targets: Option<&Scale>) -> Box<dyn Learner> {
        let layers = layers(shape);
        let outputs = vec![Vec::new(); layers.len()];
        let targets = targets.cloned().map(|scale| (scale, self.damping(shape) as f32));
        let (task, deltas) = (shape.task, [Vec::new(), Vec::new()]);
        Box::new(Perceptron { task, targets, layers, outputs, deltas })
    }
}

fn layers(shape: &ModelShape) -> Vec<Affine> {
    let widths: Vec<usize> = std::iter::once(shape.inputs)
        .chain(shape.hidden.iter().copied())
        .chain([shape.outputs])
        .collect();
    Affine::chain(&widths, shape.bias)
}

struct Perceptron {
    task: Task,
    /// The scale of the predicted numbers, if it is trained on scaled ones, and what their
    /// gradients are multiplied by ([`Kind::damping`]).
    targets: Option<(Scale, f32)>,
    layers: Vec<Affine>,
    /// The output of each layer for the current block: after ReLU; the last one's scores or
    /// numbers, then their gradient.
    outputs: Vec<Vec<f32>>,
    /// The gradients of two layers' outputs, used alternately.
    deltas: [Vec<f32>; 2],
}

impl Perceptron {
    fn forward(&mut self, x: &[f32], features: &ArrayView2<'_, f32>) {
        let rows = features.nrows();
        let last = self.layers.len() - 1;
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.outputs.split_at_mut(i);
            let mut out = buffer(&mut after[0], rows, layer.outputs);
            match before.last() {
                Some(input) => layer.forward(
                    x,
                    &view(&input[..rows * layer.inputs], rows, layer.inputs),
                    &mut out,
                ),
                None => layer.forward(x, features, &mut out),
            }
            if i < last {
                // Not `max`: a NaN must stay a NaN, so that divergence shows.
                out.map_inplace(|z| *z = if *z < 0.0 { 0.0 } else { *z });
            }
        }
    }

    /// Backpropagates the gradient of the last outputs, from the last layer to the first.
    fn backward(&mut self, x: &[f32], features: &ArrayView2<'_, f32>, mut gradient: Gradient<'_>) {
        let rows = features.nrows();
        for (i, layer) in self.layers.iter().enumerate().rev() {
            let (below, own) = self.outputs.split_at_mut(i);
            // The last layer's delta overwrites its outputs; the others alternate between two
            // buffers.
            let (here, next) = self.deltas.split_at_mut(1);
            let (here, next) = if i % 2 == 0 {
                (&mut here[0], &mut next[0])
            } else {
                (&mut next[0], &mut here[0])
            };
            let delta: &[f32] = if i + 1 == self.layers.len() { &own[0] } else { here };
            let delta = view(&delta[..rows * layer.outputs], rows, layer.outputs);
            let Some(input) = below.last() else {
                layer.backward(features, &delta, &mut gradient);
                gradient.is_final(layer.range());
                return;
            };
            let input = &input[..rows * layer.inputs];
            layer.backward(&view(input, rows, layer.inputs), &delta, &mut gradient);
            gradient.is_final(layer.range());
            let mut below = buffer(next, rows, layer.inputs);
            layer.input_gradient(x, &delta, &mut below);
            let below = below.as_slice_mut().expect("a buffer is contiguous");
            for (delta, &output) in below.iter_mut().zip(input) {
                *delta = if output > 0.0 { *delta } else { 0.0 };
            }
        }
    }
}

impl Learner for Perceptron {
    fn block(&mut self, x: &[f32], rows: Block<'_>, gradient: Option<Gradient<'_>>) -> Sums {
        let Block { features, targets } = rows;
        self.forward(x, &features);
        let outputs = self.layers.last().map_or(0, |layer| layer.outputs);
        let last = self.outputs.last_mut().expect("there is a last layer");
        let mut last = buffer(last, features.nrows(), outputs);
        let weight = gradient.as_ref().map(|gradient| gradient.weight);
        let sums = match self.task {
            Task::Classification => cross_entropy(&mut last, classes(targets), weight),
            Task::Regression => {
                let scale = self.targets.as_ref();
                let damping = scale.map_or(1.0, |(_, damping)| *damping);
                let weight = weight.map(|weight| weight * damping);
                squared_error(&mut last, values(targets), weight, scale.map(|(scale, _)| scale))
            }
        };
        if let Some(gradient) = gradient {
            self.backward(x, &features, gradient);
        }
        sums
    }

    fn predict(
        &mut self,
        x: &[f32],
        features: ArrayView2<'_, f32>,
        mut out: ArrayViewMut2<'_, f32>,
    ) {
        self.forward(x, &features);
        let last = self.outputs.last().expect("there is a last layer");
        let (rows, columns) = out.dim();
        out.assign(&view(&last[..rows * columns], rows, columns));
        match self.task {
            Task::Classification => probabilities(&mut out),
            Task::Regression => {
                let Some((Scale { mean, deviation }, _)) = &self.targets else { return };
                for mut row in out.rows_mut() {
                    for (z, (mean, deviation)) in row.iter_mut().zip(mean.iter().zip(deviation)) {
                        *z = (f64::from(*z) * deviation + mean) as f32;
                    }
                }
            }
        }
    }
}
