//! `data.json` of a run directory: the rows that a run has read, and those that it held out of
//! training.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{RunDirectory, Whole, division::Origin};
use crate::{
    config::ConfigError,
    data::{self, Dataset, Target},
    digest,
};

const FILE: &str = "data.json";

/// The rows that a run has read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DataRecord {
    sources: Vec<SourceRecord>,
}

/// The rows of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceRecord {
    /// Where they came from: an embedded set's name or a path.
    source: String,
    rows: u64,
    /// SHA-256 of features and targets, before the features were scaled.
    digest: String,
    held_out: HeldOut,
}

/// The rows of a source that were held out of training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HeldOut {
    /// All: a file of test rows.
    All,
    /// Those that [`data::split_test`] draws.
    Drawn { test_share: f64, seed: u64 },
}

/// What a run has done with some rows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// It has not read them.
    Unknown,
    /// It has trained on all of them.
    Trained,
    /// It has held out all of them.
    HeldOut,
    /// It has held out the rows at these positions, ascending, and trained on the others.
    Split(Vec<usize>),
}

impl DataRecord {
    /// Rows of which a share was drawn for tests.
    pub(super) fn split(all: &Dataset, test_share: f64, seed: u64) -> DataRecord {
        let mut record = DataRecord::default();
        record.add_split(all, test_share, seed);
        record
    }

    /// Adds such rows.
    pub(super) fn add_split(&mut self, all: &Dataset, test_share: f64, seed: u64) {
        self.sources.push(SourceRecord::new(all, HeldOut::Drawn { test_share, seed }));
    }

    /// Rows that were only trained on, and rows that were only for tests.
    pub(super) fn apart(train: &Dataset, test: &Dataset) -> DataRecord {
        let none = HeldOut::Drawn { test_share: 0.0, seed: 0 };
        DataRecord {
            sources: vec![SourceRecord::new(train, none), SourceRecord::new(test, HeldOut::All)],
        }
    }

    /// Writes the file; a program's own data has none.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, directory: &RunDirectory) -> io::Result<()> {
        if self.sources.is_empty() {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(self).expect("a record serialises");
        directory.write(FILE, &(text + "\n"))
    }

    /// Reads the file of the run directory that holds this model; without the file nothing is
    /// known.
    ///
    /// # Errors
    /// If there is such a file, and it cannot be read.
    pub fn beside(model: &Path) -> Result<DataRecord, ConfigError> {
        let path = model.with_file_name(FILE);
        let wrong = |problem: String| ConfigError::at(path.display().to_string(), problem);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| wrong(format!("is no record of a run's data: {error}"))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(DataRecord::default()),
            Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        }
    }

    /// What the run has done with these rows, whose features are not scaled.
    ///
    /// # Errors
    /// If the record holds a share that no run accepts.
    pub fn usage(&self, data: &Dataset) -> Result<Usage, ConfigError> {
        if self.sources.is_empty() {
            return Ok(Usage::Unknown);
        }
        let digest = digest_of(data);
        let Some(source) = self.sources.iter().find(|source| source.digest == digest) else {
            return Ok(Usage::Unknown);
        };
        match source.held_out {
            HeldOut::All => Ok(Usage::HeldOut),
            HeldOut::Drawn { test_share, seed } => {
                let (_, test) = data::split_test(data, test_share, seed)?;
                Ok(if test.is_empty() { Usage::Trained } else { Usage::Split(test) })
            }
        }
    }
}

impl SourceRecord {
    fn new(data: &Dataset, held_out: HeldOut) -> SourceRecord {
        SourceRecord {
            source: data.name.clone(),
            rows: data.rows() as u64,
            digest: digest_of(data),
            held_out,
        }
    }
}

/// SHA-256 of the shape, the features and the targets. Names do not count.
fn digest_of(data: &Dataset) -> String {
    let mut hasher = digest::Hasher::default();
    hasher.add_number(data.rows() as u64);
    hasher.add_number(data.inputs() as u64);
    hasher.add_floats(data.features.as_slice().expect("standard layout"));
    for gaps in &data.gaps {
        hasher.add_number(gaps.feature as u64);
        gaps.rows.iter().for_each(|&row| hasher.add_number(u64::from(row)));
    }
    match &data.target {
        Target::Classes { labels, .. } => {
            labels.iter().for_each(|&label| hasher.add_number(u64::from(label)));
        }
        Target::Values(values) => hasher.add_floats(values.as_slice().expect("standard layout")),
    }
    hasher.finish()
}

impl From<&Whole> for DataRecord {
    fn from(whole: &Whole) -> DataRecord {
        let experiment = &whole.design.experiment;
        match &whole.origin {
            Origin::One(all, _) => {
                DataRecord::split(all, experiment.data.test_share, experiment.run.seed)
            }
            Origin::Each(record) => record.clone(),
        }
    }
}
