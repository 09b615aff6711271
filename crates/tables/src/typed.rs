//! Cells of formats whose columns have types: what the values of a column mean as cells.

use std::{fmt, io::Write};

use gradvine::data::{Cell, DataError, MAX_FILE_BYTES, excerpt};
use time::{Date, OffsetDateTime};

/// The rows that are decoded at once.
pub(crate) const BATCH: usize = 1024;

/// A column of a type that is not read.
pub(crate) fn refuse_column(at: usize, name: &str, words: String) -> DataError {
    let problem = "is not read: numbers, booleans, texts (UTF-8), dates, timestamps and decimals \
                   up to 16 bytes are accepted";
    let (column, name, problem) = (Some(at), Some(name.into()), problem.into());
    DataError::Cell { unit: "row", row: None, column, name, value: words, problem }
}

/// More bytes of text in the columns than the largest file has.
pub(crate) fn too_much_text(bytes: u64) -> DataError {
    let problem = format!("at most {MAX_FILE_BYTES} are accepted");
    let (place, found) = ("bytes of text".into(), Some(bytes));
    DataError::Limit { place, found, most: MAX_FILE_BYTES, problem }
}

/// The place of a column in messages.
pub(crate) fn place_of(at: usize, name: &str) -> String {
    format!("column {at} ({})", excerpt(name))
}

/// The greatest whole number to which `f64` holds all.
const WHOLE: u128 = 1 << 53;

pub(crate) const SECONDS_A_DAY: i64 = 86_400;
pub(crate) const NANOS: u64 = 1_000_000_000;

/// The value of a cell, decoded.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    Empty,
    Number(f64),
    Bool(bool),
    /// From here to there in the texts that are made.
    Made(usize, usize),
    /// A text of the file, at this position of what the reader keeps.
    Stored(usize),
}

/// The decoded cells of some rows of a column.
#[derive(Default)]
pub(crate) struct Cells {
    slots: Vec<Slot>,
    /// Texts that are made from numbers.
    made: Vec<u8>,
}

impl Cells {
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.made.clear();
    }

    pub(crate) fn push(&mut self, slot: Slot) {
        self.slots.push(slot);
    }

    /// The bytes of texts that are made.
    pub(crate) fn made_bytes(&self) -> usize {
        self.made.len()
    }

    /// The cell of a row; `stored` returns the text of the file at a position.
    pub(crate) fn cell<'c>(
        &'c self,
        row: usize,
        stored: impl FnOnce(usize) -> &'c [u8],
    ) -> Cell<'c> {
        match self.slots[row] {
            Slot::Empty => Cell::Empty,
            Slot::Number(value) => Cell::Number(value),
            Slot::Bool(value) => Cell::Bool(value),
            Slot::Made(from, to) => Cell::Text(&self.made[from..to]),
            Slot::Stored(at) => Cell::of_text(stored(at)),
        }
    }

    fn text(&mut self, text: fmt::Arguments<'_>) -> Slot {
        let from = self.made.len();
        // Writing to memory cannot fail.
        let _ = self.made.write_fmt(text);
        Slot::Made(from, self.made.len())
    }

    /// A whole number: its digits, if `f64` does not hold it.
    pub(crate) fn whole(&mut self, value: i128) -> Slot {
        if value.unsigned_abs() <= WHOLE {
            Slot::Number(value as f64)
        } else {
            self.text(format_args!("{value}"))
        }
    }

    /// A whole number divided by 10 to the power of `scale`.
    pub(crate) fn decimal(&mut self, value: i128, scale: usize) -> Slot {
        let digits = format!("{:0>1$}", value.unsigned_abs(), scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let sign = if value < 0 { "-" } else { "" };
        let point = if scale > 0 { "." } else { "" };
        self.text(format_args!("{sign}{whole}{point}{fraction}"))
    }

    /// A date, so many days after 1970-01-01.
    ///
    /// # Errors
    /// If its year is not from 0 to 9999.
    pub(crate) fn date(&mut self, days: i64) -> Result<Slot, String> {
        let date = moment_at(days.saturating_mul(SECONDS_A_DAY)).ok_or_else(|| {
            format!("a date {days} days from 1970-01-01, but a year from 0 to 9999 is needed")
        })?;
        let day = iso(date.date());
        Ok(self.text(format_args!("{day}")))
    }

    /// A moment, so many parts of a second after 1970-01-01T00:00:00.
    ///
    /// # Errors
    /// As [`Cells::date`].
    pub(crate) fn moment(
        &mut self,
        value: i64,
        per_second: i64,
        utc: bool,
    ) -> Result<Slot, String> {
        let nanos = value.rem_euclid(per_second) as u64 * (NANOS / per_second as u64);
        self.text_of_moment(value.div_euclid(per_second), nanos, utc)
    }

    /// A moment, so many seconds and nanoseconds after 1970-01-01T00:00:00.
    ///
    /// # Errors
    /// As [`Cells::date`].
    pub(crate) fn text_of_moment(
        &mut self,
        seconds: i64,
        nanos: u64,
        utc: bool,
    ) -> Result<Slot, String> {
        let moment = moment_at(seconds).ok_or_else(|| {
            format!("a timestamp {seconds} s from 1970-01-01, but a year from 0 to 9999 is needed")
        })?;
        let (hour, minute, second) = moment.to_hms();
        let fraction = match nanos {
            0 => String::new(),
            _ => format!(".{nanos:09}").trim_end_matches('0').to_string(),
        };
        let (day, zone) = (iso(moment.date()), if utc { "Z" } else { "" });
        Ok(self.text(format_args!("{day}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")))
    }
}

/// A moment so many seconds after 1970-01-01T00:00:00, if its year has 4 digits.
fn moment_at(seconds: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(seconds).ok().filter(|moment| moment.year() >= 0)
}

fn iso(date: Date) -> String {
    format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_numbers_that_are_dates_and_decimals() {
        let text = |make: fn(&mut Cells) -> Result<Slot, String>| {
            let mut cells = Cells::default();
            let slot = match make(&mut cells) {
                Ok(slot) => slot,
                Err(problem) => return problem,
            };
            cells.push(slot);
            match cells.cell(0, |_| b"") {
                Cell::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                other => panic!("no text: {other:?}"),
            }
        };
        assert_eq!(text(|cells| Ok(cells.decimal(-5, 2))), "-0.05");
        assert_eq!(text(|cells| Ok(cells.decimal(12345, 2))), "123.45");
        assert_eq!(text(|cells| Ok(cells.decimal(i128::MIN, 0))), i128::MIN.to_string());
        assert_eq!(text(|cells| cells.date(-1)), "1969-12-31");
        assert_eq!(text(|cells| cells.date(19_860)), "2024-05-17");
        assert_eq!(text(|cells| cells.moment(-1, 1000, true)), "1969-12-31T23:59:59.999Z");
        assert_eq!(
            text(|cells| cells.moment(1_715_934_600_000_000_001, 1_000_000_000, false)),
            "2024-05-17T08:30:00.000000001"
        );
        assert!(text(|cells| cells.date(i64::from(i32::MAX))).contains("a year from 0 to 9999"));
        assert!(text(|cells| cells.date(i64::MIN)).contains("a year from 0 to 9999"));
        assert!(text(|cells| cells.date(-800_000)).contains("a year from 0 to 9999"));
        assert!(text(|cells| cells.moment(-70_000_000_000, 1, true)).contains("a year from 0"));
        assert_eq!(text(|cells| Ok(cells.whole(-(1 << 53) - 1))), "-9007199254740993");
    }
}
