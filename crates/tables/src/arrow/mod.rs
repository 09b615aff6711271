//! Arrow's own format, as files (also called Feather, version 2) and as streams: parts of a table
//! with its columns one after another, as they are in memory or compressed.
//!
//! Cells become what `parquet` makes of them; dictionaries and texts of all lengths are read.
//! Columns that are not used are not decoded and may have any type.
//!
//! **Limits.** The file's bytes are in memory, its parts are decoded one by one. What a file claims
//! about itself is compared with its length before the crate `arrow-ipc` decodes it, which then
//! checks the values of each column; see `messages`.

mod messages;
mod values;

use std::{collections::HashMap, sync::Arc};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::{
    MetadataVersion,
    reader::{read_dictionary, read_record_batch},
};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use gradvine::{
    data::{Cell, DataError, Format, Heading, MAX_FILE_BYTES, Rows},
    memory,
};

use self::{
    messages::{FILE, MESSAGE, Message, Messages},
    values::Values,
};
use crate::typed::{BATCH, place_of, refuse_column, too_much_text};

pub(crate) const FORMAT: Format = Format::table(
    "arrow",
    "an Arrow file",
    &[".arrow", ".arrows", ".feather"],
    &[FILE, MESSAGE],
    read,
);

/// Reads the rows of a file or of a stream.
fn read(bytes: Vec<u8>, rows: &mut dyn Rows) -> Result<(), DataError> {
    let messages = Messages::read(bytes).map_err(|problem| damaged("the file", &problem))?;
    let Messages { schema, dictionaries, messages, rows: announced, unpacked } = messages;
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    rows.begin(Heading { columns: names.len(), names: Some(names), classes: None, unit: "row" })?;
    let mut used = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        if !rows.uses(at) {
            continue;
        }
        match values::check(field.data_type()) {
            Ok(()) => used.push(at),
            Err(words) if rows.skip(at, &words) => (),
            Err(words) => return Err(refuse_column(at, field.name(), words)),
        }
    }
    rows.check_memory(announced as f64)?;
    let remedy = "write the table in smaller parts, or uncompressed";
    memory::require(unpacked, "bytes", &unpacked.to_string(), "a compressed part", remedy)
        .map_err(DataError::Memory)?;
    let ids = used.iter().filter_map(|at| dictionaries.get(at).copied()).collect();
    let mut table =
        Table::new(schema, used, ids).map_err(|problem| damaged("columns", &problem))?;
    for message in &messages {
        if let Some(batch) = table.decode(message)? {
            table.add(&batch, rows)?;
        }
    }
    Ok(())
}

fn damaged(place: &str, problem: &str) -> DataError {
    let problem = format!("the Arrow file is damaged or has what is not read: {problem}");
    DataError::format(place, problem)
}

/// The used columns of a table.
struct Table {
    schema: SchemaRef,
    /// The positions of the used columns in `schema`.
    used: Vec<usize>,
    /// The schema of these alone.
    used_schema: Schema,
    /// The dictionaries that they have.
    ids: Vec<i64>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// The rows that were read.
    rows: u64,
    text_bytes: u64,
}

impl Table {
    fn new(schema: SchemaRef, used: Vec<usize>, ids: Vec<i64>) -> Result<Table, String> {
        let used_schema = schema.project(&used).map_err(|error| error.to_string())?;
        let dictionaries = HashMap::new();
        Ok(Table { schema, used, used_schema, ids, dictionaries, rows: 0, text_bytes: 0 })
    }

    /// Decodes a message: the rows that it has.
    fn decode(&mut self, message: &Message) -> Result<Option<RecordBatch>, DataError> {
        let fail = |problem: &str| damaged("the file", problem);
        let (content, version) = message.content().map_err(|problem| fail(&problem))?;
        let batch = match content {
            messages::Content::Dictionary(dictionary) => {
                if self.ids.contains(&dictionary.id()) {
                    let Table { used_schema, dictionaries, .. } = self;
                    read_dictionary(&message.body, dictionary, used_schema, dictionaries, &version)
                        .map_err(|error| fail(&format!("a dictionary: {error}")))?;
                }
                return Ok(None);
            }
            messages::Content::Rows(batch) => batch,
        };
        let decode = |columns: &[usize]| self.columns(message, batch, columns, version);
        match decode(&self.used) {
            Ok(batch) => Ok(Some(batch)),
            // One by one, to know which it is.
            Err(all) => Err(self
                .used
                .iter()
                .find_map(|&at| Some(self.fail(at, batch.length(), &decode(&[at]).err()?)))
                .unwrap_or_else(|| fail(&all.to_string()))),
        }
    }

    fn columns(
        &self,
        message: &Message,
        batch: arrow_ipc::RecordBatch<'_>,
        columns: &[usize],
        version: MetadataVersion,
    ) -> Result<RecordBatch, ArrowError> {
        let (schema, dictionaries) = (Arc::clone(&self.schema), &self.dictionaries);
        read_record_batch(&message.body, batch, schema, dictionaries, Some(columns), &version)
    }

    /// The error of a column, in the next rows.
    fn fail(&self, at: usize, rows: i64, problem: &impl ToString) -> DataError {
        let rows = format!("rows {} to {}", self.rows + 1, self.rows.saturating_add_signed(rows));
        let place = place_of(at, self.schema.field(at).name());
        damaged(&format!("{rows}, {place}"), &problem.to_string())
    }

    /// Adds the rows of a part.
    fn add(&mut self, batch: &RecordBatch, rows: &mut dyn Rows) -> Result<(), DataError> {
        let mut columns: Vec<Option<Values>> = Vec::new();
        columns.resize_with(self.schema.fields().len(), || None);
        for (&at, array) in self.used.iter().zip(batch.columns()) {
            columns[at] = Some(Values::new(array.as_ref()));
        }
        for start in (0..batch.num_rows()).step_by(BATCH) {
            let size = BATCH.min(batch.num_rows() - start);
            for &at in &self.used {
                let Some(column) = &mut columns[at] else { continue };
                self.text_bytes += column
                    .decode(start..start + size)
                    .map_err(|problem| self.fail(at, size as i64, &problem))?;
            }
            if self.text_bytes > MAX_FILE_BYTES {
                return Err(too_much_text(self.text_bytes));
            }
            for row in 0..size {
                self.rows += 1;
                rows.add(self.rows, &|column| {
                    columns[column].as_ref().map_or(Cell::Empty, |column| column.cell(row))
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
