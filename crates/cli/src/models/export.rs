//! `gradvine export`

use std::path::PathBuf;

use gradvine_evaluate::model_file;
use gradvine_export::{CurveFormat, export_curves};
use gradvine_terminal::{Exit, print};

/// The arguments of `gradvine export`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  gradvine export runs/first --to onnx
  gradvine export model-mean.safetensors --to onnx --out model.onnx
  gradvine export runs/first --to csv          for pandas, R, sheets: runs/first/metrics.csv
  gradvine export runs/first --to tensorboard  a file per node in runs/first/tensorboard

ONNX: The graph takes features as they are in the data: the constants of their standardisation \
are in it. Its outputs are label and probabilities, or values of a regression.

CSV: A row per node and evaluation: round, node, time_s, computing_s, train_loss, test_loss, \
test_accuracy, consensus, bytes_payload, bytes_wire, bytes_dense, then measures.NAME for each \
measure of the program. A value that is not known is an empty cell.

TensorBoard: The step is the round, and scalars have 32 bits. Times begin with the run if the name \
of its folder has its start, as in runs/20260102-030405-choco-ring-8; else they begin with 1970.

CSV and TensorBoard: The run may have failed, and may not have ended.")]
pub(crate) struct Args {
    /// A run directory: its mean model, or its curves; for ONNX also a model file written by a run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// What to write
    #[arg(long, visible_alias = "format", value_enum, value_name = "FORMAT")]
    to: Format,
    /// The file to write, or the folder of event files [default: beside the model, ending in .onnx;
    /// metrics.csv or tensorboard in the run directory]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Overwrite a table or event files that exist; an ONNX file is overwritten without it
    #[arg(long)]
    force: bool,
}

/// A format of other programs.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// The model as ONNX, for onnxruntime and others
    Onnx,
    /// The curves as a table
    Csv,
    /// The curves as event files of TensorBoard
    Tensorboard,
}

/// Writes a model or the curves of a run in a format of other programs.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let curves = |format| export_curves(&args.run, format, args.out.as_deref(), args.force);
    let written = match args.to {
        Format::Onnx => {
            let model = model_file(&args.run).map_err(|error| error.with_place("RUN"))?;
            let (out, signature) = gradvine_onnx::convert(&model, args.out.as_deref())?;
            format!("{}: {signature}\n", out.display())
        }
        Format::Csv => curves(CurveFormat::Csv)?,
        Format::Tensorboard => curves(CurveFormat::TensorBoard)?,
    };
    Ok(print(&written)?)
}
