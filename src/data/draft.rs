//! An experiment drafted from what is in the columns of a table.

use super::{Column, Description};

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

impl Description {
    /// An experiment on this table as TOML: a schema of its columns, a model that fits the target,
    /// and values that can be run at once. `source` names the table, as `data.source` does. It is
    /// to be read and corrected: each suspicious column has a remark.
    pub fn draft(&self, source: &str) -> String {
        let quote = |text: &str| toml::Value::String(text.into()).to_string();
        let schema = self.schema();
        let mut text = String::from("[data]\n");
        text += &format!("source = {}\n", quote(source));
        // A first line that counts rows and names classes is recognised; it is neither.
        if self.class_names.is_none() && (!self.header || !self.remarks.is_empty()) {
            text += &format!("header = {}\n", self.header);
        }
        text += &format!("target = {}\n", quote(&self.columns[self.target].name));
        let classes = self.classes();
        if let Some(classes) = &classes {
            let names: Vec<String> = classes.iter().map(|name| quote(name)).collect();
            text += &format!("classes = [{}]\n", names.join(", "));
        }
        text += "standardize = true\nschema = [\n";
        for column in &schema.columns {
            text += &format!("    {},", entry(column));
            let of = self.columns.iter().find(|found| found.name == column.name);
            if let Some(remark) = of.and_then(|found| found.guess(self.rows).1) {
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
    use crate::{
        data::{Options, describe},
        experiment::Experiment,
    };

    #[test]
    fn a_draft_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows: String = (0..30).map(|row| format!("{row}.5,5,{}\n", row % 3)).collect();
        std::fs::write(&path, format!("x,same,y\n{rows}")).unwrap();
        let path = path.to_str().unwrap();
        let draft = describe(path, &Options::default()).unwrap().draft(path);
        assert!(draft.contains("{ name = \"same\", kind = \"ignore\" }, # all cells"), "{draft}");
        let whole = crate::run::Whole::new(Experiment::parse(&draft, &[]).unwrap()).unwrap();
        assert_eq!((whole.design.features, whole.design.outputs), (1, 3));
    }
}
