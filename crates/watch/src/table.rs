//! A network as a table for a terminal, the worst node first.

use gradvine_page::{Network, Node};
use gradvine_report::{fitted, wrapped};

/// Columns that are left out first where a terminal is narrow.
const LEAST: [&str; 6] = ["outages", "checkpoint", "received", "sent", "computing", "age"];

/// The run in a sentence, a row a node, and problems.
pub fn table(network: &Network, width: Option<usize>) -> String {
    let mut text = wrapped("", &network.sentence, width);
    text += &wrapped("", &progress(network), width);
    text.push('\n');
    text += &rows(network, width);
    let nodes = worst_first(network);
    let problems: Vec<(&str, &str)> = nodes.iter().flat_map(|node| problems(node)).collect();
    if !problems.is_empty() {
        text.push('\n');
    }
    for (name, problem) in problems {
        text += &wrapped(&format!("{name}: "), problem, width);
    }
    text
}

/// How far the run is, and who says so.
pub(crate) fn progress(network: &Network) -> String {
    let Network { run, node, time, rounds, round, .. } = network;
    let mut words = format!("run {run}, round {round} of {rounds}");
    if let Some(left) = network.eta_s {
        words += &format!(", {} left", duration(left));
    }
    if let Some(share) = network.utilisation {
        words += &format!(", {:.0} % of the time in gradients", 100.0 * share);
    }
    format!("{words}; as {node} sees it at {time}")
}

pub(crate) fn worst_first(network: &Network) -> Vec<&Node> {
    let mut nodes: Vec<&Node> = network.nodes.iter().collect();
    nodes.sort_by_key(|node| (rank(network, node), node.round, node.number));
    nodes
}

/// A line of heads, and one a node, the worst first.
pub(crate) fn rows(network: &Network, width: Option<usize>) -> String {
    let heads = [
        "node",
        "state",
        "round",
        "loss",
        "accuracy",
        "age",
        "computing",
        "sent",
        "received",
        "checkpoint",
        "outages",
    ];
    let row = |node: &Node| -> Vec<String> {
        let accuracy = node.measures.get("test_accuracy");
        let state = match (&node.waits_for[..], node.state.as_str()) {
            ([], state) => state.to_string(),
            (names, "waiting") => format!("waits for {}", names.join(", ")),
            (names, state) => format!("{state}, waits for {}", names.join(", ")),
        };
        let state = if node.member { state } else { format!("{state}, takes no part") };
        let percent = |share: &f64| format!("{:.0} %", 100.0 * share);
        let nothing = || "-".to_string();
        vec![
            node.name.clone(),
            state,
            node.round.to_string(),
            node.loss.map_or_else(nothing, |loss| format!("{loss:.4}")),
            accuracy.map_or_else(nothing, |share| format!("{:.1} %", 100.0 * share)),
            node.age_s.map_or_else(nothing, duration),
            node.shares.get("computing").map_or_else(nothing, percent),
            bytes(node.sent_bytes),
            bytes(node.received_bytes),
            node.checkpoint.map_or_else(nothing, |kept| {
                format!("{} ({} ago)", kept.round, duration(kept.age_s))
            }),
            node.outages.to_string(),
        ]
    };
    let mut rows = vec![heads.map(String::from).to_vec()];
    rows.extend(worst_first(network).into_iter().map(row));
    fitted(&rows, &[0, 1], &LEAST, width)
}

/// Links that are down, and warnings.
fn problems(node: &Node) -> impl Iterator<Item = (&str, &str)> {
    let down = node.links.iter().filter(|link| !link.up && !link.reason.is_empty());
    let down = down.map(|link| link.reason.as_str());
    let newest = node.warnings.last().map(String::as_str);
    let known = down.clone().any(|reason| newest.is_some_and(|text| text.contains(reason)));
    down.chain(newest.filter(|_| !known)).map(|text| (node.name.as_str(), text))
}

/// The worst has the least rank.
fn rank(network: &Network, node: &Node) -> u8 {
    match node.state.as_str() {
        "failed" => 0,
        "silent" => 1,
        "unknown" => 2,
        "left" => 3,
        _ if network.holding_up.contains(&node.name) => 4,
        "waiting" => 6,
        "done" => 7,
        _ => 5,
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 172_800.0 => format!("{:.0} d", s / 86_400.0),
        s if s >= 7200.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s if s >= 10.0 => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}

fn bytes(count: u64) -> String {
    match count as f64 {
        count if count >= 1e9 => format!("{:.1} GB", count / 1e9),
        count if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        count if count >= 1e3 => format!("{:.1} kB", count / 1e3),
        count => format!("{count} B"),
    }
}
