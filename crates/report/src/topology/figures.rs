//! The key figures of a topology.

use std::fmt;

use gradvine::{
    mixing::{Spectrum, Topology, Weights},
    units::NodeId,
};
use serde::Serialize;

use super::Rounds;
use crate::text::{count, short};

/// How many cut nodes are named, and the longest name, in characters.
const CUTS_SHOWN: usize = 8;
const LONGEST: usize = 24;

/// Up to this many search steps the diameter is computed exactly if no closed form gives it: a
/// second or two.
const MAX_SEARCH: u128 = 400_000_000;

/// The key figures: what `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    name: String,
    family: String,
    nodes: usize,
    links: usize,
    weights: Weights,
    degree: Span,
    link_weight: Option<Span>,
    own_weight: Span,
    rho: f64,
    gap: f64,
    lambda_2: f64,
    lambda_n: f64,
    /// |I - W| in the spectral norm.
    i_minus_w: f64,
    mixing_time: Option<u64>,
    diameter: usize,
    /// If not set, the diameter is at least this.
    diameter_exact: bool,
    /// Their names.
    cut_nodes: Vec<String>,
    method: String,
    residual: Option<f64>,
    converged: bool,
    eigenvalues: Option<Vec<f64>>,
    /// The schedule, if one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Rounds>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Span {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

impl Span {
    pub(super) fn of(values: impl ExactSizeIterator<Item = f64>) -> Option<Span> {
        let count = values.len();
        let (min, sum, max) = values
            .fold((f64::INFINITY, 0.0, f64::NEG_INFINITY), |(low, sum, high), x| {
                (low.min(x), sum + x, high.max(x))
            });
        (count > 0).then(|| Span { min, mean: sum / count as f64, max })
    }

    pub(super) fn flat(self) -> bool {
        self.max - self.min < 1e-12
    }
}

impl Figures {
    /// Computes the figures that are not known yet.
    pub fn of(topology: &Topology) -> Figures {
        let Spectrum { rho, gap, lambda_2, lambda_n, mu, method, residual, converged, .. } =
            *topology.spectrum();
        let (nodes, links) = (topology.nodes(), topology.links());
        let closed = topology.shape().is_some_and(|shape| shape.diameter().is_some());
        let diameter_exact = closed || (nodes as u128) * (nodes + 2 * links) as u128 <= MAX_SEARCH;
        let diameter =
            if diameter_exact { topology.diameter() } else { topology.graph().diameter_at_least() };
        let weights: Vec<f64> =
            topology.edges().filter_map(|(a, b)| Some(topology.link(a, b)?.weight)).collect();
        let own = (0..nodes).map(|i| topology.matrix().self_weight(NodeId::from(i)));
        Figures {
            name: topology.name().into(),
            family: topology.shape().map_or_else(|| topology.family().into(), ToString::to_string),
            nodes,
            links,
            weights: topology.weights(),
            degree: Span::of(topology.graph().degrees().map(|d| d as f64))
                .expect("a topology has a node"),
            link_weight: Span::of(weights.into_iter()),
            own_weight: Span::of(own).expect("a topology has a node"),
            rho,
            gap,
            lambda_2,
            lambda_n,
            i_minus_w: mu,
            mixing_time: topology.spectrum().mixing_time(),
            diameter,
            diameter_exact,
            cut_nodes: (topology.graph().cut_nodes().into_iter())
                .map(|node| topology.node(node).name.clone())
                .collect(),
            method: method.to_string(),
            residual,
            converged,
            eigenvalues: topology.spectrum().eigenvalues.clone(),
            schedule: None,
        }
    }

    /// The figures in one line.
    pub fn in_short(&self) -> String {
        let Figures { name, nodes, links, rho, gap, .. } = self;
        let doubt = if self.converged { "" } else { ", not converged" };
        format!(
            "{name}, {}, {}, rho {}, gap {}, {} to 1/100, diameter {}{doubt}",
            count(*nodes, "node"),
            count(*links, "link"),
            number(*rho),
            number(*gap),
            self.rounds(),
            self.distance(),
        )
    }

    fn rounds(&self) -> String {
        let least = if self.converged { "" } else { "at least " };
        self.mixing_time.map_or_else(
            || "never".into(),
            |rounds| format!("{least}{}", count(rounds as usize, "round")),
        )
    }

    fn distance(&self) -> String {
        format!("{}{}", if self.diameter_exact { "" } else { "at least " }, self.diameter)
    }

    /// How many cut nodes there are, and a few names: they may be numbers.
    fn cuts(&self) -> String {
        let shown = self.cut_nodes.iter().take(CUTS_SHOWN).map(|name| short(name, LONGEST));
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.cut_nodes.len() {
            all if all > CUTS_SHOWN => format!("{all} ({shown}, ...)"),
            all => format!("{all} ({shown})"),
        }
    }

    fn computed(&self) -> String {
        let mut text = self.method.clone();
        if let Some(residual) = self.residual {
            text += &format!(", residual {residual:.1e}");
        }
        if !self.converged {
            text += ": NOT CONVERGED. rho, lambda_2 and the mixing time are at least, the gap is \
                     at most what stands here";
        }
        text
    }
}

/// The figures in lines, each with its meaning.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |x: f64| format!("{x:.0}");
        let degree = if self.degree.flat() {
            format!("{} at every node", whole(self.degree.min))
        } else {
            format!(
                "{} to {}, mean {:.2}",
                whole(self.degree.min),
                whole(self.degree.max),
                self.degree.mean
            )
        };
        let span = |span: Span| {
            if span.flat() {
                number(span.min)
            } else {
                format!("{} to {}", number(span.min), number(span.max))
            }
        };
        writeln!(f, "{} ({}, {} weights)\n", self.name, self.family, self.weights)?;
        let rows = [
            ("nodes", self.nodes.to_string(), ""),
            ("links", self.links.to_string(), ""),
            ("degree", degree, ""),
            ("link weight", self.link_weight.map_or_else(|| "-".into(), span), ""),
            ("own weight", span(self.own_weight), ""),
            (
                "rho",
                number(self.rho),
                "max(|lambda_2|, |lambda_n|): a round shrinks disagreement by this, at worst",
            ),
            ("gap", number(self.gap), "1 - rho"),
            ("lambda_2", number(self.lambda_2), "the second largest eigenvalue of W"),
            ("lambda_n", number(self.lambda_n), "the least"),
            ("|I - W|", number(self.i_minus_w), "1 - lambda_n"),
            (
                "mixing time",
                self.rounds(),
                "the least t with rho^t <= 0.01: disagreement is a hundredth",
            ),
            ("diameter", self.distance(), "links between the two nodes farthest apart"),
            (
                "cut nodes",
                self.cuts(),
                "without one the rest falls apart; what it sends to its sides cannot be compared",
            ),
            ("spectrum", self.computed(), ""),
        ];
        let has = |row: &&(&str, String, &str)| row.0 != "cut nodes" || !self.cut_nodes.is_empty();
        let rows: Vec<_> = rows.iter().filter(has).cloned().collect();
        write(f, &rows)?;
        self.schedule.as_ref().map_or(Ok(()), |schedule| schedule.fmt(f))
    }
}

/// Figures, one per line, with their meanings.
pub(super) fn write(f: &mut fmt::Formatter<'_>, rows: &[(&str, String, &str)]) -> fmt::Result {
    for (key, value, meaning) in rows {
        if meaning.is_empty() {
            writeln!(f, "  {key:<12} {value}")?;
        } else {
            writeln!(f, "  {key:<12} {value:<16} {meaning}")?;
        }
    }
    Ok(())
}

/// Six decimals; for values very near to 0 or 1, as many as needed.
pub(super) fn number(x: f64) -> String {
    let (size, short) = (x.abs(), 1.0 - x.abs());
    if size < 1e-13 {
        "0".into()
    } else if size < 1e-3 {
        format!("{x:.5e}")
    } else if short > 0.0 && short < 1e-4 {
        format!("{x:.12}")
    } else {
        format!("{x:.6}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spec: &str) -> String {
        Figures::of(&Topology::parse(spec, 0).unwrap()).to_string()
    }

    #[test]
    fn ring_of_eight() {
        let text = text("ring:8");
        for line in [
            "rho          0.804738",
            "gap          0.195262",
            "mixing time  22 rounds",
            "diameter     4",
            "closed form",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        let value =
            serde_json::to_value(Figures::of(&Topology::parse("star:8", 0).unwrap())).unwrap();
        let keys = [
            "name",
            "nodes",
            "links",
            "rho",
            "gap",
            "lambda_2",
            "lambda_n",
            "mixing_time",
            "diameter",
        ];
        assert!(keys.iter().all(|key| !value[key].is_null()), "{value}");
        assert_eq!(
            (&value["nodes"], &value["links"], &value["weights"]),
            (&8.into(), &7.into(), &"metropolis".into())
        );
    }

    #[test]
    fn numbers_keep_their_significant_digits() {
        for (x, text) in [
            (1.0 / 3.0, "0.333333"),
            (1.3e-9, "1.30000e-9"),
            (1.0 - 1.3e-9, "0.999999998700"),
            (-1e-17, "0"),
            (1.0, "1.000000"),
        ] {
            assert_eq!(number(x), text);
        }
    }

    #[test]
    fn one_node_is_fine() {
        assert!(text("ring:1").contains("mixing time  1 round"));
    }
}
