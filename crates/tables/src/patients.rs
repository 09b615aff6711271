//! For tests: the table that `tests/inputs/parquet` and `tests/inputs/arrow` have in each format.

use gradvine::data::{
    self, Column, ColumnKind, Columns, Dataset, Missing, Options, Schema, Survey, load,
};

use crate::{classes, guesses, register};

pub(crate) const CSV: &[u8] = include_bytes!("../../../tests/inputs/parquet/patients.csv");

/// The columns that all these files have.
pub(crate) const NAMES: [&str; 13] = [
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

pub(crate) fn parse(name: &str, bytes: &[u8], options: &Options) -> Result<Dataset, String> {
    register();
    data::parse(name, bytes, None, options).map_err(|error| error.to_string())
}

pub(crate) fn named(features: &[&str]) -> Options {
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

pub(crate) fn with_schema() -> Options {
    use ColumnKind::{Boolean, Category, Date, Number};
    let column = |name: &str, kind, missing, values: &[&str]| Column {
        name: name.into(),
        kind,
        values: (kind == Category).then(|| values.iter().map(|value| value.to_string()).collect()),
        other: false,
        missing,
        origin: (kind == Date).then(|| "2024-01-01".into()),
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
pub(crate) fn assert_same(one: &Dataset, other: &Dataset) {
    let bits = |data: &Dataset| -> Vec<u32> {
        data.features.iter().map(|value| value.to_bits()).collect()
    };
    assert_eq!(bits(one), bits(other));
    assert_eq!(one.features.dim(), other.features.dim());
    assert_eq!(one.target, other.target);
    assert_eq!((&one.columns, &one.gaps), (&other.columns, &other.gaps));
    assert_eq!(one.identifiers, other.identifiers);
}

/// Two tables have the same columns, as far as a description tells.
pub(crate) fn assert_described_alike(text: &Survey, typed: &Survey) {
    assert_eq!((text.rows, typed.rows), (40, 40));
    for name in NAMES {
        let found = |survey: &Survey| {
            let at = survey.columns.iter().position(|column| column.name == name);
            let at = at.expect("it has the columns of all");
            (survey.columns[at].missing, guesses(survey).swap_remove(at).0)
        };
        assert_eq!(found(text), found(typed), "{name}");
    }
    assert_eq!(classes(text), classes(typed));
}

/// The table is the same from CSV as from these files.
pub(crate) fn assert_same_as_csv(name: &str, files: &[&[u8]]) {
    for options in [with_schema(), named(&["age", "height", "cost", "code", "floor"])] {
        let text = parse("t.csv", CSV, &options).expect("the test data are valid");
        assert_eq!(text.rows(), 40);
        for bytes in files {
            assert_same(&text, &parse(name, bytes, &options).expect("the test data are valid"));
        }
    }
    let gaps = parse(name, files[0], &with_schema()).expect("the test data are valid").gaps;
    assert_eq!(gaps[0].rows, [4, 13, 22, 31]);
}

/// A folder may hold this file beside another, known by its name or by its first bytes, but not
/// beside one with the same rows.
pub(crate) fn assert_part_of_a_folder(name: &str, bytes: &[u8]) {
    let options = with_schema();
    let text = parse("t.csv", CSV, &options).expect("the test data are valid");
    for second in [format!("2{name}"), "2".into()] {
        let folder = tempfile::tempdir().expect("a temporary folder is made");
        let path = folder.path().to_str().expect("its path is text");
        let first = |bytes: &[u8]| std::fs::write(folder.path().join("1.csv"), bytes);
        std::fs::write(folder.path().join(&second), bytes).expect("it is writable");
        first(CSV).expect("it is writable");
        let error = load(path, &options).expect_err("rows would count twice").to_string();
        let copies = format!("files = 1.csv and {second}: the same 40 rows");
        assert!(error.contains(&copies), "{error}");
        // Without its last row.
        let lines: Vec<&[u8]> = CSV.split_inclusive(|byte| *byte == b'\n').collect();
        first(&lines[..40].concat()).expect("it is writable");
        let all = load(path, &options).expect("the test data are valid");
        assert_eq!(all.rows(), 79);
        for (at, row) in (0..39).chain(0..40).enumerate() {
            assert_eq!(all.features.row(at), text.features.row(row));
        }
    }
}

/// A file that ends early is refused, wherever it ends.
pub(crate) fn assert_cut_short_is_refused(name: &str, files: &[&[u8]]) {
    let options = with_schema();
    for bytes in files {
        for length in 1..bytes.len() {
            let error = parse(name, &bytes[..length], &options).unwrap_err();
            assert!(error.starts_with(&format!("{name}: ")), "{length} bytes: {error}");
        }
    }
}

/// Reads damaged files: a change may be within a value, and then the file is read. None makes the
/// reader panic.
#[derive(Default)]
pub(crate) struct Damages {
    read: u32,
    refused: u32,
}

impl Damages {
    /// Reads this file; an error names it.
    pub(crate) fn try_out(&mut self, name: &str, damaged: &[u8], place: &str) {
        match parse(name, damaged, &with_schema()) {
            Ok(_) => self.read += 1,
            Err(error) => {
                assert!(error.contains(name), "{place}: {error}");
                self.refused += 1;
            }
        }
    }

    /// Many were read, and many were refused.
    pub(crate) fn assert_both(&self) {
        let Damages { read, refused } = self;
        assert!(*refused > 500 && *read > 500, "{refused} refused, {read} read");
    }
}
