//! The rounds of one node: the core, whom it waits for, and when checkpoints are written.
//!
//! * Upon frames, gradients and all else that the core knows: [`gossip::Node`] takes it. Its
//!   snapshots become checkpoints; its other effects are the driver's.
//! * Upon an initial model from the tree: this node says which one. Its first gradient is used once
//!   all nodes have got the same.
//! * Upon a neighbour whose program was started again: all go back to a checkpoint.
//! * Upon a link that does not return, or a neighbour that leaves: members are chosen again if the
//!   run may continue without it; otherwise the core ends with that reason. What a neighbour says
//!   of others, or of all, is its own affair: it does not continue.
//! * Upon [`Statements`] that prove that a neighbour has broken the protocol: the rounds end
//!   because of it. A neighbour that makes none is late.
//! * Upon a node of another membership: a member chooses members again. Another one takes part
//!   after the next checkpoint that all members have.
//! * Upon a tick: schedules checkpoints, says for whom this node waits, and waits no longer than
//!   [`Patience`] allows.

use std::{collections::BTreeSet, time::Instant};

use super::{
    checkpoints::Checkpointing,
    effect::{Effect, Facts, Remains, Restored},
    event::Event,
    message::{Beginning, Origin},
    part::Part,
    seal::{self, Given},
    statements::{Batch, Said, Shared, Statements},
    waiting::{
        limits::{ANSWER, Limits, OTHERS_DECIDE, WARNING_INTERVAL},
        pace::{self, Meter},
        patience::{Patience, Seen, Verdict},
    },
};
use crate::{
    drive::{Absence, Change, RunError, Waiting},
    gossip::{self, Input, Node, NodeConfig, Rejoin, snapshot::Snapshot},
    run::checkpoint::Written,
    units::{NodeId, Round},
};

/// A node in the rounds.
pub(crate) struct Rounds {
    node: Node,
    saves: Option<Checkpointing>,
    statements: Statements,
    /// The neighbours that have not signed that they begin where this node does, and their frames.
    not_begun: BTreeSet<NodeId>,
    held: Vec<(NodeId, Event)>,
    limits: Limits,
    patience: Patience,
    meter: Meter,
    /// When it last said why other nodes cannot be reached.
    told: Instant,
    /// Whether something has come since the last tick that shows progress.
    moves: bool,
    /// The neighbours whose links are lost.
    lost: BTreeSet<NodeId>,
    /// Which node was the first to go back, as a neighbour says that has.
    because: Option<Origin>,
    /// A neighbour that does not say what it has in common with its neighbours.
    late: Option<NodeId>,
    /// For whom this node waited at the last look, and the nodes at the ends of the chains.
    chain: Option<(Instant, Vec<NodeId>, Vec<NodeId>)>,
    /// The changes of the members so far.
    history: Vec<Change>,
    effects: Vec<gossip::Effect>,
    /// Identifies the initial model that has come over the tree, until all nodes have signed that
    /// the same came to them; and what comes of the first gradient meanwhile.
    initial: Option<[u8; 16]>,
    first: Vec<Input>,
    /// The neighbours on the way to nodes to which something else came over the tree, or nothing
    /// yet.
    unequal: BTreeSet<NodeId>,
    /// The model that a core that has failed was about to lend.
    lent: Option<Vec<f32>>,
    /// Identifies the results, once they are formed.
    written: Option<Written>,
    /// What has come over the tree to this node, if nodes sign that.
    given: Option<Given>,
    is_finished: bool,
}

/// The core of a node that begins there, or continues.
fn core(config: NodeConfig, at: &Beginning, restored: Option<Restored>) -> Node {
    if !at.from_mean {
        return match restored {
            Some(Restored { snapshot, .. }) => Node::resume(config, snapshot),
            None => Node::new(config),
        };
    }
    let all = (0..config.topology.nodes()).map(NodeId::from);
    let givers = all.filter(|node| !at.without.contains(node)).collect();
    let rejoin = Rejoin { rounds: Round(at.rounds), givers, ..Rejoin::default() };
    let rejoin = match restored {
        // It has returned: what it has sent before counts.
        Some(Restored { snapshot, .. }) if at.without.contains(&config.id) => {
            Rejoin { traffic: snapshot.traffic, ..rejoin }
        }
        Some(Restored { snapshot, merged }) => {
            let traffic = snapshot.traffic;
            Rejoin { own: Some(snapshot.into_model()), merged, traffic, ..rejoin }
        }
        None => rejoin,
    };
    Node::rejoin(config, rejoin)
}

impl Rounds {
    /// A node that begins there now, or continues; `saves` are its checkpoints, if it writes any.
    /// With a signer it signs its record, and compares the vectors of its neighbours with what they
    /// have signed.
    pub(crate) fn new(
        now: Instant,
        config: NodeConfig,
        (at, restored): (Beginning, Option<Restored>),
        (saves, mut statements): (Option<Checkpointing>, Statements),
        limits: Limits,
    ) -> Rounds {
        statements.begin(at.place());
        let not_begun = config.topology.neighbours(config.id).iter().copied().collect();
        let kept = restored.as_ref().filter(|_| !at.from_mean);
        let merged = kept.map_or(&[][..], |kept| &kept.merged);
        let given = config.signer.is_some().then(|| Given { setup: Given::setup(merged), mean: 0 });
        Rounds {
            given,
            node: core(config, &at, restored),
            saves,
            statements,
            not_begun,
            held: Vec::new(),
            limits,
            patience: Patience::new(now, 0),
            meter: Meter::new(now),
            told: now,
            moves: true,
            lost: BTreeSet::new(),
            because: None,
            late: None,
            chain: None,
            history: at.history,
            effects: Vec::new(),
            initial: None,
            first: Vec::new(),
            unequal: BTreeSet::new(),
            lent: None,
            written: None,
            is_finished: false,
        }
    }

    /// Begins, with the frames that came before.
    ///
    /// # Errors
    /// Why the rounds end at once.
    pub(crate) fn start(
        &mut self,
        part: &Part<'_>,
        early: Vec<Event>,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        out.extend(self.statements.tell_now().map(Effect::Tell));
        self.not_begun.retain(|peer| !self.statements.begins_here(*peer));
        if let Some(first) = self.saves.as_ref().and_then(Checkpointing::first) {
            self.feed(part, Input::Snapshot(first), out)?;
        }
        for event in early {
            self.event(part, event, out)?;
        }
        self.feed(part, Input::Start, out)
    }

    /// What is left when the rounds have ended early.
    pub(crate) fn into_remains(self, part: &Part<'_>) -> Box<Remains> {
        let numbers = part.numbers.clone();
        let first = self.first.into_iter().find_map(Input::into_model);
        Box::new(Remains { node: self.node, lent: self.lent.or(first), numbers })
    }

    /// What identifies the results, and what nodes have said, when the rounds are over.
    pub(crate) fn into_results(self) -> (Option<Written>, Statements) {
        (self.written, self.statements)
    }

    /// Whether the records of all nodes are there.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(crate) fn round(&self) -> Round {
        self.node.round()
    }

    /// Which node was the first to go back, as the neighbour says that has ended the rounds.
    pub(crate) fn because(&mut self) -> Option<Origin> {
        self.because.take()
    }

    /// Whether all members have had a checkpoint since these rounds began.
    pub(crate) fn has_advanced(&self) -> bool {
        self.saves.as_ref().is_some_and(Checkpointing::has_advanced)
    }

    /// The nodes that have returned, and take part when members are chosen again.
    pub(crate) fn returned(&self) -> &[NodeId] {
        self.saves.as_ref().map_or(&[], Checkpointing::returned)
    }

    /// The first of these nodes for which this node waits itself.
    pub(crate) fn awaited(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let mut awaits = self.awaits();
        awaits.extend(self.late);
        nodes.iter().copied().find(|node| awaits.contains(node))
    }

    /// The first node for which this node waits itself.
    pub(crate) fn first_awaited(&self) -> Option<NodeId> {
        self.awaits().first().copied()
    }

    fn awaits(&self) -> Vec<NodeId> {
        match self.unequal.is_empty() {
            true => self.node.waiting_for().map_or(Vec::new(), |(_, peers)| peers),
            false => self.unequal.iter().copied().collect(),
        }
    }

    /// Compares what has come over the tree to this node with what the others have signed, and
    /// begins once it is the same.
    ///
    /// # Errors
    /// If a neighbour in the tree is at fault.
    fn agree(&mut self, part: &Part<'_>) -> Result<(), RunError> {
        let Some(own) = self.initial else { return Ok(()) };
        let signed = |node| self.statements.initial(node);
        let unequal = seal::unequal(part, signed, own, |_| "initial model");
        let failed = |failure| RunError::Failed { node: part.id, failure };
        self.unequal = seal::ways(part, &unequal.map_err(failed)?);
        self.initial = self.initial.filter(|_| !self.unequal.is_empty());
        Ok(())
    }

    /// Upon what has come of an effect of the core.
    ///
    /// # Errors
    /// Why the rounds end.
    pub(crate) fn input(
        &mut self,
        part: &Part<'_>,
        input: Input,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        self.moves = true;
        let input = match (input, self.given) {
            (Input::Record(record), Some(given)) => Input::Record(seal::seal(given, record)),
            (input, _) if self.initial.is_some() && input.is_of_gradient() => {
                self.first.push(input);
                return Ok(());
            }
            (input, _) => input,
        };
        self.feed(part, input, out)
    }

    /// Passes an input to the core, and on what the driver performs.
    ///
    /// # Errors
    /// Why the rounds end.
    fn feed(
        &mut self,
        part: &Part<'_>,
        input: Input,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            self.node.handle(input, &mut self.effects);
            let mut effects = std::mem::take(&mut self.effects).into_iter();
            while let Some(effect) = effects.next() {
                match effect {
                    gossip::Effect::Shared { round, flight, of, fingerprint } => {
                        let vector = Shared { round: round.0, flight, fingerprint };
                        if let Err(error) = self.share(part, of, vector, out) {
                            self.lent = lent(effects);
                            return Err(error);
                        }
                    }
                    gossip::Effect::Snapshot(snapshot) => {
                        next = self.write(snapshot, out).map(Input::Snapshot);
                    }
                    gossip::Effect::Prepared(merged) => {
                        if let Some(given) = &mut self.given {
                            given.setup = Given::setup(&merged);
                        }
                        out.push(Effect::Core(gossip::Effect::Prepared(merged)));
                    }
                    // Between the nodes of one process nobody signs anything.
                    gossip::Effect::Initial { .. } if self.given.is_none() => {}
                    gossip::Effect::Initial { fingerprint } => {
                        self.initial = Some(fingerprint);
                        self.statements.say(Said::Initial(fingerprint));
                        out.extend(self.statements.tell_now().map(Effect::Tell));
                        if let Err(error) = self.agree(part) {
                            self.lent = lent(effects);
                            return Err(error);
                        }
                    }
                    gossip::Effect::Finished(records) => self.finish(part, records, out)?,
                    gossip::Effect::Failed(failure) => {
                        self.lent = lent(effects);
                        return Err(RunError::Failed { node: part.id, failure });
                    }
                    gossip::Effect::Conclude { own, mean } => {
                        let written = Written::of(&mean, &self.history);
                        if let Some(given) = &mut self.given {
                            given.mean = written.number;
                        }
                        self.written = Some(written);
                        out.push(Effect::Core(gossip::Effect::Conclude { own, mean }));
                    }
                    effect => out.push(Effect::Core(effect)),
                }
            }
        }
        Ok(())
    }

    /// The records of all nodes are there. If other things came to some nodes over the tree, this
    /// node waits for those that find who is at fault.
    ///
    /// # Errors
    /// If a neighbour in the tree is at fault.
    fn finish(
        &mut self,
        part: &Part<'_>,
        records: Vec<Vec<u8>>,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        let opened = match self.given {
            Some(given) => seal::open(part, given, &records),
            None => Ok((records, Vec::new())),
        };
        let failed = |failure| RunError::Failed { node: part.id, failure };
        let (records, unequal) = opened.map_err(failed)?;
        self.unequal = seal::ways(part, &unequal);
        if !self.unequal.is_empty() {
            return Ok(());
        }
        self.is_finished = true;
        if let Some(by) = self.node.ended_by().filter(|by| *by != part.id) {
            let (name, round) = (part.name(by), self.node.round());
            let text = format!("node {name} has ended the run after round {round}");
            out.push(Effect::Warn(text));
        }
        let history = std::mem::take(&mut self.history);
        out.push(Effect::Results { records, history });
        Ok(())
    }

    /// A node and its neighbours have this vector in common. Between the nodes of one process
    /// nobody says so.
    fn share(
        &mut self,
        part: &Part<'_>,
        of: NodeId,
        vector: Shared,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        match (self.given, of == part.id) {
            (None, _) => {}
            (Some(_), true) => {
                self.statements.say(Said::Shared(vector));
                // At once: the next gradient may take long, and the neighbours have the frame.
                out.extend(self.statements.tell_now().map(Effect::Tell));
            }
            (Some(_), false) => {
                let seen = self.statements.see(of, vector);
                seen.map_err(|failure| RunError::Failed { node: part.id, failure })?;
            }
        }
        Ok(())
    }

    /// Writes a checkpoint, if this is one, and returns after which round the next one is due.
    fn write(&mut self, snapshot: Box<Snapshot>, out: &mut Vec<Effect>) -> Option<Round> {
        let (stamp, next) = self.saves.as_ref()?.stamp(snapshot.rounds.0)?;
        out.push(Effect::Write { snapshot, stamp });
        Some(next)
    }

    /// Upon an event of the links, the learner or the disk.
    ///
    /// # Errors
    /// Why the rounds end.
    pub(crate) fn event(
        &mut self,
        part: &Part<'_>,
        event: Event,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        // What a neighbour only says is no progress: it could say so all the time.
        self.moves |= matches!(
            event,
            Event::Frame { .. }
                | Event::Piece { .. }
                | Event::Taken(_)
                | Event::Computed(_)
                | Event::Durable(_)
        );
        let input = match event {
            Event::Frame { from, .. } | Event::Piece { from, .. }
                if self.not_begun.contains(&from) =>
            {
                self.held.push((from, event));
                return Ok(());
            }
            Event::Frame { from, bytes } => Input::Frame { from, bytes },
            Event::Piece { from, length, bytes } => Input::Piece { from, length, bytes },
            Event::Taken(peer) => Input::Taken(peer),
            Event::Computed(input) => return self.input(part, input, out),
            Event::Restarted { peer, because } => {
                self.because = because;
                return Err(RunError::Restarted(peer));
            }
            Event::Told { from, batch } => return self.hear(part, from, batch, out),
            Event::Rival { peer, text } => return Err(part.rival(peer, &text)),
            Event::OtherMembership { peer, .. } => return self.meet(part, peer, out),
            Event::Goodbye(peer) if self.node.owes_its_model() && self.limits.may_continue => {
                return Err(RunError::Absent(Absence::of(peer)));
            }
            Event::Goodbye(peer) if self.node.owes_its_model() => {
                let round = self.node.round();
                let reason = format!("it said goodbye in round {round}, before the run was over");
                Input::LinkDown { peer, reason }
            }
            Event::Down { peer, reason } => {
                let lost = Effect::LinkLost { peer: part.number(peer), reason: reason.clone() };
                out.push(lost);
                if self.limits.may_continue {
                    return Err(RunError::Absent(Absence::of(peer)));
                }
                Input::LinkDown { peer, reason }
            }
            Event::Left { peer, cause } => {
                let number = part.number(peer);
                if self.limits.may_continue && !cause.leaves {
                    out.push(Effect::Warn(format!(
                        "node {} cannot continue: {}",
                        part.name(peer),
                        cause.text
                    )));
                }
                out.push(Effect::LinkLost { peer: number, reason: cause.text.clone() });
                if self.limits.may_continue {
                    return Err(RunError::Absent(Absence::of(peer)));
                }
                Input::Left { peer, cause }
            }
            other => {
                self.note(part, other, out);
                return Ok(());
            }
        };
        self.feed(part, input, out)
    }

    /// Upon statements. A neighbour's frames are used once it has signed that it begins where this
    /// node does. If a later report moves that place, this node goes back.
    ///
    /// # Errors
    /// Why the rounds end.
    fn hear(
        &mut self,
        part: &Part<'_>,
        from: NodeId,
        batch: Batch,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        let heard = self.statements.hear(from, batch);
        heard.map_err(|failure| RunError::Failed { node: part.id, failure })?;
        if let Some(node) = self.statements.take_report()
            && let Some(gathered) = self.statements.gathered(part.topology())
            && !self.statements.has_begun_at(gathered.decide(part).place())
        {
            self.because = self.statements.report_of(node).map(|report| report.because.clone());
            return Err(RunError::Restarted(node));
        }
        self.agree(part)?;
        if self.initial.is_none() {
            let first = std::mem::take(&mut self.first);
            first.into_iter().try_for_each(|input| self.feed(part, input, out))?;
        }
        let begun = self.not_begun.iter().filter(|peer| self.statements.begins_here(**peer));
        for peer in begun.copied().collect::<Vec<_>>() {
            self.not_begun.remove(&peer);
            let (of_peer, others) =
                std::mem::take(&mut self.held).into_iter().partition(|(of, _)| *of == peer);
            self.held = others;
            let of_peer: Vec<(NodeId, Event)> = of_peer;
            of_peer.into_iter().try_for_each(|(_, event)| self.event(part, event, out))?;
        }
        Ok(())
    }

    /// Upon an event that does not concern the core.
    fn note(&mut self, part: &Part<'_>, event: Event, out: &mut Vec<Effect>) {
        match (event, &mut self.saves) {
            (Event::Lost { peer, reason }, _) => {
                out.push(Effect::Warn(format!(
                    "the link to {} is lost: {reason}; reconnecting",
                    part.name(peer)
                )));
                out.push(Effect::LinkLost { peer: part.number(peer), reason });
                self.lost.insert(peer);
            }
            (Event::Back { peer, absent, resent }, _) => {
                out.push(Effect::Warn(format!(
                    "the link to {} has returned after {:.1} s; frames sent again: {resent}",
                    part.name(peer),
                    absent.as_secs_f64()
                )));
                self.lost.remove(&peer);
                let links = part.topology().neighbours(part.id).len();
                let up = links - self.lost.len().min(links);
                out.push(Effect::Linked { peer: part.number(peer), up, links });
            }
            (Event::Durable(rounds), Some(saves)) => saves.saved(rounds, &mut self.statements),
            _ => {}
        }
    }

    /// Upon the visit of a node that takes part in another membership.
    fn meet(
        &mut self,
        part: &Part<'_>,
        peer: NodeId,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        if !self.limits.may_continue {
            return Ok(());
        }
        if part.is_member_neighbour(peer) {
            out.push(Effect::Info("members are chosen again".into()));
            return Err(RunError::Absent(Absence::default()));
        }
        if let Some(saves) = &mut self.saves
            && saves.note_return(peer)
        {
            out.push(Effect::Warn(format!(
                "node {} has returned: it takes part after the next checkpoint",
                part.name(peer)
            )));
        }
        Ok(())
    }

    /// Upon a tick.
    ///
    /// # Errors
    /// Why the rounds end.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        if std::mem::take(&mut self.moves) {
            self.patience.moved(facts.acted, facts.bytes);
        }
        let round = self.node.round();
        if let Some(saves) = &mut self.saves {
            let next = saves.look(now, round, &mut self.statements, out);
            out.extend(self.statements.tell(now).map(Effect::Tell));
            if let Some(next) = next {
                self.feed(part, Input::Snapshot(next), out)?;
            } else if let Some(returned) = saves.due() {
                return Err(RunError::Absent(Absence { returned, ..Absence::default() }));
            }
        }
        out.extend(self.statements.tell(now).map(Effect::Tell));
        let patience = self.limits.patience;
        let late = self.statements.late(now, round.0, &self.lost, patience);
        let mut late = late.map(|peer| (peer, patience, "what it has sent"));
        if self.limits.may_continue && late.is_none() {
            let (lost, most) = (&self.lost, ANSWER.max(patience / 2));
            let lacking = self.statements.lacking(now, part.topology(), lost, most);
            late = lacking.first().map(|peer| (*peer, most, "that it is linked"));
        }
        self.late = late.map(|(peer, ..)| peer);
        if let Some((peer, waited, what)) = late {
            let (name, seconds) = (part.name(peer), waited.as_secs_f64());
            let text = format!("node {name} has not signed for {seconds:.0} s {what}");
            return Err(RunError::Deadline { nodes: vec![peer], text });
        }
        self.meter.add(facts.waited);
        if self.meter.is_due(now) {
            self.tell(now, part, facts, out);
        }
        if now >= self.told + WARNING_INTERVAL {
            self.told = now;
            if !facts.away.is_empty() {
                let number = |(node, why): &(NodeId, String)| (part.number(*node), why.clone());
                out.push(Effect::Away(facts.away.iter().map(number).collect()));
            }
        }
        match self.patience.is_due(now) {
            true => self.look(now, part, facts, out),
            false => Ok(()),
        }
    }

    /// Says for what this node waits, if it waits.
    ///
    /// # Errors
    /// If it waits no longer.
    fn look(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        let lost = !facts.missing.is_empty();
        let Facts { bytes, computing, at_work: beat, .. } = *facts;
        let since = self.patience.since();
        let verdict = self.patience.look(&Seen { now, bytes, lost, computing, beat }, &self.limits);
        let name = part.name(part.id);
        let (text, peers) = match verdict {
            Verdict::Quiet => return Ok(()),
            Verdict::Lost => {
                let (links, peers) = lost_links(part, facts);
                (format!("node {name} waits for {links}"), peers)
            }
            Verdict::Over(waited) if lost => {
                let (links, nodes) = lost_links(part, facts);
                let (waited, round) = (waited.as_secs_f64(), self.node.round());
                let text = format!(
                    "node {name} waited {waited:.1} s in round {round} for {links}, which carried \
                     nothing"
                );
                return Err(RunError::Deadline { nodes, text });
            }
            Verdict::Waits => self.waits("waits", now, part, facts, since),
            Verdict::Over(waited) => {
                let does = format!("waited {:.1} s", waited.as_secs_f64());
                let (text, nodes) = self.waits(&does, now, part, facts, since);
                let is_other = self.awaited(&nodes).is_none();
                if !is_other || waited >= self.limits.patience + OTHERS_DECIDE {
                    return Err(RunError::Deadline { nodes, text });
                }
                return Ok(());
            }
        };
        out.push(Effect::Warn(text.clone()));
        out.push(Effect::Waits(Waiting { peers: part.all_numbers(peers), text }));
        Ok(())
    }

    /// Describes what the core does, for whom it waits, and for whom those wait; returns the nodes
    /// at the ends of the chains, too. Nothing has moved since `progress`.
    fn waits(
        &mut self,
        does: &str,
        now: Instant,
        part: &Part<'_>,
        facts: &Facts,
        progress: Instant,
    ) -> (String, Vec<NodeId>) {
        let (name, round) = (part.name(part.id), self.node.round());
        let peers = self.awaits();
        if peers.is_empty() {
            return (format!("node {name} {does} in round {round}"), Vec::new());
        }
        let chain = facts.paces.chain(part.id, &peers);
        let mut text = format!("node {name} {does} in round {round} for {}", part.names(&peers));
        for pair in chain.windows(2) {
            text += &format!("; {} waits for {}", part.name(pair[0]), part.name(pair[1]));
        }
        let Some(&last) = chain.last() else { return (text, peers) };
        let heard = facts.heard.get(&last).filter(|alive| {
            alive.when > progress
                && now.saturating_duration_since(alive.when) < self.limits.patience
        });
        text += &match heard {
            Some(alive) if alive.absent => format!("; {} waits for a lost link", part.name(last)),
            Some(_) => format!("; {} is computing", part.name(last)),
            None if chain.len() > 1 => format!("; {} gives no sign of work", part.name(last)),
            None => String::new(),
        };
        // The others that this node waits for may have causes of their own. In a circle one says so
        // falsely: the neighbours of that one know.
        if chain.len() > 1 {
            let ends = if facts.paces.waits(last) { Vec::new() } else { vec![last] };
            self.chain = Some((now, peers, ends.clone()));
            return (text, ends);
        }
        // A neighbour that has waited as long may have given up just now.
        match &self.chain {
            Some((when, before, ends))
                if *before == peers && now < *when + 2 * WARNING_INTERVAL =>
            {
                (text, ends.clone())
            }
            _ => (text, peers),
        }
    }

    /// Tells the others for whom this node waits, and notices a node that holds the run up.
    fn tell(&mut self, now: Instant, part: &Part<'_>, facts: &Facts, out: &mut Vec<Effect>) {
        let waited = now.saturating_duration_since(self.patience.since());
        let waits_for = if !facts.missing.is_empty() {
            facts.missing.iter().map(|(peer, _)| *peer).collect()
        } else if waited < pace::TOLD || facts.computing {
            Vec::new()
        } else {
            self.awaits()
        };
        let slow = self.meter.turn(now, self.node.round().0, &facts.paces);
        out.push(Effect::Pace { waits_for, share: self.meter.share() });
        if let Some((node, share)) = slow {
            let name = part.name(node);
            let text = format!(
                "node {name} holds the run up: it works all the time, and the others wait for \
                 {share} % of theirs; it is slower than they are, or has more to do"
            );
            out.push(Effect::Warn(text.clone()));
            out.push(Effect::Waits(Waiting { peers: vec![part.number(node)], text }));
        }
    }
}

/// The model that the core was about to lend.
fn lent(mut effects: impl Iterator<Item = gossip::Effect>) -> Option<Vec<f32>> {
    effects.find_map(|effect| match effect {
        gossip::Effect::Compute { x, .. } => Some(x),
        _ => None,
    })
}

/// Lost links in words, and their nodes.
fn lost_links(part: &Part<'_>, facts: &Facts) -> (String, Vec<NodeId>) {
    let trouble =
        |(peer, text): &(NodeId, String)| format!("the link to {} ({text})", part.name(*peer));
    let links = facts.missing.iter().map(trouble).collect::<Vec<_>>().join(", ");
    (links, facts.missing.iter().map(|(peer, _)| *peer).collect())
}
