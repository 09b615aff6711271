//! A second interpreter of plans: all nodes go through each step together. A synchronous run ends
//! with the bits of the engine, and a rule that is made again in the middle of a run from the state
//! that it lists continues with the same bits.

use crate::properties::{ALL, home};
use common::{Exact, Run, hook::Alone};
use gradvine::{
    drive::Learner,
    gossip::{
        party::{Writer, payload_noise},
        plan::{self, At, Meeting, Plan, Step},
        rule::{Prepared, Rule, Visitor},
    },
    units::{NodeId, Round},
};

/// Copies what a rule lists, or writes it into another.
struct Saved {
    numbers: Vec<(String, Vec<f32>, f64)>,
    /// The next item to restore; `None` while saving.
    next: Option<usize>,
}

impl Saved {
    fn of(rule: &mut dyn Rule) -> Saved {
        let mut saved = Saved { numbers: Vec::new(), next: None };
        rule.state(&mut saved);
        saved.next = Some(0);
        saved
    }

    fn item(&mut self, name: &str) -> (Vec<f32>, f64) {
        let next = self.next.as_mut().unwrap();
        *next += 1;
        let (known, vector, number) = self.numbers[*next - 1].clone();
        assert_eq!(known, name, "the order is always the same");
        (vector, number)
    }
}

impl Visitor for Saved {
    fn vector(&mut self, name: &str, values: &mut Vec<f32>) {
        match self.next {
            None => self.numbers.push((name.into(), values.clone(), 0.0)),
            Some(_) => *values = self.item(name).0,
        }
    }

    fn number(&mut self, name: &str, value: &mut f64) {
        match self.next {
            None => self.numbers.push((name.into(), Vec::new(), *value)),
            Some(_) => *value = self.item(name).1,
        }
    }

    fn scratch(&mut self, _numbers: usize) {}
}

/// A frame: its sender, its receiver if it is not for all, its payload.
type Sent = (NodeId, Option<NodeId>, Vec<u8>);

struct Lockstep<'a> {
    run: &'a Run,
    prepared: Prepared,
    nodes: Vec<Alone>,
}

impl Lockstep<'_> {
    fn new(run: &Run) -> Lockstep<'_> {
        let prepared = run.prepare();
        let nodes = Alone::all(run, &prepared);
        Lockstep { run, prepared, nodes }
    }

    fn each(&mut self, mut f: impl FnMut(NodeId, &mut Alone)) {
        self.nodes.iter_mut().enumerate().for_each(|(node, one)| f(NodeId::from(node), one));
    }

    /// Replaces every rule by a new one with the same state. What is no state is lost.
    fn restart(&mut self) {
        let (spawn, run) = (&self.prepared.spawn, self.run);
        for (node, one) in self.nodes.iter_mut().enumerate() {
            let mut saved = Saved::of(&mut *one.rule);
            one.rule = spawn(NodeId::from(node), &run.start(node));
            one.rule.state(&mut saved);
            one.local.update.fill(f32::NAN);
        }
    }

    fn round(&mut self, round: u64) {
        let (plan, r) = (self.prepared.plan.clone(), Round(round));
        for step in plan.steps() {
            match *step {
                Step::Gradient => self.gradients(&*plan, r),
                Step::Part(_) | Step::Join => {}
                Step::Launch(flight) => {
                    for exchange in 0..plan.exchanges(flight) {
                        let at = At { round: r, flight, exchange };
                        if !plan.calls(flight) {
                            self.exchange(&*plan, &at);
                        } else if exchange == 0 {
                            self.calls(&*plan, &at);
                        }
                    }
                }
                Step::Land { flight, lag } if round >= u64::from(lag) => {
                    self.land(&*plan, round - u64::from(lag), flight);
                }
                Step::Land { .. } => {}
            }
        }
    }

    /// Lands what is left after the last round.
    fn finish(&mut self, rounds: u64) {
        let plan = self.prepared.plan.clone();
        for step in plan.steps() {
            let Step::Land { flight, lag } = *step else { continue };
            for round in rounds.saturating_sub(u64::from(lag))..rounds {
                self.land(&*plan, round, flight);
            }
        }
    }

    fn land(&mut self, plan: &dyn Plan, round: u64, flight: u8) {
        let exchange = plan.exchanges(flight).saturating_sub(1);
        let at = At { round: Round(round), flight, exchange };
        self.each(|_, one| one.rule.land(&mut one.local, &at));
    }

    fn gradients(&mut self, plan: &dyn Plan, round: Round) {
        let (problems, step) = (self.run.problems(), self.run.step);
        self.each(|node, Alone { rule, local }| {
            rule.point(local);
            let mut learner = Exact { problem: problems[node.index()].clone(), step };
            learner.compute(round, &local.x, &mut local.update);
            let mut end = local.update.len();
            for (part, &start) in (0..).zip(plan.parts()) {
                let parts = rule.parts().unwrap();
                let mut values = parts.lend(part);
                values.copy_from_slice(&local.update[start..end]);
                parts.take(round, part, values);
                end = start;
            }
            rule.gradient(local, round, step as f32);
        });
    }

    fn exchange(&mut self, plan: &dyn Plan, at: &At) {
        let mut inboxes: Vec<Vec<Sent>> = vec![Vec::new(); self.nodes.len()];
        let meeting = |node: NodeId| {
            let mut meeting = Meeting::default();
            plan.meet(node, at, &mut meeting);
            meeting
        };
        self.each(|from, one| {
            let Meeting { send, shared, .. } = meeting(from);
            if shared {
                let bytes = encode(plan, one, from, None, at);
                send.iter().for_each(|to| inboxes[to.index()].push((from, None, bytes.clone())));
            } else {
                for to in send {
                    let bytes = encode(plan, one, from, Some(to), at);
                    inboxes[to.index()].push((from, Some(to), bytes));
                }
            }
        });
        self.each(|node, Alone { rule, local }| {
            let waits = meeting(node).wait;
            let inbox = &inboxes[node.index()];
            assert!(inbox.iter().map(|(from, ..)| *from).eq(waits), "{at}: sends meet waits");
            for (from, to, bytes) in inbox {
                let view = plan.format(at, *from).view(payload_noise(3, *from, *to, at), bytes);
                rule.received(local, at, *from, &view).unwrap();
            }
            rule.close(local, at);
        });
    }

    /// Every node in turn calls, and gets its answer.
    fn calls(&mut self, plan: &dyn Plan, at: &At) {
        let back = At { exchange: 1, ..*at };
        for node in 0..self.nodes.len() {
            let from = NodeId::from(node);
            let mut meeting = Meeting::default();
            plan.meet(from, at, &mut meeting);
            for to in meeting.send {
                let ask = encode(plan, &mut self.nodes[node], from, Some(to), at);
                let view = plan.format(at, from).view(payload_noise(3, from, Some(to), at), &ask);
                let noise = payload_noise(3, to, Some(from), &back);
                let (format, mut answer) = (plan.format(&back, to), Vec::new());
                let mut writer = Writer::new(format, Some(from), noise, &mut answer);
                let Alone { rule, local } = &mut self.nodes[to.index()];
                let answers = rule.answers().unwrap();
                if plan.bound().is_some() {
                    answers.called(local, at, from, &view);
                }
                answers.answer(local, at, &view, &mut writer).unwrap();
                let Alone { rule, local } = &mut self.nodes[node];
                rule.received(local, &back, to, &format.view(noise, &answer)).unwrap();
            }
        }
    }
}

fn encode(plan: &dyn Plan, one: &mut Alone, from: NodeId, to: Option<NodeId>, at: &At) -> Vec<u8> {
    let (format, noise) = (plan.format(at, from), payload_noise(3, from, to, at));
    let mut bytes = Vec::new();
    let mut writer = Writer::new(format, to, noise, &mut bytes);
    one.rule.outgoing(&mut one.local, at, &mut writer).unwrap();
    one.rule.sent(&mut one.local, at, to, &format.view(noise, &bytes));
    bytes
}

/// The models after a run in which the rules are made again after round `restart`.
fn models(run: &Run, restart: Option<u64>) -> Vec<Vec<f32>> {
    let mut lockstep = Lockstep::new(run);
    for round in 0..run.rounds {
        lockstep.round(round);
        if restart == Some(round) {
            lockstep.restart();
        }
    }
    lockstep.finish(run.rounds);
    lockstep.nodes.iter().map(Alone::model).collect()
}

#[test]
fn synchronous_rules_end_with_the_bits_of_the_engine() {
    for (rule, compressor) in &*ALL {
        let run = Run::new(&format!("{}:8", home(rule)), rule, compressor);
        if !plan::is_asynchronous(&*run.prepare().plan) {
            assert_eq!(models(&run, None), run.models(), "{}", run.words());
        }
    }
}

#[test]
fn a_rule_goes_on_from_the_state_that_it_lists() {
    for (rule, compressor) in &*ALL {
        let run = Run::new(&format!("{}:8", home(rule)), rule, compressor);
        let undisturbed = models(&run, None);
        for restart in [0, 1, 6, 20] {
            let again = models(&run, Some(restart));
            assert_eq!(again, undisturbed, "{}, again after round {restart}", run.words());
        }
    }
}

/// Negative control: without its state a rule that has some ends elsewhere.
#[test]
fn a_rule_that_forgets_its_state_ends_elsewhere() {
    let run = Run::new("ring:8", "kind = 'choco'", "kind = 'top-k'\nk = 4");
    let mut lockstep = Lockstep::new(&run);
    for round in 0..run.rounds {
        lockstep.round(round);
        if round == 6 {
            let spawn = &lockstep.prepared.spawn;
            for (node, one) in lockstep.nodes.iter_mut().enumerate() {
                one.rule = spawn(NodeId::from(node), &run.start(node));
            }
        }
    }
    let forgetful: Vec<Vec<f32>> = lockstep.nodes.iter().map(Alone::model).collect();
    assert_ne!(forgetful, models(&run, None));
}
