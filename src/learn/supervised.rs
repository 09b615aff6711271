//! An objective from a learner and a dataset: splits batches into blocks of rows and adds the
//! results.

use std::{ops::Range, sync::Arc};

use ndarray::{Axis, Slice};

use super::{
    Batch, Block, Evaluation, Gradient, Learner, Objective, Ready, Sums, Targets, Tensor,
    kinds::affine::{buffer, view},
};
use crate::data::{Dataset, Target};

/// The maximum number of rows with intermediate results in memory. The product of a block this tall
/// is as fast as a taller one's, and a full gradient of any shard needs memory only for this many
/// rows.
pub const BLOCK_ROWS: usize = 256;

/// The mean loss of a model over a node's own rows.
pub(super) struct Supervised {
    learner: Box<dyn Learner>,
    tensors: Vec<Tensor>,
    parameters: usize,
    data: Arc<Dataset>,
    /// The current block's rows, if they are not neighbours in the dataset.
    features: Vec<f32>,
    labels: Vec<u32>,
    values: Vec<f32>,
}

impl Supervised {
    /// Makes the objective; the data must have been checked against the model.
    pub(super) fn new(
        learner: Box<dyn Learner>,
        tensors: Vec<Tensor>,
        data: Arc<Dataset>,
    ) -> Supervised {
        let parameters = tensors.iter().map(Tensor::len).sum();
        Supervised {
            learner,
            tensors,
            parameters,
            data,
            features: Vec::new(),
            labels: Vec::new(),
            values: Vec::new(),
        }
    }

    fn picked(&mut self, x: &[f32], rows: &[u32], gradient: Gradient<'_>) -> Sums {
        let inputs = self.data.inputs();
        let source = self.data.features.as_slice().expect("a dataset is row-major");
        let mut features = buffer(&mut self.features, rows.len(), inputs);
        for (mut to, &row) in features.rows_mut().into_iter().zip(rows) {
            let to = to.as_slice_mut().expect("a buffer's rows are contiguous");
            to.copy_from_slice(&source[row as usize * inputs..][..inputs]);
        }
        let targets = match &self.data.target {
            Target::Classes { labels, .. } => {
                self.labels.clear();
                self.labels.extend(rows.iter().map(|&row| labels[row as usize]));
                Targets::Classes(&self.labels)
            }
            Target::Values(values) => {
                let width = values.ncols();
                let mut picked = buffer(&mut self.values, rows.len(), width);
                for (mut to, &row) in picked.rows_mut().into_iter().zip(rows) {
                    to.assign(&values.row(row as usize));
                }
                Targets::Values(view(&self.values[..rows.len() * width], rows.len(), width))
            }
        };
        let features = view(&self.features[..rows.len() * inputs], rows.len(), inputs);
        self.learner.block(x, Block { features, targets }, Some(gradient))
    }
}

impl Objective for Supervised {
    fn parameters(&self) -> usize {
        self.parameters
    }

    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn rows(&self) -> usize {
        self.data.rows()
    }

    fn gradient(&mut self, x: &[f32], batch: Batch<'_>, out: &mut [f32]) -> f64 {
        self.gradient_by_parts(x, batch, out, &mut |_, _| {})
    }

    fn gradient_by_parts(
        &mut self,
        x: &[f32],
        batch: Batch<'_>,
        out: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        assert_eq!(
            (x.len(), out.len()),
            (self.parameters, self.parameters),
            "x and its gradient have d numbers"
        );
        let (mut loss, mut add) = (0.0, false);
        let size = match batch {
            Batch::Rows(rows) => rows.len(),
            Batch::All => self.data.rows(),
        };
        assert!(size > 0, "the mean over no rows");
        let weight = 1.0 / size as f32;
        let mut end = out.len();
        let mut reported = |range: Range<usize>, out: &mut [f32]| {
            end = range.start;
            ready(range, out);
        };
        // The next block adds to the gradient: only the last block's is final.
        let mut left = size.div_ceil(BLOCK_ROWS);
        match batch {
            Batch::Rows(rows) => {
                for rows in rows.chunks(BLOCK_ROWS) {
                    left -= 1;
                    let ready: Option<&mut Ready<'_>> =
                        if left == 0 { Some(&mut reported) } else { None };
                    loss += self.picked(x, rows, Gradient { weight, add, out, ready }).loss;
                    add = true;
                }
            }
            Batch::All => {
                for rows in blocks(&self.data) {
                    left -= 1;
                    let ready: Option<&mut Ready<'_>> =
                        if left == 0 { Some(&mut reported) } else { None };
                    let gradient = Gradient { weight, add, out, ready };
                    loss += self.learner.block(x, rows, Some(gradient)).loss;
                    add = true;
                }
            }
        }
        if end > 0 {
            ready(0..end, out);
        }
        loss / size as f64
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        assert_eq!(x.len(), self.parameters, "x has d numbers");
        evaluate(&mut *self.learner, x, &self.data).loss
    }
}

/// Loss and accuracy over all rows.
pub(super) fn evaluate(learner: &mut dyn Learner, x: &[f32], data: &Dataset) -> Evaluation {
    let mut total = Sums::default();
    for rows in blocks(data) {
        let sums = learner.block(x, rows, None);
        total.loss += sums.loss;
        total.correct += sums.correct;
    }
    let rows = data.rows() as u64;
    Evaluation {
        rows,
        loss: total.loss / rows as f64,
        correct: data.labels().map(|_| total.correct),
    }
}

/// A dataset in blocks of rows, in order.
fn blocks(data: &Dataset) -> impl Iterator<Item = Block<'_>> {
    (0..data.rows()).step_by(BLOCK_ROWS).map(|start| {
        let end = (start + BLOCK_ROWS).min(data.rows());
        let targets = match &data.target {
            Target::Classes { labels, .. } => Targets::Classes(&labels[start..end]),
            Target::Values(values) => {
                Targets::Values(values.slice_axis(Axis(0), Slice::from(start..end)))
            }
        };
        let features = data.features.slice_axis(Axis(0), Slice::from(start..end));
        Block { features, targets }
    })
}
