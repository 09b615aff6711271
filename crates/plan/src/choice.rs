//! Which rule to choose on given links for the rows that the nodes have.
//!
//! The bound on decentralized SGD of Koloskova, Loizou, Boreiri, Jaggi and Stich (A Unified Theory
//! of Decentralized SGD with Changing Topology and Local Updates, ICML 2020, theorem 2, non-convex)
//! counts rounds to an accuracy eps as
//!
//! ```text
//! sigma^2 / (n eps^2)  +  (zeta / p + sigma / sqrt(p)) / eps^(3/2)  +  1 / (p eps)
//! ```
//! with p the share of disagreement that a round removes, sigma^2 the variance of a gradient at a
//! node and zeta^2 that between nodes. All rules have the first term alike. Candidates are ordered
//! by the second one, times the seconds of a round: where rows differ (zeta above sigma) a weakly
//! mixing rule pays 1 / p, where they are alike only 1 / sqrt(p). The bound knows no outer
//! momentum; that of candidates of the same cost one with it comes first is this crate's choice.

use std::{collections::BTreeSet, fmt::Write as _};

use gradvine::{
    config::ConfigError,
    run::{Constants, Outlook},
    units::duration,
};
use serde_json::{Value, json};

use super::{Request, Search, candidates};

/// The rules to choose from, those with an outer momentum first.
const RULES: &str = "compressed-gasloc,gasloc,choco,d-psgd,local-sgd:collective=all-to-all,\
                     local-sgd:collective=ring,local-sgd:collective=server";
/// For more nodes nothing is chosen: all pairs of them would be tried.
const MOST_NODES: usize = 128;
/// So many others are named.
const NEXT: usize = 3;

/// The rule that a plan would choose, and why.
pub struct Choice {
    /// The best candidate of each rule, the best rule first, with its cost in seconds.
    pub order: Vec<(Outlook, f64)>,
    /// zeta and sigma at the initial model; `None` if the data was not measured: then rows count
    /// as different.
    pub rows: Option<(f64, f64)>,
}

impl Choice {
    /// Chooses among rules of several kinds, on all topologies of the request; `None` if there is
    /// nothing to choose.
    pub(super) fn of(
        search: &Search<'_>,
        gradients: u64,
        constants: Option<&Constants>,
    ) -> Result<Option<Choice>, ConfigError> {
        let nodes = search.whole.design.topology.nodes();
        if !(2..=MOST_NODES).contains(&nodes) {
            return Ok(None);
        }
        let steps = search.whole.design.experiment.optimizer.local_steps;
        let request = Request {
            rules: Some(RULES.into()),
            compressors: Some("min-max:bits=8,min-max:bits=4,min-max:bits=2".into()),
            local_steps: vec![steps],
            ..search.request.clone()
        };
        let (found, _) = candidates(&Search { request: &request, ..*search }, gradients)?;
        let rows = constants.map(|constants| (constants.between.sqrt(), constants.within.sqrt()));
        let share = rows.map_or(1.0, |rows| differing(rows.0, rows.1));
        let mut order: Vec<(Outlook, f64)> = (found.into_iter())
            .map(|one| {
                let cost = cost_s(one.prediction.round_s, one.mixing(), share);
                (one, cost)
            })
            .filter(|(_, cost)| cost.is_finite())
            .collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| rank(&a.0).cmp(&rank(&b.0))));
        // The best of each rule.
        let mut seen = BTreeSet::new();
        order.retain(|(one, _)| seen.insert(one.rule.clone()));
        order.truncate(1 + NEXT);
        Ok((!order.is_empty()).then_some(Choice { order, rows }))
    }

    /// Why the first was chosen.
    fn why(&self) -> String {
        let best = &self.order[0].0;
        let rows = match self.rows {
            None => "the data was not measured, so rows count as different between nodes".into(),
            Some((zeta, 0.0)) => format!(
                "batches have no noise (zeta is {zeta:.3}, sigma 0), so what the nodes disagree on \
                 decides"
            ),
            Some((zeta, sigma)) if zeta > sigma => {
                format!("rows differ between nodes (zeta is {:.2} sigma)", zeta / sigma)
            }
            Some((zeta, sigma)) => {
                format!("rows are much alike (zeta is {:.2} sigma)", zeta / sigma)
            }
        };
        format!(
            "{rows}; a round takes {} and removes {:.1} % of the nodes' disagreement",
            duration(best.prediction.round_s),
            100.0 * best.mixing()
        )
    }

    pub(super) fn text(&self) -> String {
        let mut text = "\nthe rule to choose on these links\n\n".to_string();
        let name = |one: &Outlook| {
            let with = if one.compressor.starts_with("identity") {
                "whole vectors"
            } else {
                &one.compressor
            };
            format!("{}, {with}, on {}", one.rule, one.topology)
        };
        let _ = writeln!(text, "  {:<13}{}", "choice", name(&self.order[0].0));
        let _ = writeln!(text, "  {:<13}{}", "because", self.why());
        let least = self.order[0].1;
        for (one, cost) in &self.order[1..] {
            let times = match *cost / least {
                // A round takes no time on links without latency whose rate has no limit.
                times if times.is_nan() => "the same cost: a round takes no time".to_string(),
                times => format!("{times:.2} times the cost"),
            };
            let _ = writeln!(text, "  {:<13}{}: {times}", "next", name(one));
        }
        text += "\n  Cost is the time of a round times (zeta / p + sigma / sqrt(p)) / (zeta + \
                 sigma), p the\n  disagreement that a round removes. It ranks rules, and does not \
                 say how many rounds a\n  target takes: compare does, and docs/results.md shows.\n";
        text
    }

    /// As JSON; `one` writes an outlook.
    pub(super) fn json(&self, one: &dyn Fn(&Outlook) -> Value) -> Value {
        let order: Vec<Value> = (self.order.iter())
            .map(|(outlook, cost)| json!({ "plan": one(outlook), "cost_s": cost }))
            .collect();
        let (zeta, sigma) = self.rows.unzip();
        json!({ "order": order, "why": self.why(), "zeta": zeta, "sigma": sigma })
    }
}

/// zeta / (zeta + sigma); 1 if both are 0.
fn differing(zeta: f64, sigma: f64) -> f64 {
    if zeta + sigma > 0.0 { zeta / (zeta + sigma) } else { 1.0 }
}

/// The seconds of a round times what its mixing costs, where `share` of the noise is between nodes.
fn cost_s(round_s: f64, mixing: f64, share: f64) -> f64 {
    if mixing <= 0.0 {
        return f64::INFINITY;
    }
    round_s * (share / mixing + (1.0 - share) / mixing.sqrt())
}

/// The place of a rule among those that cost the same.
fn rank(one: &Outlook) -> usize {
    RULES
        .split(',')
        .position(|rule| rule.split(':').next() == Some(&one.rule))
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_mixing_costs_more_where_rows_differ() {
        // By hand: p = 1/4, 2 s a round.
        assert_eq!(cost_s(2.0, 0.25, 1.0), 8.0);
        assert_eq!(cost_s(2.0, 0.25, 0.0), 4.0);
        assert_eq!(cost_s(2.0, 0.25, differing(3.0, 1.0)), 7.0);
        assert_eq!(cost_s(2.0, 1.0, 0.3), 2.0);
        assert!(cost_s(1.0, 0.0, 1.0).is_infinite());
        assert_eq!(differing(0.0, 0.0), 1.0);
    }
}
