//! The least value of f, for models where f is a quadratic: conjugate gradients in `f64` (Hestenes
//! and Stiefel, "Methods of Conjugate Gradients for Solving Linear Systems", 1952) on the normal
//! equations of the nodes' weighted least squares.
//!
//! With A the rows of all nodes, each multiplied by the root of its weight in f, f(w) = |A w -
//! b|^2 / 2, and A'A w = A'b is solved without forming A'A. If A'A is singular the method stays in
//! the range of A' and f is the same.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use gradvine::{
    data::{Dataset, Target},
    run::Whole,
};

/// The residual of the normal equations at which the method stops, relative to that at 0.
const ENOUGH: f64 = 1e-13;

/// A cache of least values of f: rows of a study differ in their rules and share their data.
#[derive(Debug, Default)]
pub struct Optima {
    known: Mutex<BTreeMap<String, Known>>,
}

type Known = Arc<OnceLock<Option<f64>>>;

impl Optima {
    /// min f; `None` if the model is not least squares, or the run has not started.
    pub(crate) fn of(&self, whole: &Whole) -> Option<f64> {
        let key = key(whole)?;
        let slot = Arc::clone(
            self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default(),
        );
        *slot.get_or_init(|| least(whole))
    }
}

/// A key with everything on which the nodes' rows and the model depend.
fn key(whole: &Whole) -> Option<String> {
    // A run that has not started has no rows, and must not be cached.
    whole.shards.first()?.ready()?;
    let experiment = &whole.design.experiment;
    let sections = [
        toml::Table::try_from(&experiment.data).ok()?,
        toml::Table::try_from(&experiment.model).ok()?,
    ];
    Some(format!("{} nodes, seed {}, {sections:?}", whole.shards.len(), experiment.run.seed))
}

/// min f; `None` if the model is not least squares, or the run has not started.
fn least(whole: &Whole) -> Option<f64> {
    let experiment = &whole.design.experiment;
    if experiment.model.kind != "least-squares" {
        return None;
    }
    let shards: Vec<Arc<Dataset>> =
        whole.shards.iter().map(|shard| shard.ready()).collect::<Option<_>>()?;
    let shards: Vec<&Dataset> = shards.iter().map(|shard| &**shard).collect();
    let weight = |shard: &Dataset| if whole.design.by_rows() { shard.rows() as f64 } else { 1.0 };
    let total: f64 = shards.iter().map(|shard| weight(shard)).sum();
    let weighted: Vec<(f64, &Dataset)> =
        shards.iter().map(|shard| (weight(shard) / total / shard.rows() as f64, *shard)).collect();
    let bias = whole.design.parameters() > shards.first()?.inputs() * shards.first()?.outputs();
    (0..shards.first()?.outputs()).map(|output| one(&weighted, output, bias)).sum()
}

/// min of the sum over shards of weight / 2 |X w - y|^2 for one column of targets.
fn one(shards: &[(f64, &Dataset)], output: usize, bias: bool) -> Option<f64> {
    let inputs = shards.first()?.1.inputs();
    let width = inputs + usize::from(bias);
    let mut targets = Vec::new();
    for (weight, shard) in shards {
        let Target::Values(values) = &shard.target else { return None };
        targets.extend(values.column(output).iter().map(|y| weight.sqrt() * f64::from(*y)));
    }
    let forth = |w: &[f64], out: &mut Vec<f64>| {
        out.clear();
        for (weight, shard) in shards {
            for row in shard.features.rows() {
                let inner: f64 = row.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum();
                out.push(weight.sqrt() * (inner + if bias { w[inputs] } else { 0.0 }));
            }
        }
    };
    let back = |r: &[f64]| {
        let mut sum = vec![0.0; width];
        let mut residuals = r.iter();
        for (weight, shard) in shards {
            for (row, r) in shard.features.rows().into_iter().zip(&mut residuals) {
                let scaled = weight.sqrt() * r;
                row.iter().zip(&mut sum).for_each(|(x, sum)| *sum += scaled * f64::from(*x));
                if bias {
                    sum[inputs] += scaled;
                }
            }
        }
        sum
    };
    // r = b - A w; s = A' r; p: the direction.
    let (mut r, mut image) = (targets, Vec::new());
    let mut s = back(&r);
    let mut p = s.clone();
    let mut size = dot(&s, &s);
    let enough = size * ENOUGH * ENOUGH;
    for _ in 0..4 * width {
        if size <= enough {
            break;
        }
        forth(&p, &mut image);
        let step = size / dot(&image, &image);
        r.iter_mut().zip(&image).for_each(|(r, image)| *r -= step * image);
        s = back(&r);
        let before = std::mem::replace(&mut size, dot(&s, &s));
        let keep = size / before;
        p.iter_mut().zip(&s).for_each(|(p, s)| *p = s + keep * *p);
    }
    Some(0.5 * dot(&r, &r))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    #[test]
    fn a_small_problem_by_hand() {
        // y = 1, 2, 4 at x = 0, 1, 2: the line 5/6 + 3/2 x leaves squares of 1/6 in all; through 0,
        // w = 2 leaves 1.
        let features: Array2<f32> = array![[0.0], [1.0], [2.0]];
        let data =
            Dataset::new("a", features, Target::Values(array![[1.0], [2.0], [4.0]])).unwrap();
        let third = [(1.0 / 3.0, &data)];
        assert!((one(&third, 0, true).unwrap() - 1.0 / 36.0).abs() < 1e-15);
        assert!((one(&third, 0, false).unwrap() - 1.0 / 6.0).abs() < 1e-15);
        // The same rows in two parts.
        let (a, b) = (data.select(&[0, 2]), data.select(&[1]));
        assert!(
            (one(&[(1.0 / 3.0, &a), (1.0 / 3.0, &b)], 0, true).unwrap() - 1.0 / 36.0).abs() < 1e-15
        );
    }
}
