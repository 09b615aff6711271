//! What is known of a run and its nodes, in the form in which a node tells of its network.

use std::{collections::BTreeMap, fs, io::ErrorKind};

use gradvine::{
    run::{Participation, Run, STATUS_FILE, Status},
    units::{NodeId, duration},
};
use gradvine_page::{Event, Link, Network, Node, VERSION};

use super::{
    MOST_NODES,
    loaded::measures,
    tables,
    words::{count, percent},
};
use crate::summary::describe;

/// A run.
pub(super) fn network(run: &Run) -> Network {
    let state = match run.status() {
        Status::Done | Status::Short(_) => "done",
        Status::Diverged(_) => "diverged",
        Status::Interrupted(_) => "stopped",
        Status::Failed(_) => "failed",
        Status::Unfinished => "unfinished",
    };
    let nodes = run.topology.nodes();
    let shown = nodes.min(MOST_NODES);
    let name = |node: NodeId| run.topology.node(node).name.clone();
    let is_shown = |node: NodeId| node.index() < shown;
    let edges = run.topology.edges().filter(|(a, b)| is_shown(*a) && is_shown(*b));
    let mut sentence = sentence(run);
    if shown < nodes {
        sentence += &format!(" The first {shown} of {nodes} nodes are drawn.");
    }
    Network {
        run: run.name.clone(),
        topology: run.topology.name().into(),
        rounds: run.experiment.run.rounds.max(run.rounds()),
        round: run.rounds(),
        state: state.into(),
        utilisation: run.summary.as_ref().map(|summary| summary.computing).filter(|all| *all > 0.0),
        nodes: (0..shown).map(|node| self::node(run, NodeId::from(node))).collect(),
        edges: edges.map(|(a, b)| (name(a), name(b))).collect(),
        events: events(run),
        ..of_all(&sentence)
    }
}

/// Several runs, of which no node is known.
pub(super) fn of_all(sentence: &str) -> Network {
    Network {
        version: VERSION,
        run: "gradvine report".into(),
        program: env!("CARGO_PKG_VERSION").into(),
        state: "done".into(),
        sentence: sentence.into(),
        ..Network::default()
    }
}

/// How a run ended, in a sentence.
fn sentence(run: &Run) -> String {
    let rounds = count(run.rounds() as usize, "round");
    let ended = tables::ended(run);
    let Some(summary) = &run.summary else {
        return format!("{rounds} so far: there is no summary.json.");
    };
    let time = match summary.time_s > 0.0 {
        true => format!(" in {}", duration(summary.time_s)),
        false => String::new(),
    };
    let mut text = match run.status() {
        Status::Failed(why) => return format!("The run failed: {why}."),
        Status::Done if ended == "done" => format!("{rounds}{time}"),
        Status::Short(_) => format!("{rounds}{time}, {ended}"),
        _ => format!("The run {ended}{time}"),
    };
    match (summary.outcome.test_accuracy_of_mean, summary.outcome.train_loss) {
        (Some(share), _) => text += &format!(", {} of the test rows are right", percent(share)),
        (None, Some(loss)) => text += &format!(", training loss {}", super::number(loss)),
        (None, None) => {}
    }
    text + "."
}

/// A node of it.
fn node(run: &Run, node: NodeId) -> Node {
    let name = &run.topology.node(node).name;
    let summary = run.summary.as_ref();
    let part = summary.and_then(|summary| summary.participation.get(name));
    let last = u32::try_from(node.index()).ok().and_then(|node| run.last.get(&node));
    let away = summary.and_then(|summary| summary.away.get(name)).copied();
    let seen = last.map(|metric| metric.round);
    let round = part.map(|part| part.rounds).or(away).or(seen).unwrap_or(0);
    let (state, reason) = end_of(run, name, round);
    let links = links(run, node);
    let received = links.iter().filter_map(|link| link.received_bytes);
    let times = part.map_or(0, |part| part.restarts);
    let again =
        (times > 0).then(|| format!("it was started again {}", count(times as usize, "time")));
    let is_shared = run.points.iter().any(|point| point.consensus.is_some());
    Node {
        name: name.clone(),
        number: node.0,
        state: state.into(),
        member: away.is_none(),
        round,
        reason,
        loss: last.and_then(|metric| metric.train_loss).filter(|_| !is_shared),
        measures: last.map(measures).or_else(|| Some(at_the_end(part?))).unwrap_or_default(),
        evaluated: seen,
        sent_bytes: run.sent(node.index()).map_or(0, |sent| sent[1]),
        received_bytes: received.fold(0, u64::saturating_add),
        warnings: again.into_iter().collect(),
        links,
        ..Node::default()
    }
}

/// The figures of a node that are in the summary.
fn at_the_end(part: &Participation) -> BTreeMap<String, f64> {
    let test = part.test.as_ref();
    let known =
        [("test_loss", test.map(|figures| figures.loss)), ("test_accuracy", part.test_accuracy)];
    known.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

/// The state of a node at the end, and why.
fn end_of(run: &Run, name: &str, round: u64) -> (&'static str, String) {
    let Some(summary) = &run.summary else { return ("unfinished", String::new()) };
    if let Some(rounds) = summary.away.get(name) {
        return ("left", format!("took part in {rounds} rounds"));
    }
    if let Some(why) = summary.unusable.get(name) {
        return ("failed", format!("has a record that cannot be used: {why}"));
    }
    match run.status() {
        Status::Short(names) if names.iter().any(|short| short == name) => {
            let all = summary.rounds_of(run.experiment.run.rounds);
            ("short", format!("did {round} of {all} rounds"))
        }
        _ => ("done", String::new()),
    }
}

/// The links of a node, with their bytes.
fn links(run: &Run, node: NodeId) -> Vec<Link> {
    let name = &run.topology.node(node).name;
    let wire = |from: &str, to: &str| {
        Some(run.summary.as_ref()?.participation.get(from)?.links.get(to)?.wire)
    };
    let link = |to: &NodeId| {
        let other = &run.topology.node(*to).name;
        Link {
            to: other.clone(),
            up: true,
            sent_bytes: wire(name, other),
            received_bytes: wire(other, name),
            ..Link::default()
        }
    };
    let drawn = run.topology.neighbours(node).iter().filter(|to| to.index() < MOST_NODES);
    drawn.map(link).collect()
}

/// What a node saw, if the run directory is that of one; then the changes of the members.
fn events(run: &Run) -> Vec<Event> {
    let mut events = seen(run).unwrap_or_else(|error| {
        let text = format!("{STATUS_FILE} has no events that can be read: {error}");
        vec![Event { level: "warning".into(), text, ..Event::default() }]
    });
    let changes = run.summary.iter().flat_map(|summary| &summary.history);
    let next = events.last().map_or(0, |event| event.number + 1);
    events.extend((next..).zip(changes).map(|(number, change)| Event {
        number,
        level: "info".into(),
        text: format!("After round {}, {}.", change.round, describe(change)),
        ..Event::default()
    }));
    events
}

/// The events that a node saw; none if it wrote no file of them.
fn seen(run: &Run) -> Result<Vec<Event>, String> {
    let bytes = match fs::read(run.path.join(STATUS_FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let network: Network = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    match network.version {
        VERSION => Ok(network.events),
        other => Err(format!("its version is {other}, and this program reads {VERSION}")),
    }
}
