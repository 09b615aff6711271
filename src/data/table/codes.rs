//! Features from the cells of a schema's columns.

use std::collections::HashMap;

use time::{
    Date, Duration, OffsetDateTime, PrimitiveDateTime, format_description::well_known::Iso8601,
    macros::datetime,
};

use super::super::{
    DataError,
    cell::Cell,
    columns::list,
    others::perhaps,
    schema::{Column, ColumnKind, EPOCH, Missing, Schema},
};

/// Seconds of a day, and those by which a time may be rounded.
const SECONDS_A_DAY: f64 = 86_400.0;
const HELD_TO_S: f64 = 1.0;

/// Texts that stand for a missing value, in letters of any case, beside an empty cell.
const MISSING: [&str; 12] =
    ["na", "n/a", "nan", "-nan", "null", "none", "nil", "?", "#n/a", "#na", "<na>", "\\n"];

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
pub(crate) struct Code {
    kind: ColumnKind,
    /// Of a category: the feature of each value, by its [`plain`] text.
    places: HashMap<Vec<u8>, usize>,
    /// The values, for messages.
    values: Vec<String>,
    /// The feature of other values.
    other: Option<usize>,
    width: usize,
    missing: Gap,
    /// Of a date: the days from 1970-01-01 to its origin, and whether the schema states it.
    origin: (f64, bool),
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
pub(crate) enum Encoded {
    /// A value.
    Value,
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
        Code {
            kind: column.kind,
            places: values.iter().map(|value| plain(value.as_bytes()).to_vec()).zip(0..).collect(),
            width: column.width().unwrap_or(0),
            values,
            other,
            missing,
            origin: (days(column.origin().as_bytes()).unwrap_or(0.0), column.origin.is_some()),
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
            ColumnKind::Date => date(cell).map(|days| self.since_origin(days)).transpose()?,
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

    /// The days from the origin to a date.
    ///
    /// # Errors
    /// If its time is lost, and another origin would keep it.
    fn since_origin(&self, days: f64) -> Result<f32, String> {
        let (origin, is_stated) = self.origin;
        let value = (days - origin) as f32;
        if is_stated || is_held(days) {
            return Ok(value);
        }
        Err(format!(
            "days since {EPOCH} hold this time only to within minutes: set an origin near the \
             dates in the column's schema, such as origin = \"{}\"",
            day_of(days).unwrap_or_else(|| EPOCH.into())
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
                        "no value of this category: {} are accepted; with other = true also \
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

/// The text by which a value of a category, or the name of a class, is found. It is the text
/// itself, except that a whole number is the same with a fraction of zeros, as programs write
/// columns with gaps: `3.0` is `3`, but `03`, `3e0` and `+3` are other texts.
pub(crate) fn plain(text: &[u8]) -> &[u8] {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let Some(point) = memchr::memchr(b'.', digits) else { return text };
    let (whole, zeros) = (&digits[..point], &digits[point + 1..]);
    let is_whole =
        whole == b"0" || (whole.iter().all(u8::is_ascii_digit) && !whole.starts_with(b"0"));
    let has_zeros = !zeros.is_empty() && zeros.iter().all(|byte| *byte == b'0');
    if is_whole && !whole.is_empty() && has_zeros {
        &text[..text.len() - zeros.len() - 1]
    } else {
        text
    }
}

/// The plain text of a number in a column of numbers.
pub(crate) fn digits(value: f64) -> String {
    // Without the sign of a zero.
    (value + 0.0).to_string()
}

/// Whether a cell has no value.
pub(crate) fn is_missing(cell: Cell<'_>) -> bool {
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
pub(crate) fn boolean(cell: Cell<'_>) -> Option<bool> {
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

/// Whether an `f32` of these days since 1970-01-01 is the same time, to the second.
pub(crate) fn is_held(days: f64) -> bool {
    (f64::from(days as f32) - days).abs() * SECONDS_A_DAY <= HELD_TO_S
}

/// The date, such as `2024-05-17`, on which a time in days since 1970-01-01 is.
pub(crate) fn day_of(days: f64) -> Option<String> {
    let date =
        datetime!(1970-01-01 0:00 UTC).checked_add(Duration::days(days.floor() as i64))?.date();
    let (year, month, day) = date.to_calendar_date();
    (0..=9999).contains(&year).then(|| format!("{year:04}-{:02}-{day:02}", u8::from(month)))
}

/// A number with a comma before its fraction, as `1.234,5`, or a date as `17.05.2024`: other
/// writings, which are not read.
pub(crate) fn foreign(cell: Cell<'_>) -> Option<()> {
    let Cell::Text(text) = cell else { return None };
    let text = std::str::from_utf8(text).ok()?;
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = || {
        let (whole, fraction) = text.strip_prefix('-').unwrap_or(text).split_once(',')?;
        let thousands = whole.split('.').skip(1).all(|part| part.len() == 3);
        (is_digits(fraction) && whole.split('.').all(is_digits) && thousands).then_some(())
    };
    let date = || {
        let day = text.split([' ', 'T']).next()?;
        let parts: Vec<&str> = day.split('.').collect();
        let [day, month, year] = parts[..] else { return None };
        let fits = day.len() <= 2 && month.len() <= 2 && [2, 4].contains(&year.len());
        (fits && [day, month, year].into_iter().all(is_digits)).then_some(())
    };
    number().or_else(date)
}

/// A date as days since 1970-01-01; a time without a zone is in UTC.
pub(crate) fn date(cell: Cell<'_>) -> Option<f64> {
    let Cell::Text(text) = cell else { return None };
    days(text)
}

/// The same of a text.
pub(crate) fn days(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    // The parser also accepts weeks and days of the year, which tables rarely mean.
    let dashes = text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    if !dashes || text.len() > 40 {
        return None;
    }
    let epoch = datetime!(1970-01-01 0:00 UTC);
    if text.len() == 10 {
        let date = Date::parse(text, &Iso8601::DATE).ok()?;
        return Some((date - epoch.date()).whole_days() as f64);
    }
    // A blank between date and time, as spreadsheets write it.
    let joined = text.replacen(' ', "T", 1);
    let moment = OffsetDateTime::parse(&joined, &Iso8601::DATE_TIME_OFFSET)
        .or_else(|_| {
            PrimitiveDateTime::parse(&joined, &Iso8601::DATE_TIME)
                .map(PrimitiveDateTime::assume_utc)
        })
        .ok()?;
    Some((moment - epoch).as_seconds_f64() / SECONDS_A_DAY)
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
        assert_eq!(day_of(19_860.99).as_deref(), Some("2024-05-17"));
        assert_eq!(day_of(-0.5).as_deref(), Some("1969-12-31"));
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
