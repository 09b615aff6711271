//! What is in the columns of a table, in counts, and what a schema leaves to it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{
    DataError,
    dataset::Task,
    excerpt::list,
    load::tables,
    options::Options,
    table::{
        cell::Cell,
        columns,
        date::{Moment, Origin, date},
        meaning::{boolean, foreign, is_missing, plain_text},
        parts::{Copy, Parts},
        rows::{Heading, Rows, TextRows},
        schema::{Column, ColumnKind, Schema},
    },
};
use crate::config::ConfigError;

/// Different texts of a column that are counted.
const MOST_TEXTS: usize = 4096;

/// Rows of which it is known whether they are repeated.
const MOST_ROWS: usize = 10_000_000;

/// What is in a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Survey {
    /// The number of rows that were read.
    pub rows: u64,
    /// Its columns, in the order of the file.
    pub columns: Vec<ColumnSurvey>,
    /// The position of the target column.
    pub target: usize,
    /// Whether the files name their columns.
    pub header: bool,
    /// The names of the classes in the order of their numbers, if the first line has them.
    pub class_names: Option<Vec<String>>,
    /// Whether a draft says what `header` is: the lines alone do not show it.
    pub says_header: bool,
    /// What was assumed or noticed and a user should know.
    pub remarks: Vec<String>,
}

/// What is in one column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ColumnSurvey {
    /// Its name; its position, if the file has no names.
    pub name: String,
    /// Cells without a value: empty ones, and those such as `NA`.
    pub missing: u64,
    /// The number of cells that are numbers.
    pub numbers: u64,
    /// The number of cells that are dates.
    pub dates: u64,
    /// The first date, and the origin that the dates need.
    pub(crate) first_date: Option<(Moment, Origin)>,
    /// Cells that are numbers with a comma before their fraction, or dates as `17.05.2024`.
    pub foreign: u64,
    /// Cells that are words for booleans, such as `yes`, but no numbers.
    pub booleans: u64,
    /// Whether all numbers are whole.
    pub whole: bool,
    /// The least, the mean and the greatest number, if there are numbers.
    pub range: Option<(f64, f64, f64)>,
    /// How often each value occurs, as it is written, but `3.0` as `3`; `None` if there are more
    /// than 4096 different ones.
    pub values: Option<BTreeMap<String, u64>>,
    /// Whether a number is digits of which the first is a needless 0, as in the codes of places.
    pub has_codes: bool,
    /// Whether the numbers count the rows, from 0 or 1, as an index that another program wrote.
    pub is_index: bool,
    /// The type of the column, if it is one that is not read: nothing is then known of its cells.
    pub unread: Option<String>,
}

impl ColumnSurvey {
    fn new(name: String) -> ColumnSurvey {
        ColumnSurvey {
            name,
            missing: 0,
            numbers: 0,
            dates: 0,
            first_date: None,
            foreign: 0,
            booleans: 0,
            whole: true,
            range: None,
            values: Some(BTreeMap::new()),
            has_codes: false,
            is_index: true,
            unread: None,
        }
    }

    fn add(&mut self, row: u64, cell: Cell<'_>) {
        if is_missing(cell) {
            self.missing += 1;
            self.is_index = false;
            return;
        }
        let number = match cell {
            Cell::Bool(_) => None,
            cell => cell.number().filter(|value| value.is_finite()),
        };
        if let Some(value) = number {
            self.numbers += 1;
            self.whole &= value.fract() == 0.0;
            self.has_codes |= matches!(cell, Cell::Text(text) if is_code(text));
            let (least, sum, most) = self.range.unwrap_or((value, 0.0, value));
            self.range = Some((least.min(value), sum + value, most.max(value)));
            let from = least.min(value);
            self.is_index &= value == row as f64 + from && (from == 0.0 || from == 1.0);
        } else {
            self.is_index = false;
            self.booleans += u64::from(boolean(cell).is_some());
            self.foreign += u64::from(foreign(cell).is_some());
            if let Some(moment) = date(cell) {
                self.dates += 1;
                let (first, origin) = self.first_date.unwrap_or((moment, Origin::Usual));
                self.first_date = Some((first.min(moment), origin.max(moment.origin())));
            }
        }
        let Some(values) = &mut self.values else { return };
        let Some(text) = plain_text(cell) else { return };
        if let Some(count) = values.get_mut(&text) {
            *count += 1;
        } else if values.len() < MOST_TEXTS {
            values.insert(text, 1);
        } else {
            self.values = None;
        }
    }

    fn finish(&mut self) {
        if let Some((_, sum, _)) = &mut self.range {
            *sum /= self.numbers as f64;
        }
        self.is_index &= self.numbers > 1;
    }

    /// The origin that its times need, if they are dates.
    pub fn origin(&self) -> Option<String> {
        origin_of(self.first_date.into_iter())
    }
}

/// What cells have in common that mean the same: a number, or a text.
fn same_cells(cell: Cell<'_>) -> (Option<u64>, Option<Vec<u8>>) {
    match (cell.number(), cell) {
        (Some(number), _) => (Some((number + 0.0).to_bits()), None),
        (None, Cell::Text(text)) => (None, Some(text.to_vec())),
        (None, _) => (None, None),
    }
}

/// The origin that dates need, near the first one, if they need one.
fn origin_of(dates: impl Iterator<Item = (Moment, Origin)>) -> Option<String> {
    let earlier =
        |one: (Moment, Origin), other: (Moment, Origin)| (one.0.min(other.0), one.1.max(other.1));
    let (first, origin) = dates.reduce(earlier)?;
    (origin > Origin::Usual).then(|| first.text(origin))?
}

/// Whether text is digits of which the first is a needless 0.
fn is_code(text: &[u8]) -> bool {
    text.len() > 1 && text[0] == b'0' && text.iter().all(u8::is_ascii_digit)
}

/// Counts what is in columns.
#[derive(Default)]
struct Surveyor {
    rows: u64,
    names: Option<Vec<String>>,
    /// The names that a first line of names has, if they are known.
    known: Option<Vec<String>>,
    columns: Vec<ColumnSurvey>,
    header: bool,
    class_names: Option<Vec<String>>,
    remarks: Vec<String>,
    parts: Parts,
    /// The rows, and how many of them were there before.
    seen: HashSet<u64>,
    again: u64,
}

impl Rows for Surveyor {
    fn are_names(&self, first: &[String]) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.iter().all(|name| first.contains(name)))
    }

    fn note(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn begin(&mut self, heading: Heading) -> Result<(), DataError> {
        self.parts.begin();
        let header = heading.names.is_some();
        let names = heading.names.unwrap_or_else(|| columns::positions(heading.columns));
        columns::check_unique(&names, |_| true)?;
        if self.names.is_none() {
            (self.header, self.class_names) = (header, heading.classes);
            self.columns = names.iter().cloned().map(ColumnSurvey::new).collect();
            self.names = Some(names);
            return Ok(());
        }
        if self.names.as_ref() == Some(&names) {
            return Ok(());
        }
        let problem = "are others than in the first file, or in another order: describe the files \
                       one by one";
        Err(DataError::structure("columns", problem))
    }

    fn uses(&self, _: usize) -> bool {
        true
    }

    fn skip(&mut self, column: usize, words: &str) -> bool {
        self.columns[column].unread = Some(words.to_string());
        true
    }

    fn rows(&self) -> usize {
        self.rows as usize
    }

    fn check_memory(&self, _: f64) -> Result<(), DataError> {
        Ok(())
    }

    fn add<'c>(&mut self, number: u64, cell: &dyn Fn(usize) -> Cell<'c>) -> Result<(), DataError> {
        self.add_text(number, cell)
    }
}

impl TextRows for Surveyor {
    fn add_text<'c>(&mut self, _: u64, cell: impl Fn(usize) -> Cell<'c>) -> Result<(), DataError> {
        for (at, column) in self.columns.iter_mut().enumerate() {
            if column.unread.is_none() {
                column.add(self.rows, cell(at));
            }
        }
        let read = |at: &usize| self.columns[*at].unread.is_none();
        let cells = (0..self.columns.len()).filter(read).map(|at| same_cells(cell(at)));
        let row = self.parts.add(cells.collect::<Vec<_>>());
        if self.seen.len() < MOST_ROWS {
            self.again += u64::from(!self.seen.insert(row));
        }
        self.rows += 1;
        Ok(())
    }

    fn copy(&self) -> Option<Copy> {
        self.parts.copy()
    }
}

/// Reads a CSV, Parquet or Arrow file, or those of a folder, and counts what is in each column. Of
/// the options `header`, `target` and the names of `schema` count.
///
/// # Errors
/// If the file cannot be read, is no table, or has no such target.
pub fn survey(source: &str, options: &Options) -> Result<Survey, DataError> {
    // A position is no name.
    let target = options.target.iter().filter(|target| target.parse::<i64>().is_err());
    let schema = options.schema.as_ref().map(Schema::names);
    let known: Vec<String> = match schema.filter(|names| !columns::are_positions(names)) {
        Some(names) => names,
        None => target.cloned().collect(),
    };
    let known = (!known.is_empty()).then_some(known);
    let mut surveyor = Surveyor { known, ..Surveyor::default() };
    tables(source, options, &mut surveyor)?;
    let Surveyor { rows, names, mut columns, header, class_names, mut remarks, again, .. } =
        surveyor;
    if rows == 0 {
        return Err(DataError::no_row("line 2").within(source));
    }
    columns.iter_mut().for_each(ColumnSurvey::finish);
    let target = options.target.as_deref();
    let task = Task::Classification;
    let target = columns::targets(target, names.as_deref(), columns.len(), task)?[0];
    if let Some(words) = &columns[target].unread {
        let problem = format!("the target is not read: {words}; name another one");
        let error = ConfigError::new("data.target", &columns[target].name, problem);
        return Err(error.within(source).into());
    }
    // A first line that counts rows and names classes is recognised; it is neither.
    let is_assumed = !remarks.is_empty();
    if again > 0 {
        remarks.push(format!(
            "{again} of {rows} rows are the same as an earlier one: where rows are held out for a \
             test, some of them are trained on, too"
        ));
    }
    let says_header = class_names.is_none() && (options.header.is_some() || !header || is_assumed);
    Ok(Survey { rows, columns, target, header, class_names, says_header, remarks })
}

/// Completes a schema by what is in these files: the categories that list no values by those of all
/// files, sorted; and the origin of dates with times, if it is not stated, by the first date.
///
/// # Errors
/// As [`survey`]; if a file lacks a column, or a category has too many values.
pub(crate) fn complete(
    schema: &mut Schema,
    sources: &[String],
    options: &Options,
) -> Result<(), DataError> {
    let open =
        |column: &&mut Column| column.kind == ColumnKind::Category && column.values.is_none();
    let dates = |column: &&mut Column| column.kind == ColumnKind::Date && column.origin.is_none();
    if !schema.columns.iter_mut().any(|column| open(&column) || dates(&column)) {
        return Ok(());
    }
    let surveyed: Vec<Survey> =
        sources.iter().map(|source| survey(source, options)).collect::<Result<_, _>>()?;
    for column in schema.columns.iter_mut().filter(dates) {
        let of = |surveyed: &Survey| {
            let found = surveyed.columns.iter().find(|found| found.name == column.name);
            found?.first_date
        };
        column.origin = origin_of(surveyed.iter().filter_map(of));
    }
    for column in schema.columns.iter_mut().filter(open) {
        let mut all = BTreeSet::new();
        for (source, survey) in sources.iter().zip(&surveyed) {
            let refuse = |problem: String| {
                Err(ConfigError::at(column.place(), problem).within(source).into())
            };
            let found = survey.columns.iter().find(|found| found.name == column.name);
            let Some(found) = found else {
                let names: Vec<String> =
                    survey.columns.iter().map(|column| column.name.clone()).collect();
                return refuse(format!("no such column: the file has {}", list(&names)));
            };
            if let Some(words) = &found.unread {
                return refuse(format!("is not read: {words}"));
            }
            let Some(values) = &found.values else {
                return refuse(format!("more than {MOST_TEXTS} different values: no category"));
            };
            all.extend(values.keys().cloned());
        }
        if all.is_empty() {
            let problem = "no cell has a value: leave the column out";
            return Err(ConfigError::at(column.place(), problem).into());
        }
        column.values = Some(all.into_iter().collect());
    }
    schema.check()
}
