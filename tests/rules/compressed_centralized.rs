//! Centralized rules that compress, against plain dense f64; what their papers claim of them; what
//! must fail.

use std::sync::{Arc, Mutex};

use common::{
    Run,
    dense::{C, COMPRESSORS, Matrix, centralized, check_agreed, mean, plus, starts},
    difference,
    sgd::Updates,
};

const IDENTITY: &str = "kind = 'identity'";
const SERVER: &str = "collective = 'server'";
const ALL_TO_ALL: &str = "collective = 'all-to-all'";
const PLACES: [(&str, &str); 4] = [
    ("star:6", SERVER),
    ("complete:5", SERVER),
    ("complete:5", ALL_TO_ALL),
    ("complete:1", SERVER),
];

/// A round: changes the common x by what each node's local steps subtract, the sum of their sizes,
/// and C. What the rule remembers is in the closure.
type Round = Box<dyn FnMut(&mut Vec<f64>, &Matrix, f64, C)>;

/// The common model after all rounds.
fn reference(run: &Run, c: C, mut round: Round) -> Vec<f64> {
    let mut updates = Updates::new(run);
    let mut x = starts(run)[0].clone();
    for _ in 0..run.rounds {
        let (u, lr) = updates.next(&vec![x.clone(); run.nodes()]);
        round(&mut x, &u, lr, c);
    }
    x
}

fn each(c: C, v: &Matrix) -> Matrix {
    v.iter().map(|v| c(v)).collect()
}

/// V + a Y.
fn add(v: &Matrix, a: f64, y: &Matrix) -> Matrix {
    v.iter().zip(y).map(|(v, y)| plus(v, a, y)).collect()
}

fn zeros(run: &Run) -> Matrix {
    vec![vec![0.0; run.d]; run.nodes()]
}

fn single(_: &Run) -> Round {
    Box::new(|x, u, _, c| *x = plus(x, -1.0, &mean(&each(c, u))))
}

fn double(_: &Run) -> Round {
    Box::new(|x, u, _, c| *x = plus(x, -1.0, &c(&mean(&each(c, u)))))
}

fn ef(run: &Run) -> Round {
    let mut errors = zeros(run);
    Box::new(move |x, u, _, c| {
        let p = add(&errors, 1.0, u);
        let sent = each(c, &p);
        errors = add(&p, -1.0, &sent);
        *x = plus(x, -1.0, &mean(&sent));
    })
}

fn sparse_loco(run: &Run) -> Round {
    let (beta, alpha, mut errors) = (0.8, 0.7, zeros(run));
    Box::new(move |x, u, _, c| {
        let p = add(u, beta, &errors);
        let sent = each(c, &p);
        errors = add(&p, -1.0, &sent);
        *x = plus(x, -alpha, &mean(&sent));
    })
}

/// Also keeps the errors that are remembered: their mean, in units of the last step.
fn double_squeeze(run: &Run, left: Arc<Mutex<Vec<f64>>>) -> Round {
    let (mut errors, mut server) = (zeros(run), vec![0.0; run.d]);
    Box::new(move |x, u, lr, c| {
        // Of gradients, not of steps.
        let v = add(&errors, 1.0 / lr, u);
        let sent = each(c, &v);
        errors = add(&v, -1.0, &sent);
        let at_server = plus(&mean(&sent), 1.0, &server);
        let down = c(&at_server);
        server = plus(&at_server, -1.0, &down);
        *x = plus(x, -lr, &down);
        *left.lock().unwrap() = plus(&mean(&errors), 1.0, &server).iter().map(|e| lr * e).collect();
    })
}

/// Where the rule runs, with every compressor that has a twin in f64.
fn check(table: &str, places: &[(&str, &str)], round: impl Fn(&Run) -> Round) {
    for (topology, constants) in places {
        for (compressor, c) in &COMPRESSORS {
            for run in Run::new(topology, &format!("{table}\n{constants}"), compressor).varied() {
                let x = reference(&run, *c, round(&run));
                check_agreed(&run, &vec![x; run.nodes()]);
            }
        }
    }
}

const SERVERS: [(&str, &str); 3] = [("star:6", ""), ("complete:5", ""), ("complete:1", "")];

#[test]
fn runs_are_those_of_the_equations() {
    check("kind = 'compressed-c-sgd'", &PLACES, single);
    check("kind = 'compressed-c-sgd'\ndouble = true", &SERVERS, double);
    check("kind = 'ef-sgd'", &PLACES, ef);
    check("kind = 'sparse-loco'\ndecay = 0.8\nouter_step = 0.7", &PLACES, sparse_loco);
    check("kind = 'double-squeeze'", &SERVERS, |run| double_squeeze(run, Arc::default()));
}

#[test]
fn with_the_identity_all_of_them_are_centralized_sgd() {
    for rule in [
        "kind = 'compressed-c-sgd'",
        "kind = 'compressed-c-sgd'\ndouble = true",
        "kind = 'ef-sgd'",
        "kind = 'sparse-loco'",
        "kind = 'double-squeeze'",
    ] {
        for run in Run::new("star:6", rule, IDENTITY).varied() {
            check_agreed(&run, &centralized(&run));
        }
    }
}

#[test]
fn double_squeeze_loses_nothing_and_its_ledger_balances() {
    // x_t + lr (mean d_i + d_s) = x_0 - lr sum of mean gradients: the model less its memories has
    // taken every gradient in full.
    for (compressor, c) in &COMPRESSORS {
        let run = Run::new("star:6", "kind = 'double-squeeze'", compressor);
        let (mut updates, mut all) = (Updates::new(&run), starts(&run)[0].clone());
        for rounds in 0..run.rounds {
            let mut until = run.clone();
            until.rounds = rounds;
            let at: Vec<f64> = if rounds == 0 {
                starts(&run)[0].clone()
            } else {
                until.models()[0].iter().map(|&x| f64::from(x)).collect()
            };
            all = plus(&all, -1.0, &mean(&updates.next(&vec![at; run.nodes()]).0));
        }
        let left = Arc::default();
        reference(&run, *c, double_squeeze(&run, Arc::clone(&left)));
        let with_memory = vec![plus(&all, 1.0, &left.lock().unwrap()); run.nodes()];
        let off = difference(&with_memory, &run.models());
        assert!(off < 1e-5, "{compressor}: {off:e}");
        // The control: without the memories it does not balance.
        if *compressor != IDENTITY {
            assert!(difference(&vec![all; run.nodes()], &run.models()) > 1e-3);
        }
    }
}

#[test]
fn sign_sgd_counts_votes() {
    for (topology, collective) in PLACES {
        let rule = format!("kind = 'sign-sgd'\n{collective}");
        let mut run = Run::new(topology, &rule, IDENTITY);
        (run.step, run.d) = (0.01, 21);
        let sign = |x: f64| if x < 0.0 { -1.0 } else { 1.0 };
        for run in run.varied() {
            let (mut updates, mut x) = (Updates::new(&run), starts(&run)[0].clone());
            for _ in 0..run.rounds {
                let (u, lr) = updates.next(&vec![x.clone(); run.nodes()]);
                let votes: Vec<f64> =
                    (0..run.d).map(|k| sign(u.iter().map(|u| sign(u[k])).sum())).collect();
                x = plus(&x, -lr, &votes);
            }
            check_agreed(&run, &vec![x; run.nodes()]);
        }
        let bytes: u64 = run.ended().unwrap()[run.nodes() - 1].traffic.payload;
        let receivers = if collective == ALL_TO_ALL { 4 } else { u64::from(run.nodes() > 1) };
        assert_eq!(
            bytes,
            run.rounds * receivers * (4 + 3),
            "21 signs in three bytes behind a scale"
        );
    }
}

#[test]
fn sign_sgd_settles_away_from_the_minimum_where_data_differ() {
    let gap = |rule: &str, compressor: &str| {
        let mut run = Run::new("star:6", rule, compressor);
        (run.rounds, run.step, run.spread) = (3000, 0.002, 1.0);
        run.suboptimality(&run.models())
    };
    let (votes, plain) = (gap("kind = 'sign-sgd'", IDENTITY), gap("kind = 'c-sgd'", IDENTITY));
    let remembered = gap("kind = 'ef-sgd'", "kind = 'sign'");
    assert!(votes > 20.0 * plain.max(1e-3), "majority {votes:e}, exact {plain:e}");
    assert!(remembered < 0.2 * votes, "with error feedback {remembered:e}, majority {votes:e}");
}

#[test]
fn without_memory_a_biased_compressor_stalls_and_with_it_it_does_not() {
    let gap = |rule: &str| {
        let mut run = Run::new("star:6", rule, "kind = 'top-k'\nk = 2");
        (run.rounds, run.step) = (4000, 0.02);
        run.suboptimality(&run.models())
    };
    let forgetful = gap("kind = 'compressed-c-sgd'");
    for rule in ["kind = 'ef-sgd'", "kind = 'double-squeeze'"] {
        let with_memory = gap(rule);
        assert!(
            with_memory < 0.05 * forgetful,
            "{rule}: {with_memory:e}, without memory {forgetful:e}"
        );
    }
    let warned =
        Run::new("star:6", "kind = 'compressed-c-sgd'", "kind = 'top-k'\nk = 2").prepare().warnings;
    assert!(warned[0].contains("biased"), "{warned:?}");
    assert!(
        Run::new("star:6", "kind = 'compressed-c-sgd'", "kind = 'qsgd'")
            .prepare()
            .warnings
            .is_empty()
    );
}

#[test]
fn error_feedback_diverges_with_an_expanding_compressor_and_works_with_its_contraction() {
    let (coarse, scaled) =
        ("kind = 'random-k'\nk = 3\nscaled = true", "kind = 'random-k'\nk = 3\nscaled = false");
    for rule in ["kind = 'ef-sgd'", "kind = 'double-squeeze'"] {
        let refused = Run::new("star:6", rule, coarse).refusal();
        assert!(
            refused.contains("nominal delta") && refused.contains("run.allow_unstable"),
            "{refused}"
        );
        let run = Run { rounds: 3000, ..Run::new("star:6", rule, coarse) };
        assert!(run.diverges(), "{rule} should diverge");
        let mut run = Run::new("star:6", rule, scaled);
        (run.rounds, run.step) = (3000, 0.02);
        assert!(run.suboptimality(&run.models()) < 0.1);
    }
}
