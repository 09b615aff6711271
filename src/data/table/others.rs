//! Values of a category that are not listed: a user should see them, since a spelling that only one
//! site has is not what the others call by the listed name.

use std::collections::BTreeMap;

use super::{
    cell::Cell,
    meaning::plain_text,
    schema::Column,
    spelling::{shown, similar_words, spelling},
};
use crate::data::excerpt::excerpt;

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
    pub(super) fn add(&mut self, cell: Cell<'_>) {
        self.rows += 1;
        let Some(text) = plain_text(cell) else { return };
        if let Some(count) = self.texts.get_mut(&text) {
            *count += 1;
        } else if self.texts.len() < MOST_TEXTS {
            self.texts.insert(text, 1);
        }
    }

    /// What a user should know about them: first those that are like a listed value, then the most
    /// frequent ones. `None` if there are none.
    pub(super) fn remark(&self, column: &Column) -> Option<String> {
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

/// A remark on such values of a column.
pub(crate) fn similar_remark(column: &Column) -> Option<String> {
    let words = similar_words(column.values.as_deref()?)?;
    Some(format!("column {}: {words}", excerpt(&column.name)))
}

#[cfg(test)]
mod tests {
    use super::super::schema::{ColumnKind, Missing};
    use super::*;

    fn column(values: &[&str]) -> Column {
        Column {
            name: "maker".into(),
            kind: ColumnKind::Category,
            values: Some(values.iter().map(ToString::to_string).collect()),
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
