//! The node under test with its disk, its links and its learner.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{checks::Checks, disk::Disk, peers::Peers};
use crate::{
    cluster::{
        Cluster, Effect, Facts, Input, Keeps, Opened, Opening, Outcome, Restored, Terms,
        event::Event,
        members::{assembly::News, keys::Named},
        message::{Beginning, CheckpointId, CheckpointSchedule, Saved, Stamp},
        part::Adjacent,
        statements::{Batch, Said, Statement},
        waiting::{
            limits::Limits,
            pace::{Alive, Pace, Paces},
        },
    },
    drive::{Membership, RunError},
    gossip::{
        self, UpdatePart,
        snapshot::Snapshot,
        tree::{Readers, Setup},
    },
    run::{
        Checkpoint, Design,
        checkpoint::{Every, Written},
    },
    units::{NodeId, Round},
};

/// The files of a run.
pub(super) struct Run {
    pub design: Arc<Design>,
    pub setups: Vec<Option<Setup>>,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    pub up: bool,
    /// Whether it was lost after the run had begun.
    pub lost: bool,
    /// It has ended: nothing comes until other links are opened.
    pub over: bool,
    /// The frames that were sent and have not left.
    pub sent: u32,
}

/// What the node does, as far as its effects show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Meets,
    Rounds,
    HasResults,
    Chooses,
    Closes,
    Over,
}

/// A gradient that is being computed.
pub(super) struct Gradient {
    pub round: Round,
    pub x: Vec<f32>,
    pub update: Vec<f32>,
    pub parts: Vec<UpdatePart>,
}

/// The node under test and all around it.
pub(super) struct Table {
    pub run: &'static Run,
    pub me: NodeId,
    /// The neighbour that says anything.
    pub hostile: NodeId,
    cluster: Option<Cluster<'static>>,
    pub stage: Stage,
    pub now: Instant,
    pub disk: Disk,
    /// By the neighbours' numbers in the topology of the run.
    pub links: BTreeMap<NodeId, End>,
    /// The neighbours as the links that are open know them.
    opened: Vec<Adjacent>,
    /// How many members there were when these links were opened, and the id of their membership.
    met: (usize, u64),
    pub peers: Peers,
    pub checks: Checks,
    /// The nodes of the run that are there.
    pub present: BTreeSet<NodeId>,
    pub gradient: Option<Gradient>,
    /// The rounds of checkpoints that are being written.
    pub writes: VecDeque<u64>,
    inputs: VecDeque<Input>,
    setup: Vec<u8>,
    mean: Vec<f32>,
    /// Its checkpoints when its links were opened last.
    pub saved: Saved,
    pub round: u64,
    /// Identifies the place at which the rounds begin.
    pub begins: u64,
    /// Identifies the initial model that has come to the node, if it has signed one.
    pub initial: Option<[u8; 16]>,
    pub schedule: CheckpointSchedule,
    pub paces: Paces,
    /// What the facts of the next tick say.
    pub waited: Duration,
    pub at_work: Option<Alive>,
    pub host: bool,
    pub bytes: u64,
}

impl Table {
    /// A node that starts for the first time.
    pub(super) fn new(run: &'static Run, me: NodeId) -> Table {
        let now = Instant::now();
        let mut table = Table {
            run,
            me,
            hostile: me,
            cluster: None,
            stage: Stage::Over,
            now,
            disk: Disk::default(),
            links: BTreeMap::new(),
            opened: Vec::new(),
            met: (0, 0),
            peers: Peers::default(),
            checks: Checks::default(),
            present: (0..run.design.topology.nodes()).map(NodeId::from).collect(),
            gradient: None,
            writes: VecDeque::new(),
            inputs: VecDeque::new(),
            setup: Vec::new(),
            mean: Vec::new(),
            saved: Saved::default(),
            round: 0,
            begins: 0,
            initial: None,
            schedule: CheckpointSchedule::default(),
            paces: Paces::default(),
            waited: Duration::ZERO,
            at_work: None,
            host: false,
            bytes: 0,
        };
        table.start();
        table
    }

    /// The least number of members, before the run has started and after that.
    fn quorums(&self) -> [usize; 2] {
        let (experiment, nodes) = (&self.run.design.experiment, self.run.design.topology.nodes());
        let first = experiment.run.start.quorum().map_or(nodes, |quorum| quorum as usize);
        [first, experiment.absence.quorum_of(nodes)]
    }

    /// The program starts, or is killed and starts again.
    pub(super) fn start(&mut self) {
        // It has its results, and all others have theirs.
        if self.disk.results.is_some() && self.disk.checkpoints.is_empty() {
            return;
        }
        let Run { design, setups } = self.run;
        let config = design.node(self.me, setups[self.me.index()].clone(), Readers::Everyone);
        let keeps = Keeps {
            every: Every::of(design),
            last: None,
            used: self.disk.begun,
            written: self.disk.results.clone(),
            adopted: self.disk.membership.clone(),
        };
        let terms = Terms {
            limits: Limits::of(&design.experiment),
            keeps: Some(keeps),
            resumes: true,
            confirms: true,
            keys: Arc::new(Named(self.me)),
            program: 0,
        };
        self.inputs.clear();
        self.checks.newest = self.disk.membership.as_ref().map_or(0, |membership| membership.id);
        self.checks.is_over = false;
        let mut effects = Vec::new();
        let cluster = Cluster::new(self.now, design, config, terms, &mut effects);
        self.cluster = Some(cluster.expect("the run can continue with what it has recorded"));
        effects.into_iter().for_each(|effect| self.perform(effect));
        self.go_on();
    }

    /// A part of the cluster, which is there from the start on.
    fn cluster(&self) -> &Cluster<'static> {
        self.cluster.as_ref().expect("a program was started")
    }

    /// Its number among the members, and how many there are.
    pub(super) fn place(&self) -> (NodeId, usize) {
        let part = self.cluster().part();
        (part.id, part.membership.members.len())
    }

    pub(super) fn membership(&self) -> &Membership {
        &self.cluster().part().membership
    }

    pub(super) fn neighbours(&self) -> Vec<Adjacent> {
        self.cluster().part().neighbours.clone()
    }

    /// The number of every attempt: each begins with new links.
    pub(super) fn attempt(&self) -> u64 {
        1
    }

    /// The links of a member.
    pub(super) fn degree(&self, node: NodeId) -> usize {
        self.cluster().part().topology().neighbours(node).len()
    }

    /// The hostile neighbour's number among the members, if it is one.
    pub(super) fn hostile_place(&self) -> NodeId {
        self.membership().place(self.hostile).unwrap_or_default()
    }

    /// A statement of a member in its attempt.
    pub(super) fn signed(&self, node: NodeId, said: Said) -> Statement {
        let (number, id) = (self.number(node), self.membership().id);
        Statement::signed(&Named(number), (node, number), (id, self.attempt()), said)
    }

    /// A member whose link to this node is up.
    pub(super) fn linked_member(&mut self) -> Option<NodeId> {
        let used = self.neighbours().into_iter().filter(|peer| !peer.unused);
        let mut used = used.filter(|peer| self.present.contains(&peer.number)).collect::<Vec<_>>();
        used.retain(|peer| self.links.get(&peer.number).is_some_and(|end| end.up));
        used.first().map(|peer| peer.node)
    }

    /// The number of a member in the topology of the run.
    pub(super) fn number(&self, node: NodeId) -> NodeId {
        self.cluster().part().number(node)
    }

    /// Passes an input to the node, and performs what follows.
    pub(super) fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
        self.go_on();
    }

    fn go_on(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            let Some(cluster) = &mut self.cluster else { return };
            let mut effects = Vec::new();
            cluster.handle(self.now, input, &mut effects);
            self.checks.effects(&effects);
            effects.into_iter().for_each(|effect| self.perform(effect));
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.feed(Input::Event(event));
    }

    /// A neighbour passes on what nodes say, over a link that is up.
    pub(super) fn told(&mut self, peer: Adjacent, batch: Batch) {
        if self.connect(peer) {
            self.event(Event::Told { from: peer.node, batch });
        }
    }

    /// A neighbour says what it knows of the members. Links pass on nothing else.
    pub(super) fn say(&mut self, peer: Adjacent, news: News) {
        if !self.connect(peer) {
            return;
        }
        if self.stage == Stage::Chooses && news.is_valid(&self.run.design.topology) {
            self.checks.hear(&news);
            self.event(Event::Chooses { from: peer.node, news });
        }
    }

    /// The link to a neighbour comes up. Returns whether it is.
    pub(super) fn connect(&mut self, peer: Adjacent) -> bool {
        let end = self.links.entry(peer.number).or_default();
        if end.over || peer.unused {
            return false;
        }
        if std::mem::replace(&mut end.up, true) {
            return true;
        }
        let event = match std::mem::take(&mut end.lost) {
            true => Event::Back { peer: peer.node, absent: Duration::from_secs(1), resent: 1 },
            false => Event::Up(peer.node),
        };
        let before = self.checks.reached.inputs;
        self.event(event);
        // The links of a node that opens others are new.
        self.checks.reached.inputs > before
            && self.links.get(&peer.number).is_some_and(|end| end.up)
            && self.neighbours().contains(&peer)
    }

    /// Time passes, and the node gets a tick.
    pub(super) fn tick(&mut self, after: Duration) {
        let now = self.now.checked_add(after);
        self.now = now.unwrap_or(self.now);
        let mut facts = Facts::new(self.now);
        for peer in self.neighbours() {
            let end = self.links.get(&peer.number).copied().unwrap_or_default();
            match (end.up, peer.unused) {
                (true, _) => {}
                (false, false) => facts.missing.push((peer.node, "no answer".into())),
                (false, true) => facts.away.push((peer.node, "it is away".into())),
            }
        }
        facts.bytes = self.bytes;
        facts.computing = self.gradient.is_some();
        facts.waited = std::mem::take(&mut self.waited);
        facts.host = self.host.then(|| "no files".into());
        facts.at_work = self.at_work;
        facts.heard.extend(self.at_work.map(|alive| (alive.node, alive)));
        facts.paces = self.paces.clone();
        self.feed(Input::Tick(Box::new(facts)));
    }

    /// The gradient is computed, or fails.
    pub(super) fn computed(&mut self, kind: u8) {
        let Some(Gradient { round, x, mut update, parts }) = self.gradient.take() else { return };
        for (part, wanted) in (0..).zip(parts) {
            let input = gossip::Input::Part { round, part, values: wanted.values };
            self.event(Event::Computed(input));
        }
        update.fill(0.01);
        self.event(Event::Computed(match kind {
            0 => gossip::Input::ComputeFailed { x, reason: "no memory".into() },
            1 => gossip::Input::Diverged { round, x, loss: f64::NAN },
            _ => gossip::Input::Computed { round, x, update, loss: 1.0, step: 0.1, ends: false },
        }));
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Core(effect) => self.perform_core(effect),
            Effect::Open(opening) => self.open(&opening),
            Effect::SendNews { to, news } => self.send_news(to, news),
            Effect::Tell(all) => {
                let (all, (me, _)) = (all.statements.iter(), self.place());
                self.initial = all.clone().find_map(|(_, statement)| match statement.said {
                    Said::Initial(model) if statement.node == me => Some(model),
                    _ => None,
                });
                let mut schedules = all.filter_map(|(_, statement)| match statement.said {
                    Said::Schedule(schedule) => Some(schedule),
                    _ => None,
                });
                self.schedule = schedules.next_back().unwrap_or(self.schedule);
            }
            Effect::Pace { waits_for, share } => {
                let (me, _) = self.place();
                self.paces.set(me, Pace { waits_for, waiting: share });
            }
            Effect::Restore { at, node, .. } => {
                let restored = self.restore(&at, node);
                self.inputs.push_back(Input::Restored(restored));
            }
            Effect::Begin { at, node } => self.begin(&at, node),
            Effect::Write { snapshot, stamp } => self.write(*snapshot, stamp),
            Effect::Retain(rounds) => {
                let before = self.disk.checkpoints.len();
                self.disk.checkpoints.retain(|saved, _| *saved >= rounds);
                self.checks.retain(rounds, before, &self.disk);
            }
            Effect::Record(membership) => self.record(membership),
            Effect::Results { history, .. } => {
                self.disk.results = Some(Written::of(&self.mean, &history));
                self.checks.is_over = true;
                self.checks.reached.results += 1;
                self.stage = Stage::HasResults;
            }
            Effect::Clear { .. } => {
                self.checks.clear(&self.disk);
                self.disk.checkpoints.clear();
            }
            Effect::Close { .. } => self.stage = Stage::Closes,
            Effect::End(outcome) => {
                self.checks.reached.ends += 1;
                self.end(&outcome);
                self.stage = Stage::Over;
            }
            Effect::Salvage(_) => self.gradient = None,
            Effect::SaveNewest
            | Effect::Info(_)
            | Effect::Debug(_)
            | Effect::Warn(_)
            | Effect::Linked { .. }
            | Effect::LinkLost { .. }
            | Effect::Waits(_)
            | Effect::Away(_)
            | Effect::Resumes(_) => {}
        }
    }

    fn perform_core(&mut self, effect: gossip::Effect) {
        match effect {
            gossip::Effect::Send { to, frame } => {
                let peer = self.opened.iter().find(|peer| peer.node == to);
                let number = peer.expect("frames go to neighbours").number;
                self.links.entry(number).or_default().sent += 1;
                self.bytes += frame.len() as u64;
                self.peers.send(to, &frame);
            }
            gossip::Effect::Recycle { from, .. } => self.peers.recycled(from),
            gossip::Effect::Compute { round, x, update, parts, .. } => {
                self.gradient = Some(Gradient { round, x, update, parts });
            }
            gossip::Effect::Prepared(merged) => self.setup = merged,
            gossip::Effect::RoundDone(done) => {
                self.round = done.round.0;
                self.checks.reached.rounds += 1;
            }
            gossip::Effect::Conclude { mean, .. } => {
                self.mean = mean;
                self.inputs.push_back(Input::Core(gossip::Input::Record(vec![7; 8])));
            }
            gossip::Effect::Shared { .. } | gossip::Effect::Save(_) => {}
            gossip::Effect::Snapshot(_)
            | gossip::Effect::Initial { .. }
            | gossip::Effect::Finished(_)
            | gossip::Effect::Failed(_) => unreachable!("the cluster handles these"),
        }
    }

    fn open(&mut self, opening: &Opening) {
        self.links.clear();
        self.opened = self.neighbours();
        self.writes.clear();
        (self.gradient, self.bytes) = (None, 0);
        self.peers.forget();
        self.checks.reached.bans += opening.bans.len() as u64;
        for (number, ban) in &opening.bans {
            let over = ban.until > self.now;
            self.links.insert(*number, End { over, ..End::default() });
        }
        let Run { design, setups } = self.run;
        if opening.chooses {
            self.stage = Stage::Chooses;
            self.checks.choose();
            self.checks.started = self.disk.begun;
            self.peers.choose(&design.topology, self.quorums(), self.me);
            let newest = self.disk.checkpoints.keys().next_back().copied().unwrap_or(0);
            let has_started = self.disk.begun;
            let opened = Opened { has_started, newest, ..Opened::default() };
            return self.inputs.push_back(Input::Opened(Ok(opened)));
        }
        self.stage = Stage::Meets;
        self.peers.adopt(&opening.membership);
        self.met = (opening.membership.members.len(), opening.membership.id);
        let is_whole = opening.membership.is_whole(design.topology.nodes());
        let needs_setup = opening.resets || !is_whole;
        let setup = setups[self.me.index()].clone().filter(|_| needs_setup);
        let id = |(rounds, kept): (&u64, &Checkpoint)| {
            CheckpointId::new(kept.membership, *rounds, &kept.history)
        };
        let mut kept: Vec<CheckpointId> = self.disk.checkpoints.iter().map(id).collect();
        kept.sort_unstable();
        let newest = kept.last().and_then(|newest| self.disk.checkpoints.get(&newest.rounds));
        let mut saved = Saved { kept, ..Saved::default() };
        if let Some(Checkpoint { membership, common, history, .. }) = newest {
            saved.common = CheckpointId::within(*membership, *common, history);
            saved.history.clone_from(history);
            saved.kept.retain(|kept| kept.belongs_to(history));
        }
        self.saved.clone_from(&saved);
        let opened = Opened { attempt: self.attempt(), setup, saved, ..Opened::default() };
        self.inputs.push_back(Input::Opened(Ok(opened)));
    }

    /// The program ends.
    fn end(&self, outcome: &Outcome) {
        let Outcome::Failed(error) = outcome else { return };
        let is_over = match error {
            RunError::Over => true,
            RunError::Alone(text) => text.starts_with("the run is over"),
            _ => false,
        };
        if is_over {
            let others = self.peers.finished().iter().filter(|node| **node != self.hostile);
            let [_, quorum] = self.quorums();
            self.checks.over(others.count(), quorum);
        }
    }

    fn send_news(&mut self, to: NodeId, news: News) {
        // The node may know them by other numbers by now: those of the links count.
        let peer = self.opened.iter().find(|peer| peer.node == to).copied();
        let number = peer.expect("messages go to neighbours").number;
        assert!(news.is_valid(&self.run.design.topology), "{news:?}");
        if self.links.get(&number).is_some_and(|end| end.up) {
            self.peers.hear(number, news);
        }
    }

    fn restore(&mut self, at: &Beginning, node: NodeId) -> Result<Option<Restored>, RunError> {
        self.setup = Vec::new();
        if at.rounds == 0 || at.without.contains(&node) {
            return Ok(None);
        }
        let kept = self.disk.checkpoints.get(&at.rounds);
        let kept = kept.ok_or_else(|| RunError::Stuck("it is not there".into()))?;
        if !at.from_mean {
            self.setup.clone_from(&kept.setup);
        }
        Ok(Some(Restored { snapshot: kept.snapshot.clone(), merged: kept.setup.clone() }))
    }

    fn begin(&mut self, at: &Beginning, node: NodeId) {
        let ((_, id), [_, quorum]) = (self.met, self.quorums());
        let all = (0..self.run.design.topology.nodes()).map(NodeId::from);
        let has = |number: &NodeId| match *number {
            number if number == self.hostile => true,
            number if number == self.me => self.disk.checkpoints.contains_key(&at.rounds),
            number => self.peers.has(number, at.rounds),
        };
        let by_quorum = all.filter(has).count() >= quorum;
        self.checks.begin(&self.disk, node, by_quorum, id, at);
        let lacks = at.without.contains(&node);
        self.disk.checkpoints.retain(|saved, _| *saved == at.rounds && !lacks);
        self.disk.begun = true;
        (self.stage, self.round, self.begins) = (Stage::Rounds, at.rounds, at.place());
        self.schedule = CheckpointSchedule::default();
        self.paces = Paces::default();
        let part = self.cluster.as_ref().expect("a program was started").part();
        self.peers.begin(part, at, &self.run.setups);
    }

    fn write(&mut self, snapshot: Snapshot, stamp: Stamp) {
        self.checks.reached.writes += 1;
        if self.disk.full {
            return;
        }
        let rounds = snapshot.rounds.0;
        let Stamp { common, membership, history } = stamp;
        let setup = self.setup.clone();
        let kept =
            Checkpoint { snapshot, setup, common, membership, history, ..Checkpoint::default() };
        self.disk.checkpoints.insert(rounds, kept);
        self.checks.damaged = false;
        self.writes.push_back(rounds);
    }

    fn record(&mut self, membership: Membership) {
        let used = self.links.iter().filter(|(_, end)| end.up).map(|(number, _)| *number).collect();
        let topology = &self.run.design.topology;
        self.checks.record(topology, (self.me, &used), self.quorums(), &membership);
        let recorded = match self.disk.full {
            false => {
                self.disk.membership = Some(membership);
                Ok(())
            }
            true => Err(RunError::Host("the disk is full".into())),
        };
        self.inputs.push_back(Input::Recorded(recorded));
    }
}
