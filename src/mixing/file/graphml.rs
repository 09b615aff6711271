//! GraphML (Brandes et al. 2002), as Gephi, yEd and NetworkX write it: nodes, edges and `data`
//! under declared keys. A key's `<default>` counts for what has no `data` under this key.
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
/// The maximum number of keys with a default: each is looked at for each node and each edge.
const MAX_DEFAULTS: usize = 256;

/// The subject of an open element.
enum Subject {
    Graph,
    Node(u32),
    Edge(DraftLink),
    /// The declaration of this key.
    Key(String),
    Other,
}

struct Open {
    subject: Subject,
    /// The keys under which it has had data.
    given: Vec<String>,
}

struct Key {
    /// The name of the attribute.
    name: String,
    /// The elements that have it: `graph`, `node`, `edge` or `all`.
    domain: String,
    /// What counts for those without data, and its line.
    default: Option<(String, u32)>,
}

struct State {
    collector: Collector,
    keys: BTreeMap<String, Key>,
    open: Vec<Open>,
    /// The key of the open `data` element, empty for a `default`, and its text so far.
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
                if self.graphs > 0 {
                    let problem = format!("the key {id:?} is declared after the graph: move it up");
                    return Err(TopologyError::syntax(line, problem));
                }
                let name = find("attr.name").unwrap_or(&id).to_string();
                let domain = find("for").unwrap_or("all").to_string();
                self.keys.insert(id.clone(), Key { name, domain, default: None });
                Subject::Key(id)
            }
            "node" => {
                let id = need("id")?;
                if self.collector.ids.contains_key(id) {
                    return Err(TopologyError::Syntax {
                        line: Some(line),
                        element: Some("<node>".into()),
                        value: Some(id.into()),
                        problem: "this id is given twice: expected each once".into(),
                    });
                }
                Subject::Node(self.collector.node(id)?)
            }
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
                self.data = Some((need("key")?.to_string(), String::new()));
                Subject::Other
            }
            "default" if self.data.is_none() => {
                self.data = Some((String::new(), String::new()));
                Subject::Other
            }
            _ => Subject::Other,
        };
        self.open.push(Open { subject, given: Vec::new() });
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
        let Some(Open { subject, given }) = self.open.pop() else { return Ok(()) };
        match subject {
            Subject::Graph => {
                for (key, value, line) in self.defaults("graph", &given) {
                    self.collector.graph_attribute(&key, &value, line)?;
                }
            }
            Subject::Node(node) => {
                for (key, value, _) in self.defaults("node", &given) {
                    self.collector.node_attribute(node, &key, &value);
                }
            }
            Subject::Edge(mut link) => {
                for (key, value, line) in self.defaults("edge", &given) {
                    link.attribute(&key, &value, line)?;
                }
                self.collector.link(link)?;
            }
            Subject::Key(_) => {}
            // A `data` element, or one inside it: the first to close takes the text.
            Subject::Other => {
                if let Some((key, value)) = self.data.take() {
                    self.has_data(key, value.trim(), line)?;
                }
            }
        }
        Ok(())
    }

    /// Gives data to the element that is open.
    fn has_data(&mut self, id: String, value: &str, line: u32) -> Result<(), TopologyError> {
        let Some(Open { subject, given }) = self.open.last_mut() else { return Ok(()) };
        let key = self.keys.get(&id).map_or(id.as_str(), |key| &key.name);
        match subject {
            Subject::Graph => self.collector.graph_attribute(key, value, line)?,
            Subject::Node(node) => self.collector.node_attribute(*node, key, value),
            Subject::Edge(link) => link.attribute(key, value, line)?,
            Subject::Key(key) => {
                let known = self.keys.values().filter(|key| key.default.is_some()).count();
                if known == MAX_DEFAULTS {
                    let problem = format!("more than {MAX_DEFAULTS} keys have a default");
                    return Err(TopologyError::syntax(line, problem));
                }
                // Editors write empty defaults for every key.
                if let Some(key) = self.keys.get_mut(key).filter(|_| !value.is_empty()) {
                    key.default = Some((value.to_string(), line));
                }
            }
            Subject::Other => {}
        }
        given.push(id);
        Ok(())
    }

    /// The attributes of an element without data under some keys: names, values and lines of the
    /// defaults.
    fn defaults(&self, domain: &str, given: &[String]) -> Vec<(String, String, u32)> {
        let counts = |(id, key): &(&String, &Key)| {
            (key.domain == domain || key.domain == "all") && !given.contains(id)
        };
        let default = |(_, key): (&String, &Key)| {
            let (value, line) = key.default.as_ref()?;
            Some((key.name.clone(), value.clone(), *line))
        };
        self.keys.iter().filter(counts).filter_map(default).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"<graphml>
<key id="d0" for="edge" attr.name="latency_ms"><default>70</default></key>
<key id="d1" for="node" attr.name="peer"><default>nobody</default></key>
<key id="d2" for="graph" attr.name="name"><default>office</default></key>
<key id="d3" for="all" attr.name="bandwidth_mbps"><default><![CDATA[ 20 ]]></default></key>
<key id="d4" for="node" attr.name="addresses"><default/></key>
<key id="d5" for="node" attr.name="latency_ms"><default>9</default></key>"#;

    #[test]
    fn defaults_count_for_what_has_no_data() {
        let body = r#"
<graph><node id="a"/><node id="b"><data key="d1">bob</data></node><node id="c"/>
<edge source="a" target="b"/><edge source="b" target="c"><data key="d0">5</data></edge>
<edge source="a" target="c"><data key="d3">1</data><data key="d0">6</data></edge>
</graph></graphml>"#;
        let draft = read(&(KEYS.to_string() + body)).unwrap();
        let links: Vec<_> =
            draft.links.iter().map(|link| (link.latency_ms, link.bandwidth_mbps)).collect();
        let link = |latency, bandwidth| (Some(latency), Some(bandwidth));
        assert_eq!(links, [link(70.0, 20.0), link(5.0, 20.0), link(6.0, 1.0)]);
        let peers: Vec<_> = draft.nodes.iter().map(|node| node.peer.as_deref()).collect();
        assert_eq!(peers, [Some("nobody"), Some("bob"), Some("nobody")]);
        assert!(draft.nodes.iter().all(|node| node.addresses.is_empty()));
        assert_eq!(draft.name.as_deref(), Some("office"));
    }

    #[test]
    fn a_default_that_cannot_count_is_refused_at_its_line() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        let wrong = r#"<graphml>
<key id="d0" for="edge" attr.name="latency_ms"><default>soon</default></key>
<graph><node id="a"/><node id="b"/>
<edge source="a" target="b"/></graph></graphml>"#;
        let error = refused(wrong);
        assert!(error.contains("line 2") && error.contains("soon"), "{error}");
        let late = r#"<graphml><graph><node id="a"/></graph>
<key id="d0" for="edge" attr.name="latency_ms"/></graphml>"#;
        let error = refused(late);
        assert!(error.contains("line 2") && error.contains("d0"), "{error}");
        let keys = |n: usize| -> String {
            (0..n).map(|i| format!("<key id=\"k{i}\"><default>1</default></key>\n")).collect()
        };
        let graph = "<graph><node id=\"a\"/></graph></graphml>";
        read(&format!("<graphml>{}{graph}", keys(MAX_DEFAULTS))).unwrap();
        let error = refused(&format!("<graphml>{}{graph}", keys(MAX_DEFAULTS + 1)));
        assert!(error.contains("have a default"), "{error}");
    }
}
