//! `MODEL.md` beside the mean model: what the model is for, its inputs and constants, its figures
//! on test rows, the settings of its run, and how to use it.
//!
//! Everything in it is in `model-mean.safetensors`, `summary.json` or `experiment.toml`, too; it is
//! for readers who open none of these. In a deployment every node writes one.

use std::{fmt::Write, fs, path::Path};

use super::{
    markdown::{Table, escape},
    recorder::MEAN_MODEL,
};
use crate::{
    data::{ColumnKind, Missing, Task},
    experiment::Weighting,
    learn::{Model, SavedModel},
    run::{Figures, OutputFigures, Participation, Summary},
};

pub(super) const MODEL_CARD: &str = "MODEL.md";

/// How many inputs, classes and nodes the tables list; the files beside it have the rest.
const SHOWN: usize = 256;

/// Larger confusion matrices are left out.
const WIDEST: usize = 20;

/// The text about the mean model in a run directory; `None` if there is no such model, or a program
/// brought it.
pub(crate) fn describe(folder: &Path, summary: &Summary) -> Option<String> {
    let saved = SavedModel::read_metadata(&folder.join(MEAN_MODEL)).ok()?;
    let text = fs::read_to_string(folder.join("experiment.toml")).unwrap_or_default();
    let settings: toml::Table = toml::from_str(&text).unwrap_or_default();
    Some(Card { saved: &saved, summary, settings: &settings }.text())
}

/// What the text is made from.
struct Card<'a> {
    /// The model without its parameters.
    saved: &'a SavedModel,
    summary: &'a Summary,
    settings: &'a toml::Table,
}

impl Card<'_> {
    fn text(&self) -> String {
        [
            self.purpose(),
            self.inputs(),
            self.figures(),
            self.nodes(),
            self.warnings(),
            self.run(),
            self.usage(),
        ]
        .concat()
    }

    fn model(&self) -> &Model {
        &self.saved.model
    }

    fn has_classes(&self) -> bool {
        self.model().task() == Task::Classification
    }

    /// The names of the target columns, if they are known.
    fn targets(&self) -> Vec<&str> {
        let names = self.saved.columns.iter().flat_map(|columns| &columns.targets);
        names.map(String::as_str).collect()
    }

    fn class(&self, class: usize) -> String {
        self.saved.classes.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    fn purpose(&self) -> String {
        let (model, shape) = (self.model(), self.model().shape());
        let what = if self.has_classes() { "the class of a row" } else { "numbers of a row" };
        let mut text = format!(
            "# Model\n\nIt predicts {what}. It is the mean of the models of {} nodes.\n\n",
            self.summary.participation.len()
        );
        let mut table = Table::new(&["", ""]);
        table.add(["task".into(), model.task().name().into()]);
        if !self.targets().is_empty() {
            table.add(["target".into(), escape(&self.targets().join(", "))]);
        }
        if self.has_classes() {
            let mut classes: Vec<String> =
                (0..shape.outputs.min(SHOWN)).map(|class| self.class(class)).collect();
            if shape.outputs > SHOWN {
                classes.push("...".into());
            }
            table.add(["classes".into(), escape(&classes.join(", "))]);
        }
        let kind = format!("{}: {}", model.kind().name(), model.kind().summary());
        table.add(["model".into(), escape(&kind)]);
        if !shape.hidden.is_empty() {
            let widths: Vec<String> = shape.hidden.iter().map(ToString::to_string).collect();
            table.add(["hidden layers".into(), widths.join(", ")]);
        }
        table.add(["inputs, outputs".into(), format!("{}, {}", shape.inputs, shape.outputs)]);
        table.add(["parameters".into(), model.parameters().to_string()]);
        text += &table.to_string();
        text
    }

    /// The columns of files, if they have a schema.
    fn columns(&self) -> String {
        let Some(schema) = &self.saved.schema else { return String::new() };
        let mut text = String::from(
            "\n## Columns\n\nFiles are read by the names of their columns, in any order; others \
             are ignored.\n\n",
        );
        let mut table = Table::new(&["column", "kind", "values", "a missing value becomes"]);
        for column in schema.filled(&self.saved.preprocessing.fills).used() {
            let mut values = column.values.clone().unwrap_or_default();
            if values.len() > SHOWN {
                values.truncate(SHOWN);
                values.push("...".into());
            }
            if column.other {
                values.push("(other)".into());
            }
            let missing = match column.missing {
                Missing::Value(value) => number(value),
                Missing::Category => "a category of its own".into(),
                Missing::Other => "one of the other values".into(),
                _ => "refused".into(),
            };
            let mut kind = column.kind.name().to_string();
            if column.kind == ColumnKind::Date {
                kind += ", as days since ";
                kind += column.origin.as_deref().unwrap_or("1970-01-01");
            }
            table.add([escape(&column.name), kind, escape(&values.join(", ")), missing]);
        }
        text += &table.to_string();
        text
    }

    fn inputs(&self) -> String {
        let inputs = self.model().shape().inputs;
        let mut text = self.columns() + "\n## Inputs\n\n";
        text += match &self.saved.preprocessing.scale {
            Some(_) => {
                "The model takes the numbers of a row as they are in the data. It subtracts the \
                 mean and divides by the deviation, which are of the training rows of all \
                 nodes.\n\n"
            }
            None => "The model takes the numbers of a row as they are in the data.\n\n",
        };
        let names = self.saved.columns.as_ref().map(|columns| &columns.features);
        let mut heads = vec!["position>"];
        match (names, &self.saved.preprocessing.scale) {
            (None, None) => {
                let _ = writeln!(text, "It takes {inputs} numbers, which have no names.");
                return text;
            }
            (Some(_), None) => heads.push("name"),
            (None, Some(_)) => heads.extend(["mean>", "deviation>"]),
            (Some(_), Some(_)) => heads.extend(["name", "mean>", "deviation>"]),
        }
        let mut table = Table::new(&heads);
        for input in 0..inputs.min(SHOWN) {
            let mut line = vec![input.to_string()];
            line.extend(names.map(|names| escape(&names[input])));
            if let Some(scale) = &self.saved.preprocessing.scale {
                line.extend([number(scale.mean[input]), number(scale.deviation[input])]);
            }
            table.add(line);
        }
        text += &table.to_string();
        if inputs > SHOWN {
            let more = inputs - SHOWN;
            let _ = writeln!(text, "\n{more} more are in the metadata of `{MEAN_MODEL}`.");
        }
        text + &self.outputs()
    }

    /// The constants of the predicted numbers, if the model was trained on scaled ones.
    fn outputs(&self) -> String {
        let Some(scale) = &self.saved.preprocessing.targets else { return String::new() };
        let mut text = String::from(
            "\n## Outputs\n\nThe tensors predict scaled numbers. `gradvine predict` and the ONNX \
             graph multiply them by the deviation and add the mean, which follow from the training \
             rows of all nodes. All losses and figures have the units of the data.\n\n",
        );
        let mut table = Table::new(&["name", "mean>", "deviation>"]);
        for (output, name) in self.saved.output_names().iter().enumerate().take(SHOWN) {
            let (mean, deviation) = (scale.mean[output], scale.deviation[output]);
            table.add([escape(name), number(mean), number(deviation)]);
        }
        text += &table.to_string();
        text
    }

    /// The mean model on the test rows.
    fn figures(&self) -> String {
        let mut text = String::from("\n## Figures of the mean model\n\n");
        let Some(test) = &self.summary.outcome.test else {
            text += "There were no test rows.\n";
            return text;
        };
        let _ = writeln!(text, "On the {} test rows of all nodes.\n", test.rows);
        text += &if self.has_classes() { of_classes(test) } else { of_numbers(test) };
        text
    }

    /// The models on the test rows of each node.
    fn nodes(&self) -> String {
        let nodes = &self.summary.participation;
        let mut text = String::from("\n## Nodes\n\n");
        let with_mean = nodes.values().any(|part| part.test_of_mean.is_some());
        if nodes.values().any(|part| part.test.is_some()) {
            text += if with_mean {
                "Each node's own model and the mean model on the test rows of the node.\n\n"
            } else {
                "Each node's own model; all nodes have the same test rows.\n\n"
            };
        }
        let shown = || nodes.iter().take(SHOWN);
        text += &if self.has_classes() {
            let mut heads = vec!["node", "training rows>", "test rows>", "loss>", "accuracy>"];
            heads.push("balanced accuracy>");
            if with_mean {
                heads.extend(["of the mean: loss>", "accuracy>", "balanced accuracy>"]);
            }
            heads.push("baseline accuracy>");
            let mut table = Table::new(&heads);
            shown().for_each(|(name, part)| table.add(class_line(name, part, with_mean)));
            table.to_string()
        } else {
            let mut heads = vec!["node", "training rows>", "test rows>", "output"];
            heads.extend(["MAE>", "RMSE>", "R2>"]);
            if with_mean {
                heads.extend(["of the mean: MAE>", "RMSE>", "R2>"]);
            }
            heads.push("baseline RMSE>");
            let mut table = Table::new(&heads);
            let lines = shown().flat_map(|(name, part)| number_lines(name, part, with_mean));
            lines.for_each(|line| table.add(line));
            table.to_string()
        };
        if nodes.len() > SHOWN {
            let _ = writeln!(text, "\n{} more are in `summary.json`.", nodes.len() - SHOWN);
        }
        text
    }

    fn warnings(&self) -> String {
        let summary = self.summary;
        let mut warnings: Vec<String> = summary.warnings.iter().map(|line| escape(line)).collect();
        if summary.interrupted {
            warnings.push(format!("the run was interrupted after {} rounds", summary.rounds));
        }
        if let Some(why) = &summary.failure {
            warnings.push(format!("the run ended early: {}", escape(why)));
        }
        if !summary.unusable.is_empty() {
            let names: Vec<&str> = summary.unusable.keys().map(String::as_str).collect();
            let names = escape(&names.join(", "));
            warnings.push(format!("the figures lack the rows of these nodes: {names}"));
        }
        if warnings.is_empty() {
            return String::new();
        }
        let lines: String = warnings.iter().map(|line| format!("- {line}\n")).collect();
        format!("\n## Warnings\n\n{lines}")
    }

    fn run(&self) -> String {
        let summary = self.summary;
        let value = |key: &str| self.settings.get("run")?.get(key).map(plain);
        let mut table = Table::new(&["", ""]);
        let mut add = |key: &str, value: String| table.add([key.to_string(), escape(&value)]);
        if let Some(id) = value("id") {
            add("run", id);
        }
        add("nodes", summary.nodes.to_string());
        add("topology", summary.topology.clone());
        if let Some(schedule) = &summary.schedule {
            add("schedule", schedule.clone());
        }
        add("rule", self.section("rule").unwrap_or_else(|| summary.rule.clone()));
        let compressor = self.section("compressor");
        add("compressor", compressor.unwrap_or_else(|| summary.compressor.clone()));
        if let Some(optimizer) = self.section("optimizer") {
            add("optimizer", optimizer);
        }
        add("rounds", summary.rounds.to_string());
        if let Some(seed) = value("seed") {
            add("seed", seed);
        }
        match summary.weighting {
            Some(Weighting::Rows) => add("weighting", "each row counts alike".into()),
            Some(Weighting::Nodes) => add("weighting", "each node counts alike".into()),
            None => {}
        }
        if !summary.digest.is_empty() {
            add("digest of the run", summary.digest.clone());
        }
        if !summary.mean_digest.is_empty() {
            add("digest of the mean model", summary.mean_digest.clone());
        }
        add("version", format!("gradvine {}", env!("CARGO_PKG_VERSION")));
        format!("\n## Run\n\n{table}\n`experiment.toml` has every setting.\n")
    }

    /// The kind and the constants of a section.
    fn section(&self, name: &str) -> Option<String> {
        let table = self.settings.get(name)?.as_table()?;
        let constants: Vec<String> = table
            .iter()
            .filter(|(key, _)| *key != "kind")
            .map(|(key, value)| format!("{key} = {}", plain(value)))
            .collect();
        let kind = table.get("kind").map(plain).unwrap_or_default();
        Some(match constants.is_empty() {
            true => kind,
            false => format!("{kind} ({})", constants.join(", ")).trim().to_string(),
        })
    }

    fn usage(&self) -> String {
        let named = self.saved.columns.is_some();
        let columns = if named { "with these columns" } else { "of these inputs, in this order" };
        format!(
            "\n## Use\n\nIn this folder, for rows {columns} (`gradvine predict --help`):\n\n\
             ```console\n\
             $ gradvine predict {MEAN_MODEL} rows.csv > predictions.csv\n\
             $ gradvine evaluate {MEAN_MODEL} rows-with-target.csv\n\
             $ gradvine export {MEAN_MODEL} --format onnx\n\
             ```\n"
        )
    }
}

/// The mean model beside the most frequent class, its classes, and its confusion matrix.
fn of_classes(test: &Figures) -> String {
    let heads = ["", "loss>", "accuracy>", "balanced accuracy>", "AUC>", "calibration error>"];
    let mut table = Table::new(&heads);
    table.add([
        "mean model".into(),
        number(test.loss),
        percent(test.accuracy),
        percent(test.balanced_accuracy),
        optional(test.auc),
        percent(test.calibration_error),
    ]);
    if let Some(baseline) = &test.baseline {
        let mut line = vec![format!("always \"{}\"", escape(&baseline.class)), "-".into()];
        line.extend([percent(Some(baseline.accuracy)), "-".into(), "-".into(), "-".into()]);
        table.add(line);
    }
    let mut text = table.to_string();
    if !test.classes.is_empty() {
        let heads = ["class", "test rows>", "predicted>", "recall>", "precision>", "AUC>"];
        let mut table = Table::new(&heads);
        for class in test.classes.iter().take(SHOWN) {
            table.add([
                escape(&class.class),
                class.rows.to_string(),
                class.predicted.to_string(),
                percent(class.recall),
                percent(class.precision),
                optional(class.auc),
            ]);
        }
        let _ = write!(text, "\n{table}");
    }
    if (1..=WIDEST).contains(&test.confusion.len()) {
        let names: Vec<String> = test.classes.iter().map(|class| escape(&class.class)).collect();
        let heads: Vec<String> = ["class".to_string()]
            .into_iter()
            .chain(names.iter().map(|name| format!("predicted {name}>")))
            .collect();
        let mut table = Table::new(&heads);
        for (name, line) in names.iter().zip(&test.confusion) {
            let counts = line.iter().map(ToString::to_string);
            table.add([name.clone()].into_iter().chain(counts));
        }
        let _ = write!(text, "\n{table}");
    }
    text
}

/// The mean model beside the mean of the training rows.
fn of_numbers(test: &Figures) -> String {
    let mut table = Table::new(&["output", "MAE>", "RMSE>", "R2>", "RMSE of always the mean>"]);
    for output in test.outputs.iter().take(SHOWN) {
        let mut line = vec![escape(&output.output)];
        line.extend(errors(Some(output)));
        line.push(number(output.baseline_rmse));
        table.add(line);
    }
    let loss = format!("The loss (half the mean squared error) is {}.\n", number(test.loss));
    if test.outputs.is_empty() { loss } else { format!("{table}\n{loss}") }
}

fn class_line(name: &str, part: &Participation, with_mean: bool) -> Vec<String> {
    let figures = |test: Option<&Figures>| {
        let loss = optional(test.map(|test| test.loss));
        let accuracy = percent(test.and_then(|test| test.accuracy));
        [loss, accuracy, percent(test.and_then(|test| test.balanced_accuracy))]
    };
    let test = part.test.as_ref();
    let mut line = vec![escape(name), part.rows.to_string(), rows(test)];
    line.extend(figures(test));
    if with_mean {
        line.extend(figures(part.test_of_mean.as_ref()));
    }
    let baseline = test.and_then(|test| test.baseline.as_ref());
    line.push(percent(baseline.map(|baseline| baseline.accuracy)));
    line
}

/// One line for each predicted number.
fn number_lines(name: &str, part: &Participation, with_mean: bool) -> Vec<Vec<String>> {
    let test = part.test.as_ref();
    let outputs = test.map_or(0, |test| test.outputs.len());
    let line = |output: usize| {
        let find = |test: Option<&Figures>| test.and_then(|test| test.outputs.get(output)).cloned();
        let own = find(test);
        let mut line = vec![escape(name), part.rows.to_string(), rows(test)];
        line.push(own.as_ref().map_or("-".into(), |own| escape(&own.output)));
        line.extend(errors(own.as_ref()));
        if with_mean {
            line.extend(errors(find(part.test_of_mean.as_ref()).as_ref()));
        }
        line.push(optional(own.map(|own| own.baseline_rmse)));
        line
    };
    (0..outputs.clamp(1, SHOWN)).map(line).collect()
}

/// MAE, RMSE and R2.
fn errors(output: Option<&OutputFigures>) -> [String; 3] {
    let mae = output.map(|output| output.mae);
    let rmse = output.map(|output| output.rmse);
    [optional(mae), optional(rmse), optional(output.and_then(|output| output.r2))]
}

fn rows(test: Option<&Figures>) -> String {
    test.map_or("0".into(), |test| test.rows.to_string())
}

/// A value of TOML, without the quotation marks of a text.
fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

/// Six digits, without an exponent where a reader needs none.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.5e}");
    }
    // The digits before the point.
    let before = libm::floor(libm::log10(size)) as i64 + 1;
    format!("{value:.*}", usize::try_from(6 - before).unwrap_or(0).min(6))
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".into(), number)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.2}%", 100.0 * share))
}
