//! In any order of frames, gradients and free slots, and for any pieces in which frames arrive, a
//! synchronous run ends with the same bits.

use std::collections::{BTreeMap, VecDeque};

use common::Run;
use gradvine::{
    drive::{self, Conclusion, Learner, NodeSpec},
    gossip::{Effect, Input, Node, Rejoin, plan, snapshot::Snapshot},
    rng::{Purpose, Stream},
    units::{NodeId, Round},
};

/// The frames of one link, with the bytes of each that have arrived.
type Queue = VecDeque<(Vec<u8>, usize)>;

/// Pending events. Each queue keeps its own order; a random number chooses the next queue.
#[derive(Default)]
struct Chaos {
    /// Frames in flight on each directed link.
    links: BTreeMap<(usize, usize), Queue>,
    /// Buffers of frames or pieces that the core has not recycled.
    held: BTreeMap<(usize, usize), usize>,
    /// A node's own inputs: gradients, records; in any order among nodes.
    own: Vec<VecDeque<Input>>,
    /// Slots to be freed.
    taken: BTreeMap<(usize, usize), VecDeque<Input>>,
}

/// Runs to the end with these random numbers and returns the models. A tight link frees a slot when
/// the frame was delivered, not when it was sent.
fn run(specs: Vec<NodeSpec>, seed: u64, tight: bool) -> Vec<Vec<f32>> {
    let node = |spec: NodeSpec| (Node::new(spec.config), spec.learner);
    perform(specs.into_iter().map(node).collect(), seed, tight, &mut Vec::new())
}

/// The snapshots that all nodes make after this many rounds, in an order of events of its own.
fn snapshots(specs: Vec<NodeSpec>, seed: u64, rounds: u64) -> Vec<Snapshot> {
    let node = |spec: NodeSpec| {
        let mut node = Node::new(spec.config);
        let mut effects = Vec::new();
        node.handle(Input::Snapshot(Round(rounds)), &mut effects);
        assert!(effects.is_empty());
        (node, spec.learner)
    };
    let mut found = Vec::new();
    perform(specs.into_iter().map(node).collect(), seed, false, &mut found);
    found.sort_by_key(|(node, _)| *node);
    found.into_iter().map(|(_, snapshot)| snapshot).collect()
}

#[expect(clippy::too_many_lines)]
fn perform(
    all: Vec<(Node, Box<dyn Learner>)>,
    seed: u64,
    tight: bool,
    snapshots: &mut Vec<(usize, Snapshot)>,
) -> Vec<Vec<f32>> {
    let mut dice = Stream::new(seed, Purpose::Test).sequence();
    let (mut nodes, mut learners): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let n = nodes.len();
    let mut chaos =
        Chaos { own: (0..n).map(|_| VecDeque::from([Input::Start])).collect(), ..Chaos::default() };
    let mut models = vec![Vec::new(); n];
    let mut finished = 0;
    while finished < n {
        let mut ready: Vec<(usize, u8, usize)> =
            (0..n).filter(|&i| !chaos.own[i].is_empty()).map(|i| (i, 0, 0)).collect();
        let under_way = |link: &(usize, usize)| if tight { chaos.links[link].len() } else { 0 };
        let free = chaos.taken.iter().filter(|(link, taken)| taken.len() > under_way(link));
        ready.extend(free.map(|((from, to), _)| (*from, 1, *to)));
        // A frame waits until the one before was recycled, a piece until few are left.
        let open = |key: &(usize, usize)| {
            let given = chaos.links[key].front().map_or(0, |(_, given)| *given);
            chaos.held.get(key).copied().unwrap_or(0) <= if given == 0 { 0 } else { 2 }
        };
        ready.extend(
            chaos
                .links
                .iter()
                .filter(|(key, queue)| !queue.is_empty() && open(key))
                .map(|((from, to), _)| (*to, 2, *from)),
        );
        assert!(!ready.is_empty(), "deadlock with seed {seed}");
        let (node, kind, other) = ready[dice.below(ready.len() as u64) as usize];
        let input = match kind {
            0 => chaos.own[node].pop_front().unwrap(),
            1 => chaos.taken.get_mut(&(node, other)).unwrap().pop_front().unwrap(),
            _ => {
                *chaos.held.entry((other, node)).or_default() += 1;
                let (from, queue) =
                    (NodeId::from(other), chaos.links.get_mut(&(other, node)).unwrap());
                let (frame, given) = queue.front_mut().unwrap();
                let (length, rest) = (frame.len(), &frame[*given..]);
                if *given == 0 && dice.below(2) == 0 {
                    Input::Frame { from, bytes: queue.pop_front().unwrap().0 }
                } else {
                    let bytes = rest[..1 + dice.below(rest.len() as u64) as usize].to_vec();
                    *given += bytes.len();
                    if *given == length {
                        queue.pop_front();
                    }
                    Input::Piece { from, length, bytes }
                }
            }
        };
        let mut effects = Vec::new();
        nodes[node].handle(input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Compute { round, x, update, parts, .. } => {
                    let own = &mut chaos.own[node];
                    drive::compute(&mut *learners[node], round, x, update, parts, &mut |input| {
                        own.push_back(input);
                    });
                }
                Effect::Send { to, frame } => {
                    chaos
                        .links
                        .entry((node, to.index()))
                        .or_default()
                        .push_back((frame.to_vec(), 0));
                    chaos.taken.entry((node, to.index())).or_default().push_back(Input::Taken(to));
                }
                Effect::Recycle { from, .. } => {
                    *chaos.held.get_mut(&(from.index(), node)).unwrap() -= 1;
                }
                Effect::Conclude { own, mean } => {
                    let elapsed = Default::default();
                    let end = Conclusion::new(&own, &mean, elapsed);
                    let record = learners[node].conclude(&end);
                    models[node] = own.x.to_vec();
                    chaos.own[node].push_back(Input::Record(record));
                }
                Effect::Finished(_) => finished += 1,
                Effect::Failed(failure) => panic!("seed {seed}: {failure}"),
                Effect::Snapshot(snapshot) => snapshots.push((node, *snapshot)),
                Effect::Prepared(_) | Effect::RoundDone(_) | Effect::Save(_) => {}
            }
        }
    }
    models
}

#[test]
#[ignore = "slow"]
fn any_order_of_events_gives_the_same_bits() {
    let rules = [
        ("kind = 'd-psgd'", "kind = 'identity'"),
        ("kind = 'd-psgd'\norder = 'cta'", "kind = 'identity'"),
        ("kind = 'naive'", "kind = 'min-max'"),
        ("kind = 'dcd'", "kind = 'qsgd'\nlevels = 7"),
        // Blocks of several numbers, the last one shorter.
        ("kind = 'dcd'", "kind = 'min-max'\nbucket = 7"),
        ("kind = 'choco'", "kind = 'ternary'\nbucket = 12"),
        ("kind = 'deep-squeeze'", "kind = 'top-k'\nk = 5"),
        ("kind = 'deep-squeeze'\ndelay = 5", "kind = 'min-max'"),
        ("kind = 'choco'", "kind = 'random-k'\nk = 9"),
        ("kind = 'choco'\norder = 'iclr'", "kind = 'sign'"),
        ("kind = 'gradient-tracking'", "kind = 'identity'"),
        ("kind = 'choco-edge'", "kind = 'min-max'"),
        ("kind = 'beer'", "kind = 'min-max'"),
        ("kind = 'moniqua'", "kind = 'identity'"),
        ("kind = 'power-gossip'", "kind = 'identity'"),
    ];
    let gossip = rules.iter().flat_map(|&(rule, compressor)| {
        ["ring:6", "star:5", "torus:3x3"].map(|topology| (rule, compressor, topology))
    });
    let centralized = [
        ("kind = 'c-sgd'", "kind = 'identity'", "ring:6"),
        ("kind = 'c-sgd'\ncollective = 'all-to-all'", "kind = 'identity'", "complete:5"),
        ("kind = 'c-sgd'\ncollective = 'hybrid'\ngroup = 3", "kind = 'identity'", "complete:6"),
        ("kind = 'c-sgd'\nlayers = true", "kind = 'identity'", "ring:6"),
        ("kind = 'c-sgd'\nlayers = true", "kind = 'identity'", "star:5"),
        (
            "kind = 'c-sgd'\nlayers = true\ncollective = 'all-to-all'",
            "kind = 'identity'",
            "complete:5",
        ),
        (
            "kind = 'c-sgd'\nlayers = true\ncollective = 'hybrid'\ngroup = 3",
            "kind = 'identity'",
            "complete:6",
        ),
        ("kind = 'compressed-c-sgd'\ncollective = 'all-to-all'", "kind = 'qsgd'", "complete:5"),
        ("kind = 'double-squeeze'", "kind = 'random-k'\nk = 9", "star:5"),
        ("kind = 'top-k-all-gather'", "kind = 'top-k'\nk = 3", "star:5"),
        (
            "kind = 'top-k-all-gather'\ncollective = 'all-to-all'",
            "kind = 'random-k'\nk = 9",
            "complete:5",
        ),
        ("kind = 'dgc'\nk = 3\nwarm_up = 8", "kind = 'identity'", "complete:5"),
        ("kind = 'sketched-sgd'\nk = 3", "kind = 'count-sketch'\ncolumns = 30", "star:5"),
        (
            "kind = 'sketched-sgd'\nvariant = 'practical'\nk = 2",
            "kind = 'count-sketch'\ncolumns = 30",
            "ring:5",
        ),
        (
            "kind = 'sketched-sgd'\ncollective = 'tree'",
            "kind = 'count-sketch'\ncolumns = 30",
            "complete:6",
        ),
        ("kind = 'g-top-k'\nk = 4", "kind = 'identity'", "complete:7"),
        ("kind = 'delayed'\ndelay = 3", "kind = 'identity'", "star:5"),
        ("kind = 'delayed'\ndelay = 20", "kind = 'identity'", "ring:6"),
    ];
    for (rule, compressor, topology) in gossip.chain(centralized) {
        in_any_order(Run::new(topology, rule, compressor));
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
            ("kind = 'd-psgd'", "kind = 'identity'"),
            ("kind = 'd-psgd'\norder = 'cta'", "kind = 'identity'"),
            ("kind = 'deep-squeeze'", "kind = 'min-max'"),
            ("kind = 'sgp'", "kind = 'identity'"),
            ("kind = 'noloco'", "kind = 'identity'"),
            ("kind = 'gasloc'", "kind = 'identity'"),
            ("kind = 'qg-dsgdm'", "kind = 'identity'"),
        ] {
            in_any_order(Run::scheduled(topology, schedule, rule, compressor));
        }
    }
}

fn in_any_order(mut experiment: Run) {
    experiment.rounds = 18;
    let expected = experiment.models();
    for seed in 0..8 {
        let (topology, rule) = (experiment.topology.name(), &experiment.rule);
        for tight in [false, true] {
            assert_eq!(
                run(experiment.specs(), seed, tight),
                expected,
                "{rule} on {topology}, seed {seed}"
            );
        }
    }
    if plan::can_pause(&*experiment.prepare().plan) {
        goes_on_from_snapshots(&experiment, &expected);
    }
}

/// All nodes are put back to their snapshots of the same round, with learners and rules made anew.
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
        let models = perform(resumed.collect(), seed, false, &mut Vec::new());
        let words = experiment.words();
        assert!(models == expected, "{words}, put back after round {rounds}");
    }
}

/// Node 2 has lost its snapshot: all go on from the mean of the others, as a run that begins there.
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
        let rejoin = Rejoin { rounds: Round(7), own, models: 4, ..Rejoin::default() };
        (Node::rejoin(spec.config, rejoin), spec.learner)
    });
    let models = perform(rejoined.collect(), 3, false, &mut Vec::new());
    assert_eq!(models, run(from_mean, 4, false));
}
