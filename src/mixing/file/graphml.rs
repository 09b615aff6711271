//! GraphML (Brandes et al. 2002), as Gephi, yEd and NetworkX write it: nodes, edges and `data`
//! under declared keys.
//!
//! Document type declarations are refused and only the five predefined entities and character
//! references are resolved: nothing is fetched and nothing expands. Nested graphs, hyperedges and
//! ports are ignored or refused; vendors' elements are ignored.

use std::{collections::BTreeMap, fmt::Write as _};

use quick_xml::{
    Reader, XmlVersion,
    escape::escape,
    events::{BytesStart, Event},
};

use super::{Collector, Draft, DraftLink, graph_attributes, line_of, link_attributes};
use crate::{
    mixing::{Topology, TopologyError},
    units::NodeId,
};

/// The maximum nesting of elements.
const MAX_DEPTH: usize = 64;
/// The maximum length of the text of one `data` element, in bytes.
const MAX_DATA: usize = 1 << 16;
/// The maximum number of attributes of one element: each is compared with all before it.
const MAX_ATTRIBUTES: usize = 256;

/// The subject of the current element.
enum Subject {
    Graph,
    Node(u32),
    Edge(DraftLink),
    Other,
}

struct State {
    collector: Collector,
    /// Key ids to attribute names.
    keys: BTreeMap<String, String>,
    open: Vec<Subject>,
    /// The attribute of the open `data` element, and its text so far.
    data: Option<(String, String)>,
    graphs: usize,
}

pub(super) fn read(text: &str) -> Result<Draft, TopologyError> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut state = State {
        collector: Collector::default(),
        keys: BTreeMap::new(),
        open: Vec::new(),
        data: None,
        graphs: 0,
    };
    let (mut line, mut offset) = (1u32, 0usize);
    loop {
        let event = reader.read_event();
        // Lines are counted in one pass.
        let position = (reader.buffer_position() as usize).clamp(offset, text.len());
        line += line_of_bytes(&text.as_bytes()[offset..position]);
        offset = position;
        let fail = |problem: String| TopologyError::syntax(line, problem);
        match event.map_err(|error| fail(format!("not well-formed XML: {error}")))? {
            Event::Start(element) => state.start(&element, line)?,
            Event::Empty(element) => {
                state.start(&element, line)?;
                state.end(line)?;
            }
            Event::End(_) => state.end(line)?,
            Event::Text(text) => state.text(&text, line)?,
            Event::CData(text) => state.text(&text, line)?,
            Event::GeneralRef(reference) => {
                let character =
                    reference.resolve_char_ref().map_err(|error| fail(error.to_string()))?;
                let resolved = match (character, &*reference) {
                    (Some(c), _) => c.to_string(),
                    (None, name) => quick_xml::escape::resolve_xml_entity(name)
                        .ok_or_else(|| {
                            fail(format!(
                                "the entity &{name}; is not one of XML's own, and no \
                                others are read"
                            ))
                        })?
                        .to_string(),
                };
                state.text(&resolved, line)?;
            }
            Event::DocType(_) => {
                return Err(fail("a document type declaration is not accepted: remove it".into()));
            }
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    if !state.open.is_empty() {
        let line = line_of(text, text.len());
        return Err(TopologyError::syntax(line, "the file ends inside an element"));
    }
    if state.graphs != 1 {
        let problem = format!("there are {} graphs: expected one <graph>", state.graphs);
        return Err(TopologyError::syntax(None, problem));
    }
    Ok(state.collector.finish())
}

fn line_of_bytes(bytes: &[u8]) -> u32 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u32
}

impl State {
    fn start(&mut self, element: &BytesStart<'_>, line: u32) -> Result<(), TopologyError> {
        if self.open.len() == MAX_DEPTH {
            return Err(TopologyError::syntax(line, "elements are nested too deeply"));
        }
        let attributes = attributes(element, line)?;
        let find = |name: &str| {
            attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
        };
        let need = |name: &str| {
            find(name).ok_or_else(|| TopologyError::Syntax {
                line: Some(line),
                element: Some(format!("<{}>", element.local_name().as_ref())),
                value: None,
                problem: format!("the attribute {name} is missing"),
            })
        };
        let subject = match element.local_name().as_ref() {
            "graph" => {
                self.graphs += 1;
                Subject::Graph
            }
            "key" => {
                let id = need("id")?.to_string();
                let name = find("attr.name").map_or_else(|| id.clone(), str::to_string);
                self.keys.insert(id, name);
                Subject::Other
            }
            "node" => Subject::Node(self.collector.node(need("id")?)?),
            "edge" => {
                let (a, b) = (need("source")?.to_string(), need("target")?.to_string());
                let (a, b) = (self.end_of(&a, line)?, self.end_of(&b, line)?);
                Subject::Edge(DraftLink { a, b, line: Some(line), ..DraftLink::default() })
            }
            "hyperedge" => {
                let problem = "hyperedges are not accepted: a link has two ends";
                return Err(TopologyError::syntax(line, problem));
            }
            "data" => {
                let key = need("key")?;
                let name = self.keys.get(key).cloned().unwrap_or_else(|| key.to_string());
                self.data = Some((name, String::new()));
                Subject::Other
            }
            _ => Subject::Other,
        };
        self.open.push(subject);
        Ok(())
    }

    /// GraphML allows edges before their nodes; we require the nodes first, so that a misspelled
    /// name in an edge is an error.
    fn end_of(&mut self, id: &str, line: u32) -> Result<u32, TopologyError> {
        let unknown = || TopologyError::UnknownNode {
            line,
            key: "edge",
            value: format!("{id:?}"),
            problem: "there is no such node before this edge".into(),
        };
        self.collector.ids.get(id).copied().ok_or_else(unknown)
    }

    fn text(&mut self, text: &str, line: u32) -> Result<(), TopologyError> {
        if let Some((_, data)) = &mut self.data {
            if data.len() + text.len() > MAX_DATA {
                let problem = format!("a data element has more than {MAX_DATA} bytes");
                return Err(TopologyError::syntax(line, problem));
            }
            data.push_str(text);
        }
        Ok(())
    }

    fn end(&mut self, line: u32) -> Result<(), TopologyError> {
        match self.open.pop() {
            Some(Subject::Edge(link)) => self.collector.link(link)?,
            Some(Subject::Other) => {
                // A `data` element, or one inside it: the first to close takes the text.
                let Some((key, value)) = self.data.take() else { return Ok(()) };
                let value = value.trim();
                match self.open.last_mut() {
                    Some(Subject::Graph) => self.collector.graph_attribute(&key, value, line)?,
                    Some(Subject::Node(node)) => self.collector.node_attribute(*node, &key, value),
                    Some(Subject::Edge(link)) => link.attribute(&key, value, line)?,
                    Some(Subject::Other) | None => {}
                }
            }
            Some(Subject::Graph | Subject::Node(_)) | None => {}
        }
        Ok(())
    }
}

fn attributes(element: &BytesStart<'_>, line: u32) -> Result<Vec<(String, String)>, TopologyError> {
    let fail = |error: &dyn std::fmt::Display| {
        TopologyError::syntax(line, format!("not well-formed XML: {error}"))
    };
    let mut found = Vec::new();
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|error| fail(&error))?;
        if found.len() == MAX_ATTRIBUTES {
            let problem = format!("an element has more than {MAX_ATTRIBUTES} attributes");
            return Err(TopologyError::syntax(line, problem));
        }
        let value =
            attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| fail(&error))?;
        found.push((attribute.key.as_ref().to_string(), value.into_owned()));
    }
    Ok(found)
}

pub(super) fn write(topology: &Topology) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<graphml \
         xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n",
    );
    let attributes = graph_attributes(topology);
    for (key, _) in &attributes {
        declare(&mut text, key, "graph", "string");
    }
    for key in ["peer", "addresses"] {
        declare(&mut text, key, "node", "string");
    }
    for key in ["weight", "latency_ms", "bandwidth_mbps"] {
        declare(&mut text, key, "edge", "double");
    }
    text.push_str("  <graph edgedefault=\"undirected\">\n");
    for (key, value) in &attributes {
        let _ = writeln!(text, "    <data key=\"{key}\">{}</data>", escape(value.as_str()));
    }
    for i in 0..topology.nodes() {
        let node = topology.node(NodeId::from(i));
        let _ = write!(text, "    <node id=\"{}\">", escape(node.name.as_str()));
        if let Some(peer) = &node.peer {
            let _ = write!(text, "<data key=\"peer\">{}</data>", escape(peer.as_str()));
        }
        if !node.addresses.is_empty() {
            let _ = write!(
                text,
                "<data key=\"addresses\">{}</data>",
                escape(node.addresses.join(" ").as_str())
            );
        }
        text.push_str("</node>\n");
    }
    for (a, b) in topology.edges() {
        let Some(link) = topology.link(a, b) else { continue };
        let (a, b) =
            (escape(topology.node(a).name.as_str()), escape(topology.node(b).name.as_str()));
        let _ = write!(text, "    <edge source=\"{a}\" target=\"{b}\">");
        for (key, value) in link_attributes(link) {
            let _ = write!(text, "<data key=\"{key}\">{value}</data>");
        }
        text.push_str("</edge>\n");
    }
    text.push_str("  </graph>\n</graphml>\n");
    text
}

fn declare(text: &mut String, key: &str, subject: &str, kind: &str) {
    let _ = writeln!(
        text,
        "  <key id=\"{key}\" for=\"{subject}\" attr.name=\"{key}\" attr.type=\"{kind}\"/>"
    );
}
