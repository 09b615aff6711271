//! Seeds give runs with a hostile member, with ordinary faults or without.

use std::{collections::BTreeMap, env, ops::Range, panic};

use super::{ALL, Hostile, Kind};
use crate::{
    drive::{NoopObserver, describe_panic},
    experiment::Policy,
    faults::{
        schedule::{self, DiskAfter, Fault, When},
        tests::{MOST_FAILED, lines, pick, seeds, try_whole_with},
        world::World,
    },
    mixing::Topology,
    rng::{Purpose, Sequence, Stream},
    run::Whole,
    units::{NodeId, Time},
};

/// The seeds of the slow test, and those of the quick one.
const SEEDS: Range<u64> = 0..100;
const FEW: Range<u64> = 0..6;

/// Those of members that send numbers that are far too large.
const HUGE: Range<u64> = 0..4;

/// Seeds of each kind alone, and those among which some do each kind.
const EACH: Range<u64> = 0..2;
const ANY: Range<u64> = 2..200;

const TOPOLOGIES: [&str; 8] =
    ["ring:5", "complete:5", "complete:4", "ring:4", "path:4", "path:5", "torus:2x3", "ring:7"];

/// The last one withstands one wrong model.
const RULES: [&str; 5] = ["d-psgd", "dcd", "choco", "gradient-tracking", "trimmed-mean"];

const SECOND: u64 = 1_000_000_000;

/// `GRADVINE_LIES=Begin,Records` chooses the kinds.
fn chosen() -> Vec<Kind> {
    let Ok(names) = env::var("GRADVINE_LIES") else { return ALL.to_vec() };
    let named = |kind: &Kind| names.split(',').any(|name| name == format!("{kind:?}"));
    let all: Vec<Kind> = ALL.into_iter().filter(named).collect();
    assert!(!all.is_empty(), "GRADVINE_LIES={names} names none of {ALL:?}");
    all
}

/// Faults beside the hostile member, at other nodes; or a node that starts for the first time when
/// the others have begun to wait.
fn faults(rng: &mut Sequence, topology: &Topology, hostile: NodeId, rounds: u64) -> Vec<Fault> {
    let all = (0..topology.nodes()).map(NodeId::from).filter(|node| *node != hostile);
    let honest: Vec<NodeId> = all.collect();
    let edges: Vec<(NodeId, NodeId)> = topology.edges().collect();
    let one = |rng: &mut Sequence| {
        let (node, edge) = (pick(rng, &honest), pick(rng, &edges));
        let length = Time((100 + rng.below(6_000)) * 1_000_000);
        let when = When::Round(rng.below(rounds));
        let (when, kind) = match rng.below(7) {
            0 => (When::At(Time(0)), schedule::Kind::Kill(vec![node], DiskAfter::Kept)),
            1 => (when, schedule::Kind::Kill(vec![node], DiskAfter::Kept)),
            2 => (when, schedule::Kind::Kill(vec![node], DiskAfter::Unsynced)),
            3 => (when, schedule::Kind::Cut(vec![edge])),
            4 => (when, schedule::Kind::Hang(vec![node])),
            5 => (when, schedule::Kind::DiskSlow(vec![node], Time(rng.below(2_000) * 1_000_000))),
            _ => (when, schedule::Kind::Reset(vec![edge])),
        };
        Fault { when, length, kind }
    };
    let count = rng.below(3);
    (0..count).map(|_| one(rng)).collect()
}

/// The run of a seed, its faults, and its hostile member, which does some of these things.
fn case(seed: u64, kinds: &[Kind]) -> (Whole, Vec<Fault>, Hostile) {
    let rng = &mut Stream::new(seed, Purpose::Test).with(2).sequence();
    let rule = pick(rng, &RULES);
    let topology = pick(rng, &TOPOLOGIES);
    // It needs three neighbours, also without the hostile one and two that have failed.
    let topology = if rule == "trimmed-mean" { "complete:7" } else { topology };
    let (rounds, compute) = pick(rng, &[(30, "50"), (60, "1"), (60, "200"), (150, "1000")]);
    let mut settings: Vec<String> = vec![
        format!("topology.file={topology}"),
        format!("rule.kind={rule}"),
        format!("run.rounds={rounds}"),
        format!("run.evaluate_every={rounds}"),
        "compressor.kind=identity".into(),
        "run.patience_s=30".into(),
        format!("network.compute_ms={compute}"),
        match rounds {
            150 => "checkpoint.every_s=1".into(),
            _ => format!("checkpoint.every_rounds={}", 2 + rng.below(5)),
        },
    ];
    if rule == "trimmed-mean" {
        settings.push("rule.liars=1".into());
    }
    if rng.below(4) > 0 {
        let all = ["policy=continue", "deadline_s=3", "wait_s=200"];
        settings.extend(all.map(|setting| format!("absence.{setting}")));
    } else {
        settings.push("absence.deadline_s=20".into());
    }
    let whole = try_whole_with(seed, &settings).expect("valid settings");
    let topology = &whole.design.topology;
    let node = NodeId::from(rng.below(topology.nodes() as u64) as usize);
    let faults = faults(rng, topology, node, rounds);
    // Some of the kinds, often; or all of them.
    let some = match rng.below(3) {
        0 => kinds.to_vec(),
        _ => (0..1 + rng.below(4)).map(|_| pick(rng, kinds)).collect(),
    };
    let since = Time(pick(rng, &[0, 0, 1, 5]) * SECOND);
    let every = pick(rng, &[2, 10, 50]);
    let hostile = Hostile::new(node, some, (since, every), seed);
    (whole, faults, hostile)
}

/// Checks how the run of a seed ends; what holds at all times is asserted. Returns how often the
/// hostile member has done what.
fn check(seed: u64, kinds: &[Kind]) -> Result<BTreeMap<Kind, u64>, String> {
    let (whole, faults, hostile) = case(seed, kinds);
    let observer = &mut NoopObserver;
    let mut world = World::new(&whole, &whole.conditions, &faults, observer);
    let node = hostile.node.index();
    let does = format!("node {node} does {:?}; {faults:?}", hostile.kinds);
    world.hostile = Some(hostile);
    let is_possible = world.bound().is_some();
    let disturbed = |node: usize| world.is_disturbed(node.into());
    let disturbed: Vec<bool> = (0..whole.design.topology.nodes()).map(disturbed).collect();
    let run = panic::catch_unwind(panic::AssertUnwindSafe(|| world.run_with_hostile()));
    let (story, hostile, has_begun) =
        run.map_err(|payload| format!("{}; {does}", describe_panic(&*payload)))?;
    let others = || (0..story.ended.len()).filter(|other| *other != node);
    let told = || format!("{does}\n{}", lines(&story));
    if others().any(|other| story.stuck.contains(&other.into())) {
        return Err(format!("stuck: {:?} wait for ever; {}", story.stuck, told()));
    }
    let means: Vec<u64> = others().filter_map(|other| story.means[other]).collect();
    if means.iter().any(|mean| *mean != means[0]) {
        return Err(format!("means: {:?}; {}", story.means, told()));
    }
    let continues = whole.design.experiment.absence.policy == Policy::Continue;
    // One that has its results may not hear that all others have theirs. One that was told that the
    // run is over, which is checked then, is started again for nothing.
    // And no run begins before all are there.
    let is_told = |other: usize| {
        let mut all = story.occurrences.iter().filter(|it| it.node == Some(other.into()));
        all.any(|it| it.text.starts_with("ended: the run is over"))
    };
    let fails = |other: &usize| {
        story.ended[*other].is_some() && story.means[*other].is_none() && !is_told(*other)
    };
    let failed = others().find(|other| !disturbed[*other] && fails(other));
    // Those that were left out learn from a quorum that the run is over. The hostile one may be
    // needed for that.
    let quorum = whole.design.experiment.absence.quorum_of(story.ended.len());
    let is_bare = !means.is_empty() && means.len() < quorum;
    match failed.filter(|_| continues && is_possible && has_begun && !is_bare) {
        Some(other) => {
            let why = story.ended[other].as_deref().unwrap_or_default();
            Err(format!("failed: node {other}: {why}; {}", told()))
        }
        None => Ok(hostile.times),
    }
}

/// Runs these seeds. Returns how often the hostile members have done what.
fn expect(seeds: Range<u64>, kinds: &[Kind]) -> BTreeMap<Kind, u64> {
    let (mut times, mut failed) = (BTreeMap::new(), Vec::new());
    for seed in seeds {
        match check(seed, kinds) {
            Ok(all) => all.into_iter().for_each(|(kind, n)| *times.entry(kind).or_default() += n),
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
        if failed.len() >= MOST_FAILED {
            break;
        }
    }
    let text = failed.join("\n");
    assert!(failed.is_empty(), "{} seeds fail, or more:\n{text}", failed.len());
    times
}

#[test]
fn a_few_hostile_members_cost_their_own_places() {
    expect(FEW, &ALL);
}

/// `GRADVINE_SEEDS=0..10000` chooses others, and `GRADVINE_LIES=Begin,Records` what the members do.
#[test]
#[ignore = "slow"]
fn hostile_members_cost_their_own_places() {
    expect(seeds(SEEDS), &chosen());
}

/// A run that began waited for ever for a neighbour that had said goodbye before.
#[test]
fn a_goodbye_before_the_run_is_the_loss_of_the_link() {
    assert!(expect(27..28, &[Kind::Goodbyes]).contains_key(&Kind::Goodbyes));
}

/// A number of 1e30 in a model makes the models of all nodes diverge.
#[test]
fn one_that_sends_far_too_large_values_is_found_when_the_model_diverges() {
    assert!(expect(HUGE, &[Kind::Huge]).contains_key(&Kind::Huge));
}

/// Each kind alone, so that none is drowned by the others; and each is there.
#[test]
#[ignore = "slow"]
fn soak_each_kind_alone_costs_its_own_place() {
    for kind in ALL {
        let does = |seeds| expect(seeds, &[kind]).contains_key(&kind);
        // Some need a choice of members, which few seeds have.
        let is_done = does(EACH) || { ANY }.any(|seed| does(seed..seed + 1));
        assert!(is_done || kind == Kind::Stays, "{kind:?} is never done");
    }
}
