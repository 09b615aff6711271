use super::{Case, Equations, mixed, plus};

fn equations() -> Equations {
    let (eta, gamma, mut before) = (0.6, 0.8, None);
    Box::new(move |x, given| {
        let v = plus(x, -eta, &given.u);
        let moved = plus(&v, -1.0, before.as_ref().unwrap_or(x));
        let next = plus(&mixed(&given.w, &v), gamma, &moved);
        before = Some(v);
        next
    })
}

#[test]
fn gasloc() {
    Case::of("kind = 'gasloc'\nouter_step = 0.6\nouter_momentum = 0.8").check(|_| equations());
}
