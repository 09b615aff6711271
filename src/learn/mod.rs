//! Learning: an objective gives a loss and its gradient on a node's own rows, an optimizer turns it
//! into an update.
//!
//! ```text
//! Dataset -> Model::objective -> Objective::gradient -> Optimizer::update -> the rule
//! ```
//!
//! | file | does |
//! |---|---|
//! | `kind` | [`Kind`]: the interface of a model; [`Learner`]: its sums over a block of rows |
//! | `least_squares`, `softmax`, `mlp` | one model each; [`KINDS`] lists them |
//! | `affine`, `linear` | the dense layer that they share; models of one layer |
//! | `model` | [`Model`]: an architecture whose sizes are known |
//! | `supervised` | an [`Objective`] from a learner and a dataset |
//! | `batches`, `schedule`, `optimizer` | the rows of a gradient; its step; [`Optimizer`] and its settings |
//! | `quality` | [`ClassQuality`], [`ValueQuality`]: figures beside trivial predictions |
//! | `counts` | [`Counts`]: what these figures follow from, without rows |
//! | `confidence` | [`Bin`]: how probable the most probable class was, and how often it was right |
//! | `model_file` | [`SavedModel`]: safetensors |
//! | `error` | [`ModelError`]: what can be wrong |
//!
//! To add a model, write one file that implements [`Kind`] and one line of [`KINDS`]. An objective
//! that is no model over rows implements [`Objective`] itself, as `examples/own_objective.rs` does.
//!
//! **Vectors** are flat: the concatenation of the model's tensors in their order, row-major.
//! **Matrix products** use `ndarray` on one thread; their last bits depend on whether the CPU has
//! fused multiply-add. Nothing else does: exp and log come from `libm`, sums have a fixed order.
//! **Memory**: an objective holds buffers for one block of [`BLOCK_ROWS`] rows (or one mini-batch,
//! if smaller), allocated at first use; after that a gradient allocates nothing here, and
//! `ndarray`'s product allocates its packing buffer.

mod batches;
mod confidence;
mod counts;
mod error;
mod kind;
mod kinds;
mod model;
mod model_file;
mod optimizer;
mod optimizer_config;
mod quality;
mod schedule;
mod supervised;

use std::ops::Range;

use self::kinds::{least_squares::LeastSquares, mlp::Mlp, softmax::Softmax};
use crate::state::Visitor;

pub(crate) use counts::MOST_OUTPUTS;
pub use error::ModelError;
pub use kind::{Init, ModelShape};
pub(crate) use model::count_elements;
pub use model::{Model, ModelParams};
pub(crate) use model_file::write_header;
pub(crate) use model_file::{read_scale, read_target_scale, tensors_of, write_tensors};
pub use optimizer_config::{Adam, BatchSize, OptimizerConfig, OptimizerKind, OptimizerParams};
pub use schedule::{Decay, ScheduleKind, StepSchedule};

internals!({
    batches::Batches,
    confidence::{Bin, most_probable},
    counts::{ClassCounts, Counts, ValueSums},
    kind::{Block, Gradient, Kind, Learner, Sums, Targets},
    model::MAX_PARAMETERS,
    model_file::{SavedModel, read_tensors},
    optimizer::Optimizer,
    quality::{ClassQuality, MAX_CURVES, ValueQuality},
    supervised::BLOCK_ROWS,
});

/// Called with every range of a gradient or update that has become final, together with the vector;
/// after that only the coordinates before the range change. The first range ends at the vector's
/// end, each other one ends where the last one began, and the final one begins at 0.
pub type Ready<'a> = dyn FnMut(Range<usize>, &mut [f32]) + 'a;

/// Every kind of model, by its name in `[model] kind`.
pub static KINDS: [&dyn Kind; 3] = [&LeastSquares, &Softmax, &Mlp];

/// A function of d parameters that is a mean over the rows of one node: f_i.
pub trait Objective: Send {
    /// d, the length of x and of its gradient.
    fn parameters(&self) -> usize {
        self.tensors().iter().map(Tensor::len).sum()
    }

    /// The tensors of the flat vector, in their order.
    fn tensors(&self) -> &[Tensor];

    /// m, the number of rows of this node's shard; at least 1.
    fn rows(&self) -> usize;

    /// The mean loss over the batch at `x`; writes its gradient over `out`. Both have
    /// `parameters()` numbers.
    ///
    /// # Panics
    /// If the batch is empty, a row does not exist or a length is wrong: an [`Optimizer`] requests
    /// none of these.
    fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64;

    /// The same, but reports each part as soon as it is final: backpropagation goes from the last
    /// tensor to the first.
    fn gradient_by_parts(
        &mut self,
        x: &[f32],
        batch: Batch<'_>,
        out: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        let loss = self.gradient(x, batch, out);
        ready(0..out.len(), out);
        loss
    }

    /// f_i(`x`), the mean loss over all rows.
    fn loss(&mut self, x: &[f32]) -> f64;

    /// Visits what later gradients need besides x and their batch, so that a node can continue
    /// after a restart. An objective that keeps nothing between gradients has none.
    fn state(&mut self, _visitor: &mut dyn Visitor) {}
}

/// The rows of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch<'a> {
    /// These rows, with possible repetitions.
    Rows(&'a [u32]),
    /// Every row of the node, once each.
    All,
}

/// A named part of the flat vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in a model file, such as `layer0.weight`.
    pub name: String,
    /// Its extents; the last varies fastest.
    pub shape: Vec<usize>,
    /// Whether its numbers are statistics of a node's rows, such as running means and variances:
    /// nodes average them plainly, beside the rule. Statistics come after all parameters.
    pub is_statistic: bool,
}

impl Tensor {
    /// A tensor of this name and shape.
    pub fn new(name: impl Into<String>, shape: &[usize]) -> Tensor {
        Tensor { name: name.into(), shape: shape.to_vec(), is_statistic: false }
    }

    /// A tensor that is measured on the data, not trained.
    pub fn of_statistics(name: impl Into<String>, shape: &[usize]) -> Tensor {
        Tensor { is_statistic: true, ..Tensor::new(name, shape) }
    }

    /// Rows and columns of the tensor as a matrix: all extents but the last make the rows. A vector
    /// has one column.
    pub fn matrix(&self) -> (usize, usize) {
        match *self.shape.as_slice() {
            [] => (1, 1),
            [rows] => (rows, 1),
            [ref rest @ .., columns] => (rest.iter().product(), columns),
        }
    }

    /// The number of its elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How many numbers of x are parameters: those before the first statistic.
pub(crate) fn count_trained(tensors: &[Tensor]) -> usize {
    tensors.iter().take_while(|tensor| !tensor.is_statistic).map(Tensor::len).sum()
}

/// The quality of a model on some rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The number of rows that were evaluated.
    pub rows: u64,
    /// The mean loss over them.
    pub loss: f64,
    /// The number of rows classified correctly, if there are classes. Of equal scores the lowest
    /// class counts; NaN is never correct.
    pub correct: Option<u64>,
}

impl Evaluation {
    /// The share of rows classified correctly, if there are classes.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct.map(|correct| correct as f64 / self.rows as f64)
    }
}
