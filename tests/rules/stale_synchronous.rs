//! A parameter server with bounded staleness: what every round sees, whatever the order of events,
//! and that nobody waits for ever.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use common::{
    Exact, Run,
    central::{IDENTITY, centralized},
    consensus, difference,
    hook::{Hook, Hooked},
    widen,
};
use gradvine::{
    compress::Format,
    drive::{Conclusion, Elapsed, Learner, NodeSpec},
    gossip::{
        Effect, Input, Node,
        party::Local,
        plan::{self, At, Meeting, Plan, Step},
        rule::Rule,
    },
    rng::{Purpose, Stream},
    units::{NodeId, Round},
};

fn ssp(topology: &str, staleness: u64) -> Run {
    Run::new(topology, &format!("kind = 'stale-synchronous'\nstaleness = {staleness}"), IDENTITY)
}

/// The order of events: the dice's, but that a straggler's gradients come only when nothing else
/// can happen.
#[derive(Clone, Copy)]
struct Order {
    seed: u64,
    straggler: Option<usize>,
    /// Whether each node is told to stop, at a moment and after a round of the dice's choice.
    stops: bool,
}

impl Order {
    fn all() -> impl Iterator<Item = Order> {
        let stragglers = [None, Some(0), Some(2)];
        (0..8).flat_map(move |seed| {
            stragglers.map(|straggler| Order { seed, straggler, stops: false })
        })
    }
}

/// Frames of one direction of a link, and whether its reader is busy.
type Wire = (VecDeque<Vec<u8>>, bool);

/// Frames, gradients and free slots, each queue in its own order; the models, and the rounds that
/// each node made.
#[expect(clippy::too_many_lines)]
fn play(specs: Vec<NodeSpec>, order: Order) -> (Vec<Vec<f32>>, Vec<u64>) {
    let Order { seed, straggler, stops } = order;
    let mut dice = Stream::new(seed, Purpose::Test).sequence();
    let n = specs.len();
    let (mut nodes, mut learners) = (Vec::new(), Vec::new());
    for spec in specs {
        nodes.push(Node::new(spec.config));
        learners.push(spec.learner);
    }
    // Of a node's own, of links, of slots.
    let mut own: Vec<VecDeque<Input>> = (0..n).map(|_| VecDeque::from([Input::Start])).collect();
    let mut links: BTreeMap<(usize, usize), Wire> = BTreeMap::new();
    let mut taken: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut to_stop: BTreeSet<usize> = if stops { (0..n).collect() } else { BTreeSet::new() };
    let (mut models, mut rounds, mut finished) = (vec![Vec::new(); n], vec![0; n], 0);
    while finished < n {
        let slow = |node: usize| straggler == Some(node);
        let mut ready: Vec<(usize, usize, u8)> =
            (0..n).filter(|&i| !own[i].is_empty() && !slow(i)).map(|i| (i, 0, 0)).collect();
        let waiting = links.iter().filter(|(_, (queue, busy))| !queue.is_empty() && !busy);
        ready.extend(waiting.map(|((from, to), _)| (*to, *from, 1)));
        ready.extend(
            taken.iter().filter(|(_, count)| **count > 0).map(|((from, to), _)| (*from, *to, 2)),
        );
        if ready.is_empty() {
            ready.extend(straggler.filter(|&i| !own[i].is_empty()).map(|i| (i, 0, 0)));
        }
        let stuck =
            || nodes.iter().map(|node| format!("{:?}", node.waiting_for())).collect::<Vec<_>>();
        assert!(
            !ready.is_empty(),
            "deadlock with seed {seed}, straggler {straggler:?}: {:?}",
            stuck()
        );
        let (mut node, other, kind) = ready[dice.below(ready.len() as u64) as usize];
        let input = if !to_stop.is_empty() && dice.below(40) == 0 {
            node = to_stop.pop_first().unwrap();
            Input::StopAfter(Round(dice.below(12)))
        } else {
            match kind {
                0 => own[node].pop_front().unwrap(),
                1 => {
                    let (queue, busy) = links.get_mut(&(other, node)).unwrap();
                    *busy = true;
                    Input::Frame { from: NodeId::from(other), bytes: queue.pop_front().unwrap() }
                }
                _ => {
                    *taken.get_mut(&(node, other)).unwrap() -= 1;
                    Input::Taken(NodeId::from(other))
                }
            }
        };
        let mut effects = Vec::new();
        nodes[node].handle(input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Compute { round, x, mut update, overlaps, .. } => {
                    assert!(overlaps, "calls are answered while a gradient is computed");
                    let loss = learners[node].compute(round, &x, &mut update);
                    let step = learners[node].step(round);
                    own[node].push_back(Input::Computed {
                        round,
                        x,
                        update,
                        loss,
                        step,
                        ends: false,
                    });
                }
                Effect::Send { to, frame } => {
                    links.entry((node, to.index())).or_default().0.push_back(frame.to_vec());
                    *taken.entry((node, to.index())).or_default() += 1;
                }
                Effect::Recycle { from, .. } => {
                    links.get_mut(&(from.index(), node)).unwrap().1 = false;
                }
                Effect::Conclude { own: done, mean } => {
                    let conclusion = Conclusion::new(&done, &mean, Elapsed::default());
                    own[node].push_back(Input::Record(learners[node].conclude(&conclusion)));
                    (models[node], rounds[node]) = (done.x.to_vec(), done.rounds.0);
                }
                Effect::Finished(_) => finished += 1,
                Effect::Failed(failure) => panic!("seed {seed}: {failure}"),
                Effect::Prepared(_)
                | Effect::RoundDone(_)
                | Effect::Snapshot(_)
                | Effect::Save(_) => {}
            }
        }
    }
    (models, rounds)
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
            for order in Order::all() {
                let mut run = ssp(topology, staleness);
                run.rounds = 12;
                let (specs, reads) = marked(&mut run);
                let (models, rounds) = play(specs, order);
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
    play(specs, Order { seed: 1, straggler: Some(2), stops: false });
    assert_eq!(
        check(&run, &reads.lock().unwrap()).0,
        11,
        "the control: the straggler has done nothing yet"
    );
}

#[test]
fn staleness_0_is_centralized_sgd() {
    for order in Order::all() {
        let mut run = ssp("star:5", 0);
        run.rounds = 20;
        let (specs, reads) = reading(run.specs());
        let (models, _) = play(specs, order);
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

/// What rules were asked to do.
#[derive(Clone, Copy)]
enum Told {
    Point(usize),
    Gradient(usize),
    Called(usize),
    Answer(usize),
    Received(usize),
}

struct Recorder {
    node: usize,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Recorder {
    fn note(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }
}

impl Hook for Recorder {
    fn point(&mut self) {
        self.note(Told::Point(self.node));
    }

    fn gradient(&mut self, _local: &Local, _round: Round, _step: f32) {
        self.note(Told::Gradient(self.node));
    }

    fn received(&mut self, _at: &At, _from: NodeId) -> usize {
        self.note(Told::Received(self.node));
        1
    }

    fn called(&mut self, from: NodeId) {
        self.note(Told::Called(from.index()));
    }

    fn answer(&mut self, from: NodeId) {
        self.note(Told::Answer(from.index()));
    }
}

fn plus(x: &[f64], weight: f64, y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + weight * y).collect()
}

/// The models by the equations in f64, in the order of events that was recorded. `share` is 1 / n.
fn replayed(run: &Run, told: &[Told], share: f64) -> Vec<Vec<f64>> {
    let problems = run.problems();
    let mut x = widen(&(0..run.nodes()).map(|node| run.start(node)).collect::<Vec<_>>());
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
            Told::Answer(i) => answer[i] = x[0].clone(),
            Told::Received(i) => x[i] = answer[i].clone(),
        }
    }
    x
}

#[test]
fn models_are_those_of_the_equations_in_the_order_of_events() {
    for staleness in [0, 1, 4] {
        for order in Order::all() {
            let mut run = ssp("star:5", staleness);
            run.rounds = 25;
            let told = Arc::new(Mutex::new(Vec::new()));
            let record = |id: NodeId, inner: Box<dyn Rule>| -> Box<dyn Rule> {
                let hook = Recorder { node: id.index(), told: Arc::clone(&told) };
                Box::new(Hooked { inner, hook })
            };
            let (models, _) = play(run.specs_with(record), order);
            let told = told.lock().unwrap();
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
        for order in
            Order::all().chain((8..40).map(|seed| Order { seed, straggler: Some(1), stops: true }))
        {
            let mut run = ssp("star:4", staleness);
            run.rounds = 60;
            let (specs, reads) = marked(&mut run);
            let (models, rounds) = play(specs, Order { stops: true, ..order });
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
    let (models, _) = play(run.specs(), Order { seed: 3, straggler: Some(4), stops: false });
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
        let told = ssp(topology, 3).try_prepare().unwrap_err().to_string();
        assert!(
            told.contains("stale-synchronous") && told.contains("use star:n or complete:n"),
            "{told}"
        );
    }
}
