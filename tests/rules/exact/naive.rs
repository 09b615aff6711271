use super::{Case, Equations, mixed, plus};

fn equations() -> Equations {
    Box::new(|x, given| plus(&mixed(&given.w, &given.compressed(x)), -1.0, &given.u))
}

#[test]
fn naive_compression() {
    Case::of("kind = 'naive'").check(|_| equations());
}
