//! Seeds give runs with some faults; after them everything heals and ends, with the digest of the
//! undisturbed run or of its history.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, mem,
    ops::Range,
    panic,
    path::Path,
    sync::Arc,
};

use super::{
    disk::Memory,
    liar::{DOWN, Liar, Lie, TREE, UP},
    *,
};
use crate::{
    cluster::{kept, message::Beginning},
    config::ConfigError,
    drive::{Change, Elapsed, NoopObserver, Observer, describe_panic},
    experiment::Experiment,
    gossip::{
        RoundDone, rule,
        snapshot::Snapshot,
        tree::{INITIAL, TALLY},
    },
    links::Conditions,
    rng::{Purpose, Sequence, Stream},
    run::{
        Checkpoint, Checkpoints,
        checkpoint::{Every, Owner},
    },
    sim,
    simulation::run_with,
    units::Round,
};

/// The seeds of the slow test, of which the quick one takes the first tenth.
const SEEDS: Range<u64> = 0..200;

/// Seeds that fail are shown; after so many no more are tried.
pub(super) const MOST_FAILED: usize = 20;

const TOPOLOGIES: [&str; 6] = ["ring:3", "ring:4", "ring:5", "path:4", "complete:4", "star:5"];

/// Rules with state of all kinds.
const RULES: [(&str, &str); 8] = [
    ("d-psgd", "identity"),
    ("dcd", "min-max"),
    ("choco", "top-k"),
    ("deep-squeeze", "sign"),
    ("beer", "top-k"),
    ("gradient-tracking", "identity"),
    ("c-sgd", "identity"),
    ("sgp", "identity"),
];

/// Those that withstand wrong models: their mean is formed in another way.
const ROBUST: [(&str, &str); 2] = [("trimmed-mean", "identity"), ("clipped-gossip", "identity")];

pub(super) fn pick<T: Copy>(rng: &mut Sequence, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

/// The run of a seed.
fn whole(seed: u64) -> Whole {
    whole_of(seed, &RULES)
}

/// The same with one of these rules.
fn whole_of(seed: u64, rules: &[(&str, &str)]) -> Whole {
    let rng = &mut Stream::new(seed, Purpose::Test).sequence();
    let (rule, compressor) = pick(rng, rules);
    // Not all topologies have a collective.
    let topology = if rule == "c-sgd" { "complete:4" } else { pick(rng, &TOPOLOGIES) };
    let optimizer = pick(rng, &["momentum=0.0", "momentum=0.9", "kind=adamw"]);
    let every = 2 + rng.below(4);
    let mut settings = Vec::new();
    settings.push(format!("topology.file={topology}"));
    settings.push(format!("rule.kind={rule}"));
    settings.push(format!("compressor.kind={compressor}"));
    settings.push(format!("optimizer.{optimizer}"));
    settings.push(format!("checkpoint.every_rounds={every}"));
    match rng.below(2) {
        0 => settings.push("absence.deadline_s=100".into()),
        _ => {
            settings.push("absence.deadline_s=3".into());
            settings.push("absence.policy=continue".into());
            settings.push("absence.wait_s=200".into());
        }
    }
    // With fast gradients, frames reach nodes that have not begun yet.
    let compute = pick(rng, &["0.01", "3.0", "50.0"]);
    settings.push(format!("network.compute_ms={compute}"));
    whole_with(seed, &settings)
}

/// A run with these settings.
fn whole_with(seed: u64, others: &[String]) -> Whole {
    try_whole_with(seed, others).expect("valid settings")
}

pub(super) fn try_whole_with(seed: u64, others: &[String]) -> Result<Whole, ConfigError> {
    let mut settings: Vec<String> = [
        "run.rounds=30",
        "run.evaluate_every=30",
        "run.allow_unstable=true",
        "run.connect_s=60",
        "data.source=synthetic",
        "data.rows=60",
        "data.features=12",
        "data.test_share=0",
        "data.standardize=true",
        "model.kind=least-squares",
        "optimizer.step=0.02",
        "optimizer.batch=4",
        "network.preset=ethernet",
        "network.compute=fixed",
        "network.compute_ms=50",
    ]
    .map(String::from)
    .into();
    settings.push(format!("run.seed={}", 1 + seed));
    settings.extend(others.iter().cloned());
    Whole::new(Experiment::parse("", &settings)?)
}

/// The seeds that `GRADVINE_SEEDS` names, or else these.
pub(super) fn seeds(usual: Range<u64>) -> Range<u64> {
    env::var("GRADVINE_SEEDS").map_or(usual, |text| {
        let ends: Vec<u64> =
            text.split("..").map(|end| end.parse().expect("GRADVINE_SEEDS=0..200")).collect();
        ends[0]..ends.get(1).copied().unwrap_or(ends[0] + 1)
    })
}

/// Runs the faults of a seed.
fn story(seed: u64) -> Result<Story, String> {
    let whole = whole(seed);
    let faults = faults_of(&format!("seed:{seed}"), &whole.design).expect("a seed");
    let story = run(&whole, &faults, &mut NoopObserver);
    story.map_err(|error| format!("{error}; {faults:?}"))
}

/// The rounds that each node has done, without those before a return to a checkpoint.
#[derive(Default)]
struct Done(BTreeMap<NodeId, BTreeSet<u64>>);

impl Observer for Done {
    fn round(&mut self, node: NodeId, _: Elapsed, done: RoundDone) {
        self.0.entry(node).or_default().insert(done.round.0);
    }

    fn resumes(&mut self, node: NodeId, rounds: Round) {
        self.0.entry(node).or_default().retain(|round| *round < rounds.0);
    }
}

impl Done {
    /// Checks that a summary counts no round of a node in which it had no part. Who has done a
    /// round has frames of it from its neighbours, which need not have done it themselves.
    fn check(&self, whole: &Whole, summary: &Summary) -> Result<(), String> {
        let topology = &whole.design.topology;
        let parts = summary.participation.iter().map(|(name, part)| (name, part.rounds));
        for (name, rounds) in parts.chain(summary.away.iter().map(|(name, all)| (name, *all))) {
            let node = topology.find(name).expect("a node of the run");
            let (mut far, mut order) = (Vec::new(), Vec::new());
            topology.graph().distances(node, &mut far, &mut order);
            let (mut sent, mut is_member) = (0, true);
            for change in &summary.history {
                let was_member = mem::replace(&mut is_member, change.members.contains(name));
                let givers = change.models.iter().filter_map(|giver| topology.find(giver));
                let nearest = givers.map(|giver| far[giver.index()]).min().unwrap_or(0);
                sent += if was_member { u64::from(nearest) } else { 0 };
            }
            let done = self.0.get(&node).map_or(0, BTreeSet::len) as u64;
            if rounds > done + sent {
                return Err(format!(
                    "node {name} is said to have done {rounds} rounds, not {done}"
                ));
            }
        }
        Ok(())
    }
}

/// Checks how the run of a seed ends.
fn check(seed: u64, rules: &[(&str, &str)]) -> Result<(), String> {
    let whole = whole_of(seed, rules);
    let faults = faults_of(&format!("seed:{seed}"), &whole.design).expect("a seed");
    let mut done = Done::default();
    let story = run(&whole, &faults, &mut done);
    let story = story.map_err(|error| format!("{error}; {faults:?}"))?;
    if !story.stuck.is_empty() {
        let last: Vec<_> = story.occurrences.iter().rev().take(30).rev().collect();
        return Err(format!("{:?} wait for ever: {last:#?}; {faults:?}", story.stuck));
    }
    let waits = whole.design.experiment.absence.policy == crate::experiment::Policy::Wait;
    let of_disks = |fault: &Fault| match &fault.kind {
        Kind::Kill(nodes, disk) if *disk != DiskAfter::Kept => nodes.clone(),
        Kind::DiskFull(nodes) => nodes.clone(),
        _ => Vec::new(),
    };
    let lost: BTreeSet<NodeId> = faults.iter().flat_map(of_disks).collect();
    let loses = !lost.is_empty();
    if waits && !loses && story.ended.iter().any(Option::is_some) {
        return Err(format!("the run should end everywhere: {:?}; {faults:?}", story.ended));
    }
    // A node that has lost its files does not know that it was a member: two memberships without a
    // node in common are possible then.
    let forgets = |fault: &Fault| matches!(fault.kind, Kind::Kill(_, DiskAfter::Lost));
    let forgets = faults.iter().any(forgets);
    let means: Vec<u64> = story.means.iter().flatten().copied().collect();
    if !forgets && means.iter().any(|mean| *mean != means[0]) {
        return Err(format!("the nodes have different results: {:?}; {faults:?}", story.means));
    }
    if !means.is_empty() && 2 * (means.len() + lost.len()) <= story.means.len() {
        return Err(format!("{} nodes only have results; {faults:?}", means.len()));
    }
    let summary = story.summary(&whole.design).map_err(|error| error.to_string())?;
    let Some(summary) = summary else {
        // Without the checkpoints of half of the nodes the others do not give theirs up.
        // Where a disk was lost, too few may have the same checkpoint, or know that they were
        // members. They wait for others, and then end. So do all others if the rule needs all.
        let keeps = |error: &String| {
            error.contains("nodes report the same checkpoint")
                || error.contains("nodes are present, at least")
                || error.contains("the run cannot continue without")
        };
        if 2 * lost.len() >= whole.design.topology.nodes()
            || loses && story.ended.iter().flatten().any(keeps)
        {
            return Ok(());
        }
        let last: Vec<_> = story.occurrences.iter().rev().take(30).rev().collect();
        let ended = &story.ended;
        return Err(format!("no node has results: {ended:?}; {last:#?}; {faults:?}"));
    };
    done.check(&whole, &summary)
        .map_err(|why| format!("{why}: {:?}; {faults:?}", summary.history))?;
    let again = whole_of(seed, rules);
    let history = crate::run::history_of(&summary, &again.design);
    let history = history.map_err(|error| error.to_string())?;
    if waits && !loses && !history.is_empty() {
        return Err(format!("the run has changed: {history:?}; {faults:?}"));
    }
    compare(&summary, &again, &history, loses).map_err(|why| {
        let happened = &story.occurrences;
        format!("{why}: {history:?}; {happened:#?}; {faults:?}")
    })
}

/// The summary of a run with this history in the plain simulator.
fn plain(whole: &Whole, history: &[Change]) -> Result<Summary, String> {
    let records = match history.is_empty() {
        true => sim::run(whole.specs(), &mut NoopObserver).map(|mut all| all.swap_remove(0)),
        false => {
            let (honest, ideal) = (BTreeMap::new(), Conditions::ideal());
            let simulated = run_with(whole, history, &honest, &ideal, &mut NoopObserver);
            simulated.map(|mut it| it.ended.swap_remove(0))
        }
    };
    let records = records.map_err(|error| error.to_string())?.records;
    Summary::of_run(&whole.design, &records, history).map_err(|error| error.to_string())
}

/// Compares a run with that of the plain simulator, and with clusters that repeat its history.
/// `loses`: whether a node has lost what it had written.
fn compare(
    summary: &Summary,
    whole: &Whole,
    history: &[Change],
    loses: bool,
) -> Result<(), String> {
    let expected = plain(whole, history)?;
    if summary.digest != expected.digest {
        return Err(format!("the digest is {}, expected {}", summary.digest, expected.digest));
    }
    // One that left before its checkpoint was written knows less than it has sent.
    let gave = |name: &String| {
        summary.history.iter().all(|change| change.models.contains(name) || change.round == 0)
    };
    let is_right = |(made, all): (&Sent, &Sent)| {
        made.rounds == all.rounds
            && made.bytes <= all.bytes
            && (made.bytes == all.bytes || !gave(&made.node))
    };
    let (made, all) = (sent(summary), sent(&expected));
    if !loses && !made.iter().zip(&all).all(is_right) {
        return Err(format!("the nodes have sent {made:?}, expected {all:?}"));
    }
    let repeated = repeat(whole, history, None, &mut NoopObserver);
    let repeated = repeated.map_err(|error| error.to_string())?;
    let made = repeated.summary(&whole.design).map_err(|error| error.to_string())?;
    let made = made.map(|made| (made.digest, made.history));
    if made.as_ref() != Some(&(expected.digest, expected.history)) {
        let lines = lines(&repeated);
        return Err(format!("clusters that repeat the history end with {made:?}: {lines}"));
    }
    Ok(())
}

fn expect(seeds: Range<u64>, rules: &[(&str, &str)]) {
    // What must hold at all times is asserted.
    let checked = |seed| {
        let checked = panic::catch_unwind(|| check(seed, rules));
        checked.unwrap_or_else(|payload| Err(describe_panic(&*payload)))
    };
    let failed = seeds.filter_map(|seed| Some(format!("seed {seed}: {}", checked(seed).err()?)));
    let failed: Vec<String> = failed.take(MOST_FAILED).collect();
    let text = failed.join("\n");
    assert!(failed.is_empty(), "{} seeds fail, or more:\n{text}", failed.len());
}

#[test]
fn a_few_seeds_end_with_the_bits_of_their_history() {
    expect(SEEDS.start..SEEDS.end / 10, &RULES);
    expect(SEEDS.start..SEEDS.end / 10, &ROBUST);
}

/// A machine loses its power after all have gone back to a mean, before it writes a checkpoint:
/// those that it had removed must not come back, as they have other bits.
#[test]
fn checkpoints_of_an_attempt_that_failed_do_not_come_back() {
    let sections = ["a".into(), "b".into(), "c".into()];
    let owner = || Owner::of(("run", 1), (NodeId(0), "rome".into()), &sections);
    let disk = Arc::new(Memory::default());
    let open = || {
        Checkpoints::open_on(disk.clone(), Path::new("run"), Every::Rounds(1), owner(), &sections)
    };
    let all = open().unwrap();
    for rounds in [10, 20, 30] {
        let snapshot = Snapshot { rounds: Round(rounds), ..Snapshot::default() };
        all.write(&Checkpoint { snapshot, ..Checkpoint::default() }).unwrap();
    }
    let at = Beginning { rounds: 20, from_mean: true, ..Beginning::default() };
    kept::begin(NodeId(0), &at, &all).unwrap();
    disk.lose_power(false);
    let found = open().unwrap().available().unwrap().0;
    assert_eq!(found.into_iter().map(|(_, rounds, _)| rounds).collect::<Vec<_>>(), [10, 20]);
}

/// `GRADVINE_SEEDS=0..10000` chooses others.
#[test]
#[ignore = "slow"]
fn seeds_end_with_the_bits_of_their_history() {
    expect(seeds(SEEDS), &RULES);
}

#[test]
fn a_seed_gives_the_same_story_again() {
    for seed in [1, 2, 3] {
        let one = |_| story(seed).map(|story| (story.time, story.occurrences, story.ended));
        let [first, second] = [(); 2].map(one);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn a_killed_node_costs_time_and_no_bits() {
    let whole = whole(0);
    let text = "[[fault]]\nkind = 'kill'\nnodes = ['1']\nat_round = 10\nfor_s = 2\n";
    let faults = parse(text, &whole.design.topology).unwrap();
    let disturbed = run(&whole, &faults, &mut NoopObserver).unwrap();
    let calm = run(&self::whole(0), &[], &mut NoopObserver).unwrap();
    assert!(calm.occurrences.iter().all(|it| it.text.starts_with("ended")), "{calm:?}");
    assert_eq!(calm.restarts, 0);
    assert!(disturbed.restarts >= 1 && disturbed.repeated >= 1, "{disturbed:?}");
    let digest = |story: &Story| story.summary(&whole.design).unwrap().map(|made| made.digest);
    assert_eq!(digest(&disturbed), digest(&calm));
    assert!(disturbed.time.0 > calm.time.0 + 1_000_000_000, "{:?}", disturbed.time);
}

/// A node that is started again every few rounds is given up only if the run gets no further: here
/// all have a later checkpoint each time.
#[test]
fn a_node_may_start_again_many_times_while_the_run_gets_on() {
    for policy in ["wait", "continue"] {
        let policy = format!("absence.policy={policy}");
        let all = [
            "rule.kind=d-psgd",
            "compressor.kind=identity",
            "checkpoint.every_rounds=2",
            "run.rounds=130",
            "topology.file=ring:4",
            &policy,
        ];
        let whole = || whole_with(1, &all.map(String::from));
        let kill = |time: u64| {
            let kind = Kind::Kill(vec![NodeId(1)], DiskAfter::Kept);
            Fault { when: When::Round(5 * time), length: Time(1_000_000_000), kind }
        };
        let faults: Vec<Fault> = (1..=25).map(kill).collect();
        let disturbed = run(&whole(), &faults, &mut NoopObserver).unwrap();
        let calm = run(&whole(), &[], &mut NoopObserver).unwrap();
        let told = format!("{policy}: {:?}\n{}", disturbed.ended, lines(&disturbed));
        assert!(disturbed.restarts >= 25, "{told}");
        assert!(disturbed.ended.iter().all(Option::is_none), "{told}");
        assert_eq!(disturbed.means, calm.means, "{told}");
    }
}

/// Neither half of the nodes continues without the other one, however long they are apart.
#[test]
fn half_of_the_nodes_do_not_continue() {
    for topology in ["complete:4", "ring:4", "torus:2x3"] {
        let whole = continuing(topology);
        let half = (0..whole.design.topology.nodes() / 2).map(NodeId::from).collect();
        let (when, length) = (When::Round(10), Time(30_000_000_000));
        let faults = [Fault { when, length, kind: Kind::Partition(half) }];
        let story = run(&whole, &faults, &mut NoopObserver).unwrap();
        let told = format!("{topology}: {:?}\n{}", story.ended, lines(&story));
        assert!(story.ended.iter().all(Option::is_none), "{told}");
        assert!(story.time.0 > 30_000_000_000, "{told}");
        let summary = story.summary(&whole.design).unwrap().unwrap();
        assert!(summary.history.iter().all(|change| change.models.len() > 3), "{told}");
    }
}

#[test]
fn a_fault_may_last_longer_than_the_run() {
    let whole = whole(0);
    let text = "[[fault]]\nkind = 'disk-slow'\nnodes = ['1']\nseconds = 0.001\nat_s = 0\n\
                for_s = 1000\n";
    let faults = parse(text, &whole.design.topology).unwrap();
    let story = run(&whole, &faults, &mut NoopObserver).unwrap();
    let calm = run(&self::whole(0), &[], &mut NoopObserver).unwrap();
    assert_eq!(story.time, calm.time);
    assert!(story.ended.iter().all(Option::is_none), "{story:?}");
}

/// Nodes are killed when the first of them has done all rounds: some may have their results, and
/// none leaves before all have them.
#[test]
fn a_kill_at_the_very_end_costs_no_results() {
    for nodes in ["'0'", "'1'", "'0', '1', '2'"] {
        let whole = whole(0);
        let text =
            format!("[[fault]]\nkind = 'kill'\nnodes = [{nodes}]\nat_round = 30\nfor_s = 2\n");
        let faults = parse(&text, &whole.design.topology).unwrap();
        let disturbed = run(&whole, &faults, &mut NoopObserver).unwrap();
        let calm = run(&self::whole(0), &[], &mut NoopObserver).unwrap();
        let digest = |story: &Story| story.summary(&whole.design).unwrap().map(|made| made.digest);
        assert!(disturbed.restarts > 0, "{disturbed:?}");
        assert_eq!(digest(&disturbed), digest(&calm), "{nodes}: {disturbed:?}");
        assert!(disturbed.ended.iter().all(Option::is_none), "{nodes}: {:?}", disturbed.ended);
    }
}

/// A run that continues without nodes, on this topology.
fn continuing(topology: &str) -> Whole {
    continuing_for(30, topology)
}

/// The same for so many rounds.
fn continuing_for(rounds: u64, topology: &str) -> Whole {
    let settings = [
        "rule.kind=d-psgd",
        "compressor.kind=identity",
        "absence.policy=continue",
        "absence.deadline_s=3",
        "absence.wait_s=200",
        "checkpoint.every_rounds=5",
        &format!("topology.file={topology}"),
        &format!("run.rounds={rounds}"),
    ];
    whole_with(1, &settings.map(String::from))
}

/// After this round these members continue from the mean of these models.
fn change(round: u64, members: &[u32], models: &[u32]) -> Change {
    let [members, models] = [members, models].map(|all| all.iter().copied().map(NodeId).collect());
    Change { round: Round(round), members, models, ..Change::default() }
}

/// The rounds of a node, and the bytes that it has sent: of payloads, and of frames.
#[derive(Debug, PartialEq)]
struct Sent {
    node: String,
    rounds: u64,
    bytes: [u64; 2],
}

/// What each node has sent.
fn sent(summary: &Summary) -> Vec<Sent> {
    let all = summary.participation.iter().map(|(name, it)| Sent {
        node: name.clone(),
        rounds: it.rounds,
        bytes: [it.bytes_payload, it.bytes_wire],
    });
    all.collect()
}

/// Members that leave and return, begin without others or without a link, and a user who ends the
/// run: the clusters do what the plain simulator does in a run of so many rounds.
#[test]
fn a_history_is_performed_by_clusters() {
    let all = [0, 1, 2, 3, 4];
    let away = change(10, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    let apart = Change { cut: vec![(NodeId(0), NodeId(4))], ..change(0, &all, &[]) };
    let lost = change(20, &all, &[1, 2, 3]);
    for (history, loses, ends) in [
        (vec![away.clone(), change(20, &all, &[0, 1, 2, 3])], false, &[30, 29, 22, 21][..]),
        (vec![away.clone(), lost.clone()], true, &[30, 21]),
        (vec![away, change(11, &[1, 2, 3], &[1, 2, 3])], false, &[30, 13, 12]),
        (vec![change(0, &[1, 2, 3], &[])], false, &[30, 2, 1]),
        (vec![apart, lost], true, &[30, 21]),
        (vec![change(1, &all, &[0, 2, 4]), change(30, &[1, 2, 3], &[1, 2, 3])], true, &[30]),
        (Vec::new(), false, &[30, 17, 2, 1]),
    ] {
        for rounds in ends.iter().copied() {
            let told = format!("{history:?} for {rounds} rounds");
            let whole = continuing("ring:5");
            let again = repeat(&whole, &history, Some(rounds), &mut NoopObserver).unwrap();
            let made = again.summary(&whole.design).unwrap();
            let made = made.unwrap_or_else(|| panic!("{told}: {}", lines(&again)));
            let plain = plain(&continuing_for(rounds, "ring:5"), &history).unwrap();
            assert_eq!((&made.digest, made.rounds), (&plain.digest, rounds), "{told}");
            assert_eq!(made.history, plain.history, "{told}");
            assert_eq!(again.restarts, 0, "{told}");
            // A node that has lost its files does not know what it has sent.
            if !loses {
                assert_eq!(sent(&made), sent(&plain), "{told}");
            }
        }
    }
}

/// The losses end a run in the round after which its user, or a change of its sites, ends it, too.
#[test]
fn a_history_whose_run_its_losses_have_ended_is_performed() {
    let whole = || {
        let set = [
            "rule.kind=d-psgd",
            "compressor.kind=identity",
            "topology.file=ring:5",
            "optimizer.step=1e-20",
            "run.stop_early={share=0.3,every=3,patience=2}",
        ];
        whole_with(1, &set.map(String::from))
    };
    let all = [0, 1, 2, 3, 4];
    for history in [Vec::new(), vec![change(5, &all, &all)]] {
        let plain = plain(&whole(), &history).unwrap();
        assert!(plain.stopped_early && plain.rounds < 30, "{} {history:?}", plain.rounds);
        let again = repeat(&whole(), &history, Some(plain.rounds), &mut NoopObserver).unwrap();
        let made = again.summary(&whole().design).unwrap().unwrap();
        assert_eq!((&made.digest, made.rounds), (&plain.digest, plain.rounds), "{history:?}");
    }
}

/// Models of nodes that were no members before a change, or are none after it, are refused, and
/// changes in another order than their rounds.
#[test]
fn a_history_that_no_run_has_is_refused() {
    let whole = continuing("ring:5");
    let without = change(10, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    for history in [
        vec![without.clone(), change(20, &[0, 1, 2, 3, 4], &[3, 4])],
        vec![change(10, &[0, 1, 2, 3], &[3, 4])],
        vec![without, change(9, &[0, 1, 2], &[0, 1, 2])],
        vec![change(10, &[0, 1, 2, 3, 4], &[0, 1])],
    ] {
        let error = repeat(&whole, &history, None, &mut NoopObserver).unwrap_err();
        assert!(matches!(error, RunError::Setup(_)), "{error}");
    }
}

/// What has happened, a line each.
pub(super) fn lines(story: &Story) -> String {
    let line = |it: &Occurrence| format!("{:.1} {:?} {}", it.time.0 as f64 / 1e9, it.node, it.text);
    story.occurrences.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Programs that are killed and started again every few seconds, for more rounds than a node may
/// sign nothing: nobody is refused, left out or accused, and the run ends.
#[test]
fn restarts_accuse_nobody() {
    for (policy, topology) in [("wait", "ring:4"), ("continue", "complete:4"), ("wait", "path:3")] {
        let set = [
            "rule.kind=dcd",
            "compressor.kind=identity",
            "run.rounds=2000",
            "optimizer.step=0.0005",
            "checkpoint.every_s=2",
            "network.compute_ms=30",
            &format!("absence.policy={policy}"),
            &format!("topology.file={topology}"),
        ];
        let whole = whole_with(1, &set.map(String::from));
        let nodes = whole.design.topology.nodes();
        let kill = |number: usize| {
            let (node, at) = (number % nodes, 5 + 4 * number);
            format!("[[fault]]\nkind = 'kill'\nnodes = ['{node}']\nat_s = {at}\nfor_s = 0.5\n")
        };
        let text: String = (0..15).map(kill).collect();
        let faults = parse(&text, &whole.design.topology).unwrap();
        let story = run(&whole, &faults, &mut NoopObserver).unwrap();
        let told = lines(&story);
        assert!(story.ended.iter().all(Option::is_none) && story.stuck.is_empty(), "{told}");
        assert!(story.restarts >= 15, "{told}");
        for wrong in ["refuses", "signed", "without", "frame that cannot be used"] {
            assert!(!told.contains(wrong), "{wrong}: {told}");
        }
        let summary = story.summary(&whole.design).unwrap().unwrap();
        assert!(summary.rounds == 2000 && summary.history.is_empty(), "{told}");
    }
}

/// A program is killed again as soon as `checkpoint.every_s` has passed: the run goes on, since the
/// first checkpoints after a start again come early.
#[test]
fn kills_as_frequent_as_checkpoints_stop_no_run() {
    for killed in [0, 2] {
        let set = [
            "rule.kind=d-psgd",
            "compressor.kind=identity",
            "run.rounds=600",
            "checkpoint.every_s=6",
            "network.compute_ms=50",
            "topology.file=ring:4",
        ];
        let whole = whole_with(1, &set.map(String::from));
        let kill = |number: usize| {
            let at = 5.5 + 7.0 * number as f64;
            format!("[[fault]]\nkind = 'kill'\nnodes = ['{killed}']\nat_s = {at}\nfor_s = 0.5\n")
        };
        let text: String = (0..8).map(kill).collect();
        let faults = parse(&text, &whole.design.topology).unwrap();
        let story = run(&whole, &faults, &mut NoopObserver).unwrap();
        let told = lines(&story);
        assert!(story.ended.iter().all(Option::is_none), "{told}");
        // Each attempt gets further: no more is repeated than some seconds of each.
        let calm = run(&whole_with(1, &set.map(String::from)), &[], &mut NoopObserver).unwrap();
        let longer = (story.time.0 - calm.time.0) as f64 / 1e9;
        assert!(story.restarts >= 6 && longer < 8.0 * 5.0, "{longer} s longer:\n{told}");
    }
}

/// No honest node refuses another one.
fn only_liar_is_refused(story: &Story, liar: u32) {
    let honest = story.occurrences.iter().filter(|it| it.node != Some(NodeId(liar)));
    let refusals = honest.filter_map(|it| it.text.split_once("this node refuses node "));
    for (why, refused) in refusals {
        assert!(refused.starts_with(&format!("{liar} for")), "{why}: {}", lines(story));
    }
}

/// What goes down the spanning tree is changed on its way: no node keeps another result than most,
/// and those above the liar keep theirs.
#[test]
fn one_that_changes_what_comes_down_the_tree_is_found() {
    for (lie, node) in TREE.into_iter().flat_map(|lie| [0, 1, 2, 3].map(|node| (lie, node))) {
        let whole = continuing("ring:5");
        let observer = &mut NoopObserver;
        let mut world = world::World::new(&whole, &whole.conditions, &[], observer);
        world.liar = Some(Liar { node: NodeId(node), lie, times: 0 });
        let (story, times) = world.run_with_liar();
        let told = format!("{lie:?} of {node}: {:?}\n{}", story.ended, lines(&story));
        let tree = whole.design.topology.spanning_tree();
        let is_leaf = tree.children(NodeId(node)).is_empty();
        assert_eq!(times == 0, is_leaf, "{told}");
        let others = || (0..5).filter(|other| *other != node as usize);
        let means: Vec<u64> = others().filter_map(|other| story.means[other]).collect();
        assert!(means.len() >= 3 && means.iter().all(|mean| *mean == means[0]), "{told}");
        assert!(story.stuck.is_empty(), "{told}");
        let said = ["has signed", "has not signed"];
        let named = said.iter().any(|said| told.contains(said));
        assert!(named || is_leaf, "{told}");
        only_liar_is_refused(&story, node);
    }
}

/// A node between others, or the root, changes what they give to the setup, to the initial model,
/// and to a mean that withstands wrong models: those that get it find that, and the others end with
/// their results.
#[test]
fn one_that_changes_what_others_give_is_found() {
    let set = [
        "rule.kind=trimmed-mean",
        "compressor.kind=identity",
        "absence.policy=continue",
        "absence.deadline_s=3",
        "absence.wait_s=200",
        "topology.file=ring:6",
    ];
    let up = UP.into_iter().flat_map(|lie| [1, 2, 5].map(|node| (lie, node)));
    let down = DOWN.into_iter().flat_map(|lie| [0, 1, 2, 5].map(|node| (lie, node)));
    for (lie, node) in up.chain(down) {
        let mut set = set.map(String::from).to_vec();
        let of_initial = matches!(lie, Lie::Up(INITIAL) | Lie::Tree(INITIAL));
        set.extend(of_initial.then(|| "model.init=from:3".to_string()));
        let stop = "run.stop_early={share=0.3,every=3,patience=20}";
        set.extend((lie == Lie::Up(TALLY)).then(|| stop.to_string()));
        let (whole, observer) = (whole_with(1, &set), &mut NoopObserver);
        let tree = whole.design.topology.spanning_tree();
        let passes_on = match lie {
            Lie::Up(INITIAL) => tree.is_below(NodeId(3), NodeId(node)),
            _ => !tree.children(NodeId(node)).is_empty(),
        };
        let mut world = world::World::new(&whole, &whole.conditions, &[], observer);
        world.liar = Some(Liar { node: NodeId(node), lie, times: 0 });
        let (story, times) = world.run_with_liar();
        let told = format!("{lie:?} of {node}: {:?}\n{}", story.ended, lines(&story));
        assert_eq!(times > 0, passes_on, "{told}");
        only_liar_is_refused(&story, node);
        assert_eq!(told.contains("has not signed what is said to be"), passes_on, "{told}");
        let others = || (0..6).filter(|other| *other != node as usize);
        assert!(others().all(|other| story.ended[other].is_none()), "{told}");
        let means: Vec<u64> = others().filter_map(|other| story.means[other]).collect();
        assert!(means.len() == 5 && means.iter().all(|mean| *mean == means[0]), "{told}");
    }
}

/// After a change of members the root, or a node between others, gives one of its neighbours
/// another mean of the models than the others. No honest node accuses another one, though their
/// copies of each other would differ: none begins before all have signed the same.
#[test]
fn one_that_gives_different_initial_models_is_found_before_the_rounds() {
    for (topology, node) in [("complete:5", 0), ("ring:6", 0), ("ring:6", 1)] {
        let mut set: Vec<String> = [
            "rule.kind=dcd",
            "compressor.kind=identity",
            "absence.policy=continue",
            "absence.deadline_s=3",
            "absence.wait_s=200",
            "checkpoint.every_rounds=5",
            "network.compute_ms=100",
            "run.rounds=200",
        ]
        .map(String::from)
        .into();
        set.push(format!("topology.file={topology}"));
        let (whole, observer) = (whole_with(1, &set), &mut NoopObserver);
        let text = "[[fault]]\nkind = 'kill'\nnodes = ['4']\nat_s = 5\nfor_s = 10\n";
        let faults = parse(text, &whole.design.topology).unwrap();
        let mut world = world::World::new(&whole, &whole.conditions, &faults, observer);
        world.liar = Some(Liar { node: NodeId(node), lie: Lie::Tree(INITIAL), times: 0 });
        let (story, times) = world.run_with_liar();
        let told = format!("{node} of {topology}: {:?}\n{}", story.ended, lines(&story));
        assert!(times > 0 && story.stuck.is_empty(), "{told}");
        assert!(told.contains("it has signed another initial model than"), "{told}");
        only_liar_is_refused(&story, node);
        let nodes = whole.design.topology.nodes();
        let others = || (0..nodes).filter(|other| *other != node as usize);
        assert!(others().all(|other| story.ended[other].is_none()), "{told}");
        let means: Vec<u64> = others().filter_map(|other| story.means[other]).collect();
        assert!(means.len() == nodes - 1 && means.iter().all(|mean| *mean == means[0]), "{told}");
    }
}

/// Nobody ends the run in the name of another node: who tries is left out, and the others do all
/// rounds.
#[test]
fn one_that_ends_the_run_in_the_name_of_another_is_left_out() {
    for (topology, node) in [("ring:5", 0), ("ring:5", 2), ("complete:5", 3)] {
        let (whole, observer) = (continuing(topology), &mut NoopObserver);
        let mut world = world::World::new(&whole, &whole.conditions, &[], observer);
        world.liar = Some(Liar { node: NodeId(node), lie: Lie::Stops, times: 0 });
        let (story, times) = world.run_with_liar();
        let told = format!("{node} of {topology}: {:?}\n{}", story.ended, lines(&story));
        assert!(times > 0 && told.contains("has not signed this notice"), "{told}");
        let others = || (0..5).filter(|other| *other != node as usize);
        assert!(others().all(|other| story.ended[other].is_none()), "{told}");
        let summary = story.summary(&whole.design).unwrap().unwrap();
        assert_eq!(summary.rounds, 30, "{told}");
    }
}

/// A member that sends its two neighbours different models is found by what it signs, and left out.
/// Records change nothing else.
#[test]
fn one_that_sends_its_neighbours_different_things_is_left_out() {
    let set = [
        "rule.kind=dcd",
        "compressor.kind=identity",
        "absence.policy=continue",
        "absence.deadline_s=3",
        "checkpoint.every_rounds=5",
        "network.compute=fixed",
        "network.compute_ms=100",
        "run.rounds=80",
        "topology.file=ring:5",
    ];
    let whole = || whole_with(1, &set.map(String::from));
    for (since, node) in [(10, 1), (20, 3)] {
        let (whole, observer) = (whole(), &mut NoopObserver);
        let mut world = world::World::new(&whole, &whole.conditions, &[], observer);
        world.liar = Some(Liar { node: NodeId(node), lie: Lie::TwoFaced(since), times: 0 });
        let (story, times) = world.run_with_liar();
        let told = lines(&story);
        assert!(times > 0 && story.stuck.is_empty(), "{told}");
        let found = "its vector here is not the one that it has signed for all its neighbours";
        assert!(told.contains(found), "{told}");
        let others = || (0..5).filter(|other| *other != node as usize);
        assert!(others().all(|other| story.ended[other].is_none()), "{told}");
        let means: Vec<u64> = others().filter_map(|other| story.means[other]).collect();
        assert!(means.len() == 4 && means.iter().all(|mean| *mean == means[0]), "{told}");
    }
    let [mute, loud] = [true, false].map(|is_mute| {
        let (whole, observer) = (whole(), &mut NoopObserver);
        let mut world = world::World::new(&whole, &whole.conditions, &[], observer);
        world.is_mute = is_mute;
        let story = world.run().unwrap();
        let digest = story.summary(&whole.design).unwrap().unwrap().digest;
        (digest, story.time, story.means)
    });
    assert_eq!(mute, loud);
}

/// What an honest node signs is what it has sent, whatever its rule, for more rounds than it may be
/// silent about.
#[test]
#[ignore = "slow"]
fn no_rule_makes_an_honest_node_contradict_itself() {
    let mut compared = BTreeSet::new();
    let compressors = ["identity", "top-k", "count-sketch"];
    let topologies = ["ring:4", "complete:4", "star:4"];
    for name in rule::RULES.names() {
        for (compressor, topology) in
            compressors.into_iter().flat_map(|one| topologies.map(|other| (one, other)))
        {
            let set = [
                &format!("rule.kind={name}"),
                &format!("compressor.kind={compressor}"),
                &format!("topology.file={topology}"),
                "run.rounds=600",
                "optimizer.step=0.0005",
                "network.compute_ms=30",
            ];
            // Not every rule takes every compressor, and every topology.
            let Ok(whole) = try_whole_with(1, &set.map(String::from)) else { continue };
            let story = run(&whole, &[], &mut NoopObserver).unwrap();
            let told = format!("{name} {compressor} {topology}: {:?}", story.ended);
            assert!(story.ended.iter().all(Option::is_none), "{told}");
            compared.insert(name);
        }
    }
    assert!(compared.len() > 30, "{compared:?}");
}
