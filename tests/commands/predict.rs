//! `gradvine predict`: identifiers of rows, names of classes, forms of the output.

use std::{fs, path::Path};

use predicates::{boolean::PredicateBooleanExt, str::contains};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{folder, gradvine, simulate, within};

/// Identifiers that a careless writer of CSV text spoils.
const IDS: [&str; 4] = ["007", "high street, 7", "the \"old\" one", "\u{e9}\u{df} 1e3"];

/// A model of rows `x,y,kind`, two classes with names; x decides.
fn trained() -> TempDir {
    let folder = folder();
    let kind = |i: usize| ["good, cheap", "bad"][i % 2];
    let row = |i: usize| format!("{},{},\"{}\"\n", i % 2, i % 3, kind(i));
    fs::write(
        folder.path().join("train.csv"),
        "x,y,kind\n".to_string() + &(0..60).map(row).collect::<String>(),
    )
    .unwrap();
    let sets =
        ["data.source=train.csv", "model.kind=softmax", "optimizer.step=1", "data.split=iid"];
    simulate(folder.path(), "run", &["--topology", "path:3", "--rounds", "100"], &sets).success();
    folder
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Rows to predict, with their identifier in this column.
fn rows(column: usize, header: bool, target: bool) -> String {
    let names = ["x", "y", "kind"].map(String::from);
    let line = |mut cells: Vec<String>, id: String| {
        if !target {
            cells.truncate(2);
        }
        cells.insert(column, id);
        cells.join(",") + "\n"
    };
    let mut text = if header { line(names.to_vec(), "patient, id".into()) } else { String::new() };
    text = text.replace("patient, id", "\"patient, id\"");
    for (i, id) in IDS.into_iter().enumerate() {
        let cells = [(i % 2).to_string(), (i % 3).to_string(), "bad".into()];
        text += &line(cells.to_vec(), quoted(id));
    }
    text
}

fn output(folder: &Path, input: &str, arguments: &[&str]) -> String {
    let done = gradvine()
        .current_dir(folder)
        .args(["predict", "run", "-"])
        .args(arguments)
        .write_stdin(input)
        .assert()
        .success();
    String::from_utf8(done.get_output().stdout.clone()).unwrap()
}

/// Cells of CSV text by a reader of its own.
fn cells(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let cells = |record: csv::StringRecord| record.iter().map(String::from).collect();
    reader.records().map(|record| cells(record.unwrap())).collect()
}

#[test]
#[ignore = "slow"]
fn identifiers_are_copied_whatever_their_text() {
    let folder = trained();
    let text = output(folder.path(), &rows(0, true, true), &["--id", "patient, id"]);
    let all = cells(&text);
    assert_eq!(all[0], ["patient, id", "prediction", "p(bad)", "p(good, cheap)"]);
    for (i, (line, id)) in all[1..].iter().zip(IDS).enumerate() {
        assert_eq!((line[0].as_str(), line[1].as_str()), (id, ["good, cheap", "bad"][i % 2]));
        let (bad, good): (f64, f64) = (line[2].parse().unwrap(), line[3].parse().unwrap());
        assert!((bad + good - 1.0).abs() < 1e-5 && (bad > good) == (i % 2 == 1), "{line:?}");
    }
    assert_eq!(all.len(), 1 + IDS.len());
    // Wherever the column is, with and without a header or a target.
    let body = text.split_once('\n').unwrap().1;
    for column in [0, 1, 2, 3] {
        for (header, target) in [(true, true), (true, false), (false, true), (false, false)] {
            if column == 3 && !target {
                continue;
            }
            let (input, position) = (rows(column, header, target), column.to_string());
            let back = format!("-{}", 3 + usize::from(target) - column);
            for id in [&position, &back] {
                let text = output(folder.path(), &input, &["--id", id]);
                let (head, rest) = text.split_once('\n').unwrap();
                assert_eq!(rest, body, "column {column}, {header}, {target}");
                assert!(
                    head.starts_with(if header { "\"patient, id\"," } else { "id," }),
                    "{head}"
                );
            }
        }
    }
    // Any column identifies rows, also the target.
    let truth = output(folder.path(), &rows(0, true, true), &["--id", "kind"]);
    assert!(truth.starts_with("kind,prediction,") && truth.contains("\nbad,\"good, cheap\","));
}

#[test]
fn json_lines_have_an_object_for_each_row() {
    let folder = trained();
    let arguments = ["--id", "patient, id", "--format", "jsonl", "--out", "p.jsonl"];
    assert_eq!(output(folder.path(), &rows(0, true, false), &arguments), "");
    let text = fs::read_to_string(folder.path().join("p.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let table = cells(&output(folder.path(), &rows(0, true, false), &["--id", "0"]));
    for ((line, row), id) in lines.iter().zip(&table[1..]).zip(IDS) {
        assert_eq!((&line["id"], &line["prediction"]), (&json!(id), &json!(row[1])));
        for (name, cell) in [("bad", &row[2]), ("good, cheap", &row[3])] {
            let value = line["probabilities"][name].to_string();
            assert_eq!(value.parse::<f32>().unwrap(), cell.parse::<f32>().unwrap(), "{line}");
        }
        assert_eq!(line.as_object().unwrap().len(), 3);
    }
    assert_eq!(lines.len(), IDS.len());
    // Without an identifier and without names.
    simulate(folder.path(), "digits", &["--rounds", "2"], &["model.kind=softmax"]).success();
    let done =
        within(folder.path(), &["predict", "digits", "digits", "--format", "jsonl"]).success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    let line: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert!(line["row"] == 1 && line["prediction"].is_u64(), "{line}");
    assert_eq!(line["probabilities"].as_object().unwrap().len(), 10);
}

#[test]
fn predicted_numbers_have_the_names_of_the_targets() {
    let folder = folder();
    let row = |i: usize| format!("{},site-{i},{}\n", i % 5, 3 * (i % 5));
    let text = "width,site,price\n".to_string() + &(0..40).map(row).collect::<String>();
    fs::write(folder.path().join("a.csv"), text).unwrap();
    let sets = [
        "data.source=a.csv",
        "model.kind=least-squares",
        "data.split=iid",
        "data.columns=[\"width\"]",
        "data.target=price",
    ];
    simulate(folder.path(), "run", &["--topology", "path:3", "--rounds", "50"], &sets).success();
    let input = "site,width\nnorth,2\n\"\",4\n";
    let text = output(folder.path(), input, &["--id", "site"]);
    let all = cells(&text);
    assert_eq!(all[0], ["site", "price"]);
    assert_eq!((all[1][0].as_str(), all[2][0].as_str()), ("north", ""));
    let text = output(folder.path(), input, &["--id", "site", "--format", "jsonl"]);
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["id"], "north");
    assert_eq!(line["values"]["price"].to_string().parse::<f32>(), all[1][1].parse::<f32>());
    assert_eq!(line.as_object().unwrap().len(), 2);
}

#[test]
fn identifiers_come_from_each_file_of_a_folder_by_name() {
    let folder = trained();
    let parts = folder.path().join("parts");
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("1.csv"), rows(0, true, false)).unwrap();
    fs::write(parts.join("2.csv"), rows(2, true, false)).unwrap();
    let done = within(folder.path(), &["predict", "run", "parts", "--id", "patient, id"]).success();
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    let ids: Vec<String> = cells(&text)[1..].iter().map(|line| line[0].clone()).collect();
    assert_eq!(ids, [IDS, IDS].concat());
}

#[test]
fn an_identifier_that_cannot_be_read_is_refused() {
    let folder = trained();
    let refused = |input: &[u8], data: &str, id: &str, problem: &str| {
        gradvine()
            .current_dir(folder.path())
            .args(["predict", "run", data, "--id", id])
            .write_stdin(input.to_vec())
            .assert()
            .code(2)
            .stderr(contains(problem.to_string()));
    };
    let names = "--id = patient: no such column: one of patient, id, x, y";
    refused(rows(0, true, false).as_bytes(), "-", "patient", names);
    let none = "--id = patient: no such column: there is no header with names";
    refused(rows(0, false, false).as_bytes(), "-", "patient", none);
    refused(b"id,x,y\n\xff,1,2\n", "-", "id", "line 2, column 0 = \"\\xFF\": not UTF-8");
    fs::write(folder.path().join("a.npy"), b"\x93NUMPY").unwrap();
    refused(b"", "a.npy", "0", "--id = 0: only CSV, Parquet and Arrow files have columns of text");
}

#[test]
fn arrays_without_labels_are_predicted_as_rows_of_text_are() {
    let folder = trained();
    let text = "x,y\n0,0\n1,1\n0,1\n1,0\n";
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2), }\n";
    let length = (header.len() as u16).to_le_bytes();
    let numbers = [0, 0, 1, 1, 0, 1, 1, 0];
    let array = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &numbers].concat();
    fs::write(folder.path().join("rows.npy"), array).unwrap();
    let predicted = |data: &str| {
        let arguments = ["predict", "run", data];
        let command =
            gradvine().current_dir(folder.path()).args(arguments).write_stdin(text).assert();
        String::from_utf8(command.success().get_output().stdout.clone()).unwrap()
    };
    assert_eq!(predicted("rows.npy"), predicted("-"));
    assert_eq!(predicted("rows.npy").lines().count(), 5);
    // With a label in the last column, and an evaluation needs one.
    within(folder.path(), &["predict", "run", "rows.npy", "--target", "-1"])
        .code(2)
        .stderr(contains("1 features per row: 2 are expected"));
    within(folder.path(), &["evaluate", "run", "rows.npy", "--rows", "all"])
        .code(2)
        .stderr(contains("1 features per row: 2 are expected"));
}

#[test]
#[cfg(not(feature = "parquet"))]
fn parquet_is_refused_by_a_program_without_it() {
    let arguments = ["predict", "model.safetensors", "digits", "--format", "parquet"];
    let problem = crate::command::refused(gradvine().args(arguments));
    assert!(problem.contains("--features parquet` builds it with it"), "{problem}");
}

#[test]
fn cells_of_the_target_are_not_read() {
    let folder = trained();
    let predictions = |text: &str| cells(&output(folder.path(), text, &[]));
    let without = predictions("x,y\n0,1\n1,2\n");
    assert_eq!(without.len(), 3);
    for text in ["x,y,kind\n0,1,\n1,2,?\n", "kind,y,x\nnever seen,1,0\n,2,1\n"] {
        assert_eq!(predictions(text), without, "{text}");
    }
}

#[test]
fn a_model_without_names_of_columns_says_that_it_takes_them_by_position() {
    let folder = folder();
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i % 2, i % 3, i % 2)).collect();
    fs::write(folder.path().join("train.csv"), rows).unwrap();
    let sets = ["data.source=train.csv", "model.kind=softmax"];
    simulate(folder.path(), "run", &["--topology", "path:2", "--rounds", "3"], &sets).success();
    fs::write(folder.path().join("rows.csv"), "b,a,y\n0,1,0\n").unwrap();
    within(folder.path(), &["predict", "run", "rows.csv"])
        .success()
        .stderr(contains("those of rows.csv are taken by position (b, a)"));
}

#[test]
fn a_folder_of_runs_is_no_run() {
    let folder = trained();
    for command in ["predict", "evaluate"] {
        within(folder.path(), &[command, ".", "train.csv"])
            .code(2)
            .stderr(contains("the folder has no model-mean.safetensors").and(contains("./run")));
    }
}

#[test]
fn classes_have_their_names_without_test_rows() {
    let folder = trained();
    let sets = ["data.source=train.csv", "data.test_share=0", "data.split=iid"];
    gradvine()
        .current_dir(folder.path())
        .args(["simulate", "--topology", "path:3", "--rounds", "2", "--out", "none"])
        .args(sets.iter().flat_map(|set| ["--set", set]))
        .assert()
        .success()
        .stdout(contains("bad (").and(contains("good, cheap (")));
    // One class in all rows: a warning, and no figure that looks good.
    let text = "x,y\n".to_string() + &(0..60).map(|i| format!("{i},yes\n")).collect::<String>();
    fs::write(folder.path().join("one.csv"), text).unwrap();
    gradvine()
        .current_dir(folder.path())
        .args(["simulate", "--topology", "path:3", "--rounds", "2", "--out", "one"])
        .args(["--set", "data.source=one.csv"])
        .assert()
        .success()
        .stdout(contains("\"yes\" is the only class: a model of it is always right"));
}
