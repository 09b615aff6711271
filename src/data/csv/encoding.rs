//! What a file looks like that is no table of UTF-8 text: another encoding, or another format.

use crate::data::{DataError, excerpt::excerpt};

/// Endings of files of formats that are not read, and what to do.
const ENDINGS: [(&[&str], &str); 6] = [
    (&["xlsx", "xls", "xlsm", "xlsb", "ods", "numbers"], "save the sheet as CSV in UTF-8"),
    (&["json", "jsonl", "ndjson", "xml", "html", "htm", "yaml", "yml"], "write its rows as CSV"),
    (&["zip", "7z", "rar", "tar", "tgz", "bz2", "xz", "zst", "lz4"], "unpack it, or use gzip"),
    (&["db", "sqlite", "sqlite3", "mdb", "accdb"], "write the table as CSV"),
    (&["sav", "dta", "sas7bdat", "rds", "rdata", "mat", "pkl", "pickle"], "write it as CSV"),
    (&["h5", "hdf5", "orc", "avro", "pdf", "doc", "docx"], "write the table as CSV"),
];

/// First bytes of files that are no text, or no table, and what they are.
const BEGINNINGS: [(&[u8], &str); 13] = [
    (b"PK\x03\x04", "a ZIP archive, such as the .xlsx of a spreadsheet: save the sheet as CSV"),
    (b"\xD0\xCF\x11\xE0", "an .xls of a spreadsheet: save the sheet as CSV in UTF-8"),
    (b"%PDF", "a PDF document: write its table as CSV"),
    (b"<!DOCTYPE", "an HTML page, perhaps of a login instead of a download"),
    (b"<!doctype", "an HTML page, perhaps of a login instead of a download"),
    (b"<html", "an HTML page, perhaps of a login instead of a download"),
    (b"<?xml", "XML: write its rows as CSV"),
    (b"BZh", "compressed by bzip2: unpack it, or use gzip"),
    (b"\xFD7zXZ", "compressed by xz: unpack it, or use gzip"),
    (b"\x28\xB5\x2F\xFD", "compressed by Zstandard: unpack it, or use gzip"),
    (b"SQLite format", "an SQLite database: write the table as CSV"),
    (b"\x89HDF", "an HDF5 file: write the table as CSV"),
    (b"version https://", "a pointer of Git LFS: fetch the file that it stands for"),
];

const UTF_16: &str = "UTF-16";
const UTF_32: &str = "UTF-32";
const LATIN: &str = "Windows-1252";

/// Refuses a file that its ending says to be of a format that is not read, whatever it holds.
///
/// # Errors
/// What to do instead.
pub(crate) fn check_ending(name: &str) -> Result<(), DataError> {
    let lower = name.to_ascii_lowercase();
    let lower = lower.strip_suffix(".gz").unwrap_or(&lower);
    let ending = lower.rsplit_once('.').map_or("", |(_, ending)| ending);
    let Some((_, remedy)) = ENDINGS.iter().find(|(endings, _)| endings.contains(&ending)) else {
        return Ok(());
    };
    let problem = format!("this format is not read: {remedy}; a CSV file is named .csv");
    Err(DataError::Format { place: "format".into(), value: Some(format!(".{ending}")), problem })
}

/// Refuses the first bytes of a text file that are those of another format, or in UTF-16.
///
/// # Errors
/// What the bytes look like, and what to do.
pub(crate) fn check_beginning(head: &[u8]) -> Result<(), DataError> {
    if let Some((_, what)) = BEGINNINGS.iter().find(|(beginning, _)| head.starts_with(beginning)) {
        return Err(DataError::format("byte 0", format!("no table, but {what}")));
    }
    match wide(head) {
        Some(encoding) => Err(DataError::format("byte 0", in_encoding(encoding))),
        None => Ok(()),
    }
}

/// The encoding with several bytes for every character that the first bytes of a file are in.
fn wide(head: &[u8]) -> Option<&'static str> {
    let nulls = |from: usize| head.iter().skip(from).step_by(2).all(|byte| *byte == 0);
    match head {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => Some(UTF_32),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => Some(UTF_16),
        // Without a mark every other byte of English text is 0.
        [_, _, _, _, ..] if nulls(0) || nulls(1) => Some(UTF_16),
        _ => None,
    }
}

fn in_encoding(encoding: &str) -> String {
    format!(
        "not UTF-8: it looks like {encoding}. Save the file as UTF-8, such as by `iconv -f \
         {encoding} -t UTF-8`"
    )
}

/// Checks that the text of a record is UTF-8.
///
/// # Errors
/// The position of the first cell that is not.
pub(crate) fn check<'t>(text: &[u8], mut cells: impl Iterator<Item = &'t [u8]>) -> Option<usize> {
    if std::str::from_utf8(text).is_ok() && memchr::memchr(0, text).is_none() {
        return None;
    }
    cells.position(|cell| std::str::from_utf8(cell).is_err() || cell.contains(&0)).or(Some(0))
}

/// The error of a cell whose text is not UTF-8, in this line and column. `record` is the text
/// around it, from which the encoding is guessed.
pub(crate) fn refuse(line: u64, column: usize, cell: &[u8], record: &[u8]) -> DataError {
    let problem = match guess(record) {
        Some(encoding) => in_encoding(encoding),
        None if cell.contains(&0) => "a byte 0: the file is damaged, or no text".into(),
        None => "not UTF-8: some of its bytes are damaged, or in another encoding".into(),
    };
    DataError::cell("line", line as usize, Some(column), escaped(cell), problem)
}

/// At most the first 40 characters of a text, its bytes that are not UTF-8 as `\xF6`.
pub(crate) fn escaped(text: &[u8]) -> String {
    let mut shown = String::new();
    for part in text[..text.len().min(160)].utf8_chunks() {
        shown.push_str(part.valid());
        part.invalid().iter().for_each(|byte| shown += &format!("\\x{byte:02X}"));
    }
    format!("\"{}\"", excerpt(&shown))
}

/// The encoding that a text with bytes that are not UTF-8 looks like.
///
/// Letters of Western Europe stand alone between letters of ASCII; those of other scripts follow
/// each other.
fn guess(text: &[u8]) -> Option<&'static str> {
    if text.contains(&0) {
        return wide(&text[..text.len() & !1]);
    }
    let mut runs: Vec<&[u8]> = text.split(u8::is_ascii).filter(|run| !run.is_empty()).collect();
    runs.sort_by_key(|run| run.len());
    let longest = *runs.last()?;
    if text.utf8_chunks().any(|part| !part.valid().is_ascii()) {
        // Some letters are UTF-8, so the others are damaged.
        return None;
    }
    if longest.len() >= 3 {
        let letters = |run: &[u8]| run.iter().all(|byte| matches!(byte, 0xC0..|0xA8| 0xB8));
        return Some(if letters(longest) { "Windows-1251" } else { "GB18030" });
    }
    // Between letters Windows-1252 has no signs of these places, and after small letters no
    // capitals; older encodings have their umlauts and accents there.
    let old = |(at, byte): (usize, &u8)| {
        let before = at.checked_sub(1).map_or(0, |at| text[at]);
        let after = text.get(at + 1).copied().unwrap_or(0);
        let within = before.is_ascii_alphabetic() && after.is_ascii_alphabetic();
        match byte {
            // An apostrophe is between letters, too.
            0x92 => false,
            0x8A | 0x8C | 0x8E => within && before.is_ascii_lowercase(),
            0x80..=0x99 | 0x9B | 0x9D | 0x9F => within,
            _ => false,
        }
    };
    let dos = |byte: u8| matches!(byte, 0x81 | 0x82 | 0x84 | 0x94);
    let found: Vec<u8> =
        text.iter().enumerate().filter(|at| old(*at)).map(|(_, byte)| *byte).collect();
    Some(match found.as_slice() {
        [] => LATIN,
        bytes if bytes.iter().any(|byte| dos(*byte)) => "CP850",
        _ => "MACINTOSH",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts that Python's codecs have encoded, such as `"Köln".encode("cp850")`.
    #[test]
    fn encodings_are_recognised() {
        for (text, encoding) in [
            (&b"K\xF6ln"[..], Some(LATIN)),
            (b"caf\xE9,d\xE9j\xE0", Some(LATIN)),
            (b"it\x92s,5 \x80", Some(LATIN)),
            (b"K\x94ln", Some("CP850")),
            (b"Z\x81rich", Some("CP850")),
            (b"r\x82sum\x82", Some("CP850")),
            (b"\x8Ei\x9Ekov", Some(LATIN)),
            (b"r\x8Esum\x8E", Some("MACINTOSH")),
            (b"Z\x9Frich", Some("MACINTOSH")),
            (b"\xCC\xEE\xF1\xEA\xE2\xE0", Some("Windows-1251")),
            (b"\xB1\xB1\xBE\xA9", Some("GB18030")),
            (b"a\0b\0,\x001\0", Some(UTF_16)),
            (b"K\xC3\xB6ln \xFF", None),
            (b"abc\0de", None),
        ] {
            assert_eq!(guess(text), encoding, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn other_formats_are_named() {
        for name in ["a.xlsx", "A.XLS", "b.json.gz", "c.zip", "d.sav"] {
            let error = check_ending(name).unwrap_err().to_string();
            assert!(error.starts_with("format = .") && error.contains("CSV"), "{error}");
        }
        for name in ["a.csv", "a.txt", "a", "data", "x.csv.gz", "a.tsv", "a.data"] {
            check_ending(name).unwrap();
        }
        for (head, words) in [
            (&b"\xFF\xFEx\0,\0"[..], "looks like UTF-16"),
            (b"\xFE\xFF\0x\0,", "looks like UTF-16"),
            (b"x\0,\0y\0\n\0", "looks like UTF-16"),
            (b"\0x\0,\0y\0\n", "looks like UTF-16"),
            (b"\xFF\xFE\0\0x\0\0\0", "looks like UTF-32"),
            (b"PK\x03\x04abc", "a ZIP archive"),
            (b"<!DOCTYPE html>", "an HTML page"),
        ] {
            let error = check_beginning(head).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for head in [&b"x,y\n1,2\n"[..], b"1", b"", b"\xEF\xBB\xBFx,y", b"a\0"] {
            check_beginning(head).unwrap();
        }
    }

    #[test]
    fn a_cell_that_is_not_utf_8_is_shown_with_its_bytes() {
        let cells = [&b"1"[..], b"K\xF6ln"];
        assert_eq!(check(b"1,K\xF6ln", cells.into_iter()), Some(1));
        assert_eq!(check("1,Köln".as_bytes(), cells.into_iter()), None);
        assert_eq!(
            refuse(3, 1, b"K\xF6ln", b"1,K\xF6ln").to_string(),
            "line 3, column 1 = \"K\\xF6ln\": not UTF-8: it looks like Windows-1252. Save the file \
             as UTF-8, such as by `iconv -f Windows-1252 -t UTF-8`"
        );
    }
}
