//! What is in the columns of a table, and what they seem to hold.

use std::collections::BTreeMap;

use gradvine::data::{
    Column, ColumnKind, ColumnSurvey, DataError, Missing, Options, Schema, Survey, excerpt,
    similar_classes, similar_spellings, survey,
};

/// A text column with more different values than these is no category in a draft.
const MOST_VALUES: usize = 50;

/// Counts what is in each column of a file or a folder, as [`survey`] does, and adds remarks on
/// what a user should mend.
///
/// # Errors
/// As [`survey`].
pub fn describe(source: &str, options: &Options) -> Result<Survey, DataError> {
    crate::register();
    let mut survey = survey(source, options)?;
    let foreign = remark_foreign(&survey, source);
    let spellings = classes(&survey).and_then(|classes| similar_classes(&classes));
    survey.remarks.extend(foreign.into_iter().chain(spellings));
    Ok(survey)
}

/// What the numbers of other columns may mean beside decimal commas.
fn remark_foreign(survey: &Survey, source: &str) -> Option<String> {
    let column = survey.columns.iter().find(|column| column.foreign > 0)?;
    Some(format!(
        "{source}: column {}: numbers as 1.234,5 or dates as 17.05.2024 are not read: write \
         the file with decimal points and dates as 2024-05-17; a point in another column may \
         separate thousands",
        excerpt(&column.name)
    ))
}

/// What the cells of each column seem to hold, and a remark on what is suspicious about it. A
/// column that counts the rows is ignored, unless nothing beside it can be a feature.
pub fn guesses(survey: &Survey) -> Vec<(ColumnKind, Option<String>)> {
    let all = survey.columns.iter().map(|column| guess(column, survey.rows));
    let mut all: Vec<(ColumnKind, Option<String>)> = all.collect();
    let mut features = all.iter().enumerate().filter(|(at, _)| *at != survey.target);
    if features.all(|(_, (kind, _))| *kind == ColumnKind::Ignore) {
        for (column, (kind, _)) in survey.columns.iter().zip(&mut all) {
            if column.is_index {
                *kind = ColumnKind::Number;
            }
        }
    }
    all
}

/// What the cells of a column seem to hold, by themselves.
fn guess(column: &ColumnSurvey, rows: u64) -> (ColumnKind, Option<String>) {
    let ignored = |remark: &str| (ColumnKind::Ignore, Some(remark.to_string()));
    if let Some(words) = &column.unread {
        return ignored(&format!("is not read: {words}"));
    }
    let present = rows - column.missing;
    let different = column.values.as_ref().map(BTreeMap::len);
    if present == 0 {
        return ignored("no cell has a value");
    }
    if different == Some(1) && rows > 1 && column.missing == 0 {
        return ignored("all cells have the same value");
    }
    if column.numbers == present {
        if column.is_index {
            return ignored("it counts the rows: an index that another program has written?");
        }
        let unnamed = column.name.is_empty() || column.name.starts_with("Unnamed:");
        let is_identifier = |count| count as u64 == rows && rows > 20;
        let greatest = column.range.map_or(0.0, |(least, _, most)| most.max(-least));
        let remark = if unnamed {
            Some("it has no name")
        } else if greatest > f64::from(f32::MAX) {
            Some("a number is beyond f32: a run refuses it")
        } else if column.has_codes {
            Some("numbers that begin with 0: codes? then a category")
        } else if column.whole && different.is_none_or(is_identifier) {
            Some("each row has another whole number: an identifier?")
        } else {
            None
        };
        return (ColumnKind::Number, remark.map(String::from));
    }
    if column.dates == present {
        return (ColumnKind::Date, None);
    }
    if column.booleans == present && different.is_some_and(|count| count <= 2) {
        return (ColumnKind::Boolean, None);
    }
    if column.foreign > 0 && column.foreign + column.numbers == present {
        return ignored(
            "numbers with a comma before their fraction, or dates such as 17.05.2024: write \
             them as 1234.5 and 2024-05-17",
        );
    }
    guess_text(column, present)
}

/// The same of cells of which some are neither numbers nor dates nor booleans.
fn guess_text(column: &ColumnSurvey, present: u64) -> (ColumnKind, Option<String>) {
    let ignored = |remark: &str| (ColumnKind::Ignore, Some(remark.to_string()));
    match column.values.as_ref().map(BTreeMap::len) {
        Some(count) if count <= MOST_VALUES && (count as u64) < present => {
            let numbers = column.numbers;
            let values: Vec<String> =
                column.values.iter().flatten().map(|(value, _)| value.clone()).collect();
            let remark = match similar_spellings(&values) {
                Some((value, other)) => {
                    Some(format!("two spellings of one value? \"{value}\" and \"{other}\""))
                }
                None => (numbers > 0).then(|| format!("{numbers} cells are numbers")),
            };
            (ColumnKind::Category, remark)
        }
        _ => {
            let text = present - column.numbers;
            if text >= column.numbers {
                return ignored("text with many different values");
            }
            let mut values = column.values.iter().flat_map(BTreeMap::keys);
            let example = values
                .find(|value| value.parse::<f64>().is_err())
                .map(|value| format!(", such as \"{}\"", excerpt(value)));
            ignored(&format!("{text} cells are no numbers{}", example.unwrap_or_default()))
        }
    }
}

/// Whether the target seems to be a class, with the names of the classes; `None` if it is a
/// number.
pub fn classes(survey: &Survey) -> Option<Vec<String>> {
    if survey.class_names.is_some() {
        return survey.class_names.clone();
    }
    let target = &survey.columns[survey.target];
    let values = target.values.as_ref().filter(|values| values.len() <= MOST_VALUES)?;
    let present = survey.rows - target.missing;
    let all_numbers = target.numbers == present;
    let few = (values.len() as u64) * 5 <= present;
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

/// A schema of all columns but the target.
pub fn schema(survey: &Survey) -> Schema {
    let draft = |(column, (kind, _)): (&ColumnSurvey, (ColumnKind, Option<String>))| {
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
    let all = survey.columns.iter().zip(guesses(survey)).enumerate();
    let features = all.filter(|(at, _)| *at != survey.target);
    Schema { columns: features.map(|(_, column)| draft(column)).collect() }
}
