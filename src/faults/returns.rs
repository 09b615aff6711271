//! Nodes that return when the others are about to decide, or to end.

use super::*;
use crate::{drive::NoopObserver, experiment::Experiment};

const RETURNS: NodeId = NodeId(2);

/// A run of five nodes that continues without one.
fn ring(settings: [&str; 2]) -> Whole {
    let common = [
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
    ];
    let settings: Vec<String> = common.iter().chain(&settings).map(ToString::to_string).collect();
    Whole::new(Experiment::parse("", &settings).expect("valid settings")).expect("valid settings")
}

/// Runs it; after round 10 the fault lasts for `ms` milliseconds.
fn away(whole: &Whole, kind: &str, ms: u32) -> Story {
    let text = format!("[[fault]]\n{kind}\nat_round = 10\nfor_s = {}\n", f64::from(ms) / 1000.0);
    let faults = parse(&text, &whole.design.topology).expect("the run is valid");
    run(whole, &faults, &mut NoopObserver).expect("the run is valid")
}

/// A node returns just when the others have waited for it as long as they may: whatever they
/// decide, it concerns that node only.
#[test]
fn one_that_returns_exactly_at_the_deadline_takes_nobody_with_it() {
    let (mut runs, mut returned) = (0, 0);
    for (file, kind) in [
        ("ring:5", "kind = 'kill'\nnodes = ['2']"),
        ("ring:5", "kind = 'hang'\nnodes = ['2']"),
        ("ring:5", "kind = 'partition'\nnodes = ['2']"),
        ("complete:5", "kind = 'kill'\nnodes = ['2']"),
        ("ring:5", "kind = 'cut'\nlinks = [['1', '2']]"),
        ("complete:5", "kind = 'cut'\nlinks = [['1', '2']]"),
        ("ring:5", "kind = 'one-way'\nlinks = [['1', '2']]"),
    ] {
        let whole = ring(["run.rounds=100", &format!("topology.file={file}")]);
        for ms in (2_200..4_200).step_by(125) {
            let story = away(&whole, kind, ms);
            let memberships = || story.results.iter().flat_map(|ended| &ended.history);
            let innocent = (0..5).map(NodeId).filter(|node| *node != RETURNS);
            for node in innocent {
                let ended = &story.ended[node.index()];
                let stays = memberships().all(|change| change.members.contains(&node));
                assert!(ended.is_none() && stays, "{file} {kind} {ms}: node {node}, {story:#?}");
            }
            returned += usize::from(memberships().count() == 0);
            runs += 1;
        }
    }
    assert!((runs / 4..runs).contains(&returned), "{returned} of {runs} in time");
}

/// A node returns when the others are about to end, too late to take part: they tell it.
#[test]
fn one_that_returns_shortly_before_the_end_is_told() {
    let whole = ring(["run.rounds=30", "topology.file=ring:5"]);
    let mut told = 0;
    for tenths in 40..70 {
        let story = away(&whole, "kind = 'kill'\nnodes = ['2']", 100 * tenths);
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
