use common::{
    Run,
    dense::{Matrix, identity},
};

use super::{Equations, agrees, plus};

fn equations(liars: usize) -> Equations {
    Box::new(move |x, given| {
        let mean = |i: usize| -> Vec<f64> {
            let near: Vec<usize> =
                (0..x.len()).filter(|&j| j != i && given.w[i][j] != 0.0).collect();
            let at = |k: usize| {
                let mut values: Vec<f64> = near.iter().map(|&j| x[j][k]).collect();
                values.sort_by(f64::total_cmp);
                let kept = &values[liars..values.len() - liars];
                (kept.iter().sum::<f64>() + x[i][k]) / (kept.len() + 1) as f64
            };
            (0..x[i].len()).map(at).collect()
        };
        let means: Matrix = (0..x.len()).map(mean).collect();
        plus(&means, -1.0, &given.u)
    })
}

#[test]
fn trimmed_mean() {
    // Every node needs more than two neighbours for each Byzantine one.
    for (topology, liars) in [
        ("ring:8", 0),
        ("complete:1", 0),
        ("complete:4", 0),
        ("complete:4", 1),
        ("torus:3x3", 1),
        ("complete:8", 3),
    ] {
        let rule = format!("kind = 'trimmed-mean'\nliars = {liars}");
        for same_start in [true, false] {
            let run = Run { same_start, ..Run::new(topology, &rule, "kind = 'identity'") };
            agrees(&run, identity, |_| equations(liars));
        }
    }
    let (default, one) = ("kind = 'trimmed-mean'", "kind = 'trimmed-mean'\nliars = 1");
    let models = |rule: &str| Run::new("torus:3x3", rule, "kind = 'identity'").models();
    assert_eq!(models(default), models(one));
}
