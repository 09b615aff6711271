//! Plain dense f64 arithmetic for the references of the rules.

use super::{Problem, Run, difference, sgd::Updates, widen};

/// Row i belongs to node i.
pub type Matrix = Vec<Vec<f64>>;

/// C in f64, written from its definition.
pub type C = fn(&[f64]) -> Vec<f64>;

pub fn identity(v: &[f64]) -> Vec<f64> {
    v.to_vec()
}

/// The 10 largest magnitudes.
pub fn top_ten(v: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..v.len()).collect();
    order.sort_by(|&i, &j| v[j].abs().total_cmp(&v[i].abs()).then(i.cmp(&j)));
    let mut out = vec![0.0; v.len()];
    order.iter().take(10).for_each(|&i| out[i] = v[i]);
    out
}

/// |v|_1 / d times the sign.
pub fn scaled_sign(v: &[f64]) -> Vec<f64> {
    let scale = v.iter().map(|x| x.abs()).sum::<f64>() / v.len() as f64;
    v.iter().map(|&x| if x < 0.0 { -scale } else { scale }).collect()
}

/// Compressors with an f64 twin above.
pub const COMPRESSORS: [(&str, C); 3] = [
    ("kind = 'identity'", identity),
    ("kind = 'top-k'\nk = 10", top_ten),
    ("kind = 'sign'\nbucket = 0", scaled_sign),
];

pub fn gradients(problems: &[Problem], x: &Matrix) -> Matrix {
    problems.iter().zip(x).map(|(p, x)| p.gradient(x)).collect()
}

/// The gradients of all nodes at one point.
pub fn gradients_at(problems: &[Problem], x: &[f64]) -> Matrix {
    problems.iter().map(|p| p.gradient(x)).collect()
}

pub fn mean(of: &Matrix) -> Vec<f64> {
    (0..of[0].len()).map(|k| of.iter().map(|v| v[k]).sum::<f64>() / of.len() as f64).collect()
}

/// x + a y.
pub fn plus(x: &[f64], a: f64, y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + a * y).collect()
}

/// All starting points of a run.
pub fn starts(run: &Run) -> Matrix {
    widen(&(0..run.nodes()).map(|node| run.start(node)).collect::<Vec<_>>())
}

/// Centralized SGD on the mean of the gradients, one row per node.
pub fn centralized(run: &Run) -> Matrix {
    let (mut updates, mut x) = (Updates::new(run), starts(run));
    for _ in 0..run.rounds {
        let u = mean(&updates.next(&x).0);
        x = x.iter().map(|x| plus(x, -1.0, &u)).collect();
    }
    x
}

/// The run ends at the reference, and all nodes with the same bits.
pub fn check_agreed(run: &Run, reference: &Matrix) {
    let models = run.models();
    let difference = difference(reference, &models);
    let what = run.words();
    assert!(difference < 1e-5, "{what}: {difference:e}");
    assert!(models.iter().all(|model| *model == models[0]), "{what}: the nodes differ");
}

/// <c - v, u>, summed in `f64`.
pub fn error_along(c: &[f32], v: &[f32], u: &[f32]) -> f64 {
    let terms = c.iter().zip(v).zip(u);
    terms.map(|((c, v), u)| (f64::from(*c) - f64::from(*v)) * f64::from(*u)).sum()
}
