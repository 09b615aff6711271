//! A node with the bytes of `fuzz/corpus/cluster`, and with random ones.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{Reached, checks::Checks, disk::Disk, run};
use crate::{
    cluster::{
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::Beginning,
    },
    drive::Membership,
    gossip::Snapshot,
    mixing::Topology,
    rng::{Purpose, Sequence, Stream},
    run::Checkpoint,
    units::{NodeId, Round},
};

/// Random bytes: steps in which all go on come often, so that many get far.
fn random(seed: u64) -> Vec<u8> {
    let mut words = Stream::new(seed, Purpose::Test).sequence();
    let length = 3 + words.below(300);
    let mut bytes: Vec<u8> = (0..length).map(|_| words.word() as u8).collect();
    for _ in 0..words.below(20) {
        let at = words.below(length - 1) as usize;
        // Step 0, many times.
        (bytes[at], bytes[at + 1]) = (0, words.below(20) as u8);
    }
    bytes
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/cluster")
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files.into_iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

fn add(sum: &mut Reached, one: Reached) {
    sum.inputs += one.inputs;
    sum.begins += one.begins;
    sum.resumes += one.resumes;
    sum.means += one.means;
    sum.rounds += one.rounds;
    sum.writes += one.writes;
    sum.retains += one.retains;
    sum.choices += one.choices;
    sum.records += one.records;
    sum.bans += one.bans;
    sum.results += one.results;
    sum.ends += one.ends;
}

fn tried(bytes: &[u8], what: &str) -> Reached {
    let done = catch_unwind(AssertUnwindSafe(|| run(bytes)));
    done.unwrap_or_else(|_| panic!("{what}: {bytes:?}"))
}

/// A fuzzer that gets nowhere finds nothing: all that a node can do must come.
#[test]
fn arbitrary_bytes_do_no_harm_and_reach_all_phases() {
    let mut sum = Reached::default();
    corpus().iter().for_each(|(path, bytes)| add(&mut sum, tried(bytes, path)));
    (0..300).for_each(|seed| add(&mut sum, tried(&random(seed), &format!("seed {seed}"))));
    let Reached { begins, resumes, means, rounds, writes, retains, .. } = sum;
    let Reached { choices, records, bans, results, ends, .. } = sum;
    let all = [begins, resumes, means, rounds, writes, retains, choices, records, bans, results];
    assert!(all.iter().all(|count| *count > 0) && ends > 0, "{sum:?}");
}

/// A check that cannot fail shows nothing.
#[test]
fn the_checks_find_what_they_look_for() {
    let topology = Topology::parse("complete:4", 0).unwrap();
    let nodes = |all: &[u32]| all.iter().copied().map(NodeId).collect::<Vec<_>>();
    let view = |signer: u32, node: u32, linked: &[u32], adopted: u64| {
        let view = View { linked: nodes(linked), adopted, started: true, ..View::default() };
        let signature = Named(NodeId(signer)).sign(&statement(NodeId(node), &view));
        (NodeId(node), View { signature, ..view })
    };
    let record = |views: Vec<(NodeId, View)>, members: &[u32], id: u64| {
        let mut checks = Checks::default();
        checks.hear(&News { views });
        let linked = nodes(&[0, 2]).into_iter().collect();
        let membership = Membership::after([id << 32].into_iter(), nodes(members), Vec::new());
        let record = || checks.record(&topology, (NodeId(1), &linked), [4, 3], &membership);
        catch_unwind(AssertUnwindSafe(record)).is_ok()
    };
    let honest = || vec![view(0, 0, &[1, 2], 0), view(2, 2, &[0, 1], 0)];
    assert!(record(honest(), &[0, 1, 2], 0));
    assert!(!record(honest(), &[0, 1], 0), "no quorum");
    assert!(!record(honest(), &[0, 2, 3], 0), "not itself");
    assert!(!record(honest(), &[0, 1, 2], 1), "a number is left out");
    assert!(!record(honest(), &[0, 1, 2, 3], 0), "nobody has heard of one");
    assert!(!record(vec![view(0, 0, &[1, 2], 0), view(0, 2, &[0, 1], 0)], &[0, 1, 2], 0), "forged");
    assert!(record(vec![view(0, 0, &[1, 2], 5 << 32), honest().remove(1)], &[0, 1, 2], 5));

    let (mut disk, mut checks) = (Disk::default(), Checks::default());
    let snapshot = Snapshot { rounds: Round(4), ..Snapshot::default() };
    disk.checkpoints.insert(4, Checkpoint { snapshot, common: 2, ..Checkpoint::default() });
    let mut begin = |rounds: u64, without: &[u32], by_quorum: bool| {
        let from_mean = !without.is_empty();
        let at = Beginning { rounds, from_mean, without: nodes(without), ..Beginning::default() };
        let begin = || checks.begin(&disk, NodeId(1), by_quorum, 0, &at);
        catch_unwind(AssertUnwindSafe(begin)).is_ok()
    };
    assert!(begin(4, &[], false) && begin(4, &[0, 2], false) && begin(9, &[1], true));
    assert!(!begin(0, &[], false), "the common checkpoint");
    assert!(!begin(6, &[], true), "there is none");
    assert!(!begin(9, &[1], false), "the word of one");
    let over = |others, quorum| catch_unwind(|| Checks::default().over(others, quorum)).is_ok();
    assert!(over(2, 3) && !over(1, 3) && !over(0, 3));
}

/// Changes some bytes of an input, or joins it with another one.
fn mutated(words: &mut Sequence, all: &[Vec<u8>]) -> Vec<u8> {
    let one = |words: &mut Sequence| &all[words.below(all.len() as u64) as usize];
    let mut bytes = one(words).clone();
    for _ in 0..=words.below(4) {
        let at = words.below(bytes.len() as u64 + 1) as usize;
        match words.below(4) {
            0 => bytes.insert(at, words.word() as u8),
            1 if at < bytes.len() => bytes[at] = words.word() as u8,
            2 if at < bytes.len() => _ = bytes.remove(at),
            _ => {
                let other = one(words);
                let from = words.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes.truncate(600);
    bytes
}

#[test]
#[ignore = "GRADVINE_FUZZ_S seconds of random bytes"]
fn soak_arbitrary_bytes() {
    let seconds = std::env::var("GRADVINE_FUZZ_S").map_or(60, |text| text.parse().unwrap());
    let (started, length) = (Instant::now(), Duration::from_secs(seconds));
    let mut all: Vec<Vec<u8>> = corpus().into_iter().map(|(_, bytes)| bytes).collect();
    // Other ones each time.
    let seed = RandomState::new().hash_one(seconds);
    let mut words = Stream::new(seed, Purpose::Test).sequence();
    let (mut sum, mut times) = (Reached::default(), 0u64);
    while started.elapsed() < length {
        let bytes = match words.below(2) {
            0 => random(words.word()),
            _ => mutated(&mut words, &all),
        };
        let reached = tried(&bytes, "these bytes");
        // What gets far is a beginning for others.
        if reached.records + reached.results + reached.means > 0 && all.len() < 1000 {
            all.push(bytes);
        }
        add(&mut sum, reached);
        times += 1;
    }
    println!("{times} inputs: {sum:?}");
}
