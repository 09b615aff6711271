use common::Run;

use super::{Case, Equations, plus, zeros};

/// H and G are the copies of X and V.
fn equations(run: &Run) -> Equations {
    let gamma = 0.2;
    let (mut h, mut copy, mut last) = (zeros(run), zeros(run), None);
    Box::new(move |x, given| {
        let g = given.g();
        let v = match &last {
            None => g.clone(),
            Some((v, before)) => {
                let v = plus(v, gamma, &given.pull(&copy));
                let v = plus(&plus(&v, 1.0, &g), -1.0, before);
                copy = given.updated(&copy, &v);
                v
            }
        };
        let next = plus(&plus(x, gamma, &given.pull(&h)), -given.lr, &v);
        h = given.updated(&h, &next);
        last = Some((v, g));
        next
    })
}

#[test]
fn beer() {
    Case::of("kind = 'beer'\ngamma = 0.2").check(equations);
}
