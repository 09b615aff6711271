//! Makes a dataset from the cells of a table, row by row: the same rules for every format whose
//! columns have names or cells of several kinds.

use ndarray::Array2;

use super::{
    cell::Cell,
    choice::{Chosen, FirstFile, choose, identifier, same_columns, wanted},
    classes::{self, Classes, Found, MAX_CLASSES},
    codes::{Code, Encoded},
    columns,
    kept::{self, Kept},
    labels::{check_count, label, name_classes},
    meaning::is_missing,
    others::{Others, similar_remark},
    parts::{Copy, Parts},
    rows::{Heading, Rows, TextRows},
    schema::Schema,
};
use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::{Columns, Dataset, Gaps, Identifiers, Target, Task},
        excerpt::{excerpt, list},
        options::Options,
    },
    memory,
};

/// The rows of one or several files that are already encoded.
pub(crate) struct Encoder<'a> {
    options: &'a Options,
    /// Of the file that is read, as all that follows it here.
    heading: Heading,
    /// The positions of the columns to read.
    chosen: Chosen,
    /// Of the first file.
    first: Option<FirstFile>,
    labels: Labels,
    /// How the chosen columns become features; `None` if each is a number.
    codes: Option<Vec<Code>>,
    /// Of each code: the values that a category does not list.
    others: Vec<Others>,
    /// Of each chosen column, the features first: what is lost of its numbers.
    kept: Vec<Kept>,
    /// The features whose missing values are filled later.
    gaps: Vec<Gaps>,
    rows: usize,
    /// The first row of each file.
    parts: Vec<usize>,
    features: Vec<f32>,
    /// The classes or the numbers to predict.
    targets: Vec<f64>,
    identifiers: Vec<String>,
    /// What the user should know.
    remarks: Vec<String>,
}

/// Numbers for which there is at least room.
const ROOM: usize = 1 << 14;
const MOST_REMARKS: usize = 20;
/// More bytes than these are compared with the available memory before they are allocated.
const LARGE: usize = 64 << 20;

enum Labels {
    Numbers,
    /// By the names of the classes.
    Named(Classes),
    /// As the first label is: a number or a name.
    Unknown,
    /// By the names that are found.
    Found(Found),
}

impl<'a> Encoder<'a> {
    /// An encoder without rows.
    ///
    /// # Errors
    /// If the names of the classes are wrong, or the schema lacks values of a category.
    pub(crate) fn new(options: &'a Options) -> Result<Encoder<'a>, DataError> {
        classes::check(options)?;
        let labels = match &options.class_names {
            Some(names) => Labels::Named(Classes::new(names)),
            None if options.number_classes => Labels::Unknown,
            None => Labels::Numbers,
        };
        let codes = options.schema.as_ref().map(Code::of).transpose()?;
        let mut gaps = Vec::new();
        let mut feature = 0;
        for code in codes.iter().flatten() {
            if code.is_agreed() {
                gaps.push(Gaps { feature, rows: Vec::new() });
            }
            feature += code.width();
        }
        Ok(Encoder {
            options,
            heading: Heading::default(),
            chosen: Chosen::default(),
            first: None,
            labels,
            others: vec![Others::default(); codes.as_ref().map_or(0, Vec::len)],
            codes,
            kept: Vec::new(),
            gaps,
            rows: 0,
            parts: Vec::new(),
            features: Vec::new(),
            targets: Vec::new(),
            identifiers: Vec::new(),
            remarks: Vec::new(),
        })
    }

    fn inputs(&self) -> usize {
        match &self.codes {
            Some(codes) => codes.iter().map(Code::width).sum(),
            None => self.chosen.features.len(),
        }
    }

    fn check_heading(&self, heading: &Heading) -> Result<(), DataError> {
        let (options, found) = (self.options, self.inputs());
        if let Some(needed) = options.inputs.filter(|&needed| needed != found) {
            let beside = match self.chosen.targets.len() {
                0 => ", the target left out".into(),
                targets => format!(" beside {targets} target"),
            };
            let problem = format!("{found} features{beside}: {needed} are expected (model.inputs)");
            return Err(DataError::Count { place: "columns".into(), found, needed, problem });
        }
        if let (Some(wanted), Some(classes)) = (&options.class_names, &heading.classes)
            && wanted != classes
        {
            let problem = format!("the first line names the classes {}", list(classes));
            return Err(ConfigError::new("data.classes", list(wanted), problem).into());
        }
        if options.task == Task::Classification {
            check_count(options.classes)?;
        }
        Ok(())
    }

    /// Makes room for one row more.
    fn make_room(&mut self) -> Result<(), DataError> {
        let inputs = self.inputs();
        let place = || format!("{} rows of {} columns", self.rows, self.heading.columns);
        room(&mut self.features, inputs, &place)?;
        room(&mut self.targets, self.chosen.targets.len(), &place)
    }

    /// Adds the features of a row by the schema.
    fn encode<'c>(
        &mut self,
        number: u64,
        cell: &impl Fn(usize) -> Cell<'c>,
    ) -> Result<(), DataError> {
        let row = u32::try_from(self.rows).map_err(|_| DataError::Limit {
            place: "the table".into(),
            found: Some(self.rows as u64),
            most: 1 << 32,
            problem: "at most 2^32 rows are accepted".into(),
        })?;
        let mut gaps = self.gaps.iter_mut();
        let codes = self.codes.iter().flatten().zip(&self.chosen.features);
        for (((code, &column), others), kept) in codes.zip(&mut self.others).zip(&mut self.kept) {
            let gaps = code.is_agreed().then(|| gaps.next()).flatten();
            match code.encode(cell(column), &mut self.features) {
                Ok(Encoded::Number(exact)) if kept::is_looked_at(self.rows) => {
                    kept.add(self.features.last().copied().unwrap_or_default(), exact);
                }
                Ok(Encoded::Value | Encoded::Number(_)) => (),
                Ok(Encoded::Other) => others.add(cell(column)),
                Ok(Encoded::Gap) => gaps.into_iter().for_each(|gaps| gaps.rows.push(row)),
                Err(problem) => {
                    return Err(self.refuse(number, column, cell(column), &problem));
                }
            }
        }
        Ok(())
    }

    /// The rows as a dataset.
    ///
    /// # Errors
    /// If there is no row, or too many classes.
    pub(crate) fn finish(mut self, name: &str) -> Result<Dataset, DataError> {
        if self.rows == 0 {
            return Err(DataError::no_row(format!("{} 1", self.heading.unit)));
        }
        let mut columns = self.first.as_mut().and_then(|first| first.names.take());
        if let (Some(columns), Some(schema)) = (&mut columns, &self.options.schema) {
            columns.features = schema.features();
        }
        let name_of = |column: usize| self.heading.names.as_ref()?.get(column).cloned();
        let identifiers = self.chosen.identifier.map(|column| Identifiers {
            name: name_of(column),
            texts: std::mem::take(&mut self.identifiers),
        });
        let (inputs, outputs) = (self.inputs(), self.chosen.targets.len());
        let schema_remarks = self.schema_remarks(name);
        let coarse = self.coarse_remark().map(|remark| format!("{name}: {remark}"));
        let (gaps, remarks) = (std::mem::take(&mut self.gaps), std::mem::take(&mut self.remarks));
        let (rows, mut features) = (self.rows, std::mem::take(&mut self.features));
        features.shrink_to_fit();
        let target = self.finish_targets(outputs)?;
        let features = Array2::from_shape_vec((rows, inputs), features)
            .expect("every row has as many features");
        let mut data = Dataset::new(name, features, target)?;
        (data.columns, data.gaps, data.identifiers) = (columns, gaps, identifiers);
        data.remarks = remarks;
        data.remarks.extend(schema_remarks);
        data.remarks.extend(coarse);
        Ok(data)
    }

    /// What a user should know about the categories of the schema.
    fn schema_remarks(&self, name: &str) -> Vec<String> {
        let columns = || self.options.schema.iter().flat_map(Schema::used);
        let spellings = columns().filter_map(similar_remark);
        let others = columns().zip(&self.others);
        let others = others.filter_map(|(column, others)| others.remark(column));
        spellings.chain(others.map(|remark| format!("{name}: {remark}"))).collect()
    }

    /// What a user should know about the numbers that `f32` does not hold.
    fn coarse_remark(&self) -> Option<String> {
        let name_of = |column: usize| {
            let names = self.heading.names.as_ref();
            names.and_then(|names| names.get(column)).cloned().unwrap_or(column.to_string())
        };
        let dates = self.codes.iter().flatten().map(Code::is_date).chain(std::iter::repeat(false));
        let columns = self.chosen.features.iter().chain(&self.chosen.targets);
        let all = columns.zip(dates).zip(&self.kept);
        kept::remark(all.map(|((&column, is_date), kept)| (name_of(column), is_date, kept)))
    }

    fn finish_targets(mut self, width: usize) -> Result<Target, DataError> {
        if width == 0 {
            self.targets = vec![0.0; self.rows];
        }
        if self.options.task == Task::Regression {
            let numbers = self.targets.iter().map(|&value| value as f32).collect();
            return Ok(Target::Values(
                Array2::from_shape_vec((self.rows, width.max(1)), numbers)
                    .expect("every row has as many targets"),
            ));
        }
        let mut labels: Vec<u32> = self.targets.iter().map(|&label| label as u32).collect();
        let names = match self.labels {
            Labels::Found(found) => {
                let (names, positions) = found.sorted();
                if names.len() > MAX_CLASSES {
                    let problem = format!(
                        "{} names of classes: up to {MAX_CLASSES} are accepted",
                        names.len()
                    );
                    return Err(DataError::structure("labels", problem));
                }
                for label in &mut labels {
                    *label = positions[*label as usize];
                }
                Some(names)
            }
            Labels::Named(_) => self.options.class_names.clone(),
            Labels::Unknown | Labels::Numbers => self.first.and_then(|first| first.classes),
        };
        Ok(name_classes(labels, names, self.options.classes)?)
    }

    /// A number, which is the chosen column `at`.
    fn number(
        &mut self,
        number: u64,
        (at, column): (usize, usize),
        cell: Cell<'_>,
    ) -> Result<f32, DataError> {
        let problem = match cell.rounded() {
            Some((value, exact)) if value.is_finite() => {
                if kept::is_looked_at(self.rows) {
                    self.kept[at].add(value, exact);
                }
                return Ok(value);
            }
            Some(_) => "a finite number within f32 is needed: up to about 3.4e38",
            None => match cell {
                Cell::Empty => "an empty cell, but a number is needed",
                Cell::Text(text) if text.contains(&b',') => {
                    "text, but a number is needed, with a point before its fraction"
                }
                _ => "text, but a number is needed",
            },
        };
        Err(self.refuse(number, column, cell, problem))
    }

    /// Whether rows to predict may have this cell in place of a target: one without a value, or a
    /// word that is the name of no class.
    fn may_stand_for_target(&self, cell: Cell<'_>) -> bool {
        is_missing(cell) || matches!(self.labels, Labels::Named(_)) && cell.number().is_none()
    }

    fn target(
        &mut self,
        number: u64,
        (at, column): (usize, usize),
        cell: Cell<'_>,
    ) -> Result<f64, DataError> {
        if self.options.task == Task::Regression {
            let at = self.chosen.features.len() + at;
            return self.number(number, (at, column), cell).map(f64::from);
        }
        let named =
            if let Labels::Named(classes) = &self.labels { find(classes, cell) } else { None };
        if let Some(class) = named {
            return Ok(f64::from(class));
        }
        if is_missing(cell) {
            return Err(self.refuse(number, column, cell, NO_LABEL));
        }
        if let Labels::Unknown = self.labels {
            self.labels = match cell.number() {
                Some(_) => Labels::Numbers,
                None => Labels::Found(Found::default()),
            };
        }
        let problem = match &mut self.labels {
            Labels::Named(classes) => classes.problem(cell),
            // In another order of the rows the labels would be numbers.
            Labels::Found(_) if cell.number().is_some() => {
                "a number, but the labels before it are text: name the classes in data.classes"
                    .into()
            }
            Labels::Found(found) => match found.number(&text_of(cell)) {
                Some(class) => return Ok(f64::from(class)),
                None => "is not UTF-8".into(),
            },
            Labels::Numbers | Labels::Unknown => match cell.number() {
                Some(value) => {
                    return label(value, self.class_count(), self.options.classes)
                        .map(f64::from)
                        .map_err(|problem| self.wrong(number, column, value.to_string(), problem));
                }
                None => "text, but a label is needed: name the classes in data.classes, or number \
                         them 0, 1, 2, ..., in the same order on every node"
                    .to_string(),
            },
        };
        Err(self.refuse(number, column, cell, &problem))
    }

    /// Names the schema to those who choose what is read from a table whose columns have names.
    fn advise(&self, cell: Cell<'_>, mut error: DataError) -> DataError {
        let has_choice = self.heading.names.is_some() && self.options.columns.is_none();
        if let DataError::Cell { problem, .. } = &mut error
            && has_choice
            && matches!(cell, Cell::Empty | Cell::Text(_))
        {
            *problem += "; for text and missing values list the columns in data.schema (`gradvine \
                         data describe FILE` drafts it)";
        }
        error
    }

    /// The number of classes that the first file names.
    fn class_count(&self) -> Option<usize> {
        self.first.as_ref()?.classes.as_ref().map(Vec::len)
    }

    fn refuse(&self, number: u64, column: usize, cell: Cell<'_>, problem: &str) -> DataError {
        let text = text_of(cell);
        let text = excerpt(&String::from_utf8_lossy(&text));
        let value = match cell {
            Cell::Number(_) | Cell::Bool(_) => text,
            Cell::Empty | Cell::Text(_) => format!("\"{text}\""),
        };
        self.wrong(number, column, value, problem.into())
    }

    fn wrong(&self, number: u64, column: usize, value: String, problem: String) -> DataError {
        let unit = self.heading.unit;
        let name = self.heading.names.as_ref().and_then(|names| names.get(column)).cloned();
        DataError::Cell { unit, row: Some(number), column: Some(column), name, value, problem }
    }
}

impl Rows for Encoder<'_> {
    fn are_names(&self, first: &[String]) -> bool {
        let wanted = wanted(self.options).filter(|wanted| !columns::are_positions(wanted));
        if let Some(wanted) = wanted {
            return wanted.iter().all(|name| first.contains(name));
        }
        // A position is no name.
        let target = self.options.target.as_ref();
        target.is_some_and(|target| target.parse::<i64>().is_err() && first.contains(target))
    }

    fn note(&mut self, remark: String) {
        if self.remarks.len() < MOST_REMARKS {
            self.remarks.push(remark);
        }
    }

    /// It has the columns of the first one, by name in any order if they have names.
    fn begin(&mut self, mut heading: Heading) -> Result<(), DataError> {
        if heading.names.is_none()
            && wanted(self.options).is_some_and(|wanted| columns::are_positions(&wanted))
        {
            heading.names = Some(columns::positions(heading.columns));
        }
        match &self.first {
            Some(first) => {
                let identifier = identifier(self.options, &heading)?;
                let chosen = same_columns(first, &self.chosen, &heading)?;
                self.chosen = Chosen { identifier, ..chosen };
            }
            None => {
                self.chosen = choose(&heading, self.options)?;
                self.chosen.check_names(&heading)?;
                self.check_heading(&heading)?;
                let names = heading.names.as_ref().map(|names| {
                    let of = |positions: &[usize]| {
                        positions.iter().map(|&at| names[at].clone()).collect()
                    };
                    let Chosen { features, targets, .. } = &self.chosen;
                    Columns { features: of(features), targets: of(targets) }
                });
                let used = self.chosen.features.len() + self.chosen.targets.len();
                self.kept = vec![Kept::new(); used];
                let (columns, classes) = (heading.columns, heading.classes.clone());
                self.first = Some(FirstFile { columns, names, classes });
            }
        }
        self.heading = heading;
        self.parts.push(self.rows);
        Ok(())
    }

    fn uses(&self, column: usize) -> bool {
        let Chosen { features, targets, identifier } = &self.chosen;
        features.contains(&column) || targets.contains(&column) || *identifier == Some(column)
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn check_memory(&self, more: f64) -> Result<(), DataError> {
        let need = more * (4 * self.inputs() + 8 * self.chosen.targets.len()) as f64;
        if need < LARGE as f64 {
            return Ok(());
        }
        let value = format!("about {:.0} more rows of {} columns", more, self.heading.columns);
        memory::require((0.8 * need) as u64, "the table", &value, "it", REMEDY)
            .map_err(DataError::Memory)
    }

    fn add<'c>(&mut self, number: u64, cell: &dyn Fn(usize) -> Cell<'c>) -> Result<(), DataError> {
        self.add_text(number, cell)
    }
}

impl TextRows for Encoder<'_> {
    fn add_text<'c>(
        &mut self,
        number: u64,
        cell: impl Fn(usize) -> Cell<'c>,
    ) -> Result<(), DataError> {
        self.make_room()?;
        if self.codes.is_some() {
            self.encode(number, &cell)?;
        } else {
            for at in 0..self.chosen.features.len() {
                let column = self.chosen.features[at];
                let value = self.number(number, (at, column), cell(column));
                self.features.push(value.map_err(|error| self.advise(cell(column), error))?);
            }
        }
        for index in 0..self.chosen.targets.len() {
            let column = self.chosen.targets[index];
            let cell = cell(column);
            let passes = self.options.bare && self.may_stand_for_target(cell);
            let target = if passes { 0.0 } else { self.target(number, (index, column), cell)? };
            self.targets.push(if self.options.bare { 0.0 } else { target });
        }
        if let Some(column) = self.chosen.identifier {
            let text = String::from_utf8(text_of(cell(column)).into_owned())
                .map_err(|_| self.refuse(number, column, cell(column), "is not UTF-8"))?;
            self.identifiers.push(text);
        }
        self.rows += 1;
        Ok(())
    }

    fn copy(&self) -> Option<Copy> {
        // Rows to predict do not count twice.
        if self.parts.len() < 2 || self.options.bare {
            return None;
        }
        let (inputs, outputs) = (self.inputs(), self.chosen.targets.len());
        let (mut parts, mut begins) = (Parts::default(), self.parts.iter().peekable());
        for row in 0..self.rows {
            while begins.next_if(|begins| **begins <= row).is_some() {
                parts.begin();
            }
            let features = &self.features[row * inputs..][..inputs];
            let targets = &self.targets[row * outputs..][..outputs];
            // 0 and -0 are one number.
            let features: Vec<u32> = features.iter().map(|value| (value + 0.0).to_bits()).collect();
            let targets: Vec<u64> = targets.iter().map(|value| (value + 0.0).to_bits()).collect();
            parts.add((features, targets, self.identifiers.get(row)));
        }
        parts.copy()
    }
}

/// A label without a value.
const NO_LABEL: &str = "a value is missing, but a label is needed: leave the row out, or list the \
                        text in data.classes if it is the name of a class";

/// What to do about rows that do not fit.
const REMEDY: &str = "cut the file into shards, or take a machine with more";

/// Makes room for `more` numbers after those in `numbers`.
fn room<T>(numbers: &mut Vec<T>, more: usize, value: &dyn Fn() -> String) -> Result<(), DataError> {
    if numbers.capacity() - numbers.len() >= more {
        return Ok(());
    }
    let more = more.max(numbers.len() / 2).max(ROOM);
    let bytes = more.saturating_mul(size_of::<T>());
    if bytes >= LARGE {
        memory::require(bytes as u64, "the table", &value(), "the next part", REMEDY)
            .map_err(DataError::Memory)?;
    }
    numbers.try_reserve_exact(more).map_err(|_| {
        let problem = format!("does not fit into memory: {REMEDY}");
        DataError::Memory(ConfigError::new("the table", value(), problem))
    })
}

/// The class of a label.
fn find(classes: &Classes, cell: Cell<'_>) -> Option<u32> {
    match cell {
        Cell::Empty => None,
        Cell::Text(text) => classes.find(text),
        Cell::Number(value) => classes.numbered(value),
        // As Python writes it, as others do, and as a number.
        Cell::Bool(value) => {
            let names: [&[u8]; 3] =
                if value { [b"True", b"true", b"1"] } else { [b"False", b"false", b"0"] };
            names.into_iter().find_map(|name| classes.find(name))
        }
    }
}

fn text_of(cell: Cell<'_>) -> std::borrow::Cow<'_, [u8]> {
    match cell {
        Cell::Empty => b"".into(),
        Cell::Text(text) => text.into(),
        Cell::Number(value) => value.to_string().into_bytes().into(),
        Cell::Bool(value) => value.to_string().into_bytes().into(),
    }
}
