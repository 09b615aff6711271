use common::Run;

use super::{Case, Equations, plus, zeros};

fn equations(run: &Run) -> Equations {
    let (eta, gamma, step) = (0.6, 0.8, 0.2);
    let (mut copies, mut before) = (zeros(run), None);
    Box::new(move |x, given| {
        let v = plus(x, -eta, &given.u);
        let moved = plus(&v, -1.0, before.as_ref().unwrap_or(x));
        copies = given.updated(&copies, &v);
        let next = plus(&plus(&v, step, &given.pull(&copies)), gamma, &moved);
        before = Some(v);
        next
    })
}

#[test]
fn gasloc_on_public_copies() {
    let rule = "kind = 'compressed-gasloc'\nouter_step = 0.6\nouter_momentum = 0.8\n\
                gossip_step = 0.2";
    Case::of(rule).check(equations);
}
