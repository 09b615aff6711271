//! A parameter server with bounded staleness: what every round sees, whatever the order of events,
//! and that nobody waits for ever.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use common::{
    Exact, Run,
    central::{IDENTITY, centralized},
    consensus,
    dense::{plus, starts},
    difference,
    driver::{Order, Played, play},
    hook::{Told, recorded},
};
use gradvine::{
    compress::Format,
    drive::{Conclusion, Learner, NodeSpec},
    gossip::plan::{self, At, Meeting, Plan, Step},
    units::{NodeId, Round},
};

fn ssp(topology: &str, staleness: u64) -> Run {
    Run::new(topology, &format!("kind = 'stale-synchronous'\nstaleness = {staleness}"), IDENTITY)
}

/// Orders of events, without a straggler and with one.
fn orders() -> impl Iterator<Item = Order> {
    let stragglers = [None, Some(0), Some(2)];
    (0..8).flat_map(move |seed| {
        stragglers.map(|straggler| Order { seed, straggler, ..Order::default() })
    })
}

/// The x at which a node computed its update of a round.
struct Read {
    node: usize,
    clock: u64,
    x: Vec<f32>,
}

type Reads = Arc<Mutex<Vec<Read>>>;

/// Notes what is read, and passes on.
struct Reader {
    node: usize,
    inner: Box<dyn Learner>,
    reads: Reads,
}

impl Learner for Reader {
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.reads.lock().unwrap().push(Read { node: self.node, clock: round.0, x: x.to_vec() });
        self.inner.compute(round, x, update)
    }

    fn step(&self, round: Round) -> f32 {
        self.inner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        self.inner.conclude(conclusion)
    }
}

fn reading(mut specs: Vec<NodeSpec>) -> (Vec<NodeSpec>, Reads) {
    let reads = Reads::default();
    for (node, spec) in specs.iter_mut().enumerate() {
        let problem = common::Problem { a: Vec::new(), b: Vec::new() };
        let inner = std::mem::replace(&mut spec.learner, Box::new(Exact { problem, step: 0.0 }));
        spec.learner = Box::new(Reader { node, inner, reads: Arc::clone(&reads) });
    }
    (specs, reads)
}

/// Every update is a coordinate of its own, so that x says which updates are in it.
struct Marks {
    node: usize,
    nodes: usize,
    rounds: u64,
}

impl Learner for Marks {
    fn compute(&mut self, round: Round, _x: &[f32], update: &mut [f32]) -> f64 {
        update.fill(0.0);
        update[self.node * self.rounds as usize + round.0 as usize] = 4.0 * self.nodes as f32;
        0.0
    }

    fn step(&self, _round: Round) -> f32 {
        1.0
    }

    fn conclude(&mut self, _conclusion: &Conclusion<'_>) -> Vec<u8> {
        Vec::new()
    }
}

fn marked(run: &mut Run) -> (Vec<NodeSpec>, Reads) {
    let nodes = run.nodes();
    run.d = nodes * run.rounds as usize;
    let mut specs = run.specs();
    for (node, spec) in specs.iter_mut().enumerate() {
        spec.learner = Box::new(Marks { node, nodes, rounds: run.rounds });
    }
    reading(specs)
}

/// How many updates of each node are in x: always its first ones, each once.
fn seen(run: &Run, x: &[f32]) -> Vec<u64> {
    let start = run.start(0);
    let times: Vec<i64> =
        x.iter().zip(&start).map(|(x, start)| ((start - x) / 4.0).round() as i64).collect();
    let of = |times: &[i64]| {
        let count = times.iter().filter(|&&times| times != 0).count();
        assert!(
            times[..count].iter().all(|&times| times == 1),
            "not the first updates, each once: {times:?}"
        );
        count as u64
    };
    times.chunks(run.rounds as usize).map(of).collect()
}

/// Checks all reads; how far a round began ahead of an update that it did not see, at the most, and
/// how many updates of later clocks it saw.
fn check(run: &Run, reads: &[Read]) -> (u64, u64) {
    let (mut stale, mut fresh) = (0, 0);
    for read in reads {
        let seen = seen(run, &read.x);
        assert_eq!(seen[read.node], read.clock, "a node sees its own updates");
        for &seen in &seen {
            stale = stale.max(read.clock.saturating_sub(seen));
            fresh = fresh.max(seen.saturating_sub(read.clock));
        }
    }
    (stale, fresh)
}

#[test]
fn every_round_sees_the_updates_of_the_papers_equation_in_any_order() {
    for topology in ["star:5", "complete:4"] {
        for staleness in [0, 1, 3] {
            let mut most = (0, 0);
            for order in orders() {
                let mut run = ssp(topology, staleness);
                run.rounds = 12;
                let (specs, reads) = marked(&mut run);
                let Played { models, rounds, .. } = play(specs, order);
                let reads = reads.lock().unwrap();
                let (stale, fresh) = check(&run, &reads);
                assert_eq!(reads.len() as u64, 12 * run.nodes() as u64);
                let what = format!(
                    "staleness {staleness} on {topology}, seed {}, {:?}",
                    order.seed, order.straggler
                );
                // Of clock c all up to c - s - 1, none after c + s - 1.
                assert!(
                    stale <= staleness && fresh <= staleness,
                    "{what}: {stale} old, {fresh} new"
                );
                if order.straggler.is_some() {
                    assert_eq!(
                        stale, staleness,
                        "{what}: the others run ahead as far as they may, and no further"
                    );
                }
                most = (most.0.max(stale), most.1.max(fresh));
                // Node 0 ends with everything, the others with all but what is in flight.
                assert_eq!(rounds, vec![12; run.nodes()]);
                assert_eq!(seen(&run, &models[0]), rounds);
                for (node, model) in models.iter().enumerate() {
                    let seen = seen(&run, model);
                    assert!(
                        seen.iter().all(|&seen| seen >= 12 - staleness) && seen[node] == 12,
                        "{what}: {seen:?}"
                    );
                }
            }
            assert_eq!(most, (staleness, staleness), "{topology}: no order came to the bound");
        }
    }
}

/// The rule's plan without its bound.
struct Unbounded(Arc<dyn Plan>);

impl Plan for Unbounded {
    fn steps(&self) -> &[Step] {
        self.0.steps()
    }

    fn exchanges(&self, flight: u8) -> u16 {
        self.0.exchanges(flight)
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        self.0.meet(node, at, out);
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        self.0.format(at, from)
    }

    fn calls(&self, flight: u8) -> bool {
        self.0.calls(flight)
    }

    fn bound(&self) -> Option<u64> {
        self.0.bound().map(|_| u64::MAX)
    }
}

#[test]
fn without_the_bound_nodes_run_further_ahead() {
    let mut run = ssp("star:5", 1);
    run.rounds = 12;
    let (mut specs, reads) = marked(&mut run);
    for spec in &mut specs {
        spec.config.plan = Arc::new(Unbounded(Arc::clone(&spec.config.plan)));
    }
    play(specs, Order { seed: 1, straggler: Some(2), ..Order::default() });
    assert_eq!(
        check(&run, &reads.lock().unwrap()).0,
        11,
        "the control: the straggler has done nothing yet"
    );
}

#[test]
fn staleness_0_is_centralized_sgd() {
    for order in orders() {
        let mut run = ssp("star:5", 0);
        run.rounds = 20;
        let (specs, reads) = reading(run.specs());
        let models = play(specs, order).models;
        let mut rounds: BTreeMap<u64, Vec<Vec<f32>>> = BTreeMap::new();
        reads
            .lock()
            .unwrap()
            .iter()
            .for_each(|read| rounds.entry(read.clock).or_default().push(read.x.clone()));
        for (round, at) in &rounds {
            assert!(
                at.len() == 5 && at.iter().all(|x| *x == at[0]),
                "round {round} begins at one x"
            );
            let mut shorter = run.clone();
            shorter.rounds = *round;
            let expected = centralized(&shorter);
            assert!(difference(&[expected], &at[..1]) < 1e-5, "round {round}");
        }
        assert_eq!(consensus(&models), 0.0, "all end alike");
        assert!(difference(&vec![centralized(&run); 5], &models) < 1e-5);
    }
}

/// The models by the equations in f64, in the order of events that was recorded. `share` is 1 / n.
fn replayed(run: &Run, told: &[Told], share: f64) -> Vec<Vec<f64>> {
    let problems = run.problems();
    let mut x = starts(run);
    let (mut lent, mut update, mut answer) = (x.clone(), x.clone(), x.clone());
    for &told in told {
        match told {
            Told::Point(i) => lent[i] = x[i].clone(),
            Told::Gradient(i) => {
                update[i] = problems[i].gradient(&lent[i]);
                if i == 0 {
                    x[0] = plus(&x[0], -run.step * share, &update[0]);
                }
            }
            Told::Called(i) => x[0] = plus(&x[0], -run.step * share, &update[i]),
            Told::Answer { caller, .. } => answer[caller] = x[0].clone(),
            Told::Outgoing(_) => {}
            Told::Received(i) => x[i] = answer[i].clone(),
        }
    }
    x
}

#[test]
fn models_are_those_of_the_equations_in_the_order_of_events() {
    for staleness in [0, 1, 4] {
        for order in orders() {
            let mut run = ssp("star:5", staleness);
            run.rounds = 25;
            let (played, told) = recorded(&run, |specs| play(specs, order));
            let models = played.models;
            assert!(
                difference(&replayed(&run, &told, 0.2), &models) < 1e-5,
                "staleness {staleness}"
            );
            assert!(
                difference(&replayed(&run, &told, 0.21), &models) > 1e-3,
                "the control: another share is found"
            );
        }
    }
}

#[test]
fn nodes_that_are_told_to_stop_hold_nobody_up() {
    let mut unlike = 0;
    for staleness in [0, 2] {
        let more = (8..40).map(|seed| Order { seed, straggler: Some(1), ..Order::default() });
        for order in orders().chain(more) {
            let mut run = ssp("star:4", staleness);
            run.rounds = 60;
            let (specs, reads) = marked(&mut run);
            let Played { models, rounds, .. } = play(specs, Order { stops: true, ..order });
            unlike += usize::from(rounds.iter().any(|&round| round != rounds[0]));
            assert!(rounds.iter().any(|&round| round < 60), "{rounds:?}");
            assert_eq!(seen(&run, &models[0]), rounds, "every update of everybody has come");
            // Who has left is not waited for; until then the bound holds.
            for read in reads.lock().unwrap().iter() {
                let seen = seen(&run, &read.x);
                assert!(
                    seen.iter()
                        .zip(&rounds)
                        .all(|(&seen, &all)| seen + staleness >= read.clock || seen == all)
                );
            }
        }
    }
    assert!(unlike > 10, "{unlike} runs in which nodes ended in different rounds");
}

/// What is left of the suboptimality with a straggler, at a step of 0.05 / `finer` over as long a
/// way.
fn left(staleness: u64, spread: f64, finer: u64) -> f64 {
    let mut run = ssp("star:5", staleness);
    (run.rounds, run.step, run.spread) = (1500 * finer, 0.05 / finer as f64, spread);
    let order = Order { seed: 3, straggler: Some(4), ..Order::default() };
    let models = play(run.specs(), order).models;
    run.suboptimality(&models) / run.suboptimality(&vec![run.start(0); 5])
}

#[test]
#[ignore = "slow"]
fn a_straggler_does_not_keep_the_problem_from_being_solved() {
    // All nodes have the same optimum: as with bulk-synchronous rounds.
    let synchronous = left(0, 0.0, 1);
    assert!(synchronous < 1e-6, "{synchronous:e}");
    for staleness in [3, 10] {
        let stale = left(staleness, 0.0, 1);
        assert!(
            stale < 1.1 * synchronous,
            "staleness {staleness}: {stale:e}; synchronous {synchronous:e}"
        );
        // Each has its own: the straggler's last updates come alone, which moves x by O(s lr), and
        // f by its square.
        let beyond = |finer| left(staleness, 0.5, finer) - left(0, 0.5, finer);
        let (coarse, fine) = (beyond(1), beyond(4));
        assert!(
            coarse < 1e-3 && (10.0..25.0).contains(&(coarse / fine)),
            "staleness {staleness}: {coarse:e}, {fine:e}"
        );
    }
}

#[test]
fn a_node_alone_is_plain_sgd() {
    for topology in ["star:1", "complete:1"] {
        assert_eq!(
            ssp(topology, 3).models(),
            Run::new("complete:1", "kind = 'c-sgd'", IDENTITY).models()
        );
    }
}

#[test]
fn the_simulator_repeats_itself() {
    let run = ssp("star:6", 2);
    assert_eq!(run.ended().unwrap(), run.ended().unwrap());
    assert!(plan::is_asynchronous(&*run.prepare().plan));
}

#[test]
fn a_topology_without_a_link_to_the_server_is_refused() {
    for topology in ["ring:4", "path:3", "torus:3x3"] {
        let told = ssp(topology, 3).refusal();
        assert!(
            told.contains("stale-synchronous") && told.contains("use star:n or complete:n"),
            "{told}"
        );
    }
}
