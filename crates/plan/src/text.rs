//! A plan as text and as JSON.

use std::fmt::Write as _;

use gradvine::{
    links::needs_relay,
    predict::{LinkLoad, Prediction},
    run::{Constants, Outlook, Whole},
    units::{Bytes, NodeId, duration},
};
use gradvine_report::fitted;
use serde_json::{Value, json};

use crate::{Plan, Refused};

/// Candidates that cannot work are counted, and so many are named.
const REFUSED_SHOWN: usize = 3;
/// The columns of candidates.
const HEADS: [&str; 8] = [
    "topology",
    "compressor",
    "steps",
    "a round",
    "sent/round",
    "rounds to agree",
    "run",
    "what it waits for",
];
/// Figures of candidates that a narrow terminal does not show: the first is missing first.
const LEAST: [&str; 5] = ["what it waits for", "rounds to agree", "sent/round", "steps", "a round"];
/// So many candidates are shown.
const SHOWN: usize = 20;

impl Plan<'_> {
    /// The plan as text: the experiment, central training, the candidates, the data. `width`: the
    /// columns of the terminal, if it is shown on one.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut text = about(self.whole, &self.own, raise(self));
        text += &against(&self.own, &self.central);
        if !self.candidates.is_empty() || !self.refused.is_empty() {
            text += &table(self.whole, &self.candidates, &self.refused, width);
        }
        if let Some(constants) = &self.constants {
            text += &data(constants, &self.own);
        }
        if let Some(choice) = &self.choice {
            text += &choice.text();
        }
        text
    }

    /// The plan as one JSON object, with times in seconds and sizes in bytes.
    pub fn json(&self) -> Value {
        as_json(self)
    }
}

/// Appends a line with a heading.
fn add_line(text: &mut String, head: &str, words: &str) {
    let _ = writeln!(text, "  {head:<13}{words}");
}

/// What this experiment would take.
fn about(whole: &Whole, own: &Outlook, raised: Option<(String, f64)>) -> String {
    let (design, round) = (&whole.design, &own.prediction);
    let mut text = format!(
        "{} with {} on {}: {} nodes, {} parameters, {} rounds\n\n",
        design.rule_name(),
        own.compressor,
        own.topology,
        design.topology.nodes(),
        design.parameters(),
        own.rounds
    );
    let mut line = |head: &str, words: String| add_line(&mut text, head, &words);
    line(
        "a round",
        format!(
            "{}; a node computes {:.1} % of the time",
            duration(round.round_s),
            100.0 * round.computing
        ),
    );
    if let Some((change, computing)) = raised {
        line("more of it", format!("{:.1} % with {change} alone", 100.0 * computing));
    }
    let both = |(mean, most): (f64, f64)| {
        let bytes = |x: f64| Bytes(x.round() as u64).to_string();
        if most > 1.001 * mean {
            format!("{} ({} at the busiest)", bytes(mean), bytes(most))
        } else {
            bytes(mean)
        }
    };
    line(
        "sent",
        format!(
            "{} of payload a node and round, {} with headers",
            both(round.payload),
            both(round.wire)
        ),
    );
    if let Some(link) = round.bottleneck() {
        line("bottleneck", narrow(whole, link));
    }
    let relayed = relayed(whole);
    if !relayed.is_empty() {
        line("through a relay", format!("{}, unless hole punching succeeds", relayed.join(", ")));
    }
    line(
        "agreement",
        match own.agreement {
            Some(rounds) => format!(
                "W by itself shrinks disagreement 100-fold in {rounds} round{}, {} (rho {:.4})",
                if rounds == 1 { "" } else { "s" },
                duration(own.agreement_s()),
                own.rho
            ),
            None => "disagreement never shrinks: rho is 1".into(),
        },
    );
    line("the run", format!("{} rounds, {}", own.rounds, duration(own.run_s())));
    if whole.conditions.links.is_empty() && whole.conditions.rest.rate.is_infinite() {
        text += "\n  Links take no time in this experiment: name them in a topology file, or set \
                 network.preset (4g, ethernet, ...).\n";
    }
    text
}

/// The single change of local steps, compressor, topology or line that raises the share of time in
/// gradients most: in words, and that share. `None` if none raises it by a twentieth.
fn raise(plan: &Plan<'_>) -> Option<(String, f64)> {
    let own = &plan.own;
    let change = |other: &Outlook| {
        let changes = [
            (other.local_steps != own.local_steps)
                .then(|| format!("optimizer.local_steps = {}", other.local_steps)),
            (other.compressor != own.compressor).then(|| other.compressor.clone()),
            (other.topology != own.topology).then(|| format!("topology {}", other.topology)),
        ];
        let mut changes = changes.into_iter().flatten();
        let first = changes.next().filter(|_| other.rule == own.rule)?;
        changes.next().is_none().then_some((first, other.prediction.computing))
    };
    let changes = plan.candidates.iter().filter_map(change).chain(plan.faster.clone());
    let best = changes.max_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|(_, computing)| *computing > 1.05 * own.prediction.computing)
}

/// A link with its latency, its time on the line, and its frames a round if these are several.
fn narrow(whole: &Whole, link: &LinkLoad) -> String {
    let name = |node| whole.design.topology.node(node).name.clone();
    let frames = if link.frames > 1.001 {
        format!(", {:.1} frames a round", link.frames)
    } else {
        String::new()
    };
    format!(
        "{} -> {}: {} of latency and {} on the line{frames}",
        name(link.from),
        name(link.to),
        duration(link.alone_s - link.busy_s),
        duration(link.busy_s)
    )
}

/// Centralized and decentralized, N nodes, B bytes.
fn against(own: &Outlook, central: &[(&'static str, Outlook)]) -> String {
    if central.is_empty() {
        return String::new();
    }
    let mut text =
        "\nthe same gradients in one place (C-SGD, whole vectors, between any two nodes)\n\n"
            .to_string();
    for (name, outlook) in central {
        let order = if *name == "parameter server" {
            "O(N alpha + N B beta)"
        } else {
            "O(N alpha + B beta)"
        };
        let times = outlook.prediction.round_s / own.prediction.round_s;
        let times = if times.is_finite() {
            format!(", {times:.2} times this one's")
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "  {name:<18}{order:<23}{}{times}",
            duration(outlook.prediction.round_s)
        );
    }
    let _ = writeln!(
        text,
        "  {:<18}{:<23}{}",
        "this one",
        "O(alpha + B beta)",
        duration(own.prediction.round_s)
    );
    text
}

fn table(
    whole: &Whole,
    candidates: &[Outlook],
    refused: &[Refused],
    width: Option<usize>,
) -> String {
    // One rule needs no column.
    let rules = candidates.iter().any(|one| one.rule != whole.design.rule_name());
    let row = |rule: &str, rest: [String; 8]| -> Vec<String> {
        rules.then(|| rule.to_string()).into_iter().chain(rest).collect()
    };
    let mut rows = vec![row("rule", HEADS.map(String::from))];
    rows.extend(candidates.iter().take(SHOWN).map(|one| {
        let figures = [
            one.topology.clone(),
            one.compressor.clone(),
            one.local_steps.to_string(),
            duration(one.prediction.round_s),
            Bytes(one.prediction.payload.0.round() as u64).to_string(),
            one.agreement.map_or("never".into(), |rounds| rounds.to_string()),
            duration(one.run_s()),
            reason(whole, &one.prediction),
        ];
        row(&one.rule, figures)
    }));
    let first = usize::from(rules);
    let left: Vec<usize> = (0..first + 2).chain([first + 7]).collect();
    let table = fitted(&rows, &left, &LEAST, width.map(|width| width.saturating_sub(2)));
    let mut text = "\ncandidates on the same nodes, best first\n\n".to_string();
    table.lines().for_each(|line| text += &format!("  {line}\n"));
    if candidates.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", candidates.len() - SHOWN);
    }
    if !refused.is_empty() {
        let _ = writeln!(text, "\n  {} cannot work:", refused.len());
        for (what, why) in refused.iter().take(REFUSED_SHOWN) {
            let _ = writeln!(text, "    {what}: {why}");
        }
    }
    text
}

/// What a round is made of.
fn reason(whole: &Whole, round: &Prediction) -> String {
    if round.computing > 0.6 {
        return "gradients".into();
    }
    match round.bottleneck() {
        Some(link) if link.alone_s > 0.0 => {
            let name = |node| whole.design.topology.node(node).name.clone();
            let what = if link.busy_s > 0.5 * link.alone_s { "rate" } else { "latency" };
            format!("{what} of {} -> {}", name(link.from), name(link.to))
        }
        _ => "nothing".into(),
    }
}

/// What the theory's bounds need.
fn data(constants: &Constants, own: &Outlook) -> String {
    let mut text = "\nwhat the bounds need, at the initial model\n\n".to_string();
    let mut line = |head: &str, words: String| add_line(&mut text, head, &words);
    line(
        "L",
        format!(
            "{:.4} (curvature of f; steps up to about 1/L are stable for exact gradients)",
            constants.smoothness
        ),
    );
    line(
        "sigma^2",
        format!("{:.4e} within a node: variance of a mini-batch gradient", constants.within),
    );
    line(
        "zeta^2",
        format!(
            "{:.4e} between nodes: how far their gradients are from the mean one",
            constants.between
        ),
    );
    line("|grad f|^2", format!("{:.4e}", constants.gradient));
    line("rho", format!("{:.6}", own.rho));
    if let (Some(least), Some(most)) =
        (constants.classes.iter().min(), constants.classes.iter().max())
    {
        let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
        line("labels", format!("{range} of {} classes at each node", constants.all_classes));
    }
    text
}

fn as_json(plan: &Plan<'_>) -> Value {
    let Plan { whole, own, central, candidates, refused, constants, choice, .. } = plan;
    let name = |node| whole.design.topology.node(node).name.clone();
    let link = |link: &LinkLoad| {
        json!({
            "from": name(link.from),
            "to": name(link.to),
            "frames": link.frames,
            "payload": link.payload,
            "wire": link.wire,
            "busy_s": link.busy_s, "alone_s": link.alone_s,
        })
    };
    let both = |(mean, most): (f64, f64)| json!({ "mean": mean, "most": most });
    let one = |outlook: &Outlook| {
        json!({
            "rule": outlook.rule,
            "topology": outlook.topology,
            "compressor": outlook.compressor,
            "local_steps": outlook.local_steps,
            "round_s": outlook.prediction.round_s,
            "rounds": outlook.rounds,
            "run_s": outlook.run_s(),
            "cost_s": Some(outlook.cost_s()).filter(|cost| cost.is_finite()),
            "mixing": outlook.mixing(),
            "relaxation": outlook.relaxation,
            "rho": outlook.rho,
            "mixing_time": outlook.agreement,
            "agreement_s": outlook.agreement.map(|_| outlook.agreement_s()),
            "payload": both(outlook.prediction.payload),
            "wire": both(outlook.prediction.wire),
            "computing": outlook.prediction.computing,
            "waits_for": reason(whole, &outlook.prediction),
        })
    };
    let central: Vec<Value> = (central.iter())
        .map(|(name, outlook)| json!({ "name": name, "plan": one(outlook) }))
        .collect();
    let refused: Vec<Value> =
        refused.iter().map(|(what, why)| json!({ "what": what, "why": why })).collect();
    json!({
        "rule": whole.design.rule_name(),
        "nodes": whole.design.topology.nodes(),
        "parameters": whole.design.parameters(),
        "plan": one(own),
        "links": own.prediction.links.iter().map(link).collect::<Vec<_>>(),
        "bottleneck": own.prediction.bottleneck().map(link),
        "raises_computing": raise(plan)
            .map(|(change, computing)| json!({ "change": change, "computing": computing })),
        "centralized": central,
        "candidates": candidates.iter().map(one).collect::<Vec<_>>(),
        "refused": refused,
        "data": constants,
        "choice": choice.as_ref().map(|choice| choice.json(&one)),
    })
}

/// The links of nodes without addresses of their own, where relayed links are allowed.
fn relayed(whole: &Whole) -> Vec<String> {
    let topology = &whole.design.topology;
    let name = |node: NodeId| topology.node(node).name.as_str();
    let allowed = whole.design.experiment.run.relayed;
    let nodes = (0..topology.nodes()).map(NodeId::from).filter(|_| allowed);
    let links = nodes.flat_map(|node| {
        let others = topology.neighbours(node).iter().filter(move |&&other| other > node);
        others.map(move |&other| (node, other))
    });
    links
        .filter(|&(node, other)| needs_relay(topology, node, other))
        .map(|(node, other)| format!("{} - {}", name(node), name(other)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_may_be_missing_are_those_of_the_table() {
        assert!(LEAST.iter().all(|head| HEADS.contains(head)));
    }
}
