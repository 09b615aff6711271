use common::{Run, dense::Matrix};

use super::{Case, Equations, plus, zeros};

const STEP: f64 = 0.3;

/// Of 2019: the copies take the step, and the model then moves to their mean.
pub(super) fn icml(run: &Run) -> Equations {
    let mut copies = zeros(run);
    Box::new(move |x, given| {
        let h = plus(x, -1.0, &given.u);
        copies = given.updated(&copies, &h);
        plus(&h, STEP, &given.pull(&copies))
    })
}

/// Of 2020: the copies take the model before its step.
fn iclr(run: &Run) -> Equations {
    let mut copies = zeros(run);
    Box::new(move |x, given| {
        copies = given.updated(&copies, x);
        plus(&plus(x, -1.0, &given.u), STEP, &given.pull(&copies))
    })
}

fn squared(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum()
}

/// gamma of a node before it has measured, and the factor of what it measures, by the other nodes'
/// weights in the heaviest row.
fn at_first(run: &Run, w: &Matrix) -> (f64, f64) {
    let others = |(i, row): (usize, &Vec<f64>)| -> f64 {
        row.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, w)| w.abs()).sum()
    };
    let away = w.iter().enumerate().map(others).fold(0.0, f64::max);
    let factor = (0.5 / away).min(0.7);
    // The ten greatest are expected to hold less after some rounds.
    let most = if run.compressor.contains("top-k") {
        (0.5 * run.nominal()).min(42.0 / run.d as f64)
    } else {
        run.nominal()
    };
    (factor * most, factor)
}

fn measured(run: &Run) -> Equations {
    let run = run.clone();
    let mut copies = zeros(&run);
    // Of each node, faded: sum |d|^2 and sum |d - C(d)|^2.
    let mut sums = vec![(0.0, 0.0); run.nodes()];
    Box::new(move |x, given| {
        let w = &given.w;
        let h = plus(x, -1.0, &given.u);
        let d = plus(&h, -1.0, &copies);
        let sent = given.compressed(&d);
        let (first, factor) = at_first(&run, w);
        let gamma = |(all, lost): &(f64, f64)| match given.t {
            _ if run.compressor.contains("identity") => 1.0,
            0 => first,
            _ => factor * (1.0 - lost / all),
        };
        let gammas: Vec<f64> = sums.iter().map(gamma).collect();
        let lost = plus(&d, -1.0, &sent);
        for (i, (all, missing)) in sums.iter_mut().enumerate() {
            *all = 0.9 * *all + squared(&d[i]);
            *missing = 0.9 * *missing + squared(&lost[i]);
        }
        copies = plus(&copies, 1.0, &sent);
        let mut next = h;
        for i in 0..w.len() {
            for j in (0..w.len()).filter(|j| *j != i) {
                let share = gammas[i].min(gammas[j]) * w[i][j];
                for k in 0..next[i].len() {
                    next[i][k] += share * (copies[j][k] - copies[i][k]);
                }
            }
        }
        next
    })
}

#[test]
fn choco_of_2019() {
    Case::of("kind = 'choco'\ngamma = 0.3").check(icml);
}

#[test]
fn choco_of_2020() {
    Case::of("kind = 'choco'\norder = 'iclr'\ngamma = 0.3").check(iclr);
}

#[test]
fn choco_by_the_measured_contraction() {
    let case = Case::of("kind = 'choco'\ngamma = 'measured'");
    Case { signs: false, ..case }.check(measured);
}
