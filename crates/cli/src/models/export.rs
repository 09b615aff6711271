//! `gradvine export`

use std::path::PathBuf;

use gradvine_evaluate::model_file;
use gradvine_terminal::{Exit, print};

/// The arguments of `gradvine export`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine export runs/first --format onnx\n  \
    gradvine export model-mean.safetensors --format onnx --out model.onnx\n\n\
    The graph takes features as they are in the data: the constants of their standardisation are \
                        in it. Its outputs are label and probabilities, or values of a \
                        regression.")]
pub(crate) struct Args {
    /// A model file written by a run, or a run directory: its mean model
    model: PathBuf,
    /// The format of the file
    #[arg(long, value_enum)]
    format: Format,
    /// The file to write [default: the name of the model file, ending in .onnx]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A format of other programs.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// ONNX, for onnxruntime and others
    Onnx,
}

/// Writes a model in a format of other programs.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let Format::Onnx = args.format;
    let (out, signature) = gradvine_onnx::convert(&model_file(&args.model)?, args.out.as_deref())?;
    Ok(print(&format!("{}: {signature}\n", out.display()))?)
}
