//! Data from every source: files on disk, plain and compressed, embedded sets; test rows, shards,
//! standardisation.

use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use gradvine::{
    data::{
        Columns, Dataset, EMBEDDED, Moments, Options, Scale, Split, Target, Task, load, parse,
        shards, split_test,
    },
    rng::{Purpose, Stream},
};
use ndarray::{Array2, array};
use proptest::prelude::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A folder of files; loads one of them: each plain, then each compressed under its name with
/// `.gz`.
fn load_both(files: &[(&str, &[u8])], options: &Options) -> Dataset {
    let read = |compressed: bool| {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            folder.path().join(if compressed { format!("{name}.gz") } else { name.to_string() })
        };
        for (name, bytes) in files {
            fs::write(place(name), if compressed { gzip(bytes) } else { bytes.to_vec() }).unwrap();
        }
        let mut options = options.clone();
        options.labels_file = options.labels_file.map(|name| place(name.to_str().unwrap()));
        let path = place(files[0].0);
        let data = load(path.to_str().unwrap(), &options).unwrap();
        assert_eq!(Path::new(&data.name), path);
        data
    };
    let (plain, compressed) = (read(false), read(true));
    assert_eq!((&plain.features, &plain.target), (&compressed.features, &compressed.target));
    plain
}

fn labels(data: &Dataset) -> &[u32] {
    data.labels().unwrap()
}

#[test]
fn csv_with_and_without_a_header() {
    let plain = load_both(&[("a.csv", b"1.5,-2,0\n3e-1,4,2\n")], &Options::default());
    assert_eq!(plain.features, array![[1.5, -2.0], [0.3, 4.0]]);
    assert_eq!(
        (labels(&plain), plain.outputs(), plain.task()),
        (&[0, 2][..], 3, Task::Classification)
    );
    // A byte-order mark, spaces, a blank line, CR LF, no end of line.
    let odd = load_both(
        &[("a.csv", b"\xEF\xBB\xBFage, weight ,sick\r\n1.5, -2,0\r\n\r\n0.3,4,2")],
        &Options::default(),
    );
    assert_eq!((&odd.features, &odd.target), (&plain.features, &plain.target));
    // A header of numbers is a row, unless the options say that it is a header.
    let text = b"1,2,0\n3,4,1\n";
    assert_eq!(load_both(&[("a.csv", text)], &Options::default()).rows(), 2);
    let named = Options { header: Some(true), ..Options::default() };
    assert_eq!(load_both(&[("a.csv", text)], &named).features, array![[3.0, 4.0]]);
}

#[test]
fn csv_targets_by_name_and_position() {
    let text = b"sick,age,weight\n1,1.5,-2\n0,0.3,4\n";
    for target in ["sick", "0", "-3"] {
        let data = load_both(
            &[("a.csv", text)],
            &Options { target: Some(target.into()), ..Options::default() },
        );
        assert_eq!(
            (&data.features, labels(&data)),
            (&array![[1.5, -2.0], [0.3, 4.0]], &[1, 0][..]),
            "{target}"
        );
    }
    let two =
        Options { target: Some("weight,age".into()), task: Task::Regression, ..Options::default() };
    let data = load_both(&[("a.csv", text)], &two);
    assert_eq!(data.features, array![[1.0], [0.0]]);
    assert_eq!(data.target, Target::Values(array![[-2.0, 1.5], [4.0, 0.3]]));
}

/// A file as NumPy writes it: version 1, the header padded to a multiple of 64.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((padded as u16).to_le_bytes());
    bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn npy_tables_and_images() {
    let values = [0.5f64, 1.0, -2.0, 0.0].map(f64::to_le_bytes).concat();
    let table = load_both(&[("a.npy", &npy("<f8", "(2, 2)", &values))], &Options::default());
    assert_eq!((&table.features, labels(&table)), (&array![[0.5], [-2.0]], &[1, 0][..]));
    // Images with labels under the customary name, and by name.
    let images = npy("|u1", "(2, 1, 3)", &[1, 2, 3, 4, 5, 255]);
    let classes = npy("<i8", "(2,)", &[1i64, 0].map(i64::to_le_bytes).concat());
    let beside = load_both(&[("a.npy", &images), ("a-labels.npy", &classes)], &Options::default());
    let named = Options { labels_file: Some("y.npy".into()), ..Options::default() };
    let named = load_both(&[("a.npy", &images), ("y.npy", &classes)], &named);
    for data in [beside, named] {
        assert_eq!(
            (&data.features, labels(&data)),
            (&array![[1.0, 2.0, 3.0], [4.0, 5.0, 255.0]], &[1, 0][..])
        );
    }
    let targets = npy("<f4", "(2, 2)", &[0.5f32, 1.0, -2.0, 0.25].map(f32::to_le_bytes).concat());
    let regression =
        Options { task: Task::Regression, labels_file: Some("y.npy".into()), ..Options::default() };
    let data = load_both(&[("a.npy", &images), ("y.npy", &targets)], &regression);
    assert_eq!(data.target, Target::Values(array![[0.5, 1.0], [-2.0, 0.25]]));
}

fn idx(kind: u8, shape: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|extent| extent.to_be_bytes()));
    bytes.extend(data);
    bytes
}

#[test]
fn idx_images_find_their_labels() {
    let (images, classes) = (idx(8, &[2, 2, 1], &[0, 255, 7, 8]), idx(8, &[2], &[3, 0]));
    for names in [["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"], ["a.idx", "a-labels.idx"]] {
        let data = load_both(&[(names[0], &images), (names[1], &classes)], &Options::default());
        assert_eq!(data.features, array![[0.0, 255.0], [7.0, 8.0]]);
        assert_eq!((labels(&data), data.outputs()), (&[3, 0][..], 4));
    }
    let options =
        Options { classes: Some(10), labels_file: Some("y".into()), ..Options::default() };
    assert_eq!(load_both(&[("a.idx", &images), ("y", &classes)], &options).outputs(), 10);
}

#[test]
fn the_embedded_sets_are_the_published_ones() {
    let count = |data: &Dataset| {
        let mut counts = vec![0; data.outputs()];
        labels(data).iter().for_each(|&label| counts[label as usize] += 1);
        counts
    };
    let digits = load("digits", &Options::default()).unwrap();
    assert_eq!((digits.rows(), digits.inputs()), (1797, 64));
    assert_eq!(count(&digits), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    // The first digit's second row of pixels.
    assert_eq!(
        digits.features.row(0).as_slice().unwrap()[8..16],
        [0.0, 0.0, 13.0, 15.0, 10.0, 15.0, 5.0, 0.0]
    );
    let cancer = load("breast-cancer", &Options::default()).unwrap();
    assert_eq!((cancer.rows(), cancer.inputs()), (569, 30));
    assert_eq!(
        (count(&cancer), cancer.class_names()),
        (vec![212, 357], &["malignant".into(), "benign".into()][..])
    );
    assert_eq!(cancer.features.row(0).as_slice().unwrap()[..3], [17.99, 10.38, 122.8]);
    assert_eq!(EMBEDDED.len(), 2, "a set that is not tested here");
}

/// Rows of these labels whose one feature is the row's number.
fn labelled(labels: &[u32], classes: usize) -> Dataset {
    let names = (0..classes).map(|c| c.to_string()).collect();
    let features = Array2::from_shape_fn((labels.len(), 1), |(row, _)| row as f32);
    Dataset::new("rows", features, Target::Classes { labels: labels.to_vec(), names }).unwrap()
}

fn is_partition(shards: &[Vec<usize>], rows: &[usize]) -> bool {
    let mut all: Vec<usize> = shards.concat();
    all.sort_unstable();
    all == rows
}

const SPLITS: [Split; 5] = [
    Split::Iid,
    Split::Contiguous,
    Split::ByLabel,
    Split::Dirichlet { alpha: 0.3 },
    Split::Dirichlet { alpha: 100.0 },
];

#[test]
fn shards_of_the_digits_are_a_partition_of_the_training_rows() {
    let digits = load("digits", &Options::default()).unwrap();
    let (train, test) = split_test(&digits, 0.2, 7).unwrap();
    assert_eq!((train.len(), test.len()), (1438, 359));
    for split in SPLITS {
        for nodes in [1, 2, 7, 16] {
            let parts = shards(&digits, &train, nodes, split, 7).unwrap();
            assert!(parts.len() == nodes && is_partition(&parts, &train), "{split:?} on {nodes}");
            assert_eq!(parts, shards(&digits, &train, nodes, split, 7).unwrap());
            if !matches!(split, Split::Dirichlet { .. }) {
                // 1438 = 7 * 205 + 3: the larger first.
                let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
                let expected =
                    (0..nodes).map(|node| 1438 / nodes + usize::from(node < 1438 % nodes));
                assert!(expected.eq(sizes.iter().copied()), "{split:?} on {nodes}: {sizes:?}");
            }
        }
    }
}

#[test]
fn each_split_is_as_uneven_as_documented() {
    let digits = load("digits", &Options::default()).unwrap();
    let rows: Vec<usize> = (0..digits.rows()).collect();
    let labels = labels(&digits);
    // How many classes a node has at least five rows of, on average over ten nodes.
    let classes = |split| {
        let parts = shards(&digits, &rows, 10, split, 3).unwrap();
        let seen = |part: &Vec<usize>| {
            (0..10)
                .filter(|class| part.iter().filter(|&&row| labels[row] == *class).count() >= 5)
                .count()
        };
        parts.iter().map(seen).sum::<usize>() as f64 / 10.0
    };
    assert_eq!(classes(Split::Iid), 10.0);
    assert_eq!(classes(Split::Dirichlet { alpha: 1000.0 }), 10.0);
    assert!(classes(Split::ByLabel) < 2.5);
    assert!(classes(Split::Dirichlet { alpha: 0.05 }) < 5.0);
    // By label: no label of a node is below one of the node before; within a label the file's
    // order.
    let parts = shards(&digits, &rows, 10, Split::ByLabel, 3).unwrap();
    assert!(parts.concat().is_sorted_by_key(|&row| (labels[row], row)));
    assert_eq!(shards(&digits, &rows, 10, Split::Contiguous, 3).unwrap().concat(), rows);
}

proptest! {
    #[test]
    fn any_split_is_a_partition(
        labels in prop::collection::vec(0u32..5, 1..150),
        nodes in 1usize..12,
        which in 0usize..5,
        share in 0.0..0.8,
        seed: u64,
    ) {
        let data = labelled(&labels, 5);
        let Ok((train, test)) = split_test(&data, share, seed) else {
            return Err(TestCaseError::reject("nothing is left for training"));
        };
        let all: Vec<usize> = (0..labels.len()).collect();
        prop_assert!(is_partition(&[train.clone(), test.clone()], &all));
        prop_assert_eq!(test.len(), (share * labels.len() as f64).round() as usize);
        for class in 0..5 {
            let of_class = |row: &&usize| labels[**row] == class;
            let of = |rows: &[usize]| rows.iter().filter(of_class).count() as f64;
            prop_assert!((of(&test) - share * (of(&test) + of(&train))).abs() <= 1.0, "class {} \
                is not stratified", class);
        }
        match shards(&data, &train, nodes, SPLITS[which], seed) {
            Ok(parts) => {
                prop_assert!(is_partition(&parts, &train));
                prop_assert!(parts.iter().all(|part| !part.is_empty()));
                if which < 3 {
                    prop_assert!(parts.is_sorted_by_key(|part| std::cmp::Reverse(part.len())));
                    prop_assert!(parts[0].len() - parts[nodes - 1].len() <= 1);
                }
            }
            Err(error) => {
                let error = error.to_string();
                prop_assert!(train.len() < nodes && error.contains("every node needs at least one")
                    || which >= 3 && error.contains("draws left a node"), "{}", error);
            }
        }
    }

    #[test]
    fn moments_of_shards_are_those_of_the_whole(
        rows in 1usize..200,
        nodes in 1usize..9,
        seed: u64,
    ) {
        prop_assume!(rows >= nodes);
        let mut random = Stream::new(seed, Purpose::Test).sequence();
        let scales = [1e-3, 1.0, 1e4];
        let draw = |(_, k): (usize, usize)| (scales[k] * (5.0 + random.normal())) as f32;
        let features = Array2::from_shape_fn((rows, 3), draw);
        let target = Target::Classes { labels: vec![0; rows], names: vec!["0".into()] };
        let data = Dataset::new("rows", features, target).unwrap();
        let all: Vec<usize> = (0..rows).collect();
        let mut pooled = Moments::empty(3);
        for part in shards(&data, &all, nodes, Split::Iid, seed).unwrap() {
            pooled.merge(&Moments::of(&data.select(&part)));
        }
        let scale = Scale::from_moments(&pooled);
        for (k, column) in data.features.columns().into_iter().enumerate() {
            // Two passes, in another order.
            let mean = column.iter().rev().map(|&x| f64::from(x)).sum::<f64>() / rows as f64;
            let squares = column.iter().map(|&x| (f64::from(x) - mean).powi(2));
            let variance = squares.sum::<f64>() / rows as f64;
            prop_assert!((scale.mean[k] / mean - 1.0).abs() < 1e-12);
            let expected = if rows == 1 { 1.0 } else { variance.sqrt() };
            // The difference of two sums loses mean^2 / variance, about 25, of 1e-16 each; more if
            // few rows are near each other.
            let bound = 1e-12 * (1.0 + mean * mean / (expected * expected));
            prop_assert!((scale.deviation[k] / expected - 1.0).abs() < bound);
        }
    }
}

#[test]
fn whole_numbers_pool_to_the_same_bits_and_constants_divide_by_one() {
    let digits = load("digits", &Options::default()).unwrap();
    let rows: Vec<usize> = (0..digits.rows()).collect();
    for split in SPLITS {
        let mut pooled = Moments::empty(64);
        for part in shards(&digits, &rows, 8, split, 1).unwrap() {
            pooled.merge(&Moments::of(&digits.select(&part)));
        }
        // Sums of whole numbers below 2^53 are exact in any order.
        assert_eq!(pooled, Moments::of(&digits));
    }
    let scale = Scale::from_moments(&Moments::of(&digits));
    // The upper left pixel is never set.
    assert_eq!((scale.mean[0], scale.deviation[0]), (0.0, 1.0));
    let mut scaled = digits.clone();
    scaled.apply(&scale).unwrap();
    assert!(scaled.features.column(0).iter().all(|x| *x == 0.0));
    let mut alone = labelled(&[0, 0, 0], 1);
    alone.features.fill(41.7);
    assert_eq!(Scale::from_moments(&Moments::of(&alone)).deviation, [1.0]);
}

const PATIENTS: &[u8] = b"age,weight,sick\n1,2,0\n3,4,1\n";

fn by_name(features: &[&str], targets: &[&str]) -> Options {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let columns = Columns { features: names(features), targets: names(targets) };
    Options { columns: Some(columns), ..Options::default() }
}

#[test]
fn columns_are_found_by_name_in_any_order_and_others_are_ignored() {
    let expected = load_both(&[("a.csv", PATIENTS)], &by_name(&["age", "weight"], &["sick"]));
    assert_eq!(expected.features, array![[1.0, 2.0], [3.0, 4.0]]);
    let other = b"sick,note,weight,age\n0,text,2,1\n1,,4,3\n";
    let data = load_both(&[("b.csv", other)], &by_name(&["age", "weight"], &["sick"]));
    assert_eq!(
        (data.features, data.target, data.columns),
        (expected.features, expected.target, expected.columns)
    );
    // Without targets, where rows may lack them.
    let options = Options { bare: true, ..by_name(&["age", "weight"], &["sick"]) };
    let bare = load_both(&[("c.csv", b"weight,age\n2,1\n4,3\n")], &options);
    assert_eq!(bare.features, array![[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(bare.columns.unwrap().targets, Vec::<String>::new());
    // By position, where the file has no names and that is accepted.
    let options = Options { by_position: true, ..by_name(&["age", "weight"], &["sick"]) };
    let plain = load_both(&[("d.csv", b"1,2,0\n3,4,1\n")], &options);
    assert_eq!((plain.features, plain.columns), (array![[1.0, 2.0], [3.0, 4.0]], None));
}

#[test]
fn columns_that_cannot_be_found_are_named() {
    let problem = |text: &[u8], options: &Options| {
        parse("t.csv", text, None, options).unwrap_err().to_string()
    };
    for (text, features, targets, message) in [
        (
            PATIENTS,
            &["age", "height"][..],
            &["sick"][..],
            "data.columns = \"height\": no such column: the file has age, weight, sick",
        ),
        (PATIENTS, &["age", "age"], &["sick"], "data.columns = \"age\": is named twice"),
        (PATIENTS, &[], &["sick"], "data.columns = []: at least one name is needed"),
        (
            PATIENTS,
            &["age", "sick"],
            &["sick"],
            "data.columns = sick: is the target, and is also named as a feature",
        ),
        (
            PATIENTS,
            &["age"],
            &[],
            "data.target: is missing: data.columns names the features, and this key the target",
        ),
        (
            b"1,2,0\n3,4,1\n",
            &["age", "height"],
            &["sick"],
            "data.columns = age, height: the first line does not name the columns",
        ),
        (b"a,a,y\n1,2,0\n", &["a"], &["y"], "data.columns = \"a\": columns 0 and 1 have this name"),
    ] {
        assert_eq!(problem(text, &by_name(features, targets)), format!("{message} (in t.csv)"));
    }
}
