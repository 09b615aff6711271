//! Features from the cells of a schema's columns.

use std::collections::HashMap;

use time::{
    Date, OffsetDateTime, PrimitiveDateTime, format_description::well_known::Iso8601,
    macros::datetime,
};

use super::{
    DataError,
    cell::Cell,
    columns::list,
    schema::{Column, ColumnKind, Missing, Schema},
};

/// Texts that stand for a missing value, in letters of any case, beside an empty cell.
const MISSING: [&str; 7] = ["na", "n/a", "nan", "null", "none", "nil", "?"];

/// Texts of booleans, in letters of any case.
const BOOLEANS: [(&str, bool); 10] = [
    ("true", true),
    ("false", false),
    ("1", true),
    ("0", false),
    ("yes", true),
    ("no", false),
    ("t", true),
    ("f", false),
    ("y", true),
    ("n", false),
];

/// How the cells of one column become features.
#[derive(Clone, Debug)]
pub(super) struct Code {
    kind: ColumnKind,
    /// Of a category: the feature of each value.
    places: HashMap<Vec<u8>, usize>,
    /// The same of values that are numbers.
    numbers: Vec<(f64, usize)>,
    /// The values, for messages.
    values: Vec<String>,
    /// The feature of other values.
    other: Option<usize>,
    width: usize,
    missing: Gap,
}

/// What a missing value becomes.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Refused,
    /// Known when the run begins.
    Agreed,
    Value(f32),
    /// This feature is 1.
    Place(usize),
}

/// What [`Code::encode`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoded {
    /// A value.
    Value,
    /// A missing value that becomes what all nodes agree on: 0 is in its place.
    Gap,
}

impl Code {
    /// The codes of the columns that become features.
    ///
    /// # Errors
    /// If the values of a category are not known.
    pub fn of(schema: &Schema) -> Result<Vec<Code>, DataError> {
        schema.width()?;
        Ok(schema.used().map(Code::of_column).collect())
    }

    fn of_column(column: &Column) -> Code {
        let values = column.values.clone().unwrap_or_default();
        let other = column.other.then_some(values.len());
        let missing = match column.missing {
            Missing::Refuse => Gap::Refused,
            Missing::Mean | Missing::Median => Gap::Agreed,
            Missing::Value(value) => Gap::Value(value as f32),
            Missing::Category => Gap::Place(values.len() + usize::from(column.other)),
            Missing::Other => Gap::Place(values.len()),
        };
        let number = |(place, value): (usize, &String)| Some((value.parse::<f64>().ok()?, place));
        Code {
            kind: column.kind,
            places: values.iter().map(|value| value.clone().into_bytes()).zip(0..).collect(),
            numbers: values.iter().enumerate().filter_map(number).collect(),
            width: column.width().unwrap_or(0),
            values,
            other,
            missing,
        }
    }

    /// Whether missing values become what all nodes agree on.
    pub fn is_agreed(&self) -> bool {
        matches!(self.missing, Gap::Agreed)
    }

    /// The number of features.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Adds the features of a cell.
    ///
    /// # Errors
    /// What is wrong with the cell, and what is accepted.
    pub fn encode(&self, cell: Cell<'_>, out: &mut Vec<f32>) -> Result<Encoded, String> {
        if self.kind == ColumnKind::Category {
            return self.encode_category(cell, out);
        }
        if is_missing(cell) {
            return self.encode_missing(out);
        }
        let value = match self.kind {
            ColumnKind::Boolean => boolean(cell).map(|value| f32::from(u8::from(value))),
            ColumnKind::Date => date(cell),
            _ => cell.rounded(),
        };
        match value {
            Some(value) if value.is_finite() => {
                out.push(value);
                Ok(Encoded::Value)
            }
            Some(_) => Err("a finite number within f32 is needed: up to about 3.4e38".into()),
            None => Err(match self.kind {
                ColumnKind::Boolean => "a boolean is needed: true or false, yes or no, 1 or 0",
                ColumnKind::Date => "a date is needed: such as 2024-05-17 or 2024-05-17T08:30:00Z",
                _ => "a number is needed",
            }
            .into()),
        }
    }

    fn encode_category(&self, cell: Cell<'_>, out: &mut Vec<f32>) -> Result<Encoded, String> {
        let place = match self.find(cell) {
            Some(place) => place,
            None if is_missing(cell) => match self.missing {
                Gap::Place(place) => place,
                _ => return self.encode_missing(out),
            },
            None => self.other.ok_or_else(|| {
                format!(
                    "no value of this category: {} are accepted; with other = true also others",
                    list(&self.values)
                )
            })?,
        };
        let start = out.len();
        out.resize(start + self.width, 0.0);
        out[start + place] = 1.0;
        Ok(Encoded::Value)
    }

    fn encode_missing(&self, out: &mut Vec<f32>) -> Result<Encoded, String> {
        match self.missing {
            Gap::Agreed => {
                out.push(0.0);
                Ok(Encoded::Gap)
            }
            Gap::Value(value) => {
                out.push(value);
                Ok(Encoded::Value)
            }
            Gap::Refused | Gap::Place(_) => {
                let words = match self.kind {
                    ColumnKind::Category => "\"category\"",
                    _ => "\"mean\", \"median\" or a number",
                };
                Err(format!("a value is missing: the schema accepts that with missing = {words}"))
            }
        }
    }

    fn find(&self, cell: Cell<'_>) -> Option<usize> {
        let by_number = |value: f64| {
            self.numbers.iter().find(|(number, _)| *number == value).map(|(_, place)| *place)
        };
        match cell {
            Cell::Empty => None,
            Cell::Text(text) => match self.places.get(text) {
                Some(place) => Some(*place),
                None if self.numbers.is_empty() => None,
                None => by_number(cell.number()?),
            },
            Cell::Number(value) => by_number(value),
            Cell::Bool(value) => {
                let names: [&[u8]; 2] =
                    if value { [b"True", b"true"] } else { [b"False", b"false"] };
                names.into_iter().find_map(|name| self.places.get(name).copied())
            }
        }
    }
}

/// Whether a cell has no value.
pub(super) fn is_missing(cell: Cell<'_>) -> bool {
    match cell {
        Cell::Empty => true,
        Cell::Text(text) => {
            text.len() <= 4 && MISSING.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(text))
        }
        Cell::Number(value) => value.is_nan(),
        Cell::Bool(_) => false,
    }
}

/// A cell as a boolean.
pub(super) fn boolean(cell: Cell<'_>) -> Option<bool> {
    match cell {
        Cell::Empty => None,
        Cell::Bool(value) => Some(value),
        Cell::Number(value) if value == 0.0 || value == 1.0 => Some(value == 1.0),
        Cell::Number(_) => None,
        Cell::Text(text) => {
            let word = BOOLEANS.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(text));
            match word {
                Some((_, value)) => Some(*value),
                None => match cell.number() {
                    Some(value) if value == 0.0 || value == 1.0 => Some(value == 1.0),
                    _ => None,
                },
            }
        }
    }
}

/// A date as days since 1970-01-01; a time without a zone is in UTC.
pub(super) fn date(cell: Cell<'_>) -> Option<f32> {
    let Cell::Text(text) = cell else { return None };
    let text = std::str::from_utf8(text).ok()?;
    // The parser also accepts weeks and days of the year, which tables rarely mean.
    let dashes = text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    if !dashes || text.len() > 40 {
        return None;
    }
    let epoch = datetime!(1970-01-01 0:00 UTC);
    if text.len() == 10 {
        let date = Date::parse(text, &Iso8601::DATE).ok()?;
        return Some((date - epoch.date()).whole_days() as f32);
    }
    // A blank between date and time, as spreadsheets write it.
    let joined = text.replacen(' ', "T", 1);
    let moment = OffsetDateTime::parse(&joined, &Iso8601::DATE_TIME_OFFSET)
        .or_else(|_| {
            PrimitiveDateTime::parse(&joined, &Iso8601::DATE_TIME)
                .map(PrimitiveDateTime::assume_utc)
        })
        .ok()?;
    Some(((moment - epoch).as_seconds_f64() / 86_400.0) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnKind) -> Column {
        Column { name: "c".into(), kind, values: None, other: false, missing: Missing::Refuse }
    }

    fn encode(column: &Column, text: &str) -> Result<Vec<f32>, String> {
        let mut out = Vec::new();
        Code::of_column(column).encode(Cell::of_text(text.as_bytes()), &mut out)?;
        Ok(out)
    }

    #[test]
    fn dates_are_days_since_1970() {
        let date = column(ColumnKind::Date);
        for (text, days) in [
            ("1970-01-01", 0.0),
            ("1969-12-31", -1.0),
            ("2000-03-01", 11_017.0),
            ("2024-02-29", 19_782.0),
            ("2024-02-29T12:00:00Z", 19_782.5),
            ("2024-02-29 06:00:00", 19_782.25),
            ("2024-02-29T06:00", 19_782.25),
            ("2024-02-29T12:00:00+06:00", 19_782.25),
        ] {
            assert_eq!(encode(&date, text), Ok(vec![days]), "{text}");
        }
        for text in ["2023-02-29", "17.5.2024", "yesterday", "2024", "1e5", "2024-13-01", "20240"] {
            assert!(encode(&date, text).unwrap_err().contains("a date is needed"), "{text}");
        }
    }

    #[test]
    fn booleans_have_many_words() {
        let boolean = column(ColumnKind::Boolean);
        for (text, value) in
            [("TRUE", 1.0), ("False", 0.0), ("yes", 1.0), ("N", 0.0), ("1", 1.0), ("0.0", 0.0)]
        {
            assert_eq!(encode(&boolean, text), Ok(vec![value]), "{text}");
        }
        assert!(encode(&boolean, "2").unwrap_err().contains("true or false"));
    }

    #[test]
    fn a_category_has_a_feature_for_each_value() {
        let values = Some(vec!["f".to_string(), "m".to_string(), "3".to_string()]);
        let category = Column { values, ..column(ColumnKind::Category) };
        assert_eq!(encode(&category, "m"), Ok(vec![0.0, 1.0, 0.0]));
        assert_eq!(encode(&category, "3.0"), Ok(vec![0.0, 0.0, 1.0]));
        let problem = encode(&category, "x").unwrap_err();
        assert!(problem.contains("f, m, 3 are accepted"), "{problem}");
        assert!(encode(&category, "?").unwrap_err().contains("missing = \"category\""));

        let other = Column { other: true, ..category.clone() };
        assert_eq!(encode(&other, "x"), Ok(vec![0.0, 0.0, 0.0, 1.0]));
        let both = Column { missing: Missing::Category, ..other.clone() };
        assert_eq!(encode(&both, "NA"), Ok(vec![0.0, 0.0, 0.0, 0.0, 1.0]));
        let joined = Column { missing: Missing::Other, ..other };
        assert_eq!(encode(&joined, ""), Ok(vec![0.0, 0.0, 0.0, 1.0]));
        // A listed value is one, even if it also stands for a missing one elsewhere.
        let named = Column { values: Some(vec!["none".into()]), ..category };
        assert_eq!(encode(&named, "none"), Ok(vec![1.0]));
    }

    #[test]
    fn missing_numbers_become_what_the_schema_says() {
        let number = |missing| Column { missing, ..column(ColumnKind::Number) };
        for text in ["", "NA", "nan", "NULL", "?"] {
            assert!(encode(&number(Missing::Refuse), text).unwrap_err().contains("\"mean\""));
            assert_eq!(encode(&number(Missing::Value(2.5)), text), Ok(vec![2.5]), "{text}");
            let mut out = Vec::new();
            let mean = Code::of_column(&number(Missing::Mean));
            let cell = Cell::of_text(text.as_bytes());
            assert_eq!(mean.encode(cell, &mut out), Ok(Encoded::Gap));
            assert_eq!(out, [0.0]);
        }
        assert!(encode(&number(Missing::Mean), "inf").is_err());
        assert!(encode(&number(Missing::Mean), "tall").unwrap_err().contains("a number"));
    }
}
