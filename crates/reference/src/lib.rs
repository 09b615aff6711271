//! The keys of files: what each means, what it accepts, and its default.
//!
//! They come from the comments of the types that read the files, whose sources are compiled in as
//! text: a key's meaning and its bounds stand once, beside its type. A comment says what the key
//! means, then `Accepts:` and the bounds where the type does not tell them, then `Default:` and
//! the default where it is not a value of the type. Names come from the registries.
#![forbid(unsafe_code)]

mod keys;
mod source;

use std::fmt::Write as _;

use textwrap::{Options, WordSeparator, WordSplitter, fill};

pub use keys::{Key, List, Section};

/// A kind of file that a user writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// An experiment: what is run.
    Experiment,
    /// `node.toml`: where a node's files are.
    Node,
    /// `relay.toml`: whom a relay serves, and how much it carries.
    Relay,
    /// A topology: who is linked with whom.
    Topology,
    /// A study: what a paper claims, and rows that try it.
    Study,
}

impl File {
    /// Those that are not an experiment.
    pub const OTHERS: [File; 4] = [File::Node, File::Relay, File::Topology, File::Study];

    /// The title of its chapter.
    pub fn title(self) -> &'static str {
        match self {
            File::Experiment => "The experiment file",
            File::Node => "The node file",
            File::Relay => "The relay file",
            File::Topology => "Topology files",
            File::Study => "Study files",
        }
    }

    /// What stands before its sections.
    fn intro(self) -> &'static str {
        match self {
            File::Experiment => {
                "Every section and key of an experiment file, in TOML. A file must have \
                 `rule.kind` and a topology (`topology.file` or `topology.family`); all else may \
                 be left out. On the command line `--set section.key=value` sets a key. An unknown \
                 key is an error. This page is made from the source; `gradvine experiment` prints \
                 the same."
            }
            File::Node => {
                "`gradvine node NODE.toml` reads it. Each node of a deployment has its own. Paths \
                 are relative to the file. An unknown key is an error."
            }
            File::Relay => {
                "`gradvine relay RELAY.toml` reads it. Paths are relative to the file. An unknown \
                 key is an error."
            }
            File::Topology => {
                "They are given by `--topology`, by `topology.file` of an experiment or by \
                 `topology` of a node file. The extension says the format; the keys are those of \
                 TOML. The other formats have the same names as attributes of the graph, its nodes \
                 and its links, and keep all that TOML keeps. A file has at most 64 MiB. \
                 `gradvine topology check FILE` checks one. In TOML an unknown key is an error."
            }
            File::Study => {
                "`gradvine study FILE` runs it and writes its page. An unknown key is an error."
            }
        }
    }

    /// Its sections, in the order of their types.
    pub fn sections(self) -> Vec<Section> {
        keys::sections(self)
    }

    /// The names that some of its keys accept, each with its meaning.
    pub fn lists(self) -> Vec<List> {
        keys::lists(self)
    }

    /// Its chapter as Markdown, under a heading of this level.
    fn chapter(self, level: usize) -> String {
        let intro = wrapped(self.intro());
        let mut text = format!("{} {}\n\n{intro}\n", "#".repeat(level), self.title());
        let below = "#".repeat(level + 1);
        for section in self.sections() {
            let about = wrapped(&section.about);
            let _ = write!(text, "\n{below} {}\n\n{about}\n\n", section.heading);
            text += "| key | accepts | default | meaning |\n|---|---|---|---|\n";
            for Key { name, accepts, default, meaning } in section.keys {
                let default = if default.is_empty() { "-".into() } else { cell(&default) };
                let (accepts, meaning) = (cell(&accepts), cell(&meaning));
                let _ = writeln!(text, "| `{name}` | {accepts} | {default} | {meaning} |");
            }
        }
        for List { name, about, entries } in self.lists() {
            let _ = write!(text, "\n{below} {name}\n\n{}\n", wrapped(&about));
            if !entries.is_empty() {
                text += "\n| name | meaning |\n|---|---|\n";
            }
            for (name, meaning) in entries {
                let _ = writeln!(text, "| {} | {} |", cell(&name), cell(&meaning));
            }
        }
        text
    }

    /// The reference for a terminal.
    pub fn plain(self) -> String {
        let mut text = format!("{}\n\n", self.intro());
        for section in self.sections() {
            let _ = write!(text, "{}  {}\n\n", section.heading, section.about);
            for Key { name, accepts, default, meaning } in section.keys {
                let default = match default.as_str() {
                    "" => String::new(),
                    keys::REQUIRED => format!("; {default}"),
                    _ => format!("; default {default}"),
                };
                let _ = write!(text, "  {name}: {accepts}{default}\n      {meaning}\n");
            }
            text.push('\n');
        }
        for List { name, about, entries } in self.lists() {
            let _ = write!(text, "{name}\n\n  {about}\n");
            for (name, meaning) in entries {
                let _ = writeln!(text, "  {name}: {meaning}");
            }
            text.push('\n');
        }
        text.trim_end().replace('`', "") + "\n"
    }
}

/// Prose of a document, as wide as those that are written by hand.
fn wrapped(prose: &str) -> String {
    let options = Options::new(100)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    fill(prose, options)
}

/// The reference of the experiment file as Markdown: `docs/experiment.md`.
pub fn experiment() -> String {
    File::Experiment.chapter(1)
}

/// The reference of all files but experiments, for a terminal.
pub fn others_plain() -> String {
    let one = |file: File| format!("{}\n\n{}", file.title(), file.plain());
    File::OTHERS.map(one).join("\n")
}

/// The reference of the other files as Markdown: `docs/files.md`.
pub fn others() -> String {
    let intro = wrapped(
        "Every key of these files. [experiment.md](experiment.md) has those of an experiment. This \
         page is made from the source; `gradvine files` prints the same.",
    );
    let mut text = format!("# Node, relay, topology and study files\n\n{intro}\n");
    for file in File::OTHERS {
        text += &format!("\n{}", file.chapter(2));
    }
    text
}

/// A text within a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
