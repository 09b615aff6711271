//! Whether the first line of a text file names the columns.

use crate::data::{
    DataError,
    table::{cell::Cell, date::date, meaning::is_missing},
};

/// The kind of the first line.
#[derive(Debug, PartialEq)]
pub(crate) enum First {
    Row,
    Names(Vec<String>),
    /// scikit-learn's: the number of rows, of features, and the names of the classes.
    Counts {
        rows: u64,
        classes: Vec<String>,
    },
}

/// What the first line is.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub first: First,
    /// For the user: what was assumed, if the lines do not decide it.
    pub remark: Option<String>,
}

/// What is in a cell.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A number or a date.
    Value,
    Missing,
    Text,
}

fn kind(cell: &[u8]) -> Kind {
    let cell = Cell::of_text(cell);
    if is_missing(cell) {
        Kind::Missing
    } else if cell.number().is_some() || date(cell).is_some() {
        Kind::Value
    } else {
        Kind::Text
    }
}

/// Finds what the first line is. `below` has the lines after it, or the first ones; `header` is
/// what the user says, and `are_names` says whether the columns that are needed have these names.
///
/// # Errors
/// If no row follows a header.
pub(crate) fn find(
    first: &[Vec<u8>],
    below: &[&[Vec<u8>]],
    header: Option<bool>,
    are_names: impl Fn(&[String]) -> bool,
) -> Result<Found, DataError> {
    let texts: Vec<String> =
        first.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
    if header.is_none()
        && let Some(first) = counts(&texts, below)
    {
        return Ok(Found { first, remark: None });
    }
    let (named, certain) = match header {
        Some(named) => (named, true),
        None if are_names(&texts) => (true, true),
        None if below.is_empty() => (first.iter().all(|cell| kind(cell) != Kind::Value), true),
        None => {
            // Names that come again say nothing about the rows.
            let names = Names::new(&texts);
            let (again, rows): (Vec<_>, Vec<_>) = below.iter().partition(|row| {
                names.key.is_some() && names.are_all_in(row.iter().map(|cell| bare(cell)))
            });
            compare(first, if rows.is_empty() { &again } else { &rows })
        }
    };
    if named && below.is_empty() {
        let problem = "there is no row after the header: at least one is needed";
        return Err(DataError::structure("line 2", problem));
    }
    let assumed = if named { "the names of the columns" } else { "a row, so no column has a name" };
    let remark = (!certain).then(|| {
        format!(
            "the first line is taken for {assumed}; if it is not, say data.header = {0} (`gradvine \
             data describe --header {0}`)",
            !named
        )
    });
    Ok(Found { first: if named { First::Names(texts) } else { First::Row }, remark })
}

/// A text without the mark that begins a file, and what is around it.
fn bare(text: &[u8]) -> &[u8] {
    match text.trim_ascii().strip_prefix(b"\xEF\xBB\xBF") {
        Some(text) => {
            text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text)
        }
        None => text.trim_ascii(),
    }
}

/// The names of the columns, to find them among the rows: files that were joined have them again.
pub(crate) struct Names {
    names: Vec<Vec<u8>>,
    /// The first column whose name is no number, if there is one.
    key: Option<usize>,
    /// The bytes with which names begin, in letters of both cases.
    begins: [bool; 256],
}

/// What a row has of the names.
#[derive(Debug, PartialEq)]
pub(crate) enum Again {
    Nothing,
    /// All of them, but they are numbers, as a row may have them.
    Numbers,
}

impl Names {
    pub(crate) fn new(names: &[String]) -> Names {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut begins = [false; 256];
        for byte in names.iter().filter_map(|name| bare(name).first()) {
            begins[usize::from(byte.to_ascii_lowercase())] = true;
            begins[usize::from(byte.to_ascii_uppercase())] = true;
        }
        let key = names.iter().position(|name| kind(name) == Kind::Text);
        Names { names, key, begins }
    }

    pub(crate) fn name(&self, column: usize) -> Option<String> {
        self.names.get(column).map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// Looks for the names in a row with as many cells.
    ///
    /// # Errors
    /// If the row has them, or most of them.
    pub(crate) fn check<'c>(
        &self,
        line: u64,
        cell: impl Fn(usize) -> &'c [u8],
    ) -> Result<Again, DataError> {
        let found = bare(cell(self.key.unwrap_or(0)));
        if !found.first().is_some_and(|byte| self.begins[usize::from(*byte)]) {
            return Ok(Again::Nothing);
        }
        let is_name =
            |text: &[u8]| self.names.iter().any(|name| bare(name).eq_ignore_ascii_case(text));
        if !is_name(found) {
            return Ok(Again::Nothing);
        }
        let count = self.names.len();
        let same =
            |column: &usize| bare(cell(*column)).eq_ignore_ascii_case(bare(&self.names[*column]));
        let equal = (0..count).filter(same).count();
        if self.key.is_none() {
            return Ok(if equal == count { Again::Numbers } else { Again::Nothing });
        }
        let problem = if equal == count {
            "the names of the columns come again, as in files that were joined: leave this line \
             out (`awk 'NR == 1 {h = $0} NR == 1 || $0 != h' FILE` does)"
                .to_string()
        } else if self.are_all_in((0..count).map(|column| bare(cell(column)))) {
            "the names of the columns come again in another order: put the files that were joined \
             into a folder one by one, where columns are found by their names"
                .to_string()
        } else if equal > 1 && 2 * equal > count {
            format!(
                "{equal} of {count} cells are the names of their columns, as in files that were \
                 joined: leave this line out"
            )
        } else {
            return Ok(Again::Nothing);
        };
        Err(DataError::structure(format!("line {line}"), problem))
    }

    /// Whether these texts are all names, in any order.
    fn are_all_in<'c>(&self, texts: impl Iterator<Item = &'c [u8]>) -> bool {
        let mut texts: Vec<Vec<u8>> = texts.map(<[u8]>::to_ascii_lowercase).collect();
        let mut names: Vec<Vec<u8>> =
            self.names.iter().map(|name| bare(name).to_ascii_lowercase()).collect();
        texts.sort_unstable();
        names.sort_unstable();
        texts == names
    }
}

/// Whether the first line below the names has texts alone where all others have numbers or dates,
/// as a line of units has.
pub(crate) fn has_units(below: &[&[Vec<u8>]]) -> bool {
    let [units, rows @ ..] = below else { return false };
    let is_of_values = |column: &usize| {
        let cells = rows.iter().filter_map(|row| row.get(*column)).map(|cell| kind(cell));
        let mut present = cells.filter(|kind| *kind != Kind::Missing).peekable();
        present.peek().is_some() && present.all(|kind| kind == Kind::Value)
    };
    let values: Vec<usize> = (0..units.len()).filter(is_of_values).collect();
    // One text may stand for a missing value.
    let texts = values.iter().filter(|column| kind(&units[**column]) == Kind::Text).count();
    let has_value = units.iter().any(|cell| kind(cell) == Kind::Value);
    rows.len() > 1 && texts > 1 && !has_value
}

/// scikit-learn's first line, `rows,features,class,class,...`.
fn counts(texts: &[String], below: &[&[Vec<u8>]]) -> Option<First> {
    let [rows, features, classes @ ..] = texts else { return None };
    let (rows, features) = (rows.parse().ok()?, features.parse::<u64>().ok()?);
    let is_name = |class: &String| Cell::of_text(class.as_bytes()).number().is_none();
    let fits = features.checked_add(1) == Some(below.first()?.len() as u64);
    let several = classes.len() > 1 && classes.iter().all(is_name) && fits;
    several.then(|| First::Counts { rows, classes: classes.to_vec() })
}

/// Whether the first line names the columns, and whether that is certain. A text above values
/// alone speaks for names; a value above values against them.
fn compare(first: &[Vec<u8>], below: &[&[Vec<u8>]]) -> (bool, bool) {
    let (mut names, mut values) = (0, 0);
    for (column, cell) in first.iter().enumerate() {
        let cells = below.iter().filter_map(|row| row.get(column)).map(|cell| kind(cell));
        let present: Vec<Kind> = cells.filter(|kind| *kind != Kind::Missing).collect();
        if present.is_empty() || present.contains(&Kind::Text) {
            continue;
        }
        match kind(cell) {
            Kind::Text => names += 1,
            Kind::Value => values += 1,
            Kind::Missing => (),
        }
    }
    match (names, values) {
        (0, 0) => (is_distinct(first, below), false),
        (_, 0) => (true, true),
        (0, _) => (false, !is_sequence(first)),
        _ => (names > values || is_sequence(first), false),
    }
}

/// Whether the numbers of a line follow each other, as those of columns without other names do, or
/// years.
fn is_sequence(first: &[Vec<u8>]) -> bool {
    let whole = |cell: &Vec<u8>| std::str::from_utf8(cell).ok()?.parse::<u32>().ok();
    let numbers = first.iter().filter(|cell| kind(cell) == Kind::Value);
    let numbers: Option<Vec<u32>> = numbers.map(whole).collect();
    let follow = |pair: &[u32]| pair[0].checked_add(1) == Some(pair[1]);
    numbers.is_some_and(|numbers| numbers.len() >= 3 && numbers.windows(2).all(follow))
}

/// Whether the cells of the first line are different texts that are in no other line of the same
/// column.
fn is_distinct(first: &[Vec<u8>], below: &[&[Vec<u8>]]) -> bool {
    first.iter().enumerate().all(|(column, cell)| {
        kind(cell) == Kind::Text
            && !first[..column].contains(cell)
            && !below.iter().any(|row| row.get(column) == Some(cell))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (&'static str, bool) {
        let cells = |line: &str| line.split(',').map(|cell| cell.as_bytes().to_vec()).collect();
        let lines: Vec<Vec<Vec<u8>>> = text.split(' ').map(cells).collect();
        let below: Vec<&[Vec<u8>]> = lines[1..].iter().map(|line| &line[..]).collect();
        let found = find(&lines[0], &below, None, |_| false).unwrap();
        let kind = match found.first {
            First::Row => "row",
            First::Names(_) => "names",
            First::Counts { .. } => "counts",
        };
        (kind, found.remark.is_none())
    }

    #[test]
    fn lines_decide_or_a_remark_says_what_was_assumed() {
        for (text, kind, certain) in [
            // Numbers above numbers, whatever is beside them.
            ("Private,23,x,0 State,40,?,1 Private,31,y,0", "row", true),
            ("Private,23,x,0 State,40,?,1", "row", true),
            ("1,2,0 3,4,1", "row", true),
            ("2024-01-01,a 2024-01-02,b", "row", true),
            // Texts above numbers, dates or numbers with gaps.
            ("a,b,y 1,2,0", "names", true),
            ("x,y ,b 0.5,a", "names", true),
            ("day,y 2024-01-01,a", "names", true),
            ("id,age,sick a1,23,no a2,?,yes", "names", true),
            // Both, or neither.
            ("a,2,c 1,2,0", "names", false),
            ("0,1,2,3,y 5.1,3.5,1.4,0.2,0", "names", false),
            ("0,1,2,3 5.1,3.5,1.4,0", "row", false),
            ("1,x,3,0 2,5,4,1 3,6,5,0", "row", false),
            ("Private,unknown,0 State,40,1", "row", false),
            ("colour,shape red,round blue,square red,square", "names", false),
            ("red,round red,square blue,round", "row", false),
            ("x,NA y,b", "row", false),
            // Names that come again.
            ("a,b,y 1,2,0 a,b,y 3,4,1", "names", true),
            ("a,b,y 1,2,0 y,a,b 4,3,1", "names", true),
            ("colour,shape red,round colour,shape blue,square", "names", false),
            ("red,round red,square red,round", "row", false),
            ("1,2,0 1,2,0", "row", true),
            ("a,b a,b", "row", false),
            // scikit-learn's, as that of its iris.csv and breast_cancer.csv.
            ("2,4,setosa,versicolor,virginica 5.1,3.5,1.4,0.2,0 4.9,3,1.4,0.2,1", "counts", true),
            ("2,2,malignant,benign 1,2,0 3,4,1", "counts", true),
        ] {
            assert_eq!(found(text), (kind, certain), "{text}");
        }
    }

    #[test]
    fn names_that_come_again_are_found() {
        let names = |line: &str| -> Vec<String> { line.split(',').map(String::from).collect() };
        let check = |first: &str, line: &str| {
            let cells: Vec<&[u8]> = line.split(',').map(str::as_bytes).collect();
            let found = Names::new(&names(first)).check(7, |column| cells[column]);
            found.map_err(|error| error.to_string())
        };
        for (first, line, problem) in [
            ("age,sex,y", "age,sex,y", "line 7: the names of the columns come again, as in"),
            ("age,sex,y", " Age ,SEX,y", "come again, as in files that were joined"),
            ("age,sex,y", "\u{FEFF}age,sex,y", "come again, as in"),
            ("age,sex,y", "\u{FEFF}\"age\",sex,y", "come again, as in"),
            (",0,sex", ",0,sex", "come again, as in"),
            ("age,sex,y", "sex,age,y", "come again in another order"),
            ("age,sex,y", "age,sex,label", "2 of 3 cells are the names of their columns"),
        ] {
            let found = check(first, line).unwrap_err();
            assert!(found.contains(problem), "{first} {line}: {found}");
        }
        for (first, line) in
            [("age,sex,y", "1,sex,y"), ("age,sex,y", "age,f,1"), ("0,1,2", "0,1,3"), ("a,b", "c,b")]
        {
            assert_eq!(check(first, line), Ok(Again::Nothing), "{first} {line}");
        }
        assert_eq!(check("0,1,2", "0,1,2"), Ok(Again::Numbers));
    }

    #[test]
    fn a_line_of_units_is_found() {
        let is_found = |text: &str| {
            let cells = |line: &str| line.split(',').map(|cell| cell.as_bytes().to_vec()).collect();
            let lines: Vec<Vec<Vec<u8>>> = text.split(' ').map(cells).collect();
            has_units(&lines.iter().map(|line| &line[..]).collect::<Vec<_>>())
        };
        assert!(is_found("years,kg/m2,,- 50,20.5,f,1 60,31,m,0"));
        assert!(is_found("years,kg,text 50,20.5,f 60,,m"));
        for text in [
            "50,20.5,f 60,31,m 61,30,m",
            "unknown,20.5,f 60,31,m 61,30,m",
            "unknown,f 60,m 61,m",
            "red,round,f blue,square,m red,oval,m",
            "years,kg 50,20",
            "NA,? 50,20 51,30",
        ] {
            assert!(!is_found(text), "{text}");
        }
    }

    #[test]
    fn the_user_and_known_names_decide_first() {
        let (first, row) = (vec![b"1".to_vec(), b"a".to_vec()], vec![b"2".to_vec(), b"b".to_vec()]);
        let below = [&row[..]];
        let named = |header, known: bool| {
            let found = find(&first, &below, header, |_| known).unwrap();
            assert_eq!(found.remark, None);
            found.first != First::Row
        };
        assert!(named(Some(true), false) && named(None, true) && !named(Some(false), true));
        assert!(find(&first, &[], Some(true), |_| false).is_err());
    }
}
