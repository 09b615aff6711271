//! The rows that a saved model is scored on, and what its run has done with them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gradvine::{
    config::ConfigError,
    data::{self, Dataset, Options},
    learn::SavedModel,
    printable::shorten,
    run::{MEAN_MODEL, Usage},
};
use serde::Serialize;

/// The model file that a path names: the file itself, or the mean model of a run directory.
///
/// # Errors
/// If a folder has no mean model: it is not the directory of a run, or the run has not ended.
pub fn model_file(path: &Path) -> Result<PathBuf, ConfigError> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let file = path.join(MEAN_MODEL);
    if file.exists() {
        return Ok(file);
    }
    let mut problem = format!(
        "the folder has no {MEAN_MODEL}: the directory of a run that has ended, or a model file, \
         is accepted"
    );
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = entries.filter(|entry| entry.join(MEAN_MODEL).exists()).max();
    if let Some(newest) = newest {
        problem += &format!(", such as {}", newest.display());
    }
    Err(ConfigError::new("MODEL", path.display(), problem))
}

/// Reads rows for a model, not yet scaled: from a file, a folder, an embedded set, or standard
/// input (`-`). `own` has the caller's options. The texts are warnings: what was assumed or
/// noticed.
///
/// # Errors
/// As [`data::load`].
pub fn read_rows(
    saved: &SavedModel,
    source: &str,
    own: Options,
) -> Result<(Dataset, Vec<String>), ConfigError> {
    gradvine_tables::register();
    let options = saved.reading(own);
    let data = match source {
        "-" => data::read("standard input", io::stdin().lock(), &options)?,
        source => data::load(source, &options)?,
    };
    let warning = match (&saved.columns, &data.columns) {
        (Some(_), None) => Some(format!(
            "the columns of {source} have no names: they are taken in the order of the training \
             data"
        )),
        (None, Some(columns)) => Some(format!(
            "the model knows no names of columns: those of {source} are taken by position ({})",
            shorten(&columns.features.join(", "), 60)
        )),
        _ => None,
    };
    let warnings = warning.into_iter().chain(data.remarks.iter().cloned()).collect();
    Ok((data, warnings))
}

/// Which of the rows of the data the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Those that the run held out of training, if it has read this data; else all.
    #[default]
    Usual,
    /// Only rows that the run held out of training.
    HeldOut,
    /// Every row of the data, trained on or not.
    All,
}

/// What the run that made a model has done with the rows that are scored.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Scored {
    /// The run has held out all of these rows of training.
    HeldOut,
    /// The run has trained on each of these rows.
    TrainedOn,
    /// The run has trained on some of these rows, so the figures are too good.
    PartlyTrainedOn,
    /// Not among the rows that the record of the run lists. In a deployment each node's record
    /// lists its own rows.
    NotRead,
    /// There is no record of the rows that the run has read.
    Unknown,
}

/// Rows to score, with what the run that made the model has done with them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scoring {
    /// Only the rows that are scored.
    pub data: Dataset,
    /// What the run has done with them.
    pub scored: Scored,
    /// `scored` in words, to stand behind the number of rows.
    pub words: String,
    /// What a reader of the figures has to know.
    pub warning: Option<String>,
}

impl Scoring {
    /// Selects the rows to score of those that a run has used in this way.
    ///
    /// # Errors
    /// If rows that were held out are wanted, and there are none.
    pub fn new(usage: Usage, data: Dataset, wanted: Wanted) -> Result<Scoring, ConfigError> {
        let rows = data.rows();
        let only_held_out = wanted == Wanted::HeldOut;
        let none = |problem: &str| Err(ConfigError::new("rows", "held-out", problem));
        let (scored, words, warning) = match usage {
            Usage::Split(test) if wanted != Wanted::All => {
                let words = format!("held out of training, of {rows}");
                let data = data.select(&test);
                return Ok(Scoring { data, scored: Scored::HeldOut, words, warning: None });
            }
            Usage::HeldOut => (Scored::HeldOut, "held out of training".to_string(), None),
            Usage::Shared { trained, exact } if only_held_out => {
                let about = if exact { "" } else { "about " };
                let problem = format!(
                    "the run has not read this data as it is now; {about}{trained} of its {rows} \
                     rows have the features of rows that it has trained on"
                );
                return none(&problem);
            }
            Usage::Shared { trained, exact } => {
                let about = if exact { "" } else { "about " };
                let all = trained >= rows;
                let scored = if all { Scored::TrainedOn } else { Scored::PartlyTrainedOn };
                let warning = format!(
                    "{about}{trained} of these {rows} rows have the features of rows that the \
                     model was trained on; was the file changed after the run?"
                );
                let words = format!("of which {about}{trained} equal rows that were trained on");
                return Ok(Scoring { data, scored, words, warning: Some(warning) });
            }
            Usage::Trained if only_held_out => {
                return none("the run has trained on all of these rows");
            }
            _ if only_held_out => {
                return none(
                    "beside the model no data.json says that the run has held out rows of this \
                     data",
                );
            }
            Usage::Split(test) => {
                let trained = rows - test.len();
                (
                    Scored::PartlyTrainedOn,
                    format!("of which {trained} were trained on"),
                    Some(format!("the model was trained on {trained} of these rows")),
                )
            }
            Usage::Trained => (
                Scored::TrainedOn,
                "trained on".into(),
                Some("the model was trained on these rows".into()),
            ),
            Usage::NotRead => {
                (Scored::NotRead, "not among the rows that data.json lists".into(), None)
            }
            _ => {
                let warning = "the model may have been trained on these rows (no data.json is \
                               beside it)";
                (Scored::Unknown, "trained on or not: no record".into(), Some(warning.into()))
            }
        };
        let warning = warning.map(|warning| warning + ": it may do worse on others");
        Ok(Scoring { data, scored, words, warning })
    }
}

#[cfg(test)]
mod tests {
    use gradvine::data::parse;

    use super::*;

    fn rows() -> Dataset {
        let text = b"x,y\n1,0\n2,1\n3,0\n";
        parse("rows.csv", text, None, &Options::default()).unwrap()
    }

    #[test]
    fn rows_that_were_held_out_are_preferred() {
        let split = || Usage::Split(vec![1]);
        let scoring = Scoring::new(split(), rows(), Wanted::Usual).unwrap();
        assert_eq!((scoring.data.rows(), scoring.scored), (1, Scored::HeldOut));
        assert_eq!(scoring.words, "held out of training, of 3");
        let scoring = Scoring::new(split(), rows(), Wanted::All).unwrap();
        assert_eq!((scoring.data.rows(), scoring.scored), (3, Scored::PartlyTrainedOn));
        assert_eq!(
            scoring.warning.as_deref(),
            Some("the model was trained on 2 of these rows: it may do worse on others")
        );
    }

    #[test]
    fn rows_that_were_not_held_out_are_refused_on_request() {
        for (usage, words) in
            [(Usage::Trained, "has trained on all"), (Usage::Unknown, "no data.json")]
        {
            let error = Scoring::new(usage, rows(), Wanted::HeldOut).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
