//! Centralized rules that compress, against plain dense f64; what their papers claim of them; what
//! must fail.

use common::{
    Run,
    dense::{C, COMPRESSORS, Matrix, centralized, check_agreed, mean, plus, starts},
    difference,
    sgd::Updates,
};
use gradvine::{drive::RunError, gossip::Failure};

const IDENTITY: &str = "kind = 'identity'";
const PLACES: [(&str, &str); 4] = [
    ("star:6", "server"),
    ("complete:5", "server"),
    ("complete:5", "all-to-all"),
    ("complete:1", "server"),
];

/// Which rule, in words of this file.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Single,
    Double,
    Ef,
    DoubleSqueeze,
    /// With beta 0.8 and alpha 0.7.
    SparseLoco,
}

/// The common model after all rounds, and the errors that are remembered (their mean, in units of
/// the last step).
fn reference(rule: Rule, run: &Run, c: C) -> (Vec<f64>, Vec<f64>) {
    let mut updates = Updates::new(run);
    let n = run.nodes();
    let mut unit = 1.0;
    let mut x = starts(run)[0].clone();
    let mut errors: Matrix = vec![vec![0.0; run.d]; n];
    let mut server = vec![0.0; run.d];
    for _ in 0..run.rounds {
        let (u, lr) = updates.next(&vec![x.clone(); n]);
        match rule {
            Rule::Single | Rule::Double => {
                let sent = mean(&u.iter().map(|u| c(u)).collect());
                x = plus(&x, -1.0, &if rule == Rule::Double { c(&sent) } else { sent });
            }
            Rule::Ef => {
                let p: Matrix = u.iter().zip(&errors).map(|(u, e)| plus(e, 1.0, u)).collect();
                let sent: Matrix = p.iter().map(|p| c(p)).collect();
                errors = p.iter().zip(&sent).map(|(p, sent)| plus(p, -1.0, sent)).collect();
                x = plus(&x, -1.0, &mean(&sent));
            }
            Rule::SparseLoco => {
                let zero = vec![0.0; run.d];
                let kept = errors.iter().map(|e| plus(&zero, 0.8, e));
                let p: Matrix = kept.zip(&u).map(|(e, u)| plus(&e, 1.0, u)).collect();
                let sent: Matrix = p.iter().map(|p| c(p)).collect();
                errors = p.iter().zip(&sent).map(|(p, sent)| plus(p, -1.0, sent)).collect();
                x = plus(&x, -0.7, &mean(&sent));
            }
            Rule::DoubleSqueeze => {
                // Of gradients, not of steps.
                let v: Matrix = u.iter().zip(&errors).map(|(u, e)| plus(e, 1.0 / lr, u)).collect();
                let sent: Matrix = v.iter().map(|v| c(v)).collect();
                errors = v.iter().zip(&sent).map(|(v, sent)| plus(v, -1.0, sent)).collect();
                let at_server = plus(&mean(&sent), 1.0, &server);
                let down = c(&at_server);
                server = plus(&at_server, -1.0, &down);
                x = plus(&x, -lr, &down);
                unit = lr;
            }
        }
    }
    let left = plus(&mean(&errors), 1.0, &server);
    (x, left.iter().map(|e| unit * e).collect())
}

fn check(rule: Rule, table: &str, server_only: bool) {
    for (topology, collective) in PLACES.iter().filter(|place| !server_only || place.1 == "server")
    {
        let table = if rule == Rule::DoubleSqueeze {
            table.into()
        } else {
            format!("{table}\ncollective = '{collective}'")
        };
        for (compressor, c) in &COMPRESSORS {
            for run in Run::new(topology, &table, compressor).varied() {
                let (x, _) = reference(rule, &run, *c);
                check_agreed(&run, &vec![x; run.nodes()]);
            }
        }
    }
}

#[test]
fn single_compression() {
    check(Rule::Single, "kind = 'compressed-c-sgd'", false);
}

#[test]
fn double_compression() {
    check(Rule::Double, "kind = 'compressed-c-sgd'\ndouble = true", true);
}

#[test]
fn error_feedback() {
    check(Rule::Ef, "kind = 'ef-sgd'", false);
}

#[test]
fn sparse_loco() {
    check(Rule::SparseLoco, "kind = 'sparse-loco'\ndecay = 0.8\nouter_step = 0.7", false);
}

#[test]
fn double_squeeze() {
    check(Rule::DoubleSqueeze, "kind = 'double-squeeze'", true);
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
        let (_, left) = reference(Rule::DoubleSqueeze, &run, *c);
        let with_memory = vec![plus(&all, 1.0, &left); run.nodes()];
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
        let rule = format!("kind = 'sign-sgd'\ncollective = '{collective}'");
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
        let receivers = if collective == "all-to-all" { 4 } else { u64::from(run.nodes() > 1) };
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
        let refused = Run::new("star:6", rule, coarse).try_prepare().unwrap_err().to_string();
        assert!(
            refused.contains("nominal delta") && refused.contains("run.allow_unstable"),
            "{refused}"
        );
        let mut run = Run::new("star:6", rule, coarse);
        (run.allow_unstable, run.rounds) = (true, 3000);
        match run.ended() {
            Err(RunError::Failed { failure: Failure::Diverged { .. }, .. }) => {}
            Ok(ended) => {
                let models: Vec<Vec<f32>> = ended.into_iter().map(|ended| ended.model).collect();
                assert!(run.suboptimality(&models) > 1e3, "{rule} should diverge");
            }
            Err(other) => panic!("{rule}: {other}"),
        }
        let mut run = Run::new("star:6", rule, scaled);
        (run.rounds, run.step) = (3000, 0.02);
        assert!(run.suboptimality(&run.models()) < 0.1);
    }
}
