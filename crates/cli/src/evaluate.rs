//! `gradvine evaluate`

mod table;

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    data::{self, Dataset, Options, Task},
    learn::SavedModel,
    run::{DataRecord, MEAN_MODEL, Usage},
};
use gradvine_terminal::{note, print, print_json, show_reading};
use serde_json::json;

use self::table::Quality;
use super::Exit;

/// The arguments of `gradvine evaluate`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine evaluate runs/first digits\n  \
    gradvine evaluate model-mean.safetensors rows.csv --target diagnosis --json")]
pub struct Args {
    /// A model file written by a run, or a run directory: its mean model
    model: PathBuf,
    /// `digits`, `breast-cancer`, a data file (CSV, NPY, NPZ, IDX, each also .gz, Parquet or
    /// Arrow), a folder of CSV, Parquet or Arrow files, or `-`: standard input, CSV or another of
    /// these
    data: String,
    #[command(flatten)]
    reading: Reading,
    /// The rows to score [default: those that the run held out of training, if it has read this
    /// data; else all]
    #[arg(long, value_enum)]
    rows: Option<Rows>,
    /// Print an object
    #[arg(long)]
    json: bool,
}

/// The rows to score.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// Those that the run held out of training
    HeldOut,
    /// All
    All,
}

/// How to read the data file.
#[derive(clap::Args, Debug)]
pub struct Reading {
    /// The target column, by name or position [default: the one of the training, if it has a
    /// name; else the last]
    #[arg(long, allow_hyphen_values = true)]
    pub target: Option<String>,
    /// The file of labels of an IDX or NPY file
    #[arg(long)]
    pub labels: Option<PathBuf>,
}

/// Reads a model and the rows to score, not yet scaled. `more` are further options.
pub fn open(
    model: &Path,
    source: &str,
    reading: &Reading,
    more: Options,
) -> Result<(SavedModel, Dataset), Exit> {
    let saved = SavedModel::read(&model_file(model))?;
    let task = saved.model.task();
    let options = Options {
        target: reading.target.clone(),
        columns: saved.columns.clone(),
        schema: saved.schema.clone(),
        by_position: true,
        class_names: Some(saved.classes.clone()).filter(|names| data::are_named(names)),
        labels_file: reading.labels.clone(),
        task,
        inputs: Some(saved.model.shape().inputs),
        classes: Some(saved.model.shape().outputs).filter(|_| task == Task::Classification),
        ..more
    };
    show_reading();
    let data = match source {
        "-" => data::read("standard input", std::io::stdin().lock(), &options),
        source => data::load(source, &options),
    };
    let data = data.map_err(named_by_argument)?;
    if saved.columns.is_some() && data.columns.is_none() {
        note!(
            "warning: the columns of {source} have no names: they are taken in the order of the \
             training data"
        );
    }
    Ok((saved, data))
}

/// The model file that an argument names: the file itself, or the mean model of a run directory.
pub fn model_file(argument: &Path) -> PathBuf {
    if argument.is_dir() { argument.join(MEAN_MODEL) } else { argument.to_path_buf() }
}

/// Keys of an experiment and the matching arguments of these commands.
fn named_by_argument(error: ConfigError) -> ConfigError {
    const NAMES: [(&str, &str); 10] = [
        ("data.identifier", "--id"),
        ("data.columns", "the model's columns"),
        ("data.schema", "the model's schema"),
        ("data.source", "DATA"),
        ("data.target", "--target"),
        ("data.labels_file", "--labels"),
        ("data.task", "the model's kind"),
        ("data.class_count", "the model's classes"),
        ("data.classes", "the model's classes"),
        ("(model.inputs)", "by the model"),
    ];
    let rename = |text: &str| {
        NAMES.iter().fold(text.to_string(), |text, (key, name)| text.replace(key, name))
    };
    ConfigError { place: rename(&error.place), problem: rename(&error.problem), ..error }
}

/// Prints how good the model is on rows.
pub fn run(args: Args) -> Result<(), Exit> {
    let (saved, data) = open(&args.model, &args.data, &args.reading, Options::default())?;
    let usage = DataRecord::beside(&model_file(&args.model))?.usage(&data)?;
    let Choice { mut data, scored, words } = choose(data, usage, args.rows)?;
    saved.prepare(&mut data)?;
    let loss = saved.model.evaluate(&saved.x, &data)?.loss;
    let quality = Quality::new(&saved, &data)?;
    for warning in quality.warnings() {
        note!("warning: {warning}");
    }
    if args.json {
        let mut value = json!({
            "model": args.model,
            "data": args.data,
            "rows": data.rows(),
            "rows_are": scored,
            "loss": loss,
        });
        for (key, figure) in quality.to_json() {
            value[key] = figure;
        }
        return Ok(print_json(&value)?);
    }
    let head = [("rows", format!("{} ({words})", data.rows())), ("loss", format!("{loss:.5}"))];
    Ok(print(&quality.to_text(&head))?)
}

/// What the run that made a model has done with the rows that are scored.
#[derive(serde::Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Scored {
    /// Held out of training.
    HeldOut,
    /// Trained on all.
    TrainedOn,
    /// Trained on some.
    PartlyTrainedOn,
    /// There is no record of it, or the run has not read them.
    NotRead,
}

/// Selects the rows to score. Returns what the run has done with them, also in words.
fn choose(data: Dataset, usage: Usage, wanted: Option<Rows>) -> Result<Choice, Exit> {
    let rows = data.rows();
    let only_held_out = wanted == Some(Rows::HeldOut);
    let (scored, words) = match usage {
        Usage::Split(test) if wanted != Some(Rows::All) => {
            let words = format!("held out of training, of {rows}");
            return Ok(Choice { data: data.select(&test), scored: Scored::HeldOut, words });
        }
        Usage::HeldOut => (Scored::HeldOut, "held out of training".to_string()),
        Usage::Trained if only_held_out => {
            return Err(refuse_held_out("the run has trained on all of these rows"));
        }
        _ if only_held_out => {
            return Err(refuse_held_out(
                "beside the model no data.json says that the run has held out rows of this data",
            ));
        }
        Usage::Split(test) => {
            let trained = rows - test.len();
            note!(
                "warning: the model was trained on {trained} of these rows: it may do worse on \
                 others"
            );
            (Scored::PartlyTrainedOn, format!("of which {trained} were trained on"))
        }
        Usage::Trained => {
            note!("warning: the model was trained on these rows: it may do worse on others");
            (Scored::TrainedOn, "trained on".into())
        }
        _ => (Scored::NotRead, "not read by the run".into()),
    };
    Ok(Choice { data, scored, words })
}

/// The rows to score.
struct Choice {
    data: Dataset,
    scored: Scored,
    /// `scored`, in words.
    words: String,
}

fn refuse_held_out(problem: &str) -> Exit {
    ConfigError::new("--rows", "held-out", problem).into()
}
