//! `gradvine evaluate`: its figures against those of plain code, and the rows that it scores.

use std::{collections::BTreeMap, fs, path::Path};

use predicates::{boolean::PredicateBooleanExt, str::contains};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{folder, gradvine, json, metrics, simulate, within};

/// Rows of three classes of which the third is rare: x, y and the class.
fn rows(count: usize) -> String {
    let row = |i: usize| {
        let class = if i % 10 == 9 { 2 } else { usize::from(i.is_multiple_of(3)) };
        let noise = |k: usize| ((i * k) % 17) as f64 / 17.0;
        format!("{},{},{class}\n", noise(7) + 0.6 * class as f64, noise(11) - 0.3 * class as f64)
    };
    "x,y,class\n".to_string() + &(0..count).map(row).collect::<String>()
}

/// A folder with `rows.csv` and a run on it.
fn trained(text: &str, settings: &[&str]) -> TempDir {
    let folder = folder();
    fs::write(folder.path().join("rows.csv"), text).unwrap();
    gradvine()
        .current_dir(folder.path())
        .args(["simulate", "--topology", "path:3", "--set", "data.source=rows.csv"])
        .args(["--set", "model.kind=softmax", "-q", "--out", "run"])
        .args(settings)
        .assert()
        .success();
    folder
}

fn evaluated(folder: &Path, arguments: &[&str]) -> Value {
    let output = gradvine()
        .current_dir(folder)
        .args(["evaluate", "run", "--json"])
        .args(arguments)
        .assert()
        .success();
    serde_json::from_slice(&output.get_output().stdout).unwrap()
}

/// The numbers of the lines of `gradvine predict`, without the row's number.
fn predicted(folder: &Path) -> Vec<Vec<f64>> {
    let output = within(folder, &["predict", "run", "rows.csv"]).success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let numbers = |line: &str| line.split(',').skip(1).map(|cell| cell.parse().unwrap()).collect();
    text.lines().skip(1).map(numbers).collect()
}

fn close(value: &Value, expected: f64, what: &str) {
    let value = value.as_f64().unwrap_or_else(|| panic!("{what}: {value}"));
    assert!((value - expected).abs() < 1e-5, "{what}: {value} instead of {expected}");
}

#[test]
fn figures_of_classes_follow_from_the_predictions() {
    let text = rows(200);
    let folder = trained(&text, &["--rounds", "40"]);
    let score = evaluated(folder.path(), &["rows.csv", "--rows", "all"]);
    let labels: Vec<usize> = text
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
        .collect();
    let lines = predicted(folder.path());
    let mut confusion = [[0u64; 3]; 3];
    for (line, &label) in lines.iter().zip(&labels) {
        confusion[label][line[0] as usize] += 1;
    }
    assert_eq!(score["rows"], 200);
    assert_eq!(score["confusion"], serde_json::json!(confusion));
    let (mut recalls, mut areas) = (0.0, 0.0);
    for class in 0..3 {
        let of_class: u64 = confusion[class].iter().sum();
        let found: u64 = confusion.iter().map(|row| row[class]).sum();
        let figures = &score["classes"][class];
        assert_eq!((&figures["rows"], &figures["predicted"]), (&of_class.into(), &found.into()));
        let right = confusion[class][class] as f64;
        recalls += right / of_class as f64;
        close(&figures["recall"], right / of_class as f64, "recall");
        match found {
            0 => assert!(figures["precision"].is_null()),
            found => close(&figures["precision"], right / found as f64, "precision"),
        }
        let (mut won, mut pairs) = (0.0, 0.0);
        for (a, _) in labels.iter().enumerate().filter(|(_, label)| **label == class) {
            for (b, _) in labels.iter().enumerate().filter(|(_, label)| **label != class) {
                let (a, b) = (lines[a][1 + class], lines[b][1 + class]);
                pairs += 1.0;
                won += f64::from(u8::from(a > b)) + 0.5 * f64::from(u8::from(a == b));
            }
        }
        areas += won / pairs;
        close(&figures["auc"], won / pairs, "area");
    }
    close(&score["balanced_accuracy"], recalls / 3.0, "balanced accuracy");
    close(&score["auc"], areas / 3.0, "mean area");
    let right: u64 = (0..3).map(|class| confusion[class][class]).sum();
    close(&score["accuracy"], right as f64 / 200.0, "accuracy");
    let loss = lines.iter().zip(&labels).map(|(line, &label)| -line[1 + label].ln()).sum::<f64>();
    close(&score["loss"], loss / 200.0, "loss");
    let mut bins = [(0.0f64, 0.0f64); 10];
    for (line, &label) in lines.iter().zip(&labels) {
        let confidence = line[1..].iter().copied().fold(0.0, f64::max);
        let bin = &mut bins[((confidence * 10.0) as usize).min(9)];
        bin.0 += confidence;
        bin.1 += f64::from(u8::from(line[0] as usize == label));
    }
    let distance = bins.iter().map(|(sum, right)| (sum - right).abs()).sum::<f64>() / 200.0;
    close(&score["calibration_error"], distance, "calibration");
    let most = (0..3).map(|class| labels.iter().filter(|l| **l == class).count()).max().unwrap();
    close(&score["baseline"]["accuracy"], most as f64 / 200.0, "baseline");
}

#[test]
fn figures_of_numbers_follow_from_the_predictions() {
    let row = |i: usize| {
        let (x, y) = ((i % 7) as f64, (i % 5) as f64);
        format!("{x},{y},{},{}\n", x - 2.0 * y + (i % 3) as f64, 3.0 * y)
    };
    let text = "x,y,price,days\n".to_string() + &(0..120).map(row).collect::<String>();
    figures_of_numbers(&text, &["--set", "model.kind=least-squares"]);
    let network = ["model.kind=mlp", "model.task=regression", "model.hidden=[6]"];
    figures_of_numbers(&text, &network.map(|set| ["--set", set]).concat());
}

fn figures_of_numbers(text: &str, model: &[&str]) {
    let settings = ["--rounds", "30", "--set", "data.target=price,days", "--set", "data.split=iid"];
    let folder = trained(text, &[&settings, model].concat());
    let score = evaluated(folder.path(), &["rows.csv", "--rows", "all"]);
    let lines = predicted(folder.path());
    for output in 0..2 {
        let values: Vec<f64> = text
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(2 + output).unwrap().parse().unwrap())
            .collect();
        let middle = values.iter().sum::<f64>() / 120.0;
        let pairs = || values.iter().zip(lines.iter().map(|line| line[output]));
        let square: f64 = pairs().map(|(y, p)| (y - p).powi(2)).sum();
        let around: f64 = values.iter().map(|y| (y - middle).powi(2)).sum();
        let figures = &score["outputs"][output];
        assert_eq!(figures["name"], ["price", "days"][output]);
        close(&figures["mae"], pairs().map(|(y, p)| (y - p).abs()).sum::<f64>() / 120.0, "MAE");
        close(&figures["rmse"], (square / 120.0).sqrt(), "RMSE");
        close(&figures["r2"], 1.0 - square / around, "R2");
        close(&figures["baseline_rmse"], (around / 120.0).sqrt(), "baseline");
    }
    within(folder.path(), &["evaluate", "run/model-mean.safetensors", "rows.csv"])
        .success()
        .stdout(contains("target").and(contains("R2")).and(contains("\nprice ")));
}

/// A parabola, which no line fits: with nodes of their own, then all in one process.
#[test]
#[ignore = "slow"]
fn a_network_learns_numbers() {
    let x = |i: usize| (i * 37 % 101) as f64 / 50.0 - 1.0;
    let row = |i: usize| format!("{},{}\n", x(i), 4.0 * x(i) * x(i));
    let folder = folder();
    let path = folder.path();
    fs::write(path.join("rows.csv"), "x,y\n".to_string() + &(0..202).map(row).collect::<String>())
        .unwrap();
    let run = |command: &[&str], model: &[&str], out: &str| {
        let common = ["data.source=rows.csv", "data.split=iid", "optimizer.step=0.1"];
        let settings = common.iter().chain(model).flat_map(|set| ["--set", set]);
        gradvine()
            .current_dir(path)
            .args(command)
            .args(["--topology", "path:2", "--rounds", "300", "-q", "--out", out])
            .args(settings)
            .assert()
            .success();
        json(&path.join(out).join("summary.json"))
    };
    let network = ["model.kind=mlp", "model.task=regression", "model.hidden=[16]"];
    let apart = run(&["train", "--processes"], &network, "apart");
    let together = run(&["train"], &network, "together");
    assert_eq!(together["digest"], run(&["simulate"], &network, "simulated")["digest"]);
    let line = run(&["simulate"], &["model.kind=least-squares"], "line");
    let figures = |summary: &Value| summary["final"]["test"]["outputs"][0].clone();
    assert!(figures(&line)["r2"].as_f64().unwrap() < 0.2, "{line}");
    for summary in [&apart, &together] {
        let figures = figures(summary);
        assert!(figures["r2"].as_f64().unwrap() > 0.9, "{figures}");
        let number = |key: &str| figures[key].as_f64().unwrap();
        assert!(number("rmse") < 0.3 * number("baseline_rmse"), "{figures}");
        assert!(number("mae") <= number("rmse"), "{figures}");
    }
    let bytes = fs::read(path.join("together/model-mean.safetensors")).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains(r#""gradvine.task":"regression""#));
}

#[test]
fn rows_that_were_held_out_are_told_from_others() {
    let folder = trained(&rows(200), &["--rounds", "5"]);
    let path = folder.path();
    let usage = |arguments: &[&str]| {
        let score = evaluated(path, arguments);
        (score["rows"].as_u64().unwrap(), score["rows_are"].as_str().unwrap().to_string())
    };
    assert_eq!(usage(&["rows.csv"]), (40, "held-out".into()));
    assert_eq!(usage(&["rows.csv", "--rows", "held-out"]).0, 40);
    let (all, words) = usage(&["rows.csv", "--rows", "all"]);
    assert_eq!((all, words.as_str()), (200, "partly-trained-on"));
    let other = |i: usize| format!("{},{},{}\n", 9.0 + 0.37 * i as f64, i, i % 3);
    let others = "x,y,class\n".to_string() + &(0..200).map(other).collect::<String>();
    fs::write(path.join("other.csv"), &others).unwrap();
    assert_eq!(usage(&["other.csv"]), (200, "not-read".into()));
    let evaluate = |arguments: &[&str]| {
        let mut command = gradvine();
        command.current_dir(path).arg("evaluate").args(arguments);
        command.assert()
    };
    evaluate(&["run/model-mean.safetensors", "other.csv", "--rows", "held-out"])
        .code(2)
        .stderr(contains("--rows = held-out: beside the model no data.json"));
    // A file that was edited after the run: one row more, other labels, another order.
    let lines = || others.lines().skip(1).map(String::from);
    let table = |rows: Vec<String>| format!("x,y,class\n{}\n", rows.join("\n"));
    let twice = trained(&table(lines().collect()), &["--rounds", "2"]);
    let edited = |rows: Vec<String>| {
        fs::write(twice.path().join("rows.csv"), table(rows)).unwrap();
        let score = evaluated(twice.path(), &["rows.csv"]);
        (score["rows"].as_u64().unwrap(), score["rows_are"].as_str().unwrap().to_string())
    };
    let partly = || "partly-trained-on".to_string();
    assert_eq!(edited(lines().chain(["5,5,1".into()]).collect()), (201, partly()));
    let relabelled = |line: String| line[..line.len() - 1].to_string() + "1";
    assert_eq!(edited(lines().map(relabelled).collect()), (200, partly()));
    let reversed: Vec<String> = lines().collect::<Vec<_>>().into_iter().rev().collect();
    assert_eq!(edited(reversed), (200, partly()));
    within(twice.path(), &["evaluate", "run", "rows.csv"])
        .success()
        .stdout(contains("of which 160 equal rows that were trained on"))
        .stderr(contains("warning: 160 of these 200 rows have the features of rows that"));
    assert_eq!(edited(lines().map(|line| format!("1{line}")).collect()).1, "not-read");
    // A record that cannot be used is not ignored.
    fs::write(path.join("run/data.json"), "[{}]").unwrap();
    evaluate(&["run/model-mean.safetensors", "rows.csv"])
        .code(2)
        .stderr(contains("data.json: is not a record of a run's data"));

    // Nodes with a file of their own test rows.
    let started = gradvine()
        .current_dir(path)
        .args(["train", "--processes", "--topology", "path:2", "--rounds", "2", "-q"])
        .args(["--set", "data.source=rows.csv", "--set", "model.kind=softmax", "--out", "many"])
        .assert();
    started.success();
    let model = "many/nodes/1/run/model-mean.safetensors";
    evaluate(&[model, "many/nodes/test.csv"])
        .success()
        .stdout(contains("40 (held out of training)"));
    evaluate(&[model, "many/nodes/1/data.csv"])
        .success()
        .stdout(contains("(trained on)"))
        .stderr(contains("warning: the model was trained on these rows"));
    evaluate(&[model, "many/nodes/1/data.csv", "--rows", "held-out"])
        .code(2)
        .stderr(contains("the run has trained on all of these rows"));
}

#[test]
fn figures_that_could_mislead_are_warned_of() {
    // One class in nine of ten rows, and features that say nothing.
    let row = |i: usize| format!("{},{}\n", (i * 7) % 13, u8::from(i.is_multiple_of(10)));
    let text = "x,sick\n".to_string() + &(0..300).map(row).collect::<String>();
    let folder = trained(&text, &["--rounds", "20", "--set", "data.split=iid"]);
    within(folder.path(), &["evaluate", "run/model-mean.safetensors", "rows.csv"])
        .success()
        .stderr(
            contains("warning: the model (90.00%) is not better than always predicting \"0\"")
                .and(contains("warning: the classes are not balanced: 90.00% of the rows are")),
        );
    let one = "x,sick\n1,0\n2,0\n";
    fs::write(folder.path().join("one.csv"), one).unwrap();
    within(folder.path(), &["evaluate", "run/model-mean.safetensors", "one.csv"])
        .success()
        .stderr(contains("warning: no row is of class 1"));
}

#[test]
#[ignore = "slow"]
fn rows_are_read_from_standard_input_and_from_the_files_of_a_folder() {
    let text = rows(60);
    let folder = trained(&text, &[]);
    let path = folder.path();
    let expected = within(path, &["predict", "run", "rows.csv"]).success();
    let expected = String::from_utf8(expected.get_output().stdout.clone()).unwrap();
    let piped = |command: &str, text: &str| {
        gradvine().current_dir(path).args([command, "run", "-"]).write_stdin(text).assert()
    };
    piped("predict", &text).success().stdout(expected.clone());
    piped("evaluate", &text).success().stdout(contains("held out of training"));
    piped("evaluate", "x,y,class\n1,2,0\n1,?,0\n").code(2).stderr(contains(
        "standard input: line 3, column 1 (y) = \"?\": text, but a number is needed",
    ));
    // Without names the order of the columns counts, which is said.
    let bare: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let unnamed = "the columns of - have no names: they are taken in the order of the training";
    piped("predict", &bare).success().stdout(expected.clone()).stderr(contains(unnamed));
    // The same rows in two files, of which the second has its columns in another order.
    let lines: Vec<&str> = text.lines().collect();
    let turned = |line: &&str| line.split(',').rev().collect::<Vec<&str>>().join(",") + "\n";
    let second: String = lines[..1].iter().chain(&lines[31..]).map(turned).collect();
    fs::create_dir(path.join("parts")).unwrap();
    fs::write(path.join("parts/1.csv"), lines[..31].join("\n")).unwrap();
    fs::write(path.join("parts/2.csv"), second).unwrap();
    within(path, &["predict", "run", "parts"]).success().stdout(expected);
    // The run has read the same rows.
    let value = evaluated(path, &["parts"]);
    assert_eq!(value["rows_are"], "held-out");
    assert_eq!(value["loss"], evaluated(path, &["rows.csv"])["loss"]);
    let digest = |out: &str, source: &str| {
        let sets = ["model.kind=softmax", &format!("data.source={source}")];
        simulate(path, out, &["--topology", "path:3"], &sets).success();
        json(&path.join(out).join("summary.json"))["digest"].clone()
    };
    assert_eq!(digest("one", "rows.csv"), digest("two", "parts"));
}

#[test]
fn a_run_that_begins_with_a_model_keeps_its_scale_and_the_record_of_its_rows() {
    let folder = folder();
    let path = folder.path();
    // Far from 0: a model of scaled features knows nothing of these as they are.
    let row = |i: usize| format!("{},{},{}\n", 500 + i, 3 * (i % 2), i % 2);
    let text = "x,y,class\n".to_string() + &(0..200).map(row).collect::<String>();
    fs::write(path.join("rows.csv"), text).unwrap();
    let simulate = |out: &str, arguments: &[&str]| {
        let arguments = [&["--topology", "ring:3"], arguments].concat();
        simulate(path, out, &arguments, &["data.source=rows.csv", "model.kind=softmax"])
    };
    let loss = |out: &str| {
        json(&path.join(out).join("summary.json"))["final"]["train_loss"].as_f64().unwrap()
    };
    let scaled = ["--set", "data.standardize=true"];
    let still = ["--rounds", "1", "--set", "optimizer.step=0"];
    simulate("scaled", &[&scaled[..], &["--rounds", "100"]].concat()).success();
    let init = ["--init", "scaled/model-mean.safetensors"];
    simulate("next", &[&init[..], &still, &["--set", "data.standardize=false"]].concat()).success();
    close(&loss("next").into(), loss("scaled"), "the loss of the same model");
    simulate("raw", &["--rounds", "2", "--set", "data.standardize=false"]).success();
    let init_raw = ["--init", "raw/model-mean.safetensors"];
    simulate("wrong", &[&init_raw[..], &still, &scaled].concat())
        .code(2)
        .stderr(contains("was trained on features that were not scaled"));

    // Other rows are drawn for tests, of which the first run has trained on some.
    simulate("other", &[&init[..], &still, &["--seed", "2"]].concat()).success();
    let text = fs::read_to_string(path.join("other/summary.json")).unwrap();
    assert!(text.contains("of the 40 rows that this run tests on"), "{text}");
    let output = within(path, &["evaluate", "other", "rows.csv", "--json"]).success();
    let score: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    // Held out by both runs, with chance 1 / 5 each.
    let rows = score["rows"].as_u64().unwrap();
    assert!((1..20).contains(&rows), "{score}");
}

#[test]
fn bytes_of_nodes_that_were_away_are_counted() {
    let folder = folder();
    let text = "x,y,class\n".to_string()
        + &(0..100).map(|i| format!("{},{},{}\n", i % 7, i % 5, i % 2)).collect::<String>();
    fs::write(folder.path().join("rows.csv"), text).unwrap();
    let sets = [
        "data.source=rows.csv",
        "model.kind=softmax",
        "absence.policy=continue",
        "run.evaluate_every=1",
        "network.absent=[{nodes=[\"1\"],from=5,until=10},{nodes=[\"3\",\"4\"],from=12,until=13}]",
    ];
    let arguments = ["--topology", "complete:5", "--rounds", "20"];
    simulate(folder.path(), "run", &arguments, &sets).success();
    let summary = json(&folder.path().join("run/summary.json"));
    let sent = |node: &str| summary["participation"][node]["bytes_payload"].as_u64().unwrap();
    // Frames, by hand: a frame to each other member in each round. All are members in 14 rounds,
    // 1 is away in 5, 3 and 4 in 1.
    let frames = [14 * 4 + 5 * 3 + 2, 14 * 4 + 2, 14 * 4 + 5 * 3 + 2, 14 * 4 + 15, 14 * 4 + 15];
    let frame = sent("0") / frames[0];
    for (node, frames) in frames.into_iter().enumerate() {
        assert_eq!(sent(&node.to_string()), frame * frames, "node {node}");
    }
    let rounds = |node: &str| summary["participation"][node]["rounds"].as_u64().unwrap();
    assert_eq!(["0", "1", "2", "3", "4"].map(rounds), [20, 15, 20, 19, 19]);
    // Those who are present are evaluated in each round.
    let mut nodes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in metrics(&folder.path().join("run")) {
        assert!(line["train_loss"].is_f64() && line["consensus"].is_f64(), "{line}");
        nodes
            .entry(line["round"].as_u64().unwrap())
            .or_default()
            .push(line["node"].as_u64().unwrap());
    }
    for round in 1..=20 {
        let expected = match round {
            6..=10 => vec![0, 2, 3, 4],
            13 => vec![0, 1, 2],
            _ => vec![0, 1, 2, 3, 4],
        };
        assert_eq!(nodes[&round], expected, "round {round}");
    }
}

#[test]
fn predicted_numbers_have_the_name_of_their_column_however_it_was_chosen() {
    let folder = folder();
    let text = "x,y,t\n".to_string()
        + &(0..60).map(|i| format!("{},{},{}\n", i % 7, i % 5, i % 11)).collect::<String>();
    fs::write(folder.path().join("rows.csv"), text).unwrap();
    let sets = [
        "data.source=rows.csv",
        "model.kind=least-squares",
        "optimizer.step=0.001",
        "data.split=iid",
    ];
    for (out, target) in
        [("none", &[][..]), ("last", &["data.target=-1"]), ("named", &["data.target=t"])]
    {
        let arguments = ["--topology", "ring:3", "--rounds", "3"];
        simulate(folder.path(), out, &arguments, &[&sets[..], target].concat()).success();
        let summary = json(&folder.path().join(out).join("summary.json"));
        assert_eq!(summary["final"]["test"]["outputs"][0]["output"], "t", "{target:?}: {summary}");
    }
}

#[test]
fn a_model_that_was_given_away_alone_has_no_record() {
    let folder = trained(&rows(60), &["--rounds", "2"]);
    let path = folder.path();
    fs::create_dir(path.join("away")).unwrap();
    fs::copy(path.join("run/model-mean.safetensors"), path.join("away/alone.safetensors")).unwrap();
    within(path, &["evaluate", "away/alone.safetensors", "rows.csv"])
        .success()
        .stdout(contains("trained on or not: no record"))
        .stderr(contains("may have been trained on these rows"));
}
