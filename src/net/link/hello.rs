//! The handshake: both ends of a link compare their runs before the first frame, and describe any
//! difference.

use sha2::{Digest, Sha256};

use super::{
    programs,
    wire::{Hello, Section, TEXT_LIMIT},
};
use crate::{
    cluster::message::Origin,
    config::{self, ConfigError},
    learn::Tensor,
    net::VERSION,
    run::{Design, arithmetic},
    units::NodeId,
};

/// This node's side of the handshake.
#[derive(Clone, Debug)]
pub struct RunCard {
    run: String,
    parameters: u64,
    texts: [String; 3],
    digests: [[u8; 32]; 3],
    /// The id of the membership.
    membership: u64,
    /// The numbers in the topology of the nodes with these numbers here; empty if they are equal.
    numbers: Vec<NodeId>,
    /// Which node was the first to go back to a checkpoint, or to choose members.
    because: Option<Origin>,
}

/// All sections, in the order of their digests.
pub(crate) const SECTIONS: [Section; 3] = [Section::Topology, Section::Experiment, Section::Model];

/// The result of comparing two hellos.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// They may run together; states whether their arithmetic agrees.
    Same {
        /// Whether both self-tests give the same bits.
        arithmetic: bool,
    },
    /// Their files differ in a value without a section text: its name, ours and theirs.
    Refused(String),
    /// The programs differ: how, here and there.
    Other(String),
    /// Each side sends the text of this section, so that both can name the line.
    Differ(Section),
    /// They may run together, but not now: the members have changed, or are being chosen.
    OtherMembership,
}

impl RunCard {
    /// The card of a run.
    pub fn new(design: &Design) -> RunCard {
        let canonical = design.experiment.canonical();
        let (mut model, experiment): (Vec<&str>, Vec<&str>) =
            canonical.lines().partition(|line| line.starts_with("model."));
        let parameters = format!("model.parameters = {}", design.parameters());
        let initial = match design.initial_from {
            Some(from) => format!("model.initial = that of {}", design.topology.node(from).name),
            None => {
                format!("model.initial (SHA-256) = {}", crate::digest::of_model(&design.initial))
            }
        };
        let tensor = |Tensor { name, shape, is_statistic }: &Tensor| {
            let kind = if *is_statistic { "statistics, f32" } else { "f32" };
            format!("model.tensor.{name} = {kind} {shape:?}")
        };
        let tensors: Vec<String> = design.tensors.iter().map(tensor).collect();
        model.extend([parameters.as_str(), initial.as_str()]);
        model.extend(tensors.iter().map(String::as_str));
        let agreed = |(key, value): &(String, String)| format!("{key} = {value}");
        let agreed: Vec<String> = design.agreed.iter().map(agreed).collect();
        model.extend(agreed.iter().map(String::as_str));
        let texts = [design.topology.canonical(), experiment.join("\n"), model.join("\n")];
        RunCard::of(&design.experiment.run.id, design.parameters() as u64, texts)
    }

    /// The canonical texts of topology, experiment and model.
    pub fn texts(&self) -> &[String; 3] {
        &self.texts
    }

    /// A card made from given texts.
    pub fn of(run: &str, parameters: u64, texts: [String; 3]) -> RunCard {
        let digests = [0, 1, 2].map(|i: usize| Sha256::digest(texts[i].as_bytes()).into());
        let (membership, numbers, because) = (0, Vec::new(), None);
        RunCard { run: run.into(), parameters, texts, digests, membership, numbers, because }
    }

    /// The card of some of the run's nodes, or of all while members are chosen. `numbers` are those
    /// in the topology of the nodes 0, 1, ... here; none if they are equal.
    #[must_use]
    pub(crate) fn in_membership(mut self, id: u64, numbers: Vec<NodeId>) -> RunCard {
        (self.membership, self.numbers) = (id, numbers);
        self
    }

    /// The card of a node that shows this origin.
    #[must_use]
    pub(crate) fn because(self, because: Origin) -> RunCard {
        RunCard { because: Some(because), ..self }
    }

    /// A node's number in the topology of the run.
    fn number(&self, node: NodeId) -> NodeId {
        self.numbers.get(node.index()).copied().unwrap_or(node)
    }

    /// What a program signs to prove to another one with its key that both take part in this run.
    /// Both numbers are random, and drawn when a program starts. So this proves nothing to a later
    /// program.
    pub fn runs(&self, program: u64, other: u64) -> Vec<u8> {
        let numbers = [program, other].map(u64::to_le_bytes).concat();
        [b"gradvine runs ", self.digests.as_flattened(), &numbers, self.run.as_bytes()].concat()
    }

    /// The hello of a node without a session.
    pub fn hello(&self, node: NodeId) -> Hello {
        let (program, age) = programs::own();
        Hello {
            version: VERSION,
            run: self.run.clone(),
            node: self.number(node).0,
            digests: self.digests,
            parameters: self.parameters,
            arithmetic: arithmetic::class(),
            received: 0,
            partial: 0,
            incarnation: 0,
            known: 0,
            membership: self.membership,
            because: self.because.clone(),
            program,
            age,
        }
    }

    /// Compares the neighbour's hello with ours. `node` is the neighbour's number in our topology.
    pub fn compare(&self, node: NodeId, theirs: &Hello) -> Verdict {
        let differ = |what: &str, here: String, there: String| {
            Verdict::Refused(format!("{what}: {here} here, {there} there"))
        };
        if theirs.version != VERSION {
            return Verdict::Other(format!(
                "protocol version: {VERSION} here, {} there; install the same release of gradvine \
                 on both",
                theirs.version
            ));
        }
        if theirs.run != self.run {
            return differ("run.id", format!("\"{}\"", self.run), format!("\"{}\"", theirs.run));
        }
        if let Some(index) = (0..3).find(|&i| theirs.digests[i] != self.digests[i]) {
            return Verdict::Differ(SECTIONS[index]);
        }
        if theirs.parameters != self.parameters {
            return differ(
                "model dimension",
                self.parameters.to_string(),
                theirs.parameters.to_string(),
            );
        }
        let number = self.number(node);
        if theirs.node != number.0 {
            let theirs = theirs.node.to_string();
            return differ("its number in the topology", number.to_string(), theirs);
        }
        if theirs.membership != self.membership {
            return Verdict::OtherMembership;
        }
        Verdict::Same { arithmetic: theirs.arithmetic == arithmetic::class() }
    }

    /// A section's text as sent, cut at the limit.
    pub(crate) fn text(&self, section: Section) -> String {
        let text = &self.texts[section as usize];
        let mut end = text.len().min(TEXT_LIMIT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].to_string()
    }

    /// Describes the lines in which a section differs from the neighbour's text.
    pub(crate) fn difference(&self, section: Section, peer: &str, theirs: &str) -> ConfigError {
        const SHOWN: usize = 8;
        let differences = config::differences(&self.texts[section as usize], theirs);
        let word = |value: Option<&str>| value.map_or("absent".to_string(), printable);
        let differences: Vec<String> = (differences.into_iter())
            .map(|(key, here, there)| {
                format!("{} = {} here, {} there", printable(key), word(here), word(there))
            })
            .collect();
        let more = differences.len().saturating_sub(SHOWN);
        let mut text = differences.into_iter().take(SHOWN).collect::<Vec<_>>().join("; ");
        if more > 0 {
            text += &format!("; and {more} more");
        }
        if text.is_empty() {
            text = "their texts are longer than can be compared here".into();
        }
        let remedy = match section {
            // Values of programs are in no file.
            Section::Model => "make both the same",
            Section::Topology | Section::Experiment => "give both the same file",
        };
        ConfigError::at(
            section.to_string(),
            format!("node {peer} runs another {section}: {text}; {remedy}"),
        )
    }
}

/// Makes a peer's text printable: without control characters, and no longer than a value in a
/// message should be.
pub(crate) fn printable(text: &str) -> String {
    cut(text, 120)
}

/// Does the same for a peer's reason to end the run, under a longer limit, so that it is kept
/// whole.
pub(crate) fn sentence(text: &str) -> String {
    cut(text, 1000)
}

fn cut(text: &str, limit: usize) -> String {
    let mut out: String =
        text.chars().map(|c| if c.is_control() { '?' } else { c }).take(limit).collect();
    if text.chars().count() > limit {
        out += "...";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(experiment: &str) -> RunCard {
        RunCard::of(
            "run",
            10,
            ["nodes = 2\n".into(), experiment.into(), "model.kind = \"mlp\"".into()],
        )
    }

    #[test]
    fn equal_cards_agree() {
        assert_eq!(
            card("a = 1").compare(NodeId(1), &card("a = 1").hello(NodeId(1))),
            Verdict::Same { arithmetic: true }
        );
    }

    #[test]
    fn a_difference_names_the_section_the_key_and_both_values() {
        let (here, there) = (
            card("optimizer.step = 0.1\nrun.seed = 1"),
            card("optimizer.step = 0.2\nrun.seed = 1"),
        );
        assert_eq!(
            here.compare(NodeId(1), &there.hello(NodeId(1))),
            Verdict::Differ(Section::Experiment)
        );
        let error = here
            .difference(Section::Experiment, "tokyo", &there.text(Section::Experiment))
            .to_string();
        assert_eq!(
            error,
            "experiment: node tokyo runs another experiment: optimizer.step = 0.1 here, 0.2 \
             there; give both the same file"
        );
    }

    #[test]
    fn runs_numbers_and_versions_are_refused() {
        let here = card("a = 1");
        let refusal = |hello: Hello| match here.compare(NodeId(1), &hello) {
            Verdict::Refused(text) | Verdict::Other(text) => text,
            other => format!("{other:?}"),
        };
        let hello = here.hello(NodeId(1));
        let version = refusal(Hello { version: 99, ..hello.clone() });
        assert!(
            version.starts_with(&format!("protocol version: {VERSION} here, 99 there; ")),
            "{version}"
        );
        assert_eq!(
            refusal(Hello { run: "b".into(), ..hello.clone() }),
            "run.id: \"run\" here, \"b\" there"
        );
        assert_eq!(
            refusal(Hello { node: 2, ..hello.clone() }),
            "its number in the topology: 1 here, 2 there"
        );
        assert_eq!(
            here.compare(NodeId(1), &Hello { arithmetic: 1, ..hello }),
            Verdict::Same { arithmetic: false }
        );
    }

    #[test]
    fn a_peers_text_is_made_printable() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a?[31mb?");
        assert_eq!(printable(&"x".repeat(200)).len(), 123);
    }
}
