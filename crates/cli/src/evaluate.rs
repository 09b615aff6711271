//! `gradvine evaluate`

mod table;

use std::path::PathBuf;

use gradvine::{
    config::ConfigError,
    data::{self, Dataset, Options, Task},
    learn::SavedModel,
    run::{DataRecord, Usage},
};
use serde_json::json;

use self::table::Quality;
use super::{Exit, print, print_json};

/// The arguments of `gradvine evaluate`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine evaluate runs/first/model-mean.safetensors digits\n  \
    gradvine evaluate model-mean.safetensors rows.csv --target diagnosis --json")]
pub struct Args {
    /// A model file written by a run
    model: PathBuf,
    /// `digits`, `breast-cancer`, or a data file (CSV, NPY, IDX, each also .gz)
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
    #[arg(long)]
    pub target: Option<String>,
    /// The file of labels of an IDX or NPY file
    #[arg(long)]
    pub labels: Option<PathBuf>,
}

/// Reads a model and the rows to score, not yet scaled. With `bare`, rows may lack a target.
pub fn open(
    model: &std::path::Path,
    source: &str,
    reading: &Reading,
    bare: bool,
) -> Result<(SavedModel, Dataset), Exit> {
    let saved = SavedModel::read(model)?;
    let task = saved.model.task();
    let options = Options {
        target: reading.target.clone(),
        columns: saved.columns.clone(),
        by_position: true,
        labels_file: reading.labels.clone(),
        task,
        inputs: Some(saved.model.shape().inputs),
        classes: Some(saved.model.shape().outputs).filter(|_| task == Task::Classification),
        bare,
        ..Options::default()
    };
    let data = data::load(source, &options).map_err(named_by_argument)?;
    Ok((saved, data))
}

/// Keys of an experiment and the matching arguments of these commands.
fn named_by_argument(error: ConfigError) -> ConfigError {
    const NAMES: [(&str, &str); 7] = [
        ("data.columns", "the model's columns"),
        ("data.source", "DATA"),
        ("data.target", "--target"),
        ("data.labels_file", "--labels"),
        ("data.task", "the model's kind"),
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
    let (saved, data) = open(&args.model, &args.data, &args.reading, false)?;
    let (mut data, usage) = choose(data, &args)?;
    saved.scale(&mut data)?;
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
            "rows_are": usage,
            "loss": loss,
        });
        for (key, figure) in quality.to_json() {
            value[key] = figure;
        }
        return Ok(print_json(&value)?);
    }
    let head = [("rows", format!("{} ({usage})", data.rows())), ("loss", format!("{loss:.5}"))];
    Ok(print(&quality.to_text(&head))?)
}

/// Selects the rows to score; and says what they are.
fn choose(data: Dataset, args: &Args) -> Result<(Dataset, String), Exit> {
    let usage = DataRecord::beside(&args.model)?.usage(&data)?;
    let all = args.rows == Some(Rows::All);
    let rows = data.rows();
    let said = match usage {
        Usage::Split(test) if !all => {
            return Ok((data.select(&test), format!("held out of training, of {rows}")));
        }
        Usage::HeldOut if !all => "held out of training".into(),
        _ if args.rows == Some(Rows::HeldOut) => {
            let problem = match usage {
                Usage::Trained => "the run has trained on all of these rows",
                _ => {
                    "beside the model no data.json says that the run has held out rows of this \
                      data"
                }
            };
            return Err(ConfigError::new("--rows", "held-out", problem).into());
        }
        Usage::Trained => {
            note!("warning: the model was trained on these rows: it may do worse on others");
            "trained on".into()
        }
        Usage::Split(test) => {
            note!(
                "warning: the model was trained on {} of these rows: it may do worse on others",
                rows - test.len()
            );
            format!("of which {} were trained on", rows - test.len())
        }
        Usage::HeldOut => "held out of training".into(),
        _ => "not read by the run".into(),
    };
    Ok((data, said))
}
