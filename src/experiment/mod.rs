//! The experiment file: the run, its data and its rule. Its sections and keys are a contract.
//!
//! A file is read in three steps: text to table (with `--set key=value` applied), table to
//! [`Experiment`] (types and names), and experiment to a run (ranges and combinations, in
//! [`crate::run`]). Each step's errors name the key, the value and the accepted values.

mod network;
mod pick;
mod registries;
mod sections;
mod selection;
mod versions;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    config::{self, ConfigError, Fault},
    data, inputs,
    learn::{Init, ModelParams, OptimizerParams},
};
pub use network::{AbsentParams, ByzantineParams, Compute, NetworkParams, Sends, Uplink};
pub use registries::Registries;
pub use sections::{
    AbsenceParams, CheckpointParams, DataParams, Keep, Policy, QuorumParams, RequireParams,
    RobustParams, RunParams, SplitKind, StartParams, StopParams, TopologyParams, Transport,
    Weighting,
};
pub use selection::Selection;
pub use versions::RunVersion;
internals!(pick::{Pick, cut, picks});

/// The default experiment: an MLP on the embedded digits, label-sorted over a ring of 8.
pub const DEFAULT: &str = include_str!("../../experiments/digits.toml");

/// The sections of an experiment file.
pub const SECTIONS: [&str; 11] = [
    "run",
    "topology",
    "data",
    "model",
    "rule",
    "compressor",
    "optimizer",
    "network",
    "absence",
    "checkpoint",
    "robust",
];

/// An experiment as written: types are correct, ranges not yet checked.
///
/// ```
/// use gradvine::prelude::*;
///
/// // From text, from the default experiment, from a file; each with settings of `--set`.
/// let settings = ["run.rounds=50".to_string()];
/// let one = Experiment::parse("topology.file = 'torus:4x4'\nrule.kind = 'choco'", &settings)?;
/// assert_eq!((one.run.rounds, one.topology.file.as_deref()), (50, Some("torus:4x4")));
/// let folder = tempfile::tempdir().expect("a folder");
/// let path = folder.path().join("experiment.toml");
/// std::fs::write(&path, one.to_toml()).expect("it can be written");
/// let again = Experiment::load(&path, &[])?;
/// assert_eq!(again.canonical(), one.canonical()); // that on which nodes agree
/// assert_eq!(Experiment::default_with(&settings)?.run.rounds, 50);
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Experiment {
    /// `[run]`: rounds, seed and what ends a run.
    pub run: RunParams,
    /// `[topology]`: nodes, links and weights.
    pub topology: TopologyParams,
    /// `[data]`: rows and their division among nodes.
    pub data: DataParams,
    /// `[model]`: its kind and its initial values.
    pub model: ModelParams,
    /// `[rule]`: `kind` and its own constants.
    pub rule: toml::Table,
    /// `[compressor]`: `kind` and its own constants.
    pub compressor: toml::Table,
    /// `[optimizer]`: the local steps between exchanges.
    pub optimizer: OptimizerParams,
    /// `[network]`: the links, absent nodes and faulty nodes of a simulation.
    pub network: NetworkParams,
    /// `[absence]`: what the nodes do when others are missing.
    pub absence: AbsenceParams,
    /// `[checkpoint]`: how often a run is saved.
    pub checkpoint: CheckpointParams,
    /// `[robust]`: limits of what a neighbour may send.
    pub robust: RobustParams,
    /// The folder of relative paths: the experiment file's.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Where the names in it are found.
    #[serde(skip)]
    pub(crate) registries: Registries,
    /// The initial values of this process's node, if one node gives its own to all.
    #[serde(skip)]
    pub(crate) own_init: Option<Init>,
    /// The versions of the signed run of which this is a stage, for the summary; else none.
    #[serde(skip)]
    pub(crate) versions: Vec<RunVersion>,
    /// The origin of its values, for errors.
    #[serde(skip)]
    origin: Origin,
}

/// The origin of an experiment's values.
#[derive(Clone, Debug, Default)]
struct Origin {
    /// The file; empty for text without one.
    file: String,
    /// The keys set on the command line.
    set: Vec<String>,
}

impl Origin {
    /// Adds the origin of the value to an error in one of the sections. Errors of other files have
    /// their own.
    fn blame(&self, error: ConfigError) -> ConfigError {
        // The reader of data files has other names for these.
        let error = error
            .renamed(&[("data.labels_file", "data.labels"), ("data.class_count", "model.outputs")]);
        if error.file.is_some() || !SECTIONS.contains(&error.section()) {
            return error;
        }
        let place = &error.place;
        let below = |a: &str, b: &str| {
            a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if self
            .set
            .iter()
            .any(|key| below(place, key) || (place.contains('.') && below(key, place)))
        {
            return error.within("--set");
        }
        if self.file.is_empty() { error } else { error.within(&self.file) }
    }
}

/// Endings of files that are tables, not experiments.
const TABLES: [&str; 8] = ["csv", "tsv", "parquet", "arrow", "feather", "npy", "npz", "gz"];

impl Experiment {
    /// Reads a file and applies `key=value` settings to it.
    ///
    /// # Errors
    /// If the file cannot be read, is not TOML, or has an unknown section or key or a wrong type.
    pub fn load(path: &Path, sets: &[String]) -> Result<Experiment, ConfigError> {
        Experiment::load_in_turn(path, &[sets])
    }

    /// As [`Experiment::load`], with settings that follow each other: each list may choose another
    /// kind than the one before it, whose constants then go.
    fn load_in_turn(path: &Path, sets: &[&[String]]) -> Result<Experiment, ConfigError> {
        let origin = path.display().to_string();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if TABLES.contains(&ending) {
            let problem = format!(
                "an experiment is a TOML file, and this is named as a table: `gradvine data \
                 describe {origin}` drafts an experiment for it"
            );
            return Err(ConfigError::at("experiment", problem).within(&origin));
        }
        let text = inputs::read_to_string(path).map_err(|error| {
            ConfigError::at("experiment", format!("cannot be read: {error}"))
                .with_fault(Fault::Unreadable)
                .within(&origin)
        })?;
        let mut experiment = Experiment::parse_in_turn(&text, sets).map_err(|error| {
            let mut error = in_file(error, &origin);
            if ending != "toml" && toml::from_str::<toml::Table>(&text).is_err() {
                error.problem += "; an experiment is a TOML file: is this one?";
            }
            error
        })?;
        experiment.folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        experiment.origin.file = origin;
        Ok(experiment)
    }

    /// The default experiment with settings applied.
    ///
    /// # Errors
    /// If a setting is wrong.
    pub fn default_with(sets: &[String]) -> Result<Experiment, ConfigError> {
        Experiment::default_in_turn(&[sets])
    }

    fn default_in_turn(sets: &[&[String]]) -> Result<Experiment, ConfigError> {
        const NAME: &str = "the default experiment";
        let mut experiment =
            Experiment::parse_in_turn(DEFAULT, sets).map_err(|error| in_file(error, NAME))?;
        experiment.origin.file = NAME.into();
        Ok(experiment)
    }

    /// Reads text and applies `key=value` settings to it.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn parse(text: &str, sets: &[String]) -> Result<Experiment, ConfigError> {
        Experiment::parse_in_turn(text, &[sets])
    }

    fn parse_in_turn(text: &str, sets: &[&[String]]) -> Result<Experiment, ConfigError> {
        let mut table: toml::Table =
            toml::from_str(text).map_err(|error| config::in_document(text, &error))?;
        let mut set = Vec::new();
        for sets in sets {
            set.extend(apply_all(&mut table, sets)?);
        }
        let origin = Origin { file: String::new(), set };
        Experiment::from_table(table, &origin).map_err(|error| origin.blame(error))
    }

    fn from_table(table: toml::Table, origin: &Origin) -> Result<Experiment, ConfigError> {
        let mut sections = SECTIONS.map(|_| toml::Table::new());
        for (name, value) in table {
            let Some(index) = SECTIONS.iter().position(|section| *section == name) else {
                let problem = format!(
                    "there is no such section; there are {}{}",
                    SECTIONS.join(", "),
                    config::hint(&name, SECTIONS)
                );
                let error = match value {
                    toml::Value::Table(_) => ConfigError::at(name, problem),
                    value => ConfigError::new(name, value, problem),
                };
                return Err(error.with_accepted(SECTIONS));
            };
            let toml::Value::Table(section) = value else {
                return Err(ConfigError::new(name, value, "expected a section, not a value"));
            };
            sections[index] = section;
        }
        let [run, topology, data, model, rule, rest @ ..] = sections;
        let [compressor, optimizer, network, absence, checkpoint, robust] = rest;
        let mut params: DataParams = config::read("data", &data)?;
        if let Some(sources) = data.get("sources") {
            if data.contains_key("source") {
                let problem = "one source for each node, but data.source names one for all: \
                               leave one of the two out";
                return Err(ConfigError::new("data.sources", sources, problem));
            }
            params.source.clear();
        }
        Ok(Experiment {
            run: config::read("run", &run)?,
            topology: config::read("topology", &topology)?,
            data: params,
            model: ModelParams::read(&model)?,
            rule,
            compressor,
            optimizer: config::read("optimizer", &optimizer)?,
            network: config::read("network", &network)?,
            absence: config::read("absence", &absence)?,
            checkpoint: config::read("checkpoint", &checkpoint)?,
            robust: config::read("robust", &robust)?,
            folder: PathBuf::new(),
            registries: Registries::default(),
            own_init: None,
            versions: Vec::new(),
            origin: origin.clone(),
        })
    }

    /// An error found after reading, with the file or the command line in which its value was
    /// written.
    #[must_use]
    pub fn blame(&self, error: ConfigError) -> ConfigError {
        self.origin.blame(error)
    }

    /// Where this node's initial values come from; `None`: as the model prefers.
    pub(crate) fn own_init(&self) -> Option<&Init> {
        match &self.model.init {
            Some(Init::From(_)) => self.own_init.as_ref(),
            init => init.as_ref(),
        }
    }

    /// Where the names in it are found.
    pub fn registries(&self) -> Registries {
        self.registries
    }

    /// The same experiment with registries of the program's own.
    #[must_use]
    pub fn with_registries(self, registries: Registries) -> Experiment {
        Experiment { registries, ..self }
    }

    /// The same experiment for a file in another folder: paths relative to its own file become
    /// absolute, and the run directory, which is new for each run, is left out.
    #[must_use]
    pub fn moved(&self) -> Experiment {
        let mut moved = self.clone();
        moved.run.out = None;
        let init = match &mut moved.model.init {
            Some(Init::File(path)) => Some(path),
            _ => None,
        };
        let files = [init, moved.data.labels.as_mut(), moved.topology.file.as_mut()];
        let files = files.into_iter().flatten().map(|path| {
            let beside = self.folder.join(&*path);
            let beside = beside.is_file().then_some(beside);
            (path, beside)
        });
        let sources = moved.data.sources.iter_mut().flatten().chain([&mut moved.data.source]);
        let sources = sources.filter(|source| !source.is_empty()).map(|source| {
            let beside = data::path_beside(&self.folder, source);
            (source, beside)
        });
        for (path, beside) in files.chain(sources) {
            if let Some(absolute) = beside.and_then(|beside| std::path::absolute(beside).ok()) {
                *path = absolute.display().to_string();
            }
        }
        moved
    }

    /// Remembers the files that the experiment names, before they are read ([`inputs`]): nothing
    /// is written over them.
    pub fn note_files(&self) {
        let moved = self.moved();
        let init = match &moved.model.init {
            Some(Init::File(path)) => Some(path),
            _ => None,
        };
        let files = [init, moved.data.labels.as_ref(), moved.topology.file.as_ref()];
        let sources = moved.data.sources.iter().flatten().chain([&moved.data.source]);
        files.into_iter().flatten().chain(sources).for_each(|path| inputs::note(path.as_ref()));
    }

    /// The experiment as a file that reads back to the same experiment.
    ///
    /// # Panics
    /// Never: every section serialises to a table.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment serialises")
    }

    /// The values on which two nodes must agree, one `key = value` per line: no paths, folders or
    /// addresses, and no keys of the data split.
    ///
    /// # Panics
    /// Never: every section serialises to a table.
    pub fn canonical(&self) -> String {
        // The rest of the topology is compared by its links, not by its name.
        const SCHEDULE: &str = "topology.schedule";
        const PRIVATE: [&str; 27] = [
            "run.require.",
            "absence.deadline_s",
            "absence.wait_s",
            "checkpoint.every_s",
            "run.minimum_rows",
            "run.out",
            "run.patience_s",
            "run.work_s",
            "run.connect_s",
            "run.start.within_s",
            "run.transport",
            "run.congestion",
            "run.evaluate_every",
            "topology.",
            "data.source",
            "data.rows",
            "data.features",
            "data.noise",
            "data.heterogeneity",
            "data.split",
            "data.alpha",
            "data.sizes",
            "data.test_share",
            "data.target",
            "data.header",
            "data.labels",
            "network.",
        ];
        let mut table = toml::Table::try_from(self).expect("an experiment serialises");
        let mut lines = Vec::new();
        if let (Some(schema), Some(toml::Value::Table(data))) =
            (&self.data.schema, table.get_mut("data"))
        {
            // One line a column, so that a difference is seen.
            data.remove("schema");
            for (at, column) in schema.used().enumerate() {
                let code = toml::Value::try_from(column).expect("a column serialises");
                lines.push(format!("data.schema[{at}] = {code}"));
            }
        }
        flatten("", &toml::Value::Table(table), &mut lines);
        lines.retain(|line| {
            line.starts_with(SCHEDULE) || !PRIVATE.iter().any(|key| line.starts_with(key))
        });
        if matches!(self.model.init, Some(Init::File(_))) {
            // A path of this node; the values themselves are compared.
            lines.retain(|line| !line.starts_with("model.init"));
        }
        lines.sort();
        lines.join("\n") + "\n"
    }
}

/// A malformed setting has no origin in a file.
fn in_file(error: ConfigError, file: &str) -> ConfigError {
    if error.place == "--set" { error } else { error.within(file) }
}

/// Applies all settings and returns their keys. Settings that choose a kind or a topology come
/// first, in any order on the command line: they remove the constants of the former kind.
fn apply_all(table: &mut toml::Table, sets: &[String]) -> Result<Vec<String>, ConfigError> {
    let mut pairs = Vec::new();
    for set in sets {
        let wrong = || ConfigError::new("--set", set, "expected key=value, such as rule.kind=dcd");
        let (key, text) = set.split_once('=').ok_or_else(wrong)?;
        pairs.push((key.trim(), text.trim()));
    }
    let chooses = |key: &str| {
        let names = ["topology.file", "topology.family", "data.source", "data.sources"];
        key.ends_with(".kind") || names.contains(&key)
    };
    pairs.sort_by_key(|(key, _)| !chooses(key));
    pairs.iter().try_for_each(|(key, text)| apply(table, key, text))?;
    Ok(pairs.iter().map(|(key, _)| key.to_string()).collect())
}

/// Applies one `--set key=value`: the value is TOML, or else a plain string.
fn apply(table: &mut toml::Table, key: &str, text: &str) -> Result<(), ConfigError> {
    let wrong = |problem: &str| ConfigError::new("--set", format!("{key}={text}"), problem);
    let parsed: Result<toml::Table, _> = toml::from_str(&format!("value = {text}"));
    let value =
        parsed.ok().and_then(|mut table| table.remove("value")).unwrap_or_else(|| text.into());
    let mut path: Vec<&str> = key.split('.').collect();
    let last =
        path.pop().filter(|last| !last.is_empty()).ok_or_else(|| wrong("the key is empty"))?;
    if path.contains(&"") {
        return Err(wrong("a part of the key is empty"));
    }
    if path.is_empty() {
        return Err(wrong("expected section.key=value, such as run.rounds=100"));
    }
    let mut place = table;
    for part in path {
        let next = place.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = next
            .as_table_mut()
            .ok_or_else(|| wrong(&format!("`{part}` is a value, not a section")))?;
    }
    if last == "kind" && place.get("kind").is_some_and(|old| *old != value) {
        // The constants of another kind would be unknown keys of this one.
        place.clear();
    }
    if key == "topology.file" || key == "topology.family" {
        // A topology has one name: a new name replaces the old one and its size.
        for other in ["file", "family", "nodes", "rows", "columns", "degree"] {
            place.remove(other);
        }
    }
    // Rows come from one source or from several, which are not divided.
    let others: &[&str] = match key {
        "data.source" => &["sources"],
        "data.sources" => &["source", "split", "alpha", "sizes"],
        _ => &[],
    };
    for other in others {
        place.remove(*other);
    }
    place.insert(last.to_string(), value);
    Ok(())
}

fn flatten(prefix: &str, value: &toml::Value, lines: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, lines);
            }
        }
        other => lines.push(format!("{prefix} = {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, sets: &[&str]) -> String {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        Experiment::parse(text, &sets).unwrap_err().to_string()
    }

    #[test]
    fn a_table_is_no_experiment() {
        let error = Experiment::load(Path::new("my.csv"), &[]).unwrap_err().to_string();
        assert!(error.contains("`gradvine data describe my.csv` drafts an experiment"), "{error}");
    }

    #[test]
    fn the_default_experiment_reads_and_writes() {
        let experiment = Experiment::default_with(&[]).unwrap();
        let again = Experiment::parse(&experiment.to_toml(), &[]).unwrap();
        assert_eq!(experiment.to_toml(), again.to_toml());
    }

    #[test]
    fn wrong_files_name_the_place() {
        assert!(error("[run]\nrounds = = 3", &[]).starts_with("line 2: "));
        assert!(error("[runn]", &[]).contains("there is no such section; there are run, topology"));
        assert!(
            error("[run]\nroundz = 3", &[])
                .contains("run.roundz = 3: unknown field `roundz`, expected one of")
        );
        assert!(
            error("[run]\nrounds = 'x'", &[]).starts_with("run.rounds = \"x\": expected a whole")
        );
        assert!(error("run = 3", &[]).contains("expected a section"));
    }

    #[test]
    fn settings_override_and_wrong_settings_are_named() {
        let experiment =
            Experiment::default_with(&["run.rounds=7".into(), "rule.kind=d-psgd".into()]).unwrap();
        assert_eq!(experiment.run.rounds, 7);
        assert_eq!(experiment.rule["kind"].as_str(), Some("d-psgd"));
        assert!(error(DEFAULT, &["rounds"]).contains("--set = rounds: expected key=value"));
        assert!(error(DEFAULT, &["rounds=3"]).contains("expected section.key=value"));
        assert!(error(DEFAULT, &["run.rounds.x=3"]).contains("`rounds` is a value"));
    }

    #[test]
    fn settings_may_come_in_any_order() {
        let read = |sets: [&str; 2]| Experiment::default_with(&sets.map(String::from)).unwrap();
        for sets in [
            ["rule.kind=dcd", "compressor.kind=qsgd"],
            ["compressor.levels=3", "compressor.kind=qsgd"],
        ] {
            let (forth, back) = (read(sets), read([sets[1], sets[0]]));
            assert_eq!(forth.to_toml(), back.to_toml());
        }
        assert_eq!(
            read(["compressor.levels=3", "compressor.kind=qsgd"]).compressor["levels"].as_integer(),
            Some(3)
        );
        let ring = read(["topology.nodes=5", "topology.family=ring"]).topology;
        assert_eq!((ring.file, ring.nodes), (None, Some(5)));
    }

    #[test]
    fn errors_say_where_the_value_was_written() {
        let (set, file) = ("optimizer.step=-1".to_string(), "optimizer.batch = 0: 1 is needed");
        let experiment = Experiment::default_with(&[set]).unwrap();
        let blame =
            |place: &str| experiment.blame(ConfigError::new(place, 0, "1 is needed")).to_string();
        assert_eq!(blame("optimizer.step"), "--set: optimizer.step = 0: 1 is needed");
        assert_eq!(blame("optimizer.batch"), format!("the default experiment: {file}"));
        assert_eq!(
            blame("data.labels_file"),
            "the default experiment: data.labels = 0: 1 is needed"
        );
        assert_eq!(blame("line 7"), "line 7 = 0: 1 is needed");
        assert!(
            error(DEFAULT, &["run.rounds=x"])
                .starts_with("--set: run.rounds = \"x\": expected a whole")
        );
    }

    #[test]
    fn a_moved_experiment_finds_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rows.csv"), "1,0\n2,1\n").unwrap();
        let path = folder.path().join("e.toml");
        std::fs::write(
            &path,
            "[run]\nout = 'x'\n[topology]\nfile = 'ring:3'\n[data]\nsource = 'rows.csv'\n",
        )
        .unwrap();
        let moved = Experiment::load(&path, &[]).unwrap().moved();
        assert_eq!(
            Path::new(&moved.data.source),
            std::path::absolute(folder.path().join("rows.csv")).unwrap()
        );
        assert_eq!((moved.run.out, moved.topology.file.as_deref()), (None, Some("ring:3")));
    }

    #[test]
    fn the_canonical_text_holds_no_paths() {
        let a = Experiment::default_with(&["run.out=/tmp/a".into(), "data.source=x.csv".into()])
            .unwrap();
        let b = Experiment::default_with(&[]).unwrap();
        assert_eq!(a.canonical(), b.canonical());
        let c = Experiment::default_with(&["optimizer.step=0.017".into()]).unwrap();
        assert_ne!(c.canonical(), b.canonical());
        assert!(c.canonical().contains("optimizer.step = 0.017\n"));
        let d = Experiment::default_with(&["topology.schedule=base-2".into()]).unwrap();
        assert_ne!(d.canonical(), b.canonical(), "the schedule is common to all");
        let e = Experiment::default_with(&["topology.file=complete:8".into()]).unwrap();
        assert_eq!(e.canonical(), b.canonical(), "links and weights are compared elsewhere");
    }
}
