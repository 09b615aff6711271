//! The formats of files.

use super::{
    array::{idx, npy, npz},
    csv,
    format::{Content, Format},
};
use crate::registry::Registry;

/// Every format that is read. A program adds tables of another one, such as those of
/// `gradvine-tables`:
///
/// ```
/// use gradvine::data::{Cell, DataError, FORMATS, Format, Heading, Options, Rows, parse};
///
/// /// Reads lines of `age=NUMBER`.
/// fn read(bytes: Vec<u8>, rows: &mut dyn Rows) -> Result<(), DataError> {
///     let names = vec!["age".into(), "adult".into()];
///     rows.begin(Heading { columns: 2, names: Some(names), classes: None, unit: "row" })?;
///     for (row, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
///         let age = line.trim_start_matches("age=").parse().unwrap_or(f64::NAN);
///         let cells = [Cell::Number(age), Cell::Bool(age >= 18.0)];
///         rows.add(row as u64 + 1, &|column| cells[column])?;
///     }
///     Ok(())
/// }
///
/// FORMATS.register(Format::table("ages", "a file of ages", &[".ages"], &[], read))?;
/// let class_names = Some(vec!["False".into(), "True".into()]);
/// let options = Options { class_names, ..Options::default() };
/// let data = parse("a.ages", b"age=17\nage=18\n", None, &options)?;
/// assert_eq!(data.labels(), Some(&[0, 1][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub static FORMATS: Registry<Format> =
    Registry::new("format", &[csv::FORMAT, npy::FORMAT, npz::FORMAT, idx::FORMAT]);

/// Formats that are known, and read if they are in [`FORMATS`].
static ABSENT: [Format; 2] = [
    Format {
        name: "parquet",
        file: "a Parquet file",
        endings: &[".parquet"],
        magics: &[b"PAR1"],
        content: Content::Absent("Parquet", "parquet"),
    },
    Format {
        name: "arrow",
        file: "an Arrow file",
        endings: &[".arrow", ".arrows", ".feather"],
        magics: &[b"ARROW1", &[0xFF; 4]],
        content: Content::Absent("Arrow files (Feather)", "arrow"),
    },
];

/// The format of a file: by its name (without `.gz`), else by its first bytes, else CSV.
pub(super) fn format_of(name: &str, bytes: &[u8]) -> &'static Format {
    let lower = name.to_ascii_lowercase();
    let lower = lower.strip_suffix(".gz").unwrap_or(&lower);
    let all = || FORMATS.iter().chain(&ABSENT);
    let named = all().find(|format| format.endings.iter().any(|end| lower.ends_with(end)));
    let by_magic =
        || all().find(|format| format.magics.iter().any(|magic| bytes.starts_with(magic)));
    named.or_else(by_magic).unwrap_or(&csv::FORMAT)
}

/// The ends of the names of tables.
pub(super) fn table_endings() -> impl Iterator<Item = &'static str> {
    let tables = FORMATS.iter().chain(&ABSENT).filter(|format| format.is_table());
    tables.flat_map(|format| format.endings).copied().chain([".tsv", ".txt"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Named;

    #[test]
    fn names_and_first_bytes_decide_the_format() {
        for (name, bytes, format) in [
            ("a.csv.gz", &b"1,2"[..], "csv"),
            ("A.CSV", b"\0\0", "csv"),
            ("a.npy", b"1,2", "npy"),
            ("a", b"\x93NUMPY", "npy"),
            ("a.NPZ", b"", "npz"),
            ("a", b"PK\x03\x04", "npz"),
            ("t10k-images-idx3-ubyte.gz", b"", "idx"),
            ("a.bin", b"\0\0\x08\x01", "idx"),
            ("a.txt", b"1,2", "csv"),
            ("a.Parquet", b"\0\0", "parquet"),
            ("a", b"PAR1\x15", "parquet"),
            ("a.feather", b"", "arrow"),
            ("a.ARROWS", b"", "arrow"),
            ("a", b"ARROW1\0\0", "arrow"),
            ("a", b"\xFF\xFF\xFF\xFF\x20\x03", "arrow"),
        ] {
            assert_eq!(format_of(name, bytes).name(), format, "{name}");
        }
    }
}
