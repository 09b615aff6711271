//! Nodes that return at about the time at which they are given up.

use super::*;
use crate::{drive::NoopObserver, experiment::Experiment};

fn continuing(topology: &str, rounds: u64) -> Whole {
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
        &format!("topology.file={topology}"),
        &format!("run.rounds={rounds}"),
    ];
    let settings = settings.map(String::from);
    Whole::new(Experiment::parse("", &settings).expect("valid settings")).expect("valid settings")
}

#[test]
#[ignore = "sweep"]
fn sweep() {
    let mut bad = 0;
    for topology in ["ring:5", "ring:6", "complete:4", "path:5", "torus:3x3", "star:5"] {
        for victim in 0..4 {
            for ms in (2_400..4_200).step_by(20) {
                let whole = continuing(topology, 60);
                let text = format!(
                    "[[fault]]\nkind = 'kill'\nnodes = ['{victim}']\nat_round = 10\nfor_s = {}\n",
                    f64::from(ms) / 1e3
                );
                let faults = parse(&text, &whole.design.topology).unwrap();
                let story = run(&whole, &faults, &mut NoopObserver).unwrap();
                let summary = story.summary(&whole.design).unwrap();
                let history = summary.map(|s| s.history).unwrap_or_default();
                let nodes = whole.design.topology.nodes();
                let lost = history.iter().any(|change| {
                    change.members.len() + 1 < nodes
                        || (change.members.len() < nodes
                            && change
                                .members
                                .contains(&whole.design.topology.node(NodeId(victim)).name))
                });
                if lost || story.ended.iter().any(Option::is_some) {
                    bad += 1;
                    if bad < 12 {
                        println!("{topology} {victim} {ms}: {history:?} {:?}", story.ended);
                    }
                    if bad == 1 {
                        for it in &story.occurrences {
                            println!("{:.2} {:?} {}", it.time.0 as f64 / 1e9, it.node, it.text);
                        }
                    }
                }
            }
        }
        println!("{topology}: {bad}");
    }
    panic!("{bad}");
}

/// A node returns when the others are about to end, too late to take part: they tell it.
#[test]
fn one_that_returns_shortly_before_the_end_is_told() {
    let mut told = 0;
    for tenths in 40..70 {
        let whole = continuing("ring:5", 30);
        let text = format!(
            "[[fault]]\nkind = 'kill'\nnodes = ['2']\nat_round = 10\nfor_s = {}\n",
            f64::from(tenths) / 10.0
        );
        let faults = parse(&text, &whole.design.topology).unwrap();
        let story = run(&whole, &faults, &mut NoopObserver).unwrap();
        let ends = |it: &&Occurrence| it.text.starts_with("ended");
        let first = story.occurrences.iter().find(|it| ends(it) && it.node == Some(NodeId(2)));
        let last = story.occurrences.iter().rev().find(|it| ends(it) && it.node != Some(NodeId(2)));
        let (first, last) = (first.unwrap(), last.unwrap());
        let others = (0..5).filter(|node| *node != 2);
        assert!(others.clone().all(|node| story.ended[node].is_none()), "{tenths}: {story:#?}");
        // It came before the last of them had left.
        let starts = |it: &&Occurrence| it.text.starts_with("its program starts again");
        let came = story.occurrences.iter().find(starts).unwrap();
        if came.time.0 + 4_000_000_000 < last.time.0 {
            let is_told = first.text.contains("the run is over");
            assert!(is_told || first.text.contains("with the results"), "{tenths}: {story:#?}");
            told += usize::from(is_told);
        }
    }
    assert!(told > 3, "{told} were told");
}
