//! `gradvine export`

use std::path::PathBuf;

use gradvine::{
    config::ConfigError,
    data::{Task, write_atomically},
    learn::SavedModel,
};

use gradvine_terminal::print;

use super::{Exit, evaluate::model_file};

/// The arguments of `gradvine export`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine export runs/first --format onnx\n  \
    gradvine export model-mean.safetensors --format onnx --out model.onnx\n\n\
    The graph takes features as they are in the data: the constants of their standardisation are \
                        in it. Its outputs are label and probabilities, or values of a \
                        regression.")]
pub struct Args {
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
pub fn run(args: &Args) -> Result<(), Exit> {
    let model = model_file(&args.model);
    let saved = SavedModel::read(&model)?;
    let out = args.out.clone().unwrap_or_else(|| model.with_extension("onnx"));
    let bytes = match args.format {
        Format::Onnx => gradvine_onnx::export(&saved),
    };
    let bytes = bytes.map_err(|error| error.within(model.display()))?;
    if out == model {
        let problem = "is the model itself: name another file";
        return Err(ConfigError::new("--out", out.display(), problem).into());
    }
    write_atomically(&out, &[&bytes])?;
    let shape = saved.model.shape();
    let outputs = match saved.model.task() {
        Task::Classification => format!("label [rows], probabilities [rows, {}]", shape.outputs),
        _ => format!("values [rows, {}]", shape.outputs),
    };
    Ok(print(&format!(
        "{}: {} [rows, {}] -> {outputs}\n",
        out.display(),
        gradvine_onnx::FEATURES,
        shape.inputs
    ))?)
}
