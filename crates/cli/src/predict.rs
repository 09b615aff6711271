//! `gradvine predict`

#[cfg(feature = "parquet")]
mod parquet;

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use gradvine::{
    config::ConfigError,
    data::{self, Identifiers, Options, Task},
    learn::SavedModel,
};
use gradvine_terminal::ignore_broken_pipe;
use ndarray::{Array2, ArrayView1};
use serde::{Serialize, Serializer};

use super::{
    Exit,
    evaluate::{Reading, open},
};

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
pub struct Args {
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

/// Prints one line per row: the prediction, then the probability of each class (or the values).
pub fn run(args: Args) -> Result<(), Exit> {
    if matches!(args.format, Format::Parquet) && cfg!(not(feature = "parquet")) {
        let problem = "this program was built without Parquet: `cargo install --locked --path \
                       crates/cli --features parquet` builds it with it; csv or jsonl are accepted";
        return Err(ConfigError::new("--format", "parquet", problem).into());
    }
    let more = Options { bare: true, identifier: args.id.clone(), ..Options::default() };
    let (saved, mut data) = open(&args.model, &args.data, &args.reading, more)?;
    saved.prepare(&mut data)?;
    let predictions = saved.model.predict(&saved.x, data.features.view())?;
    let mut out: Box<dyn Write> = match &args.out {
        Some(path) => {
            let file = File::create(path).map_err(|error| {
                ConfigError::at("--out", format!("cannot be written: {error}"))
                    .within(path.display())
            })?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(io::stdout().lock())),
    };
    let table = Table {
        identifiers: data.identifiers,
        are_classes: saved.model.task() == Task::Classification,
        are_named: data::are_named(&saved.classes),
        names: names(&saved, predictions.ncols()),
        predictions,
    };
    Ok(ignore_broken_pipe(match args.format {
        Format::Csv => table.write_csv(&mut out),
        Format::Jsonl => table.write_lines(&mut out),
        Format::Parquet => table.write_parquet(&mut out),
    })?)
}

/// The names of the classes, or of the predicted numbers.
fn names(saved: &SavedModel, outputs: usize) -> Vec<String> {
    if saved.model.task() == Task::Classification {
        let name = |class: usize| saved.classes.get(class).cloned().unwrap_or(class.to_string());
        return (0..outputs).map(name).collect();
    }
    let targets = saved.columns.as_ref().map(|columns| &columns.targets);
    match targets.filter(|targets| targets.len() == outputs) {
        Some(targets) => targets.clone(),
        None => (0..outputs).map(|output| format!("y{output}")).collect(),
    }
}

/// The predictions of some rows.
struct Table {
    identifiers: Option<Identifiers>,
    are_classes: bool,
    /// Whether classes have names other than their numbers.
    are_named: bool,
    /// Of the classes, or of the predicted numbers.
    names: Vec<String>,
    /// Rows x outputs: probabilities, or numbers.
    predictions: Array2<f32>,
}

impl Table {
    /// The name of the first column.
    fn first(&self) -> &str {
        match &self.identifiers {
            Some(Identifiers { name: Some(name), .. }) => name,
            Some(_) => "id",
            None => "row",
        }
    }

    /// The name of the column of a class's probabilities, or of a predicted number.
    fn head(&self, name: &str) -> String {
        if self.are_classes { format!("p({name})") } else { name.to_string() }
    }

    #[cfg(feature = "parquet")]
    fn write_parquet(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&parquet::to_bytes(self).map_err(io::Error::other)?)?;
        out.flush()
    }

    #[cfg(not(feature = "parquet"))]
    fn write_parquet(&self, _: &mut dyn Write) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{}", quoted(self.first()))?;
        if self.are_classes {
            write!(out, ",prediction")?;
        }
        for name in &self.names {
            write!(out, ",{}", quoted(&self.head(name)))?;
        }
        writeln!(out)?;
        for (index, row) in self.predictions.outer_iter().enumerate() {
            match &self.identifiers {
                Some(identifiers) => write!(out, "{}", quoted(&identifiers.texts[index]))?,
                None => write!(out, "{index}")?,
            }
            if self.are_classes {
                write!(out, ",{}", quoted(&self.names[likeliest(row)]))?;
            }
            for value in row {
                write!(out, ",{value}")?;
            }
            writeln!(out)?;
        }
        out.flush()
    }

    fn write_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        for (index, row) in self.predictions.outer_iter().enumerate() {
            let id = self.identifiers.as_ref().map(|all| all.texts[index].as_str());
            let numbers = Numbers { names: &self.names, values: row };
            let class = self.are_classes.then(|| likeliest(row));
            let line = Line {
                row: id.is_none().then_some(index),
                id,
                prediction: class.map(|class| match self.are_named {
                    true => Class::Name(&self.names[class]),
                    false => Class::Number(class),
                }),
                probabilities: self.are_classes.then_some(numbers),
                values: (!self.are_classes).then_some(numbers),
            };
            serde_json::to_writer(&mut *out, &line)?;
            writeln!(out)?;
        }
        out.flush()
    }
}

/// The class with the highest probability; of equal ones the first.
fn likeliest(row: ArrayView1<'_, f32>) -> usize {
    row.iter().enumerate().fold(0, |best, (class, p)| if *p > row[best] { class } else { best })
}

/// A cell of CSV text: in quotes where a reader needs them.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = !text.is_empty()
        && text.trim() == text
        && !text.contains(|c: char| c == ',' || c == '"' || c.is_control());
    if is_plain { text.into() } else { format!("\"{}\"", text.replace('"', "\"\"")).into() }
}

/// One row of JSON lines.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction: Option<Class<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<Numbers<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Numbers<'a>>,
}

/// A class by its name, or by its number if it has no other.
#[derive(Serialize)]
#[serde(untagged)]
enum Class<'a> {
    Name(&'a str),
    Number(usize),
}

/// Numbers by name, in order; one that is not finite is null.
#[derive(Clone, Copy)]
struct Numbers<'a> {
    names: &'a [String],
    values: ArrayView1<'a, f32>,
}

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.names.iter().zip(self.values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_a_reader_needs_it() {
        for (text, cell) in [
            ("a-7", "a-7"),
            ("7, high street", "\"7, high street\""),
            ("the \"old\" one", "\"the \"\"old\"\" one\""),
            ("two\nlines", "\"two\nlines\""),
            (" a", "\" a\""),
            ("", "\"\""),
            ("\u{e9}", "\u{e9}"),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_null() {
        let names = ["a", "b"].map(String::from);
        let values = ndarray::array![0.1f32, f32::NAN];
        let numbers = Numbers { names: &names, values: values.view() };
        assert_eq!(serde_json::to_string(&numbers).unwrap(), r#"{"a":0.1,"b":null}"#);
    }
}
