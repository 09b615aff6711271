//! Connections between simulated hosts: their handshakes, what they carry, how they break.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;

use super::state::{Act, Bug, Connection, HostState, Parcel, Piece, State};
use crate::{
    cluster::{
        begin::meeting::{Meeting, meet},
        message::{Saves, StartMessage},
    },
    gossip::Cause,
    net::{
        Event,
        driver::status::{Beat, news},
        link::{
            session::Outbox,
            wire::{Message, Reason},
        },
    },
    units::NodeId,
};

/// How often an end of a connection looks for what is due.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// How often the ends of a link that is down try to connect.
const DIAL: Duration = Duration::from_millis(300);

/// How often nodes of different memberships try to connect.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// Cuts links: nothing crosses them, and their ends see that after a while.
pub(super) fn cut(state: &mut State, links: &[usize]) {
    for &link in links {
        state.links[link].1 += 1;
        close_ends(state, link, 6_000);
    }
}

/// Resets the connection of a link, which both ends see soon.
pub(super) fn reset(state: &mut State, link: usize) {
    close_ends(state, link, 20);
}

/// Closes both ends of a link's connection, each within these milliseconds.
fn close_ends(state: &mut State, link: usize, millis: u64) {
    let of_link = |(_, one): &(&u64, &Connection)| one.link == link;
    let all: Vec<u64> = state.connections.iter().filter(of_link).map(|(id, _)| *id).collect();
    for connection in all {
        for end in [0, 1] {
            let when = state.now + state.millis(0, millis);
            state.at(when, Act::Close { connection, end });
        }
    }
}

/// Performs an act of links.
pub(super) fn act(state: &mut State, act: Act) {
    match act {
        Act::Connect(link) => connect(state, link),
        Act::Arrive { connection, from, parcel } => arrive(state, connection, from, parcel),
        Act::Tick { connection, end } => tick(state, connection, end),
        Act::Close { connection, end } => close(state, connection, end),
        Act::Expire { host, peer, lost } => expire(state, host, NodeId(peer), lost),
        other => unreachable!("{other:?}"),
    }
}

/// The end of a connection, if it is still open there.
fn end_of(state: &mut State, connection: u64, side: usize) -> Option<(&mut HostState, NodeId)> {
    let open = state.connections.get(&connection)?;
    if !open.open[side] {
        return None;
    }
    let (host, peer) = open.ends[side];
    Some((state.hosts.get_mut(&host)?, peer))
}

fn notify(state: &mut State, connection: u64, side: usize, event: Event) {
    if let Some((host, _)) = end_of(state, connection, side) {
        host.events.push_back(event);
        let machine = host.machine;
        state.notify(machine);
    }
}

/// The ends of a link try to connect.
#[expect(clippy::too_many_lines)]
fn connect(state: &mut State, link: usize) {
    let (a, b) = state.links[link].0;
    let again = state.now + state.millis(20, 2 * DIAL.as_millis() as u64);
    let ids = [a, b].map(|machine| state.machines[machine].host);
    let [Some(first), Some(second)] = ids else {
        return state.at(again, Act::Connect(link));
    };
    let peer = |state: &State, host: u64, other: usize| {
        let mut ends = state.hosts[&host].ends.iter();
        ends.find(|(_, end)| end.machine == other).map(|(node, _)| *node)
    };
    let (Some(to_b), Some(to_a)) = (peer(state, first, b), peer(state, second, a)) else {
        return state.at(again, Act::Connect(link));
    };
    let ends = [(first, to_b), (second, to_a)];
    let is_free = |&(host, node): &(u64, NodeId)| {
        let end = &state.hosts[&host].ends[&node];
        end.connection.is_none() && !end.is_over
    };
    if state.is_cut(link) || !ends.iter().all(is_free) {
        return state.at(again, Act::Connect(link));
    }
    let [one, two] = ids.map(|host| {
        let host = &state.hosts[&host.expect("looked at")];
        host.membership
    });
    let unused = ends.iter().any(|(host, node)| state.hosts[host].ends[node].unused);
    if one != two || unused {
        for (host, node) in ends {
            let host = state.hosts.get_mut(&host).expect("it is open");
            host.events.push_back(Event::OtherMembership(node));
            let machine = host.machine;
            state.notify(machine);
        }
        let later = state.now + ELSEWHERE;
        return state.at(later, Act::Connect(link));
    }
    // The hellos, and what each end has received.
    let hello = |(host, node): (u64, NodeId)| {
        let host = &state.hosts[&host];
        let end = &host.ends[&node];
        (host.incarnation, end.known, end.inbox.progress())
    };
    let hellos = ends.map(hello);
    let connection = state.id();
    let now = state.now;
    state.connections.insert(
        connection,
        Connection {
            ends,
            link,
            open: [true, true],
            last: [[now; 2]; 2],
            writer: [(1, 0); 2],
            unread: Default::default(),
            held: Default::default(),
        },
    );
    // The last message of a handshake may be lost: then one end has seen it only.
    let only = (state.rng.below(12) == 0).then(|| state.rng.below(2) as usize);
    for side in [0, 1] {
        if only.is_some_and(|only| only != side) {
            continue;
        }
        let (incarnation, known, progress) = hellos[1 - side];
        let continues = known == hellos[side].0;
        resume(state, connection, side, incarnation, if continues { progress } else { (0, 0) });
    }
    if let Some(only) = only {
        let when = state.now + state.latency();
        state.connections.get_mut(&connection).expect("it is new").open[1 - only] = false;
        state.at(when, Act::Close { connection, end: only });
    }
    state.at(again, Act::Connect(link));
}

/// An end continues with its session over a new connection.
fn resume(
    state: &mut State,
    connection: u64,
    side: usize,
    incarnation: u64,
    (received, partial): (u64, u64),
) {
    let (now, bug, traces) = (state.now, state.bug, state.traces);
    let Some((host, node)) = end_of(state, connection, side) else { return };
    let end = host.ends.get_mut(&node).expect("it is an end");
    let mut events = Vec::new();
    let meeting = meet(end.known, incarnation, host.status.has_started());
    if traces {
        let (from, to) = (host.machine, end.machine);
        eprintln!("{now:>10.3?} machine {from} meets {to} over {connection}: {meeting:?}");
    }
    match meeting {
        Meeting::Continues => end.outbox.resume(received, partial).expect("frames it can have"),
        Meeting::Lost => {
            end.is_over = true;
            let reason = "it was started again".to_string();
            host.events.push_back(match host.restarts {
                true => Event::Restarted { peer: node, because: None },
                false => Event::Down { peer: node, reason },
            });
            let machine = host.machine;
            state.notify(machine);
            state.connections.get_mut(&connection).expect("it is open").open[side] = false;
            let when = now + state.latency();
            return state.at(when, Act::Close { connection, end: 1 - side });
        }
        Meeting::BeginsAnew => {
            end.outbox = Outbox::default();
            end.inbox.reset();
            end.queue.clear();
            events.push(Event::Restarted { peer: node, because: None });
        }
        Meeting::Begins => {}
    }
    end.known = incarnation;
    end.connection = Some((connection, side));
    host.status.up(node);
    let resent = end.outbox.unacknowledged();
    events.push(match end.lost.take() {
        Some(lost) => Event::Back { peer: node, absent: now - lost, resent },
        None => Event::Up(node),
    });
    (end.saves, end.acknowledged) = (Saves::default(), 0);
    let first = match bug {
        Some(Bug::NoRetransmission) => (end.outbox.first() + resent, 0),
        Some(Bug::PieceTwice) => (end.outbox.first(), 0),
        _ => (end.outbox.first(), end.outbox.partial()),
    };
    let started = host.status.beginning().map(StartMessage::Begin);
    host.events.extend(events);
    let machine = host.machine;
    state.notify(machine);
    state.connections.get_mut(&connection).expect("it is open").writer[side] = first;
    if let Some(begin) = started {
        send(state, connection, side, Message::Start(begin));
    }
    write(state, connection, side);
    // A frame of the connection before may wait.
    read(state, connection, side);
    state.at(now + TICK, Act::Tick { connection, end: side });
    send_due(state, connection, side);
}

/// Sends the start message that waits.
pub(super) fn send_due(state: &mut State, connection: u64, side: usize) {
    let Some((host, node)) = end_of(state, connection, side) else { return };
    let message = host.ends.get_mut(&node).and_then(|end| end.start.take());
    if let Some(message) = message {
        send(state, connection, side, Message::Start(message));
    }
}

/// Puts a parcel on its way, after those before it.
fn carry(state: &mut State, connection: u64, from: usize, parcel: Parcel) {
    let latency = state.latency();
    let now = state.now;
    let Some(open) = state.connections.get_mut(&connection) else { return };
    let stream = usize::from(matches!(parcel, Parcel::Message(_)));
    let when = open.last[from][stream].max(now + latency);
    open.last[from][stream] = when;
    state.at(when, Act::Arrive { connection, from, parcel });
}

pub(super) fn send(state: &mut State, connection: u64, from: usize, message: Message) {
    carry(state, connection, from, Parcel::Message(message));
}

/// Writes the frames that the other end lacks, in pieces.
pub(super) fn write(state: &mut State, connection: u64, side: usize) {
    loop {
        let Some(open) = state.connections.get(&connection) else { return };
        let (number, from) = open.writer[side];
        let Some((host, node)) = end_of(state, connection, side) else { return };
        let end = host.ends.get_mut(&node).expect("it is an end");
        let frame = match end.outbox.frame(number) {
            Some(frame) => frame,
            None => {
                let Some(frame) = end.queue.pop_front() else { return };
                end.outbox.push(Arc::clone(&frame));
                frame
            }
        };
        end.outbox.wrote(number);
        let free = end.outbox.newly_free();
        for _ in 0..free {
            notify(state, connection, side, Event::Taken(node));
        }
        let mut rest = &frame[from..];
        loop {
            let some = match state.rng.below(3) {
                0 => 1 + state.rng.below(rest.len().max(1) as u64) as usize,
                _ => rest.len(),
            };
            let (bytes, others) = rest.split_at(some.min(rest.len()));
            let piece = Piece { number, length: frame.len(), bytes: bytes.to_vec() };
            carry(state, connection, side, Parcel::Piece(piece));
            rest = others;
            if rest.is_empty() {
                break;
            }
        }
        let open = state.connections.get_mut(&connection).expect("it was there");
        open.writer[side] = (number + 1, 0);
    }
}

/// Reads what has arrived at an end and delivers frames to its core.
pub(super) fn read(state: &mut State, connection: u64, side: usize) {
    loop {
        let Some((host, node)) = end_of(state, connection, side) else { return };
        let inbox = &mut host.ends.get_mut(&node).expect("it is an end").inbox;
        if inbox.is_waiting() {
            let Some(Some(delivery)) = inbox.deliver().now_or_never() else { return };
            notify(state, connection, side, delivery.into_event(node));
            continue;
        }
        let Some(open) = state.connections.get_mut(&connection) else { return };
        let Some(mut piece) = open.unread[1 - side].pop_front() else { return };
        let (host, _) = end_of(state, connection, side).expect("it is open");
        let inbox = &mut host.ends.get_mut(&node).expect("it is an end").inbox;
        assert_eq!(inbox.due(), piece.number, "every frame arrives once and in order");
        inbox.begin(piece.length).expect("the length of the frame stays the same");
        let mut bytes = &piece.bytes[..];
        loop {
            let space = inbox.space();
            let some = space.len().min(bytes.len());
            space[..some].copy_from_slice(&bytes[..some]);
            inbox.fill(some);
            bytes = &bytes[some..];
            if bytes.is_empty() || inbox.space().is_empty() {
                break;
            }
        }
        if !inbox.space().is_empty() {
            continue;
        }
        let is_whole = inbox.complete();
        if !bytes.is_empty() {
            assert!(!is_whole, "no byte of a frame arrives twice");
            piece.bytes = bytes.to_vec();
            let open = state.connections.get_mut(&connection).expect("it was there");
            open.unread[1 - side].push_front(piece);
        }
    }
}

/// A parcel reaches the other end.
fn arrive(state: &mut State, connection: u64, from: usize, parcel: Parcel) {
    let Some(open) = state.connections.get(&connection) else { return };
    let link = open.link;
    if state.is_cut(link) {
        let open = state.connections.get_mut(&connection).expect("it was there");
        return open.held[from].push(parcel);
    }
    release(state, connection);
    receive(state, connection, from, parcel);
}

/// Delivers what waited for a link to be mended.
fn release(state: &mut State, connection: u64) {
    let Some(open) = state.connections.get_mut(&connection) else { return };
    if open.held.iter().all(Vec::is_empty) {
        return;
    }
    let held = std::mem::take(&mut open.held);
    for (from, parcels) in held.into_iter().enumerate() {
        parcels.into_iter().for_each(|parcel| receive(state, connection, from, parcel));
    }
}

fn receive(state: &mut State, connection: u64, from: usize, parcel: Parcel) {
    let side = 1 - from;
    if end_of(state, connection, side).is_none() {
        return;
    }
    let message = match parcel {
        Parcel::Piece(piece) => {
            let open = state.connections.get_mut(&connection).expect("it was there");
            open.unread[from].push_back(piece);
            return read(state, connection, side);
        }
        Parcel::Message(message) => message,
    };
    let (host, node) = end_of(state, connection, side).expect("looked at");
    let (status, me) = (Arc::clone(&host.status), host.id);
    let end = host.ends.get_mut(&node).expect("it is an end");
    match message {
        Message::Ack(received) => {
            end.outbox.acknowledge(received).expect("frames that it was sent");
            for _ in 0..end.outbox.newly_free() {
                notify(state, connection, side, Event::Taken(node));
            }
        }
        Message::Start(
            StartMessage::Ready(_) | StartMessage::Waiting(_) | StartMessage::Begin(_),
        ) if status.has_started() => {}
        Message::Start(message) => {
            notify(state, connection, side, Event::Start { from: node, message });
        }
        Message::Saved(saved) => {
            let saved = saved.into_iter().map(|(node, rounds)| (NodeId(node), rounds)).collect();
            notify(state, connection, side, Event::Saved(saved));
        }
        Message::Schedule(schedule) => notify(state, connection, side, Event::Schedule(schedule)),
        Message::Working(beats) => {
            let beat = |(node, count, absent)| Beat { node: NodeId(node), count, absent };
            let beats: Vec<Beat> = beats.into_iter().map(beat).collect();
            end.beats.extend(beats.iter().map(|beat| (beat.node, beat.count)));
            status.add_beats(me, &beats);
        }
        Message::Goodbye(None) => {
            if !std::mem::replace(&mut end.goodbye, true) {
                notify(state, connection, side, Event::Goodbye(node));
            }
        }
        Message::Goodbye(Some(Reason { node: whose, text, leaves })) => {
            let cause = Cause { node: NodeId(whose), text, leaves };
            end.is_over = status.has_started();
            status.down(node, "it left".into());
            notify(state, connection, side, Event::Left { peer: node, cause });
            let (host, _) = end_of(state, connection, side).expect("looked at");
            host.ends.get_mut(&node).expect("it is an end").connection = None;
            state.connections.get_mut(&connection).expect("it was there").open[side] = false;
            let when = state.now + state.latency();
            state.at(when, Act::Close { connection, end: from });
        }
        other => unreachable!("{other:?}"),
    }
}

/// Sends acknowledgements, news of checkpoints and beats.
fn tick(state: &mut State, connection: u64, side: usize) {
    let Some((host, node)) = end_of(state, connection, side) else { return };
    let (status, me, every) = (Arc::clone(&host.status), host.id, host.deadlines.heartbeat / 5);
    let end = host.ends.get_mut(&node).expect("it is an end");
    let mut messages = news(&status.saves(), &mut end.saves);
    let received = end.inbox.received().take();
    if received != std::mem::replace(&mut end.acknowledged, received) {
        messages.push(Message::Ack(received));
    }
    status.beat(me, every);
    let beats = status.new_beats(&mut end.beats);
    if !beats.is_empty() {
        let number = |beat: Beat| (beat.node.0, beat.count, beat.absent);
        messages.push(Message::Working(beats.into_iter().map(number).collect()));
    }
    for message in messages {
        send(state, connection, side, message);
    }
    let link = state.connections[&connection].link;
    if !state.is_cut(link) {
        release(state, connection);
    }
    let when = state.now + TICK;
    state.at(when, Act::Tick { connection, end: side });
}

/// An end of a connection sees that it is closed.
fn close(state: &mut State, connection: u64, side: usize) {
    let now = state.now;
    let Some((host, node)) = end_of(state, connection, side) else {
        if state.connections.get(&connection).is_some_and(|open| open.open == [false, false]) {
            state.connections.remove(&connection);
        }
        return;
    };
    let absence = host.deadlines.absence;
    let end = host.ends.get_mut(&node).expect("it is an end");
    end.connection = None;
    let mut expires = None;
    if end.goodbye {
        end.is_over = true;
    } else {
        let reason = "the connection closed".to_string();
        host.status.down(node, format!("it was linked, then the link broke: {reason}"));
        if host.status.has_started() && end.lost.is_none() {
            end.lost = Some(now);
            expires = absence.map(|absence| now + absence);
        }
        host.events.push_back(Event::Lost { peer: node, reason });
    }
    let machine = host.machine;
    state.notify(machine);
    let open = state.connections.get_mut(&connection).expect("it was there");
    open.open[side] = false;
    let (host, other) = (open.ends[side].0, open.open[1 - side]);
    if let Some(when) = expires {
        state.at(when, Act::Expire { host, peer: node.0, lost: now });
    }
    if other {
        // The other end sees it later, at the latest by its silence.
        let when = now + state.millis(1, 6_000);
        state.at(when, Act::Close { connection, end: 1 - side });
    }
}

/// Gives up a lost link that has not returned.
fn expire(state: &mut State, host: u64, peer: NodeId, lost: Duration) {
    let Some(host) = state.hosts.get_mut(&host) else { return };
    let Some(end) = host.ends.get_mut(&peer) else { return };
    if end.lost != Some(lost) || end.is_over {
        return;
    }
    (end.is_over, end.lost) = (true, None);
    host.events.push_back(Event::Down { peer, reason: "it did not return".into() });
    let machine = host.machine;
    state.notify(machine);
}
