//! Wrong files: one error that names the file, the place in it, the value, and the accepted ones;
//! never a panic.

use std::{fs, io::Write, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use gradvine::{
    data::{Dataset, Options, Split, Task, load, parse, shards, split_test},
    learn::{Model, ModelParams},
};
use proptest::prelude::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(data);
    bytes
}

fn idx(kind: u8, shape: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|extent| extent.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// The error of loading these bytes from a file of this name, without the folder's name.
fn error_of(name: &str, bytes: &[u8], options: &Options) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    let error = load(path.to_str().unwrap(), options).unwrap_err().to_string();
    let prefix = format!("{}/", folder.path().display());
    assert!(error.contains(&format!("{prefix}{name}")), "the file is not named: {error}");
    assert!(!error.contains(char::is_control), "more than a line: {error:?}");
    error.replace(&prefix, "")
}

const FINITE: &str = "a finite number within f32 is needed: up to about 3.4e38";

/// Each text of a CSV file is refused with its message, plain and compressed.
fn csv_is_refused(faults: impl IntoIterator<Item = (&'static str, String)>) {
    for (text, expected) in faults {
        assert_eq!(error_of("a.csv", text.as_bytes(), &Options::default()), expected, "{text:?}");
        let compressed = error_of("a.csv.gz", &gzip(text.as_bytes()), &Options::default());
        assert_eq!(compressed, expected.replace("a.csv", "a.csv.gz"), "{text:?}");
    }
}

#[test]
fn csv_cells_that_are_no_numbers_or_labels() {
    let label = "a label is a whole number 0, 1, 2, ..., below 65536";
    csv_is_refused([
        (
            "age,sick\n1,0\ntall,1\n",
            "a.csv: line 3, column 0 (age) = \"tall\": text, but a number is needed; for \
             text and missing values list the columns in data.schema (`gradvine data describe \
             FILE` drafts it)"
                .into(),
        ),
        (
            "1,2,0\n3,,1\n",
            "a.csv: line 2, column 1 = \"\": an empty cell, but a number is \
                           needed"
                .into(),
        ),
        ("1,2,0\n3,nan,1\n", format!("a.csv: line 2, column 1 = \"nan\": {FINITE}")),
        ("1,2,0\n-inf,3,1\n", format!("a.csv: line 2, column 0 = \"-inf\": {FINITE}")),
        ("1,2,0\n3,1e39,1\n", format!("a.csv: line 2, column 1 = \"1e39\": {FINITE}")),
        ("1,2,0\n3,4,1.5\n", format!("a.csv: line 2, column 2 = 1.5: {label}")),
        ("1,2,0\n3,4,-1\n", format!("a.csv: line 2, column 2 = -1: {label}")),
        ("1,2,0\n3,4,70000\n", format!("a.csv: line 2, column 2 = 70000: {label}")),
        (
            "1,2,0\n3,4,NaN\n",
            "a.csv: line 2, column 2 = \"NaN\": a value is missing, but a label is needed: leave \
             the row out, or list the text in data.classes if it is the name of a class"
                .into(),
        ),
        (
            "1,2,0\n3,4,cat\n",
            "a.csv: line 2, column 2 = \"cat\": text, but a label is needed: name the classes in \
             data.classes, or number them 0, 1, 2, ..., in the same order on every node"
                .into(),
        ),
    ]);
    // Bytes that are not text are shown as such, and a cell of any length as its first 40
    // characters.
    let error = error_of("a.csv", b"1,0\n\xFF\xFE,1\n", &Options::default());
    assert!(error.starts_with("a.csv: line 2, column 0 = \"\\xFF\\xFE\": not UTF-8"), "{error}");
    let long = format!("1,0\n{},1\n", "x".repeat(100_000));
    assert!(error_of("a.csv", long.as_bytes(), &Options::default()).len() < 200);
}

#[test]
fn csv_lines_that_are_no_table() {
    csv_is_refused([
        ("", "a.csv: line 1: the file is empty: at least one row is needed".to_string()),
        ("\n\n", "a.csv: line 1: the file is empty: at least one row is needed".into()),
        (
            "age,sick\n",
            "a.csv: line 2: there is no row after the header: at least one is \
                        needed"
                .into(),
        ),
        ("1,2,0\n3,1\n", "a.csv: line 2: 2 columns found, 3 expected, as in the first line".into()),
        (
            "1,2,0\n\n\n3,4,5,1\n",
            "a.csv: line 4: 4 columns found, 3 expected, as in the first \
                                  line"
                .into(),
        ),
        (
            "x,n,y\n1,\"a,0\n2,b,1\n",
            "a.csv: line 2, column 1 = \"a,0\\n2,b,1\\n: the cell begins with a quote, but no \
             quote ends it: a quoted cell ends with a quote, and a quote in it is written twice"
                .into(),
        ),
        (
            "x,y,y\n1,2,0\n",
            "a.csv: columns = \"y\": columns 1 and 2 have this name: rename one of them".into(),
        ),
        (
            "3,2,no,yes\n1,2,0\n3,4,1\n",
            "a.csv: line 1: the first line announces 3 rows, 2 \
                                        follow"
                .into(),
        ),
    ]);
}

#[test]
fn options_that_do_not_fit_the_file() {
    let text = b"age,weight,sick\n1,2,0\n3,4,2\n";
    let with = |options: Options| error_of("a.csv", text, &options);
    assert_eq!(
        with(Options { classes: Some(2), ..Options::default() }),
        "a.csv: line 3, column 2 (sick) = 2: a label is a whole number from 0 to 1 (2 classes)"
    );
    assert_eq!(
        with(Options { inputs: Some(3), ..Options::default() }),
        "a.csv: columns: 2 features beside 1 target: 3 are expected (model.inputs)"
    );
    for wanted in ["size", "3", "-4"] {
        assert_eq!(
            with(Options { target: Some(wanted.into()), ..Options::default() }),
            format!(
                "data.target = {wanted}: no such column: one of age, weight, sick, or a position \
                 from 0 to 2, or from -3 to -1 is accepted (in a.csv)"
            )
        );
    }
    let two = with(Options { target: Some("age,sick".into()), ..Options::default() });
    assert_eq!(two, "data.target = age,sick: classification has one column of labels (in a.csv)");
    let all = with(Options {
        target: Some("0,1,2".into()),
        task: Task::Regression,
        ..Options::default()
    });
    assert!(all.contains("of 3 columns none is left for the features"), "{all}");
    // More classes than the model has outputs, found when model and data meet.
    let data = parse("a.csv", text, None, &Options::default()).unwrap();
    let model = Model::resolve(&ModelParams::default(), Some(2), Some(2)).unwrap();
    let Err(error) = model.objective(Arc::new(data)) else { panic!("3 classes fit 2 outputs") };
    assert_eq!(error.to_string(), "model.outputs = 2: a.csv has 3");
}

#[test]
fn npy_faults() {
    let floats = [1.0f32, 0.0, 2.0, 1.0].map(f32::to_le_bytes).concat();
    let whole = npy("<f4", "(2, 2)", &floats);
    assert!(parse("a.npy", &whole, None, &Options::default()).is_ok());
    let nan = npy("<f4", "(2, 2)", &[1.0f32, 0.0, f32::NAN, 1.0].map(f32::to_le_bytes).concat());
    let mut magic = whole.clone();
    magic[1] = b'n';
    let start = whole.len() - 16;
    for (bytes, expected) in [
        (Vec::new(), "a.npy: line 1: the file is empty: at least one row is needed".to_string()),
        (magic, "a.npy: byte 0: not an NPY file: it starts with \\x93NUMPY".into()),
        (whole[..20].to_vec(), "a.npy: byte 20: the header is cut short".into()),
        (
            whole[..whole.len() - 1].to_vec(),
            format!(
                "a.npy: shape = [2, 2]: 16 bytes of f32 expected after byte {start}, 15 found: \
                 cut short or damaged"
            ),
        ),
        (nan, format!("a.npy: row 1, column 0 = NaN: {FINITE}")),
        (
            npy("<f8", "(1, 2)", &[1e300f64, 0.0].map(f64::to_le_bytes).concat()),
            "a.npy: row 0, \
            column 0 = 1"
                .into(),
        ),
        (npy("<f4", "(0, 2)", &[]), "a.npy: shape = [0, 2]: there is no number".into()),
        (
            npy("<c16", "(1, 1)", &[0; 16]),
            "a.npy: header, 'descr' = <c16: integers (i1 i2 i4 i8, u1 u2 u4 u8) and floats (f2 f4 \
             f8) are accepted"
                .into(),
        ),
        (
            npy("|i1", "(1, 2)", &[7, 0xFE]),
            "a.npy: row 0, column 1 = -2: a label is a whole number 0, 1, 2, ..., below \
             65536"
                .into(),
        ),
    ] {
        let error = error_of("a.npy", &bytes, &Options::default());
        assert!(error.starts_with(&expected), "{error}\n{expected}");
    }
    for cut in 0..whole.len() {
        error_of("a.npy", &whole[..cut], &Options::default());
    }
    let mut longer = whole;
    longer.push(0);
    assert!(error_of("a.npy", &longer, &Options::default()).contains("16 bytes of f32 expected"));
}

#[test]
fn idx_faults() {
    let folder = tempfile::tempdir().unwrap();
    let labels = folder.path().join("y.idx");
    let options = Options { labels_file: Some(labels.clone()), ..Options::default() };
    let error = |images: &[u8], classes: &[u8]| {
        fs::write(&labels, classes).unwrap();
        let path = folder.path().join("x.idx");
        fs::write(&path, images).unwrap();
        let error = load(path.to_str().unwrap(), &options).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.path().display()), "")
    };
    let (images, classes) = (idx(8, &[2, 1, 2], &[0, 255, 7, 8]), idx(8, &[2], &[3, 0]));
    let magic = "byte 0: not an IDX file: it starts with two zero bytes, a number type and a \
                 number of dimensions";
    assert_eq!(error(b"PK\x03\x04....", &classes), format!("x.idx: {magic}"));
    assert_eq!(error(&images, b"1,2"), format!("y.idx: {magic}"));
    assert_eq!(
        error(&idx(3, &[1], &[0]), &classes),
        "x.idx: byte 2, number type = 0x03: accepted: 0x08 (u8), 0x09 (i8), 0x0b (i16), 0x0c \
         (i32), 0x0d (f32), 0x0e (f64)"
    );
    assert_eq!(
        error(&images[..18], &classes),
        "x.idx: shape = [2, 1, 2]: 4 bytes of u8 expected after byte 16, 2 found: cut short or \
         damaged"
    );
    assert_eq!(
        error(&images[..7], &classes),
        "x.idx: byte 4: the header is cut short: the extents of 3 dimensions are needed"
    );
    assert_eq!(
        error(&idx(8, &[3, 1], &[1, 2, 3]), &classes),
        "y.idx: labels: 2 rows, but x.idx has 3"
    );
    let negative = idx(9, &[2], &[1, 0xFF]);
    assert_eq!(
        error(&images, &negative),
        "y.idx: row 1 = -1: a label is a whole number 0, 1, 2, ..., below 65536"
    );
    let nan = idx(13, &[2, 1], &[1.0f32, f32::NAN].map(f32::to_be_bytes).concat());
    assert_eq!(error(&nan, &classes), format!("x.idx: row 1, column 0 = NaN: {FINITE}"));
    assert_eq!(
        error(&images, &images),
        "y.idx: labels: 2 numbers per row, but one label is needed"
    );
    for cut in 0..images.len() {
        error(&images[..cut], &classes);
    }
    for cut in 0..classes.len() {
        error(&images, &classes[..cut]);
    }
    fs::remove_file(&labels).unwrap();
    let missing =
        load(folder.path().join("x.idx").to_str().unwrap(), &options).unwrap_err().to_string();
    assert!(missing.contains("y.idx: cannot be read: "), "{missing}");
}

#[test]
fn gzip_faults() {
    let text: String = (0..500).map(|i| format!("{i},{},{}\n", i * i, i % 3)).collect();
    let whole = gzip(text.as_bytes());
    let with = |bytes: &[u8]| error_of("a.csv.gz", bytes, &Options::default());
    let not = "a.csv.gz: byte 0: not gzip-compressed, as its name says: a .gz file starts with \
               the bytes 1f 8b";
    assert_eq!(with(text.as_bytes()), not);
    assert_eq!(with(b""), not);
    for cut in [2, 10, 30, whole.len() / 2, whole.len() - 8, whole.len() - 1] {
        assert!(with(&whole[..cut]).contains("the gzip stream is damaged or cut short"), "{cut}");
    }
    // The checksum at the end, and the length behind it.
    for from_end in [1, 4, 5, 8] {
        let mut damaged = whole.clone();
        let at = damaged.len() - from_end;
        damaged[at] ^= 0x10;
        assert!(with(&damaged).contains("the gzip stream is damaged or cut short"), "{from_end}");
    }
}

#[test]
fn places_that_hold_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("b.csv");
    let error = load(missing.to_str().unwrap(), &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("data.source = ") && error.contains("b.csv"), "{error}");
    assert!(
        error.contains("no such file; accepted: a path to a CSV, NPY, NPZ or IDX file (also .gz)"),
        "{error}"
    );
    assert!(error.ends_with("digits, breast-cancer"), "{error}");
    let error = load(folder.path().to_str().unwrap(), &Options::default()).unwrap_err().to_string();
    assert!(error.ends_with("a folder without files: at least one is needed"), "{error}");
    let inner = folder.path().join("a");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("a.idx"), idx(8, &[1], &[0])).unwrap();
    let error = load(inner.to_str().unwrap(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("a.idx: format: is not a table, but a folder's files are"), "{error}");
    // A folder in the place of a file of labels.
    let options = Options { labels_file: Some(folder.path().into()), ..Options::default() };
    let error = load(inner.join("a.idx").to_str().unwrap(), &options).unwrap_err().to_string();
    assert!(error.contains("a folder, but a file is needed"), "{error}");
}

#[test]
fn rows_that_cannot_be_divided() {
    let data = parse("a.csv", b"1,0\n2,1\n3,0\n", None, &Options::default()).unwrap();
    let all = [0, 1, 2];
    let few = shards(&data, &all, 4, Split::Iid, 1).unwrap_err().to_string();
    assert_eq!(few, "a.csv: data: 3 rows for 4 nodes: every node needs at least one");
    let share = split_test(&data, 1.0, 1).unwrap_err().to_string();
    assert_eq!(share, "data.test_share = 1: a share from 0 to below 1 is needed");
    let most = split_test(&data, 0.9, 1).unwrap_err().to_string();
    assert_eq!(most, "data.test_share = 0.9: of 3 rows none is left for training");
    let alpha = shards(&data, &all, 2, Split::Dirichlet { alpha: 0.0 }, 1).unwrap_err().to_string();
    assert!(alpha.starts_with("data.alpha = 0: a number above 0"), "{alpha}");
    let regression = Options { task: Task::Regression, ..Options::default() };
    let numbers = parse("a.csv", b"1,0.5\n2,1\n3,0\n", None, &regression).unwrap();
    for split in [Split::ByLabel, Split::Dirichlet { alpha: 1.0 }] {
        let error = shards(&numbers, &all, 2, split, 1).unwrap_err().to_string();
        assert!(
            error.ends_with(": needs classes; for regression, iid and contiguous are accepted"),
            "{error}"
        );
    }
}

/// Accepted data is valid: rows of finite numbers and labels with names.
fn is_sound(
    name: &str,
    bytes: &[u8],
    labels: Option<&[u8]>,
    options: &Options,
) -> Result<(), TestCaseError> {
    match parse(name, bytes, labels.map(|labels| ("labels", labels)), options) {
        Ok(data) => {
            let Dataset { features, target, .. } = data.clone();
            prop_assert!(data.rows() > 0 && data.inputs() > 0 && data.outputs() > 0);
            prop_assert!(Dataset::new(name, features, target).is_ok());
        }
        Err(error) => {
            let error = error.to_string();
            let named = error.contains(name)
                || error.starts_with("labels: ")
                || error.starts_with("data.labels_file = labels: ");
            prop_assert!(named, "the file is not named: {}", error);
            prop_assert!(
                error.chars().count() < 1500 && !error.contains(char::is_control),
                "{:?}",
                error
            );
        }
    }
    Ok(())
}

fn all_options() -> [Options; 4] {
    [
        Options::default(),
        Options { task: Task::Regression, target: Some("-1,0".into()), ..Options::default() },
        Options { header: Some(true), target: Some("y".into()), ..Options::default() },
        Options { header: Some(false), classes: Some(3), inputs: Some(2), ..Options::default() },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    #[ignore = "slow"]
    fn any_bytes_are_refused_or_sound(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        magic in 0usize..6,
    ) {
        let starts: [&[u8]; 6] = [
            b"",
            b"\x93NUMPY\x01\x00",
            b"\x00\x00\x08\x02",
            b"\x1F\x8B\x08\x00",
            b"1,2,0\n",
            b"\xEF\xBB\xBF",
        ];
        let start = starts[magic];
        let bytes = [start, &bytes].concat();
        for options in all_options() {
            for name in ["a.csv", "a.npy", "a.idx", "a", "a.csv.gz", "x-images-idx3-ubyte"] {
                is_sound(name, &bytes, None, &options)?;
                is_sound(name, &bytes, Some(&bytes), &options)?;
            }
        }
    }

    #[test]
    #[ignore = "slow"]
    fn any_table_is_refused_or_sound(text in "([0-9.,\"e+\\-naif\r\n \t#y]|1,|,0\n){0,80}") {
        for options in all_options() {
            is_sound("a.csv", text.as_bytes(), None, &options)?;
        }
    }

    #[test]
    fn any_header_is_refused_or_sound(
        descr in "[<>|=]?[a-z][0-9]{1,2}",
        shape in prop::collection::vec(prop_oneof![0u64..5, any::<u64>()], 0..4),
        data in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
        let shape_text = format!("({})", extents.join(", "));
        is_sound("a.npy", &npy(&descr, &shape_text, &data), None, &Options::default())?;
        let shape: Vec<u32> = shape.iter().map(|&extent| extent as u32).collect();
        for kind in [8, 9, 11, 12, 13, 14] {
            let labels = idx(8, &[2], &[0, 1]);
            is_sound("a.idx", &idx(kind, &shape, &data), Some(&labels), &Options::default())?;
        }
    }

    #[test]
    fn a_damaged_file_is_refused_or_sound(
        at in any::<prop::sample::Index>(),
        bits in 1u8..,
        cut in any::<prop::sample::Index>(),
    ) {
        let values = [1.0f32, 0.0, 2.0, 1.0].map(f32::to_le_bytes).concat();
        let classes = idx(8, &[2], &[3, 0]);
        for (name, whole, labels) in [
            ("a.npy", npy("<f4", "(2, 2)", &values), None),
            ("a.idx", idx(8, &[2, 1, 2], &[0, 255, 7, 8]), Some(&classes[..])),
            ("a.csv.gz", gzip(b"1,2,0\n3,4,1\n"), None),
        ] {
            let mut bytes = whole;
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            is_sound(name, &bytes, labels, &Options::default())?;
            is_sound(name, &bytes[..cut.index(bytes.len())], labels, &Options::default())?;
        }
    }
}
