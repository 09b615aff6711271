//! Graphviz's DOT language: `graph { a -- b [weight=0.25, latency_ms=70]; }`.
//!
//! It reads the whole grammar: strict, directed (as undirected), chains, subgraphs as ends,
//! defaults (`edge [weight=0.2]`), ports (ignored), quoted, numeric and HTML identifiers, three
//! kinds of comments. Attributes other than ours are ignored. petgraph's own DOT reader drops
//! attributes and panics on some inputs; this one returns an error on every text that is not DOT.

use std::fmt::Write as _;

use super::{Collector, Draft, DraftLink, graph_attributes, link_attributes};
use crate::{
    mixing::{MAX_LINKS, Topology, TopologyError},
    units::NodeId,
};

/// The maximum nesting of subgraphs.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// An identifier; `true` if it was quoted, and is therefore no keyword.
    Id(String, bool),
    /// `{ } [ ] ; , = :`
    Sign(char),
    /// `--` or `->`
    Link,
    End,
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Token::Id(text, _) => format!("\"{text}\""),
            Token::Sign(sign) => format!("{sign:?}"),
            Token::Link => "\"--\"".into(),
            Token::End => "the end of the file".into(),
        }
    }
}

pub(super) fn read(text: &str) -> Result<Draft, TopologyError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let token = lexer.next()?;
    let mut parser = Parser { lexer, token, collector: Collector::default(), depth: 0 };
    parser.file()?;
    Ok(parser.collector.finish())
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn fail(&self, problem: impl Into<String>) -> TopologyError {
        TopologyError::syntax(self.line, problem)
    }

    /// Moves on by this many bytes, which end at a character boundary.
    fn skip(&mut self, bytes: usize) {
        let end = self.at + bytes;
        self.line += self.text[self.at..end].bytes().filter(|&byte| byte == b'\n').count() as u32;
        self.at = end;
    }

    /// White space, `//` and `/* */` comments, and lines that begin with `#` (preprocessor output).
    fn blanks(&mut self) -> Result<(), TopologyError> {
        loop {
            let rest = self.rest();
            let blank = rest.len()
                - rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len();
            let line_start = self.text[..self.at + blank].ends_with('\n') || self.at + blank == 0;
            self.skip(blank);
            let rest = self.rest();
            if rest.starts_with("//") || (rest.starts_with('#') && line_start) {
                let end = rest.find('\n').unwrap_or(rest.len());
                self.skip(end);
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) if end >= 2 => self.skip(end + 2),
                    _ => return Err(self.fail("a comment /* is not closed")),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Token, TopologyError> {
        self.blanks()?;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if rest.starts_with("--") || rest.starts_with("->") {
            self.skip(2);
            return Ok(Token::Link);
        }
        match first {
            '{' | '}' | '[' | ']' | ';' | ',' | '=' | ':' | '+' => {
                self.skip(1);
                Ok(Token::Sign(first))
            }
            '"' => self.quoted(),
            '<' => self.html(),
            c if is_word(c) || c == '-' || c == '.' => {
                let sign = usize::from(c == '-');
                let numeric = |c: char| c.is_ascii_digit() || c == '.';
                let starts_number = rest[sign..].starts_with(numeric);
                let length = if starts_number {
                    sign + rest[sign..]
                        .find(|c| !numeric(c) && !is_word(c))
                        .unwrap_or(rest.len() - sign)
                } else if sign == 1 {
                    return Err(self.fail("unexpected character '-'"));
                } else {
                    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
                };
                let word = rest[..length].to_string();
                self.skip(length);
                Ok(Token::Id(word, false))
            }
            other => Err(self.fail(format!("unexpected character {other:?}"))),
        }
    }

    /// `"..."`, in which `\"` is a quotation mark, a backslash before a line's end joins lines, and
    /// other backslashes stay.
    fn quoted(&mut self) -> Result<Token, TopologyError> {
        let mut value = String::new();
        let rest = self.rest();
        let mut chars = rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match (c, chars.peek().map(|&(_, next)| next)) {
                ('"', _) => {
                    self.skip(at + 1);
                    return Ok(Token::Id(value, true));
                }
                ('\\', Some('"')) => {
                    chars.next();
                    value.push('"');
                }
                ('\\', Some('\n')) => {
                    chars.next();
                }
                _ => value.push(c),
            }
        }
        Err(self.fail("a quotation mark is not closed"))
    }

    /// `<...>` with balanced brackets.
    fn html(&mut self) -> Result<Token, TopologyError> {
        let rest = self.rest();
        let mut depth = 0usize;
        for (at, c) in rest.char_indices() {
            match c {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let value = rest[1..at].to_string();
                self.skip(at + 1);
                return Ok(Token::Id(value, true));
            }
        }
        Err(self.fail("a bracket < is not closed"))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

type Attributes = Vec<(String, String)>;

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
    collector: Collector,
    depth: usize,
}

impl Parser<'_> {
    fn file(&mut self) -> Result<(), TopologyError> {
        if self.keyword("strict") {
            self.advance()?;
        }
        if !self.keyword("graph") && !self.keyword("digraph") {
            return Err(self.unexpected("graph or digraph"));
        }
        self.advance()?;
        if let Token::Id(name, _) = &self.token {
            self.collector.draft.name = Some(name.clone()).filter(|name| !name.is_empty());
            self.advance()?;
        }
        self.body(DraftLink::default())?;
        if self.token != Token::End {
            return Err(self.unexpected("the end of the file: only one graph is read"));
        }
        Ok(())
    }

    /// Reads `{ statements }`; returns the nodes in it, ascending. `defaults` holds the outer
    /// settings for links as values; a list of statements would be searched by every statement.
    fn body(&mut self, mut defaults: DraftLink) -> Result<Vec<u32>, TopologyError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.lexer.fail("subgraphs are nested too deeply"));
        }
        self.sign('{')?;
        let mut members = Vec::new();
        while self.token != Token::Sign('}') {
            self.statement(&mut defaults, &mut members)?;
            while matches!(self.token, Token::Sign(';' | ',')) {
                self.advance()?;
            }
        }
        self.advance()?;
        self.depth -= 1;
        members.sort_unstable();
        members.dedup();
        Ok(members)
    }

    fn statement(
        &mut self,
        defaults: &mut DraftLink,
        members: &mut Vec<u32>,
    ) -> Result<(), TopologyError> {
        let line = self.lexer.line;
        for kind in ["graph", "node", "edge"] {
            if self.keyword(kind) {
                self.advance()?;
                let attributes = self.attributes()?;
                match kind {
                    "graph" => self.graph_attributes(&attributes)?,
                    "edge" => take(defaults, &attributes, line)?,
                    _ => {}
                }
                return Ok(());
            }
        }
        let (mut ends, lone) = self.end(*defaults)?;
        if let (Some(name), Token::Sign('=')) = (&lone, &self.token) {
            let name = name.clone();
            self.advance()?;
            let value = self.id()?;
            return self.graph_attributes(&[(name, value)]);
        }
        let is_node = self.token != Token::Link && lone.is_some();
        if let Some(name) = lone {
            ends.push(self.collector.node(&name)?);
        }
        let mut pairs = Vec::new();
        members.extend(&ends);
        while self.token == Token::Link {
            self.advance()?;
            let (mut next, lone) = self.end(*defaults)?;
            if let Some(name) = lone {
                next.push(self.collector.node(&name)?);
            }
            if pairs.len() + ends.len() * next.len() > 2 * MAX_LINKS {
                return Err(self.lexer.fail(format!("there are more than {MAX_LINKS} links")));
            }
            pairs.extend(ends.iter().flat_map(|&a| next.iter().map(move |&b| (a, b))));
            members.extend(&next);
            ends = next;
        }
        let attributes = self.attributes()?;
        if is_node {
            ends.iter().for_each(|&node| {
                attributes
                    .iter()
                    .for_each(|(key, value)| self.collector.node_attribute(node, key, value));
            });
        }
        let mut link = DraftLink { line: Some(line), ..*defaults };
        take(&mut link, &attributes, line)?;
        pairs.into_iter().try_for_each(|(a, b)| self.collector.link(DraftLink { a, b, ..link }))
    }

    /// One end of a link: a subgraph's nodes, or the name of a node (or of an attribute, depending
    /// on the next token).
    fn end(&mut self, defaults: DraftLink) -> Result<(Vec<u32>, Option<String>), TopologyError> {
        if self.keyword("subgraph") {
            self.advance()?;
            if matches!(self.token, Token::Id(..)) {
                self.advance()?;
            }
            return Ok((self.body(defaults)?, None));
        }
        if self.token == Token::Sign('{') {
            return Ok((self.body(defaults)?, None));
        }
        let name = self.id()?;
        // A port, `a:north` or `a:port:north`.
        while self.token == Token::Sign(':') {
            self.advance()?;
            self.id()?;
        }
        Ok((Vec::new(), Some(name)))
    }

    /// Any number of `[key=value, ...]`.
    fn attributes(&mut self) -> Result<Attributes, TopologyError> {
        let mut attributes = Vec::new();
        while self.token == Token::Sign('[') {
            self.advance()?;
            while self.token != Token::Sign(']') {
                let key = self.id()?;
                let mut value = "true".to_string();
                if self.token == Token::Sign('=') {
                    self.advance()?;
                    value = self.id()?;
                }
                attributes.push((key, value));
                while matches!(self.token, Token::Sign(';' | ',')) {
                    self.advance()?;
                }
            }
            self.advance()?;
        }
        Ok(attributes)
    }

    fn graph_attributes(&mut self, attributes: &[(String, String)]) -> Result<(), TopologyError> {
        // Attributes of a subgraph do not belong to the graph.
        if self.depth > 1 {
            return Ok(());
        }
        for (key, value) in attributes {
            self.collector.graph_attribute(key, value, self.lexer.line)?;
        }
        Ok(())
    }

    /// An identifier; quoted ones may be joined by `+`.
    fn id(&mut self) -> Result<String, TopologyError> {
        let Token::Id(text, _) = &self.token else { return Err(self.unexpected("a name")) };
        let mut text = text.clone();
        self.advance()?;
        while self.token == Token::Sign('+') {
            self.advance()?;
            match &self.token {
                Token::Id(more, true) => text.push_str(more),
                _ => return Err(self.unexpected("a quoted string after +")),
            }
            self.advance()?;
        }
        Ok(text)
    }

    fn sign(&mut self, sign: char) -> Result<(), TopologyError> {
        if self.token != Token::Sign(sign) {
            return Err(self.unexpected(&format!("{sign:?}")));
        }
        self.advance()
    }

    fn keyword(&self, word: &str) -> bool {
        matches!(&self.token, Token::Id(text, false) if text.eq_ignore_ascii_case(word))
    }

    fn advance(&mut self) -> Result<(), TopologyError> {
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn unexpected(&self, wanted: &str) -> TopologyError {
        self.lexer.fail(format!("found {}, expected {wanted}", self.token.shown()))
    }
}

/// The attributes of a statement that belong to a link.
fn take(
    link: &mut DraftLink,
    attributes: &[(String, String)],
    line: u32,
) -> Result<(), TopologyError> {
    attributes.iter().try_for_each(|(key, value)| link.attribute(key, value, line))
}

pub(super) fn write(topology: &Topology) -> String {
    let mut attributes = graph_attributes(topology);
    let (_, name) = attributes.remove(0);
    let mut text = format!("graph \"{name}\" {{\n");
    for (key, value) in attributes {
        let _ = writeln!(text, "  {key}=\"{value}\";");
    }
    for i in 0..topology.nodes() {
        let node = topology.node(NodeId::from(i));
        let mut data = Vec::new();
        data.extend(node.peer.as_ref().map(|peer| format!("peer=\"{peer}\"")));
        if !node.addresses.is_empty() {
            data.push(format!("addresses=\"{}\"", node.addresses.join(" ")));
        }
        let brackets =
            if data.is_empty() { String::new() } else { format!(" [{}]", data.join(", ")) };
        let _ = writeln!(text, "  \"{}\"{brackets};", node.name);
    }
    for (a, b) in topology.edges() {
        let Some(link) = topology.link(a, b) else { continue };
        let data: Vec<_> =
            link_attributes(link).map(|(key, value)| format!("{key}={value}")).collect();
        let _ = writeln!(
            text,
            "  \"{}\" -- \"{}\" [{}];",
            topology.node(a).name,
            topology.node(b).name,
            data.join(", ")
        );
    }
    text.push_str("}\n");
    text
}
