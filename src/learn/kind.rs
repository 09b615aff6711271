//! The interface of a kind of model.

use std::{fmt, ops::Range};

use ndarray::{ArrayView2, ArrayViewMut2};
use serde::{Deserialize, Serialize};

use super::{Ready, Tensor};
use crate::{
    data::{Scale, Task},
    rng::Stream,
};

/// A kind of model: all its properties that do not depend on data.
pub trait Kind: Send + Sync + fmt::Debug {
    /// Its name in `[model] kind`.
    fn name(&self) -> &'static str;

    /// The function, in one line.
    fn summary(&self) -> &'static str;

    /// Its source in the literature.
    fn reference(&self) -> &'static str;

    /// Whether it predicts classes or numbers: the tasks that it can learn, at least one. The first
    /// is the default.
    fn tasks(&self) -> &'static [Task];

    /// The default sizes of the hidden layers; `None` if this kind has no hidden layers.
    fn default_hidden(&self) -> Option<&'static [usize]> {
        None
    }

    /// The default of its initial parameters. `Init::Seeded` also means that it must not start at
    /// zero, where its gradient would vanish.
    fn default_init(&self) -> Init {
        Init::Zeros
    }

    /// The tensors of the flat vector.
    fn tensors(&self, shape: &ModelShape) -> Vec<Tensor>;

    /// Writes seeded initial parameters, the same on every node, over `x`, which is zero and as
    /// long as the tensors together.
    fn initial(&self, shape: &ModelShape, stream: Stream, x: &mut [f32]);

    /// Whether a model of numbers is trained on scaled ones. A linear one need not be: its
    /// gradients only grow with its targets.
    fn scales_targets(&self) -> bool {
        false
    }

    /// The square of the factor by which the scaled numbers of a network are multiplied. The factor
    /// is in the deviation of their scale; their gradients are multiplied by its square.
    fn damping(&self, _shape: &ModelShape) -> f64 {
        1.0
    }

    /// The learner that computes it. With a scale of the targets, which only kinds get that
    /// [scale them](Kind::scales_targets), its outputs are multiplied by the deviation and the mean
    /// is added: losses and predictions have the units of the data.
    fn learner(&self, shape: &ModelShape, targets: Option<&Scale>) -> Box<dyn Learner>;
}

/// Where the initial parameters of a model come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum Init {
    /// All zero: the usual start of a convex objective.
    Zeros,
    /// Normal numbers scaled to each layer's width, from the run's seed.
    Seeded,
    /// The tensors of a safetensors file: a model that was trained before.
    File(String),
    /// The values of this node: all nodes get them before round 0. Written `from:NODE`.
    From(String),
}

impl From<String> for Init {
    fn from(text: String) -> Init {
        match text.as_str() {
            "zeros" => Init::Zeros,
            "seeded" => Init::Seeded,
            _ => match text.strip_prefix("from:") {
                Some(node) => Init::From(node.into()),
                None => Init::File(text),
            },
        }
    }
}

impl From<Init> for String {
    fn from(init: Init) -> String {
        match init {
            Init::Zeros => "zeros".into(),
            Init::Seeded => "seeded".into(),
            Init::File(path) => path,
            Init::From(node) => format!("from:{node}"),
        }
    }
}

/// The sizes of a model, and what it predicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Whether it predicts classes or numbers.
    pub task: Task,
    /// The number of features of a row.
    pub inputs: usize,
    /// Classes, or numbers to be predicted.
    pub outputs: usize,
    /// The widths of the hidden layers, from the inputs on.
    pub hidden: Vec<usize>,
    /// Whether each layer adds a vector.
    pub bias: bool,
}

/// The sums of one model over blocks of rows. It owns its buffers, which grow to the largest block
/// and are then reused.
pub trait Learner: Send {
    /// The sum of the losses of these rows at `x`, and its gradient, if requested.
    fn block(&mut self, x: &[f32], rows: Block<'_>, gradient: Option<Gradient<'_>>) -> Sums;

    /// Probabilities of the classes, or the predicted numbers: rows x outputs.
    fn predict(&mut self, x: &[f32], features: ArrayView2<'_, f32>, out: ArrayViewMut2<'_, f32>);
}

/// Rows that a learner takes at once, at most [`BLOCK_ROWS`](super::BLOCK_ROWS).
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// rows x inputs.
    pub features: ArrayView2<'a, f32>,
    /// What they are to give.
    pub targets: Targets<'a>,
}

/// The targets of a block of rows.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// The class of each row.
    Classes(&'a [u32]),
    /// The numbers to be predicted, rows x outputs.
    Values(ArrayView2<'a, f32>),
}

/// The destination of a gradient: `weight` times the sum of the gradients of the rows, written over
/// `out` or added to it.
pub struct Gradient<'a> {
    /// One over the size of the whole batch.
    pub weight: f32,
    /// False for the first block of a batch, whose gradient overwrites `out`.
    pub add: bool,
    /// The vector that is written, as long as the model.
    pub out: &'a mut [f32],
    /// Receives ranges that are final, with the last block of a batch, if they are known before the
    /// end.
    pub ready: Option<&'a mut Ready<'a>>,
}

impl Gradient<'_> {
    /// Reports that this block will not change a range of `out` any more.
    pub fn is_final(&mut self, range: Range<usize>) {
        if let Some(ready) = &mut self.ready {
            ready(range, self.out);
        }
    }
}

impl fmt::Debug for Gradient<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradient")
            .field("weight", &self.weight)
            .field("add", &self.add)
            .finish_non_exhaustive()
    }
}

/// The part of a mean from a block of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// The sum of the losses.
    pub loss: f64,
    /// The number of rows classified correctly; 0 for numbers.
    pub correct: u64,
}
