//! What must hold of push-sum, also where frames are lost, and what must fail when a bug is
//! planted.

use common::{Run, difference, hook::Alone, widen};
use gradvine::{
    gossip::{
        party::{Writer, payload_noise},
        plan::{At, Meeting, Plan},
    },
    rng::{Purpose, Stream},
    units::{NodeId, Round},
};

const SGP: &str = "kind = 'sgp'";
const IDENTITY: &str = "kind = 'identity'";

/// Runs the rule's side of each round by hand, losing frames.
struct Lossy {
    run: Run,
    plan: std::sync::Arc<dyn Plan>,
    rules: Vec<Alone>,
    round: u64,
}

impl Lossy {
    fn new(run: Run) -> Lossy {
        let prepared = run.prepare();
        let rules = Alone::all(&run, &prepared);
        Lossy { plan: prepared.plan, rules, run, round: 0 }
    }

    /// What `node` would send to its first neighbour: p x and p w, divided by p.
    fn mass(&mut self, node: usize) -> (Vec<f64>, f64) {
        let id = NodeId::from(node);
        let share = f64::from(1.0 / (1.0 + self.run.topology.neighbours(id).len() as f32));
        // A round that never comes: the rule writes a frame a round.
        let at = At { round: Round(u64::MAX - self.round), flight: 0, exchange: 0 };
        let bytes = self.frame(node, &at, self.run.topology.neighbours(id)[0]);
        let numbers: Vec<f64> = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)) / share)
            .collect();
        let (x, w) = numbers.split_at(self.run.d);
        (x.to_vec(), w.iter().sum())
    }

    fn frame(&mut self, node: usize, at: &At, to: NodeId) -> Vec<u8> {
        let mut bytes = Vec::new();
        let id = NodeId::from(node);
        let noise = payload_noise(3, id, Some(to), at);
        let mut writer = Writer::new(self.plan.format(at, id), Some(to), noise, &mut bytes);
        let Alone { rule, local } = &mut self.rules[node];
        rule.outgoing(local, at, &mut writer).unwrap();
        bytes
    }

    /// `rounds` rounds in which a share of the frames is lost; `forgetful` tells senders that all
    /// arrived.
    fn go(&mut self, rounds: u64, lost: f64, forgetful: bool) {
        let problems = self.run.problems();
        let mut dice = Stream::new(8, Purpose::Test).with(self.round).sequence();
        for _ in 0..rounds {
            let at = At { round: Round(self.round), flight: 0, exchange: 0 };
            for (Alone { rule, local }, problem) in self.rules.iter_mut().zip(&problems) {
                rule.point(local);
                let gradient = problem.gradient(&widen(std::slice::from_ref(&local.x))[0]);
                let updates = local.update.iter_mut().zip(&gradient);
                updates.for_each(|(u, g)| *u = (self.run.step * g) as f32);
                rule.gradient(local, at.round, self.run.step as f32);
            }
            let mut arrived = Vec::new();
            for node in 0..self.rules.len() {
                let mut meeting = Meeting::default();
                self.plan.meet(NodeId::from(node), &at, &mut meeting);
                assert!(!meeting.shared, "a frame for each receiver");
                for to in meeting.send {
                    let bytes = self.frame(node, &at, to);
                    let arrives = dice.uniform() >= lost;
                    let view = self.plan.format(&at, NodeId::from(node));
                    let view =
                        view.view(payload_noise(3, NodeId::from(node), Some(to), &at), &bytes);
                    if arrives || forgetful {
                        let Alone { rule, local } = &mut self.rules[node];
                        rule.sent(local, &at, Some(to), &view);
                    }
                    if arrives {
                        arrived.push((to, NodeId::from(node), bytes.clone()));
                    }
                }
            }
            arrived.sort();
            for (to, from, bytes) in arrived {
                let view =
                    self.plan.format(&at, from).view(payload_noise(3, from, Some(to), &at), &bytes);
                let Alone { rule, local } = &mut self.rules[to.index()];
                rule.received(local, &at, from, &view).unwrap();
            }
            self.rules.iter_mut().for_each(|one| one.rule.land(&mut one.local, &at));
            self.round += 1;
        }
    }

    /// Sum x per coordinate, all w.
    fn total(&mut self) -> (Vec<f64>, Vec<f64>) {
        let masses: Vec<(Vec<f64>, f64)> =
            (0..self.rules.len()).map(|node| self.mass(node)).collect();
        let sum = |k: usize| masses.iter().map(|(x, _)| x[k]).sum();
        ((0..self.run.d).map(sum).collect(), masses.iter().map(|(_, w)| *w).collect())
    }

    fn models(&self) -> Vec<Vec<f32>> {
        self.rules.iter().map(Alone::model).collect()
    }
}

fn run(topology: &str, step: f64) -> Run {
    let mut run = Run::new(topology, SGP, IDENTITY);
    (run.same_start, run.step) = (false, step);
    run
}

#[test]
fn mass_is_conserved_and_weights_stay_positive_whatever_is_lost() {
    for topology in ["ring:8", "star:6", "path:5"] {
        for lost in [0.0, 0.2, 0.5] {
            let mut lossy = Lossy::new(run(topology, 0.0));
            let (before, _) = lossy.total();
            lossy.go(200, lost, false);
            let (after, w) = lossy.total();
            let n = w.len() as f64;
            let moved = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(moved < 1e-5, "{topology} at {lost}: sum x moved by {moved:e}");
            assert!(
                (w.iter().sum::<f64>() - n).abs() < 1e-9,
                "{topology} at {lost}: sum w = {}",
                w.iter().sum::<f64>()
            );
            assert!(w.iter().all(|&w| w > 0.05), "{topology} at {lost}: {w:?}");
            // All hold the mean of the starts, though P is not doubly stochastic and frames went
            // missing.
            let mean: Vec<f64> = before.iter().map(|x| x / n).collect();
            let away = difference(&vec![mean; w.len()], &lossy.models());
            assert!(away < 1e-3, "{topology} at {lost}: {away:e} from the mean");
        }
    }
}

#[test]
fn where_degrees_differ_the_weights_do_and_x_alone_is_not_the_mean() {
    let mut lossy = Lossy::new(run("star:6", 0.0));
    lossy.go(200, 0.0, false);
    let (_, w) = lossy.total();
    // The stationary weights are proportional to 1 + degree.
    assert!(
        (w[0] - 6.0 * 6.0 / 16.0).abs() < 1e-5 && (w[1] - 6.0 * 2.0 / 16.0).abs() < 1e-5,
        "{w:?}"
    );
}

#[test]
fn a_sender_that_forgets_what_was_lost_loses_the_mass() {
    let mut lossy = Lossy::new(run("ring:8", 0.0));
    lossy.go(30, 0.2, true);
    let w: f64 = lossy.total().1.iter().sum();
    assert!(w < 0.1 * 8.0, "2/15 of all mass vanishes a round: sum w = {w}");
}

#[test]
fn training_survives_the_loss_of_a_fifth_of_the_frames() {
    let after = |lost: f64| {
        let mut lossy = Lossy::new(run("ring:8", 0.05));
        lossy.go(600, lost, false);
        lossy.run.suboptimality(&lossy.models())
    };
    let (whole, lossy) = (after(0.0), after(0.2));
    let start = run("ring:8", 0.05);
    let first = start.suboptimality(&(0..8).map(|node| start.start(node)).collect::<Vec<_>>());
    println!("f - f*: {first:.3e} at first, {whole:.3e} without loss, {lossy:.3e} at 20 % loss");
    assert!(lossy < 2.0 * whole && whole < 0.01 * first, "{first:e}, {whole:e}, {lossy:e}");
}

#[test]
fn the_sum_of_x_moves_by_the_gradients_alone() {
    let mut lossy = Lossy::new(run("star:6", 0.05));
    for _ in 0..20 {
        let (before, _) = lossy.total();
        let (problems, z) = (lossy.run.problems(), widen(&lossy.models()));
        let gradients: Vec<Vec<f64>> =
            problems.iter().zip(&z).map(|(p, z)| p.gradient(z)).collect();
        lossy.go(1, 0.2, false);
        let (after, _) = lossy.total();
        for (k, (a, b)) in before.iter().zip(&after).enumerate() {
            let expected = a - 0.05 * gradients.iter().map(|g| g[k]).sum::<f64>();
            assert!((b - expected).abs() < 1e-5, "coordinate {k}: {b} and {expected}");
        }
    }
}

#[test]
fn on_regular_graphs_it_is_d_psgd_atc_and_on_others_it_is_not() {
    for (topology, same) in
        [("ring:8", true), ("torus:3x3", true), ("complete:5", true), ("star:5", false)]
    {
        let (push, mut atc) =
            (run(topology, 0.05), Run::new(topology, "kind = 'd-psgd'", IDENTITY));
        atc.same_start = false;
        let difference = difference(&widen(&atc.models()), &push.models());
        assert_eq!(difference < 1e-5, same, "{topology}: {difference:e}");
    }
}

#[test]
fn by_hand_and_in_the_simulator_it_does_the_same() {
    let run = run("path:5", 0.05);
    let mut lossy = Lossy::new(run.clone());
    lossy.go(run.rounds, 0.0, false);
    assert_eq!(lossy.models(), run.models());
}
