//! The links of a simulated machine, as its program uses them.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::Duration,
};

use litemap::LiteMap;
use tokio::sync::mpsc;

use super::{
    connections::{TICK, read, send, send_due, write},
    state::{Act, End, HostState, State, World},
    task::wait_until,
};
use crate::{
    cluster::{
        message::{Saves, StartMessage},
        part::{Adjacent, Part},
    },
    gossip::Cause,
    net::{
        Event,
        driver::{links::Links, status::Status},
        host::{MOST_ABSENT, PARTING},
        link::{
            limits::Deadlines,
            session::{Inbox, Outbox, RETURNED},
            task::SLOTS,
            wire::{Message, Reason},
        },
    },
    units::NodeId,
};

/// How long a node that leaves waits until its neighbours know why.
const GOODBYE: Duration = Duration::from_millis(300);

/// The links of a program.
pub(super) struct SimulatedLinks {
    world: Arc<World>,
    machine: usize,
    host: u64,
    status: Arc<Status>,
    is_over: bool,
}

impl SimulatedLinks {
    pub(super) fn open(
        world: &Arc<World>,
        machine: usize,
        part: &Part<'_>,
        membership: u64,
        restarts: bool,
    ) -> SimulatedLinks {
        let state = &mut *world.lock();
        close_host(state, machine);
        let used = part.neighbours.iter().filter(|neighbour| !neighbour.unused);
        let status = Arc::new(Status::new(used.map(|neighbour| neighbour.node)));
        let end = |neighbour: &Adjacent| {
            let (spare, returned) = mpsc::channel(RETURNED);
            let other = neighbour.number.index();
            End {
                machine: other,
                unused: neighbour.unused,
                outbox: Outbox::default(),
                // So that frames of these small models arrive in pieces too.
                inbox: Inbox::new(returned).cutting(200, 64),
                spare,
                queue: VecDeque::new(),
                known: 0,
                lost: None,
                connection: None,
                is_over: false,
                goodbye: false,
                start: None,
                saves: Saves::default(),
                beats: LiteMap::new(),
                acknowledged: 0,
            }
        };
        let ends: LiteMap<NodeId, End> =
            part.neighbours.iter().map(|neighbour| (neighbour.node, end(neighbour))).collect();
        let host = state.id();
        let incarnation = state.id();
        let deadlines = Deadlines::of(&part.whole.experiment);
        let one = HostState {
            machine,
            id: part.id,
            membership,
            incarnation,
            restarts,
            deadlines,
            status: Arc::clone(&status),
            ends,
            events: VecDeque::new(),
        };
        state.hosts.insert(host, one);
        state.machines[machine].host = Some(host);
        SimulatedLinks { world: Arc::clone(world), machine, host, status, is_over: false }
    }
}

impl Links for SimulatedLinks {
    fn send(&mut self, to: NodeId, frame: Arc<Vec<u8>>) {
        let state = &mut *self.world.lock();
        let Some(end) = state.hosts.get_mut(&self.host).and_then(|host| host.ends.get_mut(&to))
        else {
            return;
        };
        assert!(end.queue.len() < SLOTS, "the core hands over at most {SLOTS} frames of a link");
        end.queue.push_back(frame);
        if let Some((connection, side)) = end.connection {
            write(state, connection, side);
        }
    }

    fn recycle(&mut self, from: NodeId, buffer: Vec<u8>) {
        let state = &mut *self.world.lock();
        let Some(end) = state.hosts.get_mut(&self.host).and_then(|host| host.ends.get_mut(&from))
        else {
            return;
        };
        let _ = end.spare.try_send(buffer);
        if let Some((connection, side)) = end.connection {
            read(state, connection, side);
        }
    }

    fn send_start(&self, to: NodeId, message: StartMessage) {
        let state = &mut *self.world.lock();
        let Some(end) = state.hosts.get_mut(&self.host).and_then(|host| host.ends.get_mut(&to))
        else {
            return;
        };
        end.start = Some(message);
        if let Some((connection, side)) = end.connection {
            send_due(state, connection, side);
        }
    }

    fn status(&self) -> &Arc<Status> {
        &self.status
    }

    fn next(&self, within: Duration) -> Result<Event, RecvTimeoutError> {
        let (until, slow) = {
            let state = self.world.lock();
            (state.now + within, state.machines[self.machine].slow)
        };
        if !slow.is_zero() {
            wait_until(until - within + slow, false);
        }
        loop {
            {
                let state = &mut *self.world.lock();
                // A program that was killed has no host, and unwinds below.
                if let Some(host) = state.hosts.get_mut(&self.host) {
                    if let Some(event) = host.events.pop_front() {
                        return Ok(event);
                    }
                    if state.now >= until {
                        return Err(RecvTimeoutError::Timeout);
                    }
                }
            }
            wait_until(until, true);
        }
    }

    fn set_over(&mut self) {
        self.is_over = true;
    }

    fn finish(self: Box<Self>, reason: Option<Cause>, stop: &mut dyn FnMut() -> bool) {
        let owes = |end: &End| {
            let frames = !end.outbox.is_empty() || !end.queue.is_empty();
            !end.is_over && !end.unused && frames
        };
        let mut until = None;
        loop {
            let (now, host) = {
                let state = &mut *self.world.lock();
                let host = state.hosts.get(&self.host);
                (state.now, host.map(|host| (host.deadlines, host.ends.values().any(owes))))
            };
            let Some((Deadlines { goodbye, absence, .. }, owes)) = host else {
                return wait_until(now, false);
            };
            let within = match reason {
                Some(_) => Duration::ZERO,
                None if self.is_over => PARTING,
                None => goodbye + absence.unwrap_or(MOST_ABSENT),
            };
            if !owes || now >= *until.get_or_insert(now + within) || stop() {
                break;
            }
            wait_until(now + TICK, false);
        }
        let now = {
            let state = &mut *self.world.lock();
            let Some(host) = state.hosts.get(&self.host) else { return };
            let ends: Vec<_> = host.ends.values().filter_map(|end| end.connection).collect();
            let reason = reason.as_ref().map(|cause| Reason {
                node: cause.node.0,
                text: cause.text.clone(),
                leaves: cause.leaves,
            });
            for (connection, side) in ends {
                send(state, connection, side, Message::Goodbye(reason.clone()));
            }
            state.now
        };
        let within = if reason.is_some() { GOODBYE } else { PARTING };
        let mut next = now;
        while next < now + within {
            next += GOODBYE;
            wait_until(next, false);
            let waits = |end: &End| end.connection.is_some() && !end.goodbye;
            let waits = {
                let state = self.world.lock();
                let host = state.hosts.get(&self.host);
                host.is_some_and(|host| host.ends.values().any(waits))
            };
            if !waits || stop() {
                break;
            }
        }
    }
}

impl Drop for SimulatedLinks {
    fn drop(&mut self) {
        let state = &mut *self.world.lock();
        if state.machines[self.machine].host == Some(self.host) {
            close_host(state, self.machine);
        }
    }
}

/// Closes the host of a machine: the other ends of its connections see that soon.
pub(super) fn close_host(state: &mut State, machine: usize) {
    let Some(host) = state.machines[machine].host.take() else { return };
    let Some(host) = state.hosts.remove(&host) else { return };
    for (connection, side) in host.ends.values().filter_map(|end| end.connection) {
        let mut when = state.now + state.latency();
        if let Some(open) = state.connections.get_mut(&connection) {
            open.open[side] = false;
            // What was sent before arrives before.
            when = when.max(open.last[side][0]).max(open.last[side][1]);
        }
        state.at(when, Act::Close { connection, end: 1 - side });
    }
}
