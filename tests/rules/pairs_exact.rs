//! Asynchronous pairs against the equations in f64, event by event in the order in which they
//! happened; and who calls whom.

use common::{
    GIVEN, Run,
    dense::{Matrix, plus, starts},
    difference,
    hook::{Told, recorded},
    sgd::{Sgd, Updates},
};
use gradvine::{
    drive::NoopObserver,
    gossip::plan::{At, Meeting},
    sim,
    units::{NodeId, Round},
};

const IDENTITY: &str = "kind = 'identity'";
const RULES: [&str; 2] = ["kind = 'ad-psgd'", "kind = 'swarm'"];

/// The models of a run in the simulator, and what happened in it.
fn noted(run: &Run) -> (Vec<Vec<f32>>, Vec<Told>) {
    let (ended, told) = recorded(run, |specs| sim::run(specs, &mut NoopObserver).unwrap());
    (ended.into_iter().map(|ended| ended.model).collect(), told)
}

/// The same events by the equations: a call carries x_i; its answer is m = (x_i - x_j) / 2, which j
/// adds and i takes away.
fn replayed(run: &Run, events: &[Told], half: f64) -> Matrix {
    let (mut updates, mut x) = (Updates::new(run), starts(run));
    let (mut lent, mut asked, mut moves) = (x.clone(), x.clone(), x.clone());
    for event in events {
        match *event {
            Told::Point(i) => lent[i].clone_from(&x[i]),
            Told::Gradient(i) => {
                let u = updates.next_of(i, &lent[i]);
                x[i] = plus(&x[i], -1.0, &u);
            }
            Told::Outgoing(i) => asked[i].clone_from(&x[i]),
            Told::Answer { by, caller } => {
                let m: Vec<f64> =
                    asked[caller].iter().zip(&x[by]).map(|(a, b)| half * (a - b)).collect();
                x[by] = plus(&x[by], 1.0, &m);
                moves[caller] = m;
            }
            Told::Called(_) => {}
            Told::Received(i) => x[i] = plus(&x[i], -1.0, &moves[i]),
        }
    }
    x
}

#[test]
#[ignore = "slow"]
fn every_event_does_what_the_equations_say() {
    for rule in RULES {
        for topology in ["ring:8", "star:5", "complete:6", GIVEN] {
            for same_start in [true, false] {
                let run = Run { same_start, ..Run::new(topology, rule, IDENTITY) };
                for run in run.varied() {
                    let (models, events) = noted(&run);
                    let found = difference(&replayed(&run, &events, 0.5), &models);
                    assert!(found < 1e-5, "{}: {found:e}", run.words());
                    let calls =
                        events.iter().filter(|event| matches!(event, Told::Outgoing(_))).count();
                    assert_eq!(calls as u64, run.rounds * run.nodes() as u64);
                }
            }
        }
    }
    // The control: another share than a half is found.
    let run = Run { same_start: false, ..Run::new("ring:8", RULES[0], IDENTITY) };
    let (models, events) = noted(&run);
    assert!(difference(&replayed(&run, &events, 0.49), &models) > 1e-3);
}

#[test]
fn ways_to_make_updates_reach_the_pairs() {
    for rule in RULES {
        let run = Run::new("ring:8", rule, IDENTITY);
        let (models, events) = noted(&run);
        for sgd in Sgd::VARIED {
            let other = Run { sgd, ..run.clone() };
            assert!(difference(&replayed(&other, &events, 0.5), &models) > 1e-3, "{sgd:?}");
        }
    }
}

/// A constant step leaves the mean of the models an error of the order of the step, and so f a gap
/// of its square: half the step, a quarter of the gap.
#[test]
#[ignore = "slow"]
fn the_floor_falls_with_the_square_of_the_step() {
    for rule in RULES {
        let gap = |step: f64, rounds: u64| {
            let mut run = Run::new("ring:8", rule, IDENTITY);
            (run.d, run.rounds, run.step) = (16, rounds, step);
            run.suboptimality(&run.models())
        };
        let [long, half, quarter] =
            [(0.04, 2000), (0.02, 4000), (0.01, 8000)].map(|(step, rounds)| gap(step, rounds));
        println!("{rule}: f - f* {long:.3e}, {half:.3e}, {quarter:.3e}");
        let slope = (long / quarter).log2() / 2.0;
        assert!(
            (1.5..2.5).contains(&slope),
            "{rule}: {long:e}, {half:e}, {quarter:e}: exponent {slope}"
        );
    }
}

#[test]
fn every_neighbour_is_called_equally_often_and_nodes_choose_on_their_own() {
    const ROUNDS: u64 = 6000;
    for rule in RULES {
        for topology in ["ring:8", "star:5", "complete:6", GIVEN] {
            let run = Run::new(topology, rule, IDENTITY);
            let plan = run.prepare().plan;
            let mut chosen: Vec<Vec<usize>> = Vec::new();
            for node in (0..run.nodes()).map(NodeId::from) {
                let neighbours = run.topology.neighbours(node);
                let mut meeting = Meeting::default();
                let call = |round| {
                    meeting.clear();
                    plan.meet(
                        node,
                        &At { round: Round(round), flight: 0, exchange: 0 },
                        &mut meeting,
                    );
                    assert_eq!((meeting.send.len(), meeting.wait.len()), (1, 0));
                    neighbours.binary_search(&meeting.send[0]).expect("a neighbour is called")
                };
                let calls: Vec<usize> = (0..ROUNDS).map(call).collect();
                fair(&calls, neighbours.len(), &format!("{rule} on {topology}: node {node}"));
                chosen.push(calls);
            }
            // Two nodes of equal degree choose the same place as often as chance has it.
            for (a, b) in [(0, 1), (1, 2)] {
                let degree = run.topology.neighbours(NodeId::from(a)).len();
                if degree > 1 && degree == run.topology.neighbours(NodeId::from(b)).len() {
                    let offset =
                        |round: usize| (chosen[a][round] + degree - chosen[b][round]) % degree;
                    let offsets: Vec<usize> = (0..ROUNDS as usize).map(offset).collect();
                    fair(&offsets, degree, &format!("{rule} on {topology}: nodes {a} and {b}"));
                }
            }
        }
    }
}

/// Each of so many values as often as chance has it, to five deviations.
fn fair(values: &[usize], of: usize, what: &str) {
    let (n, p) = (values.len() as f64, 1.0 / of as f64);
    for value in 0..of {
        let count = values.iter().filter(|found| **found == value).count() as f64;
        assert!(
            (count - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt(),
            "{what}: place {value}, {count} of {n}"
        );
    }
}
