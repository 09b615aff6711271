//! Records of separated text from a stream: only a piece of the text is in memory.
//!
//! A line without quotes, as most are, is cut at its separators in place. A record with quotes is
//! read by `csv-core`. Records end at a line feed, a carriage return, or both; empty lines are
//! skipped.

use std::io::{ErrorKind, Read};

use csv_core::ReadRecordResult;

use super::{DataError, input::error_of};
use crate::{config::ConfigError, memory, units::Bytes};

/// The bytes that are in memory at first.
pub(super) const PIECE: usize = 1 << 18;
/// The longest record that is read.
const MAX_RECORD: usize = 1 << 28;

/// A reader of records.
pub(super) struct Records<R> {
    source: R,
    buffer: Vec<u8>,
    /// The bytes of `buffer` that are not yet read: from the next record on.
    start: usize,
    end: usize,
    /// Whether the source has no more.
    ended: bool,
    /// The line at `start`, from 1.
    line: u64,
    separator: u8,
    /// The bounds of each cell, in `buffer` or in `unquoted`.
    cells: Vec<(usize, usize)>,
    quotes: csv_core::Reader,
    unquoted: Vec<u8>,
    ends: Vec<usize>,
}

/// One record.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    /// The line at which it starts, from 1.
    pub line: u64,
    text: &'a [u8],
    cells: &'a [(usize, usize)],
}

impl<'a> Record<'a> {
    /// The number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// The text of a cell without its quotes.
    pub fn cell(&self, column: usize) -> &'a [u8] {
        let (start, end) = self.cells[column];
        &self.text[start..end]
    }

    /// The text of all cells.
    pub fn cells(&self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(|column| self.cell(column))
    }
}

impl<R: Read> Records<R> {
    /// Starts to read; `piece` bytes are read at once. The separator is the most frequent one of
    /// comma, semicolon and tab in the first line.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn new(source: R, piece: usize) -> Result<Records<R>, DataError> {
        let mut records = Records {
            source,
            buffer: vec![0; piece.max(4)],
            start: 0,
            end: 0,
            ended: false,
            line: 1,
            separator: b',',
            cells: Vec::new(),
            quotes: csv_core::Reader::new(),
            unquoted: Vec::new(),
            ends: vec![0; 64],
        };
        records.fill()?;
        if records.buffer[..records.end].starts_with(b"\xEF\xBB\xBF") {
            records.start = 3;
        }
        records.separator = loop {
            let (separator, whole) = separator(&records.buffer[records.start..records.end]);
            if whole || records.ended {
                break separator;
            }
            records.fill()?;
        };
        records.quotes = csv_core::ReaderBuilder::new().delimiter(records.separator).build();
        Ok(records)
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// If the source cannot be read, or a record is too long.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, DataError> {
        // The bytes from `start` in which no end of the record is.
        let mut searched = 0;
        loop {
            if searched == 0 {
                self.skip_breaks();
            }
            let rest = &self.buffer[self.start + searched..self.end];
            match memchr::memchr3(b'\n', b'\r', b'"', rest) {
                Some(at) if rest[at] == b'"' => return self.quoted().map(Some),
                Some(at) => {
                    let end = self.start + searched + at;
                    return Ok(Some(self.plain(end)));
                }
                None if self.ended && self.start == self.end => return Ok(None),
                None if self.ended => return Ok(Some(self.plain(self.end))),
                None => {
                    searched = self.end - self.start;
                    self.fill()?;
                }
            }
        }
    }

    /// Skips ends of lines.
    fn skip_breaks(&mut self) {
        while let Some(byte) = self.buffer[self.start..self.end].first() {
            match byte {
                b'\n' => self.line += 1,
                b'\r' => {}
                _ => return,
            }
            self.start += 1;
        }
    }

    /// A record without quotes that ends before `end`.
    fn plain(&mut self, end: usize) -> Record<'_> {
        self.cells.clear();
        let mut from = self.start;
        for (at, byte) in self.buffer[self.start..end].iter().enumerate() {
            if *byte == self.separator {
                let at = self.start + at;
                self.cells.push((from, at));
                from = at + 1;
            }
        }
        self.cells.push((from, end));
        // The end of the line is passed over before the next record.
        self.start = end;
        Record { line: self.line, text: &self.buffer, cells: &self.cells }
    }

    /// A record in whose first line is a quote.
    fn quoted(&mut self) -> Result<Record<'_>, DataError> {
        use ReadRecordResult::{End, InputEmpty, OutputEndsFull, OutputFull, Record as Whole};
        let line = self.line;
        loop {
            // The text without quotes is not longer.
            let input = &self.buffer[self.start..self.end];
            self.unquoted.resize(input.len().max(self.unquoted.len()), 0);
            self.quotes.reset();
            let (mut result, read, written, mut cells) =
                self.quotes.read_record(input, &mut self.unquoted, &mut self.ends);
            if result == InputEmpty && self.ended {
                let more;
                (result, _, _, more) = self.quotes.read_record(
                    &[],
                    &mut self.unquoted[written..],
                    &mut self.ends[cells..],
                );
                cells += more;
            }
            match result {
                Whole | End => {
                    let breaks = memchr::memchr_iter(b'\n', &input[..read]).count();
                    self.line += breaks as u64;
                    self.start += read;
                    self.cells.clear();
                    let mut from = 0;
                    for end in &self.ends[..cells] {
                        self.cells.push((from, *end));
                        from = *end;
                    }
                    return Ok(Record { line, text: &self.unquoted, cells: &self.cells });
                }
                InputEmpty => self.fill()?,
                OutputFull => self.unquoted.resize(2 * self.unquoted.len() + 1, 0),
                OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
            }
        }
    }

    /// Moves the bytes that are not yet read to the front and reads until the buffer is full; one
    /// that they fill becomes larger first.
    fn fill(&mut self) -> Result<(), DataError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.grow()?;
        }
        while self.end < self.buffer.len() && !self.ended {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error_of(error)),
            }
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<(), DataError> {
        let place = format!("line {}", self.line);
        let length = 2 * self.buffer.len();
        if length > MAX_RECORD {
            let most = MAX_RECORD as u64 / 2;
            let problem = format!("is longer than {}", Bytes(most));
            return Err(DataError::Limit { place, found: None, most, problem });
        }
        let remedy = "cut the file into shards, or take a machine with more";
        let value = format!("more than {} bytes", self.end);
        if length >= 1 << 24 {
            // Beside the text without quotes.
            memory::require(2 * length as u64, &place, &value, "it", remedy)
                .map_err(DataError::Memory)?;
        }
        if self.buffer.try_reserve_exact(length - self.buffer.len()).is_err() {
            let error = ConfigError::new(place, value, "does not fit into memory");
            return Err(DataError::Memory(error));
        }
        self.buffer.resize(length, 0);
        Ok(())
    }
}

/// The most frequent separator in the first line outside quotes, and whether the line is complete.
/// Of equally frequent ones it is the comma, then the semicolon.
fn separator(bytes: &[u8]) -> (u8, bool) {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    let start = start.unwrap_or(bytes.len());
    let (mut quoted, mut counts, mut whole) = (false, [0usize; 3], false);
    for byte in &bytes[start..] {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => {
                whole = true;
                break;
            }
            b',' if !quoted => counts[0] += 1,
            b';' if !quoted => counts[1] += 1,
            b'\t' if !quoted => counts[2] += 1,
            _ => {}
        }
    }
    let most = counts.into_iter().max().unwrap_or(0);
    let separator = match counts.iter().position(|&count| count == most) {
        Some(1) => b';',
        Some(2) => b'\t',
        _ => b',',
    };
    (separator, whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every record with its line, as text.
    fn records(text: &[u8], piece: usize) -> Vec<(u64, Vec<Vec<u8>>)> {
        let mut records = Records::new(text, piece).unwrap();
        let mut all = Vec::new();
        while let Some(record) = records.next().unwrap() {
            all.push((record.line, record.cells().map(<[u8]>::to_vec).collect()));
        }
        all
    }

    /// The same by the crate `csv` from the whole text.
    fn reference(text: &[u8]) -> Vec<(u64, Vec<Vec<u8>>)> {
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let mut reader = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(separator(text).0)
            .from_reader(text);
        let mut all = Vec::new();
        for record in reader.byte_records() {
            let record = record.unwrap();
            // A position is before the ends of lines that precede its record.
            let position = record.position().unwrap();
            let breaks = text[position.byte() as usize..]
                .iter()
                .take_while(|byte| matches!(byte, b'\n' | b'\r'));
            let line = position.line() + breaks.filter(|byte| **byte == b'\n').count() as u64;
            all.push((line, record.iter().map(<[u8]>::to_vec).collect()));
        }
        all
    }

    #[test]
    fn records_are_cut_at_every_border_alike() {
        let text = "\u{FEFF}\r\n a;b ;\"c \"\"d\"\"\"\r\n\r\n\n1;\"2\r\n,3\";\n\
                    \r4;;5\rx\"y;6;\"7\"8\n;;\n\"\";\"\n\n";
        let expected = reference(text.as_bytes());
        assert_eq!(expected.len(), 6);
        assert_eq!(
            expected.iter().map(|(line, _)| *line).collect::<Vec<u64>>(),
            [2, 5, 7, 7, 8, 9]
        );
        for piece in 1..text.len() + 2 {
            assert_eq!(records(text.as_bytes(), piece), expected, "{piece} bytes at once");
        }
        assert!(records(b"\n\r\n", 1).is_empty() && records(b"", 4).is_empty());
    }

    #[test]
    fn a_record_that_is_too_long_is_refused() {
        let endless = std::io::repeat(b'1');
        let error = Records::new(endless, PIECE).map(drop).unwrap_err();
        let DataError::Limit { place, most, .. } = &error else { panic!("{error}") };
        assert_eq!((&place[..], *most), ("line 1", MAX_RECORD as u64 / 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        #[ignore = "slow"]
        fn any_text_has_the_records_that_the_crate_reads(
            mark in any::<bool>(),
            text in "([a0-9.,;\"\r\n \t]|1,2\r\n|\"\"|3;4\n){0,60}",
            piece in 1usize..70,
        ) {
            let text = format!("{}{text}", if mark { "\u{FEFF}" } else { "" });
            prop_assert_eq!(records(text.as_bytes(), piece), reference(text.as_bytes()));
        }
    }
}
