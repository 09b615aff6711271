//! Checkpoints: the state of one node after some rounds, in files that survive the loss of the
//! process and of power.
//!
//! ```text
//! RUN/checkpoints/NODE/run.json                       what the checkpoints belong to
//! RUN/checkpoints/NODE/begun                          empty: the run has begun
//! RUN/checkpoints/NODE/round-000000000120.safetensors
//! ```
//! A checkpoint is a safetensors file. Its vectors are named in the order of the state (`000.x`,
//! `001.rule.copy`, ...); everything else is JSON in the metadata key `gradvine.checkpoint`, and
//! `gradvine.crc32c` is the checksum over that text and all vectors. Floating-point numbers are
//! kept as their bits.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    config::ConfigError,
    gossip::{LinkTraffic, Traffic, plan, snapshot::Snapshot},
    run::{Design, directory::CHECKPOINTS},
    state::State,
    units::{NodeId, Round, Time},
    vector,
};

/// The version of the format.
const FORMAT: u32 = 1;

/// Numbers that are converted to bytes at a time.
const CHUNK: usize = 1 << 16;

/// The beginning of the names of the rule's vectors, and of the learner's.
const RULE: &str = "rule.";
const LEARNER: &str = "learner.";

/// The name of the model, if the rule keeps something else in x.
const MODEL: &str = "model";

const RUN: &str = "run.json";
const BEGUN: &str = "begun";
const PREFIX: &str = "round-";
const SUFFIX: &str = ".safetensors";

/// One node between two rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The state of its core.
    pub snapshot: Snapshot,
    /// The state of its learner.
    pub learner: State,
    /// The merged setup records of all nodes.
    pub setup: Vec<u8>,
    /// The time since its start.
    pub time: Time,
    /// The part of it spent on gradients.
    pub computing: Time,
    /// The newest round of which, as far as this node knows, every node has a checkpoint.
    pub common: u64,
    /// Nodes that came back without their checkpoints: the rounds after which the run went on from
    /// the mean of the others, and the nodes.
    pub returns: Vec<(u64, Vec<u32>)>,
}

/// Everything of a checkpoint but its vectors.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u32,
    rounds: u64,
    /// The names of the vectors.
    vectors: Vec<String>,
    /// The bits of `f64` numbers.
    rule: Vec<(String, u64)>,
    learner: Vec<(String, u64)>,
    growth: [u64; 3],
    traffic: [u64; 4],
    /// The receiver, payload and wire bytes of each link.
    links: Vec<(u32, u64, u64)>,
    setup: Vec<u8>,
    time: u64,
    computing: u64,
    common: u64,
    returns: Vec<(u64, Vec<u32>)>,
}

impl Checkpoint {
    /// Names and values of the vectors, in their order.
    fn vectors(&self) -> Vec<(String, &[f32])> {
        let x = [("x".to_string(), self.snapshot.x.as_slice())];
        let model = self.snapshot.model.as_ref().map(|model| (MODEL.to_string(), &model[..]));
        let of = |prefix: &'static str, state: &'_ State| {
            let named = |(name, _): &(String, Vec<f32>)| format!("{prefix}{name}");
            state.vectors.iter().map(named).collect::<Vec<_>>()
        };
        let rule = of(RULE, &self.snapshot.rule);
        let learner = of(LEARNER, &self.learner);
        let values = self.snapshot.rule.vectors.iter().chain(&self.learner.vectors);
        let values = values.map(|(_, values)| values.as_slice());
        let all = x.into_iter().chain(model).chain(rule.into_iter().chain(learner).zip(values));
        let numbered = |(index, (name, values))| (format!("{index:03}.{name}"), values);
        all.enumerate().map(numbered).collect()
    }

    fn header(&self) -> Header {
        let bits = |state: &State| {
            let number = |(name, value): &(String, f64)| (name.clone(), value.to_bits());
            state.numbers.iter().map(number).collect()
        };
        let Snapshot { rounds, rule, traffic, links, growth, .. } = &self.snapshot;
        Header {
            format: FORMAT,
            rounds: rounds.0,
            vectors: self.vectors().into_iter().map(|(name, _)| name).collect(),
            rule: bits(rule),
            learner: bits(&self.learner),
            growth: growth.map(f64::to_bits),
            traffic: [traffic.payload, traffic.wire, traffic.dense, traffic.tree],
            links: links.iter().map(|link| (link.to.0, link.payload, link.wire)).collect(),
            setup: self.setup.clone(),
            time: self.time.0,
            computing: self.computing.0,
            common: self.common,
            returns: self.returns.clone(),
        }
    }

    fn of(header: Header, vectors: Vec<(String, Vec<f32>)>) -> Result<Checkpoint, String> {
        let numbers = |numbers: Vec<(String, u64)>| {
            numbers.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect()
        };
        let mut rule = State { vectors: Vec::new(), numbers: numbers(header.rule) };
        let mut learner = State { vectors: Vec::new(), numbers: numbers(header.learner) };
        let (mut x, mut model) = (None, None);
        for (name, values) in vectors {
            let name = name.split_once('.').map_or("", |(_, name)| name);
            if name == "x" {
                x = Some(values);
            } else if name == MODEL {
                model = Some(values);
            } else if let Some(name) = name.strip_prefix(RULE) {
                rule.vectors.push((name.into(), values));
            } else if let Some(name) = name.strip_prefix(LEARNER) {
                learner.vectors.push((name.into(), values));
            } else {
                return Err(format!("an unknown vector `{name}`"));
            }
        }
        let [payload, wire, dense, tree] = header.traffic;
        let link = |(to, payload, wire)| LinkTraffic { to: NodeId(to), payload, wire };
        Ok(Checkpoint {
            snapshot: Snapshot {
                rounds: Round(header.rounds),
                x: x.ok_or("the model `x` is missing")?,
                model,
                rule,
                traffic: Traffic { payload, wire, dense, tree },
                links: header.links.into_iter().map(link).collect(),
                growth: header.growth.map(f64::from_bits),
            },
            learner,
            setup: header.setup,
            time: Time(header.time),
            computing: Time(header.computing),
            common: header.common,
            returns: header.returns,
        })
    }

    /// Writes the file and waits until the disk has it.
    fn write(&self, path: &Path) -> io::Result<()> {
        let (text, vectors) = (serde_json::to_string(&self.header())?, self.vectors());
        let mut chunk = Vec::with_capacity(4 * CHUNK);
        let mut sum = crc32c::crc32c(text.as_bytes());
        let mut tensors = Map::new();
        let mut offset = 0;
        for (name, values) in &vectors {
            let end = offset + 4 * values.len();
            let tensor = json!({"dtype": "F32", "shape": [values.len()],
                "data_offsets": [offset, end]});
            tensors.insert(name.clone(), tensor);
            offset = end;
            for values in values.chunks(CHUNK) {
                chunk.clear();
                vector::write_floats(values, &mut chunk);
                sum = crc32c::crc32c_append(sum, &chunk);
            }
        }
        let metadata =
            json!({"gradvine.checkpoint": text, "gradvine.crc32c": format!("{sum:08x}")});
        tensors.insert("__metadata__".into(), metadata);
        let mut header = Value::Object(tensors).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let part = path.with_extension("part");
        let written = (|| {
            let mut file = BufWriter::new(File::create(&part)?);
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            for values in vectors.iter().flat_map(|(_, values)| values.chunks(CHUNK)) {
                chunk.clear();
                vector::write_floats(values, &mut chunk);
                file.write_all(&chunk)?;
            }
            file.into_inner()?.sync_all()?;
            fs::rename(&part, path)?;
            sync_folder(path.parent().unwrap_or(Path::new(".")))
        })();
        if written.is_err() {
            // If the leftover cannot be removed either, the first error is the one to report.
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Why it cannot be used: it is damaged, cut short, of another format, or of another round than
    /// its name says.
    fn read(path: &Path, rounds: u64) -> Result<Checkpoint, String> {
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        let damaged = |error: safetensors::SafeTensorError| format!("damaged: {error}");
        let (length, metadata) = SafeTensors::read_metadata(&bytes).map_err(damaged)?;
        let keys = metadata.metadata().clone().unwrap_or_default();
        let key = |key: &str| keys.get(key).ok_or_else(|| format!("`{key}` is missing"));
        let (text, sum) = (key("gradvine.checkpoint")?, key("gradvine.crc32c")?);
        let data = bytes.get(8 + length..).ok_or("damaged: cut short")?;
        let found = crc32c::crc32c_append(crc32c::crc32c(text.as_bytes()), data);
        if *sum != format!("{found:08x}") {
            return Err(format!("damaged: its checksum is {found:08x} instead of {sum}"));
        }
        let header: Header =
            serde_json::from_str(text).map_err(|error| format!("its header: {error}"))?;
        if header.format != FORMAT {
            return Err(format!("format {}, this program reads {FORMAT}", header.format));
        }
        if header.rounds != rounds {
            return Err(format!("it is of round {}, not {rounds} as its name says", header.rounds));
        }
        let file = SafeTensors::deserialize(&bytes).map_err(damaged)?;
        let mut names: Vec<&str> = file.names();
        names.sort_unstable();
        if names != header.vectors {
            return Err("damaged: the names of its vectors".into());
        }
        let mut vectors = Vec::new();
        for name in names {
            let tensor = file.tensor(name).map_err(damaged)?;
            if tensor.dtype() != Dtype::F32 {
                return Err(format!("`{name}` is {:?} instead of F32", tensor.dtype()));
            }
            let values = tensor.data().as_chunks::<4>().0;
            vectors.push((name.into(), values.iter().map(|b| f32::from_le_bytes(*b)).collect()));
        }
        Checkpoint::of(header, vectors)
    }
}

/// Waits until the disk has the names in a folder.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

/// The sections of a run whose checkpoints are in a folder.
#[derive(Serialize, Deserialize)]
struct Identity {
    /// The node's number and name.
    node: u32,
    name: String,
    /// The canonical texts of topology, experiment and model.
    sections: [String; 3],
    /// How often the program was started again.
    restarts: u64,
}

/// The checkpoints of one node.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    /// How often one is written.
    pub every: Every,
    /// Rounds after which none is needed: the run is over.
    pub last: Option<u64>,
    /// Whether the node has been part of this run before.
    pub used: bool,
    /// How often the program was started again.
    pub restarts: u64,
    /// Whether this node has its results: then it looks for the others only for a moment.
    pub over: bool,
}

/// How often a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// After this many rounds each.
    Rounds(u64),
    /// After this time.
    Time(Duration),
    /// Never: a run that is disturbed begins anew.
    Never,
}

impl Every {
    /// How often the nodes of a run write one: never if something is always in flight.
    pub fn of(design: &Design) -> Every {
        let params = &design.experiment.checkpoint;
        match params.every_rounds {
            _ if !plan::can_pause(&*design.rule.plan) => Every::Never,
            Some(rounds) => Every::Rounds(rounds),
            None if params.every_s > 0.0 => Every::Time(Duration::from_secs_f64(params.every_s)),
            None => Every::Never,
        }
    }
}

/// The first difference of two texts of lines.
fn difference(saved: &str, now: &str) -> String {
    let line = |text: &str| text.chars().take(120).collect::<String>();
    let (mut saved, mut now) = (saved.lines(), now.lines());
    loop {
        match (saved.next(), now.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return "the texts are equal".into(),
            (a, b) => {
                let word = |side: Option<&str>| match side {
                    Some(text) => format!("`{}`", line(text)),
                    None => "nothing".into(),
                };
                return format!("{} in the checkpoints, {} now", word(a), word(b));
            }
        }
    }
}

impl Checkpoints {
    /// The checkpoints in the folder of a run, which may have none yet.
    ///
    /// # Errors
    /// If they belong to another node or another run, or the folder cannot be written.
    pub fn open(
        run: &Path,
        every: Every,
        (node, name): (NodeId, &str),
        sections: &[String; 3],
    ) -> Result<Checkpoints, ConfigError> {
        let folder = run.join(CHECKPOINTS).join(name);
        let wrong = |error: io::Error| {
            ConfigError::new("checkpoints", folder.display(), format!("cannot be used: {error}"))
        };
        let foreign = |what: String| {
            ConfigError::new(
                "checkpoints",
                folder.display(),
                format!(
                    "belong to another run: {what}; give the files of that run to go on with it, \
                     name another run directory, or begin anew with --fresh"
                ),
            )
        };
        fs::create_dir_all(&folder).map_err(wrong)?;
        let path = folder.join(RUN);
        // Whoever corrects the files of a run that never began starts it anew.
        let begun = folder.join(BEGUN).exists();
        let before = match fs::read(&path) {
            Ok(_) if !begun => None,
            Ok(bytes) => {
                let saved: Identity = serde_json::from_slice(&bytes)
                    .map_err(|error| foreign(format!("{RUN} cannot be read: {error}")))?;
                if (saved.node, saved.name.as_str()) != (node.0, name) {
                    return Err(foreign(format!("they are those of node {}", saved.name)));
                }
                let names = ["topology", "experiment", "model"];
                for ((saved, now), name) in saved.sections.iter().zip(sections).zip(names) {
                    if saved != now {
                        return Err(foreign(format!("{name}: {}", difference(saved, now))));
                    }
                }
                Some(saved.restarts)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(error)),
        };
        let (used, restarts) = (before.is_some(), before.map_or(0, |before| before + 1));
        let (name, sections) = (name.into(), sections.clone());
        let identity = Identity { node: node.0, name, sections, restarts };
        let text = serde_json::to_vec(&identity).map_err(|error| wrong(error.into()))?;
        crate::data::write_atomically(&path, &[&text])?;
        Ok(Checkpoints { folder, every, last: None, used, restarts, over: false })
    }

    /// The checkpoints of all nodes of a run in one process, whose `sections` are these. The last
    /// round needs none.
    ///
    /// # Errors
    /// As [`Checkpoints::open`].
    pub fn of_all(
        design: &Design,
        run: &Path,
        sections: &[String; 3],
    ) -> Result<Vec<Checkpoints>, ConfigError> {
        let last = Some(design.experiment.run.rounds);
        let one = |node: usize| {
            let name = &design.topology.node(NodeId::from(node)).name;
            let place = (NodeId::from(node), name.as_str());
            let all = Checkpoints::open(run, Every::of(design), place, sections)?;
            Ok(Checkpoints { last, ..all })
        };
        (0..design.topology.nodes()).map(one).collect()
    }

    /// Records that the run has begun.
    pub fn begin(&self) {
        // Without it a node that is started again waits for a shorter time.
        let _ = File::create(self.folder.join(BEGUN));
    }

    fn path(&self, rounds: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{rounds:012}{SUFFIX}"))
    }

    /// The rounds of which there are files, ascending.
    fn rounds(&self) -> Vec<u64> {
        let round = |entry: io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
        };
        let mut rounds: Vec<u64> =
            fs::read_dir(&self.folder).into_iter().flatten().filter_map(round).collect();
        rounds.sort_unstable();
        rounds
    }

    /// The rounds of the checkpoints that can be used, ascending, and the newest of them. A
    /// checkpoint that cannot be used is reported.
    pub fn available(&self) -> (Vec<u64>, Option<Checkpoint>) {
        let (mut rounds, mut newest) = (Vec::new(), None);
        for round in self.rounds() {
            match self.load(round) {
                Ok(checkpoint) => {
                    rounds.push(round);
                    newest = Some(checkpoint);
                }
                Err(error) => tracing::warn!("{error}; an earlier one is used"),
            }
        }
        (rounds, newest)
    }

    /// Reads the checkpoint after this many rounds.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn load(&self, rounds: u64) -> Result<Checkpoint, ConfigError> {
        let path = self.path(rounds);
        Checkpoint::read(&path, rounds).map_err(|problem| {
            ConfigError::at("checkpoint", format!("cannot be used: {problem}"))
                .within(path.display())
        })
    }

    /// Writes a checkpoint; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written; those before it are unchanged.
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<(), ConfigError> {
        let path = self.path(checkpoint.snapshot.rounds.0);
        checkpoint.write(&path).map_err(|error| {
            ConfigError::at("checkpoint", format!("cannot be written: {error}"))
                .within(path.display())
        })
    }

    /// Removes the checkpoints of other rounds than `kept` says.
    pub fn retain(&self, kept: impl Fn(u64) -> bool) {
        for round in self.rounds().into_iter().filter(|round| !kept(*round)) {
            // One that stays takes space only.
            let _ = fs::remove_file(self.path(round));
        }
    }

    /// Whether there is no file of a checkpoint.
    pub fn is_empty(&self) -> bool {
        self.rounds().is_empty()
    }

    /// Removes all of them with their folder: nobody goes on with this run.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
        if let Some(parent) = self.folder.parent() {
            // Others may have theirs there.
            let _ = fs::remove_dir(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> [String; 3] {
        ["nodes = 2".into(), "run.seed = 1\nrun.rounds = 9".into(), "model.kind = mlp".into()]
    }

    fn open(folder: &Path, sections: &[String; 3]) -> Result<Checkpoints, ConfigError> {
        Checkpoints::open(folder, Every::Rounds(3), (NodeId(1), "rome"), sections)
    }

    fn checkpoint(rounds: u64) -> Checkpoint {
        let state = |names: &[&str]| State {
            vectors: names.iter().map(|name| (name.to_string(), vec![f32::NAN, -0.0])).collect(),
            numbers: vec![("weight".into(), 0.1), ("mass".into(), -0.0)],
        };
        Checkpoint {
            snapshot: Snapshot {
                rounds: Round(rounds),
                x: vec![1.5, -2.0, 1e-45],
                model: Some(vec![0.5]),
                rule: state(&["copy", "copy", "error"]),
                traffic: Traffic { payload: 1, wire: 2, dense: 3, tree: 4 },
                links: vec![LinkTraffic { to: NodeId(0), payload: 5, wire: 6 }],
                growth: [0.1, 1e300, 3.0],
            },
            learner: state(&["momentum"]),
            setup: vec![0, 255],
            time: Time(7),
            computing: Time(8),
            common: 3,
            returns: vec![(2, vec![1])],
        }
    }

    /// Equal to the bit: NaN is not equal to itself.
    fn text(checkpoint: &Checkpoint) -> String {
        format!("{checkpoint:?}")
    }

    #[test]
    fn a_checkpoint_comes_back_to_the_bit_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        for rounds in [3, 6, 9] {
            all.write(&checkpoint(rounds)).unwrap();
        }
        let (rounds, newest) = all.available();
        assert_eq!((rounds, newest.map(|newest| newest.common)), (vec![3, 6, 9], Some(3)));
        assert_eq!(text(&all.load(6).unwrap()), text(&checkpoint(6)));
        all.retain(|round| round >= 6);
        assert_eq!(open(folder.path(), &sections()).unwrap().available().0, [6, 9]);
        all.retain(|_| false);
        assert!(all.is_empty());
        all.remove();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_damaged_checkpoint_is_refused_and_the_one_before_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        all.write(&checkpoint(3)).unwrap();
        all.write(&checkpoint(6)).unwrap();
        let whole = fs::read(all.path(6)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(all.path(6), &bytes).unwrap();
            assert!(all.load(6).is_err(), "byte {at}");
            fs::write(all.path(6), &whole[..at]).unwrap();
            assert!(all.load(6).is_err(), "cut after {at} bytes");
        }
        assert_eq!(all.available().0, [3]);
        fs::write(all.path(9), &whole).unwrap();
        let error = all.load(9).unwrap_err().to_string();
        assert!(error.contains("it is of round 6, not 9 as its name says"), "{error}");
    }

    #[test]
    fn checkpoints_of_another_run_are_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        let mut others = sections();
        others[0] = "nodes = 3".into();
        open(folder.path(), &others).unwrap();
        // That run has not begun.
        let all = open(folder.path(), &sections()).unwrap();
        assert!(!all.used);
        all.begin();
        let again = open(folder.path(), &sections()).unwrap();
        assert_eq!((again.used, again.restarts), (true, 1));
        others = sections();
        others[1] = "run.seed = 1\nrun.rounds = 12".into();
        let error = open(folder.path(), &others).unwrap_err().to_string();
        let expected = "experiment: `run.rounds = 9` in the checkpoints, `run.rounds = 12` now";
        assert!(error.contains(expected), "{error}");
    }
}
