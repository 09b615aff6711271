//! The TOML format: a family with its arguments, or a custom graph; nodes and links in tables of
//! their own.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range};

use ::toml::{Spanned, Value};
use serde::Deserialize;

use super::{Draft, DraftLink, line_of};
use crate::{
    config::{self, ConfigError},
    mixing::{
        FamilyMember, MAX_LINKS, MAX_NODES, NodeInfo, Topology, TopologyError, Weights,
        family::{self, Families},
    },
    units::NodeId,
};

/// A topology file: a family with its size, or a custom graph that lists its nodes and links.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The topology's name.
    ///
    /// Accepts: 1 to 128 bytes without slash, backslash, quotation mark and control characters; it
    /// does not start with a dot. Default: the file's name without its extension.
    name: Option<String>,
    /// A family of graphs, or `custom` for a graph that lists its links.
    ///
    /// Default: required.
    family: Option<Spanned<String>>,
    /// How many nodes. Required where the family takes it and no `[[node]]` is listed.
    ///
    /// Accepts: a whole number from 1 to 1048576; for `hypercube` a power of two; as many as there
    /// are `[[node]]` tables, if any. The graph has at most 4194304 links. Default: the number of
    /// `[[node]]` tables.
    nodes: Option<Spanned<u64>>,
    /// A torus's rows. Required with `torus`.
    ///
    /// Accepts: a whole number from 1 to 1048576; `rows` times `columns` is at most 1048576.
    rows: Option<Spanned<u64>>,
    /// A torus's columns. Required with `torus`.
    ///
    /// Accepts: a whole number from 1 to 1048576; `rows` times `columns` is at most 1048576.
    columns: Option<Spanned<u64>>,
    /// A random regular graph's degree: the links of each node. Required with `random-regular`.
    ///
    /// Accepts: a whole number below `nodes`; even where `nodes` is odd; from 2 where there are
    /// more than 2 nodes.
    degree: Option<Spanned<u64>>,
    /// The seed of a random regular graph.
    ///
    /// Default: 0.
    seed: Option<Spanned<u64>>,
    /// How link weights are chosen.
    ///
    /// Default: `"metropolis"`.
    weights: Option<Spanned<String>>,
    /// Whether a link's weight, or what its links leave of a node's own weight, may be below 0.
    ///
    /// Default: `false`.
    #[serde(default)]
    allow_negative: bool,
    /// The nodes, in the order of their numbers. A deployment lists them all.
    ///
    /// Accepts: tables `[[node]]`, one for every node or none. Default: nodes that are called by
    /// their numbers from 0.
    #[serde(default)]
    node: Vec<NodeTable>,
    /// The links of a custom graph; of a family, those of which something is known. Required for a
    /// custom graph of several nodes.
    ///
    /// Accepts: tables `[[link]]`.
    #[serde(default)]
    link: Vec<Spanned<LinkTable>>,
}

/// `[[node]]`: one node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    /// Its name.
    ///
    /// Accepts: as the topology's `name`; each name once.
    name: String,
    /// Its PeerId, as `gradvine identity show KEY` prints it. A deployment needs it.
    ///
    /// Accepts: a PeerId such as `12D3KooW...`; each once.
    peer: Option<String>,
    /// Addresses at which its neighbours reach it, tried in this order. Of two neighbours at least
    /// one needs an address.
    ///
    /// Accepts: a list of multiaddresses, such as `/ip4/203.0.113.7/tcp/4001` or
    /// `/dns4/london.example.org/udp/4001/quic-v1`, of at most 1024 bytes each. Default: none.
    #[serde(default)]
    addresses: Vec<String>,
}

/// `[[link]]`: one link, which goes both ways.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    /// Its two ends.
    ///
    /// Accepts: a list of two different nodes, each by its name or number.
    between: [End; 2],
    /// Its entry of the mixing matrix.
    ///
    /// Accepts: a number above 0 (with `allow_negative` any but 0); only with `weights = "given"`,
    /// where it is required.
    weight: Option<f64>,
    /// The latency one way, in milliseconds, for `simulate`, `plan` and `lab`.
    ///
    /// Accepts: a number from 0. Default: that of `[network]`.
    latency_ms: Option<f64>,
    /// The rate in each direction, in 10^6 bits per second, for `simulate`, `plan` and `lab`.
    ///
    /// Accepts: a number above 0. Default: that of `[network]`.
    bandwidth_mbps: Option<f64>,
}

/// A node by name, or by number if nodes have no names of their own.
#[derive(Deserialize)]
#[serde(untagged)]
enum End {
    Name(String),
    Number(u32),
}

/// Places in the text, for errors.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn at(&self, span: Range<usize>) -> u32 {
        line_of(self.0, span.start)
    }

    fn place(&self, key: &str, span: Range<usize>) -> String {
        format!("line {}, {key}", self.at(span))
    }
}

pub(super) fn read(text: &str, families: Families) -> Result<Draft, TopologyError> {
    let lines = Lines(text);
    let document: Document = ::toml::from_str(text).map_err(|error| match error.span() {
        Some(_) => config::in_document(text, &error),
        None => ConfigError::at("file", config::plain(error.message().trim_end())),
    })?;
    let shape = shape(&document, families, &lines)?;
    let nodes = nodes(&document, shape.as_ref(), &lines)?;
    let weights = document.weights.as_ref().map(|weights| {
        let kind = weights.get_ref().parse::<Weights>();
        kind.map_err(|error| error.with_place(lines.place("weights", weights.span())))
    });
    let weights = weights.transpose()?.unwrap_or_default();
    let links = links(&document, shape.as_ref(), &nodes, weights, &lines)?;
    let (name, allow_negative) = (document.name, document.allow_negative);
    let weights = Some(weights);
    Ok(Draft { name, shape, weights, allow_negative, nodes, links, ..Draft::default() })
}

/// The family with its arguments; `None` for a custom graph.
fn shape(
    document: &Document,
    families: Families,
    lines: &Lines<'_>,
) -> Result<Option<FamilyMember>, TopologyError> {
    let given = [
        ("nodes", &document.nodes),
        ("rows", &document.rows),
        ("columns", &document.columns),
        ("degree", &document.degree),
        ("seed", &document.seed),
    ];
    let Some(name) = &document.family else {
        let names = families.names().join(", ");
        let problem = format!("is missing: expected one of {names}, {}", family::CUSTOM);
        return Err(ConfigError::at("family", problem).into());
    };
    let family = families.find(name.get_ref());
    if family.is_none() && name.get_ref() != family::CUSTOM {
        let line = Some(lines.at(name.span()));
        let name = name.get_ref().clone();
        return Err(TopologyError::UnknownFamily { line, name, families });
    }
    let keys = family.map_or(&["nodes"][..], |family| family.keys);
    if let Some((key, value)) = given
        .iter()
        .find_map(|(key, value)| Some((key, value.as_ref().filter(|_| !keys.contains(key))?)))
    {
        let problem = format!("family \"{}\" takes {}", name.get_ref(), keys.join(", "));
        let place = lines.place(key, value.span());
        return Err(ConfigError::new(place, value.get_ref(), problem).into());
    }
    let Some(family) = family else { return Ok(None) };
    let mut arguments = Vec::new();
    for (at, &key) in keys.iter().enumerate() {
        let value =
            given.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.as_ref());
        match value {
            Some(value) => arguments.push(*value.get_ref()),
            None if key == "nodes" && !document.node.is_empty() => {
                arguments.push(document.node.len() as u64);
            }
            None if at + family.optional >= keys.len() => break,
            None => {
                let problem =
                    format!("is missing: family \"{}\" takes {}", family.name, keys.join(", "));
                return Err(ConfigError::at(key, problem).into());
            }
        }
    }
    let locate = |error: TopologyError| -> TopologyError {
        let error = ConfigError::from(error);
        let span = given
            .iter()
            .find(|(key, _)| *key == error.place)
            .and_then(|(_, value)| value.as_ref())
            .map(Spanned::span);
        let place = lines.place(&error.place, span.unwrap_or_else(|| name.span()));
        error.with_place(place).into()
    };
    FamilyMember::new(family, &arguments, 0).map(Some).map_err(locate)
}

fn nodes(
    document: &Document,
    shape: Option<&FamilyMember>,
    lines: &Lines<'_>,
) -> Result<Vec<NodeInfo>, ConfigError> {
    let listed = document.node.iter().map(|node| NodeInfo {
        name: node.name.clone(),
        peer: node.peer.clone(),
        addresses: node.addresses.clone(),
    });
    let listed: Vec<NodeInfo> = listed.collect();
    let given = document.nodes.as_ref();
    let place = || given.map_or("nodes".into(), |nodes| lines.place("nodes", nodes.span()));
    match shape.map(|shape| shape.nodes() as u64).or(given.map(|nodes| *nodes.get_ref())) {
        Some(wanted) if listed.is_empty() => {
            if wanted == 0 || wanted > MAX_NODES as u64 {
                return Err(ConfigError::new(
                    place(),
                    wanted,
                    format!("expected 1 to {MAX_NODES}"),
                ));
            }
            Ok((0..wanted).map(|i| NodeInfo::named(i.to_string())).collect())
        }
        Some(wanted) if wanted != listed.len() as u64 => {
            let listed = listed.len();
            let problem = format!("there are {listed} [[node]] tables: name every node, or none");
            Err(ConfigError::new(place(), wanted, problem))
        }
        None if listed.is_empty() => Err(ConfigError::at(
            "nodes",
            "is missing: a custom graph gives `nodes` or lists each as [[node]]",
        )),
        Some(_) | None => Ok(listed),
    }
}

fn links(
    document: &Document,
    shape: Option<&FamilyMember>,
    nodes: &[NodeInfo],
    weights: Weights,
    lines: &Lines<'_>,
) -> Result<Vec<DraftLink>, TopologyError> {
    if document.link.len() > 2 * MAX_LINKS {
        let problem = format!("there are more than {MAX_LINKS} links");
        return Err(ConfigError::new("link", document.link.len(), problem).into());
    }
    let ids: BTreeMap<&str, u32> =
        (0..).zip(nodes).map(|(id, node)| (node.name.as_str(), id)).collect();
    // Links come in the order of the text: lines are counted in one pass, not once per link.
    let (mut line, mut offset) = (1, 0);
    let mut links = Vec::with_capacity(document.link.len());
    for table in &document.link {
        let start = table.span().start;
        if start >= offset {
            line += line_of(&lines.0[offset..], start - offset) - 1;
            offset = start;
        }
        let link = table.get_ref();
        let end = |end: &End| {
            let name = match end {
                End::Name(name) => name.clone(),
                End::Number(number) => number.to_string(),
            };
            ids.get(name.as_str()).copied().ok_or_else(|| {
                let some: Vec<_> = nodes.iter().take(4).map(|node| &node.name[..]).collect();
                let more = if nodes.len() > 4 { ", ..." } else { "" };
                let problem =
                    format!("there is no such node; the nodes are {}{more}", some.join(", "));
                let (key, value) = ("link.between", format!("\"{name}\""));
                TopologyError::UnknownNode { line, key, value, problem }
            })
        };
        let (a, b) = (end(&link.between[0])?, end(&link.between[1])?);
        if let (Some(weight), true) = (link.weight, weights != Weights::Given) {
            let problem = format!(
                "weights = \"{weights}\" computes it: remove it, or set weights = \"given\""
            );
            let place = format!("line {line}, link.weight");
            return Err(ConfigError::new(place, weight, problem).into());
        }
        let LinkTable { weight, latency_ms, bandwidth_mbps, .. } = *link;
        links.push(DraftLink { a, b, line: Some(line), weight, latency_ms, bandwidth_mbps });
    }
    if shape.is_none() && links.is_empty() && nodes.len() > 1 {
        let problem = "is missing: a custom graph lists its links as [[link]]";
        return Err(ConfigError::at("link", problem).into());
    }
    Ok(links)
}

pub(super) fn write(topology: &Topology) -> String {
    let mut text = String::new();
    let quote = |value: &str| Value::String(value.into()).to_string();
    let _ = writeln!(text, "name = {}", quote(topology.name()));
    let _ = writeln!(text, "family = {}", quote(topology.family()));
    match topology.shape() {
        Some(shape) => shape.arguments().for_each(|(key, value)| {
            let _ = writeln!(text, "{key} = {value}");
        }),
        None => {
            let _ = writeln!(text, "nodes = {}", topology.nodes());
        }
    }
    let _ = writeln!(text, "weights = {}", quote(topology.weights().name()));
    if topology.allow_negative() {
        text.push_str("allow_negative = true\n");
    }
    let nodes = || (0..topology.nodes()).map(|i| topology.node(NodeId::from(i)));
    let numbered = nodes().enumerate().all(|(i, node)| *node == NodeInfo::named(i.to_string()));
    for node in nodes().filter(|_| !numbered) {
        let _ = write!(text, "\n[[node]]\nname = {}\n", quote(&node.name));
        if let Some(peer) = &node.peer {
            let _ = writeln!(text, "peer = {}", quote(peer));
        }
        if !node.addresses.is_empty() {
            let quoted: Vec<_> = node.addresses.iter().map(|address| quote(address)).collect();
            let _ = writeln!(text, "addresses = [{}]", quoted.join(", "));
        }
    }
    write_links(topology, &mut text);
    text
}

/// Links with properties, or all links of a custom graph.
fn write_links(topology: &Topology, text: &mut String) {
    let given = topology.weights() == Weights::Given;
    let quote = |id: NodeId| Value::String(topology.node(id).name.clone()).to_string();
    for (a, b) in topology.edges() {
        let Some(link) = topology.link(a, b) else { continue };
        if topology.shape().is_some()
            && !given
            && link.latency_ms.is_none()
            && link.bandwidth_mbps.is_none()
        {
            continue;
        }
        let _ = write!(text, "\n[[link]]\nbetween = [{}, {}]\n", quote(a), quote(b));
        for (key, value) in
            super::link_attributes(link).filter(|&(key, _)| given || key != "weight")
        {
            let _ = writeln!(text, "{key} = {value:?}");
        }
    }
}
