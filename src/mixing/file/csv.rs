//! Edge lists: one link per line, `source,target[,weight][,latency_ms][,bandwidth_mbps]`.
//!
//! A first line that begins with `source` and `target` names the columns, in any order; without it
//! they are in the order above. Empty fields are unknown. Lines that begin with `#` are comments;
//! our own comments carry data for which an edge list has no columns: `# nodes,a,b,c` fixes the
//! order of the nodes (else: order of appearance), `# name`, `# family`, `# weights` the graph's
//! attributes, `# node,a,peer,addresses` a deployment's data.

use ::csv::{ReaderBuilder, StringRecord, Trim, WriterBuilder};

use super::{Collector, Draft, DraftLink, at_line, check_unit, graph_attributes};
use crate::{
    mixing::{Topology, TopologyError},
    units::NodeId,
};

const COLUMNS: [&str; 5] = ["source", "target", "weight", "latency_ms", "bandwidth_mbps"];

pub(super) fn read(text: &str) -> Result<Draft, TopologyError> {
    let mut collector = Collector::default();
    for (line, text) in (1u32..).zip(text.lines()) {
        if let Some(comment) = text.trim_start().strip_prefix('#') {
            directive(comment, line, &mut collector)?;
        }
    }
    let reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let mut columns = Columns { count: COLUMNS.len(), places: std::array::from_fn(Some) };
    let mut first = true;
    for record in reader.into_records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, |position| position.line() as u32);
            TopologyError::syntax(line, format!("not CSV: {error}"))
        })?;
        let line = record.position().map_or(0, |position| position.line() as u32);
        if std::mem::take(&mut first)
            && record.iter().any(|field| field.eq_ignore_ascii_case("source"))
        {
            columns = header(&record, line)?;
            continue;
        }
        let link = link(&record, &columns, line, &mut collector)?;
        collector.link(link)?;
    }
    if collector.draft.nodes.is_empty() {
        let problem = "there is no link: expected lines such as source,target";
        return Err(TopologyError::syntax(None, problem));
    }
    Ok(collector.finish())
}

/// The position of each of [`COLUMNS`] among a line's fields, found once: a line is short, a header
/// may be long.
struct Columns {
    count: usize,
    places: [Option<usize>; COLUMNS.len()],
}

/// Finds our columns; columns of other tools are ignored.
fn header(record: &StringRecord, line: u32) -> Result<Columns, TopologyError> {
    let mut columns = Columns { count: record.len(), places: [None; COLUMNS.len()] };
    for name in record {
        check_unit(name, line)?;
    }
    for (name, place) in COLUMNS.into_iter().zip(&mut columns.places) {
        let is_it = |field: &str| field.eq_ignore_ascii_case(name);
        *place = record.iter().position(is_it);
        let times = record.iter().filter(|field| is_it(field)).count();
        if times > 1 || (times == 0 && (name == "source" || name == "target")) {
            return Err(TopologyError::Syntax {
                line: Some(line),
                element: Some("column".into()),
                value: Some(name.into()),
                problem: format!("appears {times} times: expected once"),
            });
        }
    }
    Ok(columns)
}

fn link(
    record: &StringRecord,
    columns: &Columns,
    line: u32,
    collector: &mut Collector,
) -> Result<DraftLink, TopologyError> {
    if record.len() > columns.count {
        let problem =
            format!("there are {} fields: expected at most {}", record.len(), columns.count);
        return Err(TopologyError::syntax(line, problem));
    }
    let field = |name: &str| {
        let at = COLUMNS.iter().zip(columns.places).find(|(column, _)| **column == name);
        at.and_then(|(_, at)| record.get(at?)).filter(|text| !text.is_empty())
    };
    let mut end = |name: &str| match field(name) {
        Some(id) => collector.node(id),
        None => {
            Err(TopologyError::syntax(line, format!("{name} is missing: expected source,target")))
        }
    };
    let mut link = DraftLink {
        a: end("source")?,
        b: end("target")?,
        line: Some(line),
        ..DraftLink::default()
    };
    for name in &COLUMNS[2..] {
        if let Some(text) = field(name) {
            link.attribute(name, text, line)?;
        }
    }
    Ok(link)
}

/// Reads a comment that may be one of ours.
fn directive(comment: &str, line: u32, collector: &mut Collector) -> Result<(), TopologyError> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(comment.as_bytes());
    let Some(Ok(record)) = reader.records().next() else { return Ok(()) };
    let mut fields = record.iter();
    match (fields.next(), record.len()) {
        (Some("nodes"), 2..) => {
            for id in fields {
                collector.node(id).map_err(|error| at_line(line, error))?;
            }
        }
        (Some("node"), 4) => {
            let node = collector.node(&record[1]).map_err(|error| at_line(line, error))?;
            for (key, value) in [("peer", &record[2]), ("addresses", &record[3])] {
                if !value.is_empty() {
                    collector.node_attribute(node, key, value);
                }
            }
        }
        (Some(key @ ("name" | "family" | "weights" | "allow_negative")), 2) => {
            collector.graph_attribute(key, &record[1], line)?;
        }
        _ => {} // a remark
    }
    Ok(())
}

pub(super) fn write(topology: &Topology) -> String {
    let nodes = || (0..topology.nodes()).map(|i| topology.node(NodeId::from(i)));
    let mut text = String::new();
    let mut comment = |fields: &mut dyn Iterator<Item = &str>| {
        text.push_str("# ");
        text.push_str(&row(fields));
    };
    for (key, value) in graph_attributes(topology) {
        comment(&mut [key, value.as_str()].into_iter());
    }
    comment(&mut std::iter::once("nodes").chain(nodes().map(|node| node.name.as_str())));
    for node in nodes().filter(|node| node.peer.is_some() || !node.addresses.is_empty()) {
        let addresses = node.addresses.join(" ");
        comment(
            &mut [
                "node",
                node.name.as_str(),
                node.peer.as_deref().unwrap_or(""),
                addresses.as_str(),
            ]
            .into_iter(),
        );
    }
    text.push_str(&row(&mut COLUMNS.into_iter()));
    for (a, b) in topology.edges() {
        let Some(link) = topology.link(a, b) else { continue };
        let optional =
            |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let numbers =
            [link.weight.to_string(), optional(link.latency_ms), optional(link.bandwidth_mbps)];
        let ends = [topology.node(a).name.as_str(), topology.node(b).name.as_str()];
        text.push_str(&row(&mut ends.into_iter().chain(numbers.iter().map(String::as_str))));
    }
    text
}

/// One line of CSV. A field that begins with `#` is quoted, so that the line is not a comment.
fn row(fields: &mut dyn Iterator<Item = &str>) -> String {
    let mut writer = WriterBuilder::new().comment(Some(b'#')).from_writer(Vec::new());
    writer.write_record(fields).expect("writing to memory cannot fail");
    let bytes = writer.into_inner().expect("writing to memory cannot fail");
    String::from_utf8(bytes).expect("fields of text make a line of text")
}
