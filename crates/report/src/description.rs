//! What is in the columns of a table, as text and as JSON.

use std::collections::BTreeMap;

use gradvine::data::{ColumnSurvey, Survey};
use gradvine_tables::{classes, guesses, schema};
use serde_json::{Value, json};

use super::text::{fitted, on_a_line};

/// Classes or categories that a table shows.
const SHOWN: usize = 4;

/// The largest class is this many times as frequent as the least one where the text warns.
const UNBALANCED: u64 = 5;

/// Figures of columns that a narrow terminal does not show: the first of them is missing first.
const LEAST: [&str; 6] = ["mean", "least", "greatest", "values", "missing", "remark"];

/// What is in a table: a line for each column, then what the target is. `width`: the columns of the
/// terminal, if it is shown on one.
pub fn description_table(described: &Survey, width: Option<usize>) -> String {
    let remarks: String =
        described.remarks.iter().map(|remark| format!("warning: {remark}\n")).collect();
    format!("{}\n{}{remarks}", columns(described, width), target(described))
}

/// A table with a line for each column of the data.
fn columns(described: &Survey, width: Option<usize>) -> String {
    let heading = ["column", "kind", "missing", "least", "mean", "greatest", "values", "remark"];
    let mut rows = vec![heading.map(String::from)];
    let all = described.columns.iter().zip(guesses(described)).enumerate();
    for (at, (column, (kind, remark))) in all {
        let kind = if at == described.target { "target" } else { kind.name() };
        let range = column.range.filter(|_| column.numbers + column.missing == described.rows);
        let [least, mean, greatest] = match range {
            Some((least, mean, greatest)) => [least, mean, greatest].map(number),
            None => Default::default(),
        };
        let missing = match column.missing {
            0 => String::new(),
            count => format!("{count} ({:.1}%)", 100.0 * count as f64 / described.rows as f64),
        };
        let remark = remark.filter(|_| at != described.target).unwrap_or_default();
        let values = values(column);
        rows.push([
            column.name.clone(),
            kind.into(),
            missing,
            least,
            mean,
            greatest,
            values,
            remark,
        ]);
    }
    let rows_word = if described.rows == 1 { "row" } else { "rows" };
    let left = [0, 1, 6, 7];
    format!("{} {rows_word}\n\n{}", described.rows, fitted(&rows, &left, &LEAST, width))
}

/// The most frequent values of a column whose values repeat.
fn values(column: &ColumnSurvey) -> String {
    if column.unread.is_some() {
        return String::new();
    }
    let Some(values) = &column.values else { return "more than 4096".into() };
    let total: u64 = values.values().sum();
    let many = column.numbers == total || column.dates == total;
    if many && values.len() > SHOWN || values.len() as u64 == total {
        return format!("{} different", values.len());
    }
    let mut sorted: Vec<(&String, &u64)> = values.iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let shown: Vec<String> = sorted
        .iter()
        .take(SHOWN)
        .map(|(value, count)| format!("{} ({count})", brief(value)))
        .collect();
    let more = sorted.len().saturating_sub(SHOWN);
    shown.join(", ") + &if more > 0 { format!(", {more} more") } else { String::new() }
}

fn brief(text: &str) -> String {
    let mut shown = on_a_line(&text.chars().take(20).collect::<String>());
    if text.chars().count() > 20 {
        shown += "..";
    }
    shown
}

fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// What the target is, in lines.
fn target(described: &Survey) -> String {
    let column = &described.columns[described.target];
    let mut text = match classes(described) {
        Some(classes) => {
            // Labels are the names of the classes, or their numbers.
            let count = |(at, class): (usize, &String)| {
                let all = column.values.as_ref()?;
                all.get(class).or_else(|| all.get(&at.to_string())).copied()
            };
            let counts: Vec<u64> =
                classes.iter().enumerate().map(|one| count(one).unwrap_or(0)).collect();
            let each: Vec<String> = classes
                .iter()
                .zip(&counts)
                .take(20)
                .map(|(class, count)| format!("{} ({count})", brief(class)))
                .collect();
            let (most, least) = (counts.iter().max(), counts.iter().min());
            let mut text = format!(
                "target \"{}\": {} classes: {}{}\n",
                column.name,
                classes.len(),
                each.join(", "),
                if classes.len() > 20 { ", .." } else { "" }
            );
            if let (Some(most), Some(least)) = (most, least)
                && *most > UNBALANCED * *least
            {
                text += &format!(
                    "warning: the classes are unbalanced: the most frequent one has {most} rows, \
                     the least frequent one {least}\n"
                );
            }
            text
        }
        None => format!("target \"{}\": numbers\n", column.name),
    };
    if column.missing > 0 {
        text += &format!(
            "warning: {} rows have no target: a run refuses them: remove them, or list the text in \
             data.classes if it is the name of a class\n",
            column.missing
        );
    }
    text
}

/// What is in a table, its target, and the schema of its draft, as a JSON object.
pub fn description_json(described: &Survey) -> Value {
    let columns: Vec<Value> = described
        .columns
        .iter()
        .zip(guesses(described))
        .map(|(column, (kind, remark))| {
            let values = column.values.as_ref().filter(|_| column.unread.is_none());
            json!({
                "name": column.name,
                "kind": kind,
                "missing": column.missing,
                "least": column.range.map(|range| range.0),
                "mean": column.range.map(|range| range.1),
                "greatest": column.range.map(|range| range.2),
                "different": values.map(BTreeMap::len),
                "remark": remark,
            })
        })
        .collect();
    json!({
        "rows": described.rows,
        "target": described.columns[described.target].name,
        "classes": classes(described),
        "columns": columns,
        "header": described.header,
        "remarks": described.remarks,
        "schema": schema(described),
    })
}

#[cfg(test)]
mod tests {
    use gradvine::data::Options;
    use gradvine_tables::describe;

    use super::*;

    fn described() -> Survey {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows: String = (0..12).map(|row| format!("{row}.5,a\n")).collect();
        std::fs::write(&path, format!("x,y\n,b\n{rows}")).unwrap();
        describe(path.to_str().unwrap(), &Options::default()).unwrap()
    }

    #[test]
    fn each_column_has_a_line_and_the_target_its_classes() {
        let text = description_table(&described(), None);
        for line in
            ["13 rows\n", "x       number  1 (7.7%)    0.5     6      11.5", "a (12), b (1)"]
        {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains("target \"y\": 2 classes: a (12), b (1)\nwarning: the classes are"));
    }

    #[test]
    fn json_has_the_target_and_the_schema() {
        let value = description_json(&described());
        assert_eq!((&value["rows"], &value["target"]), (&json!(13), &json!("y")));
        assert_eq!(value["columns"][0]["missing"], 1);
        assert_eq!(value["schema"][0]["name"], "x");
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in [(0.5, "0.5"), (12.0, "12"), (1e-5, "1.000e-5"), (0.0, "0")] {
            assert_eq!(number(value), text);
        }
    }
}
