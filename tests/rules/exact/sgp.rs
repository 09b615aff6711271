use common::{
    Run,
    dense::{Matrix, identity},
};
use gradvine::{mixing::Topology, units::NodeId};

use super::{Case, Equations, agrees, mixed, plus};

/// P of push-sum on a static topology, from its definition: column j gives 1 / (1 + deg j) to j and
/// each of its neighbours.
fn push(topology: &Topology) -> Matrix {
    let n = topology.nodes();
    let linked = |i: usize, j: usize| {
        i == j || topology.neighbours(NodeId::from(j)).contains(&NodeId::from(i))
    };
    let share = |j: usize| 1.0 / (1.0 + topology.neighbours(NodeId::from(j)).len() as f64);
    (0..n).map(|i| (0..n).map(|j| if linked(i, j) { share(j) } else { 0.0 }).collect()).collect()
}

/// X is z = x / w, at which gradients are computed.
fn equations(run: &Run) -> Equations {
    let p = run.schedule.is_static().then(|| push(&run.topology));
    let mut weight = vec![vec![1.0]; run.nodes()];
    Box::new(move |z, given| {
        let p = p.as_ref().unwrap_or(&given.w);
        let by = |z: &Matrix, f: fn(f64, f64) -> f64, w: &Matrix| -> Matrix {
            z.iter().zip(w).map(|(z, w)| z.iter().map(|z| f(*z, w[0])).collect()).collect()
        };
        let x = by(z, |z, w| z * w, &weight);
        let x = mixed(p, &plus(&x, -1.0, &given.u));
        weight = mixed(p, &weight);
        by(&x, |x, w| x / w, &weight)
    })
}

#[test]
fn stochastic_gradient_push() {
    Case::of("kind = 'sgp'").check(equations);
    let run = Run::new("path:6", "kind = 'sgp'", "kind = 'identity'");
    agrees(&Run { same_start: false, ..run }, identity, equations);
}
