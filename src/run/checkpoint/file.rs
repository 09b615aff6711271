//! The file of one checkpoint.
//!
//! It is a safetensors file. Its vectors are named in the order of the state (`000000.x`,
//! `000001.rule.copy`, ...); everything else is JSON in the metadata key `gradvine.checkpoint`, and
//! `gradvine.crc32c` is the checksum over that text and all vectors. Floating-point numbers are
//! kept as their bits. The text says whose the checkpoint is.

use std::{fmt, path::Path};

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::Owner;
use crate::{
    config::ConfigError,
    data::{Disk, replace_file},
    drive::Change,
    gossip::{LinkTraffic, Traffic, snapshot::Snapshot},
    learn,
    state::State,
    units::{NodeId, Round, Time},
    vector,
};

/// The version of the format.
const FORMAT: u32 = 2;

/// The metadata keys of the file.
const HEADER: &str = "gradvine.checkpoint";
const CHECKSUM: &str = "gradvine.crc32c";

/// Numbers that are converted to bytes at a time.
const CHUNK: usize = 1 << 16;

/// The beginning of the names of the rule's vectors, and of the learner's.
const RULE: &str = "rule.";
const LEARNER: &str = "learner.";

/// The name of the model, if the rule keeps something else in x.
const MODEL: &str = "model";

/// One node between two rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The state of its core.
    pub snapshot: Snapshot,
    /// The state of its learner.
    pub(crate) learner: State,
    /// The merged setup records of all nodes.
    pub(crate) setup: Vec<u8>,
    /// The time since its start.
    pub(crate) time: Time,
    /// The part of it spent on gradients.
    pub(crate) computing: Time,
    /// The membership in which it was written.
    pub(crate) membership: u64,
    /// The newest round of which, as far as this node knows, every member has a checkpoint of this
    /// membership; 0 if there is none.
    pub(crate) common: u64,
    /// The changes of the members so far.
    pub history: Vec<Change>,
    /// Whose it is, once it is in a file.
    pub(crate) owner: Owner,
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It is damaged, cut short, of another format, or of another round than its name says.
    Wrong(String),
    /// It is of another node or another run.
    Foreign(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Wrong(problem) => f.write_str(problem),
            Unusable::Foreign(of) => write!(f, "it is {of}"),
        }
    }
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
    membership: u64,
    common: u64,
    history: Vec<Change>,
    owner: Owner,
}

/// The part of a header that every format has.
#[derive(Deserialize)]
struct Format {
    format: u32,
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
        let numbered = |(index, (name, values))| (format!("{index:06}.{name}"), values);
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
            membership: self.membership,
            common: self.common,
            history: self.history.clone(),
            owner: self.owner.clone(),
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
            membership: header.membership,
            common: header.common,
            history: header.history,
            owner: header.owner,
        })
    }

    /// Writes the file for this owner and waits until the disk has it.
    ///
    /// # Errors
    /// If it cannot be written; then there is none.
    pub(super) fn write_of(
        &self,
        owner: &Owner,
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<(), ConfigError> {
        self.write_as((FORMAT, owner), disk, path)
    }

    /// The same with another number of the format.
    pub(super) fn write_as(
        &self,
        (format, owner): (u32, &Owner),
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<(), ConfigError> {
        let header = Header { format, owner: owner.clone(), ..self.header() };
        let (text, vectors) = (serde_json::to_string(&header), self.vectors());
        let text = text.expect("a header serialises to JSON");
        let chunks = || vectors.iter().flat_map(|(_, values)| values.chunks(CHUNK));
        let mut bytes = Vec::with_capacity(4 * CHUNK);
        let mut sum = crc32c::crc32c(text.as_bytes());
        for values in chunks() {
            bytes.clear();
            vector::write_floats(values, &mut bytes);
            sum = crc32c::crc32c_append(sum, &bytes);
        }
        let metadata = [(HEADER, text), (CHECKSUM, format!("{sum:08x}"))];
        let metadata = metadata.map(|(key, value)| (key.to_string(), value.into()));
        let shapes: Vec<[usize; 1]> = vectors.iter().map(|(_, values)| [values.len()]).collect();
        let tensors = vectors.iter().zip(&shapes).map(|((name, _), shape)| (&name[..], &shape[..]));
        let header = learn::write_header(metadata.into_iter().collect(), tensors);
        let mut contents = |file: &mut dyn std::io::Write| {
            file.write_all(&header)?;
            chunks().try_for_each(|values| {
                bytes.clear();
                vector::write_floats(values, &mut bytes);
                file.write_all(&bytes)
            })
        };
        Ok(replace_file(disk, path, &mut contents)?)
    }

    /// Reads a file of this owner.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn read(
        disk: &dyn Disk,
        path: &Path,
        rounds: u64,
        owner: &Owner,
    ) -> Result<Checkpoint, Unusable> {
        let bytes = disk.read(path).map_err(|error| Unusable::Wrong(error.to_string()))?;
        let checkpoint = Checkpoint::from_bytes(&bytes).map_err(Unusable::Wrong)?;
        if let Some(of) = checkpoint.owner.difference(owner) {
            return Err(Unusable::Foreign(of));
        }
        match checkpoint.snapshot.rounds {
            Round(found) if found != rounds => Err(Unusable::Wrong(format!(
                "it is of round {found}, not {rounds} as its name says"
            ))),
            _ => Ok(checkpoint),
        }
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// Why they cannot be used: they are damaged, cut short or of another format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Checkpoint, String> {
        let damaged = |error: safetensors::SafeTensorError| format!("damaged: {error}");
        let (length, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let keys = metadata.metadata().clone().unwrap_or_default();
        let key = |key: &str| keys.get(key).ok_or_else(|| format!("`{key}` is missing"));
        let (text, sum) = (key(HEADER)?, key(CHECKSUM)?);
        let data = bytes.get(8 + length..).ok_or("damaged: cut short")?;
        let found = crc32c::crc32c_append(crc32c::crc32c(text.as_bytes()), data);
        if *sum != format!("{found:08x}") {
            return Err(format!("damaged: its checksum is {found:08x} instead of {sum}"));
        }
        let wrong = |error: serde_json::Error| format!("its header: {error}");
        let Format { format } = serde_json::from_slice(text.as_bytes()).map_err(wrong)?;
        if format != FORMAT {
            return Err(format!("format {format}, this program reads {FORMAT}"));
        }
        let header: Header = serde_json::from_slice(text.as_bytes()).map_err(wrong)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
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
