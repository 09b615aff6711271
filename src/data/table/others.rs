//! Values of a category that are not listed: a user should see them, since a spelling that only one
//! site has is not what the others call by the listed name.

use std::collections::BTreeMap;

use super::super::{
    cell::Cell,
    codes::{digits, plain},
    columns::excerpt,
    schema::Column,
    spelling::{shown, spelling},
};

/// Different texts that are counted.
const MOST_TEXTS: usize = 256;

/// Texts that a remark shows.
const SHOWN: usize = 3;

/// The values of one category that are not listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    rows: u64,
    texts: BTreeMap<String, u64>,
}

impl Others {
    /// Counts a cell.
    pub fn add(&mut self, cell: Cell<'_>) {
        self.rows += 1;
        let text = match cell {
            Cell::Text(text) => String::from_utf8_lossy(plain(text)).into_owned(),
            Cell::Number(value) => digits(value),
            Cell::Bool(value) => value.to_string(),
            Cell::Empty => return,
        };
        if let Some(count) = self.texts.get_mut(&text) {
            *count += 1;
        } else if self.texts.len() < MOST_TEXTS {
            self.texts.insert(text, 1);
        }
    }

    /// What a user should know about them: first those that are like a listed value, then the most
    /// frequent ones. `None` if there are none.
    pub fn remark(&self, column: &Column) -> Option<String> {
        if self.rows == 0 {
            return None;
        }
        let listed = column.values.as_deref().unwrap_or_default();
        let like = |text: &str| listed.iter().find(|value| spelling(value) == spelling(text));
        let mut texts: Vec<(&String, u64, Option<&String>)> =
            self.texts.iter().map(|(text, count)| (text, *count, like(text))).collect();
        texts.sort_by_key(|(_, count, like)| (like.is_none(), u64::MAX - count));
        let first: Vec<String> = texts
            .iter()
            .take(SHOWN)
            .map(|(text, count, like)| {
                let like = like.map(|value| format!(", listed as \"{}\"", shown(value)));
                format!("\"{}\" ({count}{})", shown(text), like.unwrap_or_default())
            })
            .collect();
        let more = if texts.len() > SHOWN { ", .." } else { "" };
        Some(format!(
            "column {}: values in {} rows are not listed in the schema and count as other: \
             {}{more}",
            excerpt(&column.name),
            self.rows,
            first.join(", "),
        ))
    }
}

/// Two values of a category that are perhaps the same in different spellings.
pub(crate) fn similar(values: &[String]) -> Option<(&str, &str)> {
    let mut seen: BTreeMap<String, &String> = BTreeMap::new();
    values
        .iter()
        .find_map(|value| Some((seen.insert(spelling(value), value)?.as_str(), &value[..])))
}

/// A remark on such values of a column.
pub(crate) fn similar_remark(column: &Column) -> Option<String> {
    let words = similar_words(column.values.as_deref()?)?;
    Some(format!("column {}: {words}", excerpt(&column.name)))
}

/// A remark on such names of classes: rows of one class may be divided among two.
pub(crate) fn similar_classes(classes: &[String]) -> Option<String> {
    Some(format!("classes: {}", similar_words(classes)?))
}

fn similar_words(values: &[String]) -> Option<String> {
    let (value, other) = similar(values)?;
    let (value, other) = (shown(value), shown(other));
    Some(format!("\"{value}\" and \"{other}\" are two values: are they spellings of one?"))
}

/// The listed name that is perhaps meant by a label which is no name, for an error.
pub(crate) fn perhaps(names: &[String], label: Cell<'_>) -> String {
    let Cell::Text(label) = label else { return String::new() };
    let label = String::from_utf8_lossy(label);
    let meant = names.iter().find(|name| spelling(name) == spelling(&label));
    let words = |name: &String| format!("; \"{}\" is spelled otherwise", shown(name));
    meant.map(words).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::super::{ColumnKind, Missing};
    use super::*;

    fn column(values: &[&str]) -> Column {
        Column {
            name: "maker".into(),
            kind: ColumnKind::Category,
            values: Some(values.iter().map(|value| value.to_string()).collect()),
            other: true,
            missing: Missing::Refuse,
            origin: None,
        }
    }

    #[test]
    fn another_spelling_of_a_listed_value_is_named_first() {
        let mut others = Others::default();
        let listed = column(&["Siemens", "Philips"]);
        assert_eq!(others.remark(&listed), None);
        for text in ["GE", "GE", "siemens ag", "SIEMENS", "3.0"] {
            others.add(Cell::of_text(text.as_bytes()));
        }
        assert_eq!(
            others.remark(&listed).unwrap(),
            "column maker: values in 5 rows are not listed in the schema and count as other: \
             \"SIEMENS\" (1, listed as \"Siemens\"), \"GE\" (2), \"3\" (1), .."
        );
    }

    #[test]
    fn two_spellings_among_the_values_are_named() {
        assert!(similar_remark(&column(&["Siemens", "GE", "siemens"])).is_some());
        assert!(similar_remark(&column(&["St. Olav", "St Olav"])).is_some());
        let remark = similar_remark(&column(&["K\u{f6}ln", "Ko\u{308}ln"])).unwrap();
        assert!(remark.contains("\"K\u{f6}ln\" and \"Ko\\u{308}ln\" are two"), "{remark}");
        for different in
            [&["<=50K", ">50K"][..], &["a", "b"], &["-1", "1"], &["+", "-"], &["1.0", "10"]]
        {
            assert_eq!(similar_remark(&column(different)), None, "{different:?}");
        }
    }
}
