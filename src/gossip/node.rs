//! One node of a run, as a state machine without I/O.
//!
//! * Upon `Start`: agree on a setup over the tree, if the run has one; then begin round 0.
//! * Upon `Frame`: check it against the plan, buffer it until its exchange is open, pass it to the
//!   rule in ascending order of senders.
//! * Upon `Piece`: check it; add its numbers as soon as those of the senders before are there, or
//!   put the frame together.
//! * Upon a frame that is a call (asynchronous rules): let the rule answer it, once the link has a
//!   slot and no node is too far behind.
//! * Upon `Taken`: a slot is free; an exchange that waited for it opens.
//! * Upon `Part`: pass this part of the update to the rule; its flight may start while the rest is
//!   computed.
//! * Upon `Computed`: pass the update to the rule and continue the round. If the learner requests
//!   an early end, all nodes end after the same later round, which they learn from notices.
//! * Upon `Tally`: add it to those of the subtree, whose sum goes up the tree; the root decides in
//!   a fixed round whether the run ends early.
//! * Upon `LinkDown` or `Left`: before the start, drop what was received over the link; if only
//!   tree exchanges remain and none of them uses the link, continue; else fail. The reason names
//!   the link and the round, or the first cause of the end.
//! * Upon `StopAfter`: make the given round the last.
//! * After the last round: land what is in flight; if the plan calls, wait until no neighbour makes
//!   more calls; have the node's own model saved; form the mean over the tree; request this node's
//!   record; pass records to their readers; finish.
//!
//! The node never waits, reads a clock or draws random numbers outside the run's streams: the same
//! inputs in the same order give the same effects.

mod arrival;
mod calls;
mod ending;
mod growth;
mod notice;
mod pieces;
mod snapshots;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use litemap::LiteMap;

use self::{calls::Calls, growth::Growth, notice::Notice};
use super::{
    byzantine::Byzantine,
    event::{Effect, Failure, Input, RoundDone, UpdatePart},
    flights::Flights,
    party::{Local, Party},
    pieces::Incoming,
    plan::{self, At, Plan},
    program::{Next, Program},
    rule::Rule,
    stopping::{Patience, Stopping},
    traffic::Traffic,
    transfer::{Exchange, Transfer},
    tree::{
        Agreement, Averaging, EndOfCalls, Givers, INITIAL, LAST_CALL, MEAN, Mean, Readers, Records,
        SETUP, SETUP_LIMIT, SUMMARY, Setup, Signatures, Signer, TALLY, TreePlan,
    },
};
use crate::{
    digest::Hasher,
    mixing::Topology,
    state::State,
    units::{NodeId, Round},
};

/// Makes a rule at an initial model.
pub type NewRule = Box<dyn FnOnce(&[f32]) -> Box<dyn Rule> + Send>;

/// The configuration of a node.
pub struct NodeConfig {
    /// The number of this node in the topology.
    pub id: NodeId,
    /// The links between nodes, with their weights.
    pub topology: Arc<Topology>,
    /// The program of a round.
    pub plan: Arc<dyn Plan>,
    /// Makes the update rule, in its initial state at the initial model.
    pub rule: NewRule,
    /// The initial model x_0, d numbers.
    pub x: Vec<f32>,
    /// The node whose initial model all nodes start from; `None` if all have the same.
    pub initial_from: Option<NodeId>,
    /// The SHA-256 of that model, in hexadecimal digits; `None` if it is not known.
    pub initial_digest: Option<String>,
    /// The run's seed, for compressors.
    pub seed: u64,
    /// What this node sends if it is Byzantine: for simulations of attacks.
    pub byzantine: Option<Byzantine>,
    /// The greatest Euclidean norm of a neighbour's vector, if there is a limit.
    pub max_norm: Option<f64>,
    /// Whether it compares all vectors with how far its own model can have come, and refuses a
    /// neighbour whose vector is the cause if the model diverges: one pass over each vector.
    pub guards: bool,
    /// How many nodes may give a wrong model to the mean, if it is to withstand any.
    pub liars: Option<usize>,
    /// Signs what this node gives to the tree, and checks what others gave; `None` if one process
    /// runs all nodes.
    pub signer: Option<Arc<dyn Signer>>,
    /// How many rounds the run has, counted from its start.
    pub rounds: u64,
    /// Rounds between evaluations; the last round is always evaluated.
    pub evaluate_every: u64,
    /// When the run ends by itself, in synchronous rounds.
    pub stopping: Option<Patience>,
    /// The record that all nodes agree on before round 0 (sums for standardisation); either all
    /// nodes have one or none.
    pub setup: Option<Setup>,
    /// Which nodes receive all nodes' records at the end.
    pub readers: Readers,
}

impl NodeConfig {
    /// A node of a run without rounds, in which nothing unusual happens.
    pub fn new(
        id: NodeId,
        topology: Arc<Topology>,
        plan: Arc<dyn Plan>,
        rule: NewRule,
        x: Vec<f32>,
    ) -> NodeConfig {
        NodeConfig {
            id,
            topology,
            plan,
            rule,
            x,
            initial_from: None,
            initial_digest: None,
            seed: 0,
            byzantine: None,
            max_norm: None,
            guards: false,
            liars: None,
            signer: None,
            rounds: 0,
            evaluate_every: u64::MAX,
            stopping: None,
            setup: None,
            readers: Readers::Everyone,
        }
    }
}

/// The protocol of one node, without I/O: [`Node::handle`].
pub struct Node {
    id: NodeId,
    topology: Arc<Topology>,
    plan: Arc<dyn Plan>,
    /// Present until the initial model is known.
    new_rule: Option<NewRule>,
    /// Present during the rounds; afterwards only the model is kept.
    rule: Option<Box<dyn Rule>>,
    /// The model and its update, until the rounds are over.
    local: Local,
    /// The final model, empty until it is known.
    model: Arc<Vec<f32>>,
    rounds: u64,
    /// Rounds before any request of an early end: a neighbour may be past this node's last round.
    agreed: u64,
    evaluate_every: u64,
    parameters: usize,
    lag: u64,
    flights: Flights<Vec<u8>>,
    /// Frames that arrive in pieces, at most one of a neighbour.
    incoming: LiteMap<NodeId, Incoming>,
    transfer: Transfer,
    stage: Stage,
    program: Program,
    loss: f64,
    growth: Growth,
    calls: Calls,
    stopping: Option<Stopping>,
    /// Neighbours that have not been sent the notice of an early end.
    uninformed: Vec<NodeId>,
    /// That notice.
    notice: Option<Notice>,
    /// The traffic until the model was final.
    spent: Traffic,
    /// Whether the losses on validation rows end the run, and the model of the lowest is the
    /// result.
    takes_best: bool,
    /// The rounds after which a snapshot is due.
    snapshot_after: Option<Round>,
    /// The model and the rule's state of the snapshot from which this node continues.
    restored: Option<(Vec<f32>, State)>,
    trees: Trees,
}

struct Trees {
    setup: Option<TreePlan>,
    /// Present if the initial model comes from the nodes.
    initial: Option<(Averaging, TreePlan)>,
    /// Present if the plan calls.
    end_of_calls: Option<EndOfCalls>,
    averaging: Averaging,
    mean: TreePlan,
    summary: TreePlan,
    readers: Readers,
}

impl Trees {
    fn new(config: &NodeConfig) -> Trees {
        let NodeConfig { topology, setup, readers, .. } = config;
        let (nodes, parameters) = (topology.nodes(), config.x.len());
        let (liars, signatures) = (config.liars, Signatures::new(config.signer.clone()));
        let averaging = Averaging { liars, signatures, ..Averaging::of_all(nodes) };
        let models = |flight, averaging: &Averaging| {
            TreePlan::models(topology, flight, parameters, averaging, *readers)
        };
        let initial = config.initial_from.map(|from| {
            // Its signed model is passed on, whatever the rule.
            let initial = Averaging {
                givers: Givers::These(vec![from]),
                liars: Some(0),
                digest: config.initial_digest.clone(),
                ..averaging.clone()
            };
            let plan = models(INITIAL, &initial);
            (initial, plan)
        });
        let passes_on = |setup: &Setup| *readers == Readers::Everyone && !setup.is_kept();
        let of_setup = |setup: &Setup| TreePlan::setup(topology, setup.length(), passes_on(setup));
        let calls = plan::is_asynchronous(&*config.plan);
        Trees {
            setup: setup.as_ref().map(of_setup),
            initial,
            end_of_calls: calls.then(|| EndOfCalls(Arc::clone(topology))),
            mean: models(MEAN, &averaging),
            averaging,
            summary: TreePlan::summary(topology, *readers),
            readers: *readers,
        }
    }
}

enum Stage {
    Waiting {
        setup: Option<Setup>,
    },
    Setup(Agreement),
    Initial(Mean),
    Rounds,
    /// Landing what the last rounds left in flight.
    Landing,
    /// Waiting until no neighbour makes more calls.
    EndOfCalls,
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
        let trees = Trees::new(&config);
        let NodeConfig {
            id,
            topology,
            plan,
            rule,
            x,
            seed,
            byzantine,
            max_norm,
            guards,
            rounds,
            evaluate_every,
            stopping,
            setup,
            ..
        } = config;
        let fits = |setup: &Setup| setup.record.len() <= SETUP_LIMIT;
        assert!(setup.as_ref().is_none_or(fits), "the setup record is too large");
        let lag = plan::lag(&*plan);
        // A neighbour that waits for this node is ahead by at most the flights that may be in
        // flight. If frames go one way only, the chain of waits back to this node can be as long as
        // there are nodes.
        let a_round: usize =
            plan::flights(&*plan).iter().map(|&flight| usize::from(plan.exchanges(flight))).sum();
        let ahead = (lag as usize + 2 + topology.nodes()) * a_round;
        let (neighbours, parameters) = (topology.neighbours(id), x.len());
        let mut node = Node {
            lag,
            flights: Flights::new(id, ahead),
            incoming: LiteMap::new(),
            transfer: Transfer::new(id, seed, neighbours, plan::crosses(&*plan))
                .byzantine(byzantine)
                .accepting(max_norm)
                .guarding(guards),
            stage: Stage::Waiting { setup },
            program: Program::default(),
            loss: f64::NAN,
            growth: Growth::default(),
            calls: Calls::new(id, &*plan, &topology),
            stopping: None,
            uninformed: Vec::new(),
            notice: None,
            takes_best: false,
            spent: Traffic::default(),
            snapshot_after: None,
            restored: None,
            id,
            topology,
            plan,
            new_rule: Some(rule),
            rule: None,
            local: Local::new(x),
            model: Arc::default(),
            rounds,
            agreed: rounds,
            evaluate_every: evaluate_every.max(1),
            parameters,
            trees,
        };
        node.stopping = stopping.map(|patience| node.watch(patience, Round(0)));
        node
    }

    /// Handles one input and appends the effects, in order.
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
    pub(crate) fn round(&self) -> Round {
        self.program.round()
    }

    /// What this node waits for, for the log: a position in the algorithm and the late neighbours.
    pub fn waiting_for(&self) -> Option<(At, Vec<NodeId>)> {
        match &self.stage {
            Stage::Waiting { .. } | Stage::Concluding | Stage::Done | Stage::Failed => None,
            Stage::Setup(_) => {
                self.trees.setup.as_ref().and_then(|plan| self.flights.waiting_for(plan))
            }
            Stage::Initial(_) => {
                self.trees.initial.as_ref().and_then(|(_, plan)| self.flights.waiting_for(plan))
            }
            Stage::Rounds | Stage::Landing => {
                self.flights.waiting_for(&*self.plan).or_else(|| self.held_back())
            }
            Stage::EndOfCalls => {
                let stays = |peer: &NodeId| !self.calls.has_left(*peer);
                let late =
                    self.topology.neighbours(self.id).iter().copied().filter(stays).collect();
                Some((At { round: Round(0), flight: LAST_CALL, exchange: 0 }, late))
            }
            Stage::Mean(_) => self.flights.waiting_for(&self.trees.mean),
            Stage::Summary(_) => self.flights.waiting_for(&self.trees.summary),
        }
    }

    /// The nodes that are too far behind for this node to begin its next gradient.
    fn held_back(&self) -> Option<(At, Vec<NodeId>)> {
        let round = self.round();
        let mut late: Vec<NodeId> = self.calls.behind(round.0, round.0).collect();
        let mut at = At { round, flight: 0, exchange: 0 };
        if let (Some(stopping), true) = (&self.stopping, late.is_empty()) {
            late = stopping.late(round.0);
            at.flight = TALLY;
        }
        let waits = self.program.is_at_gradient(&*self.plan) && !late.is_empty();
        waits.then_some((at, late))
    }

    fn take(&mut self, input: Input, out: &mut Vec<Effect>) -> Result<(), Failure> {
        match input {
            Input::Start => return self.start(),
            Input::Frame { from, bytes } => return self.arrived(from, bytes, out),
            Input::Piece { from, length, bytes } => {
                return self.arrived_piece(from, length, bytes, out);
            }
            Input::Taken(peer) => self.flights.free_slot(peer),
            Input::LinkDown { peer, reason } => {
                let round = self.round();
                return self.lose(peer, || Failure::Link { peer, round, reason });
            }
            Input::Left { peer, cause } => {
                let round = self.round();
                return self.lose(peer, || Failure::Left { peer, round, cause });
            }
            Input::Computed { round, x, update, loss, step, ends } => {
                self.program.finish_gradient();
                self.loss = loss;
                self.local = Local { x, update };
                let Local { x, update } = &self.local;
                let each = self.transfer.guards();
                let checked = self.growth.computed(round, x, update, step, each);
                self.transfer.guard(self.growth.most_of_others());
                // Also if the run has diverged: some rules keep the model elsewhere.
                rule(&mut self.rule).gradient(&mut self.local, round, step);
                checked?;
                if ends {
                    let last = Round(round.0 + self.rounds_to_inform());
                    let notice = self.own_notice(last, false);
                    self.end_after(notice, None)
                        .map_err(|reason| Failure::Gradient { round, reason })?;
                }
            }
            Input::Diverged { round, x, loss } => {
                (self.rule, self.model, self.spent) = (None, Arc::new(x), self.transfer.traffic);
                return Err(Failure::Loss { round, loss });
            }
            Input::ComputeFailed { x, reason } => {
                // The rule is useless without its model, which is this node's result.
                (self.rule, self.model, self.spent) = (None, Arc::new(x), self.transfer.traffic);
                return Err(Failure::Gradient { round: self.round(), reason });
            }
            Input::Tally { round, tally } => {
                if let Some(stopping) = &mut self.stopping {
                    stopping.keep(round.0, tally);
                }
            }
            Input::Part { round, part, values } => {
                self.program.finish_part(part);
                rule(&mut self.rule).parts().expect(PARTS).take(round, part, values);
            }
            Input::Record(record) => {
                if matches!(self.stage, Stage::Concluding) {
                    let signatures = Some(&self.trees.averaging.signatures);
                    let signatures = signatures.filter(|all| all.are_of_keys());
                    let records = Records::new(&self.trees.summary, self.id, record, signatures);
                    self.flights.launch(self.trees.summary.launch(), &self.trees.summary);
                    self.stage = Stage::Summary(records);
                }
            }
            Input::Snapshot(after) => self.snapshot_after = Some(after),
            Input::StopAfter(last) => {
                let rounds = last.max(self.round()).0.saturating_add(1);
                self.takes_best &= rounds >= self.rounds;
                self.rounds = self.rounds.min(rounds);
            }
        }
        Ok(())
    }

    /// Handles the loss of a link. It may come up again before the start; after the rounds only the
    /// tree's links count.
    fn lose(&mut self, peer: NodeId, failure: impl FnOnce() -> Failure) -> Result<(), Failure> {
        match self.stage {
            Stage::Waiting { .. } => {
                self.flights.forget(peer);
                self.incoming.remove(&peer);
                self.transfer.forget(peer);
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

    fn start(&mut self) -> Result<(), Failure> {
        let Stage::Waiting { setup } = &mut self.stage else { return Ok(()) };
        self.stage = match (setup.take(), &self.trees.setup) {
            (Some(setup), Some(plan)) => {
                self.flights.launch(plan.launch(), plan);
                let signatures = &self.trees.averaging.signatures;
                Stage::Setup(Agreement::new(plan, self.id, setup, signatures))
            }
            _ => self.share_initial(),
        };
        if let Some((x, state)) = self.restored.take() {
            self.local.x = x;
            let restored = state.restore(|visitor| self.state(visitor));
            restored.map_err(|reason| Failure::Snapshot { round: self.round(), reason })?;
        }
        Ok(())
    }

    /// Gets the initial model after the setup, if nodes give it.
    fn share_initial(&mut self) -> Stage {
        let Some((initial, plan)) = &self.trees.initial else { return self.begin_rounds() };
        self.flights.launch(plan.launch(), plan);
        let own = initial.givers.contains(self.id).then_some(&*self.local.x);
        Stage::Initial(Mean::new(plan, initial, self.id, self.parameters, own))
    }

    fn begin_rounds(&mut self) -> Stage {
        self.rule = self.new_rule.take().map(|new| new(&self.local.x));
        Stage::Rounds
    }

    /// Advances as far as possible.
    fn run(&mut self, out: &mut Vec<Effect>) -> Result<(), Failure> {
        loop {
            if !matches!(self.stage, Stage::Waiting { .. } | Stage::Setup(_) | Stage::Initial(_)) {
                self.inform(out);
                self.tell_tallies(out);
            }
            let Node { flights, transfer, local, trees, .. } = self;
            let mut fly = |plan: &dyn Plan, party: &mut dyn Party| {
                flights.advance(plan, &mut Exchange { transfer, plan, party, local, out })
            };
            let moved = match &mut self.stage {
                Stage::Waiting { .. } | Stage::Concluding | Stage::Done | Stage::Failed => false,
                Stage::Setup(agreement) => {
                    fly(trees.setup.as_ref().expect("a setup stage has its plan"), agreement)?;
                    self.flights.land(Round(0), SETUP)
                }
                Stage::Initial(model) => {
                    fly(&trees.initial.as_ref().expect("an initial model has its plan").1, model)?;
                    self.flights.land(Round(0), INITIAL)
                }
                Stage::Rounds | Stage::Landing => {
                    let answered = self.answer(out)?;
                    if self.add_pieces(out)? | self.fly(out)? | answered | self.step(out)? {
                        continue;
                    }
                    false
                }
                Stage::EndOfCalls => {
                    if self.answer(out)? {
                        continue;
                    }
                    self.end_calls(out)?;
                    if !matches!(self.stage, Stage::EndOfCalls) {
                        continue;
                    }
                    false
                }
                Stage::Mean(mean) => {
                    fly(&trees.mean, mean)?;
                    self.flights.land(Round(0), MEAN)
                }
                Stage::Summary(records) => {
                    fly(&trees.summary, records)?;
                    self.flights.land(Round(0), SUMMARY)
                }
            };
            if !moved {
                return Ok(());
            }
            self.next_stage(out);
        }
    }

    /// Moves to the next stage, once the tree exchange of this one has landed.
    fn next_stage(&mut self, out: &mut Vec<Effect>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Setup(agreement) => {
                out.push(Effect::Prepared(agreement.into_merged()));
                self.share_initial()
            }
            Stage::Initial(model) => {
                self.local.x = model.into_mean();
                self.transfer.forget_buffers();
                let mut hasher = Hasher::default();
                hasher.add_floats(&self.local.x);
                out.push(Effect::Initial { fingerprint: hasher.fingerprint() });
                self.begin_rounds()
            }
            Stage::Mean(mean) => {
                self.transfer.forget_buffers();
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

    /// Advances the flights of the rounds; `false` if none can move.
    fn fly(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
        let Node { flights, transfer, local, plan, .. } = self;
        let (plan, party): (_, &mut dyn Party) = (&**plan, rule(&mut self.rule));
        flights.advance(plan, &mut Exchange { transfer, plan, party, local, out })
    }

    /// One step of the rounds' program; `false` if it has to wait.
    fn step(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
        if matches!(self.stage, Stage::Rounds) && self.round().0 >= self.rounds {
            self.stage = Stage::Landing;
            return Ok(true);
        }
        let (plan, flights) = (&*self.plan, &mut self.flights);
        let next = if matches!(self.stage, Stage::Landing) {
            self.program.land_rest(plan, flights)
        } else {
            let stopping = &self.stopping;
            let decided =
                |round: Round| stopping.as_ref().is_none_or(|stopping| stopping.may_begin(round.0));
            let may_begin = |round: Round| self.calls.may_begin(round) && decided(round);
            Some(self.program.advance(plan, flights, may_begin))
        };
        match next {
            Some(Next::Wait) => return Ok(false),
            Some(Next::Continue) => {}
            Some(Next::Gradient(round)) => self.compute(round, out),
            Some(Next::Land(at)) => rule(&mut self.rule).land(&mut self.local, &at),
            Some(Next::RoundDone(round)) => self.end_round(round, out)?,
            None => match &self.trees.end_of_calls {
                Some(plan) => {
                    self.flights.launch(plan.launch(), plan);
                    self.stage = Stage::EndOfCalls;
                }
                None => self.end_rounds(out)?,
            },
        }
        Ok(true)
    }

    /// Lends the model to compute its gradient.
    fn compute(&mut self, round: Round, out: &mut Vec<Effect>) {
        self.decide(round);
        let rule = rule(&mut self.rule);
        rule.point(&mut self.local);
        if let Some(stopping) = &mut self.stopping {
            stopping.keep_model(round.0, &self.local.x);
        }
        let Local { x, update } = std::mem::take(&mut self.local);
        let mut lend = |(part, &start)| {
            let values = rule.parts().expect(PARTS).lend(part);
            UpdatePart { start, values }
        };
        let parts: Vec<UpdatePart> = (0..).zip(self.plan.parts()).map(&mut lend).collect();
        let overlaps =
            self.flights.is_busy() || !parts.is_empty() || self.trees.end_of_calls.is_some();
        out.push(Effect::Compute { round, x, update, parts, overlaps });
    }

    fn end_round(&mut self, round: Round, out: &mut Vec<Effect>) -> Result<(), Failure> {
        let done = round.0 + 1;
        let traffic = &mut self.transfer.traffic;
        traffic.dense += 4 * (self.parameters * self.topology.neighbours(self.id).len()) as u64;
        let traffic = *traffic;
        let evaluate = done.is_multiple_of(self.evaluate_every) || done == self.rounds;
        let model = evaluate.then(|| self.current());
        let mean = rule(&mut self.rule).take_mean();
        let (members, loss) = (self.topology.nodes(), self.loss);
        out.push(Effect::RoundDone(RoundDone { round, members, loss, traffic, model, mean }));
        let due = self.snapshot_after.is_some_and(|after| after.0 == done || done == self.rounds);
        if due && self.flights.is_empty() && !self.program.is_computing() {
            self.snapshot_after = None;
            let snapshot = self.snapshot();
            // A run must be able to continue from it.
            self.growth.check(round, snapshot.model.as_ref().unwrap_or(&snapshot.x))?;
            for (_, kept) in &snapshot.rule.vectors {
                if kept.len() == self.parameters {
                    self.growth.check_kept(round, kept)?;
                }
            }
            out.push(Effect::Snapshot(Box::new(snapshot)));
        }
        Ok(())
    }
}

const RULE: &str = "the rule is there until the rounds are over";
const PARTS: &str = "a rule whose plan has parts lends them";

/// The rule, which exists until the rounds are over.
fn rule(rule: &mut Option<Box<dyn Rule>>) -> &mut dyn Rule {
    &mut **rule.as_mut().expect(RULE)
}
