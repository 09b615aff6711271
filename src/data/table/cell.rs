//! One cell of a table, as the reader of a format hands it to the encoder.

use super::decimal;

/// The value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing: an empty cell of text, or a null.
    Empty,
    /// Text without the blanks around it, not empty. It may be the text of a number.
    Text(&'a [u8]),
    /// A number of a typed column.
    Number(f64),
    /// A boolean of a typed column.
    Bool(bool),
}

impl<'a> Cell<'a> {
    /// A cell of a text file.
    pub fn of_text(text: &'a [u8]) -> Cell<'a> {
        match text.trim_ascii() {
            b"" => Cell::Empty,
            text => Cell::Text(text),
        }
    }

    /// Its value as a number: booleans are 0 and 1.
    pub fn number(self) -> Option<f64> {
        match self {
            Cell::Empty => None,
            Cell::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            Cell::Number(value) => Some(value),
            Cell::Bool(value) => Some(f64::from(u8::from(value))),
        }
    }

    /// Its value in one rounding from its text or number, infinite if it is beyond `f32`, and the
    /// nearest `f64`.
    pub(crate) fn rounded(self) -> Option<(f32, f64)> {
        match self {
            Cell::Text(text) => decimal::parse(text),
            other => other.number().map(|value| (value as f32, value)),
        }
    }
}
