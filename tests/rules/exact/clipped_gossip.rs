use common::{Run, difference, widen};

use super::{Case, Equations, plus};

/// How far a node lets a neighbour move it.
#[derive(Clone, Copy)]
enum Radius {
    Given(f64),
    /// The distance of the neighbour after this many others that are farther.
    Byzantine(usize),
}

fn length(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn equations(radius: Radius) -> Equations {
    Box::new(move |x, given| {
        let z = plus(x, -1.0, &given.u);
        let moved = |i: usize| -> Vec<f64> {
            let away = |j: usize| -> (f64, Vec<f64>) {
                (given.w[i][j], z[j].iter().zip(&z[i]).map(|(a, b)| a - b).collect())
            };
            let near = (0..z.len()).filter(|&j| j != i && given.w[i][j] != 0.0);
            let near: Vec<_> = near.map(away).collect();
            let most = match radius {
                Radius::Given(tau) => tau,
                Radius::Byzantine(liars) => {
                    let mut far: Vec<f64> = near.iter().map(|(_, v)| length(v)).collect();
                    far.sort_by(|a, b| b.total_cmp(a));
                    *far.iter().take(liars + 1).next_back().unwrap_or(&0.0)
                }
            };
            let mut sum = z[i].clone();
            for (w, v) in near {
                let scale = w * (most / length(&v).max(1e-300)).min(1.0);
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += scale * v);
            }
            sum
        };
        (0..z.len()).map(moved).collect()
    })
}

#[test]
fn clipped_gossip_with_a_given_radius() {
    // Below, among and above the distances.
    for tau in [0.01, 0.3, 1e6] {
        Case::of(&format!("kind = 'clipped-gossip'\ntau = {tau:?}"))
            .check(|_| equations(Radius::Given(tau)));
    }
    let clipped = Run::new("ring:8", "kind = 'clipped-gossip'\ntau = 0.01", "kind = 'identity'");
    let plain = Run::new("ring:8", "kind = 'd-psgd'", "kind = 'identity'");
    assert!(difference(&widen(&plain.models()), &clipped.models()) > 1e-3, "nothing is clipped");
}

#[test]
fn clipped_gossip_with_a_number_of_liars() {
    Case::of("kind = 'clipped-gossip'").check(|_| equations(Radius::Byzantine(1)));
    for liars in [0, 2] {
        Case::of(&format!("kind = 'clipped-gossip'\nliars = {liars}"))
            .check(|_| equations(Radius::Byzantine(liars)));
    }
}
