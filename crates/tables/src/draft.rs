//! An experiment drafted from what is in the columns of a table.

use gradvine::data::{Column, EMBEDDED, Survey};

use crate::describe::{classes, guesses, schema};

/// The other sections of a draft: it can be run at once.
const REST: &str = "
[rule]
kind = \"choco\"

[compressor]
kind = \"min-max\"

[optimizer]
step = 0.1
batch = 32

# For a run on this machine: the nodes of a deployment have a file for their topology.
[topology]
file = \"ring:4\"

# In a deployment each node waits so many seconds for the others: people start the sites by phone.
[run]
connect_s = 3600
";

/// An experiment on a table as TOML: a schema of its columns, a model that fits the target,
/// and values that can be run at once. `source` names the table, as `data.source` does. It is
/// to be read and corrected: each suspicious column has a remark.
pub fn draft(survey: &Survey, source: &str) -> String {
    let quote = |text: &str| toml::Value::String(text.into()).to_string();
    let schema = schema(survey);
    let mut text = String::from("[data]\n");
    text += &format!("source = {}\n", quote(source));
    // The format of a shipped set is known.
    if survey.says_header && EMBEDDED.find(source).is_none() {
        text += &format!("header = {}\n", survey.header);
    }
    text += &format!("target = {}\n", quote(&survey.columns[survey.target].name));
    let classes = classes(survey);
    if let Some(classes) = &classes {
        let names: Vec<String> = classes.iter().map(|name| quote(name)).collect();
        text += &format!("classes = [{}]\n", names.join(", "));
    }
    text += "standardize = true\nschema = [\n";
    let all = guesses(survey).into_iter().enumerate().filter(|(at, _)| *at != survey.target);
    for (column, (_, (_, remark))) in schema.columns.iter().zip(all) {
        text += &format!("    {},", entry(column));
        if let Some(remark) = remark {
            text += &format!(" # {remark}");
        }
        text += "\n";
    }
    let kind = if classes.is_some() { "softmax" } else { "least-squares" };
    text += &format!("]\n\n[model]\nkind = \"{kind}\"\n");
    if let Ok(inputs) = schema.width() {
        text += &format!("inputs = {inputs}\n");
    }
    text += &format!("outputs = {}\n", classes.map_or(1, |classes| classes.len()));
    text + REST
}

/// An entry of a schema, on one line, its name first.
fn entry(column: &Column) -> String {
    let table = toml::Table::try_from(column).expect("a column serialises");
    let pairs = ["name", "kind", "values", "other", "missing", "origin"]
        .into_iter()
        .filter_map(|key| Some(format!("{key} = {}", table.get(key)?)));
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use gradvine::{
        data::{ColumnKind, Options},
        experiment::Experiment,
        run::Whole,
    };

    use super::draft;
    use crate::describe::{describe, guesses};

    #[test]
    fn a_draft_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows: String = (0..30).map(|row| format!("{row}.5,5,{}\n", row % 3)).collect();
        std::fs::write(&path, format!("x,same,y\n{rows}")).unwrap();
        let path = path.to_str().unwrap();
        let draft = draft(&describe(path, &Options::default()).unwrap(), path);
        assert!(draft.contains("{ name = \"same\", kind = \"ignore\" }, # all cells"), "{draft}");
        let whole = Whole::new(Experiment::parse(&draft, &[]).unwrap()).unwrap();
        assert_eq!((whole.design.features, whole.design.outputs), (1, 3));
    }

    /// The draft of a file with this text, and the run that it makes.
    fn drafted(text: &str, target: Option<&str>) -> (String, Whole) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let options = Options { target: target.map(String::from), ..Options::default() };
        let draft = draft(&describe(path, &options).unwrap(), path);
        let whole = Whole::new(Experiment::parse(&draft, &[]).unwrap()).unwrap();
        (draft, whole)
    }

    #[test]
    fn drafts_of_files_without_a_header_can_be_run() {
        let rows: String =
            (0..30).map(|row| format!("{row}.5,{},{}\n", row % 3, row % 7)).collect();
        let (draft, whole) = drafted(&rows, Some("1"));
        assert!(draft.contains("header = false\ntarget = \"1\"\n"), "{draft}");
        assert_eq!((whole.design.features, whole.design.outputs), (2, 3));
        // The first row has the position of the target, and it is a row.
        let rows: String = (0..30).map(|row| format!("2,{}.5,{}\n", row, row % 2)).collect();
        let (draft, whole) = drafted(&rows, Some("2"));
        assert!(draft.contains("target = \"2\"\n"), "{draft}");
        assert_eq!((whole.design.features, whole.design.outputs), (1, 2));
        // scikit-learn's iris.csv begins so.
        let rows: String =
            (0..30).map(|row| format!("5.{row},3.{},1.4,0.{row},{}\n", row % 4, row % 3)).collect();
        let text = format!("30,4,setosa,versicolor,virginica\n{rows}");
        let (draft, whole) = drafted(&text, None);
        let classes = "classes = [\"setosa\", \"versicolor\", \"virginica\"]";
        assert!(draft.contains(classes) && !draft.contains("header"), "{draft}");
        assert_eq!((whole.design.features, whole.design.outputs), (3, 3));
        assert_eq!(whole.classes, ["setosa", "versicolor", "virginica"]);
    }

    #[test]
    fn a_draft_says_what_the_user_knows_about_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows: String = (0..40).map(|row| format!("{},7{row},{}\n", row % 3, row % 2)).collect();
        let (file, text) = (path.to_str().unwrap(), format!("1999,2004,2003\n{rows}"));
        std::fs::write(&path, text).unwrap();
        for (header, rows, target) in
            [(None, 41, "2"), (Some(false), 41, "2"), (Some(true), 40, "2003")]
        {
            let options = Options { header, ..Options::default() };
            let described = describe(file, &options).unwrap();
            assert_eq!((described.rows, &*described.columns[2].name), (rows, target));
            let draft = draft(&described, file);
            let sets = ["data.test_share=0".to_string()];
            let whole = Whole::new(Experiment::parse(&draft, &sets).unwrap()).unwrap();
            let read: usize = whole.shards.iter().map(|shard| shard.raw().rows()).sum();
            assert_eq!(read as u64, rows, "{draft}");
        }
    }

    #[test]
    fn a_column_that_counts_the_rows_is_a_feature_if_there_is_no_other() {
        let index = |row: i32| format!("{row},{}", row % 2);
        let rows: Vec<String> = (1..=40).map(index).collect();
        let (text, whole) = drafted(&format!("n,y\n{}\n", rows.join("\n")), None);
        assert!(
            text.contains("{ name = \"n\", kind = \"number\" }, # it counts the rows"),
            "{text}"
        );
        assert_eq!(whole.design.features, 1);
        let rows = rows.join(",a\n") + ",a\n";
        let (text, _) = drafted(&format!("n,y,z\n{}", rows.replace(",a", ",0.5")), Some("y"));
        assert!(text.contains("{ name = \"n\", kind = \"number\" }"), "{text}");
        assert!(text.contains("{ name = \"z\", kind = \"ignore\" }"), "{text}");
    }

    #[test]
    fn codes_and_numbers_that_no_run_accepts_have_a_remark() {
        let rows: String =
            (0..30).map(|row| format!("0{},{}e{},{}\n", row % 7, row, row * 10, row % 2)).collect();
        let (folder, text) = (tempfile::tempdir().unwrap(), format!("code,large,y\n{rows}"));
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, text).unwrap();
        let described = describe(path.to_str().unwrap(), &Options::default()).unwrap();
        let remarks: Vec<String> =
            guesses(&described).into_iter().filter_map(|(_, remark)| remark).collect();
        assert!(remarks[0].starts_with("numbers that begin with 0"), "{remarks:?}");
        assert!(remarks[1].starts_with("a number is beyond f32"), "{remarks:?}");
        // Of more values than are counted.
        let rows: String = (0..5000).rev().map(|row| format!("{row:05},{}\n", row % 2)).collect();
        std::fs::write(&path, format!("code,y\n{rows}")).unwrap();
        let described = describe(path.to_str().unwrap(), &Options::default()).unwrap();
        let remark = guesses(&described).swap_remove(0).1.unwrap();
        assert!(remark.starts_with("numbers that begin with 0"), "{remark}");
    }

    #[test]
    fn times_get_an_origin_in_the_draft_and_in_the_run() {
        let rows: String =
            (0..60).map(|row| format!("2024-05-17T08:{row:02}:00Z,{}\n", row % 2)).collect();
        let text = format!("t,y\n{rows}");
        let (draft, whole) = drafted(&text, None);
        assert!(draft.contains("kind = \"date\", origin = \"2024-05-17\" }"), "{draft}");
        let different = |whole: &Whole| {
            let parts = whole.shards.iter().map(|shard| shard.raw().features.iter().copied());
            let bits: std::collections::BTreeSet<u32> = parts.flatten().map(f32::to_bits).collect();
            bits.len() + whole.tests.rows()
        };
        assert_eq!(different(&whole), 60);
        // Without an origin in the experiment it is the first date of the files.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, text).unwrap();
        let draft = draft.replace(", origin = \"2024-05-17\"", "");
        let set = format!("data.source={}", path.display());
        let whole = Whole::new(Experiment::parse(&draft, &[set]).unwrap()).unwrap();
        assert_eq!(different(&whole), 60);
        let schema = whole.design.experiment.data.schema.as_ref().unwrap();
        assert_eq!(schema.columns[0].origin.as_deref(), Some("2024-05-17"));
    }

    #[test]
    fn german_writings_are_explained() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows: String = (0..30)
            .map(|row| format!("{:02}.05.2024;1.2{row:02},5;{}\n", row + 1, row % 2))
            .collect();
        std::fs::write(&path, format!("tag;wert;y\n{rows}")).unwrap();
        let described = describe(path.to_str().unwrap(), &Options::default()).unwrap();
        for (kind, remark) in guesses(&described).into_iter().take(2) {
            assert_eq!(kind, ColumnKind::Ignore);
            assert!(remark.unwrap().contains("write them as 1234.5 and 2024-05-17"));
        }
        assert!(described.remarks[0].contains("column tag: numbers as 1.234,5 or dates"));
    }
}
