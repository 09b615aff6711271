//! Sketched-SGD against plain dense f64 implementations of its two algorithms, and what its paper
//! claims.

use common::{
    Run,
    central::{
        IDENTITY, Matrix, centralized, check, distance, greatest, leak, plus, reference, script,
    },
    dense::mean,
    sketch::Plain,
};
use gradvine::{
    compress::{CountSketch, SketchShape},
    drive::RunError,
    rng::{Purpose, Stream},
    units::Round,
};

const COLLECTIVES: [(&str, &str); 9] = [
    ("star:6", "server"),
    ("complete:1", "server"),
    ("ring:5", "ring"),
    ("complete:2", "ring"),
    ("complete:1", "ring"),
    ("hypercube:8", "tree"),
    ("complete:5", "tree"),
    ("complete:1", "tree"),
    ("complete:4", "server"),
];

fn sketched(topology: &str, constants: &str, (rows, columns): (usize, usize)) -> Run {
    let compressor = format!("kind = 'count-sketch'\nrows = {rows}\ncolumns = {columns}");
    Run::new(topology, &format!("kind = 'sketched-sgd'\n{constants}"), &compressor)
}

/// The hashes of a run: the sum of the nodes' sketches is that of the sum, as they are linear.
fn hashes() -> Stream {
    // The seed of the runs in these tests.
    Stream::new(3, Purpose::Rule).with(0)
}

/// The places that a node asks for: what is heavy by the plain sketch, filled up with what the
/// run's dice choose.
fn places(v: &[f64], k: usize, shape: SketchShape, round: u64) -> Vec<usize> {
    // The dice, and nothing else, come from the crate.
    let mut drawn = CountSketch::new(shape, v.len(), hashes());
    drawn.accumulate(&v.iter().map(|&v| v as f32).collect::<Vec<_>>()).unwrap();
    let mut places = Vec::new();
    drawn.heavy_mix(k, Stream::new(3, Purpose::Rule).with(1).round(Round(round)), &mut places);
    let places: Vec<usize> = places.into_iter().map(|i| i as usize).collect();
    let plain = Plain::of(v, shape, hashes());
    let weights = plain.weights(k);
    // f32 decides of what is on the bound to a thousandth.
    let heavy: Vec<usize> = (0..v.len()).filter(|&i| weights[i] > 1.001).collect();
    let known = weights.iter().filter(|&&weight| weight > 0.999).count();
    assert!(places.len() == k && places.is_sorted_by(|a, b| a < b));
    if known <= k {
        assert!(heavy.iter().all(|i| places.contains(i)));
    } else if heavy.len() >= k {
        let estimates = plain.estimates();
        let least = places.iter().map(|&i| estimates[i].abs()).fold(f64::INFINITY, f64::min);
        let left = (0..v.len())
            .filter(|i| !places.contains(i))
            .map(|i| estimates[i].abs())
            .fold(0.0, f64::max);
        assert!(
            least > left * 0.9999,
            "of more than k heavy ones the k greatest: {least} taken, {left} left"
        );
    }
    places
}

/// Algorithm 2.
fn theory(run: &Run, k: usize, shape: (usize, usize)) -> Vec<f64> {
    let shape = SketchShape { rows: shape.0, columns: shape.1 };
    let mut a = vec![vec![0.0; run.d]; run.nodes()];
    let mut round = 0;
    reference(run, |x, u| {
        let gb: Matrix = a.iter().zip(&u).map(|(a, u)| plus(a, 1.0, u)).collect();
        let mean = mean(&gb);
        let mut gt = vec![0.0; run.d];
        places(&mean, k, shape, round).into_iter().for_each(|i| gt[i] = mean[i]);
        *x = plus(x, -1.0, &gt);
        a = gb.iter().map(|gb| plus(gb, -1.0, &gt)).collect();
        round += 1;
    })
}

/// Algorithm 3 on means.
fn practical(run: &Run, k: usize, candidates: usize, m: f64, shape: (usize, usize)) -> Vec<f64> {
    let n = run.nodes();
    let (mut u, mut v) = (vec![vec![0.0; run.d]; n], vec![vec![0.0; run.d]; n]);
    reference(run, |x, g| {
        for i in 0..n {
            u[i] = plus(&g[i], m, &u[i]);
            v[i] = plus(&v[i], 1.0, &u[i]);
        }
        let mean = mean(&v);
        let estimates =
            Plain::of(&mean, SketchShape { rows: shape.0, columns: shape.1 }, hashes()).estimates();
        let asked = greatest(&estimates, (candidates * k).min(run.d));
        let exact: Vec<f64> = asked.iter().map(|&i| mean[i]).collect();
        for place in greatest(&exact, k).into_iter().map(|position| asked[position]) {
            x[place] -= mean[place];
            for i in 0..n {
                (u[i][place], v[i][place]) = (0.0, 0.0);
            }
        }
    })
}

#[test]
fn the_algorithm_of_the_theory_by_every_collective() {
    for (topology, collective) in COLLECTIVES {
        for (k, shape) in [(4, (5, 20)), (7, (3, 33)), (1, (1, 50))] {
            let run = sketched(topology, &format!("collective = '{collective}'\nk = {k}"), shape);
            check(&run, &theory(&run, k, shape));
        }
    }
    for run in sketched("star:6", "k = 6", (5, 40)).varied() {
        check(&run, &theory(&run, 6, (5, 40)));
    }
    // Another memory is another rule: what a node has sent, not what all apply.
    let run = sketched("star:6", "k = 4", (5, 20));
    assert!(distance(&run, &practical(&run, 4, 1, 0.0, (5, 20))) > 1e-3);
}

#[test]
fn the_algorithm_of_practice_by_every_collective() {
    for (topology, collective) in COLLECTIVES {
        for (k, candidates, m, shape) in
            [(4, 3, 0.9, (5, 30)), (2, 1, 0.5, (3, 40)), (6, 100, 0.0, (5, 20))]
        {
            let constants = format!(
                "variant = 'practical'\ncollective = '{collective}'\nk = {k}\ncandidates = \
                 {candidates}\nmomentum = {m:?}"
            );
            let run = sketched(topology, &constants, shape);
            check(&run, &practical(&run, k, candidates, m, shape));
        }
    }
    for run in sketched("star:6", "variant = 'practical'\nk = 4\nmomentum = 0.5", (5, 60)).varied()
    {
        check(&run, &practical(&run, 4, 4, 0.5, (5, 60)));
    }
}

#[test]
fn with_all_entries_both_are_centralized_sgd() {
    for (topology, collective) in COLLECTIVES {
        for variant in ["theory", "practical"] {
            let constants =
                format!("variant = '{variant}'\ncollective = '{collective}'\nfraction = 1.0");
            let run = sketched(topology, &constants, (3, 7));
            check(&run, &centralized(&run));
        }
    }
}

#[test]
fn what_is_not_applied_is_remembered() {
    for constants in ["k = 3", "variant = 'practical'\nk = 3\nmomentum = 0.0"] {
        let mut run = sketched("star:5", constants, (5, 40));
        run.rounds = 800;
        let lost = leak(&run, &script(&run, 20, 5));
        assert!(lost < 1e-4, "{constants}: {lost:e}");
        run.rounds = 21;
        assert!(
            leak(&run, &script(&run, 20, 5)) > 0.01,
            "what is still remembered has not been applied"
        );
    }
}

#[test]
fn data_that_differ_between_nodes_leave_no_floor() {
    let floor = |rule: &str, compressor: &str| {
        let mut run = Run::new("star:8", rule, compressor);
        run.rounds = 4000;
        run.suboptimality(&run.models())
    };
    let local = floor("kind = 'top-k-all-gather'", "kind = 'top-k'\nk = 4");
    let sketch =
        floor("kind = 'sketched-sgd'\nk = 4", "kind = 'count-sketch'\nrows = 5\ncolumns = 40");
    println!("f - f*: mean of top-k's {local:.3e}, top-k of the mean {sketch:.3e}");
    assert!(sketch < 1e-6 && local > 100.0 * sketch.abs(), "{sketch:e} against {local:e}");
}

/// f at the end relative to f at the start, or infinity, on a problem of 1024 numbers.
fn remaining(constants: &str, shape: (usize, usize)) -> f64 {
    let mut run = sketched("star:8", constants, shape);
    (run.d, run.rounds, run.step) = (1024, 1500, 0.01);
    let problems = run.problems();
    let f = |x: &[f32]| {
        let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        problems.iter().map(|p| p.loss(&x)).sum::<f64>()
    };
    match run.ended() {
        Ok(ended) => f(&ended[0].model) / f(&run.start(0)),
        Err(RunError::Failed { .. }) => f64::INFINITY,
        Err(other) => panic!("{other}"),
    }
}

#[test]
#[ignore = "slow"]
fn a_table_of_4_k_columns_works_and_one_of_k_is_unstable() {
    let [ample, enough, small] = [2000, 80, 20].map(|columns| remaining("k = 20", (5, columns)));
    println!("f / f(x_0): 5 x 2000 cells {ample:.3e}, 5 x 80 {enough:.3e}, 5 x 20 {small:.3e}");
    assert!(ample < 1e-4 && enough < 1e-4 && small > 10.0);
    let warned = |columns: usize| {
        let mut run = sketched("star:8", "k = 20", (5, columns));
        run.d = 1024;
        run.prepare().warnings.len()
    };
    assert_eq!((warned(80), warned(79)), (0, 1));
}

#[test]
fn bytes_are_those_of_tables_places_and_values() {
    let sent = |topology: &str, constants: &str| {
        let mut run = sketched(topology, constants, (5, 80));
        (run.d, run.rounds) = (1024, 3);
        let ended = run.ended().unwrap();
        ended.iter().map(|ended| ended.traffic.payload / 3).collect::<Vec<u64>>()
    };
    let (table, values) = (4 * 5 * 80, 4 * 20);
    // Twenty places among 1024: eight bits or less each.
    let server = sent("star:5", "k = 20");
    assert_eq!(server[1..], [table + values; 4]);
    let down = server[0] / 4;
    assert!((values + 10..=values + 20).contains(&down), "{down} bytes down");
    let practical = sent("star:5", "variant = 'practical'\nk = 20");
    assert_eq!(practical[1..], [table + 4 * values; 4]);
    // 80 places, then which 20 of the 80, and their values.
    let down = practical[0] / 4;
    assert!((values + 50..values + 110).contains(&down), "{down} bytes down");
    let ring = sent("ring:5", "k = 20");
    assert_eq!(ring, vec![2 * 4 * (table + values) / 5; 5]);
}

#[test]
fn sketched_sgd_is_refused_where_it_cannot_work() {
    let refused = |topology: &str, constants: &str, compressor: &str| {
        Run::new(topology, &format!("kind = 'sketched-sgd'\n{constants}"), compressor).refusal()
    };
    let error = refused("star:5", "", "kind = 'top-k'");
    assert!(
        error.contains("compressor.kind = \"top-k\"") && error.contains("kind = \"count-sketch\""),
        "{error}"
    );
    let error = refused("star:5", "", IDENTITY);
    assert!(error.contains("kind = \"count-sketch\""), "{error}");
    for (topology, constants, words) in [
        ("complete:5", "collective = 'all-to-all'", "sketched-sgd runs with ring, server, tree"),
        ("star:5", "collective = 'tree'", "complete:n or hypercube:n"),
        ("star:5", "momentum = 0.5", "only variant = \"practical\""),
        ("star:5", "candidates = 2", "only variant = \"practical\""),
        ("star:5", "variant = 'practical'\nmomentum = 1.0", "from 0 to below 1"),
        ("star:5", "variant = 'practical'\ncandidates = 0", "from 1"),
        ("star:5", "k = 0", "from 1"),
    ] {
        let error = refused(topology, constants, "kind = 'count-sketch'");
        assert!(error.contains(words), "{error}");
    }
}

/// Memories of single nodes grow with the rounds on data that differ, and only their sum is small.
#[test]
#[ignore = "slow"]
fn memories_that_grow_keep_the_mean() {
    let end = |rule: &str, compressor: &str| {
        let mut run = Run::new("ring:3", rule, compressor);
        (run.d, run.spread, run.rounds, run.step) = (10, 30.0, 20_000, 0.02);
        let models = run.models();
        (run.suboptimality(&models), models)
    };
    let (exact, central) = end("kind = 'c-sgd'", "kind = 'identity'");
    let (sketched, models) =
        end("kind = 'sketched-sgd'\nk = 3", "kind = 'count-sketch'\ncolumns = 40");
    let far = common::difference(&common::widen(&central), &models);
    println!(
        "c-sgd: {exact:e}; sketched-sgd: {sketched:e}, its models {far:e} from those of c-sgd"
    );
    assert!(far < LEFT, "{far:e}");
}

/// What the rounding of the values that are sent leaves, with memories of 10^4 times the model.
const LEFT: f64 = 1e-3;
