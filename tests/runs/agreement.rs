//! Before round 0 the nodes agree on one record merged from all of theirs; at the end all records
//! reach the nodes that read them.

use std::sync::{Arc, Mutex};

use common::{
    Run,
    driver::{Driven, sealed},
};
use gradvine::{
    config::ConfigError,
    drive::{Conclusion, Learner, NodeSpec, NoopObserver},
    gossip::{
        Input, Node,
        plan::At,
        tree::{Merge, RECORD_LIMIT, Readers, SETUP, SETUP_LIMIT, SIGNATURE, Setup},
    },
    sim::{self},
    units::Round,
};

/// Concatenates records; a byte of 255 is invalid.
fn merge() -> Merge {
    Arc::new(|records: &[&[u8]]| {
        let known = records.iter().all(|record| !record.contains(&255));
        if known { Ok(records.concat()) } else { Err("255 means nothing".into()) }
    })
}

struct Recording {
    learner: Box<dyn Learner>,
    agreed: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Learner for Recording {
    fn prepare(&mut self, merged: &[u8]) -> Result<(), ConfigError> {
        self.agreed.lock().unwrap().push(merged.to_vec());
        Ok(())
    }

    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.learner.compute(round, x, update)
    }

    fn step(&self, round: Round) -> f32 {
        self.learner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        self.learner.conclude(conclusion)
    }
}

const TOPOLOGIES: [&str; 5] = ["ring:7", "star:5", "path:6", "torus:3x4", "random-regular:20:3"];

fn specs(topology: &str, readers: Readers, agreed: &Arc<Mutex<Vec<Vec<u8>>>>) -> Vec<NodeSpec> {
    let run = Run { rounds: 3, ..Run::new(topology, "kind = 'd-psgd'", "kind = 'identity'") };
    let result = |(node, mut spec): (usize, NodeSpec)| {
        spec.config.setup = Some(Setup::new(vec![node as u8, 100 + node as u8], merge()));
        spec.config.readers = readers;
        NodeSpec {
            learner: Box::new(Recording { learner: spec.learner, agreed: Arc::clone(agreed) }),
            ..spec
        }
    };
    run.specs().into_iter().enumerate().map(result).collect()
}

#[test]
fn all_nodes_agree_on_the_records_merged_in_node_order() {
    for topology in TOPOLOGIES {
        let agreed = Arc::default();
        let specs = specs(topology, Readers::Everyone, &agreed);
        let nodes = specs.len();
        sim::run(specs, &mut NoopObserver).unwrap();
        let expected: Vec<u8> =
            (0..nodes).flat_map(|node| [node as u8, 100 + node as u8]).collect();
        assert_eq!(*agreed.lock().unwrap(), vec![expected; nodes], "{topology}");
    }
}

#[test]
fn the_last_records_reach_only_their_readers() {
    for topology in TOPOLOGIES {
        let ended = |readers| {
            sim::run(specs(topology, readers, &Arc::default()), &mut NoopObserver).unwrap()
        };
        let (everyone, root) = (ended(Readers::Everyone), ended(Readers::Root));
        assert!(everyone.iter().all(|one| one.records == everyone[0].records), "{topology}");
        assert_eq!(everyone[0].records.len(), everyone.len());
        assert_eq!(root[0].records, everyone[0].records);
        assert!(root[1..].iter().all(|one| one.records.is_empty()), "{topology}");
        assert!(
            everyone.iter().zip(&root).all(|(a, b)| (&a.model, &a.mean) == (&b.model, &b.mean))
        );
    }
}

#[test]
fn one_that_is_too_large_is_the_callers_mistake() {
    let result = std::panic::catch_unwind(|| {
        let mut spec = specs("ring:3", Readers::Everyone, &Arc::default()).swap_remove(0);
        spec.config.setup = Some(Setup::new(vec![0; SETUP_LIMIT + 1], merge()));
        Node::new(spec.config)
    });
    assert!(result.is_err());
}

/// The result of node `own` of a path of three upon a setup frame.
fn answered(own: usize, from: u32, exchange: u16, payload: &[u8]) -> Option<String> {
    answered_with(vec![0], own, from, exchange, payload)
}

/// The same with this record of its own.
fn answered_with(
    record: Vec<u8>,
    own: usize,
    from: u32,
    exchange: u16,
    payload: &[u8],
) -> Option<String> {
    let mut spec = specs("path:3", Readers::Everyone, &Arc::default()).swap_remove(own);
    spec.config.setup = Some(Setup::new(record, merge()));
    let mut node = Driven::new(spec);
    node.settle(Input::Start);
    node.refuses(from, sealed(At { round: Round(0), flight: SETUP, exchange }, payload))
}

/// The encoding of a node's record in a frame; one process has no keys, so zeros are in the place
/// of the signature.
fn record(node: u32, record: &[u8]) -> Vec<u8> {
    let length = (record.len() + SIGNATURE) as u32;
    [&node.to_le_bytes()[..], &length.to_le_bytes(), record, &[0; SIGNATURE]].concat()
}

/// Where all nodes get the records of all, each merges them; what the root has merged is nothing.
#[test]
fn a_node_merges_the_records_of_all_nodes_itself() {
    let all = [record(0, &[0, 100]), record(1, &[1, 101]), record(2, &[2, 102])];
    let down = |payload: &[u8]| answered_with(vec![2, 102], 2, 1, 3, payload);
    assert_eq!(down(&all.concat()), None);
    let without_last = down(&all[..2].concat()).unwrap_or_default();
    assert!(without_last.contains("2 records where 3 nodes take part"), "{without_last}");
    let wrong = down(&[&all[0][..], &record(1, &[255]), &all[2]].concat()).unwrap_or_default();
    assert!(wrong.contains("setup record of node 1: 255 means nothing"), "{wrong}");
    let merged = down(&[0, 100, 1, 101, 2, 102]).unwrap_or_default();
    assert!(merged.contains("cut short"), "{merged}");
}

/// The result of node `own` of a path of three, which has kept this merged record, upon a setup
/// frame.
fn answered_with_kept(
    kept: &[u8],
    own: usize,
    from: u32,
    exchange: u16,
    payload: &[u8],
) -> Option<String> {
    let mut spec = specs("path:3", Readers::Everyone, &Arc::default()).swap_remove(own);
    spec.config.setup = Some(Setup::new(vec![own as u8, 102], merge()).keep(kept.to_vec()));
    let mut node = Driven::new(spec);
    node.settle(Input::Start);
    node.refuses(from, sealed(At { round: Round(0), flight: SETUP, exchange }, payload))
}

#[test]
fn a_node_that_has_kept_the_merged_record_accepts_no_other() {
    let down = |kept: &[u8], payload: &[u8]| answered_with_kept(kept, 2, 1, 3, payload);
    let kept = [0, 100, 1, 101, 2, 102];
    assert_eq!((down(&kept, &kept), down(&[], &kept)), (None, None));
    let other = down(&kept, &[0, 100, 1, 101, 2, 103]).unwrap_or_default();
    assert!(other.contains("it is not the one that this node has kept"), "{other}");
}

/// Of two nodes with different records neither knows which one is right. So the root alone
/// compares them: a node between does not refuse the one below it.
#[test]
fn the_root_alone_compares_records_that_nodes_have_kept() {
    let kept = [0, 100, 1, 101, 2, 102];
    let other = [0, 100, 1, 101, 2, 103];
    assert_eq!(answered_with_kept(&kept, 1, 2, 0, &record(2, &other)), None);
    let to_root = |own: &[u8], one: &[u8], two: &[u8]| {
        answered_with_kept(own, 0, 1, 1, &[record(1, one), record(2, two)].concat())
    };
    let (kept, other, none) = (&kept[..], &other[..], &[][..]);
    for (own, one, two) in [(kept, kept, kept), (none, kept, none), (kept, none, none)] {
        assert_eq!(to_root(own, one, two), None, "{own:?} {one:?} {two:?}");
    }
    for (own, one, two) in [(kept, kept, other), (kept, other, none), (none, kept, other)] {
        let refused = to_root(own, one, two).unwrap_or_default();
        let why = "node 1 and those below it have kept other setup records than the others";
        assert!(refused.contains(why), "{own:?} {one:?} {two:?}: {refused}");
    }
}

#[test]
fn a_record_may_be_as_long_as_the_nodes_own() {
    let long = 2 * RECORD_LIMIT;
    let said = |own: usize, length: usize| {
        answered_with(vec![1; own], 1, 2, 0, &record(2, &vec![2; length]))
    };
    assert_eq!((said(1, RECORD_LIMIT), said(long, long)), (None, None));
    let expected =
        |limit: usize| format!("a record of {} bytes, at most {limit} are allowed", limit + 1);
    let signed = |limit: usize| limit + SIGNATURE;
    for (own, limit) in [(1, RECORD_LIMIT), (long, long)] {
        let result = said(own, limit + 1).unwrap_or_default();
        assert!(result.contains(&expected(signed(limit))), "{result}");
    }
}

#[test]
fn invalid_records_end_the_run_with_their_sender() {
    // Up: node 2 to node 1, then both to node 0. Down: the whole.
    assert_eq!(answered(1, 2, 0, &record(2, &[2, 102])), None);
    let cases: [(usize, u32, u16, Vec<u8>, &str); 9] = [
        (1, 2, 0, record(2, &[255]), "setup record of node 2: 255 means nothing"),
        (
            0,
            1,
            1,
            [record(1, &[1]), record(2, &[255])].concat(),
            "setup record of node 2: 255 means nothing",
        ),
        (0, 1, 1, record(0, &[1]), "node 1 speaks for node 0, which is not below it in the tree"),
        (0, 1, 1, record(1, &[1]), "1 records of node 1, which gathers those of 2"),
        (1, 2, 0, Vec::new(), "0 records of node 2, which gathers those of 1"),
        (1, 2, 0, record(9, &[1]), "node 9 out of place"),
        (1, 2, 0, record(2, &[1, 2, 3])[..9].to_vec(), "cut short"),
        (1, 2, 0, [2, 0, 0, 0, 1, 0, 0, 0, 1].to_vec(), "node 2 has 1 bytes and no signature"),
        (0, 1, 1, [record(2, &[1]), record(1, &[1])].concat(), "node 1 out of place"),
    ];
    for (own, from, exchange, payload, expected) in cases {
        let result = answered(own, from, exchange, &payload).unwrap_or_default();
        assert!(result.contains(expected), "{result:?} should say {expected:?}");
    }
}
