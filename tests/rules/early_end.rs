//! Rounds that end early because one node asks, and a model that one node gives to all.

use crate::common;
use crate::properties::{ALL, home};

use common::Run;
use gradvine::{
    drive::{Conclusion, Ended, Learner, NodeSpec, NoopObserver},
    gossip::plan,
    sim,
    units::{NodeId, Round},
};

/// Asks for the end in one round.
struct Ending {
    inner: Box<dyn Learner>,
    at: u64,
    asks: bool,
}

impl Learner for Ending {
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.asks = round.0 == self.at;
        self.inner.compute(round, x, update)
    }

    fn ends(&self) -> bool {
        self.asks
    }

    fn step(&self, round: Round) -> f32 {
        self.inner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        self.inner.conclude(conclusion)
    }
}

/// The run in which these nodes ask for the end in these rounds.
fn ended(run: &Run, asked: &[(usize, u64)]) -> Vec<Ended> {
    let wrap = |(node, spec): (usize, NodeSpec)| {
        let at = asked.iter().find(|(asking, _)| *asking == node).map_or(u64::MAX, |(_, at)| *at);
        NodeSpec { learner: Box::new(Ending { inner: spec.learner, at, asks: false }), ..spec }
    };
    sim::run(run.specs().into_iter().enumerate().map(wrap).collect(), &mut NoopObserver).unwrap()
}

/// Rounds done, from each node's record.
fn rounds(ended: &[Ended]) -> Vec<u64> {
    let of = |record: &Vec<u8>| u64::from_le_bytes(record[..8].try_into().unwrap());
    ended[0].records.iter().map(of).collect()
}

fn models(ended: Vec<Ended>) -> Vec<Vec<f32>> {
    ended.into_iter().map(|ended| ended.model).collect()
}

#[test]
fn all_nodes_end_after_the_same_round_with_the_bits_of_a_run_of_so_many() {
    for (rule, compressor) in ALL {
        for asked in [&[(3, 5)][..], &[(0, 0)], &[(2, 9), (7, 8)]] {
            let run =
                Run { rounds: 400, ..Run::new(&format!("{}:8", home(rule)), rule, compressor) };
            let early = ended(&run, asked);
            let done = rounds(&early);
            let first = asked.iter().map(|(_, at)| *at).min().unwrap();
            assert!(done[0] > first && done[0] < 200, "{}: {done:?}", run.words());
            if plan::is_asynchronous(&*run.prepare().plan) {
                continue;
            }
            assert!(done.iter().all(|done| *done == early_of(&early)), "{}: {done:?}", run.words());
            let short = Run { rounds: done[0], ..run.clone() };
            assert_eq!(models(early), short.models(), "{}", run.words());
        }
    }
}

fn early_of(ended: &[Ended]) -> u64 {
    rounds(ended)[0]
}

#[test]
fn schedules_end_early_too() {
    for schedule in ["one-peer-exponential", "random-matching"] {
        let topology = if schedule == "random-matching" { "torus:3x4" } else { "exponential:12" };
        let run = Run {
            rounds: 20_000,
            ..Run::scheduled(topology, schedule, "kind = 'd-psgd'", "kind = 'identity'")
        };
        let early = ended(&run, &[(5, 4)]);
        let done = rounds(&early);
        assert!(done[0] < 20_000 && done.iter().all(|one| *one == done[0]), "{schedule}: {done:?}");
        let short = Run { rounds: done[0], ..run };
        assert_eq!(models(early), short.models(), "{schedule}");
    }
}

#[test]
fn a_wish_after_the_end_changes_nothing() {
    let run = Run::new("ring:8", "kind = 'choco'", "kind = 'top-k'\nk = 4");
    assert_eq!(models(ended(&run, &[(1, 29)])), run.models());
    assert_eq!(models(ended(&run, &[(1, 27)])), run.models());
}

#[test]
fn one_node_gives_the_initial_model_to_all() {
    for (rule, compressor) in ALL {
        let run = Run::new(&format!("{}:8", home(rule)), rule, compressor);
        if plan::is_asynchronous(&*run.prepare().plan) {
            continue;
        }
        // Node 5 starts as all do in `run`; the others bring something else.
        let apart = Run { same_start: false, ..run.clone() };
        let specs = apart.specs_from(NodeId(5), run.start(5));
        assert_eq!(models(sim::run(specs, &mut NoopObserver).unwrap()), run.models(), "{rule}");
    }
}
