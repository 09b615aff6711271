//! A network for Prometheus: `/metrics`.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    metrics::MetricType,
    registry::Registry,
};

use gradvine_page::{Network, Node};

/// The content types of the two formats.
const OPEN: &str = "application/openmetrics-text";
const OPEN_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content type and the text of a scrape: OpenMetrics for those who accept it, otherwise the
/// older text format.
pub(crate) fn text(network: &Network, accept: &str) -> (&'static str, String) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(network.clone())));
    let mut text = String::new();
    // A String takes any text.
    let _ = text::encode(&mut text, &registry);
    match accept.contains(OPEN) {
        true => (OPEN_TYPE, text),
        false => (PLAIN_TYPE, plain(&text)),
    }
}

/// The older format: the comments of a counter name it as its values do, and there is no end.
fn plain(open: &str) -> String {
    let counters: Vec<&str> = (open.lines().filter_map(|line| line.strip_prefix("# TYPE ")))
        .filter_map(|line| line.strip_suffix(" counter"))
        .collect();
    let mut text = String::new();
    for line in open.lines().filter(|line| *line != "# EOF") {
        let comment = line.strip_prefix("# ").and_then(|comment| {
            let (kind, about) = comment.split_once(' ')?;
            let (name, rest) = about.split_once(' ')?;
            counters.contains(&name).then(|| format!("# {kind} {name}_total {rest}"))
        });
        text += comment.as_deref().unwrap_or(line);
        text.push('\n');
    }
    text
}

#[derive(Debug)]
struct Figures(Network);

/// A figure of a node: its name, what it is, whether it only grows, where it is.
type Figure = (&'static str, &'static str, bool, fn(&Node) -> Option<f64>);

const FIGURES: [Figure; 12] = [
    ("gradvine_node_rounds", "Rounds that a node has done", false, |node| Some(node.round as f64)),
    ("gradvine_node_record_age_seconds", "Time since the newest record of a node", false, |node| {
        node.age_s
    }),
    ("gradvine_node_loss", "Loss over the batches of a node's last round", false, |node| node.loss),
    ("gradvine_node_computing_ratio", "Share of time in gradients", false, |node| {
        node.shares.get("computing").copied()
    }),
    ("gradvine_node_waiting_ratio", "Share of time in which a node waits", false, |node| {
        node.shares.get("waiting").copied()
    }),
    ("gradvine_node_round_seconds", "Mean time of a round in the last seconds", false, |node| {
        node.round_s
    }),
    ("gradvine_node_checkpoint_age_seconds", "Age of a node's newest checkpoint", false, |node| {
        node.checkpoint.map(|kept| kept.age_s)
    }),
    ("gradvine_node_member", "1 if a node takes part", false, |node| {
        Some(f64::from(u8::from(node.member)))
    }),
    ("gradvine_node_warnings", "Warnings in a node's newest record", false, |node| {
        Some(node.warnings.len() as f64)
    }),
    ("gradvine_node_sent_bytes", "Bytes of frames sent", true, |node| Some(node.sent_bytes as f64)),
    ("gradvine_node_received_bytes", "Bytes of frames received", true, |node| {
        Some(node.received_bytes as f64)
    }),
    ("gradvine_node_outages", "Links that were lost", true, |node| Some(f64::from(node.outages))),
];

/// All states of a node, one of which it has.
const STATES: [&str; 11] = [
    "starting",
    "checkpoint",
    "computing",
    "waiting",
    "sending",
    "choosing",
    "finishing",
    "done",
    "left",
    "failed",
    "silent",
];

impl Collector for Figures {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Figures(network) = self;
        let known = || network.nodes.iter().filter(|node| node.state != "unknown");
        for (name, help, grows, figure) in FIGURES {
            let kind = if grows { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = out.encode_descriptor(name, help, None, kind)?;
            for node in known() {
                let Some(value) = figure(node) else { continue };
                let labels = [("node", node.name.as_str())];
                let mut of_node = metric.encode_family(&labels)?;
                if grows {
                    of_node.encode_counter::<Vec<(String, String)>, _, f64>(&value, None)?;
                } else {
                    of_node.encode_gauge(&value)?;
                }
            }
        }
        let (name, help) = ("gradvine_node_measure", "A figure of a node's last evaluation");
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for node in known() {
            for (measure, value) in &node.measures {
                let labels = [("node", node.name.as_str()), ("measure", measure.as_str())];
                metric.encode_family(&labels)?.encode_gauge(value)?;
            }
        }
        let (name, help) = ("gradvine_node_state", "1 for the state that a node is in");
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for node in &network.nodes {
            for state in STATES.into_iter().chain(["unknown"]) {
                let labels = [("node", node.name.as_str()), ("state", state)];
                let is = u32::from(node.state == state);
                metric.encode_family(&labels)?.encode_gauge(&f64::from(is))?;
            }
        }
        let (name, help) = ("gradvine_link_up", "1 if a link is up, as the node sees it");
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for node in known() {
            for link in &node.links {
                let labels = [("node", node.name.as_str()), ("to", link.to.as_str())];
                let up = f64::from(u8::from(link.up));
                metric.encode_family(&labels)?.encode_gauge(&up)?;
            }
        }
        let (name, help) = ("gradvine_holding_up", "1 for a node for which the others wait");
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for node in &network.nodes {
            let is = f64::from(u8::from(network.holding_up.contains(&node.name)));
            metric.encode_family(&[("node", node.name.as_str())])?.encode_gauge(&is)?;
        }
        let rounds = network.rounds as f64;
        let (name, help) = ("gradvine_run_rounds", "Rounds of the run");
        out.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&rounds)
    }
}
