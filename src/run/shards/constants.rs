//! Constants of the data in the theory's bounds, measured at x_0: L, sigma^2 within a node, zeta^2
//! between nodes.
//!
//! ```text
//! sigma^2 = (1/n) sum_i E |g_i(x; batch) - grad f_i(x)|^2        of mini-batches as the experiment has them
//! zeta^2  = (1/n) sum_i |grad f_i(x) - grad f(x)|^2
//! L       = the largest eigenvalue of the Hessian of f at x, by power iteration on differences of gradients
//! ```
//! (Lian et al. 2017, Can Decentralized Algorithms Outperform Centralized Algorithms?, Assumption
//! 1.) The bounds need the largest value anywhere; these are the values at the start, where
//! gradients are large. L is a lower bound of the smoothness constant.

use std::sync::Arc;

use crate::{
    config::ConfigError,
    learn::{Batch, BatchSize, Batches, Objective},
    rng::{Purpose, Stream},
    run::{RowConstants, Whole},
    units::NodeId,
    vector,
};

/// The number of batches per node over which the variance is averaged.
const BATCHES: u64 = 32;

/// The maximum number of rounds of the power iteration.
const ITERATIONS: usize = 30;

/// What bounds of the theory need, measured on the rows.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Constants {
    /// L: the largest eigenvalue of the Hessian of f at x_0.
    pub smoothness: f64,
    /// sigma^2: the variance of the nodes' mini-batch gradients at x_0.
    pub within: f64,
    /// zeta^2: the variance of grad f_i over the nodes i at x_0.
    pub between: f64,
    /// |grad f|^2 at x_0, for comparison.
    pub gradient: f64,
    /// The number of classes of each node's rows; empty if there are no classes.
    pub classes: Vec<usize>,
    /// The number of all classes.
    pub all_classes: usize,
}

impl Constants {
    /// Measures the constants.
    ///
    /// # Errors
    /// If the data does not fit the model.
    pub fn measure(whole: &Whole) -> Result<Constants, ConfigError> {
        let design = &whole.design;
        let preprocessing = RowConstants::over(design, &whole.shards)?.preprocessing;
        let model = whole.model.clone().with_targets(preprocessing.targets.clone());
        let mut objectives: Vec<Box<dyn Objective>> = Vec::new();
        for shard in &whole.shards {
            let mut rows = (**shard.raw()).clone();
            preprocessing.apply(&mut rows)?;
            objectives.push(model.objective(Arc::new(rows))?);
        }
        let (x, d) = (design.initial.to_vec(), design.parameters());
        let nodes = objectives.len() as f64;
        let all: usize = objectives.iter().map(|objective| objective.rows()).sum();
        let weight = |objective: &dyn Objective| {
            if design.by_rows() { objective.rows() as f64 / all as f64 } else { 1.0 / nodes }
        };
        let mut own = vec![vec![0.0f32; d]; objectives.len()];
        let mut mean = vec![0.0f32; d];
        for (objective, own) in objectives.iter_mut().zip(&mut own) {
            objective.gradient(&x, Batch::All, own);
            vector::axpy(weight(&**objective) as f32, own, &mut mean);
        }
        let between =
            own.iter().map(|own| vector::distance_squared(own, &mean)).sum::<f64>() / nodes;
        let size = match design.optimizer.batch {
            BatchSize::Full => None,
            BatchSize::Rows(rows) => Some(rows),
        };
        let mut within = 0.0;
        let mut g = vec![0.0f32; d];
        for (node, (objective, own)) in objectives.iter_mut().zip(&own).enumerate() {
            let mut batches = Batches::new(
                design.experiment.run.seed,
                NodeId::from(node),
                objective.rows(),
                size,
            );
            for k in 0..BATCHES {
                objective.gradient(&x, batches.at(k), &mut g);
                within += vector::distance_squared(&g, own) / (BATCHES as f64 * nodes);
            }
        }
        let gradient = |x: &[f32], out: &mut [f32]| {
            let mut g = vec![0.0f32; d];
            out.fill(0.0);
            for objective in &mut objectives {
                let weight = weight(&**objective) as f32;
                objective.gradient(x, Batch::All, &mut g);
                vector::axpy(weight, &g, out);
            }
        };
        let seed = design.experiment.run.seed;
        Ok(Constants {
            smoothness: largest_curvature(&x, &mean, seed, gradient),
            within,
            between,
            gradient: vector::norm_squared(&mean),
            classes: (0..whole.shards.len())
                .map(|node| {
                    whole.classes_of(NodeId::from(node)).iter().filter(|rows| **rows > 0).count()
                })
                .filter(|_| !whole.classes.is_empty())
                .collect(),
            all_classes: whole.classes.len(),
        })
    }
}

/// The largest eigenvalue of the Hessian at x, whose gradient is `at`.
fn largest_curvature(
    x: &[f32],
    at: &[f32],
    seed: u64,
    mut gradient: impl FnMut(&[f32], &mut [f32]),
) -> f64 {
    let mut dice = Stream::new(seed, Purpose::Test).with(4).sequence();
    let mut v: Vec<f32> = x.iter().map(|_| dice.normal() as f32).collect();
    // Small compared with x, large compared with rounding in f32.
    let length = 1e-2 * (1.0 + vector::norm_squared(x).sqrt());
    let (mut there, mut curved) = (vec![0.0f32; x.len()], vec![0.0f32; x.len()]);
    let mut curvature = 0.0f64;
    for _ in 0..ITERATIONS {
        let norm = vector::norm_squared(&v).sqrt();
        if norm == 0.0 {
            return 0.0;
        }
        vector::scale((length / norm) as f32, &mut v);
        for ((there, x), v) in there.iter_mut().zip(x).zip(&v) {
            *there = x + v;
        }
        gradient(&there, &mut curved);
        vector::subtract(at, &mut curved);
        let next = vector::norm_squared(&curved).sqrt() / length;
        let settled = (next - curvature).abs() <= 1e-3 * next;
        curvature = next;
        if settled {
            break;
        }
        std::mem::swap(&mut v, &mut curved);
    }
    curvature
}
