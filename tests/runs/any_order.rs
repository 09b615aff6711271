//! In any order of frames, gradients and free slots, and for any pieces in which frames arrive, a
//! synchronous run ends with the same bits.

use common::{
    Run,
    driver::{Order, play, play_from},
    section,
};
use gradvine::{
    drive::NodeSpec,
    gossip::{Input, Node, Rejoin, Snapshot, plan},
    sim::Running,
    units::{NodeId, Round},
};

fn order(seed: u64) -> Order {
    Order { seed, ..Order::default() }
}

/// The snapshots that all nodes make after this many rounds, in an order of events of its own.
fn snapshots(specs: Vec<NodeSpec>, seed: u64, rounds: u64) -> Vec<Snapshot> {
    let node = |spec: NodeSpec| -> Running {
        let mut node = Node::new(spec.config);
        let mut effects = Vec::new();
        node.handle(Input::Snapshot(Round(rounds)), &mut effects);
        assert!(effects.is_empty());
        (node, spec.learner)
    };
    play_from(specs.into_iter().map(node).collect(), order(seed)).snapshots.into_values().collect()
}

#[test]
#[ignore = "slow"]
fn any_order_of_events_gives_the_same_bits() {
    let rules = [
        ("d-psgd", "identity"),
        ("d-psgd order='cta'", "identity"),
        ("naive", "min-max"),
        ("dcd", "qsgd levels=7"),
        // Blocks of several numbers, the last one shorter.
        ("dcd", "min-max bucket=7"),
        ("choco", "ternary bucket=12"),
        ("deep-squeeze", "top-k k=5"),
        ("deep-squeeze delay=5", "min-max"),
        ("choco", "random-k k=9"),
        ("choco order='iclr'", "sign"),
        ("gradient-tracking", "identity"),
        ("choco-edge", "min-max"),
        ("beer", "min-max"),
        ("moniqua", "identity"),
        ("power-gossip", "identity"),
    ];
    let gossip = rules.iter().flat_map(|&(rule, compressor)| {
        ["ring:6", "star:5", "torus:3x3"].map(|topology| (rule, compressor, topology))
    });
    let centralized = [
        ("c-sgd", "identity", "ring:6"),
        ("c-sgd collective='all-to-all'", "identity", "complete:5"),
        ("c-sgd collective='hybrid' group=3", "identity", "complete:6"),
        ("c-sgd layers=true", "identity", "ring:6"),
        ("c-sgd layers=true", "identity", "star:5"),
        ("c-sgd layers=true collective='all-to-all'", "identity", "complete:5"),
        ("c-sgd layers=true collective='hybrid' group=3", "identity", "complete:6"),
        ("compressed-c-sgd collective='all-to-all'", "qsgd", "complete:5"),
        ("double-squeeze", "random-k k=9", "star:5"),
        ("top-k-all-gather", "top-k k=3", "star:5"),
        ("top-k-all-gather collective='all-to-all'", "random-k k=9", "complete:5"),
        ("dgc k=3 warm_up=8", "identity", "complete:5"),
        ("sketched-sgd k=3", "count-sketch columns=30", "star:5"),
        ("sketched-sgd variant='practical' k=2", "count-sketch columns=30", "ring:5"),
        ("sketched-sgd collective='tree'", "count-sketch columns=30", "complete:6"),
        ("g-top-k k=4", "identity", "complete:7"),
        ("delayed delay=3", "identity", "star:5"),
        ("delayed delay=20", "identity", "ring:6"),
    ];
    for (rule, compressor, topology) in gossip.chain(centralized) {
        in_any_order(Run::new(topology, &section(rule), &section(compressor)));
    }
}

/// With few neighbours a node may be far ahead of the rest.
#[test]
#[ignore = "slow"]
fn schedules_too() {
    for (schedule, topology) in [
        ("one-peer-exponential", "exponential:6"),
        ("base-2", "complete:7"),
        ("random-matching", "path:5"),
        ("random-matching", "star:5"),
        ("epidemic:2", "complete:5"),
    ] {
        for (rule, compressor) in [
            ("d-psgd", "identity"),
            ("d-psgd order='cta'", "identity"),
            ("deep-squeeze", "min-max"),
            ("sgp", "identity"),
            ("noloco", "identity"),
            ("gasloc", "identity"),
            ("qg-dsgdm", "identity"),
        ] {
            in_any_order(Run::scheduled(topology, schedule, &section(rule), &section(compressor)));
        }
    }
}

fn in_any_order(mut experiment: Run) {
    experiment.rounds = 18;
    let expected = experiment.models();
    for seed in 0..8 {
        let (topology, rule) = (experiment.topology.name(), &experiment.rule);
        for tight in [false, true] {
            let models = play(experiment.specs(), Order { tight, ..order(seed) }).models;
            assert_eq!(models, expected, "{rule} on {topology}, seed {seed}");
        }
    }
    if plan::can_pause(&*experiment.prepare().plan) {
        goes_on_from_snapshots(&experiment, &expected);
    }
}

/// All nodes are put back to their snapshots of the same round, with learners and rules made again.
fn goes_on_from_snapshots(experiment: &Run, expected: &[Vec<f32>]) {
    let spawn = experiment.prepare().spawn;
    for (seed, rounds) in [(1, 1), (2, 7), (3, 17), (4, 18)] {
        let snapshots = snapshots(experiment.specs(), seed, rounds);
        assert_eq!(snapshots.len(), experiment.nodes());
        let resumed = experiment.specs().into_iter().zip(snapshots).map(|(mut spec, snapshot)| {
            let (spawn, id) = (spawn.clone(), spec.config.id);
            spec.config.rule = Box::new(move |x| spawn(id, x));
            assert_eq!(snapshot.rounds, Round(rounds));
            (Node::resume(spec.config, snapshot), spec.learner)
        });
        let models = play_from(resumed.collect(), order(seed)).models;
        let words = experiment.words();
        assert!(models == expected, "{words}, put back after round {rounds}");
    }
}

/// Node 2 has lost its snapshot: all continue from the mean of the others, as a run that begins
/// there.
#[test]
fn nodes_go_on_from_the_mean_of_the_others() {
    let mut experiment = Run::new("ring:5", "kind = 'd-psgd'", "kind = 'identity'");
    experiment.rounds = 18;
    let (snapshots, lost) = (snapshots(experiment.specs(), 1, 7), 2);
    let present = || snapshots.iter().enumerate().filter(|(node, _)| *node != lost);
    let sum = |k: usize| present().map(|(_, snapshot)| f64::from(snapshot.x[k])).sum::<f64>();
    let mean: Vec<f32> = (0..experiment.d).map(|k| (sum(k) / 4.0) as f32).collect();
    let mut from_mean = experiment.specs();
    for spec in &mut from_mean {
        (spec.config.x, spec.config.rounds) = (mean.clone(), 11);
    }
    let rejoined = experiment.specs().into_iter().zip(&snapshots).map(|(spec, snapshot)| {
        let own = (spec.config.id.index() != lost).then(|| snapshot.x.clone());
        let givers = [0, 1, 3, 4].map(NodeId).to_vec();
        let rejoin = Rejoin { rounds: Round(7), own, givers, ..Rejoin::default() };
        (Node::rejoin(spec.config, rejoin), spec.learner)
    });
    let models = play_from(rejoined.collect(), order(3)).models;
    assert_eq!(models, play(from_mean, order(4)).models);
}
