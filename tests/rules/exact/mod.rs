//! Rules of gossip against plain dense f64 implementations written from their papers' equations: a
//! file for each rule, with a function that makes one round after the other.

mod beer;
mod choco;
mod choco_edge;
mod clipped_gossip;
mod compressed_gasloc;
mod compressed_qg_dsgdm;
mod d2;
mod d_psgd;
mod dcd;
mod deep_squeeze;
mod ecd;
mod gasloc;
mod gradient_tracking;
mod naive;
mod noloco;
mod qg_dsgdm;
mod sgp;
mod trimmed_mean;

use common::{
    GIVEN, GIVEN_W, Run,
    dense::{C, COMPRESSORS, Matrix, identity, starts},
    difference,
    sgd::{Sgd, Updates},
    widen,
};
use gradvine::{gossip::rule, units::Round};

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

/// What the equations of a round are given besides X.
struct Given {
    /// From 0.
    t: u64,
    w: Matrix,
    /// What the local steps from X subtract, and the sum of their sizes.
    u: Matrix,
    lr: f64,
    c: C,
}

impl Given {
    /// W X - X.
    fn pull(&self, x: &Matrix) -> Matrix {
        plus(&mixed(&self.w, x), -1.0, x)
    }

    /// C of each row.
    fn compressed(&self, x: &Matrix) -> Matrix {
        x.iter().map(|x| (self.c)(x)).collect()
    }

    /// Copies that take the compressed difference from what they copy.
    fn updated(&self, copies: &Matrix, x: &Matrix) -> Matrix {
        plus(copies, 1.0, &self.compressed(&plus(x, -1.0, copies)))
    }

    /// The gradients of which the updates were made.
    fn g(&self) -> Matrix {
        scaled(1.0 / self.lr, &self.u)
    }
}

/// The 0 of the shape of X.
fn zeros(run: &Run) -> Matrix {
    vec![vec![0.0; run.d]; run.nodes()]
}

/// A round of a rule: the next X. What the rule remembers is in the closure.
type Equations = Box<dyn FnMut(&Matrix, &Given) -> Matrix>;

/// The models after all rounds of a run.
fn reference(run: &Run, c: C, mut equations: Equations) -> Matrix {
    let (mut updates, mut x) = (Updates::new(run), starts(run));
    for t in 0..run.rounds {
        let (u, lr) = updates.next(&x);
        let w = run.schedule.mix(Round(t)).dense();
        x = equations(&x, &Given { t, w, u, lr, c });
    }
    x
}

/// Schedules, for the rules that follow them.
const SCHEDULES: [(&str, &str); 8] = [
    ("one-peer-exponential", "exponential:8"),
    ("one-peer-exponential", "exponential:6"),
    ("base-2", "complete:5"),
    ("base-2", "exponential:11"),
    ("random-matching", "ring:7"),
    ("random-matching", "star:5"),
    ("epidemic:3", "complete:8"),
    ("base-2", "complete:1"),
];

/// A rule with constants, and where it is compared with its equations.
struct Case<'a> {
    rule: &'a str,
    /// Whether nodes may start at different points.
    starts_apart: bool,
    /// Whether it is tried with signs: where differences become as small as their rounding, their
    /// signs are not determined.
    signs: bool,
}

impl Case<'_> {
    fn of(rule: &str) -> Case<'_> {
        Case { rule, starts_apart: true, signs: true }
    }

    /// On every kind of topology and schedule on which it runs, with every compressor that has a
    /// twin in f64, and with every way to make updates.
    fn check(&self, equations: impl Fn(&Run) -> Equations) {
        let kind = toml::from_str::<toml::Table>(self.rule).unwrap();
        let entry = rule::find(kind["kind"].as_str().unwrap()).unwrap();
        let tried = |(compressor, _): &&(&str, C)| {
            (entry.compresses || compressor.contains("identity"))
                && (self.signs || !compressor.contains("sign"))
        };
        for (compressor, c) in COMPRESSORS.iter().filter(tried) {
            let agrees = |run: &Run| agrees(run, *c, &equations);
            for topology in ["ring:8", "star:5", "torus:3x3", "complete:4", "complete:1", GIVEN] {
                let run = Run::new(topology, self.rule, compressor);
                agrees(&run);
                if self.starts_apart {
                    agrees(&Run { same_start: false, ..run });
                }
            }
            for topology in ["ring:5", GIVEN] {
                // Among so many numbers some differences are nothing but rounding.
                let determined = |run: &&Run| run.d == 40 || !compressor.contains("sign");
                let runs = Run::new(topology, self.rule, compressor).varied();
                runs.iter().filter(determined).for_each(agrees);
            }
            for (schedule, topology) in SCHEDULES.iter().filter(|_| entry.follows_schedules) {
                let run = Run::scheduled(topology, schedule, self.rule, compressor);
                agrees(&Run { same_start: false, ..run });
            }
        }
    }
}

fn agrees(run: &Run, c: C, equations: impl Fn(&Run) -> Equations) {
    // An even ring is on the edge of what d2 stands.
    let run = Run { allow_unstable: true, ..run.clone() };
    let difference = difference(&reference(&run, c, equations(&run)), &run.models());
    assert!(difference < 1e-5, "{} on {}: {difference:e}", run.words(), run.schedule.name());
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
fn each_way_to_make_updates_and_each_schedule_is_another_run() {
    let run = Run::new(GIVEN, "kind = 'd-psgd'", "kind = 'identity'");
    let (plain, atc) = (widen(&run.models()), |run: &Run| reference(run, identity, d_psgd::atc()));
    for sgd in Sgd::VARIED {
        let other = Run { sgd, ..run.clone() };
        assert!(difference(&plain, &other.models()) > 1e-3, "{sgd:?} changes nothing");
        assert!(difference(&atc(&other), &run.models()) > 1e-3);
    }
    let on =
        |schedule| Run::scheduled("complete:5", schedule, "kind = 'd-psgd'", "kind = 'identity'");
    assert!(difference(&atc(&on("base-2")), &on("random-matching").models()) > 1e-3);
}
