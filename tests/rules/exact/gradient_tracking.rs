use super::{Case, Equations, mixed, plus};

fn equations() -> Equations {
    let mut last = None;
    Box::new(move |x, given| {
        let g = given.g();
        let y = match &last {
            None => g.clone(),
            Some((y, before)) => plus(&plus(&mixed(&given.w, y), 1.0, &g), -1.0, before),
        };
        let next = mixed(&given.w, &plus(x, -given.lr, &y));
        last = Some((y, g));
        next
    })
}

#[test]
fn gradient_tracking() {
    Case::of("kind = 'gradient-tracking'").check(|_| equations());
}
