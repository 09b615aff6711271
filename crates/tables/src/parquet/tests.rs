//! The files are made by `tests/inputs/parquet/make.py`: one table as CSV, and twice as Parquet, in
//! two versions of its pages, with all compressions, and the columns in another order.

use gradvine::data::{ColumnKind, Options};

use crate::{
    describe, guesses,
    patients::{
        CSV, Damages, NAMES, assert_cut_short_is_refused, assert_described_alike,
        assert_part_of_a_folder, assert_same_as_csv, named, parse,
    },
};

const FIRST: &[u8] = include_bytes!("../../../../tests/inputs/parquet/patients.parquet");
const SECOND: &[u8] = include_bytes!("../../../../tests/inputs/parquet/patients-2.parquet");

#[test]
fn a_table_is_the_same_from_csv_and_from_parquet() {
    assert_same_as_csv("t.parquet", &[FIRST, SECOND]);
}

#[test]
fn a_folder_holds_parts_of_both_formats() {
    assert_part_of_a_folder(".parquet", SECOND);
}

#[test]
fn a_description_is_that_of_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("t.csv"), CSV).unwrap();
    std::fs::write(path("t.parquet"), SECOND).unwrap();
    let options = Options { target: Some("diagnosis".into()), ..Options::default() };
    let text = describe(&path("t.csv"), &options).unwrap();
    let typed = describe(&path("t.parquet"), &options).unwrap();
    assert_eq!(typed.columns.len(), NAMES.len());
    assert_described_alike(&text, &typed);
    // With columns that are not read.
    std::fs::write(path("t.parquet"), FIRST).unwrap();
    let typed = describe(&path("t.parquet"), &options).unwrap();
    assert_described_alike(&text, &typed);
    let ignored = |remark: &str| (ColumnKind::Ignore, Some(remark.to_string()));
    let last: Vec<_> = (typed.columns.iter().zip(guesses(&typed)).skip(NAMES.len()))
        .map(|(column, guess)| (column.name.as_str(), guess))
        .collect();
    assert_eq!(
        last,
        [
            ("visits", ignored("is not read: a nested type")),
            ("scan", ignored("is not read: BYTE_ARRAY (binary)")),
        ]
    );
}

#[test]
fn cells_and_columns_that_are_not_read_are_refused() {
    let refuse = |options: &Options| parse("t.parquet", FIRST, options).unwrap_err();
    assert_eq!(
        refuse(&named(&["age", "visits"])),
        "t.parquet: column 13 (visits) = a nested type: is not read: numbers, booleans, texts \
         (UTF-8), dates, timestamps and decimals up to 16 bytes are accepted"
    );
    let error = refuse(&named(&["scan"]));
    assert!(error.starts_with("t.parquet: column 14 (scan) = BYTE_ARRAY (binary): "), "{error}");
    let error = refuse(&named(&["age", "weight"]));
    assert_eq!(
        error,
        "t.parquet: row 5, column 2 (weight) = \"\": an empty cell, but a number is needed"
    );
    let error = refuse(&named(&["size"]));
    assert!(error.contains("size"), "{error}");
    let options = Options { header: Some(false), ..named(&["age"]) };
    assert!(refuse(&options).starts_with("data.header = false: "), "{}", refuse(&options));
}

#[test]
fn decimals_are_whole_numbers_of_up_to_16_bytes() {
    assert_eq!(super::integer(&[0xFF, 0x85]).unwrap(), -123);
    assert_eq!(super::integer(&[0x7B]).unwrap(), 123);
    assert!(super::integer(&[0; 17]).is_err());
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    assert_cut_short_is_refused("t.parquet", &[FIRST, SECOND]);
}

#[test]
fn a_damaged_file_is_refused_or_read() {
    let mut damages = Damages::default();
    for bytes in [FIRST, SECOND] {
        let mut damaged = bytes.to_vec();
        for at in 0..bytes.len() {
            for change in [[0x01, 0x10], [0x80, 0xFF], [0x20, 0x08]][at % 3] {
                damaged[at] = bytes[at] ^ change;
                damages.try_out("t.parquet", &damaged, &format!("byte {at}"));
            }
            damaged[at] = bytes[at];
        }
    }
    damages.assert_both();
}
