//! What happens next, from bytes.

use std::{sync::OnceLock, time::Duration};

use super::{
    bytes::Bytes,
    checks::Reached,
    disk::Disk,
    honest,
    messages::{self, Start},
    table::{Run, Stage, Table},
};
use crate::{
    cluster::{
        Input,
        event::{Difference, Event},
        members::keys::Named,
        message::Origin,
        part::Adjacent,
        waiting::pace::{Alive, Pace},
    },
    drive::RunError,
    experiment::Experiment,
    run::Whole,
    units::NodeId,
};

/// Steps of one input, at the most.
const MOST_STEPS: usize = 200;

/// The files that all runs have.
const COMMON: [&str; 11] = [
    "run.rounds=24",
    "compressor.kind=identity",
    "data.source=synthetic",
    "data.rows=30",
    "data.features=3",
    "data.test_share=0",
    "model.kind=least-squares",
    "optimizer.step=0.01",
    "absence.deadline_s=20",
    "run.connect_s=60",
    "run.patience_s=60",
];

/// In what they differ: topology, policy, checkpoints, rule; and when they begin.
const RUNS: [[&str; 5]; 8] = [
    ["complete:4", "continue", "every_rounds=2", "d-psgd", "\"all\""],
    ["complete:4", "wait", "every_rounds=2", "d-psgd", "\"all\""],
    ["ring:4", "continue", "every_s=1", "d-psgd", "\"all\""],
    ["ring:4", "wait", "every_s=1", "d-psgd", "\"all\""],
    ["complete:4", "continue", "every_s=1", "dcd", "\"all\""],
    ["path:3", "continue", "every_rounds=2", "d-psgd", "\"all\""],
    ["ring:4", "continue", "every_rounds=2", "d-psgd", "{ quorum = 3, within_s = 30 }"],
    ["complete:4", "continue", "every_rounds=2", "dcd", "\"all\""],
];

fn files(number: usize) -> &'static Run {
    static ALL: [OnceLock<Run>; RUNS.len()] = [const { OnceLock::new() }; RUNS.len()];
    ALL[number].get_or_init(|| {
        let [topology, policy, every, rule, start] = RUNS[number];
        let mut settings: Vec<String> = COMMON.iter().map(ToString::to_string).collect();
        settings.extend([
            format!("topology.file={topology}"),
            format!("absence.policy={policy}"),
            format!("checkpoint.{every}"),
            format!("rule.kind={rule}"),
            format!("run.start={start}"),
        ]);
        let experiment = Experiment::parse("", &settings).expect("the settings are valid");
        let whole = Whole::new(experiment).expect("the run is valid");
        let nodes = (0..whole.design.topology.nodes()).map(NodeId::from);
        let setups = nodes.map(|node| whole.spec(node).config.setup).collect();
        Run { design: whole.design, setups }
    })
}

/// Runs a node with these bytes.
pub(super) fn run(bytes: &[u8]) -> Reached {
    let bytes = &mut Bytes(bytes);
    let run = files(bytes.below(RUNS.len()));
    let nodes = run.design.topology.nodes();
    let me = bytes.node(nodes);
    let mut table = Table::new(run, me);
    let neighbours = run.design.topology.neighbours(me);
    table.hostile = neighbours[bytes.below(neighbours.len())];
    for _ in 0..MOST_STEPS {
        if bytes.is_empty() {
            break;
        }
        step(bytes, &mut table);
    }
    table.checks.reached
}

fn step(bytes: &mut Bytes<'_>, table: &mut Table) {
    let kind = bytes.byte() % 24;
    let neighbours = table.neighbours();
    let hostile = neighbours.iter().copied().find(|peer| peer.number == table.hostile);
    match kind {
        0 => {
            let times = 1 + bytes.below(64);
            (0..times).for_each(|_| all_go_on(table));
        }
        1 => all_go_on(table),
        2 => table.tick(Duration::from_millis(10 * u64::from(bytes.byte()))),
        3 => table.tick(Duration::from_secs(bytes.byte().into())),
        4 => table.tick(Duration::from_millis(bytes.number(0).min(1 << 41))),
        5 | 6 => {
            let peer = neighbours[bytes.below(neighbours.len())];
            link(bytes, table, peer);
        }
        7..=10 => {
            let Some(peer) = hostile else { return };
            match messages::start(bytes, table) {
                Start::Says(batch) => table.told(peer, batch),
                Start::Knows(news) => table.say(peer, news),
            }
        }
        11 | 12 => {
            let Some(peer) = hostile.filter(|peer| !peer.unused) else { return };
            let statements = match kind {
                11 => messages::reports(bytes, table),
                _ => messages::schedule(bytes, table),
            };
            table.told(peer, statements.into());
        }
        13 | 14 => {
            let Some(peer) = hostile.filter(|peer| !peer.unused) else { return };
            let frame = messages::frame(bytes, table);
            table.peers.inject(peer.node, frame);
            frames(table, peer, 1 + bytes.below(3), None);
        }
        15 => {
            let peer = neighbours[bytes.below(neighbours.len())];
            let (times, piece) = (bytes.below(4), bytes.byte());
            frames(table, peer, times, (piece > 0).then_some(piece.into()));
        }
        16 => {
            let kind = bytes.byte();
            table.computed(kind);
        }
        17 => go_on(table, neighbours[bytes.below(neighbours.len())]),
        18 => table.present = bytes.subset(table.run.design.topology.nodes()).into_iter().collect(),
        19 => disk(bytes, table),
        20 => ask(bytes, table),
        21 => facts(bytes, table),
        22 => {
            if !bytes.flag() || table.stage == Stage::Over {
                table.start();
            }
        }
        _ => {
            // Some are there no longer.
            let absent = bytes.node(table.run.design.topology.nodes());
            table.present.remove(&absent);
            if let Some(peer) = neighbours.iter().find(|peer| peer.number == absent) {
                lose(table, *peer, bytes.flag());
            }
        }
    }
}

/// A link breaks, and may be given up.
fn lose(table: &mut Table, peer: Adjacent, is_over: bool) {
    let end = table.links.entry(peer.number).or_default();
    if peer.unused || end.over || !std::mem::replace(&mut end.up, false) {
        return;
    }
    (end.lost, end.over) = (table.stage == Stage::Rounds, is_over);
    let reason = "the connection closed".to_string();
    table.event(Event::Lost { peer: peer.node, reason: reason.clone() });
    if is_over && table.neighbours().contains(&peer) {
        table.event(Event::Down { peer: peer.node, reason });
    }
}

/// Something happens to a link.
fn link(bytes: &mut Bytes<'_>, table: &mut Table, peer: Adjacent) {
    let kind = bytes.byte() % 10;
    if peer.unused {
        if kind == 0 {
            table.event(Event::OtherMembership { peer: peer.node, because: None });
        }
        return;
    }

    let node = peer.node;
    match kind {
        0 => table.event(Event::OtherMembership { peer: node, because: None }),
        1 => _ = table.connect(peer),
        2 => lose(table, peer, false),
        3 => lose(table, peer, true),
        4 => {
            let because = bytes.flag().then(|| origin(bytes, table));
            table.links.entry(peer.number).or_default().sent = 0;
            table.event(Event::Restarted { peer: node, because });
        }
        5 => {
            let cause = messages::cause(bytes, table);
            let begun = matches!(table.stage, Stage::Rounds | Stage::HasResults);
            let end = table.links.entry(peer.number).or_default();
            (end.up, end.over) = (false, begun);
            table.event(Event::Left { peer: node, cause });
        }
        6 => {
            let difference = Difference::Programs(bytes.text());
            table.event(Event::Differs { peer: node, difference });
        }
        7 => table.event(Event::Goodbye(node)),
        _ => {
            let end = table.links.entry(peer.number).or_default();
            if end.sent > 0 {
                end.sent -= 1;
                table.event(Event::Taken(node));
            }
        }
    }
}

/// What a neighbour shows that has gone back: of any node, signed by it or not.
fn origin(bytes: &mut Bytes<'_>, table: &Table) -> Origin {
    let nodes = table.run.design.topology.nodes();
    let (node, signer) = (bytes.node(nodes), bytes.node(nodes));
    let about = bytes.flag().then(|| bytes.node(nodes));
    let number = bytes.byte().into();
    let origin = Origin { node: signer, number, about, ..Origin::default() };
    Origin { node, ..origin.signed(&Named(signer)) }
}

/// Frames of a neighbour arrive.
fn frames(table: &mut Table, peer: Adjacent, times: usize, piece: Option<usize>) {
    for _ in 0..times {
        if !table.neighbours().contains(&peer) || peer.unused || !table.connect(peer) {
            return;
        }
        let Some(event) = table.peers.take(peer.node, piece) else { return };
        table.bytes += 1;
        table.event(event);
    }
}

/// All that is pending is done, all others say what they should, and a tick follows.
fn all_go_on(table: &mut Table) {
    for peer in table.neighbours() {
        if table.present.contains(&peer.number) {
            go_on(table, peer);
        }
    }
    if table.stage == Stage::Rounds {
        honest::reports(table);
    }
    table.computed(u8::MAX);
    if let Some(rounds) = table.writes.pop_front() {
        table.event(Event::Durable(rounds));
    }
    if table.stage == Stage::Closes {
        table.feed(Input::Closed);
    }
    table.tick(Duration::from_millis(100));
}

/// A neighbour says what it should.
fn go_on(table: &mut Table, peer: Adjacent) {
    if !table.neighbours().contains(&peer) || peer.unused || !table.connect(peer) {
        return;
    }
    match table.stage {
        Stage::Meets => {
            let batch = honest::reports_of_all(table);
            table.told(peer, batch);
        }
        Stage::Rounds => {
            honest::begin(table);
            let end = table.links.entry(peer.number).or_default();
            for _ in 0..std::mem::take(&mut end.sent) {
                table.event(Event::Taken(peer.node));
            }
            frames(table, peer, 8, None);
        }
        Stage::HasResults => {
            honest::wrote(table, peer.node);
        }
        Stage::Chooses => {
            let linked = table.links.iter().filter(|(_, end)| end.up);
            let linked = linked.map(|(number, _)| *number).collect();
            let topology = &table.run.design.topology;
            table.peers.agree(table.now, topology, &table.present, (table.me, &linked));
            if let Some(news) = table.peers.news(peer.number) {
                table.say(peer, news);
            }
        }
        Stage::Closes | Stage::Over => {}
    }
}

/// The disk answers, is full, or loses something.
fn disk(bytes: &mut Bytes<'_>, table: &mut Table) {
    match bytes.byte() % 6 {
        0 => table.disk.full = true,
        1 => table.disk.full = false,
        2 => {
            if let Some(rounds) = table.writes.pop_front() {
                table.event(Event::Durable(rounds));
            }
        }
        3 => {
            let number = bytes.node(table.run.design.topology.nodes());
            table.peers.lose(number);
        }
        4 => {
            table.checks.damaged = true;
            table.disk.checkpoints.pop_last();
        }
        _ => {
            // Another disk is put in while the program is down.
            if table.disk.results.is_none() {
                table.disk = Disk::default();
                table.start();
            }
        }
    }
}

/// The user, the system or the program itself ends the run.
fn ask(bytes: &mut Bytes<'_>, table: &mut Table) {
    match bytes.byte() % 8 {
        0 => table.feed(Input::Stop),
        1 => table.feed(Input::Failed(RunError::Host(bytes.text()))),
        2 => table.feed(Input::Panicked(bytes.text())),
        3 if table.stage == Stage::Closes => table.feed(Input::Closed),
        _ => table.tick(Duration::from_millis(100)),
    }
}

/// What the links know besides.
fn facts(bytes: &mut Bytes<'_>, table: &mut Table) {
    let (me, members) = table.place();
    table.waited = Duration::from_millis(bytes.number(100).min(1 << 40));
    table.host = bytes.byte() == 7;
    let alive = Alive { node: bytes.node(members), when: table.now, absent: bytes.flag() };
    table.at_work = bytes.flag().then_some(alive);
    let paces = bytes.list(members, |bytes| {
        // It once had a number; files of the corpus have one.
        bytes.number(1000);
        let pace = Pace {
            waits_for: bytes.list(3, |bytes| bytes.node(members)),
            waiting: bytes.flag().then(|| bytes.byte()),
        };
        (bytes.node(members), pace)
    });
    let others = paces.into_iter().filter(|(node, _)| *node != me);
    others.for_each(|(node, pace)| table.paces.set(node, pace));
}
