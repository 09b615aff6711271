//! Topology files: TOML (our own), GraphML, DOT and CSV edge lists.
//!
//! Every format is read into the same draft and checked by the same code; every one can be written.
//! All of them keep names, links, weights, latencies, bandwidths, peers and addresses. GraphML and
//! DOT carry the family and the kind of weights as attributes of the graph, CSV in comment lines,
//! so that a ring stays a ring; a file whose links are not those of its stated family is read as
//! `custom`. Directed files are read as undirected: a link given in both directions merges if its
//! data agree, and is an error if not.

mod csv;
mod dot;
mod graphml;
mod toml;

use std::{collections::BTreeMap, fmt, io::Read as _, path::Path};

use super::{
    FamilyMember, MAX_LINKS, MAX_NODES, NodeInfo, Topology, TopologyError, Weights,
    family::Families,
};
use crate::{config::ConfigError, inputs};

/// The largest accepted file, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A format of topology files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFormat {
    /// `.toml`: families, deployments, custom graphs.
    Toml,
    /// `.graphml`: as Gephi, yEd and NetworkX write it.
    GraphMl,
    /// `.dot` or `.gv`: as Graphviz reads it.
    Dot,
    /// `.csv`: an edge list, `source,target[,weight][,latency_ms][,bandwidth_mbps]`, with or
    /// without a header.
    Csv,
}

impl FileFormat {
    /// Every format, in the order of messages.
    pub const ALL: [FileFormat; 4] =
        [FileFormat::Toml, FileFormat::GraphMl, FileFormat::Dot, FileFormat::Csv];

    /// The format of a file's extension, if it is one of these.
    pub fn of(path: &Path) -> Option<FileFormat> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(FileFormat::Toml),
            "graphml" => Some(FileFormat::GraphMl),
            "dot" | "gv" => Some(FileFormat::Dot),
            "csv" => Some(FileFormat::Csv),
            _ => None,
        }
    }

    /// The format of a file's extension.
    ///
    /// # Errors
    /// If it is not one of these.
    pub fn expect(path: &Path) -> Result<FileFormat, TopologyError> {
        FileFormat::of(path).ok_or_else(|| {
            TopologyError::syntax(None, "expected the extension .toml, .graphml, .dot, .gv or .csv")
                .within(path.display())
        })
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FileFormat::Toml => "TOML",
            FileFormat::GraphMl => "GraphML",
            FileFormat::Dot => "DOT",
            FileFormat::Csv => "CSV",
        })
    }
}

/// A topology as read from a file, unchecked.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub origin: Option<String>,
    pub name: Option<String>,
    pub shape: Option<FamilyMember>,
    /// The family that a file of links states.
    pub claim: Option<String>,
    pub weights: Option<Weights>,
    pub allow_negative: bool,
    /// Empty for as many as the shape has, named by number.
    pub nodes: Vec<NodeInfo>,
    pub links: Vec<DraftLink>,
}

/// A link as read from a file: ends are positions in the draft's nodes and are below their number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DraftLink {
    pub a: u32,
    pub b: u32,
    pub line: Option<u32>,
    pub weight: Option<f64>,
    pub latency_ms: Option<f64>,
    pub bandwidth_mbps: Option<f64>,
}

/// Reads and parses a file.
pub(super) fn load(path: &Path, families: Families) -> Result<Draft, TopologyError> {
    let format = FileFormat::expect(path)?;
    let unread = |opened, error| TopologyError::Unreadable { opened, error }.within(path.display());
    let file = inputs::open(path).map_err(|error| unread(false, error))?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| unread(true, error))?;
    let mut draft = read(&text, format, &path.display().to_string(), families)?;
    if draft.name.is_none() {
        draft.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    }
    Ok(draft)
}

pub(super) fn read(
    text: &str,
    format: FileFormat,
    origin: &str,
    families: Families,
) -> Result<Draft, TopologyError> {
    if text.len() as u64 > MAX_FILE_BYTES {
        let problem = format!("is larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(TopologyError::Size { of: "file", found: None, problem }.within(origin));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let draft = match format {
        FileFormat::Toml => toml::read(text, families),
        FileFormat::GraphMl => graphml::read(text),
        FileFormat::Dot => dot::read(text),
        FileFormat::Csv => csv::read(text),
    };
    draft
        .map(|draft| Draft { origin: Some(origin.into()), ..draft.claimed(families) })
        .map_err(|error| error.within(origin))
}

pub(super) fn write(topology: &Topology, format: FileFormat) -> String {
    match format {
        FileFormat::Toml => toml::write(topology),
        FileFormat::GraphMl => graphml::write(topology),
        FileFormat::Dot => dot::write(topology),
        FileFormat::Csv => csv::write(topology),
    }
}

/// Collects the nodes and links of a format that names nodes on first use.
#[derive(Default)]
struct Collector {
    draft: Draft,
    ids: BTreeMap<String, u32>,
}

impl Collector {
    /// The node of this id, created on first use.
    fn node(&mut self, id: &str) -> Result<u32, TopologyError> {
        if let Some(&node) = self.ids.get(id) {
            return Ok(node);
        }
        if self.draft.nodes.len() == MAX_NODES {
            return Err(TopologyError::too_many("nodes", MAX_NODES));
        }
        let node = self.draft.nodes.len() as u32;
        self.ids.insert(id.into(), node);
        self.draft.nodes.push(NodeInfo::named(id));
        Ok(node)
    }

    /// The data of a node.
    fn info(&mut self, node: u32) -> &mut NodeInfo {
        &mut self.draft.nodes[node as usize]
    }

    fn link(&mut self, link: DraftLink) -> Result<(), TopologyError> {
        // Both directions of every link may be listed.
        if self.draft.links.len() == 2 * MAX_LINKS {
            return Err(TopologyError::too_many("links", MAX_LINKS));
        }
        self.draft.links.push(link);
        Ok(())
    }

    /// Takes an attribute of the graph if it is one of ours; others are ignored.
    fn graph_attribute(&mut self, key: &str, value: &str, line: u32) -> Result<(), TopologyError> {
        let boolean = || {
            let problem = "expected true or false";
            value.trim().parse().map_err(|_| ConfigError::new(key, format!("{value:?}"), problem))
        };
        let wrong = |error: ConfigError| at_line(line, error);
        match key {
            "name" => self.draft.name = Some(value.into()),
            "family" => self.draft.claim = Some(value.into()),
            "weights" => self.draft.weights = Some(value.parse().map_err(wrong)?),
            "allow_negative" => self.draft.allow_negative = boolean().map_err(wrong)?,
            _ => {}
        }
        Ok(())
    }

    fn node_attribute(&mut self, node: u32, key: &str, value: &str) {
        match key {
            "peer" => self.info(node).peer = Some(value.into()),
            "addresses" => {
                self.info(node).addresses = value.split_whitespace().map(str::to_string).collect();
            }
            _ => {}
        }
    }

    fn finish(self) -> Draft {
        let Collector { mut draft, .. } = self;
        // If the file does not state the kind, its weights are the weights.
        if draft.weights.is_none() && draft.links.iter().any(|link| link.weight.is_some()) {
            draft.weights = Some(Weights::Given);
        }
        draft
    }
}

impl Draft {
    /// With the shape that the file claims, if its links are exactly those of that shape.
    fn claimed(mut self, families: Families) -> Draft {
        if let Some(spec) = &self.claim {
            let shape = FamilyMember::parse_in(families, spec, 0).ok();
            self.shape = shape.filter(|shape| is_graph_of(shape, &self));
        }
        self
    }
}

/// Whether a draft's links are exactly those of a shape.
fn is_graph_of(shape: &FamilyMember, draft: &Draft) -> bool {
    let links = draft.links.iter().map(|link| (link.a, link.b));
    let loops = draft.links.iter().any(|link| link.a == link.b);
    !loops
        && shape.nodes() == draft.nodes.len()
        && shape.graph().is_ok_and(|graph| {
            super::Graph::new(shape.nodes(), links).is_ok_and(|ours| ours == graph)
        })
}

impl DraftLink {
    /// Takes an attribute if it is one of ours, in letters of either case; others are ignored.
    fn attribute(&mut self, key: &str, value: &str, line: u32) -> Result<(), TopologyError> {
        check_unit(key, line)?;
        let (key, place) = match key.to_ascii_lowercase().as_str() {
            "weight" => ("weight", &mut self.weight),
            "latency_ms" => ("latency_ms", &mut self.latency_ms),
            "bandwidth_mbps" => ("bandwidth_mbps", &mut self.bandwidth_mbps),
            _ => return Ok(()),
        };
        *place = Some(value.trim().parse().map_err(|_| TopologyError::Link {
            line: Some(line),
            ends: None,
            key: Some(key),
            value: Some(format!("{value:?}")),
            problem: "expected a number".into(),
        })?);
        Ok(())
    }
}

/// Refuses a latency or a bandwidth in another unit, or without one: it would be ignored.
fn check_unit(key: &str, line: u32) -> Result<(), TopologyError> {
    let lower = key.to_ascii_lowercase();
    for (start, ours) in [("latency", "latency_ms"), ("bandwidth", "bandwidth_mbps")] {
        if lower.starts_with(start) && lower != ours {
            return Err(TopologyError::Syntax {
                line: Some(line),
                element: Some("attribute".into()),
                value: Some(key.into()),
                problem: format!("expected {ours}, in this unit"),
            });
        }
    }
    Ok(())
}

/// The error of a part of a line.
fn at_line(line: u32, error: impl Into<ConfigError>) -> TopologyError {
    let error: ConfigError = error.into();
    let place = format!("line {line}, {}", error.place);
    error.with_place(place).into()
}

/// The line, from 1, of a byte offset.
fn line_of(text: &str, offset: usize) -> u32 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count() as u32
}

/// The attributes of a graph in our own GraphML, DOT and CSV.
fn graph_attributes(topology: &Topology) -> Vec<(&'static str, String)> {
    let mut attributes = vec![("name", topology.name().to_string())];
    if let Some(shape) = topology.shape() {
        attributes.push(("family", shape.to_string()));
    }
    attributes.push(("weights", topology.weights().to_string()));
    if topology.allow_negative() {
        attributes.push(("allow_negative", "true".into()));
    }
    attributes
}

/// The data of a link in a file: numbers in their shortest form that reads back to the same bits.
fn link_attributes(link: &super::LinkInfo) -> impl Iterator<Item = (&'static str, f64)> {
    let optional = [("latency_ms", link.latency_ms), ("bandwidth_mbps", link.bandwidth_mbps)];
    std::iter::once(("weight", link.weight))
        .chain(optional.into_iter().filter_map(|(key, value)| Some((key, value?))))
}
