//! Apache Parquet: the columns of a table one after another in row groups, encoded and compressed.
//!
//! Cells have types: numbers and booleans are handed over as such; dates and timestamps as text of
//! ISO 8601, decimals and whole numbers beyond 2^53 as the text of their digits; a null is an empty
//! cell. Columns that are not used are not decoded and may have any type.
//!
//! **Limits.** The file's bytes are in memory, its row groups are decoded one by one and in batches
//! of [`BATCH`] rows. What a file claims about itself is compared with its length before memory is
//! allocated for it; see `pages`.

mod kinds;
mod pages;

use std::sync::Arc;

use bytes::Bytes;
use gradvine::data::{Cell, DataError, Format, Heading, MAX_FILE_BYTES, Rows, plausible_size};
use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader},
    data_type::{ByteArray, DataType},
    errors::ParquetError,
    file::metadata::{ParquetMetaDataReader, RowGroupMetaData},
    schema::types::SchemaDescriptor,
};

use self::{
    kinds::Kind,
    pages::{Checked, Pages},
};
use crate::typed::{
    BATCH, Cells, NANOS, SECONDS_A_DAY, Slot, place_of, refuse_column, too_much_text,
};

pub(crate) const FORMAT: Format =
    Format::table("parquet", "a Parquet file", &[".parquet"], &[b"PAR1"], read);

/// Reads the rows of a file.
fn read(bytes: Vec<u8>, rows: &mut dyn Rows) -> Result<(), DataError> {
    let bytes = Bytes::from(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).map_err(|error| {
        let problem = format!("the Parquet file is damaged, cut short or encrypted: {error}");
        DataError::format("its description of itself", problem)
    })?;
    let schema = metadata.file_metadata().schema_descr();
    let columns = columns(schema);
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    check_rows(metadata.row_groups(), schema.num_columns(), bytes.len())?;
    rows.begin(Heading { columns: columns.len(), names: Some(names), classes: None, unit: "row" })?;
    let used: Vec<bool> = (0..columns.len()).map(|at| rows.uses(at)).collect();
    for (at, column) in columns.iter().enumerate().filter(|(at, _)| used[*at]) {
        if let Err(words) = &column.kind
            && !rows.skip(at, words)
        {
            return Err(refuse_column(at, &column.name, words.clone()));
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
                return Err(too_much_text(text_bytes));
            }
            for row in 0..size {
                number += 1;
                rows.add(number, &|column| {
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
        place_of(at, &self.name)
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
fn check_rows(groups: &[RowGroupMetaData], columns: usize, length: usize) -> Result<(), DataError> {
    let most = plausible_size(length as u64);
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
        return Err(DataError::Limit { place: "rows".into(), found: Some(rows), most, problem });
    }
    Ok(())
}

fn damaged(place: &str, problem: &str) -> DataError {
    let problem = format!("the Parquet file is damaged or has what is not read: {problem}");
    DataError::format(place, problem)
}

/// The cells of some rows of a column.
#[derive(Default)]
struct Batch {
    cells: Cells,
    /// The texts of these rows, as the file has them.
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
        batch.cells.clear();
        batch.stored.clear();
        let (kind, nullable) = (*kind, *is_nullable);
        match reader {
            ColumnReader::BoolColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |_, value| Ok(Slot::Bool(value)))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| match kind {
                    Kind::Unsigned => Ok(batch.cells.whole(i128::from(value as u32))),
                    Kind::Date => batch.cells.date(i64::from(value)),
                    Kind::Decimal(scale) => Ok(batch.cells.decimal(i128::from(value), scale)),
                    _ => Ok(batch.cells.whole(i128::from(value))),
                })
            }
            ColumnReader::Int64ColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| match kind {
                    Kind::Unsigned => Ok(batch.cells.whole(i128::from(value as u64))),
                    Kind::Decimal(scale) => Ok(batch.cells.decimal(i128::from(value), scale)),
                    Kind::Timestamp { per_second, utc } => {
                        batch.cells.moment(value, per_second, utc)
                    }
                    _ => Ok(batch.cells.whole(i128::from(value))),
                })
            }
            ColumnReader::Int96ColumnReader(reader) => {
                fill(reader, rows, nullable, batch, |batch, value| {
                    let [low, high, day] = *value.data() else { return Err("96 bits".into()) };
                    let seconds = (i64::from(day) - JULIAN_DAY_OF_1970) * SECONDS_A_DAY;
                    let nanos = (u64::from(high) << 32) | u64::from(low);
                    let seconds = seconds + (nanos / NANOS) as i64;
                    batch.cells.text_of_moment(seconds, nanos % NANOS, false)
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
                    Kind::Decimal(scale) => Ok(batch.cells.decimal(integer(value.data())?, scale)),
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
                    (Kind::Decimal(scale), bytes) => {
                        Ok(batch.cells.decimal(integer(bytes)?, scale))
                    }
                    _ => Err("a value of another length than its column's".into()),
                })
            }
        }?;
        let stored: usize = batch.stored.iter().map(|text| text.data().len()).sum();
        Ok((stored + batch.cells.made_bytes()) as u64)
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        let Batch { cells, stored, .. } = &self.batch;
        cells.cell(row, |at| stored[at].data())
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
        batch.cells.push(slot);
    }
    batch.levels = levels;
    Ok(())
}

/// The number of 1970-01-01, from which the oldest type of timestamps counts.
const JULIAN_DAY_OF_1970: i64 = 2_440_588;

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

#[cfg(test)]
mod tests;
