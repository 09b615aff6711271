use common::{Run, dense::starts};

use super::{Case, Equations, mixed, plus, scaled};

fn equations(run: &Run) -> Equations {
    let mut copies = starts(run);
    Box::new(move |x, given| {
        let t = (given.t + 1) as f64;
        let next = plus(&mixed(&given.w, &copies), -1.0, &given.u);
        let z = plus(&scaled(1.0 - t / 2.0, x), t / 2.0, &next);
        copies = plus(&scaled(1.0 - 2.0 / t, &copies), 2.0 / t, &given.compressed(&z));
        next
    })
}

#[test]
fn ecd() {
    Case { starts_apart: false, ..Case::of("kind = 'ecd'") }.check(equations);
}
