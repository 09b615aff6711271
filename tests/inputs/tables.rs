//! Tables in several files and in every format: the same rows give the same dataset.

use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use gradvine::{
    data::{Columns, Dataset, Options, Target, Task, load, parse, read},
    experiment::Experiment,
    run::Whole,
};
use gradvine_tables::describe;
use ndarray::array;

fn load_folder(folder: &Path, options: &Options) -> Result<Dataset, String> {
    load(folder.to_str().unwrap(), options)
        .map_err(|error| error.to_string().replace(&folder.display().to_string(), "F"))
}

fn folder_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let mut bytes = text.as_bytes().to_vec();
        if name.ends_with(".gz") {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&bytes).unwrap();
            bytes = encoder.finish().unwrap();
        }
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

#[test]
fn the_files_of_a_folder_are_one_table() {
    let folder = folder_of(&[
        ("b.csv.gz", "sick,weight,age\r\n1,4,3\r\n0,6,5\r\n"),
        ("a.csv", "age,weight,sick\n1,2,0\n"),
        ("c.csv", "weight;age;sick\n8;7;2\n"),
        ("_SUCCESS", ""),
        (".b.csv.crc", "\0\0"),
    ]);
    fs::create_dir(folder.path().join("old")).unwrap();
    let data = load_folder(folder.path(), &Options::default()).unwrap();
    assert_eq!(data.features, array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]);
    assert_eq!((data.labels().unwrap(), data.outputs()), (&[0, 1, 0, 2][..], 3));
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let columns = Columns { features: names(&["age", "weight"]), targets: names(&["sick"]) };
    assert_eq!(data.columns, Some(columns));
    assert_eq!(data.name, folder.path().display().to_string());
    // The same as one file.
    let one = b"age,weight,sick\n1,2,0\n3,4,1\n5,6,0\n7,8,2\n";
    let one = parse("one.csv", one, None, &Options::default()).unwrap();
    assert_eq!((data.features, data.target), (one.features, one.target));
}

#[test]
fn classes_are_named_over_all_files() {
    let folder = folder_of(&[("a.csv", "1,red\n2,blue\n"), ("b.csv", "3,green\n4,red\n")]);
    let options = Options { number_classes: true, ..Options::default() };
    let data = load_folder(folder.path(), &options).unwrap();
    assert_eq!(data.class_names(), ["blue", "green", "red"]);
    assert_eq!(data.labels().unwrap(), [2, 0, 1, 2]);
}

#[test]
fn files_that_are_not_parts_of_one_table_are_named() {
    for (second, message) in [
        ("a,b\n1,0\n", "F/b.csv: columns: 2, but the first file has 3"),
        ("a,c,y\n1,2,0\n", "F/b.csv: columns = \"b\": no such column: the file has a, c, y"),
        ("1,2,0\n", "F/b.csv: columns: have no names, but those of the first file have"),
        (
            "a,b,y\n1,2,0\nx,2,1\n",
            "F/b.csv: line 3, column 0 (a) = \"x\": text, but a number is needed; for \
             text and missing values list the columns in data.schema (`gradvine data describe \
             FILE` drafts it)",
        ),
        (
            "a,b,y\n1,2,0\n1,2\n",
            "F/b.csv: line 3: 2 columns found, 3 expected, as in the first line",
        ),
        (
            "a,b,y\n1,2,0.5\n",
            "F/b.csv: line 2, column 2 (y) = 0.5: a label is a whole number 0, 1, \
                              2, ..., below 65536",
        ),
        ("", "F/b.csv: line 1: the file is empty: at least one row is needed"),
        (
            "1,2,no,yes\n3,4,0\n",
            "F/b.csv: columns: the first line names other classes than that of the first file",
        ),
    ] {
        let folder = folder_of(&[("a.csv", "a,b,y\n1,2,0\n"), ("b.csv", second)]);
        let error = load_folder(folder.path(), &Options::default()).unwrap_err();
        assert_eq!(error, message, "{second:?}");
    }
    let folder = folder_of(&[("a.csv", "1,0\n"), ("b.csv", "a,y\n1,0\n")]);
    let error = load_folder(folder.path(), &Options::default()).unwrap_err();
    assert_eq!(error, "F/b.csv: columns: have names, but those of the first file have none");
}

#[test]
fn a_folder_with_a_table_twice_is_refused() {
    let folder = folder_of(&[("1.csv", "x,y\n1,0\n"), ("1.csv.gz", "x,y\n1,0\n")]);
    assert_eq!(
        load_folder(folder.path(), &Options::default()).unwrap_err(),
        "F: files = 1.csv and 1.csv.gz: one name in two forms, so rows would count twice: remove \
         one of them"
    );
    let first = "x,z,y\n1,5,0\n2,-0,1\n";
    for (name, other) in [
        ("1.csv.bak", first),
        ("2.csv.gz", first),
        ("2.csv", "x,z,y\r\n1,5,0\r\n2,0,1"),
        ("2.csv", "\u{FEFF}\"x\";\"z\";\"y\"\n1;5;0\n2;0;1\n"),
        ("2.tsv.csv", "sep=|\nx|z|y\n1.0|5.00|0\n2e0|0|1.0\n\n"),
        ("2.csv", "x,z,y\n2,0,1\n1,5,0\n"),
        ("2.csv", "y,x,z\n0,1,5\n1,2,0\n"),
    ] {
        let folder = folder_of(&[("1.csv", first), (name, other), ("3.csv", "x,z,y\n9,9,0\n")]);
        let path = folder.path().display().to_string();
        let message = format!(
            "F: files = 1.csv and {name}: the same 2 rows, so rows would count twice: remove one \
             of them"
        );
        let error = load_folder(folder.path(), &Options::default()).unwrap_err();
        assert_eq!(error, message, "{other:?}");
        if !other.starts_with("y,") {
            // As `gradvine data describe` reads it.
            let error = describe(&path, &Options::default()).unwrap_err().to_string();
            assert_eq!(error.replace(&path, "F"), message, "{other:?}");
        }
    }
    for (first, other) in [
        (first, "x,z,y\n1,5,0\n2,1,1\n"),
        (first, "x,z,y\n1,5,0\n2,0,1\n1,5,0\n"),
        ("x,y\n1,0\n", "x,y\n2,0\n"),
    ] {
        let folder = folder_of(&[("1.csv", first), ("2.csv", other)]);
        assert!(load_folder(folder.path(), &Options::default()).is_ok(), "{other:?}");
    }
}

#[test]
fn files_of_other_formats_and_encodings_are_named() {
    let utf_16 = |text: &str| -> Vec<u8> {
        let mark = vec![0xFF, 0xFE];
        mark.into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
    };
    for (name, bytes, message) in [
        ("a.xlsx", b"x,y\n1,0\n".to_vec(), "a.xlsx: format = .xlsx: this format is not read"),
        ("a.csv", b"PK\x03\x04...".to_vec(), "a.csv: byte 0: no table, but a ZIP archive"),
        ("a.csv", utf_16("x,y\n1,0\n"), "a.csv: byte 0: not UTF-8: it looks like UTF-16."),
        ("a.csv", b"x y\n1 0\n".to_vec(), "a.csv: line 1: 2 words between blanks"),
    ] {
        let error = parse(name, &bytes, None, &Options::default()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn labels_from_1_on_are_remarked_where_no_node_has_a_class_0() {
    let folder = tempfile::tempdir().unwrap();
    let remarks = |labels: &[&[usize]]| {
        let sources = labels.iter().enumerate().map(|(site, labels)| {
            let path = folder.path().join(format!("{site}.csv"));
            let row = |row: usize| format!("{row}.{site},{}\n", labels[row % labels.len()]);
            fs::write(&path, "x,y\n".to_string() + &(0..12).map(row).collect::<String>()).unwrap();
            format!("{path:?}")
        });
        let sources = sources.collect::<Vec<_>>().join(", ");
        let sources = format!("data.sources=[{sources}]");
        let sets = [&sources, "topology.file=path:2", "model.kind=softmax"].map(String::from);
        Whole::new(Experiment::default_with(&sets).unwrap()).unwrap().design.remarks.concat()
    };
    let remark = "the labels are 1 to 3, so the model has a class 0 without rows; data.classes = \
                  [\"1\", \"2\", \"3\"] makes the labels names";
    assert_eq!(remarks(&[&[1, 2], &[3, 2]]), remark);
    assert_eq!(remarks(&[&[1, 2], &[0, 2]]), "");
}

#[test]
fn classes_in_two_spellings_are_remarked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let remarks = |names: [&str; 2]| {
        let rows: String = (0..20).map(|row| format!("{row},{}\n", names[row % 2])).collect();
        fs::write(&path, format!("x,y\n{rows}")).unwrap();
        let source = format!("data.source={}", path.display());
        let sets = [&source, "topology.file=path:2", "model.kind=softmax"].map(String::from);
        let whole = Whole::new(Experiment::default_with(&sets).unwrap()).unwrap();
        let described = describe(path.to_str().unwrap(), &Options::default()).unwrap();
        assert_eq!(whole.design.remarks, described.remarks);
        whole.design.remarks.concat()
    };
    let remark = remarks(["K\u{f6}ln", "Ko\u{308}ln"]);
    assert!(remark.contains("classes: \"Ko\\u{308}ln\" and \"K\u{f6}ln\" are two"), "{remark}");
    assert!(remarks(["ill", "Ill"]).contains("are they spellings of one?"));
    assert_eq!(remarks(["<=50K", ">50K"]), "");
    // Blanks around a label are no part of it.
    assert_eq!(remarks(["ill", " ill "]), "");
}

#[test]
fn numbers_that_f32_does_not_tell_apart_are_remarked() {
    let read = |rows: [&str; 2]| {
        let text = format!("x,t,y\n1,{},0\n2,{},1\n", rows[0], rows[1]);
        parse("a.csv", text.as_bytes(), None, &Options::default()).unwrap().remarks
    };
    let remark = "a.csv: column t: numbers near 1700000500 are kept in 24 binary digits, in steps \
                  of 1.3e2, and they lie within 5.0e2: subtract a constant from them in the file";
    assert_eq!(read(["1700000000", "1700000500"]), [remark]);
    let remark = "a.csv: column t: numbers near 1700000013 are kept in 24 binary digits, in steps \
                  of 1.3e2, and they lie within 1.3e1, so that 1 of 2 that were compared \
                  become equal to one that differs: subtract a constant from them in the file";
    assert_eq!(read(["1700000000", "1700000013"]), [remark]);
    assert!(read(["1700000000", "1"]).is_empty() && read(["20240101", "1"]).is_empty());
    assert!(read(["1700000000", "1700000000"]).is_empty());
    let options = Options { task: Task::Regression, ..Options::default() };
    let targets =
        parse("a.csv", &b"x,y\n1,1700000000\n2,1700000013\n"[..], None, &options).unwrap();
    assert!(targets.remarks[0].starts_with("a.csv: column y: numbers near 1700000013"));
    // Arrays of f64, as numpy writes them.
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }";
    let mut bytes = [b"\x93NUMPY\x01\x00".as_slice(), &118u16.to_le_bytes()].concat();
    bytes.extend(format!("{header:<117}\n").bytes());
    for number in [1e9, 0.0, 1e9 + 3.0, 1.0, 1e9 + 6.0, 0.0f64] {
        bytes.extend(number.to_le_bytes());
    }
    let array = parse("a.npy", &bytes, None, &Options::default()).unwrap();
    assert!(array.remarks[0].contains("column 0: numbers near 1000000006"), "{:?}", array.remarks);
}

/// With a schema that nodes have agreed on, too: times within a day of their origin.
#[test]
fn times_that_f32_does_not_tell_apart_are_remarked() {
    let read = |origin: &str| {
        let kind = "data.schema=[{name='t', kind='date', origin='ORIGIN'}]";
        let sets = [kind.replace("ORIGIN", origin), "data.target=y".into()];
        let experiment = Experiment::default_with(&sets).unwrap();
        let schema = experiment.data.schema.clone();
        let options = Options { schema, target: Some("y".into()), ..Options::default() };
        let row = |at: u32| format!("2024-05-17T12:00:00.{:06}Z,{}\n", 37 * at, at % 2);
        let text: String = (0..100).map(row).collect();
        parse("a.csv", format!("t,y\n{text}").as_bytes(), None, &options).unwrap()
    };
    let far = read("2024-05-17").remarks.concat();
    assert!(far.contains("column t: numbers near 0.5") && far.contains("set an origin"), "{far}");
    let near = read("2024-05-17T12:00:00Z");
    assert!(near.remarks.is_empty(), "{:?}", near.remarks);
    for (at, value) in near.features.iter().enumerate() {
        assert!((f64::from(*value) * 86_400.0 - 37e-6 * at as f64).abs() < 1e-9, "{at}");
    }
}

#[test]
fn a_stream_is_read_as_a_file() {
    let text = b"x\ty\n0.5\t1\n-2\t3\n";
    let options = Options { task: Task::Regression, ..Options::default() };
    let data = read("standard input", &text[..], &options).unwrap();
    assert_eq!(data.target, Target::Values(array![[1.0], [3.0]]));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    let compressed = encoder.finish().unwrap();
    assert_eq!(read("standard input", &compressed[..], &options).unwrap(), data);
    let error = read("standard input", &b"x,y\n1,a\n"[..], &options).unwrap_err().to_string();
    assert_eq!(error, "standard input: line 2, column 1 (y) = \"a\": text, but a number is needed");
}
