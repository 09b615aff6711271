//! Text separated by commas, semicolons, tabs or pipes: one row per line, numbers and labels, with
//! or without a line of column names. The separator is the one that is most frequent in the first
//! line, or that a line such as `sep=;` before it names. The text is UTF-8.
//!
//! It also reads the first line of scikit-learn's files, `rows,columns,class,class,...`, which
//! names the classes.

use std::io::Read;

use super::{
    encoding,
    header::{self, Again, First, Found, Names},
    records::{PIECE, Record, Records},
};
use crate::data::{
    DataError,
    excerpt::excerpt,
    file::input::Count,
    format::{Content, Format},
    table::{
        cell::Cell,
        rows::{Heading, Rows, TextRows},
    },
};

/// The rest of a file is estimated once this many bytes of it were read.
const SAMPLE: u64 = 8 << 20;

/// A record that is kept.
struct OwnedRecord {
    line: u64,
    /// The number of cells in the file.
    width: usize,
    cells: Vec<Vec<u8>>,
}

/// The rows below the first line in which a header is looked for, and the cells of them.
const SAMPLE_ROWS: usize = 64;
const SAMPLE_CELLS: usize = 1 << 16;

impl From<Record<'_>> for OwnedRecord {
    fn from(record: Record<'_>) -> OwnedRecord {
        let cells = record.cells().map(|cell| cell.trim_ascii().to_vec()).collect();
        OwnedRecord { line: record.line, width: record.len(), cells }
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "csv",
    file: "a CSV file",
    endings: &[".csv"],
    magics: &[],
    content: Content::Text,
};

/// Reads the rows of a table; see [`read_in_pieces`].
pub(crate) fn read(
    name: &str,
    source: impl Read,
    count: &Count,
    header: Option<bool>,
    rows: &mut impl TextRows,
) -> Result<(), DataError> {
    read_in_pieces(name, source, count, PIECE, header, rows)
}

/// Reads the rows of a table. `name` names the file in remarks, `count` counts its bytes; `piece`
/// of them are in memory.
fn read_in_pieces(
    name: &str,
    source: impl Read,
    count: &Count,
    piece: usize,
    header: Option<bool>,
    rows: &mut impl TextRows,
) -> Result<(), DataError> {
    let mut records = Records::new(source, piece)?;
    let mut sample = sample(&mut records)?;
    let empty = empty_tail(&sample, header);
    sample.iter_mut().for_each(|kept| kept.cells.truncate(kept.width.saturating_sub(empty)));
    let Beginning { heading, is_row, announced, remark } = beginning(&sample, header, rows)?;
    let mut expected = Expected::of(&heading, empty);
    rows.begin(heading)?;
    if empty > 0 {
        let columns = if empty == 1 { "column" } else { "columns" };
        rows.note(format!(
            "{name}: every line ends with separators: {empty} empty {columns} at its end are left \
             out"
        ));
    }
    if let Some(remark) = &remark {
        rows.note(format!("{name}: {remark}"));
    }
    let before = rows.rows();
    for (at, kept) in sample.iter().enumerate().skip(usize::from(!is_row)) {
        let OwnedRecord { line, width, cells } = kept;
        expected.check(*line, *width, |column| cells.get(column).map_or(&[][..], |cell| cell))?;
        let added = rows.add_text(*line, |column| Cell::of_text(&cells[column]));
        added.map_err(|error| match &remark {
            Some(remark) if at == 0 => with_remark(error, remark),
            _ => error,
        })?;
    }
    read_rest(&mut records, &mut expected, count, before, rows)?;
    if let Some(line) = expected.repeated {
        rows.note(format!(
            "{name}: line {line} has the same numbers as the names of the columns: is it a row?"
        ));
    }
    if let Some((line, column)) = records.swallowed() {
        rows.note(format!(
            "{name}: line {line}, column {column}: a cell between quotes holds lines that look \
             like rows of their own: is a quote missing, or one too many?"
        ));
    }
    check_announced(announced, rows.rows() - before)
}

/// The first line and some below it.
fn sample(records: &mut Records<impl Read>) -> Result<Vec<OwnedRecord>, DataError> {
    let mut sample = Vec::new();
    while sample.len() <= SAMPLE_ROWS {
        let Some(record) = records.next()? else { break };
        check_text(&record)?;
        let cells = record.len();
        sample.push(OwnedRecord::from(record));
        if cells.saturating_mul(sample.len()) > SAMPLE_CELLS {
            break;
        }
    }
    Ok(sample)
}

/// What the first line says.
struct Beginning {
    heading: Heading,
    /// Whether it is a row.
    is_row: bool,
    /// The number of rows, if it says that.
    announced: Option<u64>,
    /// For the user: what was assumed about it.
    remark: Option<String>,
}

/// Finds what the first of some lines is.
fn beginning(
    sample: &[OwnedRecord],
    header: Option<bool>,
    rows: &impl Rows,
) -> Result<Beginning, DataError> {
    let below: Vec<&[Vec<u8>]> = sample.iter().skip(1).map(|kept| &kept.cells[..]).collect();
    let Some(first) = sample.first() else { return Err(DataError::empty()) };
    let Found { first: kind, remark } =
        header::find(&first.cells, &below, header, |names| rows.are_names(names))?;
    let is_row = kind == First::Row;
    let mut heading = Heading { columns: first.cells.len(), unit: "line", ..Heading::default() };
    let mut announced = None;
    match kind {
        First::Row => (),
        First::Names(names) => {
            if header::has_units(&below) {
                let problem = "texts alone, where the lines below it have numbers: if it has the \
                               units of the columns, leave it out, or write them into the names";
                return Err(DataError::structure(format!("line {}", sample[1].line), problem));
            }
            heading.names = Some(names);
        }
        First::Counts { rows, classes } => {
            (heading.columns, heading.classes) = (below[0].len(), Some(classes));
            announced = Some(rows);
        }
    }
    check_separator(sample, heading.columns)?;
    Ok(Beginning { heading, is_row, announced, remark })
}

/// Adds the rows below the sample. Once enough of the file was read, the memory for all of it is
/// checked; `before` rows are of other files.
fn read_rest(
    records: &mut Records<impl Read>,
    expected: &mut Expected,
    count: &Count,
    before: usize,
    rows: &mut impl TextRows,
) -> Result<(), DataError> {
    let mut estimated = false;
    while let Some(record) = records.next().map_err(|error| expected.with_name(error))? {
        check_text(&record).map_err(|error| expected.with_name(error))?;
        expected.check(record.line, record.len(), |column| record.cell(column))?;
        rows.add_text(record.line, |column| Cell::of_text(record.cell(column)))?;
        if !estimated && count.read() >= SAMPLE {
            estimated = true;
            if let Some(share) = count.share() {
                let read = (rows.rows() - before) as f64;
                rows.check_memory(read / share - read)?;
            }
        }
    }
    Ok(())
}

fn check_announced(announced: Option<u64>, read: usize) -> Result<(), DataError> {
    match announced {
        Some(count) if count != read as u64 => {
            let problem = format!("the first line announces {count} rows, {read} follow");
            let (place, needed) = ("line 1".into(), count as usize);
            Err(DataError::Count { place, found: read, needed, problem })
        }
        _ => Ok(()),
    }
}

/// The columns at the end of a table that have no name and no cell with a value, as a spreadsheet
/// exports them.
fn empty_tail(sample: &[OwnedRecord], header: Option<bool>) -> usize {
    let Some(first) = sample.first().filter(|_| sample.len() > 1) else { return 0 };
    let columns = first.cells.len();
    let is_empty = |at: usize| {
        let whole = sample.iter().filter(|kept| kept.cells.len() == columns);
        whole.into_iter().all(|kept| kept.cells[at].is_empty())
    };
    let empty = (0..columns).rev().take_while(|at| is_empty(*at)).count();
    // A row without names may have its values below; a single column is left.
    let has_names = header != Some(false);
    if has_names && empty < columns { empty } else { 0 }
}

/// What every row is.
struct Expected {
    columns: usize,
    /// The columns behind these, without values.
    empty: usize,
    names: Option<Names>,
    /// The first line that has the names again, if they are numbers.
    repeated: Option<u64>,
}

impl Expected {
    fn of(heading: &Heading, empty: usize) -> Expected {
        let names = heading.names.as_deref().map(Names::new);
        Expected { columns: heading.columns, empty, names, repeated: None }
    }

    /// Checks the number of cells, and that they are not the names of the columns again.
    fn check<'c>(
        &mut self,
        line: u64,
        found: usize,
        cell: impl Fn(usize) -> &'c [u8],
    ) -> Result<(), DataError> {
        let needed = self.columns + self.empty;
        if found != needed {
            let problem = format!("{found} columns found, {needed} expected, as in the first line");
            return Err(DataError::Count { place: format!("line {line}"), found, needed, problem });
        }
        for column in self.columns..needed {
            let value = cell(column).trim_ascii();
            if !value.is_empty() {
                let value = format!("\"{}\"", excerpt(&String::from_utf8_lossy(value)));
                let problem = "a value in a column without a name, which is empty in the lines \
                               above: name the column, or leave it out";
                return Err(DataError::cell("line", line as usize, Some(column), value, problem));
            }
        }
        if let Some(names) = &self.names
            && names.check(line, cell)? == Again::Numbers
        {
            self.repeated.get_or_insert(line);
        }
        Ok(())
    }

    /// Names the column of a cell.
    fn with_name(&self, mut error: DataError) -> DataError {
        if let DataError::Cell { name, column: Some(column), .. } = &mut error {
            *name = self.names.as_ref().and_then(|names| names.name(*column));
        }
        error
    }
}

/// Checks that a record is UTF-8.
fn check_text(record: &Record<'_>) -> Result<(), DataError> {
    match encoding::check(record.text(), record.cells()) {
        None => Ok(()),
        Some(at) => Err(encoding::refuse(record.line, at, record.cell(at), record.text())),
    }
}

/// Refuses lines of one column that are separated by blanks.
fn check_separator(sample: &[OwnedRecord], columns: usize) -> Result<(), DataError> {
    let words = |kept: &OwnedRecord| {
        kept.cells[0].split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count()
    };
    let all = words(&sample[0]);
    let numbers = |kept: &OwnedRecord| {
        let mut words = kept.cells[0].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        words.any(|word| Cell::of_text(word).number().is_some())
    };
    if columns > 1
        || all < 2
        || !sample.iter().any(numbers)
        || sample.iter().any(|kept| words(kept) != all)
    {
        return Ok(());
    }
    let problem = format!(
        "{all} words between blanks, but no separator: comma, semicolon, tab and pipe are \
         accepted; `tr -s ' ' ,` replaces blanks"
    );
    Err(DataError::Structure { place: "line 1".into(), value: None, problem })
}

/// Adds what was assumed about the first line.
fn with_remark(mut error: DataError, remark: &str) -> DataError {
    if let DataError::Cell { problem, .. } = &mut error {
        *problem += &format!("; {remark}");
    }
    error
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::data::{
        dataset::{Columns, Dataset, Target, Task},
        file::input::Counted,
        options::Options,
        table::encode::Encoder,
    };

    /// Reads the text in pieces of every length that matters: all give the same.
    fn read(name: &str, text: &[u8], options: &Options) -> Result<Dataset, DataError> {
        let in_pieces = |piece: usize| {
            let source = Counted::new(text, name, Some(text.len() as u64));
            let (count, mut encoder) = (source.count(), Encoder::new(options)?);
            read_in_pieces("t", source, &count, piece, options.header, &mut encoder)?;
            encoder.finish(name)
        };
        let whole = in_pieces(PIECE);
        let text = |read: Result<Dataset, DataError>| read.map_err(|error| error.to_string());
        for piece in [1, 5, 6, 7, 11, 13] {
            assert_eq!(text(in_pieces(piece)), text(in_pieces(PIECE)), "{piece} bytes");
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
    fn columns_of_one_name_are_refused() {
        for (text, pair) in [
            ("y,x,y\n1,2,0\n", "columns 0 and 2"),
            ("x,x,y\n1,2,0\n", "columns 0 and 1"),
            ("\u{e9},e\u{301},y\n1,2,0\n", "columns 0 and 1 have this name, in two forms"),
        ] {
            let found = problem(text);
            assert!(found.starts_with("columns = \"") && found.contains(pair), "{found}");
        }
        // Where the column is not used, its name does not matter.
        let columns = Columns { features: vec!["x".into()], targets: Vec::new() };
        let (target, columns) = (Some("y".into()), Some(columns));
        let options = Options { target, columns, ..Options::default() };
        assert_eq!(read("t", b"a,x,a,y\n1,2,3,0\n", &options).unwrap().inputs(), 1);
        let error = read("t", b"y,x,a,y\n1,2,3,0\n", &options).unwrap_err().to_string();
        assert!(error.contains("columns 0 and 3 have this name"), "{error}");
    }

    #[test]
    fn columns_without_names_are_found_by_position() {
        let columns = Columns { features: vec!["2".into(), "0".into()], targets: Vec::new() };
        let (target, columns) = (Some("1".into()), Some(columns));
        let options = Options { target, columns, ..Options::default() };
        let data = read("t", b"2,1,5\n3,0,4\n", &options).unwrap();
        assert_eq!(
            (&data.features, data.labels()),
            (&array![[5.0, 2.0], [4.0, 3.0]], Some(&[1, 0][..]))
        );
        let error = read("t", b"2,1\n3,0\n", &options).unwrap_err().to_string();
        assert!(error.contains("no such column"), "{error}");
        // A position that is another column's name is neither.
        let named = Options { target: Some("1".into()), ..Options::default() };
        let error = read("t", b"a,b,1\n5,1,0\n", &named).unwrap_err().to_string();
        assert!(error.contains("the position of another column: -1 or -2 is accepted"), "{error}");
    }

    /// As `cat one.csv two.csv` makes it.
    #[test]
    fn a_header_that_comes_twice_is_refused() {
        for rows in [1, 100] {
            let file = format!("a,b,y\n{}", "1,2,0\n3,4,1\n".repeat(rows));
            let line = 2 * rows + 2;
            let again = format!("line {line}: the names of the columns come again, as in files");
            for second in [file.clone(), format!("\u{FEFF}{file}"), file.replace(',', " , ")] {
                let found = problem(&format!("{file}{second}"));
                assert!(found.starts_with(&again), "{found}");
            }
            let other = problem(&format!("{file}b,a,y\n2,1,0\n"));
            assert!(other.contains(&format!("line {line}: ")) && other.contains("another order"));
        }
        let years = "2019,2020,2021\n1,2,0\n2019,2020,2021\n";
        let options = Options { header: Some(true), task: Task::Regression, ..Options::default() };
        let data = read("t", years.as_bytes(), &options).unwrap();
        assert!(data.remarks.concat().contains("line 3 has the same numbers"));
    }

    #[test]
    fn a_line_of_units_is_refused() {
        let found = problem("age,bmi,y\nyears,kg/m2,\n50,20.5,0\n60,31,1\n");
        assert!(found.starts_with("line 2: texts alone, where the lines below it have numbers"));
    }

    /// As a spreadsheet exports a table of which more columns were once in use.
    #[test]
    fn separators_at_the_end_of_every_line_are_told() {
        let plain = parse("a,b,y\n1,2,0\n3,4,1\n").unwrap();
        for text in ["a;b;y;\n1;2;0;\n3;4;1;\n", "a,b,y,,\n1,2,0,, \n3,4,1,,\n"] {
            let found = parse(text).unwrap();
            assert_eq!((&found.features, &found.target), (&plain.features, &plain.target));
            let told = "t: every line ends with separators: ";
            assert!(found.remarks.concat().starts_with(told), "{:?}", found.remarks);
        }
        let rows = "1,2,0,,\n".repeat(100);
        let found = problem(&format!("a,b,y,,\n{rows}1,2,0,,7\n"));
        assert!(found.starts_with("line 102, column 4 = \"7\": a value in a column without"));
        assert!(problem("a,b,y,,\n1,2,0,,\n1,2,0\n").contains("3 columns found, 5 expected"));
        // A named column stays, as one with a value.
        let columns = Columns { features: vec!["a".into()], targets: Vec::new() };
        let options =
            Options { columns: Some(columns), target: Some("y".into()), ..Options::default() };
        for text in ["a,y,b\n1,0,\n", "a,y,\n1,0,\n2,1,x\n"] {
            let data = read("t", text.as_bytes(), &options).unwrap();
            assert!(data.remarks.is_empty(), "{:?}", data.remarks);
        }
    }

    #[test]
    fn what_is_assumed_is_remarked() {
        let remarks = |text: &str| parse(text).unwrap().remarks.concat();
        assert!(remarks("a,2,c\n1,2,0\n").contains("t: the first line is taken for the names"));
        assert_eq!(remarks("a,b,c\n1,2,0\n"), "");
        let options = Options { target: Some("y".into()), ..Options::default() };
        let swallowing = b"x,y,z\n1,0,\"1\n2,1,2\"\n3,0,4\n";
        let columns = Columns { features: vec!["x".into()], targets: Vec::new() };
        let options = Options { columns: Some(columns), ..options };
        let data = read("t", swallowing, &options).unwrap();
        assert!(data.remarks.concat().contains("line 2, column 2"), "{:?}", data.remarks);
        // Where the assumption may be the fault, the error names it.
        let error = problem("age,2,3,0\n1,2,0,1\n3,4,1,0\n");
        assert!(error.contains("if it is not, say data.header = true"), "{error}");
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused_by_its_place() {
        let error =
            read("t", b"town,y\nK\xF6ln,0\nZ\xFCrich,1\n", &Options::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("line 2, column 0 = \"K\\xF6ln\": not UTF-8"), "{error}");
        let late: Vec<u8> =
            [b"x,n,y\n".to_vec(), b"1,a,0\n".repeat(100), b"1,K\xF6ln,0\n".to_vec()].concat();
        let columns = Columns { features: vec!["x".into()], targets: Vec::new() };
        let (target, columns) = (Some("y".into()), Some(columns));
        let error =
            read("t", &late, &Options { target, columns, ..Options::default() }).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("line 102, column 1 (n) = \"K\\xF6ln\": not UTF-8"), "{error}");
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
        for text in [
            "1,2,0\n3,4,1\n",
            "1;2;0\n3;4;1\n",
            "1\t2\t0\n3\t4\t1\n",
            "1|2|0\n3|4|1\n",
            "sep=|\n1|2|0\n3|4|1\n",
        ] {
            let data = parse(text).unwrap();
            assert_eq!(data.features, array![[1.0, 2.0], [3.0, 4.0]], "{text:?}");
            assert_eq!(data.labels().unwrap(), [0, 1]);
        }
        let blanks = problem("1 2 0\n3  4 1\n");
        assert!(blanks.starts_with("line 1: 3 words between blanks"), "{blanks}");
        let quoted = parse("\"a,b,c\";x;\"the; class\"\n1;2;0\n").unwrap();
        let columns = quoted.columns.unwrap();
        assert_eq!((columns.features.len(), &columns.features[0][..]), (2, "a,b,c"));
        assert_eq!(columns.targets, ["the; class"]);
    }

    #[test]
    fn labels_are_names_of_classes() {
        let names = |names: &[&str]| Options {
            class_names: Some(names.iter().map(ToString::to_string).collect()),
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
        for label in ["1e0", "01", "+1"] {
            let refused = problem(&format!("1,{label}\n"), &names(&["1", "2"]));
            assert!(refused.contains("no class has this name"), "{refused}");
        }
        assert!(problem("1,100\n", &names(&["1E2", "b"])).contains("no class has this name"));
        assert!(problem("1,1\n", &names(&["1", "1.0"])).contains("named twice"));
        assert_eq!(
            problem("1,0\n", &names(&["1", "2"])),
            "line 1, column 1 = \"0\": no class has this name: 1, 2 are accepted (data.classes)"
        );
        assert_eq!(
            problem("1,yes\n1,no\n1,\n", &names(&["yes", "no"])),
            "line 3, column 1 = \"\": a value is missing, but a label is needed: leave the row \
             out, or list the text in data.classes if it is the name of a class"
        );
        // A text that stands for a missing value may be the name of a class, if it is listed.
        assert!(problem("1,yes\n1,NA\n", &names(&["yes", "no"])).contains("a value is missing"));
        let data = read("1,none\n2,mild\n", &names(&["none", "mild"])).unwrap();
        assert_eq!(data.labels().unwrap(), [0, 1]);
        // Where all rows are in the file, it names its classes itself.
        let all = Options { number_classes: true, ..Options::default() };
        let data = read("1,b\n2,a\n3,b\n", &all).unwrap();
        assert_eq!(data.labels().unwrap(), [1, 0, 1]);
        assert_eq!(data.class_names(), ["a", "b"]);
        for missing in ["1,NA\n2,0\n", "1,0\n2,NA\n", "1,b\n2,?\n", "1,nan\n2,0\n", "1,b\n2,\n"] {
            assert!(problem(missing, &all).contains("a value is missing"), "{missing}");
        }
        assert!(problem("1,b\n2,1\n", &all).contains("the labels before it are text"));
        assert!(problem("1,1\n2,b\n", &all).contains("text, but a label is needed"));
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
        let labelled = read("t", b"1,2,2\n3,4,\n5,6,?\n", &options).unwrap();
        assert_eq!((labelled.inputs(), labelled.labels()), (2, Some(&[0, 0, 0][..])));
        let regression = Options { task: Task::Regression, ..options.clone() };
        assert_eq!(read("t", b"1,2\n", &regression).unwrap().inputs(), 2);
        assert_eq!(read("t", b"1,2,0.5\n3,4,\n", &regression).unwrap().inputs(), 2);
        // The last column is only taken for the target: a number that is no label shows that the
        // columns are others.
        let names = Some(["a", "b", "c"].map(String::from).to_vec());
        let named = Options { class_names: names, ..options.clone() };
        let problem =
            |text: &[u8], options: &Options| read("t", text, options).unwrap_err().to_string();
        for options in [&options, &named] {
            let error = problem(b"1,2,0\n1,2,1.5\n", options);
            assert!(error.starts_with("line 2, column 2 = "), "{error}");
        }
        assert_eq!(read("t", b"1,2,a\n3,4,d\n5,6,NA\n", &named).unwrap().inputs(), 2);
        assert!(problem(b"1,2,d\n", &options).contains("text, but a label is needed"));
        // A target that is named is not read.
        let chosen = Options { target: Some("-1".into()), ..options.clone() };
        assert_eq!(read("t", b"1,2,1.5\n", &chosen).unwrap().inputs(), 2);
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
