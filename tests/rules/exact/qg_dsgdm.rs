use common::Run;

use super::{Case, Equations, mixed, plus, scaled, zeros};

fn equations(run: &Run) -> Equations {
    let (beta, mu) = (0.8, 0.7);
    let mut m = zeros(run);
    Box::new(move |x, given| {
        let z = plus(&plus(x, -1.0, &given.u), -given.lr * beta, &m);
        let next = mixed(&given.w, &z);
        let moved = scaled((1.0 - mu) / given.lr, &plus(x, -1.0, &next));
        m = plus(&scaled(mu, &m), 1.0, &moved);
        next
    })
}

#[test]
fn qg_dsgdm() {
    Case::of("kind = 'qg-dsgdm'\nmomentum = 0.8\nmu = 0.7").check(equations);
}
