//! The README's claims about the default experiment, over five seeds: `cargo test --release --test
//! runs claims:: -- --nocapture` prints the table.

use gradvine::{
    drive::NoopObserver,
    experiment::Experiment,
    run::{Summary, Whole},
    sim,
};

struct Seed {
    of_mean: f64,
    worst: f64,
    pooled: f64,
    ratio: f64,
}

fn run(seed: u64) -> Seed {
    let whole =
        Whole::new(Experiment::default_with(&[format!("run.seed={seed}")]).unwrap()).unwrap();
    let classes =
        |node: usize| whole.classes_of(node.into()).iter().filter(|rows| **rows > 0).count();
    assert!(
        (0..whole.shards.len()).all(|node| classes(node) <= 3),
        "a node sees more than three classes"
    );
    let ended = sim::run(whole.specs(), &mut NoopObserver).unwrap();
    let summary = Summary::new(&whole.design, &ended[0].records).unwrap();
    Seed {
        of_mean: summary.outcome.test_accuracy_of_mean.unwrap(),
        worst: summary.outcome.test_accuracy_min.unwrap(),
        pooled: whole.pooled_baseline().unwrap().test.unwrap().accuracy().unwrap(),
        ratio: summary.ratio().unwrap(),
    }
}

#[test]
#[ignore = "slow"]
fn the_default_experiment_reaches_pooled_sgd_with_a_sixth_of_the_bytes() {
    println!("seed   mean model   worst node   pooled SGD   dense bytes per byte sent");
    let seeds: Vec<Seed> = (1..=5).map(run).collect();
    for (number, seed) in seeds.iter().enumerate() {
        println!(
            "{:>4} {:>12.4} {:>12.4} {:>12.4} {:>12.2}",
            number + 1,
            seed.of_mean,
            seed.worst,
            seed.pooled,
            seed.ratio
        );
    }
    let mean = |pick: fn(&Seed) -> f64| seeds.iter().map(pick).sum::<f64>() / seeds.len() as f64;
    let (of_mean, worst, pooled) =
        (mean(|seed| seed.of_mean), mean(|seed| seed.worst), mean(|seed| seed.pooled));
    println!("mean {of_mean:>12.4} {worst:>12.4} {pooled:>12.4} {:>12.2}", mean(|seed| seed.ratio));
    // Of 5 x 359 test rows: the figures of the README, less three standard errors of a share (0.4
    // points each).
    assert!(of_mean >= 0.96, "the mean model reaches {of_mean}");
    assert!(worst >= 0.96, "the worst node reaches {worst}");
    assert!(pooled >= 0.96, "plain SGD on the pooled rows reaches {pooled}");
    assert!(of_mean >= pooled - 0.01, "the mean model is more than a point below pooled SGD");
    assert!(worst >= pooled - 0.01, "the worst node is more than a point below pooled SGD");
    assert!(
        seeds.iter().all(|seed| seed.ratio >= 6.0),
        "it sends more than a sixth of what dense gossip sends"
    );
}
