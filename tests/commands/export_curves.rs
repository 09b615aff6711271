//! `gradvine export --to csv` and `--to tensorboard`: every value is compared with `metrics.jsonl`.
//! Event files are decoded here by the field numbers of `event.proto` and `summary.proto`. A test
//! of the Python package reads them with TensorBoard.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use predicates::str::contains;
use serde_json::{Value, json};

use crate::{
    command::{self, folder, metrics, within},
    export::Message,
};

const COLUMNS: [&str; 11] = [
    "round",
    "node",
    "time_s",
    "computing_s",
    "train_loss",
    "test_loss",
    "test_accuracy",
    "consensus",
    "bytes_payload",
    "bytes_wire",
    "bytes_dense",
];

/// The tags of event files and the keys of `metrics.jsonl`.
const TAGS: [(&str, &str); 8] = [
    ("train/loss", "train_loss"),
    ("test/loss", "test_loss"),
    ("test/accuracy", "test_accuracy"),
    ("consensus", "consensus"),
    ("bytes/payload", "bytes_payload"),
    ("bytes/wire", "bytes_wire"),
    ("bytes/dense", "bytes_dense"),
    ("time/computing_s", "computing_s"),
];

/// Simulates three nodes in a folder, as the run `run`; each has eight evaluations.
fn simulate(path: &Path) {
    let settings = [
        "data.source=breast-cancer",
        "model.kind=softmax",
        "run.evaluate_every=5",
        "network.compute=fixed",
        "network.compute_ms=3",
        "network.latency_ms=20",
    ];
    let arguments = ["--topology", "path:3", "--rounds", "40", "--no-baseline"];
    command::simulate(path, "run", &arguments, &settings).success();
}

/// Writes other lines into `metrics.jsonl`.
fn rewrite(run: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(run.join("metrics.jsonl"), text).unwrap();
}

/// The same lines, as if programs had brought measures and not every value were known.
fn with_measures(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        if line["node"] == 1 {
            line.remove("test_accuracy");
            line.insert("measures".into(), json!({"perplexity": 0.1 + 0.2, "a, \"b\"": -1e-300}));
        } else if line["round"] == 10 {
            ["train_loss", "consensus"].iter().for_each(|key| _ = line.remove(*key));
            line.insert("measures".into(), json!({"a, \"b\"": 1.5e300}));
        }
    }
    lines
}

/// The table of a file: a map from columns to cells for each row.
fn table(path: &Path) -> (Vec<String>, Vec<BTreeMap<String, String>>) {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(String::from).collect();
    let rows = reader.deserialize().map(|row| row.unwrap()).collect();
    (header, rows)
}

/// The number of a line, or of a measure of the program; `None` if it is not known.
fn value(line: &Value, column: &str) -> Option<f64> {
    match column.strip_prefix("measures.") {
        Some(name) => line["measures"].get(name)?.as_f64(),
        None => line.get(column)?.as_f64(),
    }
}

#[test]
fn a_table_has_every_value_of_every_evaluation() {
    let folder = folder();
    let path = folder.path();
    simulate(path);
    let run = path.join("run");
    within(path, &["export", "run", "--to", "csv"])
        .success()
        .stdout("run/metrics.csv: evaluations: 24, nodes: 3\n");
    assert_eq!(table(&run.join("metrics.csv")).0, COLUMNS, "no measures");
    rewrite(&run, &with_measures(metrics(&run)));
    within(path, &["export", "run", "--format", "csv", "--out", "all.csv"]).success();
    let (header, rows) = table(&path.join("all.csv"));
    assert_eq!(header[..11], COLUMNS);
    assert_eq!(header[11..], ["measures.a, \"b\"", "measures.perplexity"]);
    let lines = metrics(&run);
    assert_eq!((rows.len(), lines.len()), (24, 24));
    let mut empty = 0;
    for (row, line) in rows.iter().zip(&lines) {
        // The nodes of a path are named by their numbers.
        for column in &header {
            let (cell, expected) = (&row[column], value(line, column));
            assert_eq!(cell.parse::<f64>().ok(), expected, "{column} of {line}");
            empty += usize::from(cell.is_empty());
        }
    }
    assert_eq!(empty, 8 + 2 * 2 + (16 - 2) + 16);
    let text = fs::read_to_string(path.join("all.csv")).unwrap();
    assert_eq!((text.matches("\r\n").count(), text.matches('\n').count()), (25, 25));
    assert!(
        text.lines().next().unwrap().ends_with(",\"measures.a, \"\"b\"\"\",measures.perplexity")
    );
}

/// The messages of an event file, whose checksums must be right.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let checked = |part: &[u8], sum: &[u8]| {
        let crc = crc32c::crc32c(part);
        let masked = crc.rotate_left(17).wrapping_add(0xa282_ead8);
        assert_eq!(sum, masked.to_le_bytes());
    };
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (length, after) = rest.split_at(8);
        checked(length, &after[..4]);
        let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
        let (message, after) = after[4..].split_at(length);
        checked(message, &after[..4]);
        found.push(message.to_vec());
        rest = &after[4..];
    }
    found
}

/// `Event`: wall_time = 1, step = 2, file_version = 3, summary = 5. `Summary`: value = 1.
/// `Summary.Value`: tag = 1, simple_value = 2.
fn scalars(event: &Message<'_>) -> BTreeMap<String, f32> {
    let [summary] = event.messages(5).try_into().ok().unwrap();
    let value = |value: &Message<'_>| {
        let [number] = value.all(2).collect::<Vec<_>>()[..] else { panic!("one simple_value") };
        (value.text(1), f32::from_le_bytes(number.bytes().try_into().unwrap()))
    };
    summary.messages(1).iter().map(value).collect()
}

fn wall_time(event: &Message<'_>) -> f64 {
    let [time] = event.all(1).collect::<Vec<_>>()[..] else { panic!("one wall_time") };
    f64::from_le_bytes(time.bytes().try_into().unwrap())
}

fn event_file(folder: &Path, node: &str) -> PathBuf {
    folder.join(node).join("events.out.tfevents.0000000000.gradvine")
}

/// Compares the event files in a folder with the lines of a run, which began then.
fn check_events(folder: &Path, lines: &[Value], start_s: f64) {
    let mut nodes: Vec<u64> = lines.iter().map(|line| line["node"].as_u64().unwrap()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(fs::read_dir(folder).unwrap().count(), nodes.len());
    for node in nodes {
        let messages = records(&event_file(folder, &node.to_string()));
        let first = Message::read(&messages[0]);
        assert_eq!((first.text(3).as_str(), wall_time(&first)), ("brain.Event:2", start_s));
        let own: Vec<&Value> = lines.iter().filter(|line| line["node"] == node).collect();
        assert_eq!(messages.len() - 1, own.len());
        for (message, line) in messages[1..].iter().zip(own) {
            let event = Message::read(message);
            assert_eq!(event.number(2), line["round"].as_u64().unwrap());
            assert_eq!(wall_time(&event), start_s + line["time_s"].as_f64().unwrap());
            let known = TAGS.iter().map(|(tag, key)| (tag.to_string(), value(line, key)));
            let none = serde_json::Map::new();
            let own = line.get("measures").and_then(Value::as_object).unwrap_or(&none);
            let own = own.iter().map(|(name, value)| (format!("measures/{name}"), value.as_f64()));
            let expected: BTreeMap<String, f32> =
                known.chain(own).filter_map(|(tag, value)| Some((tag, value? as f32))).collect();
            assert_eq!(scalars(&event), expected, "{line}");
        }
    }
}

#[test]
fn event_files_have_every_value_of_every_evaluation() {
    let folder = folder();
    let path = folder.path();
    simulate(path);
    let run = path.join("run");
    let lines = with_measures(metrics(&run));
    rewrite(&run, &lines);
    within(path, &["export", "run", "--to", "tensorboard"]).success().stdout(
        "run/tensorboard: evaluations: 24, nodes: 3; tensorboard --logdir run/tensorboard\n",
    );
    check_events(&run.join("tensorboard"), &lines, 0.0);
    assert!(lines.last().unwrap()["time_s"].as_f64().unwrap() > 0.0, "times of a simulation");
    // The name that gradvine gives to a folder has the start of its run: 2026-01-02 03:04:05 UTC.
    fs::rename(&run, path.join("20260102-030405-choco-path-3")).unwrap();
    let export = ["export", "20260102-030405-choco-path-3", "--to", "tensorboard", "--out"];
    within(path, &[&export[..], &["new/events"]].concat()).success();
    check_events(&path.join("new/events"), &lines, 1_767_323_045.0);
}

#[test]
fn a_run_of_one_node_that_was_killed_is_exported_as_far_as_it_came() {
    let folder = folder();
    let path = folder.path();
    simulate(path);
    let run = path.join("run");
    let lines: Vec<Value> = metrics(&run).into_iter().filter(|line| line["node"] == 2).collect();
    fs::remove_file(run.join("summary.json")).unwrap();
    let whole: String = lines.iter().map(|line| format!("{line}\n")).collect();
    // The last line was being written.
    fs::write(run.join("metrics.jsonl"), format!("{whole}{{\"round\":45,\"no")).unwrap();
    within(path, &["export", "run", "--to", "csv"]).success().stdout(contains("8, nodes: 1\n"));
    let (_, rows) = table(&run.join("metrics.csv"));
    assert!(rows.len() == 8 && rows.iter().all(|row| row["node"] == "2"));
    within(path, &["export", "run", "--to", "tensorboard"]).success();
    check_events(&run.join("tensorboard"), &lines, 0.0);
    // Killed before its first evaluation.
    fs::write(run.join("metrics.jsonl"), "").unwrap();
    for format in ["csv", "tensorboard"] {
        within(path, &["export", "run", "--to", format, "--force"]).code(2).stderr(
            "error: run: metrics.jsonl: has no evaluation yet: a run writes the first one after \
             run.evaluate_every = 5 rounds\n",
        );
    }
}

#[test]
fn files_that_exist_are_overwritten_only_if_the_user_says_so() {
    let folder = folder();
    let path = folder.path();
    simulate(path);
    let refused = |arguments: &[&str], words: &'static str| {
        let all = [&["export", "run", "--to"], arguments].concat();
        within(path, &all).code(2).stderr(contains(words)).stdout("");
    };
    let exists = "exists; --force overwrites it, or name another";
    fs::write(path.join("mine.csv"), "precious").unwrap();
    refused(&["csv", "--out", "mine.csv"], exists);
    refused(&["csv", "--out", "run", "--force"], "is a folder; name a file, such as metrics.csv");
    refused(&["csv", "--out", "run/metrics.jsonl", "--force"], "is read by this command");
    refused(&["tensorboard", "--out", "mine.csv", "--force"], "is no folder; name a folder");
    within(path, &["export", "run", "--to", "tensorboard"]).success();
    let file = event_file(&path.join("run/tensorboard"), "2");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, "old").unwrap();
    fs::remove_file(event_file(&path.join("run/tensorboard"), "0")).unwrap();
    refused(&["tensorboard"], exists);
    assert!(!event_file(&path.join("run/tensorboard"), "0").exists(), "all or none");
    within(path, &["export", "run", "--to", "tensorboard", "--force"]).success();
    assert_eq!(fs::read(&file).unwrap(), whole, "the same bytes again");
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        // A link is replaced, and what it leads to stays.
        symlink("mine.csv", path.join("link.csv")).unwrap();
        refused(&["csv", "--out", "link.csv"], exists);
        within(path, &["export", "run", "--to", "csv", "--out", "link.csv", "--force"]).success();
        assert!(!path.join("link.csv").is_symlink());
        fs::create_dir_all(path.join("other")).unwrap();
        fs::create_dir(path.join("linked")).unwrap();
        symlink("../other", path.join("linked/1")).unwrap();
        let linked = ["tensorboard", "--out", "linked", "--force"];
        refused(&linked, "--out = linked/1: is a link: nothing below --out is followed");
        assert_eq!(fs::read_dir(path.join("other")).unwrap().count(), 0);
    }
    assert_eq!(fs::read_to_string(path.join("mine.csv")).unwrap(), "precious");
}
