//! The links between machines: when they connect, what they carry, how they break.
//!
//! A frame is kept until it has arrived, so a session outlives its connections. Frames that were on
//! the way when a connection broke are sent again.

use std::sync::Arc;

use super::{
    machine::Program,
    wire::{End, Happening, Message, Sent, Wire},
    world::World,
};
use crate::{
    cluster::{
        Input,
        begin::meeting::{Meeting, meet},
        event::Event,
        statements::{Batch, news},
    },
    gossip::{Cause, frame::ENVELOPE},
    units::{NodeId, Time},
};

const MILLI: u64 = 1_000_000;

/// How often the ends of a link that is down try to connect.
const DIAL: u64 = 300 * MILLI;

/// How often nodes of different memberships try to.
const OTHER: u64 = 1_000 * MILLI;

/// A connection without a byte for so many heartbeats has broken.
const HEARTBEATS: u64 = 3;

impl World<'_> {
    /// The wire between two machines.
    pub(super) fn wire_between(&self, a: NodeId, b: NodeId) -> usize {
        let ends = [a.min(b), a.max(b)];
        self.wires.iter().position(|wire| wire.ends == ends).expect("a link of the topology")
    }

    /// The wires of a machine, with the side of it.
    pub(super) fn wires_of(&self, node: NodeId) -> Vec<(usize, usize)> {
        let of = |(index, wire): (usize, &Wire)| {
            wire.ends.contains(&node).then(|| (index, wire.side(node)))
        };
        self.wires.iter().enumerate().filter_map(of).collect()
    }

    /// The number of the node at the other side, as the program at this one knows it.
    pub(super) fn peer(&self, wire: usize, side: usize) -> Option<(NodeId, bool)> {
        let ends = self.wires[wire].ends;
        let program = self.machines[ends[side].index()].program.as_ref()?;
        let mut neighbours = program.cluster.part().neighbours.iter();
        let found = neighbours.find(|peer| peer.number == ends[1 - side])?;
        Some((found.node, found.unused))
    }

    /// An event of a link for the program at a side.
    fn tell(&mut self, wire: usize, side: usize, event: Event) {
        let machine = self.wires[wire].ends[side];
        self.feed(machine, Input::Event(event));
    }

    /// The ends of a link try to connect.
    pub(super) fn dial(&mut self, wire: usize) {
        self.post(DIAL, Happening::Dial(wire));
        let Wire { ends, sides, connection, .. } = &self.wires[wire];
        if connection.is_some() || self.wires[wire].is_cut() || sides.iter().any(|end| end.over) {
            return;
        }
        let [a, b] = ends.map(|node| self.machines[node.index()].program.as_ref());
        let (Some(a), Some(b)) = (a, b) else { return };
        if a.closing.is_some() || b.closing.is_some() || a.incarnation * b.incarnation == 0 {
            return;
        }
        let now = self.instant();
        let bans = |program: &Program<'_>, other: NodeId| {
            #[cfg(test)]
            if self.is_hostile(ends[usize::from(other == ends[0])]) {
                return false;
            }
            program.bans.iter().any(|(node, ban)| *node == other && ban.until > now)
        };
        let refused = [bans(b, ends[0]), bans(a, ends[1])];
        if refused.contains(&true) {
            return self.refuse(wire, refused);
        }
        let id = |program: &Program<'_>| match program.chooses {
            true => u64::MAX,
            false => program.cluster.part().membership.id,
        };
        let peers = [0, 1].map(|side| self.peer(wire, side));
        let [Some((to_b, unused)), Some((to_a, other))] = peers else { return };
        let is_other = id(a) != id(b);
        #[cfg(test)]
        let is_other = self.hostile_meets(*ends, is_other);
        if is_other || unused || other {
            if self.is_time_to_notice() {
                let [of_a, of_b] = [a.because.clone(), b.because.clone()];
                self.tell(wire, 0, Event::OtherMembership { peer: to_b, because: of_b });
                self.tell(wire, 1, Event::OtherMembership { peer: to_a, because: of_a });
            }
            return;
        }
        let (ids, begun) = ([a.incarnation, b.incarnation], [a.begun, b.begun]);
        let connection = self.id();
        self.wires[wire].connection = Some(connection);
        if std::mem::take(&mut self.wires[wire].half) {
            let side = usize::from(connection.is_multiple_of(2));
            self.meet(wire, side, ids[1 - side], begun[side]);
            return self.close(wire);
        }
        for side in [0, 1] {
            // One end may have closed it by then.
            if self.wires[wire].connection == Some(connection) {
                self.meet(wire, side, ids[1 - side], begun[side]);
            }
        }
        self.write(wire, 0);
        self.write(wire, 1);
    }

    /// Whether ends that do not connect notice each other now.
    fn is_time_to_notice(&self) -> bool {
        self.now().0 / OTHER != (self.now().0 + DIAL) / OTHER
    }

    /// The other end refuses a side: one that chooses members does not await it.
    fn refuse(&mut self, wire: usize, refused: [bool; 2]) {
        for side in [0, 1] {
            let machine = self.wires[wire].ends[side];
            let program = self.machines[machine.index()].program.as_ref();
            let chooses = program.is_some_and(|program| program.chooses);
            if let Some((peer, _)) = self.peer(wire, side)
                && refused[side]
                && chooses
                && self.is_time_to_notice()
            {
                let text = "refuses this node".to_string();
                let cause = Cause { node: peer, text, leaves: true };
                self.tell(wire, side, Event::Left { peer, cause });
            }
        }
    }

    /// An end continues with its session over a new connection.
    fn meet(&mut self, wire: usize, side: usize, incarnation: u64, begun: bool) {
        let Some((peer, _)) = self.peer(wire, side) else { return };
        let other = self.wires[wire].ends[1 - side];
        let other = self.machines[other.index()].program.as_ref();
        let because = other.and_then(|program| program.because.clone());
        #[cfg(test)]
        let because = self.hostile_blames(self.wires[wire].ends[1 - side]).or(because);
        let end = &mut self.wires[wire].sides[side];
        match meet(end.known, incarnation, begun) {
            Meeting::Continues | Meeting::Begins => {}
            Meeting::BeginsAnew => {
                *end = End { lost: end.lost, ..End::default() };
                self.wires[wire].sides[side].known = incarnation;
                let machine = self.wires[wire].ends[side];
                let before = self.incarnation(machine);
                self.tell(wire, side, Event::Restarted { peer, because: None });
                // It may have opened other links upon that.
                if self.incarnation(machine) != before {
                    return;
                }
            }
            Meeting::Lost => {
                end.over = true;
                self.close(wire);
                return self.tell(wire, side, Event::Restarted { peer, because });
            }
        }
        let now = self.now();
        let end = &mut self.wires[wire].sides[side];
        (end.known, end.up, end.told) = (incarnation, true, 0);
        end.told_records.clear();
        end.outbox.iter_mut().for_each(|sent| sent.written = false);
        let resent = end.outbox.len() as u64;
        let event = match end.lost.take() {
            Some(lost) => {
                let absent = std::time::Duration::from_nanos(now.0 - lost.0);
                Event::Back { peer, absent, resent }
            }
            None => Event::Up(peer),
        };
        self.tell(wire, side, event);
        self.pass_on(wire, side);
    }

    /// Sends a message from a side.
    pub(super) fn say(&mut self, wire: usize, side: usize, message: Message) {
        if self.wires[wire].connection.is_none() {
            return;
        }
        #[cfg(test)]
        let Some(message) = self.hostile_says(wire, side, message) else { return };
        self.carry(wire, side, message);
    }

    /// A message goes its way.
    pub(super) fn carry(&mut self, wire: usize, side: usize, message: Message) {
        let Some(connection) = self.wires[wire].connection else { return };
        let ends = self.wires[wire].ends;
        let latency = self.conditions.link(ends[0], ends[1]).latency.max(1_000);
        let when = Time(self.now().0 + latency).max(self.wires[wire].last[1 - side]);
        self.wires[wire].last[1 - side] = when;
        self.post_at(when, Happening::Message { wire, from: side, connection, message });
    }

    /// Passes on what the other end has not been told.
    pub(super) fn pass_on(&mut self, wire: usize, side: usize) {
        let machine = self.wires[wire].ends[side];
        let Some(program) = &self.machines[machine.index()].program else { return };
        let (end, all) = (&mut self.wires[wire].sides[side], program.statements.clone());
        let news: Vec<Batch> = match end.up {
            true => std::iter::from_fn(|| news(&all, &mut end.told)).collect(),
            false => Vec::new(),
        };
        news.into_iter().for_each(|batch| self.say(wire, side, Message::Statements(batch)));
    }

    /// Queues a frame.
    pub(super) fn send(&mut self, machine: NodeId, to: NodeId, frame: Arc<Vec<u8>>) {
        #[cfg(test)]
        let frame = match self.liar.as_mut().filter(|liar| liar.node == machine) {
            Some(liar) => liar.frame(to, frame, self.whole),
            None => frame,
        };
        #[cfg(test)]
        let frame = self.hostile_frame(machine, to, frame);
        let wire = self.wire_between(machine, to);
        let side = self.wires[wire].side(machine);
        self.wires[wire].sides[side].outbox.push_back(Sent { frame, written: false, taken: false });
        self.write(wire, side);
    }

    /// Writes the frames that were not written.
    fn write(&mut self, wire: usize, side: usize) {
        let Some(connection) = self.wires[wire].connection else { return };
        let Some((peer, _)) = self.peer(wire, side) else { return };
        let (now, ends) = (self.now(), self.wires[wire].ends);
        let machine = ends[side];
        let generation = self.machines[machine.index()].program.as_ref().map(|it| it.incarnation);
        let Some(generation) = generation else { return };
        let mut sent = Vec::new();
        for one in &mut self.wires[wire].sides[side].outbox {
            if !std::mem::replace(&mut one.written, true) {
                sent.push((one.frame.len(), std::mem::replace(&mut one.taken, true)));
            }
        }
        for (length, taken) in sent {
            let direction = (ends[side], ends[1 - side]);
            let passage = self.lines.send(now, direction, (), length + ENVELOPE);
            self.lines.arrive(direction.0, direction.1);
            if !taken {
                let input = Input::Event(Event::Taken(peer));
                self.post_at(passage.left, Happening::Input { machine, generation, input });
            }
            // At least a microsecond, so that effects have their order.
            let arrives = Time(passage.arrives.0.max(now.0 + 1_000));
            self.post_at(arrives, Happening::Frame { wire, from: side, connection });
        }
    }

    /// The oldest frame on the way has arrived.
    pub(super) fn frame_arrives(&mut self, wire: usize, from: usize, connection: u64) {
        if self.wires[wire].connection != Some(connection) {
            return;
        }
        if self.wires[wire].cut[from] > 0 {
            self.wires[wire].held.push(Happening::Frame { wire, from, connection });
            return;
        }
        let Some(sent) = self.wires[wire].sides[from].outbox.pop_front() else { return };
        let frame = sent.frame;
        for side in [0, 1] {
            let machine = self.wires[wire].ends[side];
            if let Some(program) = &mut self.machines[machine.index()].program {
                program.bytes += frame.len() as u64;
            }
        }
        self.wires[wire].sides[1 - from].arrived.push_back(frame);
        self.read(wire, 1 - from);
    }

    /// Delivers the next frame if the core holds none.
    pub(super) fn read(&mut self, wire: usize, side: usize) {
        let end = &mut self.wires[wire].sides[side];
        if end.held {
            return;
        }
        let Some(frame) = end.arrived.pop_front() else { return };
        end.held = true;
        let Some((from, _)) = self.peer(wire, side) else { return };
        let bytes = frame.to_vec();
        let machine = self.wires[wire].ends[side];
        let program = self.machines[machine.index()].program.as_ref();
        let Some(generation) = program.map(|program| program.incarnation) else { return };
        let input = Input::Event(Event::Frame { from, bytes });
        self.post(0, Happening::Input { machine, generation, input });
    }

    /// A message has arrived.
    pub(super) fn hear(&mut self, wire: usize, from: usize, connection: u64, message: Message) {
        if self.wires[wire].connection != Some(connection) {
            return;
        }
        if self.wires[wire].cut[from] > 0 {
            let held = Happening::Message { wire, from, connection, message };
            return self.wires[wire].held.push(held);
        }
        let side = 1 - from;
        let Some((peer, _)) = self.peer(wire, side) else { return };
        let machine = self.wires[wire].ends[side];
        let program = self.machines[machine.index()].program.as_ref();
        let begun = program.is_some_and(|program| program.begun);
        let closes = program.is_some_and(|program| program.closing.is_some());
        #[cfg(test)]
        self.hostile_hears(machine, &message);
        let event = match message {
            Message::Records(records) => {
                let (now, program) = (self.instant(), &self.machines[machine.index()].program);
                if let Some(program) = program {
                    // Nobody forges any.
                    let _ = program.board.hear(now, records);
                }
                return;
            }
            Message::Chooses(news) => Event::Chooses { from: peer, news },
            Message::Statements(batch) => Event::Told { from: peer, batch },
            // Before the run it means the loss of the link only.
            Message::Goodbye(None) if !begun && !closes => return self.close(wire),
            Message::Goodbye(None) => {
                self.wires[wire].sides[side].goodbye = true;
                Event::Goodbye(peer)
            }
            Message::Goodbye(Some(cause)) => {
                let end = &mut self.wires[wire].sides[side];
                (end.up, end.over) = (false, begun);
                end.problem = "it left".into();
                self.wires[wire].connection = None;
                self.wires[wire].sides[from].up = false;
                Event::Left { peer, cause }
            }
        };
        self.tell(wire, side, event);
    }

    /// The connection of a wire ends: each end that sees it up loses it a microsecond later.
    pub(super) fn close(&mut self, wire: usize) {
        let Some(connection) = self.wires[wire].connection.take() else { return };
        self.wires[wire].held.clear();
        for side in [0, 1] {
            self.post(1_000, Happening::Lose { wire, side, connection });
        }
    }

    /// An end sees that the connection has ended.
    pub(super) fn lose(&mut self, wire: usize, side: usize) {
        let Some((peer, _)) = self.peer(wire, side) else { return };
        let (now, machine) = (self.now(), self.wires[wire].ends[side]);
        let Some(program) = &self.machines[machine.index()].program else { return };
        let (begun, generation) = (program.begun, program.incarnation);
        let end = &mut self.wires[wire].sides[side];
        if !std::mem::replace(&mut end.up, false) || end.over {
            return;
        }
        if end.goodbye {
            end.over = true;
            return;
        }
        let reason = "the connection closed".to_string();
        end.problem = format!("it was linked, then the link broke: {reason}");
        if begun && end.lost.is_none() {
            end.lost = Some(now);
            if let Some(absence) = self.whole.design.experiment.absence.deadline() {
                let when = Time(now.0 + absence.as_nanos() as u64);
                self.post_at(when, Happening::Expire { wire, side, generation, lost: now });
            }
        }
        self.tell(wire, side, Event::Lost { peer, reason });
    }

    /// Gives up a lost link that has not returned.
    pub(super) fn expire(&mut self, wire: usize, side: usize, lost: Time) {
        let Some((peer, _)) = self.peer(wire, side) else { return };
        let end = &mut self.wires[wire].sides[side];
        if end.lost != Some(lost) || end.over {
            return;
        }
        (end.over, end.lost) = (true, None);
        self.tell(wire, side, Event::Down { peer, reason: "it did not return".into() });
    }

    /// A fault stops what comes from these sides of links: nobody is told, until the silence has
    /// lasted too long.
    pub(super) fn cut(&mut self, sides: &[(usize, usize)]) {
        let heartbeat = self.whole.design.experiment.absence.heartbeat_s;
        let silence = HEARTBEATS * (heartbeat * 1e9) as u64;
        for &(wire, from) in sides {
            self.wires[wire].cut[from] += 1;
            if let Some(connection) = self.wires[wire].connection {
                self.post(silence, Happening::Silent { wire, connection });
            }
        }
    }

    /// A cut is over: what was held arrives, in its order.
    pub(super) fn mend(&mut self, sides: &[(usize, usize)]) {
        for &(wire, from) in sides {
            self.wires[wire].cut[from] -= 1;
            if self.wires[wire].cut[from] > 0 {
                continue;
            }
            let is_from = |happening: &mut Happening| match happening {
                Happening::Frame { from: side, .. } | Happening::Message { from: side, .. } => {
                    *side == from
                }
                _ => false,
            };
            let held: Vec<Happening> = self.wires[wire].held.extract_if(.., is_from).collect();
            for held in held {
                self.post(1_000, held);
            }
        }
    }

    /// The links of a program that has opened others, or has ended.
    pub(super) fn drop_links(&mut self, machine: NodeId) {
        for (wire, side) in self.wires_of(machine) {
            self.wires[wire].sides[side] =
                End { problem: "no contact yet".into(), ..End::default() };
            self.close(wire);
        }
    }
}
