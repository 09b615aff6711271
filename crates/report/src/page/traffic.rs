//! The bytes sent: runs compared, the nodes of a run, its links.

use super::{
    Figure, MOST_CURVES,
    bars::Bars,
    markup::{self, Cell, Table, count, grouped, number, percent, short},
    tables::sent,
};
use gradvine::{
    links::conditions,
    run::{LinkBytes, Run},
    units::{Bytes, NodeId},
};

/// The maximum number of rows of a picture of bars.
const MOST_BARS: usize = 32;
/// The maximum number of rows of a table of nodes or links.
const MOST_ROWS: usize = 200;
/// The maximum length of a name in a table, in characters.
const LONGEST: usize = 60;

const SERIES: [&str; 3] = ["payload", "on the wire", "dense gossip"];

/// The mean bytes that a node of each run sent.
pub(super) fn of_runs(runs: &[Run]) -> Option<Figure> {
    let drawn = &runs[..runs.len().min(MOST_CURVES)];
    let rows: Vec<(String, Vec<Option<f64>>)> = drawn
        .iter()
        .map(|run| (run.name.clone(), (0..3).map(|which| sent(run, which)).collect()))
        .collect();
    if rows.iter().all(|(_, values)| values.iter().flatten().all(|bytes| *bytes == 0.0)) {
        return None;
    }
    let title = "Bytes that a node sent";
    let bars = Bars {
        title: title.into(),
        subtitle: "mean of a run's nodes".into(),
        series: SERIES.to_vec(),
        rows,
    };
    let table = Table {
        caption: title.into(),
        head: std::iter::once("run").chain(SERIES).map(String::from).collect(),
        rows: bars.rows.iter().map(line).collect(),
        left_out: String::new(),
    };
    Some(Figure {
        id: "bytes".into(),
        title: title.into(),
        caption: "Payload, with headers before encryption, and what dense gossip would have sent: \
                  4 bytes a parameter to every \
                  neighbour in every round. The setup and the exact mean at the end are not among \
                  them."
            .into(),
        svg: bars.svg(&describe(&bars.rows)),
        still: String::new(),
        narrow: Some(bars.narrow(&describe(&bars.rows))),
        table,
    })
}

/// The bytes that each node of a run sent; `number` is the run's, from 1.
pub(super) fn of_nodes(run: &Run, number: usize) -> Option<Figure> {
    let mut nodes: Vec<(NodeId, [u64; 3])> = (0..run.topology.nodes())
        .filter_map(|node| Some((NodeId::from(node), run.sent(node)?)))
        .collect();
    if nodes.iter().all(|(_, bytes)| bytes[0] == 0) {
        return None;
    }
    let all = nodes.len();
    if all > MOST_BARS {
        nodes.sort_by_key(|(node, bytes)| (std::cmp::Reverse(bytes[1]), *node));
        nodes.truncate(MOST_BARS);
    }
    let row = |(node, bytes): &(NodeId, [u64; 3])| {
        (
            run.topology.node(*node).name.clone(),
            bytes.iter().map(|bytes| Some(*bytes as f64)).collect(),
        )
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = nodes.iter().map(row).collect();
    let title = format!("{}: bytes that each node sent", short(&run.name, 40));
    let which = if all > MOST_BARS {
        format!("the {MOST_BARS} nodes of {all} that sent most")
    } else {
        "all nodes".into()
    };
    let bars = Bars { title: title.clone(), subtitle: which, series: SERIES.to_vec(), rows };
    Some(Figure {
        id: format!("nodes-{number}"),
        svg: bars.svg(&describe(&bars.rows)),
        still: String::new(),
        narrow: Some(bars.narrow(&describe(&bars.rows))),
        title,
        caption: String::new(),
        table: participants(run),
    })
}

/// The nodes, with their rows and results.
fn participants(run: &Run) -> Table {
    let nodes = run.topology.nodes();
    let row = |node: usize| {
        let name = &run.topology.node(node.into()).name;
        let part = run.summary.as_ref().and_then(|summary| summary.participation.get(name));
        let figure = |value: Option<String>| value.map_or(Cell::Nothing, Cell::Figure);
        let bytes = run.sent(node);
        let sent = |which: usize| figure(bytes.map(|bytes| Bytes(bytes[which]).to_string()));
        let last = run.last.get(&(node as u32));
        let rounds = part.map(|part| part.rounds).or(last.map(|metric| metric.round));
        let accuracy = part
            .and_then(|part| part.test_accuracy)
            .or(last.and_then(|metric| metric.test_accuracy));
        vec![
            Cell::Name(short(name, LONGEST)),
            figure(part.map(|part| grouped(part.rows))),
            figure(rounds.map(grouped)),
            figure(
                part.zip(run.summary.as_ref())
                    .map(|(part, summary)| grouped(summary.rounds.saturating_sub(part.rounds))),
            ),
            figure(accuracy.map(percent)),
            sent(0),
            sent(1),
            sent(2),
        ]
    };
    let head = [
        "node",
        "rows",
        "rounds",
        "missed",
        "test accuracy of its own model",
        "payload",
        "on the wire",
        "dense gossip",
    ];
    Table {
        caption: format!("Nodes of {}", short(&run.name, LONGEST)),
        head: head.map(String::from).into(),
        rows: (0..nodes.min(MOST_ROWS)).map(row).collect(),
        left_out: rest(nodes, "nodes"),
    }
}

/// A link and its bytes.
struct Load {
    ends: (NodeId, NodeId),
    /// In both directions, as far as the summary has them.
    sent: [Option<LinkBytes>; 2],
    weight: f64,
    latency_ms: Option<f64>,
    rate_mbps: Option<f64>,
}

impl Load {
    fn wire(&self) -> u64 {
        self.sent.iter().flatten().fold(0, |sum, sent| sum.saturating_add(sent.wire))
    }

    fn name(&self, run: &Run) -> String {
        let name = |node: NodeId| run.topology.node(node).name.as_str();
        format!("{} – {}", name(self.ends.0), name(self.ends.1))
    }
}

/// The bytes over each link of a run.
pub(super) fn of_links(run: &Run, number: usize) -> Option<Figure> {
    let mut loads = loads(run);
    if loads.iter().all(|load| load.wire() == 0) {
        return None;
    }
    loads.sort_by_key(|load| (std::cmp::Reverse(load.wire()), load.ends));
    let all = loads.len();
    let row = |load: &Load| {
        let bytes = |way: usize| load.sent[way].map(|sent| sent.payload as f64);
        (load.name(run), vec![bytes(0), bytes(1)])
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = loads.iter().take(MOST_BARS).map(row).collect();
    let title = format!("{}: payload over each link", short(&run.name, 40));
    let which = if all > MOST_BARS {
        format!("the {MOST_BARS} busiest of {all}")
    } else {
        "the busiest first".into()
    };
    let bars = Bars {
        title: title.clone(),
        subtitle: which,
        series: vec!["sent by the first", "sent by the second"],
        rows,
    };
    Some(Figure {
        id: format!("links-{number}"),
        svg: bars.svg(&describe(&bars.rows)),
        still: String::new(),
        narrow: Some(bars.narrow(&describe(&bars.rows))),
        title,
        caption: latencies(run, &loads).into(),
        table: links(run, &loads),
    })
}

fn latencies(run: &Run, loads: &[Load]) -> &'static str {
    match (loads.iter().any(|load| load.latency_ms.is_some()), run.simulated()) {
        (true, true) => {
            "Latency and bandwidth, in the table, are those of the topology's links and of \
             [network]."
        }
        (true, false) => {
            "Latency and bandwidth, in the table, are what the topology says, not what was \
             measured."
        }
        (false, _) => "Neither the topology nor the run says how long a link takes.",
    }
}

fn loads(run: &Run) -> Vec<Load> {
    // The run's virtual network; its gradients were measured before the run, if at all.
    let network = (run.simulated().then(|| {
        let experiment = &run.experiment;
        conditions(&experiment.network, &run.topology, &experiment.run, &mut || 0.0).ok()
    }))
    .flatten();
    let parts = run.summary.as_ref().map(|summary| &summary.participation);
    let sent = |from: NodeId, to: NodeId| {
        let name = |node: NodeId| &run.topology.node(node).name;
        parts?.get(name(from))?.links.get(name(to)).copied()
    };
    let load = |(a, b): (NodeId, NodeId)| {
        let link = run.topology.link(a, b)?;
        let model = network.as_ref().map(|network| network.link(a, b));
        Some(Load {
            ends: (a, b),
            sent: [sent(a, b), sent(b, a)],
            weight: link.weight,
            latency_ms: link.latency_ms.or(model.map(|model| model.latency as f64 / 1e6)),
            rate_mbps: link
                .bandwidth_mbps
                .or(model.map(|model| model.rate / 1e6))
                .filter(|rate| rate.is_finite()),
        })
    };
    run.topology.edges().filter_map(load).collect()
}

fn links(run: &Run, loads: &[Load]) -> Table {
    let figure = |value: Option<String>| value.map_or(Cell::Nothing, Cell::Figure);
    let row = |load: &Load| {
        let bytes = |way: usize, of: fn(&LinkBytes) -> u64| {
            figure(load.sent[way].as_ref().map(|sent| Bytes(of(sent)).to_string()))
        };
        vec![
            Cell::Name(short(&load.name(run), LONGEST)),
            Cell::Figure(number(load.weight)),
            figure(load.latency_ms.map(|ms| format!("{ms} ms"))),
            figure(load.rate_mbps.map(|rate| format!("{rate} Mbit/s"))),
            bytes(0, |sent| sent.payload),
            bytes(1, |sent| sent.payload),
            bytes(0, |sent| sent.wire),
            bytes(1, |sent| sent.wire),
        ]
    };
    let head = [
        "link",
        "weight",
        "latency, one way",
        "bandwidth",
        "payload, forth",
        "payload, back",
        "on the wire, forth",
        "on the wire, back",
    ];
    Table {
        caption: format!("Links of {}, the busiest first", short(&run.name, LONGEST)),
        head: head.map(String::from).into(),
        rows: loads.iter().take(MOST_ROWS).map(row).collect(),
        left_out: rest(loads.len(), "links"),
    }
}

fn rest(all: usize, what: &str) -> String {
    if all <= MOST_ROWS {
        return String::new();
    }
    format!(
        "{} of {} {what} are shown; summary.json has all.",
        grouped(MOST_ROWS as u64),
        grouped(all as u64)
    )
}

fn line((name, values): &(String, Vec<Option<f64>>)) -> Vec<Cell> {
    let cell = |value: &Option<f64>| {
        value.map_or(Cell::Nothing, |bytes| Cell::Figure(markup::bytes(bytes)))
    };
    std::iter::once(Cell::Name(short(name, LONGEST))).chain(values.iter().map(cell)).collect()
}

/// Describes the least and the greatest.
fn describe(rows: &[(String, Vec<Option<f64>>)]) -> String {
    let firsts: Vec<(&str, f64)> = rows
        .iter()
        .filter_map(|(name, values)| Some((name.as_str(), (*values.first()?)?)))
        .collect();
    let least = firsts.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let greatest = firsts.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    match (least, greatest) {
        (Some(least), Some(greatest)) if least.1 < greatest.1 => format!(
            "{}: the least {} ({}), the most {} ({}).",
            count(rows.len(), "row"),
            markup::bytes(least.1),
            least.0,
            markup::bytes(greatest.1),
            greatest.0
        ),
        (Some(all), _) => format!("{}, each {}.", count(rows.len(), "row"), markup::bytes(all.1)),
        _ => String::new(),
    }
}
