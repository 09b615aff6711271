//! Sections, keys and names of each kind of file.

use super::{
    File,
    source::{Field, Type},
};
use gradvine::{
    data,
    experiment::{
        AbsenceParams, CheckpointParams, DataParams, NetworkParams, RobustParams, RunParams,
        TopologyParams,
    },
    learn::{KINDS, ModelParams, OptimizerParams},
    links::PRESETS,
    mixing::{Weights, family, schedule},
    run::StatusFile,
};

/// The default of a key that a file must have.
pub(super) const REQUIRED: &str = "required";

/// One key of a section. Its texts are Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key, as a file has it.
    pub name: String,
    /// What is accepted: the type and the bounds.
    pub accepts: String,
    /// Its default; `required` where a file must have it, empty where there is none.
    pub default: String,
    /// What it means, as the comment of its field says.
    pub meaning: String,
}

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name; of keys that belong to no section, the kind of file.
    pub name: String,
    /// As a file has it, such as `[run]` or `[[node]]`.
    pub heading: String,
    /// The comment of its type.
    pub about: String,
    /// Its keys, in the order of the type.
    pub keys: Vec<Key>,
}

/// Names that a file may use, or words on a section whose keys stand elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Its heading in the documentation.
    pub name: String,
    /// The words between the heading and the entries.
    pub about: String,
    /// Each name with its meaning.
    pub entries: Vec<(String, String)>,
}

/// The sections of a file whose keys do not depend on a `kind`.
pub(super) fn sections(file: File) -> Vec<Section> {
    fn defaults<T: Default + serde::Serialize>() -> toml::Table {
        toml::Table::try_from(T::default()).expect("a section serialises to a table")
    }
    let none = toml::Table::new;
    let all: Vec<(&str, &str, &str, toml::Table)> = match file {
        File::Experiment => vec![
            ("run", "[run]", "RunParams", defaults::<RunParams>()),
            ("topology", "[topology]", "TopologyParams", defaults::<TopologyParams>()),
            ("data", "[data]", "DataParams", defaults::<DataParams>()),
            ("model", "[model]", "ModelParams", defaults::<ModelParams>()),
            ("optimizer", "[optimizer]", "OptimizerParams", defaults::<OptimizerParams>()),
            ("network", "[network]", "NetworkParams", defaults::<NetworkParams>()),
            ("absence", "[absence]", "AbsenceParams", defaults::<AbsenceParams>()),
            ("checkpoint", "[checkpoint]", "CheckpointParams", defaults::<CheckpointParams>()),
            ("robust", "[robust]", "RobustParams", defaults::<RobustParams>()),
        ],
        File::Node => vec![
            ("node", "Keys", "NodeFile", none()),
            ("status", "[status]", "StatusFile", defaults::<StatusFile>()),
        ],
        File::Relay => vec![("relay", "Keys", "RelayFile", none())],
        File::Topology => vec![
            ("topology", "Keys above all tables", "Document", none()),
            ("node", "[[node]]", "NodeTable", none()),
            ("link", "[[link]]", "LinkTable", none()),
        ],
        File::Study => vec![
            ("study", "Keys above all tables", "Study", none()),
            ("row", "[[row]]", "RawRow", none()),
            ("picture", "[[picture]]", "Picture", none()),
            ("expect", "[[expect]]", "Expectation", none()),
            ("against", "[against]", "Against", none()),
            ("rounds_to", "[rounds_to]", "Target", none()),
            ("needs", "[needs]", "Needs", none()),
        ],
    };
    let one = |(name, heading, of, defaults): (&str, &str, &str, toml::Table)| {
        let found = Type::find(of);
        let key = |field: &Field| Key {
            accepts: accepts(file, name, field),
            default: default(field, &defaults),
            meaning: meaning(field, &defaults),
            name: field.name.clone(),
        };
        Section {
            name: name.to_string(),
            heading: heading.to_string(),
            about: sentence(found.about.split_once("`: ").map_or(&found.about, |(_, rest)| rest)),
            keys: found.fields.iter().map(key).collect(),
        }
    };
    all.into_iter().map(one).collect()
}

/// The lists of a file.
pub(super) fn lists(file: File) -> Vec<List> {
    const RULE: &str = "`kind` is the name of an update rule, `gradvine rules` lists them; its \
                        other keys are that rule's constants, `gradvine rules NAME` shows them.";
    const COMPRESSOR: &str = "`kind` is the name of a compressor, `gradvine compressors` lists \
                              them, default `identity`; its other keys are that compressor's \
                              constants, `gradvine compressors NAME` shows them.";
    let list = |name: &str, about: &str, entries| List {
        name: name.to_string(),
        about: about.to_string(),
        entries,
    };
    match file {
        File::Experiment => {
            vec![list("[rule]", RULE, Vec::new()), list("[compressor]", COMPRESSOR, Vec::new())]
        }
        File::Node | File::Relay => Vec::new(),
        File::Topology => {
            let families = family::REGISTRY.iter().map(|one| {
                let (keys, example) = (one.keys.join("`, `"), family::example(one));
                (code(one.name), format!("{} Takes `{keys}`: `{example}`.", said(one.about)))
            });
            let weights = Weights::ALL.iter().map(|one| (code(one.name()), said(one.about())));
            vec![
                list(
                    "Formats",
                    "The formats that are read and written.",
                    named("FileFormat", |name| match name {
                        "toml" => "TOML".into(),
                        "graph-ml" => "GraphML".into(),
                        other => other.to_uppercase(),
                    }),
                ),
                list(
                    "Families",
                    "Graphs that need no list of links, each with a spec for the command line.",
                    families.collect(),
                ),
                list("Weights", "How link weights are chosen.", weights.collect()),
            ]
        }
        File::Study => vec![list(
            "Figures",
            "What is read off a run: for columns, pictures and expectations.",
            named("Figure", code),
        )],
    }
}

/// The variants of an enum with their meanings.
fn named(of: &str, name: impl Fn(&str) -> String) -> Vec<(String, String)> {
    let found = Type::find(of);
    let one = |(variant, meaning): (String, &str)| (name(&variant), meaning.to_string());
    found.variants().into_iter().map(one).collect()
}

/// What a key accepts: names that a registry has, else what its comment says, else what its type
/// says.
fn accepts(file: File, section: &str, field: &Field) -> String {
    let names = names(file, section, &field.name);
    names.or_else(|| field.accepts.clone()).unwrap_or_else(|| accepts_of(&field.kind))
}

/// The names that a key accepts, where a registry has them.
fn names(file: File, section: &str, key: &str) -> Option<String> {
    let one_of = |names: &[&str]| {
        let quoted: Vec<String> = names.iter().map(|name| format!("`\"{name}\"`")).collect();
        format!("one of {}", quoted.join(", "))
    };
    let weights = || one_of(&Weights::ALL.map(Weights::name));
    let families = || family::REGISTRY.names();
    Some(match (file, section, key) {
        (File::Experiment, "topology", "family") => one_of(&families()),
        (File::Topology, "topology", "family") => {
            one_of(&[families(), vec![family::CUSTOM]].concat())
        }
        (File::Experiment, "topology", "weights") => {
            format!("{}; `\"given\"` only with a file whose links have weights", weights())
        }
        (File::Topology, "topology", "weights") => weights(),
        (File::Experiment, "topology", "schedule") => {
            let all = schedule::REGISTRY.iter();
            let names: Vec<&str> =
                all.clone().filter(|one| one.number.is_none()).map(|one| one.name).collect();
            let numbered = all.filter_map(|one| Some((one.name, one.number?.0)));
            let numbered = numbered.map(|(name, what)| format!(", or `\"{name}:N\"` for N {what}"));
            one_of(&names) + &numbered.collect::<String>()
        }
        (File::Experiment, "network", "preset") => one_of(&PRESETS.each_ref().map(|one| one.name)),
        (File::Experiment, "model", "kind") => one_of(&KINDS.map(gradvine::learn::Kind::name)),
        (File::Experiment, "data", "source") => {
            let shipped = data::EMBEDDED.names();
            let names = one_of(&[shipped, vec![data::SYNTHETIC]].concat());
            format!(
                "{names}, or the path of a CSV, NPY, NPZ or IDX file (also .gz) or of a \
                 Parquet or Arrow file, or of a folder of CSV, Parquet or Arrow files with the \
                 same columns"
            )
        }
        _ => return None,
    })
}

/// What a field of this type accepts.
///
/// # Panics
/// If a number's bounds stand nowhere, or the type is not known.
fn accepts_of(kind: &str) -> String {
    match kind {
        "String" => "text".into(),
        "bool" => "`true` or `false`".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        // TOML's whole numbers have 64 bits and a sign.
        "u64" | "usize" => "a whole number from 0 to 9223372036854775807".into(),
        "Figure" => "a figure".into(),
        number @ ("f64" | "Vec<f64>" | "Vec<usize>") => {
            panic!("{number}: its comment has no bounds")
        }
        kind => {
            let one = |(name, meaning): (String, &str)| {
                format!("`\"{name}\"` ({})", lower(meaning.trim_end_matches('.')))
            };
            let found = Type::find(kind);
            found.variants().into_iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A key's default: the type's value, or what the comment says.
fn default(field: &Field, defaults: &toml::Table) -> String {
    match (defaults.get(&field.name), &field.default) {
        (Some(value), _) => code(&value.to_string()),
        (None, Some(words)) => words.clone(),
        (None, None) if field.required => REQUIRED.into(),
        (None, None) => String::new(),
    }
}

/// A key's meaning. Where the type has the default's value, the comment says why it is that.
fn meaning(field: &Field, defaults: &toml::Table) -> String {
    match &field.default {
        Some(why) if defaults.contains_key(&field.name) => {
            format!("{} Default: {why}.", field.meaning)
        }
        _ => field.meaning.clone(),
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// A line of a list as a sentence.
fn said(about: &str) -> String {
    format!("{}.", sentence(about).trim_end_matches('.'))
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A sentence within another one.
fn lower(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if word.len() > 1 && !word.chars().skip(1).any(char::is_uppercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_string(),
    }
}
