//! Apache Parquet: the columns of a table one after another in row groups, encoded and compressed.
//!
//! Cells have types: numbers and booleans are handed over as such; dates and timestamps as text of
//! ISO 8601, decimals and whole numbers beyond 2^53 as the text of their digits; a null is an empty
//! cell. Columns that nobody needs are not decoded and may have any type.
//!
//! **Limits.** The file's bytes are in memory, its row groups are decoded one by one and in batches
//! of [`BATCH`] rows. What a file claims about itself is compared with its length before memory is
//! allocated for it; see `pages`.

mod kinds;
mod pages;

use std::{io::Write, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::Type,
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::{ByteArray, DataType},
    errors::ParquetError,
    file::metadata::{ParquetMetaDataReader, RowGroupMetaData},
    schema::types::SchemaDescriptor,
};
use time::{Date, OffsetDateTime};

use self::{
    kinds::Kind,
    pages::{Checked, Pages},
};
use super::{
    cell::Cell,
    columns::excerpt,
    encode::{Heading, Rows},
    inflate,
    load::MAX_FILE_BYTES,
};
use crate::config::ConfigError;

/// The rows that are decoded at once.
const BATCH: usize = 1024;

/// The greatest whole number to which `f64` holds all.
const WHOLE: i128 = 1 << 53;

/// Reads the rows of a file.
pub(super) fn read(bytes: Vec<u8>, rows: &mut impl Rows) -> Result<(), ConfigError> {
    let bytes = Bytes::from(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).map_err(|error| {
        let problem = format!("the Parquet file is damaged, cut short or encrypted: {error}");
        ConfigError::at("its description of itself", problem)
    })?;
    let schema = metadata.file_metadata().schema_descr();
    let columns = columns(schema);
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    check_rows(metadata.row_groups(), schema.num_columns(), bytes.len())?;
    rows.begin(Heading { columns: columns.len(), names: Some(names), classes: None, unit: "row" })?;
    let used: Vec<bool> = (0..columns.len()).map(|at| rows.uses(at)).collect();
    for (at, column) in columns.iter().enumerate().filter(|(at, _)| used[*at]) {
        if let Err(words) = &column.kind {
            let problem = "is not read: numbers, booleans, texts (UTF-8), dates, timestamps and \
                           decimals up to 16 bytes are accepted";
            return Err(ConfigError::new(column.place(at), words, problem));
        }
    }
    let announced: i64 = metadata.row_groups().iter().map(RowGroupMetaData::num_rows).sum();
    rows.check_memory(announced as f64)?;
    let pages = Arc::new(Pages::new(bytes));
    let (mut number, mut text_bytes) = (0, 0);
    for group in metadata.row_groups() {
        pages.begin_group();
        let mut decoders = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let decoder = match &column.kind {
                Ok((leaf, kind)) if used[at] => Some(
                    Decoder::new(&pages, group, schema, *leaf, *kind)
                        .map_err(|problem| damaged(&column.place(at), &problem))?,
                ),
                _ => None,
            };
            decoders.push(decoder);
        }
        let mut left = usize::try_from(group.num_rows()).unwrap_or(0);
        while left > 0 {
            let size = left.min(BATCH);
            for (at, decoder) in decoders.iter_mut().enumerate() {
                let Some(decoder) = decoder else { continue };
                text_bytes += decoder.decode(size).map_err(|problem| {
                    let rows = format!("rows {} to {}", number + 1, number + size as u64);
                    damaged(&format!("{rows}, {}", columns[at].place(at)), &problem)
                })?;
            }
            if text_bytes > MAX_FILE_BYTES {
                let problem = format!("at most {MAX_FILE_BYTES} are accepted");
                return Err(ConfigError::new("bytes of text", text_bytes, problem));
            }
            for row in 0..size {
                number += 1;
                rows.add(number, |column| {
                    decoders[column].as_ref().map_or(Cell::Empty, |decoder| decoder.cell(row))
                })?;
            }
            left -= size;
        }
    }
    Ok(())
}

/// A column of the table.
struct Column {
    name: String,
    /// Its position among the columns of values and what it holds; else the name of its type.
    kind: Result<(usize, Kind), String>,
}

impl Column {
    fn place(&self, at: usize) -> String {
        format!("column {at} ({})", excerpt(&self.name))
    }
}

fn columns(schema: &SchemaDescriptor) -> Vec<Column> {
    let fields = schema.root_schema().get_fields();
    let mut columns: Vec<Column> = fields
        .iter()
        .map(|field| Column { name: field.name().into(), kind: Err("a nested type".into()) })
        .collect();
    for leaf in 0..schema.num_columns() {
        let (root, descriptor) = (schema.get_column_root_idx(leaf), schema.column(leaf));
        if fields[root].is_primitive() && descriptor.max_rep_level() == 0 {
            columns[root].kind = Kind::of(&descriptor).map(|kind| (leaf, kind));
        }
    }
    columns
}

/// Checks that the row groups have the columns of the schema, and not more rows than a file of this
/// length may have.
fn check_rows(
    groups: &[RowGroupMetaData],
    columns: usize,
    length: usize,
) -> Result<(), ConfigError> {
    let most = inflate::plausible(length as u64);
    let mut rows = 0;
    for group in groups {
        let Ok(more) = u64::try_from(group.num_rows()) else {
            return Err(damaged("rows", "a row group has less than 0"));
        };
        rows = u64::saturating_add(rows, more);
        if group.num_columns() != columns {
            return Err(damaged("columns", "a row group has others than the file"));
        }
    }
    if rows > most {
        let problem = format!("are announced: at most {most} are accepted in {length} bytes");
        return Err(ConfigError::new("rows", rows, problem));
    }
    Ok(())
}

fn damaged(place: &str, problem: &str) -> ConfigError {
    ConfigError::at(
        place,
        format!("the Parquet file is damaged or has what is not read: {problem}"),
    )
}

/// A decoded cell.
#[derive(Clone, Copy)]
enum Slot {
    Empty,
    Number(f64),
    Bool(bool),
    /// From here to there in `Batch::made`.
    Made(usize, usize),
    /// At this position in `Batch::stored`.
    Stored(usize),
}

/// The cells of some rows of a column.
#[derive(Default)]
struct Batch {
    slots: Vec<Slot>,
    /// Texts that are made from numbers.
    made: Vec<u8>,
    /// Texts of the file.
    stored: Vec<ByteArray>,
    levels: Vec<i16>,
}

/// Decodes the cells of a column in a row group.
struct Decoder {
    reader: ColumnReader,
    kind: Kind,
    is_nullable: bool,
    batch: Batch,
}

impl Decoder {
    fn new(
        pages: &Arc<Pages>,
        group: &RowGroupMetaData,
        schema: &SchemaDescriptor,
        leaf: usize,
        kind: Kind,
    ) -> Result<Decoder, String> {
        let descriptor = schema.column(leaf);
        let checked = Checked::new(pages, group, leaf, &descriptor)?;
        let is_nullable = descriptor.max_def_level() > 0;
        let reader = get_column_reader(descriptor, Box::new(checked));
        Ok(Decoder { reader, kind, is_nullable, batch: Batch::default() })
    }

    /// Decodes the next rows; returns how many bytes of text are in them.
    fn decode(&mut self, rows: usize) -> Result<u64, String> {
        let Decoder { reader, kind, is_nullable, batch } = self;
        batch.slots.clear();
        batch.made.clear();
        batch.stored.clear();
        let (kind, nullable) = (*kind, *is_nullable);
        match reader {
            ColumnReader::BoolColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |_, value| Ok(Slot::Bool(value)))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| match kind {
                    Kind::Unsigned => batch.whole(i128::from(value as u32)),
                    Kind::Date => batch.date(i64::from(value)),
                    Kind::Decimal(scale) => batch.decimal(i128::from(value), scale),
                    _ => batch.whole(i128::from(value)),
                })
            }
            ColumnReader::Int64ColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| match kind {
                    Kind::Unsigned => batch.whole(i128::from(value as u64)),
                    Kind::Decimal(scale) => batch.decimal(i128::from(value), scale),
                    Kind::Timestamp { per_second, utc } => batch.moment(value, per_second, utc),
                    _ => batch.whole(i128::from(value)),
                })
            }
            ColumnReader::Int96ColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| {
                    let [low, high, day] = *value.data() else { return Err("96 bits".into()) };
                    let seconds = (i64::from(day) - JULIAN_DAY_OF_1970) * SECONDS_A_DAY;
                    let nanos = (u64::from(high) << 32) | u64::from(low);
                    let seconds = seconds + (nanos / NANOS) as i64;
                    batch.text_of_moment(seconds, nanos % NANOS, false)
                })
            }
            ColumnReader::FloatColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |_, value| Ok(Slot::Number(value.into())))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |_, value| Ok(Slot::Number(value)))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| match kind {
                    Kind::Decimal(scale) => batch.decimal(integer(value.data())?, scale),
                    _ => {
                        if std::str::from_utf8(value.data()).is_err() {
                            return Err("a text is not UTF-8".into());
                        }
                        batch.stored.push(value);
                        Ok(Slot::Stored(batch.stored.len() - 1))
                    }
                })
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| match (kind, value.data()) {
                    (Kind::Half, &[low, high]) => {
                        Ok(Slot::Number(half::f16::from_le_bytes([low, high]).to_f64()))
                    }
                    (Kind::Decimal(scale), bytes) => batch.decimal(integer(bytes)?, scale),
                    _ => Err("a value of another length than its column's".into()),
                })
            }
        }?;
        let stored: usize = batch.stored.iter().map(|text| text.data().len()).sum();
        Ok((stored + batch.made.len()) as u64)
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        match self.batch.slots[row] {
            Slot::Empty => Cell::Empty,
            Slot::Number(value) => Cell::Number(value),
            Slot::Bool(value) => Cell::Bool(value),
            Slot::Made(from, to) => Cell::Text(&self.batch.made[from..to]),
            Slot::Stored(at) => Cell::of_text(self.batch.stored[at].data()),
        }
    }
}

/// Decodes the cells of `rows` rows; `slot` makes a cell from a value.
fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    nullable: bool,
    batch: &mut Batch,
    slot: impl Fn(&mut Batch, T::T) -> Result<Slot, String>,
) -> Result<(), String> {
    let (mut read, mut values) = (0, Vec::new());
    batch.levels.clear();
    while read < rows {
        let levels = nullable.then_some(&mut batch.levels);
        let (more, _, _) = reader
            .read_records(rows - read, levels, None, &mut values)
            .map_err(|error: ParquetError| error.to_string())?;
        if more == 0 {
            return Err("the column ends before its row group".into());
        }
        read += more;
    }
    let levels = std::mem::take(&mut batch.levels);
    let present = levels.iter().filter(|&&level| level > 0).count();
    let expected = if nullable { present } else { rows };
    if (nullable && levels.len() != rows) || values.len() != expected {
        return Err(format!("{} values, but {expected} are needed", values.len()));
    }
    let mut values = values.into_iter();
    for row in 0..rows {
        let is_present = levels.get(row).is_none_or(|&level| level > 0);
        let value = if is_present { values.next() } else { None };
        let slot = value.map_or(Ok(Slot::Empty), |value| slot(batch, value))?;
        batch.slots.push(slot);
    }
    batch.levels = levels;
    Ok(())
}

const SECONDS_A_DAY: i64 = 86_400;
const NANOS: u64 = 1_000_000_000;
/// The number of 1970-01-01, from which the oldest type of timestamps counts.
const JULIAN_DAY_OF_1970: i64 = 2_440_588;

impl Batch {
    fn text(&mut self, text: std::fmt::Arguments<'_>) -> Slot {
        let from = self.made.len();
        // Writing to memory cannot fail.
        let _ = self.made.write_fmt(text);
        Slot::Made(from, self.made.len())
    }

    fn whole(&mut self, value: i128) -> Result<Slot, String> {
        Ok(if value.abs() <= WHOLE {
            Slot::Number(value as f64)
        } else {
            self.text(format_args!("{value}"))
        })
    }

    fn decimal(&mut self, value: i128, scale: usize) -> Result<Slot, String> {
        let digits = format!("{:0>1$}", value.unsigned_abs(), scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let sign = if value < 0 { "-" } else { "" };
        let point = if scale > 0 { "." } else { "" };
        Ok(self.text(format_args!("{sign}{whole}{point}{fraction}")))
    }

    fn date(&mut self, days: i64) -> Result<Slot, String> {
        let date = OffsetDateTime::from_unix_timestamp(days * SECONDS_A_DAY)
            .map_err(|_| format!("a date {days} days from 1970-01-01: its year has 4 digits"))?;
        let day = iso(date.date());
        Ok(self.text(format_args!("{day}")))
    }

    fn moment(&mut self, value: i64, per_second: i64, utc: bool) -> Result<Slot, String> {
        let nanos = value.rem_euclid(per_second) as u64 * (NANOS / per_second as u64);
        self.text_of_moment(value.div_euclid(per_second), nanos, utc)
    }

    fn text_of_moment(&mut self, seconds: i64, nanos: u64, utc: bool) -> Result<Slot, String> {
        let moment = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| {
            format!("a timestamp {seconds} s from 1970-01-01: its year has 4 digits")
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

fn iso(date: Date) -> String {
    format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())
}

/// The whole number of these bytes, the most significant first, in two's complement.
fn integer(bytes: &[u8]) -> Result<i128, String> {
    if bytes.is_empty() || bytes.len() > 16 {
        return Err(format!("a decimal of {} bytes: 1 to 16 are accepted", bytes.len()));
    }
    let fill = if bytes[0] >= 0x80 { 0xFF } else { 0 };
    let mut all = [fill; 16];
    all[16 - bytes.len()..].copy_from_slice(bytes);
    Ok(i128::from_be_bytes(all))
}

/// The least number of bytes of a value, as it is in a dictionary.
fn least_bytes(kind: Type, length: i32) -> Option<u64> {
    match kind {
        Type::BOOLEAN => None,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => Some(4),
        Type::INT64 | Type::DOUBLE => Some(8),
        Type::INT96 => Some(12),
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(length).ok().filter(|&length| length > 0),
    }
}

#[cfg(test)]
mod tests;
