use super::{Case, Equations, mixed, plus};

/// x_1 = W (x_0 - lr g_0), then W (2 x - x_before - lr g + lr_before g_before).
fn equations() -> Equations {
    let mut last = None;
    Box::new(move |x, given| {
        let z = plus(x, -1.0, &given.u);
        let z = match last.replace((x.clone(), given.u.clone())) {
            None => z,
            Some((before, u)) => plus(&plus(&z, 1.0, &plus(x, -1.0, &before)), 1.0, &u),
        };
        mixed(&given.w, &z)
    })
}

#[test]
fn d2_of_2018() {
    Case::of("kind = 'd2'").check(|_| equations());
}
