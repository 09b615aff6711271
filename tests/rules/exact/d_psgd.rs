use common::{Run, difference, widen};

use super::{Case, Equations, mixed, plus};

pub(super) fn atc() -> Equations {
    Box::new(|x, given| mixed(&given.w, &plus(x, -1.0, &given.u)))
}

fn cta() -> Equations {
    Box::new(|x, given| plus(&mixed(&given.w, x), -1.0, &given.u))
}

#[test]
fn adapt_then_combine() {
    Case::of("kind = 'd-psgd'").check(|_| atc());
}

#[test]
fn combine_then_adapt() {
    Case::of("kind = 'd-psgd'\norder = 'cta'").check(|_| cta());
}

#[test]
fn the_two_orders_differ() {
    let atc = Run::new("ring:8", "kind = 'd-psgd'", "kind = 'identity'").models();
    let cta = Run::new("ring:8", "kind = 'd-psgd'\norder = 'cta'", "kind = 'identity'").models();
    assert!(difference(&widen(&atc), &cta) > 1e-3);
}
