//! `gradvine report` shows the figures of a run's summary: of nodes beside the baseline, of
//! classes, the confusion matrix, the warnings.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    command::{Deployment, NAMES, Reach, folder, gradvine, json as read_json, simulate},
    report::{blocks, data},
};

/// What the page of a run reads.
pub(crate) fn page(run: &Path) -> Value {
    let folder = folder();
    let out = folder.path().join("report.page");
    gradvine().arg("report").arg(run).args(["-q", "--out"]).arg(&out).assert().success();
    data(&fs::read_to_string(out).unwrap())
}

/// A run on three nodes with the rows of a file.
fn run_on(text: &str, settings: &[&str]) -> (TempDir, PathBuf) {
    let folder = folder();
    fs::write(folder.path().join("rows.csv"), text).unwrap();
    let run = folder.path().join("run");
    let often = ["--topology", "path:3", "--no-baseline", "--rounds", "40"];
    let settings = [&["data.source=rows.csv", "run.evaluate_every=10"], settings].concat();
    simulate(folder.path(), "run", &often, &settings).success();
    (folder, run)
}

/// The cells of the tables whose caption contains these words, line by line, the head first.
fn tables(page: &Value, caption: &str) -> Vec<Vec<Vec<String>>> {
    let named =
        |block: &Value| block["caption"].as_str().is_some_and(|text| text.contains(caption));
    let tables = blocks(&page["runs"][0]).into_iter().filter(named);
    let text = |cell: &Value| match cell {
        Value::Object(cell) => cell.values().next().unwrap().as_str().unwrap().to_string(),
        Value::Number(rows) => rows.to_string(),
        Value::String(word) if word == "nothing" => "–".to_string(),
        other => other.as_str().unwrap().to_string(),
    };
    let line = |line: &Value| line.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    let table = |block: Value| {
        let rows = block["rows"].as_array().unwrap().iter().map(line);
        if block["kind"] == "table" {
            return std::iter::once(line(&block["head"])).chain(rows).collect();
        }
        let classes = line(&block["classes"]);
        let rows = rows.zip(&classes).map(|(row, class)| [vec![class.clone()], row].concat());
        std::iter::once([vec!["class".to_string()], classes.clone()].concat()).chain(rows).collect()
    };
    tables.map(table).collect()
}

fn table(page: &Value, caption: &str) -> Vec<Vec<String>> {
    let mut tables = tables(page, caption);
    assert_eq!(tables.len(), 1, "{caption}");
    tables.remove(0)
}

/// The lines of a table by the names of its columns.
fn named(table: &[Vec<String>]) -> Vec<BTreeMap<String, String>> {
    let line = |line: &Vec<String>| {
        assert_eq!(line.len(), table[0].len());
        table[0].iter().cloned().zip(line.iter().cloned()).collect()
    };
    table[1..].iter().map(line).collect()
}

/// Whether a cell is a figure of the summary, as far as it is written.
fn is(cell: &str, value: &Value, what: &str) {
    let (text, factor) = match cell.strip_suffix(" %") {
        Some(text) => (text, 100.0),
        None => (cell, 1.0),
    };
    let Some(value) = value.as_f64() else {
        assert_eq!(cell, "–", "{what}");
        return;
    };
    let shown: f64 = text.replace(',', "").parse().unwrap_or_else(|_| panic!("{what}: {cell}"));
    let places = text.split_once('.').map_or(0, |(_, places)| places.len());
    let half = 0.500_001 * 10f64.powi(-(places as i32));
    assert!((shown - factor * value).abs() <= half, "{what}: {cell} instead of {value}");
}

/// Compares a line of the table of nodes with figures of the summary; `own` if they are those of
/// the node's own model.
fn line_is(line: &BTreeMap<String, String>, own: &str, trained: &Value, figures: &Value) {
    is(&line["training rows"], trained, "training rows");
    is(&line["test rows"], &figures["rows"], "test rows");
    let baseline = &figures["baseline"]["accuracy"];
    is(&line["accuracy of the baseline"], baseline, "accuracy of the baseline");
    for (column, value) in [
        ("accuracy", &figures["accuracy"]),
        ("balanced accuracy", &figures["balanced_accuracy"]),
        ("AUC", &figures["auc"]),
        ("calibration error", &figures["calibration_error"]),
        ("test loss", &figures["loss"]),
    ] {
        assert!(!value.is_null(), "{column}");
        is(&line[&format!("{own}{column}")], value, column);
    }
}

/// The lines of the chart whose title begins so.
fn chart(page: &Value, title: &str) -> Vec<Value> {
    let is_it =
        |block: &&Value| block["title"].as_str().is_some_and(|text| text.starts_with(title));
    let blocks = blocks(&page["runs"][0]);
    let chart = blocks.iter().filter(|block| block["kind"] == "chart").find(is_it).unwrap();
    chart["curves"].as_array().unwrap().clone()
}

/// Whether the page has a confusion matrix.
fn has_matrix(page: &Value) -> bool {
    blocks(&page["runs"][0]).iter().any(|block| block["kind"] == "matrix")
}

#[test]
fn figures_of_nodes_and_classes_are_those_of_the_summary() {
    let folder = folder();
    let run = folder.path().join("run");
    simulate(folder.path(), "run", &["--topology", "ring:4", "--rounds", "60"], &[]).success();
    let (page, summary) = (page(&run), read_json(&run.join("summary.json")));
    let all = &summary["final"]["test"];
    let nodes = named(&table(&page, "Figures on test rows"));
    let parts = summary["participation"].as_object().unwrap();
    assert_eq!(nodes.len(), 1 + parts.len());
    let trained: u64 = parts.values().map(|part| part["rows"].as_u64().unwrap()).sum();
    line_is(&nodes[0], "", &trained.into(), all);
    assert_eq!((nodes[0]["node"].as_str(), nodes[0]["own AUC"].as_str()), ("all nodes", "–"));
    for (line, (name, part)) in nodes[1..].iter().zip(parts) {
        // All test on the same rows.
        assert_eq!((&line["node"], &line["AUC"]), (name, &nodes[0]["AUC"]));
        line_is(line, "own ", &part["rows"], &part["test"]);
    }
    let (roc, bins) = (chart(&page, "ROC"), &all["calibration"]);
    assert_eq!(roc.len(), 10);
    for (line, class) in roc.iter().zip(all["classes"].as_array().unwrap()) {
        assert_eq!((&line["name"], &line["points"]), (&class["class"], &class["roc"]));
        let points = class["roc"].as_array().unwrap();
        // Trapezoids of points that are rounded, and a percent apart at the least.
        let area = |pair: &[Value]| {
            let at = |point: usize, side: usize| pair[point][side].as_f64().unwrap();
            (at(1, 0) - at(0, 0)) * (at(0, 1) + at(1, 1)) / 2.0
        };
        let sum: f64 = points.windows(2).map(area).sum();
        assert!((sum - class["auc"].as_f64().unwrap()).abs() < 0.005, "{sum} {class}");
    }
    let line = &chart(&page, "Calibration")[0]["points"];
    let pairs =
        bins.as_array().unwrap().iter().map(|one| json!([one["confidence"], one["accuracy"]]));
    assert_eq!(*line, pairs.collect::<Value>());
    let error = bins.as_array().unwrap().iter().map(|one| {
        let of = |key: &str| one[key].as_f64().unwrap();
        of("rows") * (of("confidence") - of("accuracy")).abs()
    });
    let error = error.sum::<f64>() / all["rows"].as_f64().unwrap();
    assert!((error - all["calibration_error"].as_f64().unwrap()).abs() < 1e-9);
    let classes = named(&table(&page, "Each class"));
    assert_eq!(classes.len(), 10);
    for (line, class) in classes.iter().zip(all["classes"].as_array().unwrap()) {
        assert_eq!(line["class"], class["class"].as_str().unwrap());
        is(&line["test rows"], &class["rows"], "rows");
        for column in ["predicted", "recall", "precision", "AUC"] {
            is(&line[column], &class[column.to_lowercase()], column);
        }
    }
    let matrix = table(&page, "Confusion matrix");
    assert_eq!(matrix.len(), 11);
    for (class, line) in matrix[1..].iter().enumerate() {
        assert_eq!((&line[0], &matrix[0][class + 1]), (&class.to_string(), &class.to_string()));
        for (other, cell) in line[1..].iter().enumerate() {
            assert_eq!(cell, &all["confusion"][class][other].to_string(), "{class} as {other}");
        }
    }
}

#[test]
fn sites_with_test_rows_of_their_own_show_both_models() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 20");
    let nodes = NAMES.map(|name| deployment.start(name));
    for mut node in nodes {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    let run = deployment.run("oslo");
    let (page, summary) = (page(&run), read_json(&run.join("summary.json")));
    let lines = named(&table(&page, "Figures on test rows"));
    assert_eq!(lines.len(), 4);
    for (line, (name, part)) in lines[1..].iter().zip(summary["participation"].as_object().unwrap())
    {
        assert_eq!(&line["node"], name);
        for (own, key) in [("", "test_of_mean"), ("own ", "test")] {
            line_is(line, own, &part["rows"], &part[key]);
        }
    }
}

#[test]
fn of_many_classes_the_largest_confusions_are_listed() {
    // 24 classes on a line, of which neighbours are hard to tell apart.
    let line = |i: usize| {
        let class = i % 24;
        let x = class as f64 + ((i * 7) % 11) as f64 / 5.0;
        format!("{x},{},class-{class:02}\n", x * x / 24.0)
    };
    let text = "x,y,class\n".to_string() + &(0..1200).map(line).collect::<String>();
    let (_folder, run) = run_on(&text, &["model.kind=softmax", "optimizer.step=0.5"]);
    let (page, summary) = (page(&run), read_json(&run.join("summary.json")));
    assert!(!has_matrix(&page));
    let all = &summary["final"]["test"];
    let rows = |class: usize, other: usize| all["confusion"][class][other].as_u64().unwrap();
    let shown = named(&table(&page, "The largest confusions"));
    assert_eq!(shown.len(), 20);
    let mut last = u64::MAX;
    let number = |name: &str| name.strip_prefix("class-").unwrap().parse::<usize>().unwrap();
    for line in &shown {
        let (class, other) = (number(&line["class"]), number(&line["predicted as"]));
        let confused = rows(class, other);
        assert!(class != other && confused <= last, "{line:?}");
        assert_eq!(line["test rows"], confused.to_string());
        let whole: u64 = (0..24).map(|other| rows(class, other)).sum();
        is(&line["share of the class"], &(confused as f64 / whole as f64).into(), "share");
        last = confused;
    }
    let pairs = (0..24).flat_map(|a| (0..24).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let most = pairs.clone().map(|(a, b)| rows(a, b)).max().unwrap();
    assert_eq!(shown[0]["test rows"], most.to_string());
    let wrong = pairs.filter(|(a, b)| rows(*a, *b) > 0).count();
    let more = format!("{} more pairs are in summary.json.", wrong - 20);
    assert!(page.to_string().contains(&more), "{more}");
    // Of the classes those that are found least.
    let classes = named(&table(&page, "classes with the least recall"));
    let recalls: Vec<f64> =
        classes.iter().map(|line| line["recall"].replace(" %", "").parse().unwrap()).collect();
    assert!(recalls.len() == 20 && recalls.is_sorted(), "{recalls:?}");
}

#[test]
fn figures_of_numbers_are_those_of_the_summary() {
    let line = |i: usize| {
        let (x, y) = ((i % 13) as f64 / 6.0 - 1.0, (i % 7) as f64 / 3.0 - 1.0);
        format!("{x},{y},{},{}\n", 2.0 * x - y, ((i * 5) % 17) as f64)
    };
    let text = "x,y,load,noise\n".to_string() + &(0..300).map(line).collect::<String>();
    let (_folder, run) = run_on(
        &text,
        &["model.kind=least-squares", "data.split=iid", "data.target=\"load,noise\""],
    );
    let (page, summary) = (page(&run), read_json(&run.join("summary.json")));
    let all = &summary["final"]["test"];
    let lines = named(&table(&page, "Figures on test rows"));
    assert_eq!(lines.len(), 2 * 4);
    for (line, output) in lines.iter().zip(all["outputs"].as_array().unwrap()) {
        assert_eq!(line["number"], output["output"].as_str().unwrap());
        for (column, key) in [
            ("RMSE", "rmse"),
            ("RMSE of the baseline", "baseline_rmse"),
            ("MAE", "mae"),
            ("R2", "r2"),
        ] {
            assert!(!output[key].is_null());
            is(&line[column], &output[key], column);
        }
        is(&line["test rows"], &all["rows"], "rows");
    }
    let measures = page["runs"][0]["whole"]["measures"].as_object().unwrap();
    assert_eq!(measures.keys().collect::<Vec<_>>(), ["test_loss"]);
    assert!(!has_matrix(&page));
}

#[test]
fn warnings_of_the_summary_are_on_the_page() {
    // One class in twelve, at random places: no model is better than the frequent one.
    let line = |i: usize| {
        let (x, y) = ((i * 7) % 13, (i * 5) % 11);
        format!("{x},{y},{}\n", if i % 12 == 5 { "ill" } else { "healthy" })
    };
    let text = "x,y,state\n".to_string() + &(0..600).map(line).collect::<String>();
    let (_folder, run) = run_on(&text, &["model.kind=softmax", "data.split=iid"]);
    let summary = read_json(&run.join("summary.json"));
    let warnings = summary["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    // There are 143 different pairs of features.
    let repeated = "120 of the 120 test rows have the features of rows that are trained on";
    assert!(warnings.iter().any(|one| one.as_str().unwrap().contains(repeated)), "{warnings:?}");
    let notes = blocks(&page(&run)["runs"][0]).remove(0);
    for warning in warnings {
        let text = format!("{}.", warning.as_str().unwrap());
        let note = json!({ "level": "warning", "name": "run", "text": text });
        assert!(notes["notes"].as_array().unwrap().contains(&note), "{note}: {notes}");
    }
}
