use common::Run;

use super::{Case, Equations, mixed, plus, scaled, zeros};

/// As the authors write it: the means of the changes and of the models apart.
fn equations(run: &Run) -> Equations {
    let (alpha, beta, gamma) = (0.4, 0.6, 0.9);
    let mut delta = zeros(run);
    Box::new(move |x, given| {
        let m = plus(&scaled(alpha, &delta), -beta, &mixed(&given.w, &given.u));
        delta = plus(&m, gamma, &given.pull(x));
        plus(x, 1.0, &delta)
    })
}

#[test]
fn noloco() {
    Case::of("kind = 'noloco'\nouter_step = 0.6\nouter_momentum = 0.4\npull = 0.9")
        .check(equations);
}
