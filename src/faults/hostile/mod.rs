//! A hostile member: a program that says anything well-formed about itself and others, at any time.
//!
//! Its node performs the program of all others, so it has links, checkpoints and models. What it
//! sends is replaced, left out or followed by something else, on each link on its own; more comes
//! with its ticks. `grammar` makes the messages, one function for each kind.

mod grammar;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use self::grammar::Known;
use super::{
    schedule::DiskAfter,
    wire::{Happening, Message},
    world::World,
};
use crate::{
    cluster::{
        message::{CheckpointId, CheckpointSchedule, Origin},
        statements::Said,
    },
    gossip::{
        frame::{self, Header},
        plan::{At, LAST_CALL, SETUP, STOP},
    },
    rng::{Purpose, Sequence, Stream},
    units::{NodeId, Time},
};

const MILLI: u64 = 1_000_000;

/// What a hostile member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It names any checkpoints as its own.
    Reports,
    /// It says that any neighbours are linked with it.
    Links,
    /// It says that it begins at any place, or with any initial model.
    Begins,
    Initial,
    /// That it has any results.
    Written,
    /// Its own views with any links: of the newest membership, of a later one, and of the end.
    Views,
    RaisedViews,
    FinalViews,
    /// What it or others have said before.
    Echoes,
    /// That it has any checkpoint; a schedule, if it is the first member.
    Saved,
    Schedule,
    /// Another fingerprint of what it has sent.
    Vectors,
    /// Any state, and any nodes for which it waits.
    Records,
    Goodbyes,
    /// That it leaves, or cannot continue, because of any node.
    Leaves,
    /// Its program is started again.
    Restarts,
    /// The same, and it shows what another node has signed about a restart of its own, or anything
    /// that it signs itself.
    Blames,
    /// The same, and it takes part in another membership for a while.
    Visits,
    /// Its links stay open whatever the other end takes part in.
    Stays,
    /// Messages that it does not send.
    Silence,
    /// Another model of its own than the rule makes.
    Models,
    /// One with a number that is far too large.
    Huge,
    /// Its part of the spanning tree, from an earlier attempt.
    OldFrames,
}

/// All of them.
pub(super) const ALL: [Kind; 23] = [
    Kind::Reports,
    Kind::Links,
    Kind::Begins,
    Kind::Initial,
    Kind::Written,
    Kind::Views,
    Kind::RaisedViews,
    Kind::FinalViews,
    Kind::Echoes,
    Kind::Saved,
    Kind::Schedule,
    Kind::Vectors,
    Kind::Records,
    Kind::Goodbyes,
    Kind::Leaves,
    Kind::Restarts,
    Kind::Blames,
    Kind::Visits,
    Kind::Stays,
    Kind::Silence,
    Kind::Models,
    Kind::Huge,
    Kind::OldFrames,
];

/// The most messages that it remembers.
const MOST_HEARD: usize = 200;

/// A hostile member.
pub(super) struct Hostile {
    pub node: NodeId,
    /// What it does, once in so many messages and ticks, from this time on.
    kinds: Vec<Kind>,
    every: u64,
    since: Time,
    rng: Sequence,
    /// How often it has done each.
    pub times: BTreeMap<Kind, u64>,
    heard: Vec<Message>,
    /// The choice and the number of its newest view.
    number: (u64, u64),
    /// The first frame that it has sent to a neighbour in each place of the spanning tree.
    frames: BTreeMap<(NodeId, At), Arc<Vec<u8>>>,
    /// Until when it takes part in another membership.
    visits: Option<Time>,
    /// What it shows as the cause of its restart.
    blames: Option<Origin>,
}

impl Hostile {
    /// A node that does these things from this time on, once in so many occasions.
    pub(super) fn new(
        node: NodeId,
        kinds: Vec<Kind>,
        (since, every): (Time, u64),
        seed: u64,
    ) -> Hostile {
        let rng = Stream::new(seed, Purpose::Fault).with(1).sequence();
        Hostile {
            node,
            kinds,
            every,
            since,
            rng,
            times: BTreeMap::new(),
            heard: Vec::new(),
            number: (0, 0),
            frames: BTreeMap::new(),
            visits: None,
            blames: None,
        }
    }

    /// What it does on this occasion, if anything.
    fn draw(&mut self, now: Time) -> Option<Kind> {
        if now < self.since || self.rng.below(self.every) > 0 {
            return None;
        }
        let which = self.rng.below(self.kinds.len() as u64) as usize;
        Some(self.kinds[which])
    }

    fn count(&mut self, kind: Kind) {
        *self.times.entry(kind).or_default() += 1;
    }

    fn does(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    fn remember(&mut self, message: &Message) {
        if let Message::Chooses(news) = message {
            let own = news.views.iter().filter(|(node, _)| *node == self.node);
            let numbers = own.map(|(_, view)| (view.choice, view.number));
            self.number = numbers.fold(self.number, Ord::max);
        }
        if self.does(Kind::Echoes) && !matches!(message, Message::Goodbye(_)) {
            let at = self.heard.len();
            match at < MOST_HEARD {
                true => self.heard.push(message.clone()),
                false => {
                    let at = self.rng.below(at as u64) as usize;
                    self.heard[at] = message.clone();
                }
            }
        }
    }

    /// A frame as it sends it.
    pub(super) fn frame(&mut self, to: NodeId, frame: Arc<Vec<u8>>, now: Time) -> Arc<Vec<u8>> {
        let (header, payload) = frame::read(&frame);
        let in_tree = header.at.flight >= SETUP && header.at.flight != STOP;
        if in_tree && self.does(Kind::OldFrames) {
            let old = self.frames.entry((to, header.at)).or_insert_with(|| frame.clone()).clone();
            if old != frame && self.draw(now) == Some(Kind::OldFrames) {
                self.count(Kind::OldFrames);
                return old;
            }
        }
        let of_model = header.at.flight < LAST_CALL && !payload.is_empty();
        let of_it = |kind: &Kind| matches!(kind, Kind::Models | Kind::Huge);
        let drawn = (of_model && self.kinds.iter().any(of_it)).then(|| self.draw(now)).flatten();
        let Some(kind) = drawn.filter(of_it) else { return frame };
        self.count(kind);
        let mut changed = Arc::unwrap_or_clone(frame);
        // The sign of one number, or all of it; a bit of a compressed one.
        let numbers = (changed.len() - frame::HEADER).div_ceil(4) as u64;
        let number = self.rng.below(numbers) as usize;
        let last = (frame::HEADER + 4 * number + 3).min(changed.len() - 1);
        match kind {
            Kind::Huge if last + 1 >= frame::HEADER + 4 => {
                changed[last - 3..=last].copy_from_slice(&1e30f32.to_le_bytes());
            }
            _ => changed[last] ^= 0x80,
        }
        frame::seal(&Header { replica: None, ..header }, None, &mut changed);
        Arc::new(changed)
    }
}

impl World<'_> {
    /// A message as the hostile member sends it, if it does.
    pub(super) fn hostile_says(
        &mut self,
        wire: usize,
        side: usize,
        message: Message,
    ) -> Option<Message> {
        let now = self.now();
        let Some(hostile) = self.hostile.as_mut() else { return Some(message) };
        if hostile.node != self.wires[wire].ends[side] {
            return Some(message);
        }
        hostile.remember(&message);
        match hostile.draw(now) {
            None => Some(message),
            Some(Kind::Silence) => {
                hostile.count(Kind::Silence);
                None
            }
            Some(kind) => match self.hostile_message(kind, wire, side) {
                // It says both, or this in place of that.
                Some(other) => {
                    let is_both = self.hostile.as_mut().is_some_and(|it| it.rng.below(2) == 0);
                    if is_both {
                        self.carry(wire, side, message);
                    }
                    Some(other)
                }
                None => Some(message),
            },
        }
    }

    pub(super) fn is_hostile(&self, node: NodeId) -> bool {
        self.hostile.as_ref().is_some_and(|hostile| hostile.node == node)
    }

    /// Whether these ends do not connect because they take part in different memberships.
    pub(super) fn hostile_meets(&self, ends: [NodeId; 2], is_other: bool) -> bool {
        let now = self.now();
        match self.hostile.as_ref().filter(|hostile| ends.contains(&hostile.node)) {
            Some(hostile) if hostile.visits.is_some_and(|until| now < until) => true,
            Some(hostile) => is_other && !hostile.does(Kind::Stays),
            None => is_other,
        }
    }

    /// What a node shows as the cause of its restart, if it is the hostile one.
    pub(super) fn hostile_blames(&self, node: NodeId) -> Option<Origin> {
        self.hostile.as_ref().filter(|hostile| hostile.node == node)?.blames.clone()
    }

    /// A frame as a node sends it.
    pub(super) fn hostile_frame(
        &mut self,
        node: NodeId,
        to: NodeId,
        frame: Arc<Vec<u8>>,
    ) -> Arc<Vec<u8>> {
        let now = self.now();
        match self.hostile.as_mut().filter(|hostile| hostile.node == node) {
            Some(hostile) => hostile.frame(to, frame, now),
            None => frame,
        }
    }

    /// The hostile member hears a message.
    pub(super) fn hostile_hears(&mut self, node: NodeId, message: &Message) {
        if let Some(hostile) = self.hostile.as_mut().filter(|hostile| hostile.node == node) {
            hostile.remember(message);
        }
    }

    /// The hostile member gets a tick.
    pub(super) fn hostile_tick(&mut self, node: NodeId) {
        let now = self.now();
        if !self.is_hostile(node) {
            return;
        }
        for (wire, side) in self.wires_of(node) {
            let drawn = self.hostile.as_mut().and_then(|hostile| hostile.draw(now));
            match drawn {
                None => {}
                Some(kind @ (Kind::Restarts | Kind::Blames | Kind::Visits)) => {
                    return self.hostile_restarts(kind);
                }
                Some(kind) if self.wires[wire].connection.is_some() => {
                    self.hostile_acts(kind, wire, side);
                }
                Some(_) => {}
            }
        }
    }

    fn hostile_acts(&mut self, kind: Kind, wire: usize, side: usize) {
        let node = self.wires[wire].ends[side];
        match kind {
            Kind::Records => {
                let design = &self.whole.design;
                let Some(hostile) = &mut self.hostile else { return };
                let rounds = design.experiment.run.rounds;
                let record = grammar::record(&mut hostile.rng, &design.topology, rounds);
                let now = self.instant();
                let Some(program) = &mut self.machines[node.index()].program else { return };
                program.waits_for.clone_from(&record.waits_for);
                program.board.say(now, record);
                let told = &mut self.wires[wire].sides[side].told_records;
                let news = program.board.news(now, told);
                self.carry(wire, side, Message::Records(news));
                self.count_lie(kind);
            }
            kind => {
                if let Some(message) = self.hostile_message(kind, wire, side) {
                    self.carry(wire, side, message);
                }
            }
        }
    }

    fn count_lie(&mut self, kind: Kind) {
        if let Some(hostile) = &mut self.hostile {
            hostile.count(kind);
        }
    }

    /// Its program is started again.
    fn hostile_restarts(&mut self, kind: Kind) {
        let now = self.now();
        let nodes = self.machines.len();
        let programs = self.machines.iter().filter_map(|machine| machine.program.as_ref());
        let shown: Vec<Origin> = programs.filter_map(|program| program.because.clone()).collect();
        let Some(hostile) = &mut self.hostile else { return };
        let node = hostile.node;
        hostile.count(kind);
        let pause = (50 + hostile.rng.below(1_000)) * MILLI;
        hostile.blames = None;
        match kind {
            Kind::Visits => {
                let length = (500 + hostile.rng.below(3_000)) * MILLI;
                hostile.visits = Some(Time(now.0 + pause + length));
            }
            Kind::Blames => {
                hostile.blames = Some(grammar::origin(&mut hostile.rng, node, nodes, &shown));
            }
            _ => {}
        }
        self.kill(node, DiskAfter::Kept);
        self.machines[node.index()].down -= 1;
        self.post(pause, Happening::Start(node));
    }

    fn newest_membership(&self) -> u64 {
        let programs = self.machines.iter().filter_map(|machine| machine.program.as_ref());
        programs.map(|program| program.cluster.part().membership.id).max().unwrap_or(0)
    }

    /// A message of this kind over this link.
    fn hostile_message(&mut self, kind: Kind, wire: usize, side: usize) -> Option<Message> {
        let [me, to] = [side, 1 - side].map(|side| self.wires[wire].ends[side]);
        let (newest, other) = (self.newest_membership(), &self.machines[to.index()]);
        let program = other.program.as_ref()?;
        let part = program.cluster.part();
        let id = |(membership, rounds, history)| CheckpointId { membership, rounds, history };
        let own_program = self.machines[me.index()].program.as_ref()?;
        let attempt = own_program.attempt;
        let own = own_program.checkpoints.available().ok()?;
        let results = program.checkpoints.results.as_ref();
        let results = results.map(|written| written.number).or_else(|| {
            let made = other.results.as_ref()?;
            Some(crate::run::checkpoint::Written::of(&made.mean, &made.history).number)
        });
        let said = &own_program.statements.statements;
        let schedule = said.iter().rev().find_map(|(_, one)| match one.said {
            Said::Schedule(schedule) => Some(schedule),
            _ => None,
        });
        let schedule = schedule.unwrap_or_else(CheckpointSchedule::default);
        let links = said.iter().rev().find_map(|(_, one)| match &one.said {
            Said::Links(links) if part.membership.place(me) == Some(one.node) => {
                Some(links.clone())
            }
            _ => None,
        });
        let hostile = self.hostile.as_mut()?;
        let known = Known {
            me,
            to,
            topology: &self.whole.design.topology,
            rounds: self.whole.design.experiment.run.rounds,
            membership: &part.membership,
            chooses: program.chooses,
            links: links.unwrap_or_default(),
            attempt,
            checkpoints: program.checkpoints.available().ok()?.0.into_iter().map(id).collect(),
            history: own.1.map_or(Vec::new(), |newest| newest.history),
            schedule,
            results,
            newest,
            number: hostile.number,
            heard: &hostile.heard,
        };
        let message = grammar::message(kind, &mut hostile.rng, &known)?;
        hostile.count(kind);
        if let Message::Chooses(_) = &message {
            hostile.remember(&message);
        }
        Some(message)
    }
}
