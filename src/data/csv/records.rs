//! Records of separated text from a stream: only a piece of the text is in memory.
//!
//! A line without quotes, as most are, is cut at its separators in place. Records end at a line
//! feed, a carriage return, or both; empty lines are skipped.
//!
//! A cell that begins with a quote (blanks before it do not count) ends at the next quote that is
//! not doubled, and only blanks follow it (RFC 4180). Everything else is refused: a reader that
//! continues would take the rows up to the next quote for a part of the cell. Any other quote is a
//! part of its cell, as in `5" pipe`.
//!
//! A first line `sep=;`, as spreadsheets write it, names the separator.

use std::io::{ErrorKind, Read};

use crate::{
    config::ConfigError,
    data::{DataError, excerpt::excerpt, file::input::error_of},
    memory,
    units::Bytes,
};

/// The bytes that are in memory at first.
pub(crate) const PIECE: usize = 1 << 18;
/// The longest record that is read.
const MAX_RECORD: usize = 1 << 28;

pub(crate) struct Records<R> {
    source: R,
    buffer: Vec<u8>,
    /// The bytes of `buffer` that are not yet read: from the next record on.
    start: usize,
    end: usize,
    /// Whether the source has no more.
    ended: bool,
    /// The line at `start`, from 1.
    line: u64,
    /// Whether the byte before `start` is a carriage return: a line feed then ends the same line.
    after_return: bool,
    separator: u8,
    /// The bounds of each cell, in `buffer` or in `unquoted`.
    cells: Vec<(usize, usize)>,
    unquoted: Vec<u8>,
    /// The line and the column of the first quoted cell whose lines may be of several records.
    swallowed: Option<(u64, usize)>,
}

/// The separators that are recognised; of equally frequent ones the first is taken.
const SEPARATORS: [u8; 4] = *b",;\t|";

/// What was found in the bytes of a record with quotes.
enum Cut {
    /// It ends before this position.
    Whole(usize),
    /// Its end is not in the bytes that were read so far.
    Cut,
}

#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// The line at which it starts, from 1.
    pub line: u64,
    text: &'a [u8],
    cells: &'a [(usize, usize)],
}

impl<'a> Record<'a> {
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// The text of a cell without its quotes.
    pub(super) fn cell(&self, column: usize) -> &'a [u8] {
        let (start, end) = self.cells[column];
        &self.text[start..end]
    }

    /// The text of all cells with what is between them.
    pub(super) fn text(&self) -> &'a [u8] {
        match self.cells {
            [(start, _), .., (_, end)] | [(start, end)] => &self.text[*start..*end],
            [] => &[],
        }
    }

    /// The text of all cells.
    pub(super) fn cells(&self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(|column| self.cell(column))
    }
}

impl<R: Read> Records<R> {
    /// Starts to read; `piece` bytes are read at once. The separator is the one that the first line
    /// names, or the most frequent one of comma, semicolon, tab and pipe in it.
    ///
    /// # Errors
    /// If the source cannot be read, or the first line names another separator.
    pub(super) fn new(source: R, piece: usize) -> Result<Records<R>, DataError> {
        let mut records = Records {
            source,
            buffer: vec![0; piece.max(4)],
            start: 0,
            end: 0,
            ended: false,
            line: 1,
            after_return: false,
            separator: b',',
            cells: Vec::new(),
            unquoted: Vec::new(),
            swallowed: None,
        };
        records.fill()?;
        if records.buffer[..records.end].starts_with(b"\xEF\xBB\xBF") {
            records.start = 3;
        }
        records.separator = loop {
            let first = &records.buffer[records.start..records.end];
            let (separator, whole) = separator(first);
            if whole || records.ended {
                let Some((named, length)) = named_separator(first)? else { break separator };
                records.start += length;
                break named;
            }
            records.fill()?;
        };
        Ok(records)
    }

    /// The line and the column of the first quoted cell whose lines may be of several records: its
    /// quotes may be stray ones.
    pub(super) fn swallowed(&self) -> Option<(u64, usize)> {
        self.swallowed
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// If the source cannot be read, or a record is too long.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, DataError> {
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

    fn skip_breaks(&mut self) {
        while let Some(byte) = self.buffer[self.start..self.end].first() {
            match byte {
                b'\n' => self.line += u64::from(!self.after_return),
                b'\r' => self.line += 1,
                _ => {
                    self.after_return = false;
                    return;
                }
            }
            self.after_return = *byte == b'\r';
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
        let line = self.line;
        let length = loop {
            match self.unquote()? {
                Cut::Whole(length) => break length,
                Cut::Cut => self.fill()?,
            }
        };
        let text = &self.buffer[self.start..self.start + length];
        let lines = breaks(text);
        if lines > 0 && self.swallowed.is_none() {
            let count = self.cells.len();
            // The cells of each line of a quoted cell, if no quote were there: the first and the
            // last one have also the cells beside it.
            let column = self.cells.iter().enumerate().position(|(column, &(from, to))| {
                let lines = self.unquoted[from..to].split(|byte| matches!(byte, b'\n' | b'\r'));
                let mut lines = lines.map(|line| memchr::memchr_iter(self.separator, line).count());
                let first = lines.next().map_or(0, |found| column + found + 1);
                let Some(last) = lines.next_back() else { return false };
                let last = last + count - column;
                lines.any(|found| found + 1 == count) || (first == count && last == count)
            });
            self.swallowed = column.filter(|_| count > 1).map(|column| (line, column));
        }
        self.line += lines;
        self.start += length;
        Ok(Record { line, text: &self.unquoted, cells: &self.cells })
    }

    /// Cuts the record at `start` into cells without their quotes.
    fn unquote(&mut self) -> Result<Cut, DataError> {
        let input = &self.buffer[self.start..self.end];
        let is_blank = |byte: &u8| *byte == b' ' || (*byte == b'\t' && self.separator != b'\t');
        let after_blanks = |from: usize| {
            from + input[from..]
                .iter()
                .position(|byte| !is_blank(byte))
                .unwrap_or(input.len() - from)
        };
        let is_end = |byte: u8| byte == self.separator || byte == b'\n' || byte == b'\r';
        self.cells.clear();
        self.unquoted.clear();
        let mut at = 0;
        loop {
            let (from, begin) = (self.unquoted.len(), after_blanks(at));
            if input.get(begin) == Some(&b'"') {
                let place = (self.line + breaks(&input[..begin]), self.cells.len());
                let Some(end) = closing(&input[begin + 1..], &mut self.unquoted) else {
                    if self.ended {
                        return Err(unclosed(place, &input[begin..], None));
                    }
                    return Ok(Cut::Cut);
                };
                at = after_blanks(begin + 1 + end);
                match input.get(at) {
                    None if !self.ended => return Ok(Cut::Cut),
                    Some(&byte) if !is_end(byte) => {
                        let line = self.line + breaks(&input[..at]);
                        return Err(unclosed(place, &input[begin..], Some((line, &input[at..]))));
                    }
                    _ => (),
                }
            } else {
                let end = memchr::memchr3(self.separator, b'\n', b'\r', &input[at..]);
                if end.is_none() && !self.ended {
                    return Ok(Cut::Cut);
                }
                let end = end.map_or(input.len(), |end| at + end);
                self.unquoted.extend_from_slice(&input[at..end]);
                at = end;
            }
            self.cells.push((from, self.unquoted.len()));
            match input.get(at) {
                Some(byte) if *byte == self.separator => at += 1,
                _ => return Ok(Cut::Whole(at)),
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
            let problem = format!("is longer than {}: is a quote in it not closed?", Bytes(most));
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

/// Adds the text of a quoted cell, which begins after its first quote, and returns its length with
/// the closing quote; `None` if there is none, or if the next byte may double it.
fn closing(input: &[u8], text: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    loop {
        let quote = at + memchr::memchr(b'"', &input[at..])?;
        text.extend_from_slice(&input[at..quote]);
        at = quote + 1;
        if input.get(at) != Some(&b'"') {
            return Some(at);
        }
        text.push(b'"');
        at += 1;
    }
}

/// A quoted cell at this line and column that does not end: `follows` is the text after the next
/// quote, and its line.
fn unclosed((line, column): (u64, usize), cell: &[u8], follows: Option<(u64, &[u8])>) -> DataError {
    let shown = |text: &[u8]| excerpt(&String::from_utf8_lossy(&text[..text.len().min(160)]));
    let end = match follows {
        Some((line, text)) => {
            let text: String = shown(text).chars().take(12).collect();
            format!("after the next quote, in line {line}, follows `{text}`")
        }
        None => "no quote ends it".into(),
    };
    let problem = format!(
        "the cell begins with a quote, but {end}: a quoted cell ends with a quote, and a quote in \
         it is written twice"
    );
    DataError::cell("line", line as usize, Some(column), shown(cell), problem)
}

/// The number of ends of lines.
fn breaks(text: &[u8]) -> u64 {
    let returns = memchr::memchr_iter(b'\r', text).filter(|at| text.get(at + 1) != Some(&b'\n'));
    (memchr::memchr_iter(b'\n', text).count() + returns.count()) as u64
}

/// The separator that a first line such as `sep=;` names, and the length of this line.
fn named_separator(bytes: &[u8]) -> Result<Option<(u8, usize)>, DataError> {
    let length = memchr::memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len());
    let line = bytes[..length].strip_prefix(b"\"").unwrap_or(&bytes[..length]);
    let Some((key, rest)) = line.split_at_checked(4) else { return Ok(None) };
    if !key.eq_ignore_ascii_case(b"sep=") {
        return Ok(None);
    }
    match rest.strip_suffix(b"\"").unwrap_or(rest) {
        [separator] if SEPARATORS.contains(separator) => Ok(Some((*separator, length))),
        other => {
            let (place, value) = ("line 1".into(), Some(excerpt(&String::from_utf8_lossy(other))));
            let problem = "this separator is not read: , ; | and the tab are accepted".into();
            Err(DataError::Format { place, value, problem })
        }
    }
}

/// The most frequent separator in the first line outside quotes, and whether the line is complete.
/// Beside other separators a comma between two digits is a decimal comma, as in `1,5;2,5`.
fn separator(bytes: &[u8]) -> (u8, bool) {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    let line = &bytes[start.unwrap_or(bytes.len())..];
    let (mut quoted, mut counts, mut decimal, mut whole) = (false, [0usize; 4], 0, false);
    // Only a quote at the start of a cell has a meaning, or one that follows its closing quote.
    let (mut starts, mut closed) = (true, None);
    for (at, byte) in line.iter().enumerate() {
        match byte {
            b'"' if quoted => {
                quoted = false;
                closed = Some(at + 1);
            }
            b'"' if starts || closed == Some(at) => quoted = true,
            b'\n' | b'\r' if !quoted => {
                whole = true;
                break;
            }
            _ if quoted => {}
            _ => {
                if let Some(kind) = SEPARATORS.iter().position(|separator| separator == byte) {
                    counts[kind] += 1;
                    let is_digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
                    let between = at > 0 && is_digit(at - 1) && is_digit(at + 1);
                    decimal += usize::from(*byte == b',' && between);
                }
            }
        }
        starts = SEPARATORS.contains(byte) || (starts && *byte == b' ');
    }
    if counts[1..].iter().any(|&count| count > 0) {
        counts[0] -= decimal;
    }
    let most = counts.into_iter().max().unwrap_or(0);
    let first = counts.iter().position(|&count| count == most).unwrap_or(0);
    (SEPARATORS[first], whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type All = Vec<(u64, Vec<Vec<u8>>)>;

    /// Every record with its line, as text.
    fn records(text: &[u8], piece: usize) -> Result<All, String> {
        let text_of = |error: DataError| error.to_string();
        let mut records = Records::new(text, piece).map_err(text_of)?;
        let mut all = Vec::new();
        while let Some(record) = records.next().map_err(text_of)? {
            all.push((record.line, record.cells().map(<[u8]>::to_vec).collect()));
        }
        Ok(all)
    }

    /// The same by the crate `csv` from the whole text. It reads what is refused here, too, and
    /// takes blanks before a quote for a part of the cell.
    fn reference(text: &[u8]) -> All {
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
            let from = record.position().unwrap().byte() as usize;
            let blank = text[from..].iter().take_while(|byte| matches!(byte, b'\n' | b'\r'));
            let line = 1 + breaks(&text[..from + blank.count()]);
            all.push((line, record.iter().map(<[u8]>::to_vec).collect()));
        }
        all
    }

    #[test]
    fn records_are_cut_at_every_border_alike() {
        let text = "\u{FEFF}\r\n a;b ;\"c \"\"d\"\"\"\r\n\r\n\n1;\"2\r\n,3\";\n\
                    \r4;;5\rx\"y;6;\"7\"\n;;\n\"\";\"\"\n\n";
        let expected = reference(text.as_bytes());
        let lines: Vec<u64> = expected.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 5, 8, 9, 10, 11]);
        for piece in 1..text.len() + 2 {
            assert_eq!(records(text.as_bytes(), piece).as_ref(), Ok(&expected), "{piece} at once");
        }
        assert_eq!(records(b"\n\r\n", 1), Ok(Vec::new()));
        assert_eq!(records(b"", 4), Ok(Vec::new()));
        let blanks = records(b"1, \"a, b\" ,2\n", 4).unwrap();
        assert_eq!(blanks[0].1, [&b"1"[..], b"a, b", b"2"]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_refused_where_it_opens() {
        let end = ": a quoted cell ends with a quote, and a quote in it is written twice";
        for (text, place, problem) in [
            ("1,\"a\n2,b\n", "line 1, column 1 = \"a\\n2,b\\n", "no quote ends it"),
            ("x,y\r1,a\r2,\"b\r3,c", "line 3, column 1 = \"b\\r3,c", "no quote ends it"),
            (
                "1,\"a\n2,\"b\"\n",
                "line 1, column 1 = \"a\\n2,\"b\"\\n",
                "after the next quote, in line 2, follows `b\"\\n`",
            ),
            ("\"7\"8,1\n", "line 1, column 0 = \"7\"8,1\\n", "in line 1, follows `8,1\\n`"),
        ] {
            for piece in 1..text.len() + 2 {
                let error = records(text.as_bytes(), piece).unwrap_err();
                assert!(error.starts_with(place) && error.contains(problem), "{error}");
                assert!(error.ends_with(end), "{error}");
            }
        }
    }

    #[test]
    fn a_cell_that_holds_whole_rows_is_noticed() {
        let swallowed = |text: &str| {
            let mut records = Records::new(text.as_bytes(), PIECE).unwrap();
            while records.next().unwrap().is_some() {}
            records.swallowed()
        };
        assert_eq!(swallowed("x,y,note\n1,0,\"a\n2,1,b\"\n3,0,c\n"), Some((2, 2)));
        // One is opened in a row, the other closed in the next one.
        assert_eq!(swallowed("x,y,z\n1,\"a,0\n2,b\",1\n3,c,0\n"), Some((2, 1)));
        assert_eq!(swallowed("x,y,z\r1,\"a,0\r2,b,1\r3,c\",1\r"), Some((2, 1)));
        assert_eq!(swallowed("x,y\n\"a,0\r\nb\",1\n"), Some((2, 0)));
        assert_eq!(swallowed("x,y,z\n1,0,\"a\n2,1,b\"\n"), Some((2, 2)));
        assert_eq!(swallowed("1,\"Main St 5\nBerlin, DE\",0\n"), None);
        assert_eq!(swallowed("1,0,\"two\nlines, a comma\"\n"), None);
        assert_eq!(swallowed("1,0,\"two\n\nlines\"\n"), None);
        assert_eq!(swallowed("1,0,\"a,b,c\"\n"), None);
    }

    #[test]
    fn the_first_line_decides_the_separator() {
        for (line, expected) in [
            ("a,b;c,d", b','),
            ("1,5;2,5;0", b';'),
            ("1,5;2;3,5", b';'),
            ("1|2|x,y", b'|'),
            ("a\t1,5\tb", b'\t'),
            ("\"a;b;c\",d", b','),
            ("height 5\";width,x;y", b';'),
            ("\"a\"\";\";b", b';'),
            ("1,2,3", b','),
            ("one", b','),
        ] {
            assert_eq!(separator(line.as_bytes()).0, expected, "{line}");
        }
        for text in ["sep=;\n1,5;2\n", "\"SEP=;\"\r\n1,5;2\n", "\u{FEFF}sep=;\r\n1,5;2"] {
            let all = records(text.as_bytes(), 1).unwrap();
            assert_eq!(all, [(2, vec![b"1,5".to_vec(), b"2".to_vec()])], "{text:?}");
        }
        let error = records(b"sep=^\n1^2\n", 4).unwrap_err();
        assert!(error.starts_with("line 1 = ^: this separator is not read"), "{error}");
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
            if let Ok(records) = records(text.as_bytes(), piece) {
                let trimmed = |cell: &Vec<u8>| cell.trim_ascii().to_vec();
                let all = |all: All| -> All {
                    let cells = |cells: Vec<Vec<u8>>| cells.iter().map(trimmed).collect();
                    all.into_iter().map(|(line, of)| (line, cells(of))).collect()
                };
                let blank = text.contains(" \"") || text.contains("\t\"");
                prop_assert!(blank || all(records) == all(reference(text.as_bytes())));
            }
        }
    }
}
