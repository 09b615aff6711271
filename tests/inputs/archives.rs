//! NumPy's archives of arrays, written by NumPy 2.4 with `x` (8 x 3, `f4`), `y` (8, `i8`) and
//! another array, and by a writer of ZIP files.

use std::io::{Cursor, Write};

use gradvine::data::{Dataset, Options, Task, load, parse};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

pub(crate) const STORED: &[u8] = include_bytes!("stored.npz");
pub(crate) const DEFLATED: &[u8] = include_bytes!("deflated.npz");

fn read(bytes: &[u8], options: &Options) -> Result<Dataset, String> {
    parse("a.npz", bytes, None, options).map_err(|error| error.to_string())
}

/// Numbers from 0 as an NPY file of bytes.
fn array(shape: &str, numbers: u8) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.extend(0..numbers);
    bytes
}

fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn archives_of_numpy_are_read() {
    let expected = ndarray::Array2::from_shape_fn((8, 3), |(i, j)| (3 * i + j) as f32 * 0.5 - 2.0);
    for bytes in [STORED, DEFLATED] {
        let data = read(bytes, &Options::default()).unwrap();
        assert_eq!(data.features, expected);
        assert_eq!((data.labels().unwrap(), data.outputs()), (&[0, 1, 2, 0, 1, 2, 0, 1][..], 3));
        let names = ["a", "b", "c"].map(String::from).to_vec();
        let named = Options { class_names: Some(names.clone()), ..Options::default() };
        assert_eq!(read(bytes, &named).unwrap().class_names(), names);
        let numbers = Options { task: Task::Regression, ..Options::default() };
        assert_eq!(read(bytes, &numbers).unwrap().outputs(), 1);
    }
    // By its first bytes, and as a file.
    assert_eq!(parse("a", STORED, None, &Options::default()).unwrap().rows(), 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    std::fs::write(&path, DEFLATED).unwrap();
    let source = path.to_str().unwrap();
    assert_eq!(load(source, &Options::default()).unwrap().features, expected);
    let labels = Options { labels_file: Some(path.clone()), ..Options::default() };
    let error = load(source, &labels).unwrap_err().to_string();
    assert!(error.contains("an NPZ file holds its labels itself"), "{error}");
}

#[test]
fn one_array_has_its_labels_in_a_column() {
    let bytes =
        archive(&[("table.npy", array("(2, 3)", 6)), ("notes.txt", b"not an array".into())]);
    assert_eq!(read(&bytes, &Options::default()).unwrap().labels().unwrap(), [2, 5]);
    let first = Options { target: Some("0".into()), ..Options::default() };
    assert_eq!(read(&bytes, &first).unwrap().labels().unwrap(), [0, 3]);
}

#[test]
fn wrong_archives_are_refused() {
    let target = |name: &str| Options { target: Some(name.into()), ..Options::default() };
    for (bytes, options, problem) in [
        (STORED.to_vec(), target("z"), "data.target = z: no such array: the file has x, y, when"),
        (
            archive(&[("x.npy", array("(2, 2)", 4)), ("y.npy", array("(3,)", 3))]),
            Options::default(),
            "a.npz, array y: labels: 3 rows, but a.npz has 2",
        ),
        (
            archive(&[("x.npy", array("(2, 2)", 4)), ("y.npy", b"\x93NUMPY".to_vec())]),
            Options::default(),
            "a.npz, array y: byte 6: the header is cut short",
        ),
        (
            archive(&[("notes.txt", b"no array".to_vec())]),
            Options::default(),
            "a.npz: arrays: the file has none",
        ),
        (b"1,2\n".to_vec(), Options::default(), "a.npz: archive: is not a ZIP file"),
        (
            STORED[..STORED.len() - 30].to_vec(),
            Options::default(),
            "a.npz: archive: is not a ZIP file",
        ),
    ] {
        let error = read(&bytes, &options).unwrap_err();
        assert!(error.starts_with(problem), "{error}");
    }
    // A number that was changed is found by the checksum.
    let at = STORED.windows(4).position(|bytes| bytes == (-2.0f32).to_le_bytes()).unwrap();
    let mut spoilt = STORED.to_vec();
    spoilt[at] ^= 1;
    let error = read(&spoilt, &Options::default()).unwrap_err();
    assert!(error.starts_with("a.npz: array x, cannot be read: "), "{error}");
}

#[test]
fn rows_for_prediction_have_no_labels() {
    let options = Options { bare: true, inputs: Some(3), ..Options::default() };
    for files in [
        vec![("x.npy", array("(2, 3)", 6))],
        vec![("rows.npy", array("(2, 3)", 6))],
        vec![("ids.npy", array("(2,)", 2)), ("x.npy", array("(2, 3)", 6))],
        vec![("x.npy", array("(2, 1, 3)", 6))],
    ] {
        let data = read(&archive(&files), &options).unwrap();
        assert_eq!(data.features, ndarray::array![[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
        assert_eq!(data.labels().unwrap(), [0, 0]);
    }
    // Labels that are there are read.
    let both = archive(&[("x.npy", array("(2, 3)", 6)), ("y.npy", array("(2,)", 2))]);
    assert_eq!(read(&both, &options).unwrap().labels().unwrap(), [0, 1]);
    let last = archive(&[("x.npy", array("(1, 4)", 4))]);
    assert_eq!(read(&last, &options).unwrap().labels().unwrap(), [3]);
    let numbers = Options { task: Task::Regression, ..options.clone() };
    let alone = archive(&[("x.npy", array("(2, 3)", 6))]);
    assert_eq!(read(&alone, &numbers).unwrap().outputs(), 1);
    // Not where rows are to be judged or learned from.
    let options = Options { bare: false, ..options };
    let error = read(&alone, &options).unwrap_err();
    assert!(error.contains("2 features per row: 3 are expected"), "{error}");
}

#[test]
fn arrays_that_cannot_be_told_apart_or_are_encrypted_are_refused() {
    let labels = || array("(2,)", 2);
    let files = [("x.npy", array("(2, 1)", 2)), ("y.npy", labels()), ("z.npy", labels())];
    let mut doubled = archive(&files);
    let names: Vec<usize> =
        (0..doubled.len()).filter(|&at| doubled[at..].starts_with(b"z.npy")).collect();
    names.into_iter().for_each(|at| doubled[at] = b'y');
    let named = Options { target: Some("y".into()), ..Options::default() };
    let error = read(&doubled, &named).unwrap_err();
    assert!(error.starts_with("a.npz: array y: is in the file twice"), "{error}");

    let mut locked = archive(&[("x.npy", array("(2, 1)", 2)), ("y.npy", array("(2,)", 2))]);
    let entry = (0..locked.len()).find(|&at| locked[at..].starts_with(b"PK\x01\x02")).unwrap();
    locked[entry + 8] |= 1;
    let error = read(&locked, &Options::default()).unwrap_err();
    assert!(error.starts_with("a.npz: array x: is encrypted"), "{error}");
}
