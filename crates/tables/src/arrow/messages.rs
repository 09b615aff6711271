//! The messages of a file or a stream, checked before the crate `arrow-ipc` decodes them: it trusts
//! some of what a message says about its body, so that a damaged one could make it panic or
//! allocate gigabytes.
//!
//! ```text
//! stream:  schema, dictionaries and parts of the table in turn, end mark
//! file:    ARROW1, a stream, footer, length of the footer, ARROW1
//! message: ff ff ff ff (not in old files), length of its header, header, body
//! ```

use std::{collections::BTreeMap, sync::Arc};

use arrow_buffer::Buffer;
use arrow_ipc::{
    DictionaryBatch, Endianness, Message as Header, MessageHeader, MetadataVersion, RecordBatch,
    convert::try_fb_to_schema, reader::read_footer_length, root_as_footer, root_as_message,
};
use arrow_schema::SchemaRef;
use gradvine::data::plausible_size;

/// The first bytes of a file.
pub(super) const FILE: &[u8] = b"ARROW1";
/// The first bytes of a message, with which a stream begins.
pub(super) const MESSAGE: &[u8] = &[0xFF; 4];

/// The end of a file: the length of its footer and [`FILE`].
const TRAILER: usize = 4 + FILE.len();
/// The length of the first bytes of a file, with those that align what follows.
const ALIGNED: usize = 8;
/// The first bytes of files of Feather, version 1, which is another format.
const FEATHER_1: &[u8] = b"FEA1";

/// What a file or a stream consists of.
pub(super) struct Messages {
    pub(super) schema: SchemaRef,
    /// The dictionary of each column that has one.
    pub(super) dictionaries: BTreeMap<usize, i64>,
    /// Dictionaries and parts of the table, in the order in which they are to be decoded.
    pub(super) messages: Vec<Message>,
    /// The rows of all parts.
    pub(super) rows: u64,
    /// The bytes of the dictionaries and of the largest part once they are not compressed, if any
    /// is.
    pub(super) unpacked: u64,
}

/// A dictionary or a part of the table. What it says about lengths holds.
pub(super) struct Message {
    header: Buffer,
    pub(super) body: Buffer,
}

pub(super) enum Content<'a> {
    Dictionary(DictionaryBatch<'a>),
    Rows(RecordBatch<'a>),
}

impl Message {
    /// Its content, and the version of the format.
    pub(super) fn content(&self) -> Result<(Content<'_>, MetadataVersion), String> {
        let header = header(&self.header)?;
        let content = match header.header_type() {
            MessageHeader::DictionaryBatch => {
                header.header_as_dictionary_batch().map(Content::Dictionary)
            }
            _ => header.header_as_record_batch().map(Content::Rows),
        };
        Ok((content.ok_or("a message is neither a dictionary nor rows")?, header.version()))
    }
}

impl Messages {
    /// Reads and checks all messages.
    ///
    /// # Errors
    /// If the bytes are cut short, or a message says what cannot be.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Messages, String> {
        if bytes.starts_with(FEATHER_1) {
            let problem = "Feather, version 1, is another format: write the table as version 2";
            return Err(problem.into());
        }
        let mut stream = Stream::new(Buffer::from_vec(bytes))?;
        let (header_bytes, _) = stream.next()?.ok_or("it does not begin with a schema")?;
        let message = header(&header_bytes)?;
        let schema = message.header_as_schema().ok_or("it does not begin with a schema")?;
        if schema.endianness() != Endianness::Little {
            return Err("numbers with their highest byte first are not read".into());
        }
        let mut dictionaries = BTreeMap::new();
        for (at, field) in schema.fields().into_iter().flatten().enumerate() {
            if let Some(dictionary) = field.dictionary() {
                dictionaries.insert(at, dictionary.id());
            }
        }
        let schema = Arc::new(try_fb_to_schema(schema).map_err(|error| error.to_string())?);
        let mut checks = Checks::new(stream.bytes.len());
        let (mut messages, mut parts) = (Vec::new(), 0);
        while let Some((header, body)) = stream.next()? {
            let message = Message { header, body };
            if checks.check(&message)? {
                parts += 1;
            }
            messages.push(message);
        }
        if let Some(expected) = stream.parts.filter(|&expected| expected != parts) {
            return Err(format!("{parts} parts of the table, but its end says {expected}"));
        }
        if stream.parts.is_some() {
            // In a file dictionaries may follow the rows that need them.
            messages.sort_by_cached_key(|message| match message.content() {
                Ok((Content::Dictionary(_), _)) => 0,
                Ok((Content::Rows(_), _)) | Err(_) => 1,
            });
        }
        let unpacked = checks.unpacked.saturating_add(checks.dictionaries);
        let unpacked = if checks.unpacked > 0 { unpacked } else { 0 };
        Ok(Messages { schema, dictionaries, messages, rows: checks.rows, unpacked })
    }
}

struct Stream {
    bytes: Buffer,
    /// The position of the next message.
    at: usize,
    end: usize,
    /// A file's number of parts, by its footer.
    parts: Option<usize>,
}

impl Stream {
    fn new(bytes: Buffer) -> Result<Stream, String> {
        let length = bytes.len();
        if !bytes.starts_with(FILE) {
            return Ok(Stream { bytes, at: 0, end: length, parts: None });
        }
        let cut = || "it is cut short: an Arrow file ends with ARROW1".to_string();
        let trailer = length.checked_sub(TRAILER).filter(|&at| at >= ALIGNED).ok_or_else(cut)?;
        let last = bytes[trailer..].try_into().map_err(|_| cut())?;
        let footer_length = read_footer_length(last).map_err(|_| cut())?;
        let end = trailer.checked_sub(footer_length).filter(|&end| end >= ALIGNED);
        let end = end.ok_or("its footer is longer than the file")?;
        let copy = Buffer::from(&bytes[end..trailer]);
        let footer = root_as_footer(&copy).map_err(|_| "its footer is damaged")?;
        let parts = footer.recordBatches().map_or(0, |blocks| blocks.len());
        Ok(Stream { bytes, at: ALIGNED, end, parts: Some(parts) })
    }

    fn word(&mut self) -> Option<u32> {
        let word = self.bytes.get(self.at..self.end)?.first_chunk::<4>()?;
        self.at += word.len();
        Some(u32::from_le_bytes(*word))
    }

    /// The header and the body of the next message; `None` at the end.
    fn next(&mut self) -> Result<Option<(Buffer, Buffer)>, String> {
        if self.parts.is_some() && self.at == self.end {
            return Ok(None);
        }
        let start = self.at;
        let cut = || format!("it is cut short or damaged: no whole message begins at byte {start}");
        let marker = u32::from_le_bytes([MESSAGE[0]; 4]);
        let length = match self.word() {
            Some(word) if word == marker => self.word(),
            word => word,
        };
        let length = match length {
            None if start == self.end => {
                return Err("it is cut short: it has no mark of its end".into());
            }
            None => return Err(cut()),
            Some(0) if self.parts.is_none() && self.at != self.end => {
                return Err(format!("bytes follow the mark of its end, from byte {}", self.at));
            }
            Some(0) => return Ok(None),
            Some(length) => length as usize,
        };
        let left = self.end - self.at;
        if length > left {
            return Err(cut());
        }
        // A copy that is aligned.
        let header_bytes = Buffer::from(&self.bytes[self.at..self.at + length]);
        let body = header(&header_bytes).map_err(|problem| format!("{problem}, byte {start}"))?;
        let body = usize::try_from(body.bodyLength()).ok();
        let body = body.filter(|&body| body <= left - length).ok_or_else(cut)?;
        let from = self.at + length;
        self.at = from + body;
        Ok(Some((header_bytes, self.bytes.slice_with_length(from, body))))
    }
}

fn header(bytes: &[u8]) -> Result<Header<'_>, String> {
    root_as_message(bytes).map_err(|_| "the header of a message is damaged".into())
}

/// What is known of the messages so far.
struct Checks {
    /// The most rows, and the most bytes of a part when it is not compressed.
    most: u64,
    length: usize,
    rows: u64,
    /// The bytes of all dictionaries when they are not compressed.
    dictionaries: u64,
    /// Those of the largest compressed part or dictionary.
    unpacked: u64,
}

impl Checks {
    fn new(length: usize) -> Checks {
        let most = plausible_size(length as u64);
        Checks { most, length, rows: 0, dictionaries: 0, unpacked: 0 }
    }

    /// Checks a message; whether it has rows.
    fn check(&mut self, message: &Message) -> Result<bool, String> {
        let (content, version) = message.content()?;
        if version < MetadataVersion::V4 || version > MetadataVersion::V5 {
            return Err(format!("version {version:?} of its messages: V4 and V5 are read"));
        }
        match content {
            Content::Dictionary(dictionary) => {
                let data = dictionary.data().ok_or("a dictionary has no values")?;
                let (_, bytes) = self.check_batch(&data, &message.body)?;
                self.dictionaries = self.dictionaries.saturating_add(bytes);
                self.check_most("bytes of dictionaries", self.dictionaries)?;
                Ok(false)
            }
            Content::Rows(batch) => {
                let (rows, bytes) = self.check_batch(&batch, &message.body)?;
                self.check_most("bytes of a part of the table", bytes)?;
                self.rows = self.rows.saturating_add(rows);
                self.check_most("rows", self.rows)?;
                Ok(true)
            }
        }
    }

    fn check_most(&self, what: &str, number: u64) -> Result<(), String> {
        let Checks { most, length, .. } = self;
        if number > *most {
            let problem = format!("at most {most} are accepted in a file of {length} bytes");
            return Err(format!("{number} {what} are announced: {problem}"));
        }
        Ok(())
    }

    /// Checks that the buffers of a part are within its body; returns its rows, and its bytes when
    /// they are not compressed.
    fn check_batch(
        &mut self,
        batch: &RecordBatch<'_>,
        body: &Buffer,
    ) -> Result<(u64, u64), String> {
        let rows = u64::try_from(batch.length()).map_err(|_| "less than 0 rows")?;
        self.check_most("rows", rows)?;
        for node in batch.nodes().into_iter().flatten() {
            let length = u64::try_from(node.length()).map_err(|_| "less than 0 values")?;
            self.check_most("values", length)?;
            if !(0..=node.length()).contains(&node.null_count()) {
                return Err(format!(
                    "{} of {length} values are said to be missing",
                    node.null_count()
                ));
            }
        }
        let mut bytes: u64 = 0;
        for buffer in batch.buffers().into_iter().flatten() {
            let range = usize::try_from(buffer.offset()).ok().and_then(|from| {
                let length = usize::try_from(buffer.length()).ok()?;
                Some(from..from.checked_add(length)?)
            });
            let values = range.and_then(|range| body.get(range));
            let values = values.ok_or("values are not within their message")?;
            let whole = match values.first_chunk::<8>() {
                _ if batch.compression().is_none() || values.is_empty() => values.len() as u64,
                Some(&announced) => match i64::from_le_bytes(announced) {
                    // These values are not compressed.
                    -1 => values.len() as u64,
                    announced => u64::try_from(announced)
                        .map_err(|_| "compressed values are less than 0 bytes")?,
                },
                None => return Err("compressed values do not say their length".into()),
            };
            bytes = bytes.saturating_add(whole);
        }
        if batch.compression().is_some() {
            self.unpacked = self.unpacked.max(bytes);
        }
        Ok((rows, bytes))
    }
}
