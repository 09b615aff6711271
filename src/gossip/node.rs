//! One node of a run, as a state machine without I/O.
//!
//! * Upon `Start`: agree on a setup over the tree, if the run has one; then begin round 0.
//! * Upon `Frame`: check it against the plan, hold it until its exchange is open, hand it to the
//!   rule in ascending order of senders.
//! * Upon a frame that calls (asynchronous rules): let the rule answer, once the link has a slot
//!   and nobody is too far behind.
//! * Upon `Taken`: a slot is free; an exchange that waited for it opens.
//! * Upon `Part`: hand this part of the update to the rule; its flight may leave while the rest is
//!   computed.
//! * Upon `Computed`: hand the update to the rule and go on with the round.
//! * Upon `LinkDown` or `Left`: before the start, forget what came over the link; when only the
//!   tree's exchanges are left and none of them uses the link, go on; else fail. The reason names
//!   the link and the round, or what ended the run first.
//! * Upon `StopAfter`: let the given round be the last.
//! * After the last round: land what is in the air; where the plan calls, hear from all neighbours
//!   that they call no more; have the node's own model saved; form the mean over the tree; ask for
//!   this node's record; pass records to their readers; finish.
//!
//! Nothing here waits, reads a clock or rolls dice: given the same inputs in the same order, the
//! same effects come out.

use std::sync::Arc;

use super::{
    air::Air,
    calls::{self, Calls, Turn},
    event::{Effect, Failure, Input, OwnModel, Part, RoundDone, Traffic},
    frame::Sealed,
    growth::Growth,
    plan::{self, At, Meeting, Plan, Step},
    rule::Rule,
    tree::{
        Agreement, FAREWELL, Farewell, Leaving, MEAN, Mean, Readers, Records, SETUP, SETUP_LIMIT,
        SUMMARY, Setup, TreePlan,
    },
};
use crate::{
    mixing::Topology,
    units::{NodeId, Round},
};

/// What a node needs to know before it starts.
pub struct NodeConfig {
    /// Which node this is.
    pub id: NodeId,
    /// Who is a neighbour of whom.
    pub topology: Arc<Topology>,
    /// The program of a round.
    pub plan: Arc<dyn Plan>,
    /// The update rule, at its initial state.
    pub rule: Box<dyn Rule>,
    /// The run's seed, for compressors.
    pub seed: u64,
    /// How many rounds.
    pub rounds: u64,
    /// Rounds between evaluations; the last round is always evaluated.
    pub evaluate_every: u64,
    /// The model's dimension d.
    pub parameters: usize,
    /// What all nodes must agree on before round 0 (sums for standardisation); either all nodes
    /// have something or none.
    pub setup: Option<Setup>,
    /// Who gets all nodes' records at the end.
    pub readers: Readers,
}

/// The state machine.
pub struct Node {
    id: NodeId,
    topology: Arc<Topology>,
    plan: Arc<dyn Plan>,
    /// Until the rounds are over; then only its model is kept.
    rule: Option<Box<dyn Rule>>,
    model: Arc<Vec<f32>>,
    rounds: u64,
    /// Rounds before anybody wished to stop: a neighbour may be further than this node ends.
    agreed: u64,
    evaluate_every: u64,
    parameters: usize,
    lag: u64,
    air: Air,
    stage: Stage,
    round: Round,
    /// The next step of the round's program.
    next: usize,
    /// The flight that the current `Launch` step has launched.
    launched: bool,
    /// Whether the model is lent.
    lent: bool,
    /// How many parts of this round's update are there.
    parts: usize,
    loss: f64,
    growth: Growth,
    calls: Calls,
    /// What was sent until the model was final.
    spent: Traffic,
    trees: Trees,
}

struct Trees {
    setup: Option<TreePlan>,
    /// Where the plan calls.
    farewell: Option<Farewell>,
    mean: TreePlan,
    summary: TreePlan,
}

enum Stage {
    Waiting {
        setup: Option<Setup>,
    },
    Setup(Agreement),
    Rounds,
    /// Landing what the last rounds left in the air.
    Landing,
    /// Until no neighbour calls any more.
    Farewell,
    Mean(Mean),
    Concluding,
    Summary(Records),
    Done,
    Failed,
}

impl Node {
    /// A node before its start.
    ///
    /// # Panics
    /// If the setup record exceeds [`SETUP_LIMIT`].
    pub fn new(config: NodeConfig) -> Node {
        let NodeConfig {
            id,
            topology,
            plan,
            rule,
            seed,
            rounds,
            evaluate_every,
            parameters,
            setup,
            readers,
        } = config;
        let fits = |setup: &Setup| setup.record.len() <= SETUP_LIMIT;
        assert!(setup.as_ref().is_none_or(fits), "the setup record is too large");
        let lag = |step: &Step| if let Step::Land { lag, .. } = step { u64::from(*lag) } else { 0 };
        let lag = plan.steps().iter().map(lag).max().unwrap_or(0);
        // A neighbour that waits for this node is ahead by the flights that may be in the air at
        // most; where frames go one way only, the chain of waits back to this node is as long as
        // there are nodes.
        let a_round: usize =
            plan::flights(&*plan).iter().map(|&flight| usize::from(plan.exchanges(flight))).sum();
        let ahead = (lag as usize + 2 + topology.nodes()) * a_round;
        let trees = Trees {
            setup: setup.as_ref().map(|setup| TreePlan::setup(&topology, setup.record.len())),
            farewell: plan::is_asynchronous(&*plan).then(|| Farewell(Arc::clone(&topology))),
            mean: TreePlan::mean(&topology, parameters),
            summary: TreePlan::summary(&topology, readers),
        };
        Node {
            lag,
            air: Air::new(id, seed, topology.neighbours(id), ahead, plan::crosses(&*plan)),
            stage: Stage::Waiting { setup },
            round: Round(0),
            next: 0,
            launched: false,
            lent: false,
            parts: 0,
            loss: f64::NAN,
            growth: Growth::default(),
            calls: Calls::new(id, &*plan, &topology),
            spent: Traffic::default(),
            id,
            topology,
            plan,
            rule: Some(rule),
            model: Arc::default(),
            rounds,
            agreed: rounds,
            evaluate_every: evaluate_every.max(1),
            parameters,
            trees,
        }
    }

    /// Takes one input and appends what is to be done, in order.
    pub fn handle(&mut self, input: Input, out: &mut Vec<Effect>) {
        if matches!(self.stage, Stage::Done | Stage::Failed) {
            return;
        }
        if let Err(failure) = self.take(input, out).and_then(|()| self.run(out)) {
            self.stage = Stage::Failed;
            out.push(Effect::Failed(failure));
        }
    }

    /// The round that this node is in.
    pub fn round(&self) -> Round {
        self.round
    }

    /// This node's model as it stands, for a run that ends early: after the last round that is
    /// done, or with the step and a part of the mixing of the round after it. `lent` gives the
    /// model that [`Effect::Compute`] lent, if it can be had. `None` before a round is done.
    pub fn salvage(&self, lent: impl FnOnce() -> Option<Vec<f32>>) -> Option<OwnModel> {
        if self.round.0 == 0 {
            return None;
        }
        let x = match &self.rule {
            None => Arc::clone(&self.model),
            Some(_) if self.lent => Arc::new(lent()?),
            Some(rule) => {
                let mut x = vec![0.0; self.parameters];
                rule.model(&mut x);
                Arc::new(x)
            }
        };
        Some(OwnModel { x, ..self.own_model() })
    }

    /// What was sent, with the model if the rounds are over.
    fn own_model(&self) -> OwnModel {
        let spent = if self.rule.is_some() { self.air.traffic } else { self.spent };
        let traffic = Traffic { tree: self.air.traffic.tree, ..spent };
        OwnModel {
            rounds: self.round,
            x: Arc::clone(&self.model),
            traffic,
            links: self.air.by_link(),
        }
    }

    /// What this node waits for, for the log: a place of the algorithm and the neighbours that are
    /// late.
    pub fn waiting_for(&self) -> Option<(At, Vec<NodeId>)> {
        match &self.stage {
            Stage::Waiting { .. } | Stage::Concluding | Stage::Done | Stage::Failed => None,
            Stage::Setup(_) => {
                self.trees.setup.as_ref().and_then(|plan| self.air.waiting_for(plan))
            }
            Stage::Rounds | Stage::Landing => {
                self.air.waiting_for(&*self.plan).or_else(|| self.held_back())
            }
            Stage::Farewell => {
                let stays = |peer: &NodeId| !self.calls.has_left(*peer);
                let late =
                    self.topology.neighbours(self.id).iter().copied().filter(stays).collect();
                Some((At { round: Round(0), flight: FAREWELL, exchange: 0 }, late))
            }
            Stage::Mean(_) => self.air.waiting_for(&self.trees.mean),
            Stage::Summary(_) => self.air.waiting_for(&self.trees.summary),
        }
    }

    /// Who is too far behind for this node to begin its next gradient.
    fn held_back(&self) -> Option<(At, Vec<NodeId>)> {
        let late: Vec<NodeId> = self.calls.behind(self.round.0, self.round.0).collect();
        let at = At { round: self.round, flight: 0, exchange: 0 };
        (self.at_gradient() && !late.is_empty()).then_some((at, late))
    }

    /// Whether the next step is to begin a gradient.
    fn at_gradient(&self) -> bool {
        self.plan.steps().get(self.next) == Some(&Step::Gradient)
    }

    fn take(&mut self, input: Input, out: &mut Vec<Effect>) -> Result<(), Failure> {
        match input {
            Input::Start => self.start(),
            Input::Frame { from, bytes } => return self.arrived(from, bytes, out),
            Input::Taken(peer) => self.air.taken(peer),
            Input::LinkDown { peer, reason } => {
                let round = self.round;
                return self.lose(peer, || Failure::Link { peer, round, reason });
            }
            Input::Left { peer, cause } => {
                let round = self.round;
                return self.lose(peer, || Failure::Left { peer, round, cause });
            }
            Input::Computed { round, x, update, loss, step } => {
                self.lent = false;
                self.loss = loss;
                let checked = self.growth.computed(round, &x, &update, step);
                // Also of a run that has diverged: its model is the rule's again.
                rule(&mut self.rule).gradient(round, step, x, update);
                checked?;
            }
            Input::ComputeFailed { x, reason } => {
                // The rule is of no use without its model, which is this node's result.
                (self.rule, self.model, self.spent) = (None, Arc::new(x), self.air.traffic);
                return Err(Failure::Gradient { round: self.round, reason });
            }
            Input::Part { round, part, values } => {
                self.parts = usize::from(part) + 1;
                rule(&mut self.rule).part(round, part, values);
            }
            Input::Record(record) => {
                if matches!(self.stage, Stage::Concluding) {
                    let records =
                        Records::new(&self.trees.summary, self.topology.nodes(), self.id, record);
                    self.air.launch(self.trees.summary.launch(), &self.trees.summary);
                    self.stage = Stage::Summary(records);
                }
            }
            Input::StopAfter(last) => self.rounds = self.rounds.min(last.max(self.round).0 + 1),
        }
        Ok(())
    }

    /// A link is gone. It may come back before the start; after the rounds only the tree's links
    /// count.
    fn lose(&mut self, peer: NodeId, failure: impl FnOnce() -> Failure) -> Result<(), Failure> {
        match self.stage {
            Stage::Waiting { .. } => {
                self.air.forget(peer);
                self.calls.forget(peer);
                Ok(())
            }
            Stage::Mean(_) | Stage::Concluding | Stage::Summary(_)
                if !self.trees.mean.connects(self.id, peer) =>
            {
                Ok(())
            }
            _ => Err(failure()),
        }
    }

    fn start(&mut self) {
        let Stage::Waiting { setup } = &mut self.stage else { return };
        self.stage = match (setup.take(), &self.trees.setup) {
            (Some(setup), Some(plan)) => {
                self.air.launch(plan.launch(), plan);
                Stage::Setup(Agreement::new(plan, self.topology.nodes(), self.id, setup))
            }
            _ => Stage::Rounds,
        };
    }

    /// Checks a frame against the plan before anything changes.
    fn arrived(
        &mut self,
        from: NodeId,
        bytes: Vec<u8>,
        out: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        let wrong = |reason: String| Failure::Peer { peer: from, reason };
        let sealed = Sealed::new(&bytes).map_err(|error| wrong(error.to_string()))?;
        let at = sealed.header.at;
        let plan = self.place(from, &at);
        let (checked, sum) = match plan {
            Ok(plan) => plan.format(&at, from).check_and_sum(sealed.payload, sealed.sum),
            Err(_) => (Ok(()), crc32c::crc32c_append(sealed.sum, sealed.payload)),
        };
        // What a damaged frame seems to say is not worth telling.
        sealed.verify(sum).map_err(|error| wrong(error.to_string()))?;
        plan.map_err(wrong)?;
        checked.map_err(|error| wrong(format!("{at}: {error}")))?;
        if at.flight == FAREWELL {
            // Not held: answers of this neighbour to calls that are still to come must not queue
            // behind it.
            out.push(Effect::Recycle { from, buffer: bytes });
            return self.calls.leave(from).map_err(wrong);
        }
        if self.is_call(&at) {
            return self
                .calls
                .arrived(from, at.round, bytes)
                .map_err(|reason| wrong(format!("{at}: {reason}")));
        }
        self.air.hold(from, at, bytes, out).map_err(wrong)
    }

    fn is_call(&self, at: &At) -> bool {
        at.exchange == 0 && plan::launches(&*self.plan, at.flight) && self.plan.calls(at.flight)
    }

    /// Hears or answers a call, if there is one whose turn it is.
    fn answer(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
        let works = matches!(self.stage, Stage::Rounds) && self.round.0 < self.rounds;
        let own = if works { self.round.0 } else { calls::INFINITY };
        let begins = works && self.at_gradient();
        let Some(turn) = self.calls.next(own, begins, |peer| self.air.has_slot(peer)) else {
            return Ok(false);
        };
        let (plan, party) = (&*self.plan, rule(&mut self.rule));
        match turn {
            Turn::Hear(place) => {
                let call = self.calls.hear(place);
                self.air.hear(call.from, &call.bytes, plan, party);
            }
            Turn::Answer(place) => {
                let call = self.calls.remove(place);
                self.air.answer(call.from, call.bytes, plan, party, out)?;
            }
        }
        Ok(true)
    }

    /// The plan that a frame of this sender belongs to.
    ///
    /// # Errors
    /// Why none does.
    fn place(&self, from: NodeId, at: &At) -> Result<&dyn Plan, String> {
        let plan: &dyn Plan = match (at.flight, &self.trees) {
            (SETUP, Trees { setup: Some(plan), .. }) => plan,
            (FAREWELL, Trees { farewell: Some(plan), .. }) => plan,
            (MEAN, Trees { mean, .. }) => mean,
            (SUMMARY, Trees { summary, .. }) => summary,
            _ => {
                // Who calls is in a round of its own.
                let rounds = if self.is_call(at) {
                    0..self.agreed
                } else {
                    self.round.0.saturating_sub(self.lag)..self.rounds
                };
                if !rounds.contains(&at.round.0) {
                    return Err(format!(
                        "{at}: this node is in round {} of {}",
                        self.round, self.rounds
                    ));
                }
                &*self.plan
            }
        };
        let mut meeting = Meeting::default();
        if plan::launches(plan, at.flight)
            && at.exchange < plan.exchanges(at.flight)
            && !self.is_call(at)
        {
            plan.meet(self.id, at, &mut meeting);
        }
        let expected = if at.flight == FAREWELL && self.trees.farewell.is_some() {
            self.topology.neighbours(self.id).contains(&from)
        } else if self.is_call(at) {
            plan.meet(from, at, &mut meeting);
            meeting.send.contains(&self.id)
        } else {
            meeting.wait.contains(&from)
        };
        if expected { Ok(plan) } else { Err(format!("{at}: nothing of it is expected there")) }
    }

    /// Goes as far as it can.
    fn run(&mut self, out: &mut Vec<Effect>) -> Result<(), Failure> {
        loop {
            let moved = match &mut self.stage {
                Stage::Waiting { .. } | Stage::Concluding | Stage::Done | Stage::Failed => false,
                Stage::Setup(agreement) => {
                    let plan = self.trees.setup.as_ref().expect("a setup stage has its plan");
                    self.air.advance(plan, agreement, out)?;
                    self.air.land(Round(0), SETUP)
                }
                Stage::Rounds | Stage::Landing => {
                    let answered = self.answer(out)?;
                    let flown =
                        self.air.advance(&*self.plan, rule(&mut self.rule), out)? || answered;
                    let stepped = if matches!(self.stage, Stage::Rounds) {
                        self.step(out)
                    } else {
                        self.land_rest(out)?
                    };
                    if flown || stepped {
                        continue;
                    }
                    false
                }
                Stage::Farewell => {
                    if self.answer(out)? {
                        continue;
                    }
                    let plan = self
                        .trees
                        .farewell
                        .as_ref()
                        .expect("a plan that calls ends with a farewell");
                    self.air.advance(plan, &mut Leaving, out)?;
                    // A call that came before the farewell is answered before the model is final.
                    let all_left = self
                        .topology
                        .neighbours(self.id)
                        .iter()
                        .all(|&peer| self.calls.has_left(peer));
                    if all_left && self.calls.is_empty() && self.air.land(Round(0), FAREWELL) {
                        self.end_rounds(out)?;
                        continue;
                    }
                    false
                }
                Stage::Mean(mean) => {
                    self.air.advance(&self.trees.mean, mean, out)?;
                    self.air.land(Round(0), MEAN)
                }
                Stage::Summary(records) => {
                    self.air.advance(&self.trees.summary, records, out)?;
                    self.air.land(Round(0), SUMMARY)
                }
            };
            if !moved {
                return Ok(());
            }
            self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
                Stage::Setup(agreement) => {
                    out.push(Effect::Prepared(agreement.into_merged()));
                    Stage::Rounds
                }
                Stage::Mean(mean) => {
                    self.air.forget_buffers();
                    out.push(Effect::Conclude { own: self.own_model(), mean: mean.into_mean() });
                    Stage::Concluding
                }
                Stage::Summary(records) => {
                    out.push(Effect::Finished(records.into_all()));
                    Stage::Done
                }
                other => other,
            };
        }
    }

    /// One step of the round's program; `false` if it has to wait.
    fn step(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.round.0 >= self.rounds {
            self.stage = Stage::Landing;
            return true;
        }
        let round = self.round;
        let done = match self.plan.steps().get(self.next) {
            Some(&Step::Launch(flight)) => {
                if !self.launched {
                    self.air.launch(At { round, flight, exchange: 0 }, &*self.plan);
                    self.launched = true;
                    return true;
                }
                let opened = self.air.opened(round, flight);
                self.launched = !opened;
                opened
            }
            Some(Step::Gradient) if !self.calls.may_begin(round) => false,
            Some(Step::Gradient) => {
                let (x, update) = rule(&mut self.rule).point();
                let lend = |(part, &start)| Part { start, values: rule(&mut self.rule).lend(part) };
                let parts: Vec<Part> = (0..).zip(self.plan.parts()).map(lend).collect();
                (self.lent, self.parts) = (true, 0);
                let overlaps =
                    self.air.is_busy() || !parts.is_empty() || self.trees.farewell.is_some();
                out.push(Effect::Compute { round, x, update, parts, overlaps });
                true
            }
            Some(&Step::Part(part)) => self.parts > usize::from(part),
            Some(Step::Join) => !self.lent,
            Some(&Step::Land { flight, lag }) => match round.0.checked_sub(u64::from(lag)) {
                Some(launched) => self.land(Round(launched), flight),
                None => true,
            },
            None => {
                self.end_round(out);
                return true;
            }
        };
        self.next += usize::from(done);
        done
    }

    fn land(&mut self, round: Round, flight: u8) -> bool {
        let landed = self.air.land(round, flight);
        if landed {
            rule(&mut self.rule).land(&At {
                round,
                flight,
                exchange: self.plan.exchanges(flight).saturating_sub(1),
            });
        }
        landed
    }

    fn end_round(&mut self, out: &mut Vec<Effect>) {
        let done = self.round.0 + 1;
        self.air.traffic.dense +=
            4 * (self.parameters * self.topology.neighbours(self.id).len()) as u64;
        let evaluate = done.is_multiple_of(self.evaluate_every) || done == self.rounds;
        let model = evaluate.then(|| {
            let mut model = vec![0.0; self.parameters];
            rule(&mut self.rule).model(&mut model);
            model
        });
        out.push(Effect::RoundDone(RoundDone {
            round: self.round,
            loss: self.loss,
            traffic: self.air.traffic,
            model,
        }));
        self.round = Round(done);
        self.next = 0;
    }

    /// After the last round: lands every delayed flight in order, then forms the mean.
    fn land_rest(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
        for step in 0..self.plan.steps().len() {
            let Step::Land { flight, lag } = self.plan.steps()[step] else { continue };
            for round in self.round.0.saturating_sub(u64::from(lag))..self.round.0 {
                let over = !self.air.knows(Round(round), flight);
                if !over && !self.land(Round(round), flight) {
                    return Ok(false);
                }
            }
        }
        match &self.trees.farewell {
            Some(plan) => {
                self.air.launch(plan.launch(), plan);
                self.stage = Stage::Farewell;
            }
            None => self.end_rounds(out)?,
        }
        Ok(true)
    }

    /// The model is final: has it saved, gives up the rule and forms the mean.
    fn end_rounds(&mut self, out: &mut Vec<Effect>) -> Result<(), Failure> {
        self.spent = self.air.traffic;
        let mut model = vec![0.0; self.parameters];
        rule(&mut self.rule).model(&mut model);
        self.growth.check(Round(self.round.0.saturating_sub(1)), &model)?;
        self.model = Arc::new(model);
        // Its state and the rounds' frames are memory that the mean can use.
        self.rule = None;
        self.air.forget_buffers();
        out.push(Effect::Save(self.own_model()));
        let mean = Mean::new(&self.trees.mean, self.topology.nodes(), self.id, &self.model);
        self.air.launch(self.trees.mean.launch(), &self.trees.mean);
        self.stage = Stage::Mean(mean);
        Ok(())
    }
}

/// The rule, which is there until the rounds are over.
fn rule(rule: &mut Option<Box<dyn Rule>>) -> &mut dyn Rule {
    &mut **rule.as_mut().expect("a round's steps come before its end")
}
