//! The files are made by `tests/inputs/arrow/make.py`: the table of `tests/inputs/parquet` as a
//! file and as a stream, with other types, compressions and orders of the columns.

use gradvine::data::{ColumnKind, Options};

use crate::{
    describe, guesses,
    patients::{
        CSV, Damages, NAMES, assert_cut_short_is_refused, assert_described_alike,
        assert_part_of_a_folder, assert_same_as_csv, named, parse, with_schema,
    },
};

const FILE: &[u8] = include_bytes!("../../../../tests/inputs/arrow/patients.arrow");
const STREAM: &[u8] = include_bytes!("../../../../tests/inputs/arrow/patients-2.arrows");

#[test]
fn a_table_is_the_same_from_csv_and_from_arrow() {
    assert_same_as_csv("t.arrow", &[STREAM, FILE]);
}

#[test]
fn a_folder_holds_parts_of_several_formats() {
    assert_part_of_a_folder(".arrow", STREAM);
}

#[test]
fn a_description_is_that_of_the_same_table_and_lists_what_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let options = Options { target: Some("diagnosis".into()), ..Options::default() };
    let described = |name: &str, bytes: &[u8]| {
        std::fs::write(path(name), bytes).unwrap();
        describe(&path(name), &options)
    };
    let text = described("t.csv", CSV).unwrap();
    assert_described_alike(&text, &described("t.arrows", STREAM).unwrap());
    let file = described("t.arrow", FILE).unwrap();
    assert_described_alike(&text, &file);
    assert_eq!(file.columns.len(), NAMES.len() + 3);
    let last: Vec<_> = (file.columns.iter().zip(guesses(&file)).skip(NAMES.len()))
        .map(|(column, guess)| (column.name.as_str(), column.missing, guess))
        .collect();
    let ignored = |remark: &str| (ColumnKind::Ignore, Some(remark.to_string()));
    assert_eq!(
        last,
        [
            ("visits", 0, ignored("is not read: a nested type")),
            ("scan", 0, ignored("is not read: Binary")),
            ("note", 40, ignored("no cell has a value")),
        ]
    );
    let options = Options { target: Some("visits".into()), ..Options::default() };
    let error = describe(&path("t.arrow"), &options).unwrap_err().to_string();
    assert!(error.contains("data.target = visits: the target is not read: a nested"), "{error}");
}

#[test]
fn cells_and_columns_that_are_not_read_are_refused() {
    let refuse = |options: &Options| parse("t.arrow", FILE, options).unwrap_err();
    assert_eq!(
        refuse(&named(&["age", "visits"])),
        "t.arrow: column 13 (visits) = a nested type: is not read: numbers, booleans, texts \
         (UTF-8), dates, timestamps and decimals up to 16 bytes are accepted"
    );
    let error = refuse(&named(&["scan"]));
    assert!(error.starts_with("t.arrow: column 14 (scan) = Binary: is not read"), "{error}");
    assert_eq!(
        refuse(&named(&["age", "weight"])),
        "t.arrow: row 5, column 2 (weight) = \"\": an empty cell, but a number is needed"
    );
    let error = refuse(&named(&["note"]));
    assert!(error.starts_with("t.arrow: row 1, column 15 (note) = \"\": an empty cell"), "{error}");
    let options = Options { header: Some(false), ..named(&["age"]) };
    let error = refuse(&options);
    assert!(error.contains("t.arrow is an Arrow file, which names its columns"), "{error}");
    let error = parse("t.feather", b"FEA1 and so on", &named(&["age"])).unwrap_err();
    assert!(error.contains("Feather, version 1, is another format"), "{error}");
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    assert_cut_short_is_refused("t.arrow", &[FILE, STREAM]);
}

#[test]
fn a_damaged_file_is_refused_or_read() {
    let mut damages = Damages::default();
    let mut try_out = |damaged: &[u8], place: &str| damages.try_out("t.arrow", damaged, place);
    for bytes in [FILE, STREAM] {
        let mut damaged = bytes.to_vec();
        for at in 0..bytes.len() {
            damaged[at] ^= [0x01, 0x80, 0x20, 0xFF][at % 4];
            try_out(&damaged, &format!("byte {at}"));
            damaged[at] = bytes[at];
        }
        // Lengths and positions.
        for (at, value) in
            (0..bytes.len() - 8).step_by(8).zip([-2, i64::MAX, 1 << 40].iter().cycle())
        {
            damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
            try_out(&damaged, &format!("{value} at byte {at}"));
            damaged[at..at + 8].copy_from_slice(&bytes[at..at + 8]);
        }
    }
    damages.assert_both();
}

/// Compressed values that claim to be 1 TiB.
#[test]
fn what_a_file_announces_is_bounded_by_its_length() {
    let (at, _) = STREAM
        .windows(12)
        .enumerate()
        // The length of values, then the first bytes of Zstandard.
        .find(|(_, window)| window[8..] == [0x28, 0xB5, 0x2F, 0xFD])
        .unwrap();
    let mut bytes = STREAM.to_vec();
    bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let error = parse("t.arrow", &bytes, &with_schema()).unwrap_err();
    assert!(error.contains("bytes of dictionaries are announced: at most"), "{error}");
}
