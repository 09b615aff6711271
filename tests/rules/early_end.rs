//! Rounds that end early because one node asks, and a model that one node gives to all.

use crate::properties::{ALL, home};
use common::Run;
use gradvine::{
    drive::{Conclusion, Ended, Learner, NodeSpec, NoopObserver},
    gossip::{NodeConfig, Patience, Tally, plan},
    links::{ComputeModel, Conditions, LinkModel},
    sim,
    units::{NodeId, Round},
};

/// Has losses on rows for validation that fall until round 20.
struct Tallying {
    inner: Box<dyn Learner>,
    every: u64,
    tally: Option<Tally>,
}

impl Learner for Tallying {
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        let loss = 100.0 - round.0.min(20) as f64;
        let is_asked = round.0.is_multiple_of(self.every);
        self.tally = is_asked.then_some(Tally { loss, rows: 1 });
        self.inner.compute(round, x, update)
    }

    fn tally(&mut self) -> Option<Tally> {
        self.tally
    }

    fn step(&self, round: Round) -> f32 {
        self.inner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        self.inner.conclude(conclusion)
    }
}

#[test]
fn all_nodes_stop_after_the_same_round_if_their_losses_do_not_fall() {
    const STOPPING: Patience = Patience { every: 5, evaluations: 2, keeps_best: false };
    for (rule, compressor) in &*ALL {
        let run = Run { rounds: 400, ..Run::new(&format!("{}:8", home(rule)), rule, compressor) };
        if plan::is_asynchronous(&*run.prepare().plan) {
            continue;
        }
        let wrap = |spec: NodeSpec| NodeSpec {
            config: NodeConfig { stopping: Some(STOPPING), ..spec.config },
            learner: Box::new(Tallying { inner: spec.learner, every: 5, tally: None }),
        };
        let specs: Vec<NodeSpec> = run.specs().into_iter().map(wrap).collect();
        let early = sim::run(specs, &mut NoopObserver).unwrap();
        let done = rounds(&early);
        // The losses of rounds 25 and 30 are not lower; then all hear of it.
        assert!(done[0] > 30 && done[0] < 200, "{}: {done:?}", run.words());
        assert!(done.iter().all(|rounds| *rounds == done[0]), "{}: {done:?}", run.words());
        let short = Run { rounds: done[0], ..run.clone() };
        assert_eq!(models(early), short.models(), "{}", run.words());
    }
}

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

/// The nodes of the run in which these ask for the end in these rounds.
fn ending_specs(run: &Run, asked: &[(usize, u64)]) -> Vec<NodeSpec> {
    let wrap = |(node, spec): (usize, NodeSpec)| {
        let at = asked.iter().find(|(asking, _)| *asking == node).map_or(u64::MAX, |(_, at)| *at);
        NodeSpec { learner: Box::new(Ending { inner: spec.learner, at, asks: false }), ..spec }
    };
    run.specs().into_iter().enumerate().map(wrap).collect()
}

fn ended(run: &Run, asked: &[(usize, u64)]) -> Vec<Ended> {
    sim::run(ending_specs(run, asked), &mut NoopObserver).unwrap()
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
    for (rule, compressor) in &*ALL {
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

/// Nodes of an asynchronous rule that are past the asked round finish the round in progress: no
/// model is lent when it becomes final, and no request is refused.
#[test]
fn fast_nodes_end_soon_when_a_slow_one_asks() {
    let mut asynchronous = 0;
    for (rule, compressor) in &*ALL {
        let run = Run { rounds: 300, ..Run::new(&format!("{}:8", home(rule)), rule, compressor) };
        if !plan::is_asynchronous(&*run.prepare().plan) {
            continue;
        }
        asynchronous += 1;
        // The last node, a worker where there is a server, computes 40 times as long as the others.
        let compute = ComputeModel { mean: 1_000_000, spread: 0.3, stragglers: 0.1, factor: 40.0 };
        let latency = LinkModel { latency: 3_000_000, ..LinkModel::IDEAL };
        let conditions = Conditions { compute, rest: latency, ..Conditions::ideal() };
        for at in [0, 1, 2] {
            let specs = ending_specs(&run, &[(7, at)]);
            let early = sim::run_on(specs, &conditions, &mut NoopObserver).unwrap().ended;
            let done = rounds(&early);
            assert!(done[7] > at && done.iter().all(|done| *done < 300), "{rule} {at}: {done:?}");
        }
    }
    assert!(asynchronous >= 3, "{asynchronous}");
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
    for (rule, compressor) in &*ALL {
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
