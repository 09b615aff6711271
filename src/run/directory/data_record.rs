//! `data.json` of a run directory: the rows that a run has read, and those that it held out of
//! training.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{
    config::ConfigError,
    data::{self, Dataset, Target},
    digest,
    experiment::Experiment,
    inputs,
    learn::Init,
    run::{RunDirectory, Whole, shards::division::Origin},
};

const FILE: &str = "data.json";

/// The maximum number of rows of a source whose digests are recorded. Of a larger source these are
/// the rows with the smallest digests, a random sample.
const MOST_DIGESTS: usize = 8192;

/// The hexadecimal digits of a row's digest in the record.
const DIGITS: usize = 12;

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
    /// The digests of the rows that were trained on, ascending, at most [`MOST_DIGESTS`].
    #[serde(default, skip_serializing_if = "Digests::is_empty")]
    trained: Digests,
}

/// Digests of single rows, in one text of [`DIGITS`] digits each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Digests(BTreeSet<u64>);

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
    /// There is no record of what it has read.
    Unknown,
    /// They are not among those that it has read.
    NotRead,
    /// It has trained on all of them.
    Trained,
    /// It has held out all of them.
    HeldOut,
    /// It has held out the rows at these positions, ascending, and trained on the others.
    Split(Vec<usize>),
    /// It has read other files, which have some of these rows.
    Shared {
        /// The number of these rows that equal, in their features, rows that it has trained on.
        trained: usize,
        /// Whether the number is exact. Else it is estimated from a sample.
        exact: bool,
    },
}

impl DataRecord {
    /// Rows of which a share was drawn for tests.
    pub(crate) fn split(all: &Dataset, test_share: f64, seed: u64) -> DataRecord {
        let mut record = DataRecord::default();
        record.add_split(all, test_share, seed);
        record
    }

    pub(crate) fn add_split(&mut self, all: &Dataset, test_share: f64, seed: u64) {
        self.sources.push(SourceRecord::new(all, HeldOut::Drawn { test_share, seed }));
    }

    /// Rows that were only trained on, and rows that were only for tests.
    pub(crate) fn apart(train: &Dataset, test: &Dataset) -> DataRecord {
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
        DataRecord::parse(&path, inputs::read(&path))
    }

    fn parse(path: &Path, text: io::Result<Vec<u8>>) -> Result<DataRecord, ConfigError> {
        let wrong = |problem: String| ConfigError::at(path.display().to_string(), problem);
        match text {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| wrong(format!("is not a record of a run's data: {error}"))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(DataRecord::default()),
            Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        }
    }

    /// This record, with the earlier sources that the one in this folder has, if a run resumes
    /// there: the folder of its initial model may be gone.
    ///
    /// # Errors
    /// The first source that differs from those that the run began with.
    pub fn resumed(self, folder: &Path) -> Result<DataRecord, ConfigError> {
        // The run's own file: it is written again, so it is no input.
        let path = folder.join(FILE);
        let started = DataRecord::parse(&path, fs::read(&path))?;
        let at = |at: usize| (self.sources.get(at), started.sources.get(at));
        let shorter = self.sources.len().min(started.sources.len());
        let is_other = |pair: &(Option<&SourceRecord>, Option<&SourceRecord>)| match pair {
            (Some(now), Some(then)) => (&now.digest, now.held_out) != (&then.digest, then.held_out),
            // An initial model's sources do not begin with rows for tests.
            (Some(one), None) | (None, Some(one)) => one.held_out == HeldOut::All,
            (None, None) => false,
        };
        let Some((now, then)) = (0..=shorter).map(at).find(is_other) else {
            return Ok(if started.sources.len() > shorter { started } else { self });
        };
        let is_test = |one: &&SourceRecord| one.held_out == HeldOut::All;
        let are_tests = now.iter().chain(&then).any(is_test);
        let say = |one: Option<&SourceRecord>| match one.filter(|one| is_test(one) == are_tests) {
            Some(one) => {
                let digest = one.digest.get(..12).unwrap_or_default();
                format!("{} rows with SHA-256 {digest}", one.rows)
            }
            None => "no such rows for tests".into(),
        };
        let problem = format!(
            "the run in {} began with other rows: {}, and now there are {}. A run resumes with \
             the rows that it began with; to train on these, start from the beginning in another \
             folder",
            folder.display(),
            say(then),
            say(now)
        );
        let source = now.or(then).map_or("", |one| &one.source);
        Err(ConfigError::new("data", format!("\"{source}\""), problem))
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
        // Those that no run has trained on: this one, and those before whose model it began with.
        let mut held_out: Option<Vec<usize>> = None;
        for source in self.sources.iter().filter(|source| source.digest == digest) {
            let test = match source.held_out {
                HeldOut::All => (0..data.rows()).collect(),
                HeldOut::Drawn { test_share, seed } => data::split_test(data, test_share, seed)?.1,
            };
            held_out = Some(match held_out {
                Some(rows) => {
                    rows.into_iter().filter(|row| test.binary_search(row).is_ok()).collect()
                }
                None => test,
            });
        }
        Ok(match held_out {
            None => self.shared(data),
            Some(rows) if rows.is_empty() => Usage::Trained,
            Some(rows) if rows.len() == data.rows() => Usage::HeldOut,
            Some(rows) => Usage::Split(rows),
        })
    }

    /// Adds the rows that the initial model of this experiment was trained on, if it has a record.
    #[must_use]
    pub(crate) fn with_initial(mut self, experiment: &Experiment) -> DataRecord {
        self.sources.extend(DataRecord::of_initial(experiment).sources);
        self
    }

    fn of_initial(experiment: &Experiment) -> DataRecord {
        match experiment.own_init() {
            Some(Init::File(name)) => {
                DataRecord::beside(&experiment.folder.join(name)).unwrap_or_default()
            }
            _ => DataRecord::default(),
        }
    }

    /// A warning if the initial model was trained on rows that this run tests on.
    pub(crate) fn tested_before(experiment: &Experiment, tests: &Dataset) -> Option<String> {
        let record = DataRecord::of_initial(experiment);
        let Usage::Shared { trained, exact } = record.shared(tests) else { return None };
        let (about, rows) = (if exact { "" } else { "about " }, tests.rows());
        Some(format!(
            "the model of model.init was trained on {about}{trained} of the {rows} rows that this \
             run tests on: its test figures are too good"
        ))
    }

    /// How many of these rows are rows that the run has trained on, in another file.
    fn shared(&self, data: &Dataset) -> Usage {
        let limits = self.sources.iter().filter_map(|source| source.trained.limit());
        let limit = limits.min().unwrap_or(u64::MAX);
        let (mut compared, mut equal) = (0, 0);
        for digest in digests_of_rows(data).filter(|digest| *digest <= limit) {
            compared += 1;
            let trained = self.sources.iter().any(|source| source.trained.0.contains(&digest));
            equal += usize::from(trained);
        }
        if equal == 0 {
            return Usage::NotRead;
        }
        let exact = compared == data.rows();
        let trained = if exact { equal } else { (data.rows() * equal).div_ceil(compared) };
        Usage::Shared { trained, exact }
    }
}

impl SourceRecord {
    fn new(data: &Dataset, held_out: HeldOut) -> SourceRecord {
        let trained = match held_out {
            HeldOut::All => Digests::default(),
            HeldOut::Drawn { test_share, seed } => {
                let test = data::split_test(data, test_share, seed).unwrap_or_default().1;
                Digests::of(data, &test)
            }
        };
        SourceRecord {
            source: data.name.clone(),
            rows: data.rows() as u64,
            digest: digest_of(data),
            held_out,
            trained,
        }
    }
}

impl Digests {
    /// Those of all rows but these, which are ascending.
    fn of(data: &Dataset, without: &[usize]) -> Digests {
        let mut smallest = BTreeSet::new();
        for (row, digest) in digests_of_rows(data).enumerate() {
            let is_greater = |last: &u64| smallest.len() == MOST_DIGESTS && digest > *last;
            if smallest.last().is_some_and(is_greater) || without.binary_search(&row).is_ok() {
                continue;
            }
            smallest.insert(digest);
            if smallest.len() > MOST_DIGESTS {
                smallest.pop_last();
            }
        }
        Digests(smallest)
    }

    /// Up to which digest all rows are recorded; `None` if all are.
    fn limit(&self) -> Option<u64> {
        self.0.last().copied().filter(|_| self.0.len() == MOST_DIGESTS)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Digests> for String {
    fn from(digests: Digests) -> String {
        digests.0.iter().map(|digest| format!("{digest:0DIGITS$x}")).collect()
    }
}

impl TryFrom<String> for Digests {
    type Error = String;

    fn try_from(text: String) -> Result<Digests, String> {
        let wrong = || format!("expected hexadecimal digits, {DIGITS} for each row");
        if !text.len().is_multiple_of(DIGITS) || !text.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return Err(wrong());
        }
        let digests = (0..text.len()).step_by(DIGITS).map(|at| &text[at..at + DIGITS]);
        let digests = digests.map(|digits| u64::from_str_radix(digits, 16));
        Ok(Digests(digests.collect::<Result<_, _>>().map_err(|_| wrong())?))
    }
}

/// The beginnings of the SHA-256s of the rows' features, before they were scaled. Targets do not
/// count: a row with another target was trained on all the same.
fn digests_of_rows(data: &Dataset) -> impl Iterator<Item = u64> {
    let gaps = |gaps: &'_ data::Gaps| (gaps.feature as u64, gaps.rows.clone().into_iter());
    let mut gaps: Vec<_> =
        data.gaps.iter().map(gaps).map(|(at, rows)| (at, rows.peekable())).collect();
    data.features.rows().into_iter().enumerate().map(move |(row, values)| {
        let mut hasher = digest::Hasher::default();
        hasher.add_floats(values.to_slice().expect("standard layout"));
        for (feature, rows) in &mut gaps {
            if rows.next_if(|&absent| absent as usize == row).is_some() {
                hasher.add_number(*feature);
            }
        }
        hasher.beginning() >> (u64::BITS as usize - 4 * DIGITS)
    })
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
        .with_initial(experiment)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    fn rows(of: std::ops::Range<usize>) -> Dataset {
        let features = Array2::from_shape_fn((of.len(), 2), |(row, column)| {
            ((of.start + row) * 2 + column) as f32
        });
        Dataset::new("rows", features, Target::Values(Array2::zeros((of.len(), 1)))).unwrap()
    }

    #[test]
    fn rows_of_a_changed_file_are_found() {
        let record = DataRecord::split(&rows(0..100), 0.2, 1);
        let usage = |data: &Dataset| record.usage(data).unwrap();
        assert!(matches!(usage(&rows(0..100)), Usage::Split(test) if test.len() == 20));
        let shared = |trained| Usage::Shared { trained, exact: true };
        assert_eq!(usage(&rows(0..101)), shared(80));
        assert_eq!(usage(&rows(100..200)), Usage::NotRead);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<DataRecord>(&text).unwrap(), record);
        assert!(
            serde_json::from_str::<DataRecord>(&text.replace("\"trained\":\"", "\"trained\":\"x"))
                .is_err()
        );
        // A cell without a value is another row than one with the number in its place.
        let mut gap = rows(0..101);
        gap.gaps = vec![data::Gaps { feature: 1, rows: (0..101).collect() }];
        assert_eq!(usage(&gap), Usage::NotRead);
    }

    #[test]
    fn a_run_that_resumes_keeps_what_its_initial_model_was_trained_on() {
        let folder = tempfile::tempdir().unwrap();
        let initial = DataRecord::split(&rows(200..300), 0.0, 1);
        let mut first = DataRecord::split(&rows(0..100), 0.0, 0);
        first.sources.extend(initial.sources);
        let text = serde_json::to_string(&first).unwrap();
        fs::write(folder.path().join(FILE), text).unwrap();
        // The folder of the initial model is gone, or is still there.
        let resumed = DataRecord::split(&rows(0..100), 0.0, 0).resumed(folder.path()).unwrap();
        assert_eq!(resumed, first);
        assert_eq!(resumed.usage(&rows(200..300)).unwrap(), Usage::Trained);
        assert_eq!(first.clone().resumed(folder.path()).unwrap(), first);
        // Rows for tests that the run did not begin with.
        let other = DataRecord::apart(&rows(0..100), &rows(100..110)).resumed(folder.path());
        let error = other.unwrap_err().to_string();
        assert!(error.contains("began with other rows: no such rows for tests"), "{error}");
        let other = DataRecord::split(&rows(1..101), 0.0, 0).resumed(folder.path());
        assert!(other.unwrap_err().to_string().contains("100 rows with SHA-256"));
        // The folder of a new run.
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(first.clone().resumed(empty.path()).unwrap(), first);
    }

    #[test]
    fn of_many_rows_a_sample_is_recorded() {
        let record = DataRecord::split(&rows(0..4 * MOST_DIGESTS), 0.0, 1);
        assert_eq!(record.sources[0].trained.0.len(), MOST_DIGESTS);
        let data = rows(0..8 * MOST_DIGESTS);
        let Usage::Shared { trained, exact: false } = record.usage(&data).unwrap() else {
            panic!()
        };
        // Half of them, within five standard errors of the sample.
        let error = trained as f64 / (4 * MOST_DIGESTS) as f64 - 1.0;
        assert!(error.abs() < 0.05, "{trained}");
    }
}
