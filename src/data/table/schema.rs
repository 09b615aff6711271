//! The schema of a table: its columns by name, and how each becomes features.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    date::moment,
    spelling::{alike, either},
};
use crate::{
    config::ConfigError,
    data::{
        DataError,
        excerpt::{excerpt, list},
    },
};

/// The maximum number of values of a category.
pub const MAX_VALUES: usize = 4096;

/// The columns of a table that become features, in the order of the model's inputs. Files may have
/// their columns in any order, and others, which are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schema {
    /// One entry for each column that is read.
    pub columns: Vec<Column>,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name, as the first line of a file has it.
    pub name: String,
    /// What its cells hold.
    pub kind: ColumnKind,
    /// The values of a category: each becomes a feature that is 1 or 0. Without them they are those
    /// of the file, sorted, which only works where all rows of a run are in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
    /// Whether a category has one more feature, for all values that are not listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other: bool,
    /// What is done about cells without a value.
    #[serde(default, skip_serializing_if = "Missing::is_default")]
    pub missing: Missing,
    /// The date from which those of the column are counted, as `2024-05-17`. Without it they are
    /// counted from 1970-01-01, and a time that `f32` does not hold then is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// The date from which dates are counted without another one.
pub(crate) const EPOCH: &str = "1970-01-01";

/// What the cells of a column hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ColumnKind {
    /// A number: one feature.
    Number,
    /// One of several texts: a feature for each, which is 1 or 0.
    Category,
    /// `true` or `false`, `yes` or `no`, `1` or `0`, `t` or `f`, `y` or `n` in letters of any case:
    /// one feature that is 1 or 0.
    Boolean,
    /// `2024-05-17`, also with a time, `2024-05-17 08:30:00`, and a zone, `2024-05-17T08:30:00Z`:
    /// one feature, the days since `origin`, or since 1970-01-01.
    Date,
    /// Nothing that the model sees; files may lack it.
    Ignore,
}

impl ColumnKind {
    /// Its name in a schema.
    pub fn name(self) -> &'static str {
        match self {
            ColumnKind::Number => "number",
            ColumnKind::Category => "category",
            ColumnKind::Boolean => "boolean",
            ColumnKind::Date => "date",
            ColumnKind::Ignore => "ignore",
        }
    }
}

/// What is done about a cell without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Missing {
    /// `"refuse"`: it is an error.
    #[default]
    Refuse,
    /// `"mean"`: it becomes the mean of the column's values at all nodes.
    Mean,
    /// `"median"`: it becomes the median of the column's values at all nodes, from counts of values
    /// in bins whose width is at most 1/128 of the value.
    Median,
    /// `"category"`: a category has one more feature for it.
    Category,
    /// `"other"`: it belongs to the other values of a category.
    Other,
    /// It becomes this number.
    Value(f64),
}

const WORDS: [(&str, Missing); 5] = [
    ("refuse", Missing::Refuse),
    ("mean", Missing::Mean),
    ("median", Missing::Median),
    ("category", Missing::Category),
    ("other", Missing::Other),
];

impl Missing {
    fn is_default(&self) -> bool {
        *self == Missing::default()
    }

    fn word(self) -> &'static str {
        WORDS.iter().find(|(_, missing)| *missing == self).map_or("refuse", |(word, _)| word)
    }

    /// Whether the values of all nodes decide what a missing one becomes.
    pub(crate) fn is_agreed(self) -> bool {
        matches!(self, Missing::Mean | Missing::Median)
    }
}

impl Serialize for Missing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Missing::Value(value) = self {
            return serializer.serialize_f64(*value);
        }
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Missing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Missing, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Missing;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let words: Vec<String> =
                    WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                write!(f, "{} or a number", words.join(", "))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Missing, E> {
                let word = WORDS.iter().find(|(word, _)| *word == text);
                word.map(|(_, missing)| *missing)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Missing, E> {
                Ok(Missing::Value(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Missing, E> {
                Ok(Missing::Value(value as f64))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Missing, E> {
                Ok(Missing::Value(value as f64))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Column {
    /// The number of its features; `None` if the values of a category are not known.
    pub(crate) fn width(&self) -> Option<usize> {
        Some(match self.kind {
            ColumnKind::Ignore => 0,
            ColumnKind::Category => {
                let own = usize::from(self.missing == Missing::Category);
                self.values.as_ref()?.len() + usize::from(self.other) + own
            }
            ColumnKind::Number | ColumnKind::Boolean | ColumnKind::Date => 1,
        })
    }

    /// The names of its features.
    fn features(&self) -> Vec<String> {
        match (self.kind, &self.values) {
            (ColumnKind::Ignore, _) => Vec::new(),
            (ColumnKind::Category, values) => {
                let one = |value: &String| format!("{}={value}", self.name);
                let mut names: Vec<String> = values.iter().flatten().map(one).collect();
                if self.other {
                    names.push(format!("{} (other)", self.name));
                }
                if self.missing == Missing::Category {
                    names.push(format!("{} (missing)", self.name));
                }
                names
            }
            _ => vec![self.name.clone()],
        }
    }

    /// The features of a cell without a value; `None` where it is refused, or where all nodes
    /// decide.
    fn of_missing(&self) -> Vec<Option<f32>> {
        let width = self.width().unwrap_or(0);
        let others = self.values.as_ref().map_or(0, Vec::len);
        let place = match self.missing {
            Missing::Value(value) => return vec![Some(value as f32); width],
            Missing::Category => others + usize::from(self.other),
            Missing::Other => others,
            Missing::Refuse | Missing::Mean | Missing::Median => return vec![None; width],
        };
        (0..width).map(|at| Some(if at == place { 1.0 } else { 0.0 })).collect()
    }

    /// The date from which those of the column are counted.
    pub(crate) fn origin(&self) -> &str {
        self.origin.as_deref().unwrap_or(EPOCH)
    }

    /// Its place in messages: `data.schema[NAME]`.
    pub(crate) fn place(&self) -> String {
        format!("data.schema[{}]", excerpt(&self.name))
    }

    fn check(&self) -> Result<(), ConfigError> {
        let refuse =
            |value: String, problem: &str| Err(ConfigError::new(self.place(), value, problem));
        let is_category = self.kind == ColumnKind::Category;
        if let Some(values) = &self.values {
            if !is_category {
                return refuse("values".into(), "only a category has them: leave them out");
            }
            if values.is_empty() || values.len() > MAX_VALUES {
                let problem = format!("from 1 to {MAX_VALUES} values are accepted");
                return refuse(format!("{} values", values.len()), &problem);
            }
            if let Some((value, other)) = alike(values) {
                return refuse(either(value, other), "this value is listed twice");
            }
            let trimmed = |value: &&String| value.trim().len() == value.len() && !value.is_empty();
            if let Some(value) = values.iter().find(|value| !trimmed(value)) {
                let problem = "values are texts without blanks around them, not empty";
                return refuse(format!("\"{}\"", excerpt(value)), problem);
            }
        }
        if let Some(origin) = &self.origin {
            if self.kind != ColumnKind::Date {
                return refuse("origin".into(), "only a date has it: leave it out");
            }
            if moment(origin.as_bytes()).is_none() {
                let problem = "a date such as 2024-05-17 or 2024-05-17T08:30:00Z is needed";
                return refuse(format!("origin = \"{}\"", excerpt(origin)), problem);
            }
        }
        if self.other && !is_category {
            return refuse("other".into(), "only a category has it: leave it out");
        }
        let accepted = match self.kind {
            ColumnKind::Category => "\"refuse\", \"category\", or \"other\" with other = true",
            ColumnKind::Ignore => "nothing: leave it out",
            _ => "\"refuse\", \"mean\", \"median\" or a finite number within f32",
        };
        let is_number = !matches!(self.kind, ColumnKind::Category | ColumnKind::Ignore);
        let fits = match self.missing {
            Missing::Refuse => true,
            Missing::Mean | Missing::Median => is_number,
            Missing::Value(value) => is_number && (value as f32).is_finite(),
            Missing::Category => is_category,
            Missing::Other => is_category && self.other,
        };
        if fits {
            return Ok(());
        }
        let value = match self.missing {
            Missing::Value(value) => format!("missing = {value}"),
            missing => format!("missing = \"{}\"", missing.word()),
        };
        refuse(value, &format!("expected {accepted}"))
    }
}

impl Schema {
    /// Checks that it can be used; values of categories may still be unknown.
    ///
    /// # Errors
    /// If a column is named twice, has keys that its kind does not have, or none becomes a feature.
    pub fn check(&self) -> Result<(), DataError> {
        let mut names: Vec<&String> = self.columns.iter().map(|column| &column.name).collect();
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let place = format!("data.schema[{}]", excerpt(pair[0]));
            return Err(ConfigError::at(place, "is named twice: a column has one entry").into());
        }
        self.columns.iter().try_for_each(Column::check)?;
        let mut features = self.features();
        features.sort();
        if let Some(pair) = features.windows(2).find(|pair| pair[0] == pair[1]) {
            let problem = "two columns have a feature of this name: rename one of them";
            let value = format!("\"{}\"", pair[0]);
            return Err(ConfigError::new("data.schema", value, problem).into());
        }
        if self.used().next().is_none() {
            let problem = "no column becomes a feature: at least one with another kind than \
                           \"ignore\" is needed";
            return Err(ConfigError::at("data.schema", problem).into());
        }
        Ok(())
    }

    /// The columns that become features.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.kind != ColumnKind::Ignore)
    }

    /// The names of the columns that become features.
    pub(crate) fn names(&self) -> Vec<String> {
        self.used().map(|column| column.name.clone()).collect()
    }

    /// The number of features.
    ///
    /// # Errors
    /// If the values of a category are not known.
    pub fn width(&self) -> Result<usize, DataError> {
        let width = |column: &Column| {
            column.width().ok_or_else(|| {
                let problem = "the values of the category are missing: list them as values = \
                               [..], the same on every node (`gradvine data describe` finds them)";
                ConfigError::at(column.place(), problem).into()
            })
        };
        self.used().map(width).sum()
    }

    /// The names of the features, in the order of the model's inputs.
    pub(crate) fn features(&self) -> Vec<String> {
        self.used().flat_map(Column::features).collect()
    }

    /// What each feature is in a row whose column has no value; `None` where such a row is refused,
    /// or where all nodes decide (see [`Schema::filled`]).
    pub fn of_missing(&self) -> Vec<Option<f32>> {
        self.used().flat_map(Column::of_missing).collect()
    }

    /// The features whose missing values become what the values of all nodes decide: their
    /// positions, and what that is.
    pub(crate) fn agreed(&self) -> Vec<(usize, Missing)> {
        let mut at = 0;
        let mut agreed = Vec::new();
        for column in self.used() {
            if column.missing.is_agreed() {
                agreed.push((at, column.missing));
            }
            at += column.width().unwrap_or(0);
        }
        agreed
    }

    /// The schema of a file that has the features as its columns, as
    /// [`write_csv`](crate::data::write_csv) writes them.
    #[must_use]
    pub fn of_features(&self) -> Schema {
        let agreed = self.agreed();
        let one = |(at, name): (usize, String)| {
            let missing = agreed.iter().find(|(feature, _)| *feature == at);
            Column {
                name,
                kind: ColumnKind::Number,
                values: None,
                other: false,
                missing: missing.map_or(Missing::Refuse, |(_, missing)| *missing),
                origin: None,
            }
        };
        Schema { columns: self.features().into_iter().enumerate().map(one).collect() }
    }

    /// Replaces what all nodes decide by the numbers that they have decided, in the order of
    /// `Schema::agreed`.
    #[must_use]
    pub fn filled(&self, fills: &[f32]) -> Schema {
        let mut schema = self.clone();
        let agreed = schema.columns.iter_mut().filter(|column| column.missing.is_agreed());
        for (column, fill) in agreed.zip(fills) {
            column.missing = Missing::Value(f64::from(*fill));
        }
        schema
    }

    /// States the origin of every date: that of the same column of `trained`, or the usual one. A
    /// model knows dates as they were counted when it was trained, whatever `f32` holds of them.
    #[must_use]
    pub(crate) fn counted_as(&self, trained: &Schema) -> Schema {
        let mut schema = self.clone();
        let dates = schema.columns.iter_mut().filter(|column| column.kind == ColumnKind::Date);
        for column in dates.filter(|column| column.origin.is_none()) {
            let like = |other: &&Column| other.name == column.name && other.kind == column.kind;
            let other = trained.columns.iter().find(like);
            let origin = other.map(|other| other.origin().to_string());
            column.origin = origin;
        }
        schema
    }

    /// The first difference to another schema, in words; `None` if both make the same features.
    pub(crate) fn difference(&self, other: &Schema) -> Option<String> {
        let (own, others) = (self.names(), other.names());
        if own != others {
            return Some(format!("the columns {} there, {} here", list(&others), list(&own)));
        }
        self.used().zip(other.used()).find_map(|(own, other)| {
            let same = own.kind == other.kind
                && own.features() == other.features()
                && own.origin() == other.origin();
            (!same).then(|| format!("the column {} is another one there", excerpt(&own.name)))
        })
    }
}
