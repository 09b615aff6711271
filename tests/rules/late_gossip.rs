//! Gossip that lands late: the equations, the limit of the averaging step, the mean.

use common::{
    GIVEN, Run,
    dense::{C, COMPRESSORS, Matrix, mean, plus, starts},
    difference,
    sgd::Updates,
    widen,
};

const IDENTITY: &str = "kind = 'identity'";

/// Models by the equations; what is in the air after the last round lands in the end.
fn reference(run: &Run, c: C, eta: f64, delay: usize) -> Matrix {
    let (w, mut updates) = (run.topology.matrix().dense(), Updates::new(run));
    let mut x = starts(run);
    let mut error: Matrix = x.iter().map(|x| vec![0.0; x.len()]).collect();
    let mut moves: Vec<Matrix> = Vec::new();
    let land = |x: &mut Matrix, moves: &Matrix| {
        for (x, moves) in x.iter_mut().zip(moves) {
            *x = plus(x, 1.0, moves);
        }
    };
    for n in 0..run.rounds as usize {
        let u = updates.next(&x).0;
        let mut sent = Matrix::new();
        for i in 0..x.len() {
            x[i] = plus(&x[i], -1.0, &u[i]);
            let v = plus(&x[i], 1.0, &error[i]);
            sent.push(c(&v));
            error[i] = plus(&v, -1.0, &sent[i]);
        }
        let towards = |i: usize| {
            let zero = vec![0.0; sent[i].len()];
            (0..sent.len())
                .fold(zero, |sum, j| plus(&sum, eta * w[i][j], &plus(&sent[j], -1.0, &sent[i])))
        };
        moves.push((0..sent.len()).map(towards).collect());
        if let Some(landing) = n.checked_sub(delay) {
            land(&mut x, &moves[landing]);
        }
    }
    for moves in &moves[moves.len().saturating_sub(delay)..] {
        land(&mut x, moves);
    }
    x
}

#[test]
fn what_is_mixed_lands_so_many_rounds_late() {
    for topology in ["ring:8", "star:5", "torus:3x3", "complete:1"] {
        for (compressor, c) in COMPRESSORS {
            for (delay, eta) in [(1, 0.2), (4, 0.1), (50, 0.01)] {
                let run = Run::new(
                    topology,
                    &format!("kind = 'deep-squeeze'\neta = {eta}\ndelay = {delay}"),
                    compressor,
                );
                let found = difference(&reference(&run, c, eta, delay), &run.models());
                assert!(found < 1e-5, "{compressor} on {topology}, {delay} rounds late: {found:e}");
                // What lands a round too early is another sequence.
                let early = difference(&reference(&run, c, eta, delay - 1), &run.models());
                assert!(
                    early > 1e-5 || topology == "complete:1" || delay >= 30,
                    "{compressor} on {topology}, {delay}: {early:e}"
                );
            }
        }
    }
}

#[test]
fn so_it_is_with_other_updates_and_wide_models() {
    for topology in ["ring:5", GIVEN] {
        // Not signs: among so many numbers some are nothing but rounding.
        for (compressor, c) in
            COMPRESSORS.into_iter().filter(|(compressor, _)| !compressor.contains("sign"))
        {
            for run in Run::new(topology, "kind = 'deep-squeeze'\neta = 0.1\ndelay = 4", compressor)
                .varied()
            {
                let found = difference(&reference(&run, c, 0.1, 4), &run.models());
                assert!(found < 1e-5, "{}: {found:e}", run.words());
            }
        }
    }
}

#[test]
fn without_delay_it_is_the_rule_of_the_paper() {
    for compressor in [IDENTITY, "kind = 'min-max'"] {
        let plain = Run::new("ring:8", "kind = 'deep-squeeze'\neta = 0.2", compressor).models();
        assert_eq!(
            plain,
            Run::new("ring:8", "kind = 'deep-squeeze'\neta = 0.2\ndelay = 0", compressor).models()
        );
    }
    let whole = Run::new("ring:8", "kind = 'd-psgd'", IDENTITY).models();
    assert!(
        difference(&widen(&whole), &Run::new("ring:8", "kind = 'deep-squeeze'", IDENTITY).models())
            < 1e-5
    );
}

/// Gossip alone, from different starts: (the largest disagreement of a coordinate, how far the mean
/// moved).
fn gossip(topology: &str, delay: u32, eta: f64, compressor: &str) -> (f64, f64) {
    let rule = format!("kind = 'deep-squeeze'\ndelay = {delay}\neta = {eta}");
    let mut run = Run::new(topology, &rule, compressor);
    (run.step, run.rounds, run.same_start, run.allow_unstable) = (0.0, 1500, false, true);
    // Where numbers grow without bound the run ends by itself.
    let Ok(ended) = run.ended() else { return (f64::INFINITY, f64::NAN) };
    let models = widen(&ended.into_iter().map(|one| one.model).collect::<Vec<_>>());
    let before = mean(&starts(&run));
    let after = mean(&models);
    let apart =
        |x: &Vec<f64>| x.iter().zip(&after).map(|(x, mean)| (x - mean).abs()).fold(0.0, f64::max);
    let moved =
        before.iter().zip(&after).map(|(before, after)| (before - after).abs()).fold(0.0, f64::max);
    (models.iter().map(apart).fold(0.0, f64::max), moved)
}

/// 2 cos(t pi / (2 t + 1)) / (1 - l_n) for an even ring, where l_n is -1/3, and for all pairs,
/// where it is 0.
#[test]
fn the_averaging_step_has_the_limit_of_the_difference_delay_equation() {
    for (topology, away) in [("ring:8", 4.0 / 3.0), ("complete:5", 1.0)] {
        for delay in [1_u32, 4, 10] {
            let t = f64::from(delay);
            let limit = 2.0 * (t * std::f64::consts::PI / (2.0 * t + 1.0)).cos() / away;
            let (below, moved) = gossip(topology, delay, 0.9 * limit, IDENTITY);
            assert!(below < 1e-2, "{topology}, {delay} rounds late, below the limit: {below}");
            assert!(moved < 1e-4, "{topology}, {delay} rounds late: the mean moved by {moved:e}");
            let (above, _) = gossip(topology, delay, 1.1 * limit, IDENTITY);
            assert!(above > 10.0, "{topology}, {delay} rounds late, above the limit: {above}");
        }
    }
}

#[test]
#[ignore = "slow"]
fn the_default_step_converges_and_too_long_a_step_is_refused() {
    for compressor in [IDENTITY, "kind = 'min-max'\nbits = 4", "kind = 'sign'"] {
        for delay in [0, 1, 4, 16] {
            let mut run =
                Run::new("ring:8", &format!("kind = 'deep-squeeze'\ndelay = {delay}"), compressor);
            // All minima are at one point: nothing but the disagreement that is left keeps nodes
            // from it.
            (run.rounds, run.step, run.spread) = (1500, 0.05, 0.0);
            let models = widen(&run.models());
            let optimum = mean(&common::dense::centralized(&run));
            let off = models
                .iter()
                .flatten()
                .zip(optimum.iter().cycle())
                .map(|(x, best)| (x - best).abs())
                .fold(0.0, f64::max);
            // The sign's floor is 0.3 without a delay, too; a run that swings apart is past 10.
            assert!(off < 0.5, "{compressor}, {delay} rounds late: {off}");
        }
    }
    let run = Run::new("ring:8", "kind = 'deep-squeeze'\ndelay = 4\neta = 0.3", IDENTITY);
    let error = run.refusal();
    assert!(error.contains("rule.eta = 0.3") && error.contains("below 0.260472"), "{error}");
}
