//! The pages of a column, checked before the crate `parquet` decodes them: it trusts some of what a
//! page says about itself, so that a damaged one could make it panic or allocate gigabytes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::{Buf, Bytes, buf::Reader};
use gradvine::data::plausible_size;
use parquet::{
    basic::{Encoding, Type},
    column::page::{Page, PageMetadata, PageReader},
    errors::{ParquetError, Result},
    file::{
        metadata::RowGroupMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
    schema::types::ColumnDescriptor,
};

use super::kinds::least_bytes;

/// The bytes of a file, whose pages must not grow to more than a plausible file of its length.
pub(super) struct Pages {
    bytes: Bytes,
    /// The uncompressed bytes that the row group may still have.
    left: AtomicU64,
}

impl Pages {
    pub(super) fn new(bytes: Bytes) -> Pages {
        Pages { bytes, left: AtomicU64::new(0) }
    }

    /// Begins a row group: the pages of the last one are no longer in memory.
    pub(super) fn begin_group(&self) {
        self.left.store(plausible_size(self.bytes.len() as u64), Ordering::Relaxed);
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl ChunkReader for Pages {
    type T = Reader<Bytes>;

    /// The page that begins here.
    fn get_read(&self, start: u64) -> Result<Reader<Bytes>> {
        let start = usize::try_from(start).ok().filter(|&start| start <= self.bytes.len());
        let Some(start) = start else { return refuse("a page begins after the end of the file") };
        let page = self.bytes.slice(start..);
        let Some(size) = uncompressed_size(&page) else { return refuse("no page begins here") };
        let left = self.left.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(size) else {
            return refuse(&format!(
                "a page of {size} uncompressed bytes: the row group has more than is plausible for \
                 {} bytes",
                self.bytes.len()
            ));
        };
        self.left.store(left, Ordering::Relaxed);
        Ok(page.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = usize::try_from(start).ok().and_then(|start| start.checked_add(length));
        match end.filter(|&end| end <= self.bytes.len()) {
            Some(end) => Ok(self.bytes.slice(end - length..end)),
            None => refuse("a page ends after the end of the file"),
        }
    }
}

/// The uncompressed bytes of a page by the beginning of its header, which is a structure of
/// Thrift's compact protocol: field 1, the kind, then field 2, these bytes, both `i32`.
fn uncompressed_size(header: &[u8]) -> Option<u64> {
    const NEXT_FIELD_I32: u8 = 0x15;
    let rest = header.strip_prefix(&[NEXT_FIELD_I32])?;
    let (_, rest) = varint(rest)?;
    let (size, _) = varint(rest.strip_prefix(&[NEXT_FIELD_I32])?)?;
    // Signs are in the last bit.
    (size & 1 == 0).then_some(size >> 1)
}

/// A number of 7 bits a byte, the lowest first, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

fn refuse<T>(problem: &str) -> Result<T> {
    Err(ParquetError::General(problem.into()))
}

/// The pages of a column in a row group.
pub(super) struct Checked {
    pages: SerializedPageReader<Pages>,
    kind: Type,
    /// The bytes of a value of fixed length.
    length: i32,
    is_nullable: bool,
    has_dictionary: bool,
    /// The rows of the pages to come.
    left: u64,
}

impl Checked {
    /// # Errors
    /// If the column is not within the file, or its compression is not read.
    pub(super) fn new(
        pages: &Arc<Pages>,
        group: &RowGroupMetaData,
        leaf: usize,
        column: &ColumnDescriptor,
    ) -> std::result::Result<Checked, String> {
        let chunk = group.column(leaf);
        let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
        if start < 0 || chunk.compressed_size() < 0 {
            return Err("a column begins before the file".into());
        }
        let rows = group.num_rows();
        let pages = SerializedPageReader::new(Arc::clone(pages), chunk, rows as usize, None)
            .map_err(|error| error.to_string())?;
        Ok(Checked {
            pages,
            kind: column.physical_type(),
            length: if column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY {
                column.type_length()
            } else {
                0
            },
            is_nullable: column.max_def_level() > 0,
            has_dictionary: false,
            left: rows as u64,
        })
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        match page {
            Page::DictionaryPage { buf, num_values, encoding, .. } => {
                let plain = matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY);
                if !plain || self.has_dictionary {
                    return refuse("a second dictionary, or one that is encoded itself");
                }
                let least = least_bytes(self.kind, self.length)
                    .map(|bytes| bytes.saturating_mul(u64::from(*num_values)));
                let whole = self.kind != Type::BYTE_ARRAY || has_texts(buf, *num_values);
                if !whole || least.is_none_or(|least| least > buf.len() as u64) {
                    return refuse("a dictionary has less bytes than its values need");
                }
                self.has_dictionary = true;
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, .. } => {
                if !self.is_nullable {
                    return self.check_values(*encoding, buf, *num_values, None);
                }
                if *def_level_encoding != Encoding::RLE {
                    return refuse("nulls are marked in an old way: write the file again");
                }
                let Some((levels, values)) = sized(buf) else { return refuse("a page is cut") };
                self.check_values(*encoding, values, *num_values, Some(levels))?;
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let split = buf.split_at_checked(*def_levels_byte_len as usize);
                let Some((levels, values)) = split.filter(|_| *rep_levels_byte_len == 0) else {
                    return refuse("a page is cut");
                };
                let levels = self.is_nullable.then_some(levels);
                self.check_values(*encoding, values, *num_values, levels)?;
            }
        }
        Ok(())
    }

    /// Checks the values of a page of `rows` rows: that they are encoded in a way that their type
    /// allows, and are as many as `levels` mark as present.
    fn check_values(
        &mut self,
        encoding: Encoding,
        values: &[u8],
        rows: u32,
        levels: Option<&[u8]>,
    ) -> Result<()> {
        match self.left.checked_sub(u64::from(rows)) {
            Some(left) => self.left = left,
            None => return refuse("a column has more rows than its row group"),
        }
        let present = levels.map_or(Some(rows), |levels| ones(levels, 1, rows));
        let Some(present) = present else { return refuse("a page marks too few of its nulls") };
        let texts = self.kind == Type::BYTE_ARRAY;
        let (allowed, whole) = match encoding {
            Encoding::PLAIN => (true, !texts || has_texts(values, present)),
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => {
                let whole = values.split_first().is_some_and(|(&width, positions)| {
                    width <= 32 && ones(positions, width.into(), present).is_some()
                });
                (self.has_dictionary, whole || (present == 0 && !values.is_empty()))
            }
            Encoding::RLE => {
                let whole = sized(values).is_some_and(|(bits, _)| ones(bits, 1, present).is_some());
                (self.kind == Type::BOOLEAN, whole)
            }
            Encoding::BYTE_STREAM_SPLIT => {
                let least = least_bytes(self.kind, self.length).unwrap_or(0);
                let parts =
                    matches!(self.kind, Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE);
                (parts, values.len() as u64 == least * u64::from(present))
            }
            // The crate panics where numbers in deltas are damaged.
            _ => (false, true),
        };
        if !allowed {
            return refuse(&format!(
                "{} in the encoding {encoding} is not read: write the file with plain values or \
                 with dictionaries, or as BYTE_STREAM_SPLIT",
                self.kind
            ));
        }
        if !whole {
            return refuse("a page has other bytes than its values need");
        }
        Ok(())
    }
}

/// How many of `count` whole numbers of `width` bits are 1, if `width` is 1: they are runs of
/// equal numbers, or groups of 8. `None` if there are fewer numbers.
fn ones(mut bytes: &[u8], width: usize, count: u32) -> Option<u32> {
    let (mut left, mut ones) = (u64::from(count), 0);
    while left > 0 {
        let (header, rest) = varint(bytes)?;
        let length = header >> 1;
        if header & 1 == 0 {
            let (number, rest) = rest.split_at_checked(width.div_ceil(8))?;
            let run = length.min(left);
            ones += run * u64::from(width == 1 && number[0] & 1 == 1);
            (left, bytes) = (left - run, rest);
            continue;
        }
        // The last group may be cut after its last number.
        let groups = usize::try_from(length).ok()?;
        let (packed, rest) = rest.split_at(groups.checked_mul(width)?.min(rest.len()));
        let held = (packed.len() * 8).checked_div(width).map_or(length * 8, |held| held as u64);
        let used = held.min(left);
        if width == 1 {
            let bit = |at: u64| packed[(at / 8) as usize] >> (at % 8) & 1;
            ones += (0..used).map(|at| u64::from(bit(at))).sum::<u64>();
        }
        (left, bytes) = (left - used, rest);
    }
    u32::try_from(ones).ok()
}

/// Bytes after their number, and the rest.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Whether there are as many texts, each after its length.
fn has_texts(mut bytes: &[u8], count: u32) -> bool {
    for _ in 0..count {
        let Some((_, rest)) = sized(bytes) else { return false };
        bytes = rest;
    }
    true
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_groups_are_counted() {
        // 5 times 1, then a group of 8 with 3 of them.
        let bytes = [5 << 1, 1, (1 << 1) | 1, 0b0001_0110];
        for (count, expected) in
            [(0, Some(0)), (5, Some(5)), (8, Some(7)), (13, Some(8)), (14, None)]
        {
            assert_eq!(ones(&bytes, 1, count), expected, "{count}");
        }
        assert_eq!(ones(&[0xFF; 20], 1, 1), None, "a number without end");
        assert_eq!(ones(&[9 << 1], 0, 9), Some(0));
        // 4 of a group's 8 numbers of 3 bits; its other bytes are cut off.
        assert_eq!((ones(&[3, 0, 0], 3, 5), ones(&[3, 0, 0], 3, 6)), (Some(0), None));
    }

    #[test]
    fn the_uncompressed_size_is_the_second_field() {
        assert_eq!(uncompressed_size(&[0x15, 0x00, 0x15, 0x80, 0x10, 0x15]), Some(1024));
        for header in
            [&[][..], &[0x15], &[0x15, 0, 0x16, 8], &[0x15, 0, 0x15, 1], &[0x15, 0, 0x15, 0x80]]
        {
            assert_eq!(uncompressed_size(header), None, "{header:?}");
        }
    }

    /// A page that claims to grow to 1 GiB is refused before memory is allocated for it.
    #[test]
    fn pages_stay_within_a_plausible_size() {
        const HEADER: &[u8] = &[0x15, 0x00, 0x15, 0x80, 0x80, 0x80, 0x80, 0x08];
        let pages = Pages::new(Bytes::from_static(HEADER));
        assert_eq!(uncompressed_size(HEADER), Some(1 << 30));
        pages.begin_group();
        let error = pages.get_read(0).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("a page of 1073741824 uncompressed bytes"), "{error}");
        assert!(pages.get_read(9).is_err());
    }
}
