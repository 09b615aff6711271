//! Predictions for a run and its alternatives, best first.

use std::collections::BTreeMap;

use super::resolved::Design;
use crate::{
    config::ConfigError,
    gossip::plan,
    links::{Conditions, LinkModel},
    mixing::Topology,
    predict::{Prediction, predict},
    units::{NodeId, Round},
};

/// One combination with its prediction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outlook {
    /// The name of the rule, `rule.kind`.
    pub rule: String,
    /// The name that the topology gives itself.
    pub topology: String,
    /// The compressor's name with its constants.
    pub compressor: String,
    /// Gradients that a node computes in a round.
    pub local_steps: u32,
    /// The number of rounds with the same number of gradients.
    pub rounds: u64,
    /// Rounds in which disagreement shrinks 100-fold; `None` if it never does.
    pub agreement: Option<u64>,
    /// 1 - gap; of the schedule, if there is one.
    pub rho: f64,
    /// The share of W that a round applies: 1, or the rule's gamma or eta, which falls with the
    /// compressor's accuracy.
    pub relaxation: f64,
    /// The cost of a round.
    pub prediction: Prediction,
}

impl Outlook {
    /// The outlook of a design under these conditions. `gradients` is the number that the whole run
    /// computes on each node.
    ///
    /// # Errors
    /// If the rule's nodes call each other at any time: then the order of events decides, and only
    /// a simulation can tell.
    pub fn of(
        design: &Design,
        conditions: &Conditions,
        gradients: u64,
    ) -> Result<Outlook, ConfigError> {
        if plan::is_asynchronous(&*design.rule.plan) {
            let problem = "nodes call each other at any time: only `gradvine simulate` \
                           tells how long a run takes";
            return Err(ConfigError::new(
                "rule.kind",
                format!("\"{}\"", design.rule_name()),
                problem,
            ));
        }
        let steps = design.experiment.optimizer.local_steps;
        let rate = design.schedule.rate(&design.topology);
        // Flights of several exchanges are collectives: all nodes agree when they arrive.
        let collective = plan::flights(&*design.rule.plan)
            .iter()
            .any(|&flight| design.rule.plan.exchanges(flight) > 1);
        let agreement =
            if collective || design.topology.nodes() == 1 { Some(1) } else { rate.mixing_time };
        // Of a rule that exchanges in few rounds, or a part of the model in each.
        let plan = &*design.rule.plan;
        let is_sparse = collective || plan::is_silent(plan, design.topology.nodes(), Round(0));
        let every = if is_sparse { plan.period() } else { 1 };
        let agreement = agreement.map(|rounds| rounds.saturating_mul(every));
        Ok(Outlook {
            rule: design.rule_name().to_string(),
            topology: design.topology.name().to_string(),
            compressor: describe(&design.experiment.compressor),
            local_steps: steps,
            rounds: gradients.div_ceil(u64::from(steps)),
            agreement,
            rho: rate.rho,
            relaxation: design.rule.relaxation.min(1.0),
            prediction: predict(
                &*design.rule.plan,
                design.topology.nodes(),
                design.parameters(),
                conditions,
            ),
        })
    }

    /// The predicted seconds of all rounds.
    pub fn run_s(&self) -> f64 {
        self.prediction.run_s(self.rounds)
    }

    /// Seconds until disagreement has shrunk 100-fold; infinite if it never does.
    pub fn agreement_s(&self) -> f64 {
        self.agreement.map_or(f64::INFINITY, |rounds| self.prediction.run_s(rounds))
    }

    /// The share of the nodes' squared disagreement that a round removes, averaged over rounds: 1
    /// if they agree after each.
    pub fn mixing(&self) -> f64 {
        // The share of the disagreement that remains after W, then gamma's part of it.
        let left = match self.agreement {
            Some(rounds) if rounds > 1 => 100f64.powf(-1.0 / rounds as f64),
            Some(_) => 0.0,
            None => 1.0,
        };
        1.0 - (1.0 - self.relaxation * (1.0 - left)).powi(2)
    }

    /// The key by which candidates are sorted: the run's time divided by the mixing of a round. Of
    /// the terms in the bound on decentralized SGD (Koloskova, Loizou, Boreiri, Jaggi and Stich, "A
    /// Unified Theory of Decentralized SGD with Changing Topology and Local Updates", ICML 2020,
    /// theorem 2) this is the one by which a topology is slower than all pairs: 1 / mixing times as
    /// many rounds.
    pub fn cost_s(&self) -> f64 {
        self.run_s() / self.mixing()
    }
}

/// Describes a resolved table briefly: `min-max bits=4 bucket=512`.
fn describe(table: &toml::Table) -> String {
    let kind = table.get("kind").and_then(toml::Value::as_str).unwrap_or("?");
    let constants = table
        .iter()
        .filter(|(key, _)| *key != "kind")
        .map(|(key, value)| format!(" {key}={value}"));
    std::iter::once(kind.to_string()).chain(constants).collect()
}

/// The conditions for any pair of the topology's nodes. A pair without a link uses the path of
/// least latency over known links: its latencies add up, and its narrowest link gives the rate.
pub fn all_pairs(topology: &Topology, conditions: &Conditions) -> Conditions {
    if conditions.links.is_empty() {
        return conditions.clone();
    }
    let n = topology.nodes();
    let far = LinkModel { latency: u64::MAX / 4, ..conditions.rest };
    let mut way = vec![vec![far; n]; n];
    for (a, row) in way.iter_mut().enumerate() {
        for &b in topology.neighbours(NodeId::from(a)) {
            row[b.index()] = *conditions.link(NodeId::from(a), b);
        }
    }
    for via in 0..n {
        for a in 0..n {
            for b in 0..n {
                let latency = way[a][via].latency.saturating_add(way[via][b].latency);
                if a != b && latency < way[a][b].latency {
                    let rate = if way[a][via].rate < way[via][b].rate {
                        way[a][via].rate
                    } else {
                        way[via][b].rate
                    };
                    way[a][b] = LinkModel { latency, rate, ..way[a][via] };
                }
            }
        }
    }
    let mut links = BTreeMap::new();
    for (a, row) in way.iter().enumerate() {
        for (b, link) in row.iter().enumerate().skip(a + 1) {
            let pair = (NodeId::from(a), NodeId::from(b));
            links.insert(pair, conditions.links.get(&pair).copied().unwrap_or(*link));
        }
    }
    Conditions { links, ..conditions.clone() }
}

/// Topologies with this many nodes that are worth a comparison, as specs.
pub fn candidates(nodes: usize) -> Vec<String> {
    let mut specs = vec![
        format!("ring:{nodes}"),
        format!("complete:{nodes}"),
        format!("star:{nodes}"),
        format!("path:{nodes}"),
    ];
    if nodes >= 5 {
        specs.push(format!("exponential:{nodes}"));
    }
    if nodes >= 8 && nodes.is_power_of_two() {
        specs.push(format!("hypercube:{nodes}"));
    }
    let rows = (3..nodes)
        .take_while(|rows| rows * rows <= nodes)
        .filter(|rows| nodes.is_multiple_of(*rows))
        .last();
    specs.extend(rows.map(|rows| format!("torus:{rows}x{}", nodes / rows)));
    specs
}
