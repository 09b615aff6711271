//! Text separated by commas, semicolons or tabs: one row per line, numbers and labels, with or
//! without a line of column names. The separator is the one that is most frequent in the first
//! line.
//!
//! It also reads the first line of scikit-learn's files, `rows,columns,class,class,...`, which
//! names the classes.

use ndarray::Array2;

use super::{
    classes::{Classes, Found},
    columns::{self, MAX_CLASSES, excerpt, list},
    dataset::{Columns, Dataset, Task},
    load::Options,
};
use crate::{config::ConfigError, memory};

/// A table with at least this many bytes is measured before it is read.
const LARGE: usize = 64 << 20;

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

/// Reads a table.
pub(super) fn read(name: &str, bytes: &[u8], options: &Options) -> Result<Dataset, ConfigError> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let (first, columns) = first_line(bytes, options.header)?;
    let header = match &first {
        First::Names(names) => Some(names.as_slice()),
        First::Row | First::Counts { .. } => None,
    };
    let Chosen { features, targets } = choose(header, columns, options)?;
    let (inputs, bare) = (features.len(), targets.is_empty());
    if let Some(expected) = options.inputs.filter(|&expected| expected != inputs) {
        let problem = format!(
            "{inputs} features beside {} target: {expected} are expected (model.inputs)",
            targets.len()
        );
        return Err(ConfigError::at("columns", problem));
    }
    bound(bytes, columns, targets.len())?;
    let mut table = Table {
        columns,
        features: &features,
        targets: &targets,
        header,
        task: options.task,
        labels: match &options.class_names {
            Some(names) => Labels::Named(Classes::new(names)),
            None if options.number_classes => Labels::Unknown,
            None => Labels::Numbers,
        },
    };
    let mut rows = table.rows(bytes, !matches!(first, First::Row))?;
    let class_names = match &first {
        First::Counts { rows: count, .. } if *count != rows.lines.len() as u64 => {
            let problem =
                format!("the first line announces {count} rows, {} follow", rows.lines.len());
            return Err(ConfigError::at("line 1", problem));
        }
        First::Counts { classes, .. } => match &options.class_names {
            Some(names) if names != classes => {
                let problem = format!("{name} names its classes {}", list(classes));
                return Err(ConfigError::new("data.classes", list(names), problem));
            }
            _ => Some(classes.clone()),
        },
        First::Row | First::Names(_) => None,
    };
    let class_names = match std::mem::replace(&mut table.labels, Labels::Numbers) {
        Labels::Found(found) => {
            let (names, positions) = found.sorted();
            if names.len() > MAX_CLASSES {
                let problem = format!("{} names of classes: up to {MAX_CLASSES}", names.len());
                return Err(ConfigError::at("labels", problem + " are accepted"));
            }
            for label in &mut rows.targets {
                *label = f64::from(positions[*label as usize]);
            }
            Some(names)
        }
        Labels::Named(_) => options.class_names.clone(),
        Labels::Unknown | Labels::Numbers => class_names,
    };
    let names = header.map(|header| {
        let names = |of: &[usize]| of.iter().map(|&column| header[column].clone()).collect();
        Columns { features: names(&features), targets: names(&targets) }
    });
    let place =
        |row: usize| table.place(rows.lines[row], targets.first().copied().unwrap_or(columns));
    let (values, width) =
        if bare { (vec![0.0; rows.lines.len()], 1) } else { (rows.targets, targets.len()) };
    let target = columns::target(values, width, options, class_names, &place)?;
    let features = Array2::from_shape_vec((rows.lines.len(), inputs), rows.features)
        .expect("every row has as many features");
    let mut data = Dataset::new(name, features, target)?;
    data.columns = names;
    Ok(data)
}

/// The positions of the columns to read.
struct Chosen {
    features: Vec<usize>,
    /// None of them if rows have no targets.
    targets: Vec<usize>,
}

/// Chooses the columns by name or by position.
fn choose(
    header: Option<&[String]>,
    columns: usize,
    options: &Options,
) -> Result<Chosen, ConfigError> {
    let target = options.target.as_deref();
    let by_target = |target| columns::targets(target, header, columns, options.task);
    let wanted = match (&options.columns, header) {
        (Some(wanted), Some(header)) => Some((wanted, header)),
        (Some(wanted), None) if !options.by_position => {
            let names = list(&wanted.features);
            let problem = "the first line does not name the columns";
            return Err(ConfigError::new("data.columns", names, problem));
        }
        _ => None,
    };
    let Some((wanted, header)) = wanted else {
        let bare = options.bare && target.is_none() && options.inputs == Some(columns);
        let targets = if bare { Vec::new() } else { by_target(target)? };
        let features = (0..columns).filter(|column| !targets.contains(column)).collect();
        return Ok(Chosen { features, targets });
    };
    let targets = match target {
        Some(_) => by_target(target)?,
        None if options.bare && !wanted.targets.iter().all(|name| header.contains(name)) => {
            Vec::new()
        }
        None if wanted.targets.is_empty() => {
            let problem = "is missing: data.columns names the features, and this key the target";
            return Err(ConfigError::at("data.target", problem));
        }
        None => columns::named(&wanted.targets, header)?,
    };
    let features = columns::named(&wanted.features, header)?;
    if let Some(both) = features.iter().find(|column| targets.contains(column)) {
        let problem = "is the target, and is also named as a feature";
        return Err(ConfigError::new("data.columns", excerpt(&header[*both]), problem));
    }
    Ok(Chosen { features, targets })
}

/// Checks that the numbers of a large table fit into memory beside its text.
fn bound(bytes: &[u8], columns: usize, targets: usize) -> Result<(), ConfigError> {
    if bytes.len() < LARGE {
        return Ok(());
    }
    // The maximum number of lines: shorter lines have fewer cells and are refused.
    let lines =
        (bytes.len() / (2 * columns)).min(bytes.iter().filter(|byte| **byte == b'\n').count() + 1);
    // A feature has 4 bytes, a target and a line's number 8.
    let row = 4 * (columns - targets) + 8 * targets + 8;
    let value = format!("{lines} lines of {columns} columns");
    let remedy = "cut the file into shards, or take a machine with more";
    memory::require(lines as u64 * row as u64, "the table", &value, "it", remedy)
}

fn reader(bytes: &[u8]) -> ::csv::Reader<&[u8]> {
    ::csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(separator(bytes))
        .flexible(true)
        .trim(::csv::Trim::All)
        .from_reader(bytes)
}

/// The most frequent separator in the first line outside quotes; of equal ones the comma, then the
/// semicolon.
fn separator(bytes: &[u8]) -> u8 {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
    let (mut quoted, mut counts) = (false, [0usize; 3]);
    for byte in &bytes[start..] {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            b',' if !quoted => counts[0] += 1,
            b';' if !quoted => counts[1] += 1,
            b'\t' if !quoted => counts[2] += 1,
            _ => {}
        }
    }
    let most = counts.into_iter().max().unwrap_or(0);
    match counts.iter().position(|&count| count == most) {
        Some(1) => b';',
        Some(2) => b'\t',
        _ => b',',
    }
}

/// The kind of the first line, and the number of columns of the rows.
fn first_line(bytes: &[u8], header: Option<bool>) -> Result<(First, usize), ConfigError> {
    let mut records = reader(bytes).into_byte_records();
    let mut next =
        || records.next().transpose().map_err(|error| ConfigError::at("line 1", error.to_string()));
    let Some(first) = next()? else {
        return Err(ConfigError::at("line 1", "the file is empty: at least one row is needed"));
    };
    let second = next()?;
    let texts = || {
        first.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect::<Vec<String>>()
    };
    let numeric = |cell: &[u8]| number(cell).is_some();
    if let (None, Some(second)) = (header, &second)
        && let [rows, features, classes @ ..] = texts().as_slice()
        && let (Ok(rows), Ok(features)) = (rows.parse::<u64>(), features.parse::<u64>())
        && !classes.is_empty()
        && classes.iter().all(|class| !numeric(class.as_bytes()))
        && features.checked_add(1) == Some(second.len() as u64)
    {
        return Ok((First::Counts { rows, classes: classes.to_vec() }, second.len()));
    }
    let named = header.unwrap_or_else(|| match &second {
        Some(second) => first
            .iter()
            .enumerate()
            .any(|(i, cell)| !numeric(cell) && second.get(i).is_some_and(numeric)),
        None => first.iter().all(|cell| !numeric(cell)),
    });
    if named && second.is_none() {
        return Err(ConfigError::at(
            "line 2",
            "there is no row after the header: at least one is needed",
        ));
    }
    Ok((if named { First::Names(texts()) } else { First::Row }, first.len()))
}

fn number(cell: &[u8]) -> Option<f64> {
    std::str::from_utf8(cell).ok()?.parse().ok()
}

/// The line number of a record: its position is before the blank lines (and the second half of a CR
/// LF) that precede it.
fn line_of(bytes: &[u8], position: &::csv::Position) -> u64 {
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let breaks = bytes
        .get(start..)
        .unwrap_or_default()
        .iter()
        .take_while(|&&byte| byte == b'\n' || byte == b'\r');
    position.line() + breaks.filter(|&&byte| byte == b'\n').count() as u64
}

struct Table<'a> {
    columns: usize,
    features: &'a [usize],
    targets: &'a [usize],
    header: Option<&'a [String]>,
    task: Task,
    labels: Labels,
}

/// How labels are read.
enum Labels {
    /// As numbers.
    Numbers,
    /// By the names of the classes.
    Named(Classes),
    /// As the first label is: a number or a name.
    Unknown,
    /// By the names that are found.
    Found(Found),
}

/// The numbers as read, row by row.
#[derive(Default)]
struct Rows {
    features: Vec<f32>,
    targets: Vec<f64>,
    /// The line of each row.
    lines: Vec<u64>,
}

impl Table<'_> {
    fn rows(&mut self, bytes: &[u8], skip_first: bool) -> Result<Rows, ConfigError> {
        let mut rows = Rows::default();
        let mut reader = reader(bytes);
        let mut record = ::csv::ByteRecord::new();
        let mut skip = skip_first;
        loop {
            let more = reader
                .read_byte_record(&mut record)
                .map_err(|error| ConfigError::at("the table", error.to_string()))?;
            if !more {
                break;
            }
            if std::mem::take(&mut skip) {
                continue;
            }
            let line = record.position().map_or(0, |position| line_of(bytes, position));
            if record.len() != self.columns {
                return Err(self.ragged(line, &record));
            }
            for &column in self.features {
                rows.features.push(self.feature(line, column, &record[column])?);
            }
            for &column in self.targets {
                rows.targets.push(self.target(line, column, &record[column])?);
            }
            rows.lines.push(line);
        }
        if rows.lines.is_empty() {
            return Err(ConfigError::at("line 1", "there is no row: at least one is needed"));
        }
        Ok(rows)
    }

    fn feature(&self, line: u64, column: usize, cell: &[u8]) -> Result<f32, ConfigError> {
        // From text to f32 in one rounding.
        match std::str::from_utf8(cell).ok().and_then(|text| text.parse::<f32>().ok()) {
            Some(value) if value.is_finite() => Ok(value),
            Some(_) => Err(self.refuse(
                line,
                column,
                cell,
                "a finite number within f32 is needed: up to about 3.4e38",
            )),
            None if cell.is_empty() => {
                Err(self.refuse(line, column, cell, "an empty cell, but a number is needed"))
            }
            None if cell.contains(&b',') => {
                let problem = "text, but a number is needed, with a point before its fraction";
                Err(self.refuse(line, column, cell, problem))
            }
            None => Err(self.refuse(line, column, cell, "text, but a number is needed")),
        }
    }

    fn target(&mut self, line: u64, column: usize, cell: &[u8]) -> Result<f64, ConfigError> {
        if self.task == Task::Regression {
            return self.feature(line, column, cell).map(f64::from);
        }
        if let Labels::Unknown = self.labels {
            self.labels = match number(cell) {
                Some(_) => Labels::Numbers,
                None => Labels::Found(Found::default()),
            };
        }
        let problem = match &mut self.labels {
            _ if cell.is_empty() => "an empty cell, but a label is needed".into(),
            Labels::Named(classes) => match classes.find(cell) {
                Some(class) => return Ok(f64::from(class)),
                None => classes.problem(),
            },
            Labels::Found(found) => match found.number(cell) {
                Some(class) => return Ok(f64::from(class)),
                None => "is not UTF-8".into(),
            },
            Labels::Numbers | Labels::Unknown => match number(cell) {
                Some(label) => return Ok(label),
                None => "text, but a label is needed: name the classes in data.classes, or number \
                         them 0, 1, 2, ..., in the same order on every node"
                    .to_string(),
            },
        };
        Err(self.refuse(line, column, cell, &problem))
    }

    fn place(&self, line: u64, column: usize) -> String {
        match self.header.and_then(|names| names.get(column)) {
            Some(name) => format!("line {line}, column {column} ({})", excerpt(name)),
            None => format!("line {line}, column {column}"),
        }
    }

    fn refuse(&self, line: u64, column: usize, cell: &[u8], problem: &str) -> ConfigError {
        let text = String::from_utf8_lossy(cell);
        ConfigError::new(self.place(line, column), format!("\"{}\"", excerpt(&text)), problem)
    }

    fn ragged(&self, line: u64, record: &::csv::ByteRecord) -> ConfigError {
        let problem = format!(
            "{} columns found, {} expected, as in the first line",
            record.len(),
            self.columns
        );
        ConfigError::at(format!("line {line}"), problem)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::super::dataset::Target;
    use super::*;

    fn parse(text: &str) -> Result<Dataset, ConfigError> {
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
    fn every_fault_names_its_line_and_the_accepted_values() {
        for (text, message) in [
            ("\n\n", "line 1: the file is empty: at least one row is needed"),
            ("a,b\n", "line 2: there is no row after the header: at least one is needed"),
            ("1,0\n1,2,0\n", "line 2: 3 columns found, 2 expected, as in the first line"),
            ("a,b\n1,0\n\n7\n", "line 4: 1 columns found, 2 expected, as in the first line"),
            (
                "a,b\r\n1,0\r\n\r\n7\r\n",
                "line 4: 1 columns found, 2 expected, as in the first line",
            ),
            ("1,0\nx,1\n", "line 2, column 0 = \"x\": text, but a number is needed"),
            ("w,b\n1,0\nx,1\n", "line 3, column 0 (w) = \"x\": text, but a number is needed"),
            ("1,0\n,1\n", "line 2, column 0 = \"\": an empty cell, but a number is needed"),
            (
                "1,0\nnan,1\n",
                "line 2, column 0 = \"nan\": a finite number within f32 is needed: up to about \
                 3.4e38",
            ),
            (
                "1,0\n1e39,1\n",
                "line 2, column 0 = \"1e39\": a finite number within f32 is needed: up to about \
                 3.4e38",
            ),
            (
                "1,0\n1,1.5\n",
                "line 2, column 1 = 1.5: a label is a whole number 0, 1, 2, ..., below 65536",
            ),
            (
                "1,0\n1,-1\n",
                "line 2, column 1 = -1: a label is a whole number 0, 1, 2, ..., below 65536",
            ),
            (
                "1,0\n1,inf\n",
                "line 2, column 1 = inf: a label is a whole number 0, 1, 2, ..., below 65536",
            ),
        ] {
            assert_eq!(problem(text), message, "{text:?}");
        }
        let text = problem("5.1,setosa\n4.9,virginica\n");
        assert!(
            text.starts_with(
                "line 1, column 1 = \"setosa\": text, but a label is needed: name the classes in \
                 data.classes"
            ),
            "{text}"
        );
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
            problem("1,yes\n1,\n", &names(&["yes", "no"])),
            "line 2, column 1 = \"\": an empty cell, but a label is needed"
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
