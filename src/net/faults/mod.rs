//! Runs with faults: the real core, workers, sessions, checkpoints and choice of members, on
//! simulated machines with virtual time.
//!
//! The program of a node is the code of a real one, from its files to its results. Simulated are
//! the clock, the disk (which loses what was not synced), and the connections between machines
//! (which break, delay and cut frames anywhere); encryption and the streams of libp2p are not part
//! of it. A seed gives a run with some faults; after them everything must heal and end, and the
//! digest must be that of the undisturbed run or of its history.
//!
//! ```text
//! cargo test -p gradvine --lib faults                             20 seeds
//! cargo test -p gradvine --lib faults::seeds_heal -- --ignored    200 seeds
//! GRADVINE_SEEDS=0..10000 cargo test -p gradvine --lib faults::seeds_heal -- --ignored --nocapture
//! ```

mod check;
mod connections;
mod disk;
mod files;
mod links;
mod program;
mod scenario;
mod state;
mod task;
mod world;

use std::{
    env,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use self::{
    scenario::{DEADLINE, Scenario},
    state::{Bug, World},
};

/// The seeds of the slow test, of which the quick one takes the first tenth.
const SEEDS: Range<u64> = 0..200;

/// Runs a scenario and checks how it ends.
fn try_one(scenario: &Scenario, bug: Option<Bug>) -> Result<(), String> {
    let ran = World::run(scenario, bug)?;
    check::check(scenario, &ran)
}

/// The scenario with as few of its faults as are needed for it to fail.
fn shrink(mut scenario: Scenario, mut problem: String) -> (Scenario, String) {
    let mut index = 0;
    while index < scenario.faults.len() {
        let mut smaller = scenario.clone();
        smaller.faults.remove(index);
        match try_one(&smaller, None) {
            Err(still) => (scenario, problem) = (smaller, still),
            Ok(()) => index += 1,
        }
    }
    (scenario, problem)
}

/// The seeds that the environment names, or those of the slow test.
fn seeds() -> Range<u64> {
    let Ok(text) = env::var("GRADVINE_SEEDS") else { return SEEDS };
    let mut ends = text.split("..").map(|end| end.parse::<u64>().expect("GRADVINE_SEEDS=0..200"));
    let first = ends.next().expect("a number");
    first..ends.next().unwrap_or(first + 1)
}

#[test]
fn a_few_seeds_heal() {
    expect_to_heal(SEEDS.start..SEEDS.end / 10);
}

#[test]
#[ignore = "slow"]
fn seeds_heal() {
    expect_to_heal(seeds());
}

fn expect_to_heal(seeds: Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let run = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return;
                }
                if let Err(problem) = try_one(&Scenario::of(seed), None) {
                    eprintln!("seed {seed}: {problem}");
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push((seed, problem));
                }
            }
        };
        (0..2).for_each(|_| _ = scope.spawn(run));
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((seed, problem)) = failed.first() {
        let scenario = Scenario::of(*seed);
        let (smaller, problem) = match env::var("GRADVINE_TRACE") {
            Ok(_) => (scenario, problem.clone()),
            Err(_) => shrink(scenario, problem.clone()),
        };
        panic!(
            "{} of {} seeds fail. The first: {problem}\n{smaller:#?}\nto repeat it: \
             GRADVINE_SEEDS={seed} GRADVINE_TRACE=1 cargo test -p gradvine --lib \
             faults::seeds_heal -- --ignored",
            failed.len(),
            seeds.end - seeds.start
        );
    }
}

#[test]
#[ignore = "slow"]
fn no_node_waits_past_its_deadline() {
    for seed in 0..10 {
        let scenario = Scenario::too_long(seed);
        let ran = World::run(&scenario, None).expect("all programs end");
        let started = scenario.faults[0].0;
        // The links break some seconds later, and the reason reaches the others.
        let latest = started + DEADLINE + Duration::from_secs(15);
        for (machine, ended) in ran.ended.iter().enumerate().skip(1) {
            let ended = ended.expect("it has ended");
            let waited = ended >= started + DEADLINE && ended <= latest;
            assert!(waited, "seed {seed}: machine {machine} ended after {ended:?}");
        }
        // Started again and again, they continue when the absent node is back.
        check::check(&scenario, &ran).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [1, 2, 3] {
        let time = || World::run(&Scenario::of(seed), None).map(|ran| ran.time);
        assert_eq!(time(), time(), "seed {seed}");
    }
}

#[test]
#[ignore = "slow"]
fn planted_bugs_are_found() {
    for bug in [
        Bug::NoRetransmission,
        Bug::PieceTwice,
        Bug::ErrorForgotten,
        Bug::RenameBeforeSync,
        Bug::TwoMemberships,
        Bug::ReplicaKept,
    ] {
        let is_found = |seed: &u64| {
            let scenario = Scenario::of(*seed);
            try_one(&scenario, Some(bug)).is_err() && try_one(&scenario, None).is_ok()
        };
        let found = (0..400).find(is_found);
        assert!(found.is_some(), "{bug:?}");
        eprintln!("{bug:?}: found by seed {}", found.unwrap_or(0));
    }
}
