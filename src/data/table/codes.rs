//! Features from the cells of a schema's columns.

use std::collections::HashMap;

use super::{
    cell::Cell,
    date::{Moment, Origin, date, moment},
    meaning::{boolean, digits, is_missing, plain},
    schema::{Column, ColumnKind, EPOCH, Missing, Schema},
    spelling::perhaps,
};
use crate::data::{DataError, excerpt::list};

/// How the cells of one column become features.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    kind: ColumnKind,
    /// Of a category: the feature of each value, by its [`plain`] text.
    places: HashMap<Vec<u8>, usize>,
    values: Vec<String>,
    /// The feature of other values.
    other: Option<usize>,
    width: usize,
    missing: Gap,
    /// Of a date: its origin, if the schema states it.
    origin: Option<Moment>,
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Encoded {
    Value,
    /// A number, or the days of a date, as it is in the file: its feature is rounded.
    Number(f64),
    /// A missing value that becomes what all nodes agree on: 0 is in its place.
    Gap,
    /// A value of a category that is not listed.
    Other,
}

impl Code {
    /// The codes of the columns that become features.
    ///
    /// # Errors
    /// If the values of a category are not known.
    pub(super) fn of(schema: &Schema) -> Result<Vec<Code>, DataError> {
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
        Code {
            kind: column.kind,
            places: values.iter().map(|value| plain(value.as_bytes()).to_vec()).zip(0..).collect(),
            width: column.width().unwrap_or(0),
            values,
            other,
            missing,
            origin: column.origin.as_ref().and_then(|origin| moment(origin.as_bytes())),
        }
    }

    /// Whether missing values become what all nodes agree on.
    pub(super) fn is_agreed(&self) -> bool {
        matches!(self.missing, Gap::Agreed)
    }

    pub(super) fn is_date(&self) -> bool {
        self.kind == ColumnKind::Date
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Adds the features of a cell.
    ///
    /// # Errors
    /// What is wrong with the cell, and what is accepted.
    pub(super) fn encode(&self, cell: Cell<'_>, out: &mut Vec<f32>) -> Result<Encoded, String> {
        if self.kind == ColumnKind::Category {
            return self.encode_category(cell, out);
        }
        if is_missing(cell) {
            return self.encode_missing(out);
        }
        let both = |exact: f64| (exact as f32, exact);
        let value = match self.kind {
            ColumnKind::Boolean => boolean(cell).map(|value| both(f64::from(u8::from(value)))),
            ColumnKind::Date => date(cell).map(|at| self.since_origin(at)).transpose()?.map(both),
            _ => cell.rounded(),
        };
        match value {
            Some((value, exact)) if value.is_finite() => {
                out.push(value);
                Ok(Encoded::Number(exact))
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

    /// The days from the origin to a date.
    ///
    /// # Errors
    /// If its time is lost, and another origin would keep it.
    fn since_origin(&self, moment: Moment) -> Result<f64, String> {
        let needed = moment.origin();
        if self.origin.is_some() || needed == Origin::Usual {
            return Ok(moment.days_since(self.origin));
        }
        Err(format!(
            "days since {EPOCH} hold this time only to within minutes: set an origin near the \
             dates in the column's schema, such as origin = \"{}\"",
            moment.text(needed).unwrap_or_else(|| EPOCH.into())
        ))
    }

    fn encode_category(&self, cell: Cell<'_>, out: &mut Vec<f32>) -> Result<Encoded, String> {
        let mut encoded = Encoded::Value;
        let place = match self.find(cell) {
            Some(place) => place,
            None if is_missing(cell) => match self.missing {
                Gap::Place(place) => place,
                _ => return self.encode_missing(out),
            },
            None => {
                encoded = Encoded::Other;
                self.other.ok_or_else(|| {
                    format!(
                        "not a value of this category: {} are accepted; with other = true also \
                         others{}",
                        list(&self.values),
                        perhaps(&self.values, cell)
                    )
                })?
            }
        };
        let start = out.len();
        out.resize(start + self.width, 0.0);
        out[start + place] = 1.0;
        Ok(encoded)
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
        match cell {
            Cell::Empty => None,
            Cell::Text(text) => self.places.get(plain(text)).copied(),
            Cell::Number(value) => self.places.get(digits(value).as_bytes()).copied(),
            Cell::Bool(value) => {
                let names: [&[u8]; 2] =
                    if value { [b"True", b"true"] } else { [b"False", b"false"] };
                names.into_iter().find_map(|name| self.places.get(name).copied())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnKind) -> Column {
        Column {
            name: "c".into(),
            kind,
            values: None,
            other: false,
            missing: Missing::Refuse,
            origin: None,
        }
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
    fn times_are_counted_from_an_origin() {
        let of = |origin: Option<&str>| Column {
            origin: origin.map(String::from),
            ..column(ColumnKind::Date)
        };
        let minute = |minute: u32| format!("2024-05-17T08:{minute:02}:00Z");
        // Of f32 near 19860 every 512th of a day is one: 169 s.
        let problem = encode(&of(None), &minute(31)).unwrap_err();
        assert!(problem.contains("such as origin = \"2024-05-17\""), "{problem}");
        let days = |minute_of: u32| encode(&of(Some("2024-05-17")), &minute(minute_of)).unwrap()[0];
        for at in 0..60u32 {
            let exact = f64::from(8 * 60 + at) / 1440.0;
            assert!((f64::from(days(at)) - exact).abs() * 86_400.0 < 0.01, "{at}");
        }
        assert_eq!(encode(&of(Some("2024-05-10")), "2024-05-17"), Ok(vec![7.0]));
        assert_eq!(encode(&of(Some("2024-05-20")), "2024-05-17"), Ok(vec![-3.0]));
        // A stated origin is the user's choice.
        assert!(encode(&of(Some(EPOCH)), &minute(31)).is_ok());
        let text = |of: &str| {
            let moment = moment(of.as_bytes()).unwrap();
            moment.text(moment.origin()).unwrap()
        };
        for (of, origin) in [
            ("2024-05-17T23:59:59Z", "2024-05-17"),
            ("1969-12-31T11:00:00Z", "1969-12-31"),
            ("2024-05-17T00:00:00.5Z", "2024-05-17T00:00:00Z"),
            ("1969-12-31T23:59:58.25Z", "1969-12-31T23:59:58Z"),
        ] {
            assert_eq!(text(of), origin);
        }
    }

    /// Within a second after midnight, and in steps of 37 microseconds.
    #[test]
    fn times_below_a_second_are_not_lost() {
        let problem = encode(&column(ColumnKind::Date), "2024-05-17T00:00:00.3Z").unwrap_err();
        assert!(problem.contains("such as origin = \"2024-05-17T00:00:00Z\""), "{problem}");
        let origin = Some("2024-05-17T12:30:00Z".to_string());
        let date = Column { origin, ..column(ColumnKind::Date) };
        for step in 0..1000u32 {
            let text = format!("2024-05-17T12:30:01.{:06}Z", 37 * step);
            let exact = 1.0 + f64::from(step) * 37e-6;
            let found = encode(&date, &text).unwrap()[0];
            assert!((f64::from(found) * 86_400.0 - exact).abs() < 2e-7, "{step}");
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
        for other in ["03", "3e0", "+3", "3.", "3.01", "-3"] {
            assert!(encode(&category, other).is_err(), "{other}");
        }
        let codes = Some(vec!["1E2".to_string(), "007".into(), "-4".into(), "0".into()]);
        let coded = Column { values: codes, ..category.clone() };
        for other in ["100", "7", "007.0", "4", "-0"] {
            assert!(encode(&coded, other).is_err(), "{other}");
        }
        let mut out = Vec::new();
        for (value, place) in [(-4.0, 2), (0.0, 3), (-0.0, 3)] {
            out.clear();
            Code::of_column(&coded).encode(Cell::Number(value), &mut out).unwrap();
            assert_eq!(out.iter().position(|one| *one == 1.0), Some(place), "{value}");
        }
        assert!(Code::of_column(&coded).encode(Cell::Number(100.0), &mut out).is_err());
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
        for text in ["", "NA", "nan", "NULL", "?", "#N/A", "<NA>", "\\N"] {
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
