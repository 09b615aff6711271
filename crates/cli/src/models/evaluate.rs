//! `gradvine evaluate`

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    data::{Dataset, Options},
    learn::SavedModel,
};
use gradvine_evaluate::{ScoredModel, Wanted, model_file, read_rows};
use gradvine_terminal::{Exit, note_warnings, output_width, print_either, show_reading};

/// The arguments of `gradvine evaluate`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine evaluate runs/first digits\n  \
    gradvine evaluate model-mean.safetensors rows.csv --target diagnosis --json")]
pub(crate) struct Args {
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

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// Those that the run held out of training
    HeldOut,
    /// All
    All,
}

/// How to read the data file.
#[derive(clap::Args, Debug)]
pub(crate) struct Reading {
    /// The target column, by name or position [default: the one of the training, if it has a
    /// name; else the last]
    #[arg(long, allow_hyphen_values = true)]
    pub target: Option<String>,
    /// The file of labels of an IDX or NPY file
    #[arg(long)]
    pub labels: Option<PathBuf>,
}

/// Reads a model and the rows to score, not yet scaled. `more` are further options.
pub(crate) fn open(
    model: &Path,
    source: &str,
    reading: &Reading,
    more: Options,
) -> Result<(SavedModel, Dataset), ConfigError> {
    let saved = SavedModel::read(&model_file(model)?)?;
    let own =
        Options { target: reading.target.clone(), labels_file: reading.labels.clone(), ..more };
    show_reading();
    let (data, warnings) = read_rows(&saved, source, own).map_err(|error| error.renamed(&NAMES))?;
    note_warnings(warnings);
    Ok((saved, data))
}

/// Keys of an experiment and the matching arguments of these commands.
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

/// Prints how good the model is on rows.
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    let (saved, data) = open(&args.model, &args.data, &args.reading, Options::default())?;
    let wanted = match args.rows {
        None => Wanted::Usual,
        Some(Rows::HeldOut) => Wanted::HeldOut,
        Some(Rows::All) => Wanted::All,
    };
    let scored = ScoredModel::new(&args.model, &saved, data, wanted)
        .map_err(|error| if error.place == "rows" { error.with_place("--rows") } else { error })?;
    note_warnings(scored.warnings());
    let text = || scored.text(output_width());
    Ok(print_either(args.json, || scored.to_json(&args.model, &args.data), text)?)
}
