//! `gradvine predict`

use std::path::PathBuf;

use gradvine::{
    config::ConfigError,
    data::{Kind, Options},
};
use gradvine_evaluate::{PredictionFormat, Predictions};
use gradvine_terminal::{Exit, write_output};

use super::evaluate::{Reading, open};

/// The arguments of `gradvine predict`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine predict runs/first rows.csv > predictions.csv\n  \
    gradvine predict runs/first rows.csv --id patient\n  \
    gradvine predict model-mean.safetensors digits --format jsonl --out predictions.jsonl\n  \
    zcat rows.csv.gz | gradvine predict runs/first - --id 0\n\n\
    CSV: one line a row: its number from 0 or its identifier, the predicted class, the probability \
    of each class as p(CLASS) (or the predicted numbers, by name or as y0, y1, ...).\n\
    JSON lines: one object a row: \"row\" or \"id\", \"prediction\" and \"probabilities\" by class \
    (or \"values\" by name).")]
pub(crate) struct Args {
    /// A model file written by a run, or a run directory: its mean model
    model: PathBuf,
    /// `digits`, `breast-cancer`, or a data file with the columns that the model was trained on; it
    /// may lack the target
    data: String,
    #[command(flatten)]
    reading: Reading,
    /// A column of any text that identifies rows, by name or position: it is copied into the
    /// output, and is no feature
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    id: Option<String>,
    /// The form of the output
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The form of the output.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Format {
    /// Comma-separated text with a header
    Csv,
    /// JSON lines: one object a row
    Jsonl,
    /// The columns of CSV as a Parquet file, of a program built with the feature `parquet`
    Parquet,
}

impl From<Format> for PredictionFormat {
    fn from(format: Format) -> PredictionFormat {
        match format {
            Format::Csv => PredictionFormat::Csv,
            Format::Jsonl => PredictionFormat::JsonLines,
            Format::Parquet => PredictionFormat::Parquet,
        }
    }
}

/// Writes one line per row: the prediction, then the probability of each class (or the values).
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    let format = PredictionFormat::from(args.format);
    format.check().map_err(|error| error.with_place("--format"))?;
    let more = Options { bare: true, identifier: args.id.clone(), ..Options::default() };
    let (saved, mut data) = open(&args.model, &args.data, &args.reading, more)?;
    saved.prepare(&mut data).map_err(ConfigError::from)?;
    let predictions = Predictions::new(&saved, data)?;
    let kind = match args.format {
        Format::Csv => Kind::Table,
        Format::Jsonl => Kind::JsonLines,
        Format::Parquet => Kind::Parquet,
    };
    write_output(args.out.as_deref(), kind, &mut |mut out| predictions.write(format, &mut out))
}
