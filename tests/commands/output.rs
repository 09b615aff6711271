//! The output of commands: tables for people, JSON for programs, nothing if nothing is wanted.

use crate::command;

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use command::{SMALL, folder, gradvine, json, program};
use predicates::str::contains;
use serde_json::Value;
use tempfile::TempDir;

const COMMANDS: [&str; 14] = [
    "report",
    "train",
    "node",
    "simulate",
    "lab",
    "plan",
    "topology",
    "rules",
    "compressors",
    "identity",
    "evaluate",
    "predict",
    "completions",
    "man",
];

/// The one JSON value that a command prints.
fn printed(args: &[&str]) -> Value {
    let assert = gradvine().args(args).assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.ends_with('\n'));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

fn has(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "{key} is not in {value}");
    }
}

/// A run of the small experiment on digits or on another source: its folder and its mean model.
fn trained(settings: &[&str]) -> (TempDir, PathBuf) {
    let folder = folder();
    let out = folder.path().join("run");
    gradvine().arg("simulate").args(settings).args(["-q", "--out"]).arg(&out).assert().success();
    (folder, out.join("model-mean.safetensors"))
}

#[test]
fn help_of_every_command_has_examples() {
    for command in COMMANDS {
        let help = gradvine().args([command, "--help"]).assert().success();
        let text = String::from_utf8(help.get_output().stdout.clone()).unwrap();
        let shown = match command {
            "node" => "NODE.toml (paths are relative to it):",
            _ => "Examples:\n  gradvine ",
        };
        assert!(text.contains(shown), "{command}: {text}");
        // Wrapped examples would lose their columns.
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 110, "{command}: {widest}");
    }
}

#[test]
fn every_json_is_one_value_with_its_keys() {
    let topology = printed(&["topology", "show", "torus:3x4", "--json"]);
    has(&topology, &["name", "rho", "diameter"]);
    assert_eq!((topology["nodes"].as_u64(), topology["links"].as_u64()), (Some(12), Some(24)));
    has(&printed(&["topology", "list", "--json"]), &["families", "weights", "files"]);
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    gradvine().args(["topology", "make", "ring:5", &path("ring.toml")]).assert().success();
    let checked = printed(&["topology", "check", &path("ring.toml"), "--json"]);
    assert_eq!((checked[0]["ok"].as_bool(), checked[0]["nodes"].as_u64()), (Some(true), Some(5)));
    for registry in ["rules", "compressors"] {
        for entry in printed(&[registry, "--json"]).as_array().unwrap() {
            has(entry, &["name", "paper", "summary", "constants"]);
        }
    }
    let made = printed(&["identity", "new", &path("node.key"), "--json"]);
    assert_eq!(made["peer"], printed(&["identity", "show", &path("node.key"), "--json"])["peer"]);
    assert!(made["peer"].as_str().unwrap().starts_with("12D3KooW"));
}

#[test]
fn json_of_a_run_is_its_summary() {
    for command in [&["train"][..], &["train", "--processes"], &["simulate"]] {
        let folder = folder();
        let out = folder.path().join("run");
        let out = out.to_str().unwrap();
        let summary =
            printed(&[command, &SMALL, &["--rounds", "3", "--json", "--out", out]].concat());
        assert_eq!(summary, json(&Path::new(out).join("summary.json")));
        has(
            &summary,
            &[
                "rule",
                "compressor",
                "topology",
                "nodes",
                "parameters",
                "rounds",
                "rho",
                "gap",
                "final",
                "bytes",
                "time_s",
                "participation",
                "digest",
            ],
        );
        let accuracies = ["test_accuracy_mean", "test_accuracy_min", "test_accuracy_of_mean"];
        has(&summary["final"], &[&["train_loss", "consensus"][..], &accuracies].concat());
        has(&summary["bytes"], &["payload", "wire", "dense"]);
        // A path of three has four directed links; dense gossip sends 4 d bytes on each.
        assert_eq!(
            summary["bytes"]["dense"].as_u64(),
            Some(3 * 4 * 4 * summary["parameters"].as_u64().unwrap())
        );
        for node in ["0", "1", "2"] {
            assert_eq!(summary["participation"][node]["rounds"], 3);
        }
        for metric in command::metrics(Path::new(out)) {
            has(
                &metric,
                &[
                    "round",
                    "node",
                    "time_s",
                    "train_loss",
                    "test_loss",
                    "test_accuracy",
                    "bytes_payload",
                    "bytes_wire",
                    "bytes_dense",
                ],
            );
            assert_eq!(
                metric.get("consensus").is_some(),
                !command.contains(&"--processes"),
                "{metric}"
            );
        }
    }
}

#[test]
fn runs_suggest_commands_that_work() {
    let folder = folder();
    let out = |name: &str| folder.path().join(name);
    let run = |name: &str| {
        let mut command = gradvine();
        command.arg("simulate").args(SMALL).args(["--rounds", "3", "--out"]).arg(out(name));
        command
    };
    let assert = run("loud").assert().success().stderr(contains("round 3/3"));
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    for words in [
        "choco with min-max on path-3: 3 nodes",
        "pooled SGD",
        "Try next:",
        "gradvine topology show path:3",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Each column ends (or begins) where its heading does.
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("node "));
    let heading = lines.next().unwrap();
    for row in lines.take(3) {
        assert_eq!(row.chars().count(), heading.chars().count(), "{heading}\n{row}");
        assert_ne!(row.as_bytes()[heading.find("rows").unwrap() + 3], b' ', "{heading}\n{row}");
    }
    // The suggested commands work unchanged.
    let suggested: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.starts_with("gradvine ")).collect();
    assert_eq!(suggested.len(), 5, "{text}");
    for line in suggested {
        let words = line.split(' ').skip(1).collect::<Vec<_>>();
        gradvine().current_dir(folder.path()).args(words).assert().success();
    }
}

#[test]
fn evaluate_and_predict_agree_on_an_embedded_set() {
    let (folder, model) =
        trained(&["--topology", "path:3", "--rounds", "20", "--set", "model.kind=softmax"]);
    let model = model.to_str().unwrap();
    let score = printed(&["evaluate", model, "digits", "--json"]);
    has(&score, &["rows", "loss", "accuracy", "correct", "balanced_accuracy", "auc", "confusion"]);
    assert_eq!(score["rows"], 359);
    let summary = fs::read_to_string(folder.path().join("run/summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(score["accuracy"], summary["final"]["test_accuracy_of_mean"], "the same rows");
    assert_eq!(score["loss"], summary["final"]["test_loss_of_mean"]);
    let everything = printed(&["evaluate", model, "digits", "--rows", "all", "--json"]);
    assert_eq!(everything["rows"], 1797);
    let predicted = gradvine().args(["predict", model, "digits"]).assert().success();
    let text = String::from_utf8(predicted.get_output().stdout.clone()).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("row,prediction,p(0),p(1),p(2),p(3),p(4),p(5),p(6),p(7),p(8),p(9)")
    );
    assert_eq!(lines.clone().count(), 1797);
    let mut seen = BTreeSet::new();
    for (index, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let numbers: Vec<f64> = cells[2..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!((cells.len(), cells[0]), (12, index.to_string().as_str()));
        assert!((numbers.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{line}");
        let best = numbers[cells[1].parse::<usize>().unwrap()];
        assert!(numbers.iter().all(|&p| p <= best), "{line}");
        seen.insert(cells[1].to_string());
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[test]
fn evaluate_and_predict_read_a_file_as_it_was_trained_on() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let rows = |range: std::ops::Range<usize>| {
        let row = |i: usize| {
            format!("{},{},{}\n", i % 2, 100.0 + (i % 2) as f64 * 50.0 + (i % 7) as f64, i * 10)
        };
        "kind,height,extra\n".to_string() + &range.map(row).collect::<String>()
    };
    fs::write(path("train.csv"), rows(0..60)).unwrap();
    fs::write(path("new.csv"), rows(60..80)).unwrap();
    let (source, target) = (format!("data.source={}", path("train.csv")), "data.target=kind");
    let sets = [
        "--topology",
        "ring:3",
        "--rounds",
        "30",
        "--set",
        &source,
        "--set",
        target,
        "--set",
        "model.kind=softmax",
    ];
    let (_run, model) = trained(&sets);
    let model = model.to_str().unwrap();
    let score = printed(&["evaluate", model, &path("new.csv"), "--target", "kind", "--json"]);
    assert_eq!(
        (score["rows"].as_u64(), score["accuracy"].as_f64()),
        (Some(20), Some(1.0)),
        "{score}"
    );
    gradvine()
        .args(["predict", model, &path("new.csv"), "--target", "kind", "--out", &path("p.csv")])
        .assert()
        .success()
        .stdout("");
    let text = fs::read_to_string(path("p.csv")).unwrap();
    for (index, line) in text.lines().skip(1).enumerate() {
        assert!(line.starts_with(&format!("{index},{},", index % 2)), "{line}");
    }
    // Rows to predict need no target.
    let bare: String = rows(60..80)
        .lines()
        .map(|line| line.split_once(',').unwrap().1.to_string() + "\n")
        .collect();
    fs::write(path("bare.csv"), bare).unwrap();
    gradvine().args(["predict", model, &path("bare.csv")]).assert().success().stdout(text);
    gradvine()
        .args(["evaluate", model, &path("bare.csv")])
        .assert()
        .code(2)
        .stderr(contains("the model's columns = \"kind\": no such column"));
}

#[test]
fn least_squares_predicts_numbers() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let row = |i: usize| format!("{},{},{}\n", i % 5, i % 3, 2.0 * (i % 5) as f64 - (i % 3) as f64);
    fs::write(path("a.csv"), (0..60).map(row).collect::<String>()).unwrap();
    let source = format!("data.source={}", path("a.csv"));
    let sets = [
        "--topology",
        "path:3",
        "--rounds",
        "400",
        "--set",
        &source,
        "--set",
        "model.kind=least-squares",
        "--set",
    ];
    let (_run, model) = trained(&[&sets[..], &["data.split=iid"]].concat());
    let model = model.to_str().unwrap();
    let score = printed(&["evaluate", model, &path("a.csv"), "--json"]);
    assert!(score["loss"].as_f64().unwrap() < 1e-3 && score["accuracy"].is_null(), "{score}");
    let predicted = gradvine().args(["predict", model, &path("a.csv")]).assert().success();
    let text = String::from_utf8(predicted.get_output().stdout.clone()).unwrap();
    assert!(text.starts_with("row,y0\n0,"), "{text}");
    for (i, line) in text.lines().skip(1).enumerate() {
        let value: f64 = line.split(',').nth(1).unwrap().parse().unwrap();
        assert!((value - (2.0 * (i % 5) as f64 - (i % 3) as f64)).abs() < 0.2, "{line}");
    }
}

#[test]
fn python_opens_the_model_and_predicts_the_same() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let ready = Command::new(&python)
        .args(["-c", "import numpy, safetensors"])
        .stderr(Stdio::null())
        .status();
    if !ready.is_ok_and(|status| status.success()) {
        eprintln!(
            "skipped: {python} has no modules numpy and safetensors (name another with PYTHON=...)"
        );
        return;
    }
    let (folder, model) = trained(&["--topology", "path:3", "--rounds", "40"]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Rows of the width of the digits, in a file that Python reads too.
    let row = |i: usize| {
        (0..64).map(|j| ((i * 31 + j * 7) % 17).to_string() + ",").collect::<String>() + "0\n"
    };
    fs::write(path("rows.csv"), (0..50).map(row).collect::<String>()).unwrap();
    let model = model.to_str().unwrap();
    gradvine()
        .args(["predict", model, &path("rows.csv"), "--out", &path("ours.csv")])
        .assert()
        .success();
    fs::write(path("check.py"), CHECK).unwrap();
    let script = [path("check.py"), model.into(), path("rows.csv"), path("ours.csv")];
    let output = Command::new(&python).args(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
}

/// Opens a model of the kind `mlp` and recomputes its probabilities in double precision.
const CHECK: &str = r#"
import json, sys
import numpy as np
from safetensors import safe_open

model, rows, ours = sys.argv[1:]
with safe_open(model, framework="numpy") as file:
    meta = file.metadata()
    tensors = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}
assert meta["gradvine.kind"] == "mlp", meta
x = np.loadtxt(rows, delimiter=",")[:, :-1]
mean, deviation = (np.array(json.loads(meta["gradvine." + key])) for key in ("mean", "deviation"))
x = (x - mean) / deviation
layers = len(json.loads(meta["gradvine.hidden"])) + 1
for layer in range(layers):
    x = x @ tensors[f"layer{layer}.weight"] + tensors[f"layer{layer}.bias"]
    x = np.maximum(x, 0) if layer + 1 < layers else x
p = np.exp(x - x.max(axis=1, keepdims=True))
p /= p.sum(axis=1, keepdims=True)
theirs = np.loadtxt(ours, delimiter=",", skiprows=1)
assert (theirs[:, 1].astype(int) == p.argmax(axis=1)).all()
error = np.abs(theirs[:, 2:] - p).max()
print(f"largest difference of {p.size} probabilities: {error:.2e}")
assert error < 1e-5, error
"#;

#[test]
fn completions_are_scripts_for_their_shells() {
    for (shell, words) in
        [("bash", "_gradvine()"), ("zsh", "#compdef gradvine"), ("fish", "complete -c gradvine")]
    {
        let script = gradvine().args(["completions", shell]).assert().success();
        let text = String::from_utf8(script.get_output().stdout.clone()).unwrap();
        assert!(text.contains(words), "{shell}: {text}");
        assert!(COMMANDS.iter().all(|command| text.contains(command)), "{shell}");
    }
}

#[test]
fn manual_pages_are_written_for_all_commands() {
    let folder = folder();
    let pages = folder.path().join("new/man1");
    for _ in 0..2 {
        // The second time they are replaced.
        let said = gradvine().arg("man").arg(&pages).assert().success();
        let said = String::from_utf8(said.get_output().stdout.clone()).unwrap();
        let count = fs::read_dir(&pages).unwrap().count();
        assert!(said.starts_with(&format!("{count} pages: ")), "{said}");
    }
    let page = |name: &str| fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
    for command in COMMANDS {
        assert!(page("gradvine").contains(command), "{command}");
        assert!(page(&format!("gradvine-{command}")).contains("Examples:"), "{command}");
    }
    assert!(page("gradvine-data-describe").contains("gradvine data describe"));
    assert!(!pages.join("gradvine-help.1").exists());
}

#[test]
fn manual_pages_are_not_written_to_a_file() {
    let folder = folder();
    let file = folder.path().join("page");
    fs::write(&file, "kept").unwrap();
    let refused = gradvine().arg("man").arg(&file).assert().code(2);
    refused.stderr(contains("page: is a file; expected a folder, or a name for a new one"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
#[ignore = "slow"]
fn the_registries_are_listed_with_their_papers() {
    let rules = printed(&["rules", "--json"]);
    let assert = gradvine().arg("rules").assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    for rule in rules.as_array().unwrap() {
        for key in ["name", "summary", "paper", "update", "state", "sends", "conditions"] {
            for line in rule[key].as_str().unwrap().lines() {
                assert!(text.contains(line), "{key} of {}: {line}", rule["name"]);
            }
        }
    }
    let compressors = printed(&["compressors", "--json"]);
    let assert = gradvine().arg("compressors").assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(text.lines().all(|line| line.trim() != "paper"), "a heading without words: {text}");
    for entry in compressors.as_array().unwrap() {
        assert!(text.contains(entry["summary"].as_str().unwrap()), "{}", entry["name"]);
    }
}

/// A reader that closes early must not see a panic, nor change how the command ends.
#[test]
#[ignore = "slow"]
fn a_closed_pipe_is_no_failure() {
    let folder = folder();
    let (_run, model) = trained(&["--topology", "path:3", "--rounds", "2"]);
    let (model, out) = (model.to_str().unwrap(), folder.path().join("run"));
    let mut train = vec!["train", "--rounds", "2", "--out", out.to_str().unwrap()];
    train.extend(SMALL);
    let commands: [&[&str]; 8] = [
        &["rules"],
        &["compressors", "--json"],
        &["completions", "zsh"],
        &["topology", "show", "ring:64"],
        &["topology", "list"],
        &["predict", model, "digits"],
        &["evaluate", model, "digits"],
        &train,
    ];
    for command in commands {
        let mut child =
            program().args(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The reading end is closed before anything is written, or at least before everything is.
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(child.wait().unwrap().success(), "{command:?}: {stderr}");
        assert!(!stderr.contains("panic") && !stderr.contains("error"), "{command:?}: {stderr}");
    }
}
