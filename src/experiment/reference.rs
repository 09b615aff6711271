//! The keys of files, from the comments of the types that read them.
//!
//! The types' sources are compiled in as text: a key's meaning stands once, beside its type.

use std::fmt::Write as _;

use super::{DataParams, NetworkParams, RunParams, TopologyParams};
use crate::learn::{ModelParams, OptimizerParams};

/// The sources in which types are looked for.
const SOURCES: [&str; 6] = [
    include_str!("sections.rs"),
    include_str!("network.rs"),
    include_str!("../learn/model.rs"),
    include_str!("../learn/kind.rs"),
    include_str!("../learn/optimizer.rs"),
    include_str!("../learn/schedule.rs"),
];

/// One key of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// As it is written.
    pub name: String,
    /// What is accepted, in words.
    pub accepts: String,
    /// Its default as TOML; empty where there is none.
    pub default: String,
    /// What it means.
    pub meaning: String,
}

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Its keys, in the order of the type.
    pub keys: Vec<Key>,
}

/// The sections of an experiment file whose keys do not depend on a `kind`.
pub fn sections() -> Vec<Section> {
    fn defaults<T: Default + serde::Serialize>() -> toml::Table {
        toml::Table::try_from(T::default()).expect("a section serialises to a table")
    }
    let all = [
        ("run", "RunParams", defaults::<RunParams>()),
        ("topology", "TopologyParams", defaults::<TopologyParams>()),
        ("data", "DataParams", defaults::<DataParams>()),
        ("model", "ModelParams", defaults::<ModelParams>()),
        ("optimizer", "OptimizerParams", defaults::<OptimizerParams>()),
        ("network", "NetworkParams", defaults::<NetworkParams>()),
    ];
    all.into_iter().map(|(name, of, defaults)| section(name, of, &defaults)).collect()
}

/// The section that a type of [`SOURCES`] reads.
fn section(name: &str, of: &str, defaults: &toml::Table) -> Section {
    let (about, fields) = fields(&format!("pub struct {of} {{"));
    let key = |(field, kind, meaning): (String, String, String)| Key {
        accepts: accepts(&kind),
        default: defaults.get(&field).map(ToString::to_string).unwrap_or_default(),
        name: field,
        meaning,
    };
    Section {
        name: name.to_string(),
        about: about.split_once(": ").map_or(about.clone(), |(_, rest)| rest.to_string()),
        keys: fields.into_iter().map(key).collect(),
    }
}

/// The comment above a type, and its fields or variants: name, type, comment.
///
/// # Panics
/// If no source has it: a section was renamed.
fn fields(opening: &str) -> (String, Vec<(String, String, String)>) {
    let text = SOURCES.iter().find(|text| text.contains(opening)).expect("a type of these sources");
    let at = text.find(opening).expect("it was found a line before");
    let above = text[..at].trim_end().lines().rev();
    let mut about: Vec<&str> = above
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter_map(|line| line.strip_prefix("///"))
        .collect();
    about.reverse();
    let (mut found, mut comment) = (Vec::new(), Vec::new());
    for line in text[at..].lines().skip(1).take_while(|line| *line != "}") {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            comment.push(words.trim());
        } else if !line.starts_with("#[") && !line.is_empty() {
            let line = line.trim_start_matches("pub ").trim_end_matches(',');
            let (name, kind) = line.split_once(": ").unwrap_or((line, ""));
            found.push((name.to_string(), kind.to_string(), comment.join(" ")));
            comment.clear();
        }
    }
    let about = about.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    (about, found)
}

/// What a field of this type accepts.
fn accepts(kind: &str) -> String {
    let kind = kind.strip_prefix("Option<").map_or(kind, |kind| kind.trim_end_matches('>'));
    match kind {
        "String" => "text".into(),
        "bool" => "`true` or `false`".into(),
        "f64" => "a number".into(),
        "u32" | "u64" | "usize" => "a whole number".into(),
        "Vec<f64" => "a list of numbers".into(),
        "Vec<usize" => "a list of whole numbers".into(),
        "BatchSize" => "a whole number or `\"full\"`".into(),
        "Init" => "`\"zeros\"`, `\"seeded\"` or a safetensors file".into(),
        "crate::data::Scale" => {
            "a table with `mean` and `deviation`, a list of numbers each".into()
        }
        kind => {
            let (_, variants) = fields(&format!("pub enum {kind} {{"));
            let one = |(name, _, meaning): &(String, String, String)| {
                let meaning = meaning.trim_end_matches('.');
                format!("`\"{}\"` ({})", kebab(name), lower(meaning))
            };
            variants.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

/// `ByLabel` as `by-label`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            text.push('-');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// A sentence within another one.
fn lower(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.chars().nth(1)) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_string(),
    }
}

const RULE: &str = "`kind` is the name of an update rule, `gradvine rules` lists them; its other \
                    keys are that rule's constants, `gradvine rules NAME` shows them.";
const COMPRESSOR: &str = "`kind` is the name of a compressor, `gradvine compressors` lists them, \
                          default `identity`; its other keys are that compressor's constants.";

/// The reference as Markdown: `docs/experiment.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# The experiment file\n\nEvery section and key of an experiment file, in TOML. All may \
         be left out; on the command line `--set section.key=value` sets one. An unknown key is \
         an error. This page is made from the source; `gradvine experiment` prints the same.\n",
    );
    for Section { name, about, keys } in sections() {
        let _ = write!(text, "\n## [{name}]\n\n{}\n\n", sentence(&about));
        text += "| key | accepts | default | meaning |\n|---|---|---|---|\n";
        for Key { name, accepts, default, meaning } in keys {
            let default = if default.is_empty() { "-".into() } else { format!("`{default}`") };
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| `{name}` | {} | {default} | {} |",
                cell(&accepts),
                cell(&meaning)
            );
        }
    }
    let _ = write!(text, "\n## [rule]\n\n{RULE}\n\n## [compressor]\n\n{COMPRESSOR}\n");
    text
}

/// The reference for a terminal.
pub fn plain() -> String {
    let mut text = String::new();
    for Section { name, about, keys } in sections() {
        let _ = write!(text, "[{name}]  {about}\n\n");
        for Key { name, accepts, default, meaning } in keys {
            let default =
                if default.is_empty() { String::new() } else { format!("; default {default}") };
            let _ = write!(text, "  {name}: {accepts}{default}\n      {meaning}\n");
        }
        text.push('\n');
    }
    let _ = write!(text, "[rule]\n\n  {RULE}\n\n[compressor]\n\n  {COMPRESSOR}\n");
    text.replace('`', "")
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
