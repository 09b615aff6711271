//! Nodes that return when the others are about to end.

use super::*;
use crate::{drive::NoopObserver, experiment::Experiment};

/// A run of five nodes that continues without one.
fn ring() -> Whole {
    let settings = [
        "run.rounds=30",
        "run.evaluate_every=30",
        "run.allow_unstable=true",
        "run.connect_s=60",
        "data.source=synthetic",
        "data.rows=60",
        "data.features=12",
        "data.test_share=0",
        "model.kind=least-squares",
        "optimizer.step=0.02",
        "optimizer.batch=4",
        "network.preset=ethernet",
        "network.compute=fixed",
        "network.compute_ms=50",
        "rule.kind=d-psgd",
        "compressor.kind=identity",
        "absence.policy=continue",
        "absence.deadline_s=3",
        "absence.wait_s=200",
        "checkpoint.every_rounds=5",
        "topology.file=ring:5",
    ];
    let settings = settings.map(String::from);
    Whole::new(Experiment::parse("", &settings).expect("valid settings")).expect("valid settings")
}

/// A node returns when the others are about to end, too late to take part: they tell it.
#[test]
fn one_that_returns_shortly_before_the_end_is_told() {
    let mut told = 0;
    for tenths in 40..70 {
        let whole = ring();
        let text = format!(
            "[[fault]]\nkind = 'kill'\nnodes = ['2']\nat_round = 10\nfor_s = {}\n",
            f64::from(tenths) / 10.0
        );
        let faults = parse(&text, &whole.design.topology).expect("the run is valid");
        let story = run(&whole, &faults, &mut NoopObserver).expect("the run is valid");
        let ends = |it: &&Occurrence| it.text.starts_with("ended");
        let first = story.occurrences.iter().find(|it| ends(it) && it.node == Some(NodeId(2)));
        let last = story.occurrences.iter().rev().find(|it| ends(it) && it.node != Some(NodeId(2)));
        let (first, last) = (first.expect("the run is valid"), last.expect("the run is valid"));
        let others = (0..5).filter(|node| *node != 2);
        assert!(others.clone().all(|node| story.ended[node].is_none()), "{tenths}: {story:#?}");
        // It came before the last of them had left.
        let starts = |it: &&Occurrence| it.text.starts_with("its program starts again");
        let came = story.occurrences.iter().find(starts).expect("the run is valid");
        if came.time.0 + 4_000_000_000 < last.time.0 {
            let is_told = first.text.contains("the run is over");
            assert!(is_told || first.text.contains("with the results"), "{tenths}: {story:#?}");
            told += usize::from(is_told);
        }
    }
    assert!(told > 3, "{told} were told");
}
