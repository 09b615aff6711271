use common::Run;

use super::{Case, Equations, plus, zeros};

fn equations(run: &Run) -> Equations {
    let (eta, mut error) = (0.2, zeros(run));
    Box::new(move |x, given| {
        let z = plus(x, -1.0, &given.u);
        let v = plus(&z, 1.0, &error);
        let sent = given.compressed(&v);
        error = plus(&v, -1.0, &sent);
        plus(&z, eta, &given.pull(&sent))
    })
}

#[test]
fn deep_squeeze() {
    Case::of("kind = 'deep-squeeze'\neta = 0.2").check(equations);
}
