//! Collectives: flights after which every node holds the same result.
//!
//! | pattern | links that it needs | exchanges | numbers that a node sends, of d |
//! |---|---|---|---|
//! | `server` | node 0 to all | up, down | d; node 0: (n - 1) d |
//! | `ring` | i to i + 1 mod n | n - 1 to reduce, n - 1 to gather | 2 (n - 1) / n d |
//! | `all-to-all` | all | 1 | (n - 1) d |
//! | `hybrid` | in each group its ring and its first node to the others; node 0 to the first nodes | 2 (g - 1) in the groups, up, down, out | at most 2 d + (n / g - 1 + g - 1) d |
//! | tree | i to i - 2^r for the lowest set bit r of i | up and down, ceil(log2 n) each | |
//!
//! In each pattern either one node computes a number and the others copy it, or all add in the same
//! order: nodes agree to the bit.

mod gather;
mod layered;
mod series;
mod sum;
mod union;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::plan::{At, Meeting, Plan, Step};
use crate::{
    compress::Format,
    config::ConfigError,
    mixing::Topology,
    units::{NodeId, Round},
};
pub use gather::Gather;
pub use layered::{Layered, MOST, layers};
pub use series::Series;
pub use sum::Sum;
pub use union::Union;

/// The pattern of a collective, as an experiment names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Node 0 collects and distributes, and also works.
    Server,
    /// Ring all-reduce: chunks travel around the ring; each is completed on one node.
    Ring,
    /// Every node sends everything to every other.
    AllToAll,
    /// Rings in groups of equal size, and a server between their first nodes.
    Hybrid,
    /// A binomial tree to node 0 and back.
    Tree,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Server => "server",
            Kind::Ring => "ring",
            Kind::AllToAll => "all-to-all",
            Kind::Hybrid => "hybrid",
            Kind::Tree => "tree",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Kind::Server => {
                "the server is node 0, which needs a link to every other: use star:n or complete:n"
            }
            Kind::Ring => "it needs the links of a ring, i to i + 1: use ring:n or complete:n",
            Kind::AllToAll => "it needs all links: use complete:n",
            Kind::Hybrid => {
                "it needs, in each group, the links of a ring and those of its first node to the \
                 others, and node 0 linked with \
                 every first node: use complete:n, or topologies/groups-2x4.toml with group = 4"
            }
            Kind::Tree => {
                "node i meets i - 2^r for the lowest set bit r of i: use complete:n or hypercube:n"
            }
        }
    }
}

/// The names of some kinds, for an error.
fn names_of(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

/// The most nodes of a ring: two sums, one after the other, make at most 65,535 exchanges.
const MOST_AROUND: usize = 16_383;

/// The meetings in each exchange of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// [`Kind::Server`]: exchange 0 up, 1 down.
    Server,
    /// [`Kind::Ring`]: exchanges 0 to n - 2 reduce, the others gather.
    Ring,
    /// [`Kind::AllToAll`]: one exchange between any two nodes.
    AllToAll,
    /// [`Kind::Hybrid`] with groups of `group` nodes.
    Hybrid {
        /// The number of nodes in a group.
        group: usize,
    },
    /// A binomial tree to node 0 and back; any number of nodes.
    Tree,
}

impl Pattern {
    /// Chooses the pattern that an experiment asks for; by default the first of `ring`, `server`
    /// and `all-to-all` that is `allowed` and whose links exist.
    ///
    /// # Errors
    /// If a link is missing, the pattern is not allowed, or the groups are not equal.
    pub fn choose(
        rule: &str,
        wish: Option<Kind>,
        group: Option<usize>,
        allowed: &[Kind],
        topology: &Topology,
    ) -> Result<(Kind, Pattern), ConfigError> {
        let wrong = |kind: Kind, problem: String| {
            ConfigError::new("rule.collective", format!("\"{}\"", kind.name()), problem)
        };
        if let Some(kind) = wish.filter(|kind| !allowed.contains(kind)) {
            return Err(wrong(kind, format!("{rule} runs with {}", names_of(allowed))));
        }
        if let Some(group) = group.filter(|_| wish != Some(Kind::Hybrid)) {
            return Err(ConfigError::new(
                "rule.group",
                group,
                "only collective = \"hybrid\" has groups: leave it out",
            ));
        }
        let Some(kind) = wish else { return Pattern::first_of(rule, allowed, topology) };
        let pattern = Pattern::of(kind, group, topology.nodes())?;
        match pattern.missing(topology) {
            None => Ok((kind, pattern)),
            Some((a, b)) => {
                let [a, b] = [a, b].map(|node| &topology.node(node).name);
                let problem =
                    format!("`{}` has no link {a} - {b}; {}", topology.name(), kind.remedy());
                Err(wrong(kind, problem))
            }
        }
    }

    /// The pattern of a kind among `nodes` nodes, whose links may be missing.
    fn of(kind: Kind, group: Option<usize>, nodes: usize) -> Result<Pattern, ConfigError> {
        let around = |key: &str, value: usize, pattern: Pattern| {
            let problem = format!(
                "sums go around a ring of at most {MOST_AROUND} nodes: their exchanges are \
                 numbered by 16 bits; \
                 use fewer nodes, or collective = \"server\""
            );
            if value <= MOST_AROUND {
                Ok(pattern)
            } else {
                Err(ConfigError::new(key, value, problem))
            }
        };
        match (kind, group) {
            (Kind::Server, _) => Ok(Pattern::Server),
            (Kind::Ring, _) => around("topology.nodes", nodes, Pattern::Ring),
            (Kind::AllToAll, _) => Ok(Pattern::AllToAll),
            (Kind::Tree, _) => Ok(Pattern::Tree),
            (Kind::Hybrid, Some(group)) if group >= 1 && nodes.is_multiple_of(group) => {
                around("rule.group", group, Pattern::Hybrid { group })
            }
            (Kind::Hybrid, Some(group)) => Err(ConfigError::new(
                "rule.group",
                group,
                format!(
                    "expected a divisor of the number of nodes, {nodes}: groups are of equal size"
                ),
            )),
            (Kind::Hybrid, None) => Err(ConfigError::at(
                "rule.group",
                "is missing: collective = \"hybrid\" needs the nodes of a group",
            )),
        }
    }

    /// The first of `ring`, `server` and `all-to-all` that is allowed and whose links exist.
    fn first_of(
        rule: &str,
        allowed: &[Kind],
        topology: &Topology,
    ) -> Result<(Kind, Pattern), ConfigError> {
        let nodes = topology.nodes();
        for kind in [Kind::Ring, Kind::Server, Kind::AllToAll] {
            if allowed.contains(&kind)
                && let Ok(pattern) = Pattern::of(kind, None, nodes)
                && pattern.missing(topology).is_none()
            {
                return Ok((kind, pattern));
            }
        }
        let has_ring = allowed.contains(&Kind::Ring);
        // A ring whose links exist may still be too long; that error is more useful.
        if has_ring && nodes > MOST_AROUND {
            return Pattern::of(Kind::Ring, None, nodes).map(|pattern| (Kind::Ring, pattern));
        }
        let problem = format!(
            "`{}` has not the links of any collective that {rule} can use ({}): use {}",
            topology.name(),
            names_of(allowed),
            if has_ring { "ring:n, star:n or complete:n" } else { "star:n or complete:n" },
        );
        Err(ConfigError::at("rule", problem))
    }

    /// The first link that the pattern uses and the topology lacks.
    pub fn missing(self, topology: &Topology) -> Option<(NodeId, NodeId)> {
        let mut meeting = Meeting::default();
        for exchange in 0..self.exchanges(topology.nodes()) {
            for node in (0..topology.nodes()).map(NodeId::from) {
                meeting.clear();
                self.meet(topology.nodes(), node, exchange, &mut meeting);
                let unknown = |to: &&NodeId| topology.neighbours(node).binary_search(to).is_err();
                if let Some(&to) = meeting.send.iter().find(unknown) {
                    return Some((node, to));
                }
            }
        }
        None
    }

    /// The number of exchanges among `nodes` nodes.
    pub fn exchanges(self, nodes: usize) -> u16 {
        let around = |nodes: usize| 2 * nodes.saturating_sub(1) as u16;
        match self {
            Pattern::Server => 2,
            Pattern::Ring => around(nodes),
            Pattern::AllToAll => 1,
            Pattern::Hybrid { group } => around(group) + 3,
            Pattern::Tree => 2 * levels(nodes) as u16,
        }
    }

    /// The meeting of `node`. A sender that computes the result, or whose own contribution counts,
    /// makes an encoding even if no node receives it.
    pub fn meet(self, nodes: usize, node: NodeId, exchange: u16, out: &mut Meeting) {
        let i = node.index();
        let all_but_own = || (0..nodes).filter(move |&other| other != i).map(NodeId::from);
        match self {
            Pattern::Server => match (exchange, i) {
                (0, 0) => {
                    out.wait.extend(all_but_own());
                    out.shared = true;
                }
                (0, _) => up(NodeId(0), out),
                (_, 0) => {
                    out.send.extend(all_but_own());
                    out.shared = true;
                }
                (_, _) => out.wait.push(NodeId(0)),
            },
            Pattern::Ring => around(nodes, 0, i, out),
            Pattern::AllToAll => {
                out.send.extend(all_but_own());
                out.wait.extend(all_but_own());
                out.shared = true;
            }
            Pattern::Hybrid { group } => {
                let (first, within, rings) =
                    (i - i % group, i % group, 2 * group.saturating_sub(1) as u16);
                let leaders = || (1..nodes / group).map(|other| NodeId::from(other * group));
                if exchange < rings {
                    return around(group, first, within, out);
                }
                match (exchange - rings, i, within) {
                    (0, 0, _) => out.wait.extend(leaders()),
                    (0, _, 0) => up(NodeId(0), out),
                    (1, 0, _) => {
                        out.send.extend(leaders());
                        out.shared = true;
                    }
                    (1, _, 0) => out.wait.push(NodeId(0)),
                    (2, _, 0) => {
                        out.send.extend((first + 1..first + group).map(NodeId::from));
                        out.shared = true;
                    }
                    (2, _, _) => out.wait.push(NodeId::from(first)),
                    _ => {}
                }
            }
            Pattern::Tree => {
                let levels = levels(nodes);
                let (down, level) = match usize::from(exchange) {
                    up if up < levels => (false, up),
                    down if down < 2 * levels => (true, 2 * levels - 1 - down),
                    _ => return,
                };
                let (step, in_tree) = (1 << level, i.is_multiple_of(1 << level));
                let child = in_tree && !i.is_multiple_of(2 * step);
                let other = if child { i - step } else { i + step };
                if !in_tree || other >= nodes {
                    return;
                }
                if child == down {
                    out.wait.push(NodeId::from(other));
                } else {
                    out.send.push(NodeId::from(other));
                    out.shared = true;
                }
            }
        }
    }
}

/// Levels of the binomial tree: the smallest r with 2^r >= n.
pub(crate) fn levels(nodes: usize) -> usize {
    nodes.next_power_of_two().ilog2() as usize
}

fn up(to: NodeId, out: &mut Meeting) {
    out.send.push(to);
    out.shared = true;
}

/// The meeting on a ring of `nodes` nodes from `first` on: send to the next, wait for the previous.
fn around(nodes: usize, first: usize, within: usize, out: &mut Meeting) {
    if nodes > 1 {
        out.send.push(NodeId::from(first + (within + 1) % nodes));
        out.wait.push(NodeId::from(first + (within + nodes - 1) % nodes));
        out.shared = true;
    }
}

/// The range of a chunk: the vector is cut into `nodes` chunks whose lengths differ by at most 1,
/// the longer ones first.
pub(crate) fn chunk(len: usize, nodes: usize, index: usize) -> std::ops::Range<usize> {
    let (short, longer) = (len / nodes, len % nodes);
    let start = |index: usize| index * short + index.min(longer);
    start(index)..start(index + 1)
}

/// The chunk that a node of a ring sends in an exchange: while reducing its own, then the one just
/// received; while gathering the one that it has completed, then the one just received.
pub(crate) fn chunk_sent(nodes: usize, within: usize, exchange: u16) -> usize {
    let exchange = usize::from(exchange);
    let reducing = nodes - 1;
    // Never below zero: an exchange number is below 2 (nodes - 1).
    if exchange < reducing {
        (within + nodes - exchange) % nodes
    } else {
        (within + 1 + 2 * nodes - 1 - exchange) % nodes
    }
}

/// The plan of a rule whose round is one flight of a collective.
pub struct Collective {
    pattern: Pattern,
    nodes: usize,
    steps: Vec<Step>,
    formats: Formats,
    /// Rounds between two meetings of the nodes.
    every: u64,
}

enum Formats {
    /// One per exchange; the last one also serves all that follow.
    Each(Vec<Format>),
    /// The whole vector, and the chunks of a ring: the formats of a longer and a shorter chunk.
    Chunks { whole: Format, ring: usize, longer: usize, chunks: [Format; 2] },
    /// One of the fragments in each round: the formats of both exchanges, of a longer and of a
    /// shorter one.
    Fragments { fragments: Fragments, formats: [[Format; 2]; 2] },
}

/// The fragments of a vector, in turn: one in each round. Their lengths differ by at most 1, the
/// longer ones first.
#[derive(Clone, Copy, Debug)]
pub struct Fragments {
    /// The numbers of the vector.
    pub len: usize,
    /// How many fragments it has.
    pub count: usize,
}

impl Fragments {
    /// The range of the fragment of a round.
    pub fn at(self, round: Round) -> std::ops::Range<usize> {
        chunk(self.len, self.count, self.index(round))
    }

    /// Whether it is one of the shorter ones.
    pub fn is_shorter(self, round: Round) -> bool {
        self.index(round) >= self.len % self.count
    }

    fn index(self, round: Round) -> usize {
        (round.0 % self.count as u64) as usize
    }
}

impl Collective {
    /// The gradient, then the flight. Each exchange has its own format; the last one also serves
    /// all that follow.
    pub fn after_gradient(pattern: Pattern, nodes: usize, formats: Vec<Format>) -> Collective {
        Collective { pattern, nodes, steps: steps(0), formats: Formats::Each(formats), every: 1 }
    }

    /// The exact sum of `d` numbers. It lands `lag` rounds after its launch and is formed in every
    /// `every`th round.
    pub fn sum(pattern: Pattern, nodes: usize, d: usize, lag: u32, every: u64) -> Collective {
        let ring = match pattern {
            Pattern::Ring => nodes,
            Pattern::Hybrid { group } => group,
            Pattern::Server | Pattern::AllToAll | Pattern::Tree => 1,
        };
        let chunks = [Format::Floats(d.div_ceil(ring)), Format::Floats(d / ring)];
        let formats = Formats::Chunks { whole: Format::Floats(d), ring, longer: d % ring, chunks };
        Collective { pattern, nodes, steps: steps(lag), formats, every }
    }

    /// A fragment of the vector in each round; it lands `lag` rounds after its launch. `formats`
    /// are those of both exchanges, of a longer fragment and of a shorter one.
    pub fn of_fragments(
        pattern: Pattern,
        nodes: usize,
        fragments: Fragments,
        formats: [[Format; 2]; 2],
        lag: u32,
    ) -> Collective {
        let formats = Formats::Fragments { fragments, formats };
        Collective { pattern, nodes, steps: steps(lag), formats, every: 1 }
    }

    /// The collective as the plan of a rule.
    pub fn shared(self) -> Arc<dyn Plan> {
        Arc::new(self)
    }
}

fn steps(lag: u32) -> Vec<Step> {
    vec![Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag }]
}

impl Plan for Collective {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        self.pattern.exchanges(self.nodes)
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        if (at.round.0 + 1).is_multiple_of(self.every) {
            self.pattern.meet(self.nodes, node, at.exchange, out);
            // A sum needs no encoding if this node sends nothing.
            out.shared &= !out.send.is_empty() || !matches!(self.formats, Formats::Chunks { .. });
        }
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        match &self.formats {
            Formats::Each(formats) => &formats[usize::from(at.exchange).min(formats.len() - 1)],
            Formats::Chunks { whole, ring, longer, chunks } => {
                if usize::from(at.exchange) >= 2 * (ring - 1) {
                    return whole;
                }
                let chunk = chunk_sent(*ring, from.index() % ring, at.exchange);
                &chunks[usize::from(chunk >= *longer)]
            }
            Formats::Fragments { fragments, formats } => {
                let shorter = usize::from(fragments.is_shorter(at.round));
                &formats[shorter][usize::from(at.exchange).min(1)]
            }
        }
    }

    fn period(&self) -> u64 {
        match &self.formats {
            Formats::Fragments { fragments, .. } => fragments.count as u64,
            _ => self.every,
        }
    }
}
