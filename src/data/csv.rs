//! Text separated by commas, semicolons or tabs: one row per line, numbers and labels, with or
//! without a line of column names. The separator is the one that is most frequent in the first
//! line.
//!
//! It also reads the first line of scikit-learn's files, `rows,columns,class,class,...`, which
//! names the classes.

use std::io::Read;

use super::{
    DataError,
    cell::Cell,
    codes::{date, is_missing},
    encode::{Heading, Rows},
    input::Count,
    records::{Record, Records},
};

/// The rest of a file is estimated once this many bytes of it were read.
const SAMPLE: u64 = 8 << 20;

/// The kind of the first line.
enum First {
    Row,
    Names(Vec<String>),
    /// scikit-learn's: the number of rows and features, and the names of the classes.
    Counts {
        rows: u64,
        classes: Vec<String>,
    },
}

/// A record that is kept.
struct Kept {
    line: u64,
    cells: Vec<Vec<u8>>,
}

impl From<Record<'_>> for Kept {
    fn from(record: Record<'_>) -> Kept {
        let cells = record.cells().map(|cell| cell.trim_ascii().to_vec()).collect();
        Kept { line: record.line, cells }
    }
}

/// Reads the rows of a table. `count` counts the bytes of the file; `piece` of them
/// are in memory.
pub(super) fn read(
    source: impl Read,
    count: &Count,
    piece: usize,
    header: Option<bool>,
    rows: &mut impl Rows,
) -> Result<(), DataError> {
    let mut records = Records::new(source, piece)?;
    let Some(first) = records.next()?.map(Kept::from) else {
        return Err(DataError::empty());
    };
    let second = records.next()?.map(Kept::from);
    let (kind, columns) =
        first_line(&first.cells, second.as_ref(), header, |names| rows.are_names(names))?;
    let (names, classes, announced) = match kind {
        First::Row => (None, None, None),
        First::Names(ref names) => (Some(names.clone()), None, None),
        First::Counts { rows, ref classes } => (None, Some(classes.clone()), Some(rows)),
    };
    rows.begin(Heading { columns, names, classes, unit: "line" })?;
    let before = rows.rows();
    let first = matches!(kind, First::Row).then_some(first);
    for Kept { line, cells } in first.into_iter().chain(second) {
        check_width(line, cells.len(), columns)?;
        rows.add(line, |column| Cell::of_text(&cells[column]))?;
    }
    let mut estimated = false;
    while let Some(record) = records.next()? {
        check_width(record.line, record.len(), columns)?;
        rows.add(record.line, |column| Cell::of_text(record.cell(column)))?;
        if !estimated && count.read() >= SAMPLE {
            estimated = true;
            if let Some(share) = count.share() {
                let read = (rows.rows() - before) as f64;
                rows.check_memory(read / share - read)?;
            }
        }
    }
    let read = rows.rows() - before;
    if let Some(announced) = announced.filter(|&count| count != read as u64) {
        let problem = format!("the first line announces {announced} rows, {read} follow");
        let (place, needed) = ("line 1".into(), announced as usize);
        return Err(DataError::Count { place, found: read, needed, problem });
    }
    Ok(())
}

fn check_width(line: u64, found: usize, needed: usize) -> Result<(), DataError> {
    if found == needed {
        return Ok(());
    }
    let problem = format!("{found} columns found, {needed} expected, as in the first line");
    Err(DataError::Count { place: format!("line {line}"), found, needed, problem })
}

/// The kind of the first line, and the number of columns of the rows.
fn first_line(
    first: &[Vec<u8>],
    second: Option<&Kept>,
    header: Option<bool>,
    are_names: impl Fn(&[String]) -> bool,
) -> Result<(First, usize), DataError> {
    let texts = || -> Vec<String> {
        first.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
    };
    let numeric = |cell: &[u8]| Cell::of_text(cell).number().is_some();
    if let (None, Some(second)) = (header, second)
        && let [rows, features, classes @ ..] = texts().as_slice()
        && let (Ok(rows), Ok(features)) = (rows.parse::<u64>(), features.parse::<u64>())
        && !classes.is_empty()
        && classes.iter().all(|class| !numeric(class.as_bytes()))
        && features.checked_add(1) == Some(second.cells.len() as u64)
    {
        return Ok((First::Counts { rows, classes: classes.to_vec() }, second.cells.len()));
    }
    // Names are texts, also above a cell that is a date or has no value.
    let is_value = |cell: &[u8]| {
        let cell = Cell::of_text(cell);
        cell.number().is_some() || is_missing(cell) || date(cell).is_some()
    };
    let named = header.unwrap_or_else(|| match second {
        _ if are_names(&texts()) => true,
        Some(second) => first.iter().zip(&second.cells).any(|(a, b)| !is_value(a) && is_value(b)),
        None => first.iter().all(|cell| !numeric(cell)),
    });
    if named && second.is_none() {
        let problem = "there is no row after the header: at least one is needed";
        return Err(DataError::structure("line 2", problem));
    }
    Ok((if named { First::Names(texts()) } else { First::Row }, first.len()))
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::super::{
        dataset::{Dataset, Target, Task},
        encode::Encoder,
        input::Counted,
        load::Options,
        records,
    };
    use super::*;

    /// Reads the text in pieces of every length that matters: all give the same.
    fn read(name: &str, text: &[u8], options: &Options) -> Result<Dataset, DataError> {
        let in_pieces = |piece: usize| {
            let source = Counted::new(text, name, Some(text.len() as u64));
            let (count, mut encoder) = (source.count(), Encoder::new(options)?);
            super::read(source, &count, piece, options.header, &mut encoder)?;
            encoder.finish(name)
        };
        let whole = in_pieces(records::PIECE);
        let text = |read: Result<Dataset, DataError>| read.map_err(|error| error.to_string());
        for piece in [1, 5, 6, 7, 11, 13] {
            assert_eq!(text(in_pieces(piece)), text(in_pieces(records::PIECE)), "{piece} bytes");
        }
        whole
    }

    fn parse(text: &str) -> Result<Dataset, DataError> {
        read("t", text.as_bytes(), &Options::default())
    }

    fn problem(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_header_is_detected() {
        for text in [
            "1,2,0\n3,4,1\n",
            "a,b,label\n1,2,0\n3,4,1\n",
            "a,2,c\r\n1,2,0\r\n\r\n3, 4 ,1",
            "\u{FEFF}1,2,0\n3,4,1\n",
        ] {
            let data = parse(text).unwrap();
            assert_eq!(data.features, array![[1.0, 2.0], [3.0, 4.0]], "{text}");
            assert_eq!(data.labels().unwrap(), [0, 1]);
        }
        let options = Options { header: Some(true), ..Options::default() };
        assert_eq!(read("t", b"1,2,0\n3,4,1\n", &options).unwrap().rows(), 1);
    }

    #[test]
    fn a_fault_has_its_place_and_value() {
        for (text, expected) in [
            ("w,b\r\n1,0\r\n\r\nx,1\r\n", (4, 0, Some("w"), "\"x\"")),
            ("1,0\n,1\n", (2, 0, None, "\"\"")),
            ("1,0\n1e39,1\n", (2, 0, None, "\"1e39\"")),
            ("1,0\n1,inf\n", (2, 1, None, "inf")),
            ("5.1,setosa\n4.9,virginica\n", (1, 1, None, "\"setosa\"")),
        ] {
            let error = parse(text).unwrap_err();
            let DataError::Cell { unit: "line", row, column, name, value, .. } = &error else {
                panic!("{error}")
            };
            let (line, position, of_column, shown) = expected;
            assert_eq!((*row, *column), (Some(line), Some(position)), "{text:?}");
            assert_eq!((name.as_deref(), &value[..]), (of_column, shown), "{text:?}");
        }
        let error = parse("a,b\r\n1,0\r\n\r\n7\r\n").unwrap_err();
        let DataError::Count { place, found: 1, needed: 2, .. } = &error else { panic!("{error}") };
        assert_eq!(place, "line 4");
        assert_eq!(
            problem("1,5;2;0\n1,5;3;1\n"),
            "line 1, column 0 = \"1,5\": text, but a number is needed, with a point before its \
             fraction"
        );
    }

    #[test]
    fn the_separator_is_the_most_frequent_one() {
        for text in ["1,2,0\n3,4,1\n", "1;2;0\n3;4;1\n", "1\t2\t0\n3\t4\t1\n"] {
            let data = parse(text).unwrap();
            assert_eq!(data.features, array![[1.0, 2.0], [3.0, 4.0]], "{text:?}");
            assert_eq!(data.labels().unwrap(), [0, 1]);
        }
        let quoted = parse("\"a,b,c\";x;\"the; class\"\n1;2;0\n").unwrap();
        let columns = quoted.columns.unwrap();
        assert_eq!((columns.features.len(), &columns.features[0][..]), (2, "a,b,c"));
        assert_eq!(columns.targets, ["the; class"]);
    }

    #[test]
    fn labels_are_names_of_classes() {
        let names = |names: &[&str]| Options {
            class_names: Some(names.iter().map(|name| name.to_string()).collect()),
            ..Options::default()
        };
        let read = |text: &str, options: &Options| read("t", text.as_bytes(), options);
        // In the order of the list, whatever the file has first; positions are accepted too.
        let data = read("1,no\n2,yes\n3,1\n", &names(&["yes", "no"])).unwrap();
        assert_eq!((data.labels().unwrap(), data.outputs()), (&[1, 0, 1][..], 2));
        // Where a name is a number, labels are names only.
        let data = read("1,2\n2,1.0\n", &names(&["1", "2"])).unwrap();
        assert_eq!(data.labels().unwrap(), [1, 0]);
        let problem = |text: &str, options: &Options| read(text, options).unwrap_err().to_string();
        assert_eq!(
            problem("1,0\n", &names(&["1", "2"])),
            "line 1, column 1 = \"0\": no class has this name: 1, 2 are accepted (data.classes)"
        );
        assert_eq!(
            problem("1,yes\n1,no\n1,\n", &names(&["yes", "no"])),
            "line 3, column 1 = \"\": an empty cell, but a label is needed"
        );
        // Where all rows are in the file, it names its classes itself.
        let all = Options { number_classes: true, ..Options::default() };
        let data = read("1,b\n2,a\n3,b\n", &all).unwrap();
        assert_eq!(data.labels().unwrap(), [1, 0, 1]);
        assert_eq!(data.class_names(), ["a", "b"]);
        let data = read("1,1\n2,0\n", &all).unwrap();
        assert_eq!(
            (data.labels().unwrap(), data.class_names()),
            (&[1, 0][..], &["0".into(), "1".into()][..])
        );
    }

    #[test]
    fn the_model_bounds_columns_and_classes() {
        let options = Options { inputs: Some(3), ..Options::default() };
        let error = read("t", b"1,2,0\n", &options).unwrap_err().to_string();
        assert_eq!(error, "columns: 2 features beside 1 target: 3 are expected (model.inputs)");
        let options = Options { classes: Some(2), ..Options::default() };
        let error = read("t", b"1,2,0\n1,2,2\n", &options).unwrap_err().to_string();
        assert_eq!(
            error,
            "line 2, column 2 = 2: a label is a whole number from 0 to 1 (2 classes)"
        );
        assert_eq!(read("t", b"1,2,0\n", &options).unwrap().outputs(), 2);
    }

    #[test]
    fn rows_to_predict_need_no_target() {
        let options =
            Options { inputs: Some(2), classes: Some(3), bare: true, ..Options::default() };
        let bare = read("t", b"a,b\n1,2\n3,4\n", &options).unwrap();
        assert_eq!(
            (&bare.features, bare.labels()),
            (&array![[1.0, 2.0], [3.0, 4.0]], Some(&[0, 0][..]))
        );
        let labelled = read("t", b"1,2,2\n", &options).unwrap();
        assert_eq!((labelled.inputs(), labelled.labels()), (2, Some(&[2][..])));
        let regression = Options { task: Task::Regression, ..options.clone() };
        assert_eq!(read("t", b"1,2\n", &regression).unwrap().inputs(), 2);
        assert!(
            read("t", b"1,2,3,4\n", &options).unwrap_err().to_string().contains("2 are expected")
        );
        let named = Options { target: Some("-1".into()), ..options };
        assert!(read("t", b"1,2\n", &named).unwrap_err().to_string().contains("2 are expected"));
    }

    #[test]
    fn regression_reads_numbers() {
        let options =
            Options { task: Task::Regression, target: Some("y".into()), ..Options::default() };
        let data = read("t", b"y,x\n0.5,1\n-2,3\n", &options).unwrap();
        assert_eq!(data.features, array![[1.0], [3.0]]);
        assert_eq!(data.target, Target::Values(array![[0.5], [-2.0]]));
    }

    #[test]
    fn scikit_learns_first_line_names_the_classes() {
        let data = parse("2,2,no,yes\n1,2,0\n3,4,1\n").unwrap();
        assert_eq!((data.rows(), data.class_names()), (2, &["no".to_string(), "yes".into()][..]));
        assert_eq!(
            problem("3,2,no,yes\n1,2,0\n3,4,1\n"),
            "line 1: the first line announces 3 rows, 2 follow"
        );
    }
}
