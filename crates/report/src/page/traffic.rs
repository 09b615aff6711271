//! The bytes sent: by the nodes of a run, over its links.

use super::words::{grouped, number, percent, short};
use gradvine::{
    links::conditions,
    run::{LinkBytes, Run},
    units::{Bytes, NodeId},
};
use gradvine_page::{Block, Cell, Table};

/// Columns of bytes.
const PAYLOAD: &str = "payload";
const WIRE: &str = "on the wire";

/// The maximum number of rows of a table of nodes or links.
const MOST_ROWS: usize = 200;
/// The maximum length of a name in a table, in characters.
const LONGEST: usize = 60;

/// The bytes of a run's nodes and links.
pub(super) fn blocks(run: &Run) -> Vec<Block> {
    let loads = loads(run);
    let mut blocks = vec![Block::Table(participants(run))];
    if !loads.is_empty() {
        blocks.push(Block::Table(links(run, &loads)));
        blocks.push(Block::Text { text: latencies(run, &loads).into() });
    }
    blocks.push(Block::Text {
        text: "Payload, with headers before encryption, and what dense gossip would have sent: 4 \
               bytes a parameter to every neighbour in every round. The setup and the exact mean \
               at the end are not among them."
            .into(),
    });
    blocks
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
    let accuracy = "test accuracy of its own model";
    let head = ["node", "rows", "rounds", "missed", accuracy, PAYLOAD, WIRE, "dense gossip"];
    let rows = (0..nodes.min(MOST_ROWS)).map(row).collect();
    let caption = format!("Nodes of {}", short(&run.name, LONGEST));
    Table { left_out: rest(nodes, "nodes"), ..Table::new(caption, &head, rows) }
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

/// The links of a run, the busiest first.
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
    let mut loads: Vec<Load> = run.topology.edges().filter_map(load).collect();
    loads.sort_by_key(|load| (std::cmp::Reverse(load.wire()), load.ends));
    loads
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
    let sent = [PAYLOAD, WIRE].map(|what| ["forth", "back"].map(|way| format!("{what}, {way}")));
    let mut head = vec!["link", "weight", "latency, one way", "bandwidth"];
    head.extend(sent.iter().flatten().map(String::as_str));
    let rows = loads.iter().take(MOST_ROWS).map(row).collect();
    let caption = format!("Links of {}, the busiest first", short(&run.name, LONGEST));
    Table { left_out: rest(loads.len(), "links"), ..Table::new(caption, &head, rows) }
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
