use common::Run;

use super::{Case, Equations, plus, scaled, zeros};

fn equations(run: &Run) -> Equations {
    let (beta, mu, step) = (0.8, 0.7, 0.2);
    let (mut m, mut copies) = (zeros(run), zeros(run));
    Box::new(move |x, given| {
        let z = plus(&plus(x, -1.0, &given.u), -given.lr * beta, &m);
        copies = given.updated(&copies, &z);
        let next = plus(&z, step, &given.pull(&copies));
        let moved = scaled((1.0 - mu) / given.lr, &plus(x, -1.0, &next));
        m = plus(&scaled(mu, &m), 1.0, &moved);
        next
    })
}

#[test]
fn qg_dsgdm_on_public_copies() {
    Case::of("kind = 'compressed-qg-dsgdm'\nmomentum = 0.8\nmu = 0.7\ngossip_step = 0.2")
        .check(equations);
}
