//! A graph with names, addresses, links' data and a mixing matrix: always valid once built.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
    path::Path,
    sync::{Arc, OnceLock},
};

use crate::{config::ConfigError, printable::is_invisible, units::NodeId};

use super::{
    FamilyMember, FileFormat, Graph, MAX_NODES, MatrixError, MixingMatrix, SpanningTree, Spectrum,
    TopologyError, Weights,
    family::{self, Families},
    file::{self, Draft},
    matrix::ROW_TOLERANCE,
    spectrum::DENSE_LIMIT,
    weights::round_9,
};

/// The maximum length of a name of a node or a topology, in bytes.
const MAX_NAME: usize = 128;

/// Nodes, links, their weights and their properties.
///
/// ```
/// use gradvine::{mixing::{FileFormat, NodeInfo}, prelude::*, units::NodeId};
///
/// let names = ["london", "paris", "tokyo"].map(NodeInfo::named);
/// let topology = Topology::parse("ring:3", 1)?
///     .with_nodes(names.into())?
///     .with_link((NodeId(0), NodeId(2)), 110.0, 200.0)?;
/// let text = topology.to_text(FileFormat::Csv);
/// assert!(text.contains("london,tokyo"));
/// // The file's extension names the format.
/// let folder = tempfile::tempdir().expect("a folder");
/// let path = folder.path().join("sites.toml");
/// topology.write(&path)?;
/// let again = Topology::load(&path)?;
/// assert_eq!(again.to_toml(), topology.to_toml());
/// assert_eq!(Topology::from_text(&again.to_toml(), FileFormat::Toml, "sites")?.nodes(), 3);
/// # Ok::<(), gradvine::mixing::TopologyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    name: String,
    shape: Option<FamilyMember>,
    weights: Weights,
    allow_negative: bool,
    nodes: Vec<NodeInfo>,
    links: Vec<LinkInfo>,
    matrix: MixingMatrix,
    spectrum: OnceLock<Spectrum>,
    tree: OnceLock<Arc<SpanningTree>>,
}

/// The properties of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its name, unique; the decimal form of its number if the file gives none.
    pub name: String,
    /// Its libp2p PeerId, in a deployment.
    pub peer: Option<String>,
    /// Its multiaddresses, tried in this order.
    pub addresses: Vec<String>,
}

impl NodeInfo {
    /// A node with this name, without peer and addresses.
    pub fn named(name: impl Into<String>) -> NodeInfo {
        NodeInfo { name: name.into(), ..NodeInfo::default() }
    }
}

/// The properties of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkInfo {
    /// Its entry of the mixing matrix.
    pub weight: f64,
    /// The latency one way (half a round trip), in milliseconds.
    pub latency_ms: Option<f64>,
    /// The bandwidth in each direction, in 10^6 bits per second.
    pub bandwidth_mbps: Option<f64>,
}

impl Topology {
    /// Reads a file; the format follows from the extension (.toml, .graphml, .dot, .gv, .csv).
    ///
    /// # Errors
    /// If it cannot be read, or is not a valid topology: the file, the line, node or link, and the
    /// figure.
    pub fn load(path: &Path) -> Result<Topology, TopologyError> {
        Topology::load_with(path, &family::REGISTRY)
    }

    /// As [`Topology::load`], with families of a registry of the program's own.
    ///
    /// # Errors
    /// As for [`Topology::load`].
    pub fn load_with(path: &Path, families: Families) -> Result<Topology, TopologyError> {
        Topology::build(file::load(path, families)?)
    }

    /// Reads a topology from text; `origin` stands for the file's name in errors.
    ///
    /// # Errors
    /// As for [`Topology::load`].
    pub fn from_text(
        text: &str,
        format: FileFormat,
        origin: &str,
    ) -> Result<Topology, TopologyError> {
        Topology::build(file::read(text, format, origin, &family::REGISTRY)?)
    }

    /// Reads a file, or makes a family's graph such as `ring:8`, `torus:4x4`,
    /// `random-regular:16:4`; `seed` is for random graphs without their own.
    ///
    /// # Errors
    /// If it is neither, or as for [`Topology::load`].
    pub fn parse(spec: &str, seed: u64) -> Result<Topology, TopologyError> {
        Topology::parse_with(spec, None, seed)
    }

    /// As [`Topology::parse`], with other weights than the file's (or, for a family, than
    /// Metropolis).
    ///
    /// # Errors
    /// As for [`Topology::parse`]; [`Weights::Given`] needs a file whose links have weights.
    pub fn parse_with(
        spec: &str,
        weights: Option<Weights>,
        seed: u64,
    ) -> Result<Topology, TopologyError> {
        Topology::parse_in(&family::REGISTRY, spec, weights, seed)
    }

    /// As [`Topology::parse_with`], with these families.
    pub(crate) fn parse_in(
        families: Families,
        spec: &str,
        weights: Option<Weights>,
        seed: u64,
    ) -> Result<Topology, TopologyError> {
        let path = Path::new(spec);
        let mut draft = if FileFormat::of(path).is_some() || path.is_file() {
            file::load(path, families)?
        } else {
            let shape = FamilyMember::parse_in(families, spec, seed)?;
            Draft { shape: Some(shape), ..Draft::default() }
        };
        if let Some(weights) = weights {
            draft.weights = Some(weights);
            if weights != Weights::Given {
                draft.links.iter_mut().for_each(|link| link.weight = None);
            }
        }
        Topology::build(draft)
    }

    /// The only way to make a topology: it checks everything, for every format.
    pub(super) fn build(draft: Draft) -> Result<Topology, TopologyError> {
        let origin = draft.origin.clone();
        Topology::checked(draft).map_err(|error| match &origin {
            Some(file) => error.within(file),
            None => error,
        })
    }

    fn checked(mut draft: Draft) -> Result<Topology, TopologyError> {
        let count = draft.shape.as_ref().map_or(draft.nodes.len(), FamilyMember::nodes);
        if draft.nodes.is_empty() {
            draft.nodes = (0..count).map(|i| NodeInfo::named(i.to_string())).collect();
        }
        check_nodes(&draft.nodes, count)?;
        let graph = match &draft.shape {
            Some(shape) => shape.graph()?,
            None => Graph::new(count, draft.links.iter().map(|link| (link.a, link.b)))?,
        };
        let weights = draft.weights.unwrap_or_default();
        let data = gather(&draft, &graph)?;
        if let Some(b) = graph.unreached() {
            return Err(blame(MatrixError::Disconnected { a: NodeId(0), b }, &draft.nodes));
        }
        let link_weights = match weights.of_links(&graph, draft.shape.as_ref())? {
            Some(computed) => {
                agree(&computed, &data, &graph, &draft.nodes, weights)?;
                computed
            }
            None => given(&data, &graph, &draft.nodes)?,
        };
        let matrix = MixingMatrix::new(graph, &link_weights, draft.allow_negative)
            .map_err(|error| blame(error, &draft.nodes))?;
        let links = data
            .iter()
            .zip(&link_weights)
            .map(|(link, &weight)| LinkInfo { weight, ..*link })
            .collect();
        let name = match draft.name {
            Some(name) => name,
            None => {
                draft.shape.as_ref().map_or_else(|| family::CUSTOM.to_string(), FamilyMember::title)
            }
        };
        check_title(&name)?;
        let topology = Topology {
            name,
            shape: draft.shape,
            weights,
            allow_negative: draft.allow_negative,
            nodes: draft.nodes,
            links,
            matrix,
            spectrum: OnceLock::new(),
            tree: OnceLock::new(),
        };
        // The gap of some valid weights is too small for a double.
        if weights == Weights::Given
            && count <= DENSE_LIMIT
            && topology.spectrum().gap <= ROW_TOLERANCE
        {
            let Spectrum { rho, lambda_2, .. } = *topology.spectrum();
            return Err(blame(MatrixError::NoGap { rho, eigenvalue: lambda_2 }, &topology.nodes));
        }
        Ok(topology)
    }

    /// The same topology with other names, peers and addresses, for a deployment.
    ///
    /// # Errors
    /// If their number differs, or a name or peer is empty, malformed or taken twice.
    pub fn with_nodes(self, nodes: Vec<NodeInfo>) -> Result<Topology, TopologyError> {
        check_nodes(&nodes, self.nodes.len())?;
        Ok(Topology { nodes, ..self })
    }

    /// The same topology with other figures of a link, such as measured ones: the latency one way
    /// in milliseconds, the bandwidth in 10^6 bits per second.
    ///
    /// # Errors
    /// If there is no such link, or a figure is not a finite number above 0 (the latency may be 0).
    pub fn with_link(
        mut self,
        (a, b): (NodeId, NodeId),
        latency_ms: f64,
        bandwidth_mbps: f64,
    ) -> Result<Topology, TopologyError> {
        let wrong = |value, problem| wrong_link(&self.nodes, None, (a, b), None, value, problem);
        let Some(index) = self.graph().link_index(a, b) else {
            return Err(wrong(None, "there is no such link"));
        };
        let valid = latency_ms.is_finite() && latency_ms >= 0.0;
        if !valid || !bandwidth_mbps.is_finite() || bandwidth_mbps <= 0.0 {
            let value = format!("{latency_ms} ms, {bandwidth_mbps} Mbit/s");
            return Err(wrong(Some(value), "expected a latency from 0 and a bandwidth above 0"));
        }
        let link = &mut self.links[index];
        (link.latency_ms, link.bandwidth_mbps) = (Some(latency_ms), Some(bandwidth_mbps));
        Ok(self)
    }

    /// The same topology under another name.
    ///
    /// # Errors
    /// If the name is empty, too long or has characters that a file name cannot have.
    pub fn with_name(self, name: impl Into<String>) -> Result<Topology, TopologyError> {
        let name = name.into();
        check_title(&name)?;
        Ok(Topology { name, ..self })
    }

    /// Its name: the file's, or one such as `ring-8`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its family; `custom` if it lists its links.
    pub fn family(&self) -> &str {
        self.shape.as_ref().map_or(family::CUSTOM, |shape| shape.family().name)
    }

    /// The family and its arguments, if it has a family.
    pub fn shape(&self) -> Option<&FamilyMember> {
        self.shape.as_ref()
    }

    /// The kind of its weights.
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// Whether its file allows negative weights.
    pub fn allow_negative(&self) -> bool {
        self.allow_negative
    }

    /// The number of nodes, at least 1.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The number of links, each counted once.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The graph of its links, without weights.
    pub fn graph(&self) -> &Graph {
        self.matrix.graph()
    }

    /// The links (a, b) with a < b, ascending.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = (NodeId, NodeId)> + '_ {
        self.graph().links().iter().copied()
    }

    /// The neighbours of a node, ascending, without itself.
    pub fn neighbours(&self, node: NodeId) -> &[NodeId] {
        self.graph().neighbours(node)
    }

    /// The properties of a node.
    pub fn node(&self, node: NodeId) -> &NodeInfo {
        &self.nodes[node.index()]
    }

    /// The node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(NodeId::from)
    }

    /// The properties of the link between two nodes; `None` if there is none.
    pub fn link(&self, a: NodeId, b: NodeId) -> Option<&LinkInfo> {
        Some(&self.links[self.graph().link_index(a, b)?])
    }

    /// W, the weights of its links.
    pub fn matrix(&self) -> &MixingMatrix {
        &self.matrix
    }

    /// Its spectrum, computed at the first call.
    pub fn spectrum(&self) -> &Spectrum {
        self.spectrum.get_or_init(|| Spectrum::of(&self.matrix, self.shape.as_ref()))
    }

    /// The longest of all shortest paths, in links. Exact; on a large random graph this is one
    /// breadth-first search per node.
    pub fn diameter(&self) -> usize {
        self.shape
            .as_ref()
            .and_then(FamilyMember::diameter)
            .unwrap_or_else(|| self.graph().diameter())
    }

    /// The breadth-first tree from node 0, computed at the first call.
    pub fn spanning_tree(&self) -> Arc<SpanningTree> {
        Arc::clone(self.tree.get_or_init(|| Arc::new(SpanningTree::of(self.graph()))))
    }

    /// The data on which two nodes must agree, as lines `key = value`: names, peers, links, weights
    /// (to 9 significant digits). Without addresses, link speeds, and the form in which the graph
    /// was written.
    pub fn canonical(&self) -> String {
        let mut text = format!("nodes = {}\n", self.nodes());
        for (i, node) in self.nodes.iter().enumerate() {
            let _ =
                writeln!(text, "node.{i} = {} {}", node.name, node.peer.as_deref().unwrap_or("-"));
        }
        for ((a, b), link) in self.edges().zip(&self.links) {
            let _ = writeln!(text, "link.{a}-{b} = {:?}", round_9(link.weight));
        }
        text
    }

    /// The topology as a TOML file.
    pub fn to_toml(&self) -> String {
        self.to_text(FileFormat::Toml)
    }

    /// The topology in any format. Reading it back gives the same names, links, weights, latencies
    /// and bandwidths.
    pub fn to_text(&self, format: FileFormat) -> String {
        file::write(self, format)
    }

    /// Writes a file; the format follows from the extension.
    ///
    /// # Errors
    /// If the extension is unknown or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TopologyError> {
        let format = FileFormat::expect(path)?;
        crate::files::rewrite(path, self.to_text(format).as_bytes())
            .map_err(|error| TopologyError::Unwritable(error).within(path.display()))
    }
}

/// Whether everything that a file keeps is equal.
impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        self.name == other.name
            && self.shape == other.shape
            && self.weights == other.weights
            && self.allow_negative == other.allow_negative
            && self.nodes == other.nodes
            && self.links == other.links
            && self.matrix == other.matrix
    }
}

/// The files' data of each link of the graph; parallel entries merge if they agree. A missing
/// weight is NaN.
fn gather(draft: &Draft, graph: &Graph) -> Result<Vec<LinkInfo>, TopologyError> {
    let mut data = vec![
        LinkInfo { weight: f64::NAN, latency_ms: None, bandwidth_mbps: None };
        graph.links().len()
    ];
    for link in &draft.links {
        let ends = (NodeId(link.a), NodeId(link.b));
        let wrong = |key, value: Option<f64>, problem: &str| {
            let value = value.map(|value| value.to_string());
            wrong_link(&draft.nodes, link.line, ends, key, value, problem)
        };
        if link.a == link.b {
            let problem = "a node's own weight follows from its links: remove the link";
            return Err(wrong(None, None, problem));
        }
        let Some(index) = graph.link_index(ends.0, ends.1) else {
            let family = draft.shape.as_ref().map_or_else(String::new, FamilyMember::to_string);
            let problem =
                format!("{family} has no such link: use family = \"custom\" to list links");
            return Err(wrong(None, None, &problem));
        };
        if link.latency_ms.is_some_and(|x| !x.is_finite() || x < 0.0) {
            let problem = "expected a finite number of 0 or more";
            return Err(wrong(Some("latency_ms"), link.latency_ms, problem));
        }
        if link.bandwidth_mbps.is_some_and(|x| !x.is_finite() || x <= 0.0) {
            let problem = "expected a finite number above 0";
            return Err(wrong(Some("bandwidth_mbps"), link.bandwidth_mbps, problem));
        }
        let merge = |key, was: Option<f64>, is: Option<f64>| match (was, is) {
            (Some(was), Some(value)) if was != value => {
                let problem = format!(
                    "the same link was given {was} before; links are undirected and W is \
                     symmetric, so give it once"
                );
                Err(wrong(Some(key), is, &problem))
            }
            (was, is) => Ok(is.or(was)),
        };
        let known = &mut data[index];
        let was = (!known.weight.is_nan()).then_some(known.weight);
        known.weight = merge("weight", was, link.weight)?.unwrap_or(f64::NAN);
        known.latency_ms = merge("latency_ms", known.latency_ms, link.latency_ms)?;
        known.bandwidth_mbps = merge("bandwidth_mbps", known.bandwidth_mbps, link.bandwidth_mbps)?;
    }
    Ok(data)
}

/// Checks that weights in a file equal the computed ones.
fn agree(
    computed: &[f64],
    data: &[LinkInfo],
    graph: &Graph,
    nodes: &[NodeInfo],
    weights: Weights,
) -> Result<(), TopologyError> {
    for ((link, &weight), ends) in data.iter().zip(computed).zip(graph.links()) {
        if (link.weight - weight).abs() > 1e-9 {
            let problem = format!(
                "{weights} weights give {weight:.9}: correct it, or use weights = \"given\""
            );
            let value = Some(link.weight.to_string());
            return Err(wrong_link(nodes, None, *ends, Some("weight"), value, problem));
        }
    }
    Ok(())
}

fn given(data: &[LinkInfo], graph: &Graph, nodes: &[NodeInfo]) -> Result<Vec<f64>, TopologyError> {
    match data.iter().position(|link| link.weight.is_nan()) {
        None => Ok(data.iter().map(|link| link.weight).collect()),
        Some(at) => {
            let problem = "has no weight: with weights = \"given\" every link needs `weight`";
            Err(wrong_link(nodes, None, graph.links()[at], None, None, problem))
        }
    }
}

/// The error of a link, or of a value of it.
fn wrong_link(
    nodes: &[NodeInfo],
    line: Option<u32>,
    (a, b): (NodeId, NodeId),
    key: Option<&'static str>,
    value: Option<String>,
    problem: impl Into<String>,
) -> TopologyError {
    let ends = [a, b].map(|end| nodes[end.index()].name.clone());
    TopologyError::Link { line, ends: Some(ends), key, value, problem: problem.into() }
}

/// Adds the names of the nodes.
fn blame(error: MatrixError, nodes: &[NodeInfo]) -> TopologyError {
    let ids = match error {
        MatrixError::Weight { a, b, .. } | MatrixError::Disconnected { a, b } => vec![a, b],
        MatrixError::Own { node, .. } => vec![node],
        MatrixError::Count { .. } | MatrixError::NoGap { .. } => Vec::new(),
    };
    let names = ids.into_iter().map(|id| nodes[id.index()].name.clone()).collect();
    TopologyError::Matrix { error, names }
}

fn check_nodes(nodes: &[NodeInfo], expected: usize) -> Result<(), TopologyError> {
    if nodes.len() != expected || nodes.is_empty() || nodes.len() > MAX_NODES {
        let problem = format!("expected {expected} (at least 1, at most {MAX_NODES})");
        return Err(TopologyError::Size { of: "nodes", found: Some(nodes.len()), problem });
    }
    let wrong = |node: &dyn Display, key, value: &str, problem: String| {
        Err(TopologyError::Node { node: node.to_string(), key, value: value.into(), problem })
    };
    let (mut names, mut peers) = (BTreeMap::new(), BTreeMap::new());
    for (i, node) in nodes.iter().enumerate() {
        if let Some(problem) = problem_of(&node.name) {
            return wrong(&i, "name", &format!("{:?}", node.name), problem.into());
        }
        if is_mean(&node.name) {
            return wrong(&i, "name", &node.name, MEAN_TAKEN.into());
        }
        if let Some(other) = names.insert(node.name.to_lowercase(), i) {
            let problem = match &nodes[other].name {
                same if *same == node.name => format!("node {other} has this name too"),
                like => format!(
                    "node {other} is {like}: names that differ in case only are one name on some \
                     disks"
                ),
            };
            return wrong(&i, "name", &node.name, problem);
        }
        if let Some(peer) = &node.peer {
            if peer.is_empty()
                || peer.len() > MAX_NAME
                || !peer.bytes().all(|b| b.is_ascii_alphanumeric())
            {
                let problem = "expected a PeerId, such as 12D3KooW...";
                return wrong(&node.name, "peer", peer, problem.into());
            }
            if let Some(other) = peers.insert(peer.as_str(), i) {
                let problem = format!("{} has this peer too", nodes[other].name);
                return wrong(&node.name, "peer", peer, problem);
            }
        }
        let sound = |address: &&String| {
            address.starts_with('/')
                && address.len() <= 1_024
                && plain(address)
                && !address.contains(' ')
        };
        if let Some(bad) = node.addresses.iter().find(|address| !sound(address)) {
            let problem = "expected a multiaddress, such as /ip4/203.0.113.7/tcp/4001";
            return wrong(&node.name, "addresses", bad, problem.into());
        }
    }
    Ok(())
}

/// Why no node is called `mean`.
const MEAN_TAKEN: &str = "expected another name: model-mean.safetensors is the file of the mean of \
                          all models";

fn is_mean(name: &str) -> bool {
    name.eq_ignore_ascii_case("mean")
}

/// Checks the name of a topology.
fn check_title(name: &str) -> Result<(), ConfigError> {
    let wrong = |problem| Err(ConfigError::new("name", format!("{name:?}"), problem));
    problem_of(name).map_or(Ok(()), wrong)
}

/// What is wrong with a name, which appears in file names, in tables and in four file formats.
fn problem_of(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a name is not empty")
    } else if name.len() > MAX_NAME {
        Some("a name has at most 128 bytes")
    } else if name.trim() != name || name.starts_with('.') {
        Some("a name does not start with a dot or a space, nor end in a space")
    } else if !plain(name) || name.contains('/') {
        Some("a name holds no slash, backslash, quotation mark or control character")
    } else if name.contains(is_invisible) {
        Some(
            "a name holds no character that is invisible or changes the direction of text: names \
             would look alike",
        )
    } else if name.contains(|c| ('\u{300}'..='\u{36f}').contains(&c)) {
        Some(
            "a name holds no accent that is a character of its own: on some disks it would be the \
             same name as with accented letters; write those",
        )
    } else {
        None
    }
}

fn plain(text: &str) -> bool {
    !text.chars().any(|c| {
        c.is_control()
            || matches!(
                c,
                '"' | '\\' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
            )
    })
}
