//! The files are made by `tests/inputs/parquet/make.py`: one table as CSV, and twice as Parquet, in
//! two versions of its pages, with all compressions, and the columns in another order.

use super::super::{
    dataset::{Columns, Dataset},
    describe,
    load::{self, Options},
    schema::{Column, ColumnKind, Missing, Schema},
};

const CSV: &[u8] = include_bytes!("../../../tests/inputs/parquet/patients.csv");
const FIRST: &[u8] = include_bytes!("../../../tests/inputs/parquet/patients.parquet");
const SECOND: &[u8] = include_bytes!("../../../tests/inputs/parquet/patients-2.parquet");

/// The columns of both Parquet files.
const NAMES: [&str; 13] = [
    "patient",
    "age",
    "weight",
    "height",
    "sex",
    "smoker",
    "admitted",
    "seen",
    "ward",
    "cost",
    "code",
    "floor",
    "diagnosis",
];

fn parse(name: &str, bytes: &[u8], options: &Options) -> Result<Dataset, String> {
    load::parse(name, bytes, None, options).map_err(|error| error.to_string())
}

fn named(features: &[&str]) -> Options {
    Options {
        columns: Some(Columns {
            features: features.iter().map(|name| name.to_string()).collect(),
            targets: Vec::new(),
        }),
        target: Some("diagnosis".into()),
        number_classes: true,
        ..Options::default()
    }
}

fn with_schema() -> Options {
    use ColumnKind::{Boolean, Category, Date, Number};
    let column = |name: &str, kind, missing, values: &[&str]| Column {
        name: name.into(),
        kind,
        values: (kind == Category).then(|| values.iter().map(|value| value.to_string()).collect()),
        other: false,
        missing,
    };
    let columns = vec![
        column("age", Number, Missing::Refuse, &[]),
        column("weight", Number, Missing::Mean, &[]),
        column("height", Number, Missing::Refuse, &[]),
        column("sex", Category, Missing::Refuse, &["f", "m"]),
        column("smoker", Boolean, Missing::Value(0.5), &[]),
        column("admitted", Date, Missing::Refuse, &[]),
        column("seen", Date, Missing::Refuse, &[]),
        column("ward", Category, Missing::Category, &["east", "north", "south"]),
        column("cost", Number, Missing::Refuse, &[]),
        column("code", Number, Missing::Refuse, &[]),
        column(
            "floor",
            Category,
            Missing::Refuse,
            &["-3", "-2", "-1", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
        ),
    ];
    Options {
        schema: Some(Schema { columns }),
        identifier: Some("patient".into()),
        target: Some("diagnosis".into()),
        number_classes: true,
        ..Options::default()
    }
}

/// Two datasets are the same to the bit.
fn assert_same(one: &Dataset, other: &Dataset) {
    let bits = |data: &Dataset| -> Vec<u32> {
        data.features.iter().map(|value| value.to_bits()).collect()
    };
    assert_eq!(bits(one), bits(other));
    assert_eq!(one.features.dim(), other.features.dim());
    assert_eq!(one.target, other.target);
    assert_eq!((&one.columns, &one.gaps), (&other.columns, &other.gaps));
    assert_eq!(one.identifiers, other.identifiers);
}

#[test]
fn a_table_is_the_same_from_csv_and_from_parquet() {
    for options in [with_schema(), named(&["age", "height", "cost", "code", "floor"])] {
        let text = parse("t.csv", CSV, &options).unwrap();
        assert_eq!(text.rows(), 40);
        for bytes in [FIRST, SECOND] {
            assert_same(&text, &parse("t.parquet", bytes, &options).unwrap());
        }
    }
    let gaps = parse("t.parquet", FIRST, &with_schema()).unwrap().gaps;
    assert_eq!(gaps[0].rows, [4, 13, 22, 31]);
}

#[test]
fn a_folder_holds_parts_of_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("1.csv"), CSV).unwrap();
    std::fs::write(folder.path().join("2.parquet"), SECOND).unwrap();
    // By its first bytes.
    std::fs::write(folder.path().join("3"), SECOND).unwrap();
    let options = with_schema();
    let all = load::load(folder.path().to_str().unwrap(), &options).unwrap();
    let text = parse("t.csv", CSV, &options).unwrap();
    assert_eq!(all.rows(), 3 * text.rows());
    for part in 0..3 {
        for row in 0..text.rows() {
            assert_eq!(all.features.row(part * 40 + row), text.features.row(row));
        }
    }
}

#[test]
fn a_description_is_that_of_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("t.csv"), CSV).unwrap();
    std::fs::write(path("t.parquet"), SECOND).unwrap();
    let options = Options { target: Some("diagnosis".into()), ..Options::default() };
    let text = describe::describe(&path("t.csv"), &options).unwrap();
    let typed = describe::describe(&path("t.parquet"), &options).unwrap();
    assert_eq!((text.rows, typed.rows, typed.columns.len()), (40, 40, NAMES.len()));
    for name in NAMES {
        let find = |columns: &[describe::ColumnDescription]| {
            columns.iter().find(|column| column.name == name).cloned().unwrap()
        };
        let (a, b) = (find(&text.columns), find(&typed.columns));
        assert_eq!((a.missing, a.guess(40).0), (b.missing, b.guess(40).0), "{name}");
    }
    assert_eq!(text.classes(), typed.classes());
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
fn texts_of_numbers_that_are_dates_and_decimals() {
    let mut batch = super::Batch::default();
    let mut text =
        |slot: &dyn Fn(&mut super::Batch) -> Result<super::Slot, String>| match slot(&mut batch) {
            Ok(super::Slot::Made(from, to)) => {
                String::from_utf8(batch.made[from..to].to_vec()).unwrap()
            }
            Ok(_) => panic!("no text"),
            Err(problem) => problem,
        };
    assert_eq!(text(&|batch| batch.decimal(-5, 2)), "-0.05");
    assert_eq!(text(&|batch| batch.decimal(12345, 2)), "123.45");
    assert_eq!(text(&|batch| batch.decimal(i128::MIN, 0)), i128::MIN.to_string());
    assert_eq!(text(&|batch| batch.date(-1)), "1969-12-31");
    assert_eq!(text(&|batch| batch.date(19_860)), "2024-05-17");
    assert_eq!(text(&|batch| batch.moment(-1, 1000, true)), "1969-12-31T23:59:59.999Z");
    assert_eq!(
        text(&|batch| batch.moment(1_715_934_600_000_000_001, 1_000_000_000, false)),
        "2024-05-17T08:30:00.000000001"
    );
    assert!(text(&|batch| batch.date(i64::from(i32::MAX))).contains("its year has 4 digits"));
    assert_eq!(text(&|batch| batch.whole(-(1 << 53) - 1)), "-9007199254740993");
    assert_eq!(super::integer(&[0xFF, 0x85]).unwrap(), -123);
    assert_eq!(super::integer(&[0x7B]).unwrap(), 123);
    assert!(super::integer(&[0; 17]).is_err());
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    let options = with_schema();
    for bytes in [FIRST, SECOND] {
        for length in 1..bytes.len() {
            let error = parse("t.parquet", &bytes[..length], &options).unwrap_err();
            assert!(error.starts_with("t.parquet: "), "{length} bytes: {error}");
        }
    }
}

/// A change may be within a value; then the file is read. It never makes the reader panic.
#[test]
fn a_damaged_file_is_refused_or_read() {
    let options = with_schema();
    let (mut read, mut refused) = (0, 0);
    for bytes in [FIRST, SECOND] {
        let mut damaged = bytes.to_vec();
        for at in 0..bytes.len() {
            for change in [[0x01, 0x10], [0x80, 0xFF], [0x20, 0x08]][at % 3] {
                damaged[at] = bytes[at] ^ change;
                match parse("t.parquet", &damaged, &options) {
                    Ok(_) => read += 1,
                    Err(error) => {
                        assert!(error.contains("t.parquet"), "byte {at}: {error}");
                        refused += 1;
                    }
                }
            }
            damaged[at] = bytes[at];
        }
    }
    assert!(refused > 500 && read > 500, "{refused} refused, {read} read");
}
