//! `gradvine predict`

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use gradvine::{config::ConfigError, data::Task, learn::SavedModel};
use ndarray::Array2;

use super::{
    Exit,
    evaluate::{Reading, open},
    ignore_broken_pipe,
};

/// The arguments of `gradvine predict`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine predict runs/first rows.csv > predictions.csv\n  \
    gradvine predict model-mean.safetensors digits --out predictions.csv\n  \
    zcat rows.csv.gz | gradvine predict runs/first -\n\n\
    One line a row: its number from 0, the predicted class, the probability of each class (or the \
    predicted numbers).")]
pub struct Args {
    /// A model file written by a run, or a run directory: its mean model
    model: PathBuf,
    /// `digits`, `breast-cancer`, or a data file with the columns that the model was trained on; a
    /// CSV file may lack the target
    data: String,
    #[command(flatten)]
    reading: Reading,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Prints one line per row: the prediction, then the probability of each class (or the values).
pub fn run(args: Args) -> Result<(), Exit> {
    let (saved, mut data) = open(&args.model, &args.data, &args.reading, true)?;
    saved.scale(&mut data)?;
    let predictions = saved.model.predict(&saved.x, data.features.view())?;
    let mut out: Box<dyn Write> = match &args.out {
        Some(path) => {
            let file = File::create(path).map_err(|error| {
                ConfigError::at("--out", format!("cannot be written: {error}"))
                    .within(path.display())
            })?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    Ok(ignore_broken_pipe(table(&saved, &predictions, &mut out))?)
}

fn table(
    saved: &SavedModel,
    predictions: &Array2<f32>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let classes = saved.model.task() == Task::Classification;
    let name =
        |class: usize| saved.classes.get(class).cloned().unwrap_or_else(|| class.to_string());
    let columns: Vec<String> = (0..predictions.ncols())
        .map(|c| if classes { format!("p({})", name(c)) } else { format!("y{c}") })
        .collect();
    writeln!(out, "row,{}{}", if classes { "prediction," } else { "" }, columns.join(","))?;
    for (index, row) in predictions.outer_iter().enumerate() {
        write!(out, "{index}")?;
        if classes {
            let best = row
                .iter()
                .enumerate()
                .fold(0, |best, (class, p)| if *p > row[best] { class } else { best });
            write!(out, ",{}", name(best))?;
        }
        for value in row {
            write!(out, ",{value}")?;
        }
        writeln!(out)?;
    }
    out.flush()
}
