//! Opens a file: finds its format, limits its size, and reads it by its format.

use std::{io::Read, path::Path, sync::Arc};

use super::{
    DataError,
    csv::{self, encoding},
    file::{
        inflate::{self, Inflate},
        input::{Count, Counted, error_of, open, peek},
    },
    format::{Content, Format},
    list::format_of,
    table::rows::TextRows,
};
use crate::{config::ConfigError, memory};

/// A file whose format is known from its name or its first bytes.
pub(super) struct Opened<'a> {
    pub(super) name: &'a str,
    pub(super) format: &'static Format,
    pub(super) compressed: bool,
    /// The bytes of the file, uncompressed.
    stream: Box<dyn Read + 'a>,
    /// Counts the bytes of the file.
    count: Arc<Count>,
}

/// The first bytes of a file, from which its format is seen.
const HEAD: u64 = 16;

impl<'a> Opened<'a> {
    pub(super) fn new(
        name: &'a str,
        source: impl Read + 'a,
        total: Option<u64>,
    ) -> Result<Opened<'a>, DataError> {
        let within = |error: DataError| error.within(name);
        let counted = Counted::new(source, name, total);
        let count = counted.count();
        let (mut head, stream) = peek(counted, HEAD).map_err(within)?;
        let mut stream: Box<dyn Read + 'a> = Box::new(stream);
        encoding::check_ending(name).map_err(within)?;
        inflate::check_name(name, &head).map_err(within)?;
        let compressed = head.starts_with(inflate::MAGIC);
        if compressed {
            let inflate = Inflate::new(stream, Arc::clone(&count));
            let (inflated, rest) = peek(inflate, HEAD).map_err(within)?;
            (head, stream) = (inflated, Box::new(rest));
        }
        if head.is_empty() {
            return Err(within(DataError::empty()));
        }
        let format = format_of(name, &head);
        if matches!(format.content, Content::Text) {
            encoding::check_beginning(&head).map_err(within)?;
        }
        Ok(Opened { name, format, compressed, stream, count })
    }

    pub(super) fn file(path: &Path, name: &'a str) -> Result<Opened<'a>, DataError> {
        let (file, total) = open(path).map_err(|error| error.within(name))?;
        Opened::new(name, file, total)
    }

    /// Adds the rows of a table.
    pub(super) fn read(
        self,
        header: Option<bool>,
        rows: &mut impl TextRows,
    ) -> Result<(), DataError> {
        let (name, Format { file, content, .. }) = (self.name, self.format);
        if header == Some(false) && matches!(content, Content::Table(_) | Content::Absent(..)) {
            let problem = format!("{name} is {file}, which names its columns: true is accepted");
            return Err(ConfigError::new("data.header", false, problem).into());
        }
        let read = match content {
            Content::Text => csv::read(name, self.stream, &self.count, header, rows),
            Content::Table(read) => read(self.whole()?, rows),
            Content::Absent(words, feature) => Err(without(words, feature)),
            Content::Array(_) | Content::Archive(_) => Err(no_table("is not a table")),
        };
        read.map_err(|error| error.of(name))
    }

    /// Reads all bytes that are left, uncompressed.
    pub(super) fn whole(mut self) -> Result<Vec<u8>, DataError> {
        let within = |error: DataError| error.within(self.name);
        if self.compressed {
            let length = match self.format.content {
                Content::Array(array) => Some(array.length),
                _ => None,
            };
            return inflate::whole(self.stream, length).map_err(within);
        }
        let mut bytes = Vec::new();
        if let Some(total) = self.count.total {
            let remedy = "cut it into shards, or take a machine with more";
            memory::require(total, "size", &total.to_string(), "the file", remedy)
                .map_err(|error| within(DataError::Memory(error)))?;
            // The size is a hint; reading is limited again.
            let _ = bytes.try_reserve_exact(usize::try_from(total).unwrap_or(0));
        }
        self.stream.read_to_end(&mut bytes).map_err(|error| within(error_of(error)))?;
        Ok(bytes)
    }
}

/// The error of a file that is not a table, but must be one.
pub(super) fn no_table(problem: &str) -> DataError {
    let accepted = "CSV files (also .gz), Parquet and Arrow files are accepted";
    DataError::format("format", format!("{problem}: {accepted}"))
}

/// A format that this program is built without.
fn without(format: &str, feature: &str) -> DataError {
    let problem = format!(
        "this program is built without the feature that reads {format}: `cargo install --locked \
         --path crates/cli --features {feature}` builds it with it, or write the table as CSV"
    );
    DataError::format("format", problem)
}
