//! The predictions of a saved model for some rows, as CSV, JSON lines and Parquet.

#[cfg(feature = "parquet")]
mod parquet;

use std::{
    borrow::Cow,
    io::{self, Write},
};

use gradvine::{
    config::ConfigError,
    data::{self, Dataset, Identifiers, Task},
    learn::{SavedModel, most_probable},
};
use ndarray::{Array2, ArrayView1};
use serde::{Serialize, Serializer};

/// The form of a file of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PredictionFormat {
    /// Comma-separated text with a header.
    Csv,
    /// JSON lines: one object a row.
    JsonLines,
    /// The columns of CSV as a Parquet file, with the cargo feature `parquet`.
    Parquet,
}

impl PredictionFormat {
    /// Checks that this program can write the format.
    ///
    /// # Errors
    /// For Parquet without the cargo feature `parquet`.
    pub fn check(self) -> Result<(), ConfigError> {
        if self != PredictionFormat::Parquet || cfg!(feature = "parquet") {
            return Ok(());
        }
        let problem = "this program was built without Parquet: `cargo install --locked --path \
                       crates/cli --features parquet` builds it with it; csv or jsonl are accepted";
        Err(ConfigError::new("format", "parquet", problem))
    }
}

/// The predictions of some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictions {
    identifiers: Option<Identifiers>,
    are_classes: bool,
    /// Whether classes have names other than their numbers.
    are_named: bool,
    /// Of the classes, or of the predicted numbers.
    names: Vec<String>,
    /// Rows x outputs: probabilities, or numbers.
    values: Array2<f32>,
}

impl Predictions {
    /// The predictions for rows that [`SavedModel::prepare`] has scaled, with their identifiers.
    ///
    /// # Errors
    /// If the rows do not fit the model, or a prediction is not finite.
    pub fn new(saved: &SavedModel, data: Dataset) -> Result<Predictions, ConfigError> {
        Ok(Predictions {
            values: saved.model.predict(&saved.x, data.features.view())?,
            identifiers: data.identifiers,
            are_classes: saved.model.task() == Task::Classification,
            are_named: data::are_named(&saved.classes),
            names: saved.output_names(),
        })
    }

    /// Writes a row for each row of the data: its identifier, or its number from 0, the predicted
    /// class, and the probability of each class; or the predicted numbers.
    ///
    /// # Errors
    /// If `out` cannot be written, or the format is not supported ([`PredictionFormat::check`]).
    pub fn write(&self, format: PredictionFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            PredictionFormat::Csv => self.write_csv(out)?,
            PredictionFormat::JsonLines => self.write_lines(out)?,
            PredictionFormat::Parquet => self.write_parquet(out)?,
        }
        out.flush()
    }

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
        out.write_all(&parquet::to_bytes(self).map_err(io::Error::other)?)
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
        for (index, row) in self.values.outer_iter().enumerate() {
            match &self.identifiers {
                Some(identifiers) => write!(out, "{}", quoted(&identifiers.texts[index]))?,
                None => write!(out, "{index}")?,
            }
            if self.are_classes {
                write!(out, ",{}", quoted(&self.names[most_probable(row).0]))?;
            }
            for value in row {
                write!(out, ",{value}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        for (index, row) in self.values.outer_iter().enumerate() {
            let id = self.identifiers.as_ref().map(|all| all.texts[index].as_str());
            let numbers = Numbers { names: &self.names, values: row };
            let class = self.are_classes.then(|| most_probable(row).0);
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
        Ok(())
    }
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
    use ndarray::array;

    use super::*;

    fn predictions() -> Predictions {
        Predictions {
            identifiers: None,
            are_classes: true,
            are_named: true,
            names: vec!["well".into(), "a, b".into()],
            values: array![[0.25, 0.75], [0.5, 0.5]],
        }
    }

    fn written(predictions: &Predictions, format: PredictionFormat) -> String {
        let mut bytes = Vec::new();
        predictions.write(format, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn classes_have_probabilities_and_of_equal_ones_the_first_is_predicted() {
        let all = predictions();
        assert_eq!(
            written(&all, PredictionFormat::Csv),
            "row,prediction,p(well),\"p(a, b)\"\n0,\"a, b\",0.25,0.75\n1,well,0.5,0.5\n"
        );
        assert_eq!(
            written(&all, PredictionFormat::JsonLines).lines().next(),
            Some(r#"{"row":0,"prediction":"a, b","probabilities":{"well":0.25,"a, b":0.75}}"#)
        );
    }

    #[test]
    fn numbers_have_identifiers_and_names() {
        let identifiers = Identifiers { name: None, texts: vec!["x".into(), "y".into()] };
        let all =
            Predictions { identifiers: Some(identifiers), are_classes: false, ..predictions() };
        assert_eq!(
            written(&all, PredictionFormat::Csv),
            "id,well,\"a, b\"\nx,0.25,0.75\ny,0.5,0.5\n"
        );
        assert_eq!(
            written(&all, PredictionFormat::JsonLines).lines().nth(1),
            Some(r#"{"id":"y","values":{"well":0.5,"a, b":0.5}}"#)
        );
    }

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
        let values = array![0.1f32, f32::NAN];
        let numbers = Numbers { names: &names, values: values.view() };
        assert_eq!(serde_json::to_string(&numbers).unwrap(), r#"{"a":0.1,"b":null}"#);
    }
}
