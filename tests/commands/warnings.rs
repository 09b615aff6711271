//! Warnings of real runs: in the table, in the summary, on the report's page.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    command::{folder, gradvine, json},
    report::blocks,
    report_quality::page,
};

/// A run on the files `a.csv`, `b.csv` and `c.csv`, one for each node.
struct Sites {
    folder: TempDir,
    table: String,
    summary: Value,
}

impl Sites {
    fn new(texts: [String; 3], settings: &[&str]) -> Sites {
        let folder = folder();
        for (name, text) in ["a", "b", "c"].iter().zip(texts) {
            fs::write(folder.path().join(format!("{name}.csv")), text).unwrap();
        }
        let sources = "data.sources=[\"a.csv\", \"b.csv\", \"c.csv\"]";
        let output = gradvine()
            .current_dir(folder.path())
            .args(["simulate", "--topology", "path:3", "--no-baseline", "--rounds", "150"])
            .args(["--set", sources, "--set", "data.test_share=0.3", "--out", "run"])
            .args(settings.iter().flat_map(|set| ["--set", set]))
            .assert()
            .success();
        let table = String::from_utf8(output.get_output().stdout.clone()).unwrap();
        let summary = json(&folder.path().join("run/summary.json"));
        Sites { folder, table, summary }
    }

    fn run(&self) -> std::path::PathBuf {
        self.folder.path().join("run")
    }

    /// The warnings of the summary. The table and the page have the same.
    fn warnings(&self) -> Vec<String> {
        let listed = self.summary["warnings"].as_array().cloned().unwrap_or_default();
        let listed: Vec<String> =
            listed.iter().map(|warning| warning.as_str().unwrap().to_string()).collect();
        let start = "warning          ";
        let printed: Vec<&str> =
            self.table.lines().filter_map(|line| line.strip_prefix(start)).collect();
        assert_eq!(printed, listed, "{}", self.table);
        let page = page(&self.run());
        let notes = blocks(&page["runs"][0]);
        let notes = notes.iter().find(|block| block["kind"] == "notes");
        let notes = notes.map_or(&[][..], |block| block["notes"].as_array().unwrap());
        let warned: Vec<&str> = (notes.iter())
            .filter(|note| note["level"] == "warning")
            .map(|note| note["text"].as_str().unwrap().strip_suffix('.').unwrap())
            .collect();
        assert_eq!(warned, listed);
        listed
    }
}

/// A number from 0 to 1 that looks random.
fn noise(i: usize, k: usize) -> f64 {
    ((i * 7919 + k * 104_729) % 1009) as f64 / 1009.0
}

/// Rows of two classes that a line separates; `class` makes the label of it.
fn classes(node: usize, class: impl Fn(usize, bool) -> bool) -> String {
    let row = |i: usize| {
        let (x, y) = (noise(i, node), noise(i * i + 3, node + 5));
        let state = if class(i, x + y > 1.0) { "ill" } else { "healthy" };
        format!("{x},{y},{state}\n")
    };
    "x,y,state\n".to_string() + &(0..200).map(row).collect::<String>()
}

const CLASSES: [&str; 3] = ["model.kind=softmax", "optimizer.step=0.5", "data.standardize=true"];
const NUMBERS: [&str; 3] =
    ["model.kind=least-squares", "optimizer.step=0.1", "data.standardize=true"];

#[test]
fn a_sound_run_has_no_warning() {
    let run = Sites::new([0, 1, 2].map(|node| classes(node, |_, class| class)), &CLASSES);
    assert_eq!(run.warnings(), Vec::<String>::new());
}

#[test]
fn a_site_with_exchanged_labels_is_named() {
    let run =
        Sites::new([0, 1, 2].map(|node| classes(node, |_, class| class != (node == 2))), &CLASSES);
    let warnings = run.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let parts = &run.summary["participation"];
    let [a, b, c] = ["a", "b", "c"].map(|name| parts[name]["test_of_mean"].clone());
    let right = |site: &Value| site["accuracy"].as_f64().unwrap() * site["rows"].as_f64().unwrap();
    let others =
        (right(&a) + right(&b)) / (a["rows"].as_f64().unwrap() + b["rows"].as_f64().unwrap());
    let expected = format!(
        "site c: the mean model classifies {:.1}% of its {} test rows correctly, and {:.1}% of the \
         others'",
        100.0 * c["accuracy"].as_f64().unwrap(),
        c["rows"],
        100.0 * others
    );
    assert_eq!(warnings, [expected]);
}

#[test]
fn a_rare_class_that_is_never_found_is_warned_of() {
    // One in eleven rows, wherever it lies.
    let run = Sites::new([0, 1, 2].map(|node| classes(node, |i, _| i % 11 == 3)), &CLASSES);
    let warnings = run.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let all = &run.summary["final"]["test"];
    let percent = |value: &Value| format!("{:.1}%", 100.0 * value.as_f64().unwrap());
    let (accuracy, baseline) = (percent(&all["accuracy"]), percent(&all["baseline"]["accuracy"]));
    assert_eq!(
        warnings[0],
        format!(
            "the mean model ({accuracy}) is not better than always predicting \"healthy\" \
             ({baseline})"
        )
    );
    assert!(warnings[1].starts_with(&format!(
        "the classes are not balanced: {baseline} of the test rows are \"healthy\""
    )));
}

#[test]
fn a_class_without_test_rows_is_warned_of() {
    let named = ["data.classes=[\"healthy\", \"ill\", \"dead\"]", "data.target=state"];
    let all: Vec<&str> = CLASSES.into_iter().chain(named).collect();
    let run = Sites::new([0, 1, 2].map(|node| classes(node, |_, class| class)), &all);
    assert_eq!(run.warnings(), ["no test row is of class dead"]);
}

/// Rows with a number; `value` makes it of the features and a random number from -1 to 1.
fn numbers(node: usize, value: impl Fn(f64, f64, f64) -> f64) -> String {
    let row = |i: usize| {
        let (x, y) = (noise(i, node), noise(i * i + 3, node + 5));
        let more = 2.0 * noise(i * i * i + 11, node + 17) - 1.0;
        format!("{x},{y},{}\n", value(x, y, more))
    };
    "x,y,load\n".to_string() + &(0..200).map(row).collect::<String>()
}

#[test]
fn a_site_with_other_numbers_is_named() {
    let value = |node: usize| {
        move |x: f64, y: f64, more: f64| x - y + if node == 1 { more } else { 0.1 * more }
    };
    let run = Sites::new([0, 1, 2].map(|node| numbers(node, value(node))), &NUMBERS);
    let warnings = run.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let parts = &run.summary["participation"];
    let outputs = ["a", "b", "c"].map(|name| parts[name]["test_of_mean"].clone());
    let rmse = |site: &Value| site["outputs"][0]["rmse"].as_f64().unwrap();
    let rows = |site: &Value| site["rows"].as_f64().unwrap();
    let [a, b, c] = &outputs;
    let square = |site: &Value| rmse(site).powi(2) * rows(site);
    let others = ((square(a) + square(c)) / (rows(a) + rows(c))).sqrt();
    let expected = format!(
        "site b: the mean model's RMSE is {:.4} on its {} test rows, and {others:.4} on the \
         others'",
        rmse(b),
        b["rows"]
    );
    assert_eq!(warnings, [expected]);
    // The table has the figures of numbers, and none of classes.
    let head = run.table.lines().find(|line| line.trim_start().starts_with("node ")).unwrap();
    let words: Vec<&str> =
        head.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    assert_eq!(
        words,
        ["node", "rows", "test rows", "own RMSE", "mean model RMSE", "baseline RMSE", "sent"]
    );
    let line = run.table.lines().find(|line| line.starts_with("  b ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    let own = parts["b"]["test"]["outputs"][0]["rmse"].as_f64().unwrap();
    let baseline = b["outputs"][0]["baseline_rmse"].as_f64().unwrap();
    assert_eq!(cells[3..6], [own, rmse(b), baseline].map(|value| format!("{value:.4}")));
}

#[test]
fn numbers_that_do_not_depend_on_the_features_are_warned_of() {
    // Many random features, few rows: the model learns the noise.
    let text = |node: usize| {
        let names: String = (0..40).map(|column| format!("x{column},")).collect();
        let row = |i: usize| {
            let cells: String =
                (0..40).map(|k| format!("{},", noise(i * i + 13 * k, node + 31 * k))).collect();
            format!("{cells}{}\n", noise(i * i * i + 7, node + 3))
        };
        format!("{names}load\n") + &(0..30).map(row).collect::<String>()
    };
    let named: Vec<&str> = NUMBERS.into_iter().chain(["data.target=load"]).collect();
    let run = Sites::new([0, 1, 2].map(text), &named);
    let warnings = run.warnings();
    let output = &run.summary["final"]["test"]["outputs"][0];
    let [rmse, baseline] = ["rmse", "baseline_rmse"].map(|key| output[key].as_f64().unwrap());
    let expected = format!(
        "load: the mean model (RMSE {rmse:.4}) is not better than always predicting the mean of \
         the training rows ({baseline:.4})"
    );
    assert!(warnings.contains(&expected), "{warnings:?} without {expected}");
}
