//! Every rule against a plain dense f64 implementation written from its paper's equations.

use common::{
    GIVEN, GIVEN_W, Run, difference,
    sgd::{Sgd, Updates},
    widen,
};

type Matrix = Vec<Vec<f64>>;

/// C in f64, written from its definition.
type C = fn(&[f64]) -> Vec<f64>;

fn identity(v: &[f64]) -> Vec<f64> {
    v.to_vec()
}

/// The 10 largest magnitudes.
fn top_ten(v: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..v.len()).collect();
    order.sort_by(|&i, &j| v[j].abs().total_cmp(&v[i].abs()).then(i.cmp(&j)));
    let mut out = vec![0.0; v.len()];
    order.iter().take(10).for_each(|&i| out[i] = v[i]);
    out
}

/// |v|_1 / d times the sign.
fn scaled_sign(v: &[f64]) -> Vec<f64> {
    let scale = v.iter().map(|x| x.abs()).sum::<f64>() / v.len() as f64;
    v.iter().map(|&x| if x < 0.0 { -scale } else { scale }).collect()
}

const COMPRESSORS: [(&str, C); 3] = [
    ("kind = 'identity'", identity),
    ("kind = 'top-k'\nk = 10", top_ten),
    ("kind = 'sign'\nbucket = 0", scaled_sign),
];

/// W X.
fn mixed(w: &Matrix, x: &Matrix) -> Matrix {
    let d = x[0].len();
    w.iter()
        .map(|row| (0..d).map(|k| row.iter().zip(x).map(|(w, x)| w * x[k]).sum()).collect())
        .collect()
}

/// X + a Y.
fn plus(x: &Matrix, a: f64, y: &Matrix) -> Matrix {
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x + a * y).collect()).collect()
}

/// a X.
fn scaled(a: f64, x: &Matrix) -> Matrix {
    x.iter().map(|x| x.iter().map(|x| a * x).collect()).collect()
}

fn each(x: &Matrix, c: C) -> Matrix {
    x.iter().map(|x| c(x)).collect()
}

/// The models after `run.rounds` rounds by the equations of one rule.
#[expect(clippy::too_many_lines)]
fn reference(rule: &str, run: &Run, c: C, step: f64) -> Matrix {
    let w = run.topology.matrix().dense();
    let mut updates = Updates::new(run);
    let mut x: Matrix = widen(&(0..run.nodes()).map(|node| run.start(node)).collect::<Vec<_>>());
    let zeros: Matrix = x.iter().map(|x| vec![0.0; x.len()]).collect();
    let (mut copies, mut error) =
        (if rule == "dcd" || rule == "ecd" { x.clone() } else { zeros.clone() }, zeros.clone());
    let (mut before, mut y, mut u_before, mut g_before) =
        (zeros.clone(), zeros.clone(), zeros.clone(), zeros);
    for t in 0..run.rounds {
        let (u, lr) = updates.next(&x);
        let g = scaled(1.0 / lr, &u);
        x = match rule {
            "d-psgd cta" => plus(&mixed(&w, &x), -1.0, &u),
            "d-psgd atc" => mixed(&w, &plus(&x, -1.0, &u)),
            "noloco" => {
                // As the authors write it: the means of the changes and of the models apart.
                let (alpha, beta, gamma) = (0.4, 0.6, 0.9);
                let pull = plus(&mixed(&w, &x), -1.0, &x);
                let m = plus(&scaled(alpha, &error), -beta, &mixed(&w, &u));
                error = plus(&m, gamma, &pull);
                plus(&x, 1.0, &error)
            }
            "gasloc" => {
                // error is v.
                let (eta, gamma) = (0.6, 0.8);
                let v = plus(&x, -eta, &u);
                let moved = plus(&v, -1.0, if t == 0 { &x } else { &error });
                let next = plus(&mixed(&w, &v), gamma, &moved);
                error = v;
                next
            }
            "compressed-gasloc" => {
                // error is v, copies are vh.
                let (eta, gamma) = (0.6, 0.8);
                let v = plus(&x, -eta, &u);
                let moved = plus(&v, -1.0, if t == 0 { &x } else { &error });
                copies = plus(&copies, 1.0, &each(&plus(&v, -1.0, &copies), c));
                let away = plus(&mixed(&w, &copies), -1.0, &copies);
                error = v.clone();
                plus(&plus(&v, step, &away), gamma, &moved)
            }
            "qg-dsgdm" => {
                let (beta, mu) = (0.8, 0.7);
                let next = mixed(&w, &plus(&plus(&x, -1.0, &u), -lr * beta, &error));
                let moved = scaled((1.0 - mu) / lr, &plus(&x, -1.0, &next));
                error = plus(&scaled(mu, &error), 1.0, &moved);
                next
            }
            "compressed-qg-dsgdm" => {
                // error is m, copies are zh.
                let (beta, mu) = (0.8, 0.7);
                let z = plus(&plus(&x, -1.0, &u), -lr * beta, &error);
                copies = plus(&copies, 1.0, &each(&plus(&z, -1.0, &copies), c));
                let next = plus(&z, step, &plus(&mixed(&w, &copies), -1.0, &copies));
                let moved = scaled((1.0 - mu) / lr, &plus(&x, -1.0, &next));
                error = plus(&scaled(mu, &error), 1.0, &moved);
                next
            }
            "choco measured" => {
                // y and u_before hold sum |d|^2 and sum |d - C(d)|^2 of each node.
                let h = plus(&x, -1.0, &u);
                let d = plus(&h, -1.0, &copies);
                let sent = each(&d, c);
                let squared = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
                let most = |row: &[f64], i: usize| -> f64 {
                    row.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, w)| w.abs()).sum()
                };
                let away = (0..w.len()).map(|i| most(&w[i], i)).fold(0.0, f64::max);
                let gamma = |i: usize| match t {
                    _ if run.compressor.contains("identity") => 1.0,
                    // The ten greatest are expected to hold less after some rounds.
                    0 if run.compressor.contains("top-k") => {
                        (0.5 / away).min(0.7) * (0.5 * run.nominal()).min(42.0 / run.d as f64)
                    }
                    0 => (0.5 / away).min(0.7) * run.nominal(),
                    _ => (0.5 / away).min(0.7) * (1.0 - u_before[i][0] / y[i][0]),
                };
                let gammas: Vec<f64> = (0..w.len()).map(gamma).collect();
                for i in 0..w.len() {
                    let lost = plus(&vec![d[i].clone()], -1.0, &vec![sent[i].clone()]);
                    y[i][0] = 0.9 * y[i][0] + squared(&d[i]);
                    u_before[i][0] = 0.9 * u_before[i][0] + squared(&lost[0]);
                }
                copies = plus(&copies, 1.0, &sent);
                let mut next = h;
                for i in 0..w.len() {
                    for j in (0..w.len()).filter(|j| *j != i) {
                        for k in 0..next[i].len() {
                            let share = gammas[i].min(gammas[j]) * w[i][j];
                            next[i][k] += share * (copies[j][k] - copies[i][k]);
                        }
                    }
                }
                next
            }
            "naive" => plus(&mixed(&w, &each(&x, c)), -1.0, &u),
            "dcd" => {
                let h = plus(&mixed(&w, &copies), -1.0, &u);
                let z = each(&plus(&h, -1.0, &x), c);
                copies = plus(&copies, 1.0, &z);
                plus(&x, 1.0, &z)
            }
            "ecd" => {
                let t = (t + 1) as f64;
                let next = plus(&mixed(&w, &copies), -1.0, &u);
                let z = plus(&scaled(1.0 - t / 2.0, &x), t / 2.0, &next);
                copies = plus(&scaled(1.0 - 2.0 / t, &copies), 2.0 / t, &each(&z, c));
                next
            }
            "deep-squeeze" => {
                let z = plus(&x, -1.0, &u);
                let v = plus(&z, 1.0, &error);
                let sent = each(&v, c);
                error = plus(&v, -1.0, &sent);
                plus(&z, step, &plus(&mixed(&w, &sent), -1.0, &sent))
            }
            // Where nothing is lost and C has no dice all s_ij of a node are equal.
            "choco icml" | "choco-edge" => {
                let h = plus(&x, -1.0, &u);
                copies = plus(&copies, 1.0, &each(&plus(&h, -1.0, &copies), c));
                plus(&h, step, &plus(&mixed(&w, &copies), -1.0, &copies))
            }
            "choco iclr" => {
                copies = plus(&copies, 1.0, &each(&plus(&x, -1.0, &copies), c));
                let h = plus(&x, -1.0, &u);
                plus(&h, step, &plus(&mixed(&w, &copies), -1.0, &copies))
            }
            "clipped-gossip tau" | "clipped-gossip liars" => {
                let z = plus(&x, -1.0, &u);
                let away = |i: usize, j: usize| -> Vec<f64> {
                    z[j].iter().zip(&z[i]).map(|(a, b)| a - b).collect()
                };
                let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
                let radius = |i: usize| {
                    if rule == "clipped-gossip tau" {
                        return step;
                    }
                    let near = |&j: &usize| j != i && w[i][j] != 0.0;
                    let mut far: Vec<f64> =
                        (0..z.len()).filter(near).map(|j| length(&away(i, j))).collect();
                    far.sort_by(|a, b| b.total_cmp(a));
                    *far.iter().take(step as usize + 1).next_back().unwrap_or(&0.0)
                };
                let moved = |i: usize| {
                    let mut sum = z[i].clone();
                    for j in (0..z.len()).filter(|&j| j != i && w[i][j] != 0.0) {
                        let v = away(i, j);
                        let scale = w[i][j] * (radius(i) / length(&v).max(1e-300)).min(1.0);
                        sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += scale * v);
                    }
                    sum
                };
                (0..z.len()).map(moved).collect()
            }
            "trimmed-mean" => {
                let b = step as usize;
                let near = |i: usize| (0..w.len()).filter(move |&j| j != i).collect::<Vec<_>>();
                let linked = |i: usize| near(i).into_iter().filter(|&j| w[i][j] != 0.0).collect();
                let mean = |i: usize| -> Vec<f64> {
                    let neighbours: Vec<usize> = linked(i);
                    let at = |k: usize| {
                        let mut values: Vec<f64> = neighbours.iter().map(|&j| x[j][k]).collect();
                        values.sort_by(f64::total_cmp);
                        let kept = &values[b..values.len() - b];
                        (kept.iter().sum::<f64>() + x[i][k]) / (kept.len() + 1) as f64
                    };
                    (0..x[i].len()).map(at).collect()
                };
                let mixed: Matrix = (0..x.len()).map(mean).collect();
                plus(&mixed, -1.0, &u)
            }
            "d2" => {
                // x_1 = W (x_0 - lr g_0), then W (2 x - x_before - lr g + lr_before g_before).
                let change = plus(&u, -1.0, &u_before);
                let z = if t == 0 {
                    plus(&x, -1.0, &u)
                } else {
                    plus(&plus(&plus(&x, 1.0, &x), -1.0, &before), -1.0, &change)
                };
                (before, u_before) = (x, u);
                mixed(&w, &z)
            }
            "gradient-tracking" => {
                y = if t == 0 {
                    g.clone()
                } else {
                    plus(&plus(&mixed(&w, &y), 1.0, &g), -1.0, &g_before)
                };
                g_before = g;
                mixed(&w, &plus(&x, -lr, &y))
            }
            "beer" => {
                // copies is H, error is G, y is V.
                if t == 0 {
                    y = g.clone();
                } else {
                    let away = plus(&mixed(&w, &error), -1.0, &error);
                    y = plus(&plus(&plus(&y, step, &away), 1.0, &g), -1.0, &g_before);
                    error = plus(&error, 1.0, &each(&plus(&y, -1.0, &error), c));
                }
                g_before = g;
                let away = plus(&mixed(&w, &copies), -1.0, &copies);
                let next = plus(&plus(&x, step, &away), -lr, &y);
                copies = plus(&copies, 1.0, &each(&plus(&next, -1.0, &copies), c));
                next
            }
            other => panic!("no reference for {other}"),
        };
    }
    x
}

fn check(name: &str, table: &str, step: f64, compressed: bool) {
    // With measured steps some differences become as small as their rounding, and what sign they
    // have is not determined.
    let most = if name == "choco measured" { 2 } else { 3 };
    let compressors = &COMPRESSORS[..if compressed { most } else { 1 }];
    for topology in ["ring:8", "star:5", "torus:3x3", "complete:4", "complete:1", GIVEN] {
        for (compressor, c) in compressors {
            for same_start in [true, false] {
                if ["dcd", "ecd"].contains(&name) && !same_start {
                    continue; // its copies start at the common x_0
                }
                let mut run = Run::new(topology, table, compressor);
                run.same_start = same_start;
                agrees(&run, name, *c, step);
            }
        }
    }
    for topology in ["ring:5", GIVEN] {
        for (compressor, c) in compressors {
            let runs = Run::new(topology, table, compressor).varied();
            // Among so many numbers some differences are nothing but rounding, and what sign they
            // have is not determined.
            let determined = |run: &&Run| run.d == 40 || !compressor.contains("sign");
            runs.iter().filter(determined).for_each(|run| agrees(run, name, *c, step));
        }
    }
}

fn agrees(run: &Run, name: &str, c: C, step: f64) {
    let mut run = run.clone();
    // An even ring is on the edge of what d2 stands.
    run.allow_unstable = true;
    let difference = difference(&reference(name, &run, c, step), &run.models());
    assert!(difference < 1e-5, "{}: {difference:e}", run.words());
}

#[test]
fn weights_of_a_file_are_those_of_the_runs() {
    let topology = Run::new(GIVEN, "kind = 'd-psgd'", "kind = 'identity'").topology;
    let found = topology.matrix().dense();
    for (found, written) in found.iter().flatten().zip(GIVEN_W.iter().flatten()) {
        assert!((found - written).abs() < 1e-15, "{found} for {written}");
    }
}

#[test]
fn each_way_to_make_updates_is_another_run() {
    let run = Run::new(GIVEN, "kind = 'd-psgd'", "kind = 'identity'");
    let plain = widen(&run.models());
    for sgd in Sgd::VARIED {
        let other = Run { sgd, ..run.clone() };
        assert!(difference(&plain, &other.models()) > 1e-3, "{sgd:?} changes nothing");
        assert!(difference(&reference("d-psgd atc", &other, identity, 0.0), &run.models()) > 1e-3);
    }
}

#[test]
fn d_psgd_combine_then_adapt() {
    check("d-psgd cta", "kind = 'd-psgd'\norder = 'cta'", 0.0, false);
}

#[test]
fn d_psgd_adapt_then_combine() {
    check("d-psgd atc", "kind = 'd-psgd'", 0.0, false);
}

#[test]
fn noloco() {
    let table = "kind = 'noloco'\nouter_step = 0.6\nouter_momentum = 0.4\npull = 0.9";
    check("noloco", table, 0.0, false);
}

#[test]
fn gasloc() {
    check("gasloc", "kind = 'gasloc'\nouter_step = 0.6\nouter_momentum = 0.8", 0.0, false);
}

#[test]
fn gasloc_on_public_copies() {
    let table = "kind = 'compressed-gasloc'\nouter_step = 0.6\nouter_momentum = 0.8\n\
                 gossip_step = 0.2";
    check("compressed-gasloc", table, 0.2, true);
}

#[test]
fn qg_dsgdm() {
    check("qg-dsgdm", "kind = 'qg-dsgdm'\nmomentum = 0.8\nmu = 0.7", 0.0, false);
}

#[test]
fn qg_dsgdm_on_public_copies() {
    let table = "kind = 'compressed-qg-dsgdm'\nmomentum = 0.8\nmu = 0.7\ngossip_step = 0.2";
    check("compressed-qg-dsgdm", table, 0.2, true);
}

#[test]
fn choco_by_the_measured_contraction() {
    check("choco measured", "kind = 'choco'\ngamma = 'measured'", 0.0, true);
}

#[test]
fn naive_compression() {
    check("naive", "kind = 'naive'", 0.0, true);
}

#[test]
fn dcd() {
    check("dcd", "kind = 'dcd'", 0.0, true);
}

#[test]
fn ecd() {
    check("ecd", "kind = 'ecd'", 0.0, true);
}

#[test]
fn deep_squeeze() {
    check("deep-squeeze", "kind = 'deep-squeeze'\neta = 0.2", 0.2, true);
}

#[test]
fn choco_of_2019() {
    check("choco icml", "kind = 'choco'\ngamma = 0.3", 0.3, true);
}

#[test]
fn choco_of_2020() {
    check("choco iclr", "kind = 'choco'\norder = 'iclr'\ngamma = 0.3", 0.3, true);
}

#[test]
fn choco_on_edges() {
    check("choco-edge", "kind = 'choco-edge'\ngamma = 0.3", 0.3, true);
}

#[test]
fn d2_of_2018() {
    check("d2", "kind = 'd2'", 0.0, false);
}

#[test]
fn clipped_gossip_with_a_given_radius() {
    // Below, among and above the distances.
    for tau in [0.01, 0.3, 1e6] {
        let table = format!("kind = 'clipped-gossip'\ntau = {tau:?}");
        check("clipped-gossip tau", &table, tau, false);
    }
    let clipped = Run::new("ring:8", "kind = 'clipped-gossip'\ntau = 0.01", "kind = 'identity'");
    let plain = Run::new("ring:8", "kind = 'd-psgd'", "kind = 'identity'");
    assert!(difference(&widen(&plain.models()), &clipped.models()) > 1e-3, "nothing is clipped");
}

#[test]
fn clipped_gossip_with_a_number_of_liars() {
    check("clipped-gossip liars", "kind = 'clipped-gossip'", 1.0, false);
    for liars in [0, 2] {
        let table = format!("kind = 'clipped-gossip'\nliars = {liars}");
        check("clipped-gossip liars", &table, f64::from(liars), false);
    }
}

#[test]
fn trimmed_mean() {
    for (topology, liars) in [
        ("ring:8", 0),
        ("complete:1", 0),
        ("complete:4", 0),
        ("complete:4", 1),
        ("torus:3x3", 1),
        ("complete:8", 3),
    ] {
        let table = format!("kind = 'trimmed-mean'\nliars = {liars}");
        for same_start in [true, false] {
            let mut run = Run::new(topology, &table, "kind = 'identity'");
            run.same_start = same_start;
            agrees(&run, "trimmed-mean", identity, f64::from(liars));
        }
    }
    let (default, one) = ("kind = 'trimmed-mean'", "kind = 'trimmed-mean'\nliars = 1");
    let models = |table: &str| Run::new("torus:3x3", table, "kind = 'identity'").models();
    assert_eq!(models(default), models(one));
}

#[test]
fn gradient_tracking() {
    check("gradient-tracking", "kind = 'gradient-tracking'", 0.0, false);
}

#[test]
fn beer() {
    check("beer", "kind = 'beer'\ngamma = 0.2", 0.2, true);
}

#[test]
fn the_two_orders_of_d_psgd_differ() {
    let atc = Run::new("ring:8", "kind = 'd-psgd'", "kind = 'identity'").models();
    let cta = Run::new("ring:8", "kind = 'd-psgd'\norder = 'cta'", "kind = 'identity'").models();
    assert!(difference(&widen(&atc), &cta) > 1e-3);
}
