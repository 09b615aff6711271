//! `gradvine evaluate`

use std::path::PathBuf;

use gradvine::{
    config::ConfigError,
    data::{self, Dataset, Options, Task},
    learn::SavedModel,
    run::record::Score,
};
use serde_json::json;

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
    /// Print an object
    #[arg(long)]
    json: bool,
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

/// Reads a model and the rows to score, scaled as in training. With `bare`, rows may lack a target.
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
    let mut data = data::load(source, &options).map_err(named_by_argument)?;
    if let Some(scale) = &saved.scale {
        data.apply(scale)?;
    }
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

/// Prints accuracy and loss.
pub fn run(args: Args) -> Result<(), Exit> {
    let (saved, data) = open(&args.model, &args.data, &args.reading, false)?;
    let score: Score = saved.model.evaluate(&saved.x, &data)?.into();
    if args.json {
        let value = json!({
            "model": args.model,
            "data": args.data,
            "rows": score.rows,
            "loss": score.loss,
            "correct": score.correct,
            "accuracy": score.accuracy(),
        });
        return Ok(print_json(&value)?);
    }
    let mut text = format!("rows      {}\nloss      {:.5}\n", score.rows, score.loss);
    if let (Some(correct), Some(accuracy)) = (score.correct, score.accuracy()) {
        text += &format!("accuracy  {:.2}% ({correct} right)\n", 100.0 * accuracy);
    }
    Ok(print(&text)?)
}
