use common::{Run, dense::starts};

use super::{Case, Equations, mixed, plus};

fn equations(run: &Run) -> Equations {
    let mut copies = starts(run);
    Box::new(move |x, given| {
        let h = plus(&mixed(&given.w, &copies), -1.0, &given.u);
        let z = given.compressed(&plus(&h, -1.0, x));
        copies = plus(&copies, 1.0, &z);
        plus(x, 1.0, &z)
    })
}

#[test]
fn dcd() {
    Case { starts_apart: false, ..Case::of("kind = 'dcd'") }.check(equations);
}
