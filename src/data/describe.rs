//! What is in the columns of a table, and a schema drafted from it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    DataError,
    dataset::Task,
    excerpt::{excerpt, list},
    load::tables,
    options::Options,
    table::{
        cell::Cell,
        columns,
        date::{date, day_of, is_held},
        meaning::{boolean, foreign, is_missing, plain_text},
        rows::{Heading, Rows, TextRows},
        schema::{Column, ColumnKind, Missing, Schema},
        spelling::{shown, similar, similar_classes},
    },
};
use crate::config::ConfigError;

/// Different texts of a column that are counted.
const MOST_TEXTS: usize = 4096;

/// A text column with more different values than these is no category in a draft.
const MOST_VALUES: usize = 50;

/// What is in a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// The number of rows.
    pub rows: u64,
    /// Its columns, in the order of the file.
    pub columns: Vec<ColumnDescription>,
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
pub struct ColumnDescription {
    /// Its name; its position, if the file has no names.
    pub name: String,
    /// Cells without a value: empty ones, and those such as `NA`.
    pub missing: u64,
    /// Cells that are numbers.
    pub numbers: u64,
    /// Cells that are dates.
    pub dates: u64,
    /// The first date, in days since 1970-01-01, and whether the time of a cell needs an origin
    /// near it.
    pub first_date: Option<(f64, bool)>,
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
    /// Whether the numbers count the rows, from 0 or 1, as an index that another program wrote.
    pub is_index: bool,
    /// The type of the column, if it is one that is not read: nothing is then known of its cells.
    pub unread: Option<String>,
}

impl ColumnDescription {
    fn new(name: String) -> ColumnDescription {
        ColumnDescription {
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
            let (least, sum, most) = self.range.unwrap_or((value, 0.0, value));
            self.range = Some((least.min(value), sum + value, most.max(value)));
            let from = least.min(value);
            self.is_index &= value == row as f64 + from && (from == 0.0 || from == 1.0);
        } else {
            self.is_index = false;
            self.booleans += u64::from(boolean(cell).is_some());
            self.foreign += u64::from(foreign(cell).is_some());
            if let Some(days) = date(cell) {
                self.dates += 1;
                let (first, lost) = self.first_date.unwrap_or((days, false));
                self.first_date = Some((first.min(days), lost || !is_held(days)));
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

    /// Ends the sums.
    fn finish(&mut self) {
        if let Some((_, sum, _)) = &mut self.range {
            *sum /= self.numbers as f64;
        }
        self.is_index &= self.numbers > 1;
    }

    /// The origin that its times need, if they are dates.
    fn origin(&self) -> Option<String> {
        let (first, lost) = self.first_date?;
        lost.then(|| day_of(first))?
    }

    fn present(&self, rows: u64) -> u64 {
        rows - self.missing
    }

    /// What its cells seem to hold, and a remark on what is suspicious about it.
    pub fn guess(&self, rows: u64) -> (ColumnKind, Option<String>) {
        let ignored = |remark: &str| (ColumnKind::Ignore, Some(remark.to_string()));
        if let Some(words) = &self.unread {
            return ignored(&format!("is not read: {words}"));
        }
        let present = self.present(rows);
        let different = self.values.as_ref().map(BTreeMap::len);
        if present == 0 {
            return ignored("no cell has a value");
        }
        if different == Some(1) && rows > 1 && self.missing == 0 {
            return ignored("all cells have the same value");
        }
        if self.numbers == present {
            if self.is_index {
                return ignored("it counts the rows: an index that another program has written?");
            }
            let unnamed = self.name.is_empty() || self.name.starts_with("Unnamed:");
            let is_identifier = |count| count as u64 == rows && rows > 20;
            let remark = if unnamed {
                Some("it has no name")
            } else if self.whole && different.is_none_or(is_identifier) {
                Some("each row has another whole number: an identifier?")
            } else {
                None
            };
            return (ColumnKind::Number, remark.map(String::from));
        }
        if self.dates == present {
            return (ColumnKind::Date, None);
        }
        if self.booleans == present && different.is_some_and(|count| count <= 2) {
            return (ColumnKind::Boolean, None);
        }
        if self.foreign > 0 && self.foreign + self.numbers == present {
            return ignored(
                "numbers with a comma before their fraction, or dates such as 17.05.2024: write \
                 them as 1234.5 and 2024-05-17",
            );
        }
        self.guess_text(present)
    }

    /// The same of cells of which some are neither numbers nor dates nor booleans.
    fn guess_text(&self, present: u64) -> (ColumnKind, Option<String>) {
        let ignored = |remark: &str| (ColumnKind::Ignore, Some(remark.to_string()));
        match self.values.as_ref().map(BTreeMap::len) {
            Some(count) if count <= MOST_VALUES && (count as u64) < present => {
                let numbers = self.numbers;
                let values: Vec<String> =
                    self.values.iter().flatten().map(|(value, _)| value.clone()).collect();
                let remark = match similar(&values) {
                    Some((value, other)) => Some(format!(
                        "two spellings of one value? \"{}\" and \"{}\"",
                        shown(value),
                        shown(other)
                    )),
                    None => (numbers > 0).then(|| format!("{numbers} cells are numbers")),
                };
                (ColumnKind::Category, remark)
            }
            _ => {
                let text = present - self.numbers;
                if text >= self.numbers {
                    return ignored("text with many different values");
                }
                let mut values = self.values.iter().flat_map(BTreeMap::keys);
                let example = values
                    .find(|value| value.parse::<f64>().is_err())
                    .map(|value| format!(", such as \"{}\"", excerpt(value)));
                ignored(&format!("{text} cells are no numbers{}", example.unwrap_or_default()))
            }
        }
    }
}

impl Description {
    /// Whether the target seems to be a class, with the names of the classes; `None` if it is a
    /// number.
    pub fn classes(&self) -> Option<Vec<String>> {
        if self.class_names.is_some() {
            return self.class_names.clone();
        }
        let target = &self.columns[self.target];
        let values = target.values.as_ref().filter(|values| values.len() <= MOST_VALUES)?;
        let all_numbers = target.numbers == target.present(self.rows);
        let few = (values.len() as u64) * 5 <= target.present(self.rows);
        if all_numbers && !(target.whole && few) {
            return None;
        }
        let mut names: Vec<String> = values.keys().cloned().collect();
        if all_numbers {
            let number = |name: &String| name.parse::<f64>().unwrap_or(f64::NAN);
            names.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        Some(names)
    }

    /// Adds what the numbers of other columns may mean beside decimal commas.
    fn remark_foreign(&mut self, source: &str) {
        let foreign = self.columns.iter().find(|column| column.foreign > 0);
        let Some(column) = foreign else { return };
        self.remarks.push(format!(
            "{source}: column {}: numbers as 1.234,5 or dates as 17.05.2024 are not read: write \
             the file with decimal points and dates as 2024-05-17; a point in another column may \
             separate thousands",
            excerpt(&column.name)
        ));
    }

    /// A schema of all columns but the target.
    pub fn schema(&self) -> Schema {
        let draft = |column: &ColumnDescription| {
            let (kind, _) = column.guess(self.rows);
            let category = kind == ColumnKind::Category;
            let values = column.values.iter().flatten().map(|(value, _)| value.clone());
            Column {
                name: column.name.clone(),
                kind,
                values: category.then(|| values.collect()),
                other: category,
                missing: match kind {
                    ColumnKind::Ignore => Missing::Refuse,
                    _ if column.missing == 0 => Missing::Refuse,
                    ColumnKind::Category => Missing::Category,
                    _ => Missing::Mean,
                },
                origin: column.origin().filter(|_| kind == ColumnKind::Date),
            }
        };
        let features = self.columns.iter().enumerate().filter(|(at, _)| *at != self.target);
        Schema { columns: features.map(|(_, column)| draft(column)).collect() }
    }
}

/// Counts what is in columns.
#[derive(Default)]
struct Describer {
    rows: u64,
    names: Option<Vec<String>>,
    /// The names that a first line of names has, if they are known.
    known: Option<Vec<String>>,
    columns: Vec<ColumnDescription>,
    header: bool,
    class_names: Option<Vec<String>>,
    remarks: Vec<String>,
}

impl Rows for Describer {
    fn are_names(&self, first: &[String]) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.iter().all(|name| first.contains(name)))
    }

    fn note(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn begin(&mut self, heading: Heading) -> Result<(), DataError> {
        let header = heading.names.is_some();
        let names = heading.names.unwrap_or_else(|| columns::positions(heading.columns));
        columns::check_unique(&names, |_| true)?;
        if self.names.is_none() {
            (self.header, self.class_names) = (header, heading.classes);
            self.columns = names.iter().cloned().map(ColumnDescription::new).collect();
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

impl TextRows for Describer {
    fn add_text<'c>(&mut self, _: u64, cell: impl Fn(usize) -> Cell<'c>) -> Result<(), DataError> {
        for (at, column) in self.columns.iter_mut().enumerate() {
            if column.unread.is_none() {
                column.add(self.rows, cell(at));
            }
        }
        self.rows += 1;
        Ok(())
    }
}

/// Reads a CSV, Parquet or Arrow file, or those of a folder, and counts what is in each column. Of
/// the options `header`, `target` and the names of `schema` count.
///
/// # Errors
/// If the file cannot be read, is no table, or has no such target.
pub fn describe(source: &str, options: &Options) -> Result<Description, DataError> {
    // A position is no name.
    let target = options.target.iter().filter(|target| target.parse::<i64>().is_err());
    let schema = options.schema.as_ref().map(Schema::names);
    let known: Vec<String> = match schema.filter(|names| !columns::are_positions(names)) {
        Some(names) => names,
        None => target.cloned().collect(),
    };
    let known = (!known.is_empty()).then_some(known);
    let mut describer = Describer { known, ..Describer::default() };
    tables(source, options.header, &mut describer)?;
    let Describer { rows, names, mut columns, header, class_names, remarks, .. } = describer;
    if rows == 0 {
        return Err(DataError::no_row("line 2").within(source));
    }
    columns.iter_mut().for_each(ColumnDescription::finish);
    let target = options.target.as_deref();
    let task = Task::Classification;
    let target = columns::targets(target, names.as_deref(), columns.len(), task)?[0];
    if let Some(words) = &columns[target].unread {
        let problem = format!("the target is not read: {words}; name another one");
        let error = ConfigError::new("data.target", &columns[target].name, problem);
        return Err(error.within(source).into());
    }
    // A first line that counts rows and names classes is recognised; it is neither.
    let says_header =
        class_names.is_none() && (options.header.is_some() || !header || !remarks.is_empty());
    let mut described =
        Description { rows, columns, target, header, class_names, says_header, remarks };
    described.remark_foreign(source);
    let spellings = described.classes().and_then(|classes| similar_classes(&classes));
    described.remarks.extend(spellings);
    Ok(described)
}

/// Completes a schema by what is in these files: the categories that list no values by those of all
/// files, sorted; and the origin of dates with times, if it is not stated, by the first date.
///
/// # Errors
/// As [`describe`]; if a file lacks a column, or a category has too many values.
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
    let described: Vec<Description> =
        sources.iter().map(|source| describe(source, options)).collect::<Result<_, _>>()?;
    for column in schema.columns.iter_mut().filter(dates) {
        let of = |described: &Description| {
            let found = described.columns.iter().find(|found| found.name == column.name);
            found?.first_date
        };
        let all: Vec<(f64, bool)> = described.iter().filter_map(of).collect();
        let first = all.iter().map(|(first, _)| *first).min_by(f64::total_cmp);
        let lost = all.iter().any(|(_, lost)| *lost);
        column.origin = first.filter(|_| lost).and_then(day_of);
    }
    for column in schema.columns.iter_mut().filter(open) {
        let mut all = BTreeSet::new();
        for (source, description) in sources.iter().zip(&described) {
            let refuse = |problem: String| {
                Err(ConfigError::at(column.place(), problem).within(source).into())
            };
            let found = description.columns.iter().find(|found| found.name == column.name);
            let Some(found) = found else {
                let names: Vec<String> =
                    description.columns.iter().map(|column| column.name.clone()).collect();
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
