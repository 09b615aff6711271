//! `gradvine report` shows the figures of a run's summary: of nodes beside the baseline, of
//! classes, the confusion matrix, the warnings.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Deployment, NAMES, Reach, folder, gradvine, json, simulate};

/// The page of a run.
fn page(run: &Path) -> String {
    let folder = folder();
    let out = folder.path().join("report.html");
    gradvine().arg("report").arg(run).args(["-q", "--out"]).arg(&out).assert().success();
    fs::read_to_string(out).unwrap()
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

/// The text of HTML without markup.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for piece in html.split('<') {
        text += piece.split_once('>').map_or(piece, |(_, text)| text);
    }
    text.replace("&quot;", "\"").trim().to_string()
}

/// The cells of the tables whose caption contains these words, line by line, the head first.
fn tables(html: &str, caption: &str) -> Vec<Vec<Vec<String>>> {
    let named = |table: &&str| table.split("</caption>").next().unwrap().contains(caption);
    let table = |text: &str| {
        let body = text.split("</table>").next().unwrap();
        let line = |line: &str| line.split("<t").filter_map(cell).collect::<Vec<_>>();
        body.split("<tr>").skip(1).map(line).collect()
    };
    html.split("<table").skip(1).filter(named).map(table).collect()
}

fn cell(text: &str) -> Option<String> {
    let is_cell = ["h>", "h ", "d>", "d "].iter().any(|tag| text.starts_with(tag));
    is_cell.then(|| plain(&format!("<t{text}")))
}

fn table(html: &str, caption: &str) -> Vec<Vec<String>> {
    let mut tables = tables(html, caption);
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

/// The data of the chart with this anchor.
fn chart(html: &str, id: &str) -> Value {
    let figure = html.split_once(&format!("<figure id=\"{id}\"")).unwrap().1;
    let data = figure.split_once("<script type=\"application/json\">").unwrap().1;
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn figures_of_nodes_and_classes_are_those_of_the_summary() {
    let folder = folder();
    let run = folder.path().join("run");
    simulate(folder.path(), "run", &["--topology", "ring:4", "--rounds", "60"], &[]).success();
    let (html, summary) = (page(&run), json(&run.join("summary.json")));
    let all = &summary["final"]["test"];
    let nodes = named(&table(&html, "Figures on test rows"));
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
    let (roc, bins) = (chart(&html, "roc"), &all["calibration"]);
    for (line, class) in
        roc["series"].as_array().unwrap().iter().zip(all["classes"].as_array().unwrap())
    {
        assert_eq!(line["name"], class["class"]);
        let points = class["roc"].as_array().unwrap();
        let found: Vec<&Value> = points.iter().map(|point| &point[1]).collect();
        assert_eq!(line["mean"].as_array().unwrap().iter().collect::<Vec<_>>(), found);
        // Trapezoids of points that are rounded, and a percent apart at the least.
        let area = |pair: &[Value]| {
            let at = |point: usize, side: usize| pair[point][side].as_f64().unwrap();
            (at(1, 0) - at(0, 0)) * (at(0, 1) + at(1, 1)) / 2.0
        };
        let sum: f64 = points.windows(2).map(area).sum();
        assert!((sum - class["auc"].as_f64().unwrap()).abs() < 0.005, "{sum} {class}");
    }
    let line = &chart(&html, "calibration")["series"][0]["mean"];
    let accuracies: Vec<&Value> =
        bins.as_array().unwrap().iter().map(|one| &one["accuracy"]).collect();
    assert_eq!(line.as_array().unwrap().iter().collect::<Vec<_>>(), accuracies);
    let error = bins.as_array().unwrap().iter().map(|one| {
        let of = |key: &str| one[key].as_f64().unwrap();
        of("rows") * (of("confidence") - of("accuracy")).abs()
    });
    let error = error.sum::<f64>() / all["rows"].as_f64().unwrap();
    assert!((error - all["calibration_error"].as_f64().unwrap()).abs() < 1e-9);
    let classes = named(&table(&html, "Each class"));
    assert_eq!(classes.len(), 10);
    for (line, class) in classes.iter().zip(all["classes"].as_array().unwrap()) {
        assert_eq!(line["class"], class["class"].as_str().unwrap());
        is(&line["test rows"], &class["rows"], "rows");
        for column in ["predicted", "recall", "precision", "AUC"] {
            is(&line[column], &class[column.to_lowercase()], column);
        }
    }
    let matrix = table(&html, "Confusion matrix");
    assert_eq!(matrix.len(), 11);
    for (class, line) in matrix[1..].iter().enumerate() {
        assert_eq!((&line[0], &matrix[0][class + 1]), (&class.to_string(), &class.to_string()));
        for (other, cell) in line[1..].iter().enumerate() {
            assert_eq!(cell, &all["confusion"][class][other].to_string(), "{class} as {other}");
        }
    }
    // Right and wrong rows have their colours, by the root of their share of the class.
    let right = all["confusion"][0][0].as_f64().unwrap();
    let rows = all["classes"][0]["rows"].as_f64().unwrap();
    let shade = format!("strong\" style=\"--s:{:.2}\">{right}<", (right / rows).sqrt());
    assert!(html.contains(&format!("class=\"n hit {shade}")), "{shade}");
    assert!(html.contains("class=\"n miss"));
}

#[test]
fn sites_with_test_rows_of_their_own_show_both_models() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 20");
    let nodes = NAMES.map(|name| deployment.start(name));
    for mut node in nodes {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    let run = deployment.run("oslo");
    let (html, summary) = (page(&run), json(&run.join("summary.json")));
    let lines = named(&table(&html, "Figures on test rows"));
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
    let (html, summary) = (page(&run), json(&run.join("summary.json")));
    assert!(!html.contains("class=\"confusion\""));
    let all = &summary["final"]["test"];
    let rows = |class: usize, other: usize| all["confusion"][class][other].as_u64().unwrap();
    let shown = named(&table(&html, "The largest confusions"));
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
    assert!(html.contains(&format!("{} more pairs are in summary.json.", wrong - 20)));
    // Of the classes those that are found least.
    let classes = named(&table(&html, "classes with the least recall"));
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
    let (html, summary) = (page(&run), json(&run.join("summary.json")));
    let all = &summary["final"]["test"];
    let lines = named(&table(&html, "Figures on test rows"));
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
    assert!(html.contains("<figure id=\"test-loss-rounds\"") && !html.contains("id=\"accuracy-r"));
    assert!(!html.contains("class=\"confusion\""));
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
    let summary = json(&run.join("summary.json"));
    let warnings = summary["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let text = plain(&page(&run));
    for warning in warnings {
        let line = format!("Warning, run: {}.", warning.as_str().unwrap());
        assert!(text.contains(&line), "{line}");
    }
}
