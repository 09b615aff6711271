//! No command writes over a file that it reads, whatever option names the file that it writes.

use std::{fs, path::Path};

use predicates::{prelude::*, str::contains};

use crate::command::{SMALL, folder, gradvine, program};

const READ: &str = "is read by this command: name another file";

/// Runs a command that must refuse to write this file, and leaves it as it is.
fn refused(path: &Path, arguments: &[&str], file: &str, words: &'static str) {
    let before = fs::read(path.join(file)).unwrap();
    let mut command = gradvine();
    command.current_dir(path).args(arguments);
    command.assert().code(2).stderr(contains(words).and(contains("error: "))).stdout("");
    assert_eq!(fs::read(path.join(file)).unwrap(), before, "{arguments:?}");
}

/// A folder with rows in `in.csv`, an experiment on them, and its run in `run`.
fn trained() -> tempfile::TempDir {
    let folder = folder();
    let path = folder.path();
    let row = |i: usize| format!("{},{},{}\n", i % 7, i * i % 11, ["a", "b"][i % 2]);
    let rows: String = (0..90).map(row).collect();
    fs::write(path.join("in.csv"), format!("x,z,y\n{rows}")).unwrap();
    let text = "run.rounds = 2\ntopology.file = \"path:3\"\nmodel.kind = \"softmax\"\n\
                rule.kind = \"d-psgd\"\ndata.source = \"in.csv\"\ndata.split = \"iid\"\n";
    fs::write(path.join("mine.toml"), text).unwrap();
    let run = ["simulate", "mine.toml", "--no-baseline", "-q", "--out", "run"];
    gradvine().current_dir(path).args(run).assert().success();
    folder
}

#[test]
fn predictions_and_models_are_written_elsewhere() {
    let folder = trained();
    let path = folder.path();
    let predict = |out: &'static str| ["predict", "run", "in.csv", "--out", out];
    refused(path, &predict("in.csv"), "in.csv", "--out = in.csv: is read");
    refused(path, &predict("./run/../in.csv"), "in.csv", READ);
    let model = "run/model-mean.safetensors";
    refused(path, &["predict", "run", "in.csv", "--out", model], model, READ);
    fs::create_dir(path.join("parts")).unwrap();
    fs::copy(path.join("in.csv"), path.join("parts/1.csv")).unwrap();
    let parts = ["predict", "run", "parts", "--out", "parts/2.csv"];
    refused(path, &parts, "parts/1.csv", "all files of this folder are read");
    assert!(!path.join("parts/2.csv").exists());
    refused(path, &["export", model, "--format", "onnx", "--out", model], model, READ);
    // Another name is fine.
    gradvine().current_dir(path).args(predict("out.csv")).assert().success();
    assert!(path.join("out.csv").is_file());
}

/// Standard input is a file that is read, whatever its name.
#[test]
#[cfg(unix)]
fn standard_input_is_not_written_over() {
    let folder = trained();
    let path = folder.path();
    std::os::unix::fs::symlink(path.join("in.csv"), path.join("link.csv")).unwrap();
    let before = fs::read(path.join("in.csv")).unwrap();
    for out in ["in.csv", "link.csv", "/dev/stdin", "/dev/fd/0"] {
        let file = fs::File::open(path.join("in.csv")).unwrap();
        let done = program()
            .current_dir(path)
            .args(["predict", "run", "-", "--out", out])
            .stdin(file)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && errors.contains(READ), "{out}: {errors}");
        assert_eq!(fs::read(path.join("in.csv")).unwrap(), before, "{out}");
    }
}

#[test]
fn files_of_another_kind_are_not_written_over() {
    let folder = trained();
    let path = folder.path();
    let model = "run/model-mean.safetensors";
    fs::copy(path.join("in.csv"), path.join("train.csv")).unwrap();
    fs::copy(path.join("in.csv"), path.join("rows")).unwrap();
    let kind = "the name of a file of another kind";
    refused(path, &["export", model, "--format", "onnx", "--out", "train.csv"], "train.csv", kind);
    let there = "is there, and of another kind";
    refused(path, &["export", model, "--format", "onnx", "--out", "rows"], "rows", there);
    let predict = |out: &'static str| ["predict", "run", "in.csv", "--out", out];
    refused(path, &predict("run/summary.json"), "run/summary.json", kind);
    refused(path, &["topology", "make", "ring:4", "mine.toml"], "mine.toml", "no topology");
    refused(path, &["topology", "show", "ring:4", "--svg", "train.csv"], "train.csv", kind);
    refused(path, &["report", "run", "--out", "train.csv"], "train.csv", "is not a report");
    // An earlier one of the same kind is.
    for _ in 0..2 {
        let [a, b, c, d, e] = predict("out.csv");
        gradvine().current_dir(path).args([a, b, c, d, e]).assert().success();
        let make = ["topology", "make", "ring:4", "ring.toml"];
        gradvine().current_dir(path).args(make).assert().success();
    }
}

#[test]
fn topologies_are_written_elsewhere() {
    let folder = folder();
    let path = folder.path();
    fs::write(path.join("net.toml"), "family = \"ring\"\nnodes = 4\n").unwrap();
    refused(path, &["topology", "make", "net.toml", "net.toml"], "net.toml", READ);
    refused(path, &["topology", "show", "net.toml", "--svg", "./net.toml"], "net.toml", READ);
}

#[test]
fn a_run_starts_from_files_outside_its_folder() {
    let folder = trained();
    let path = folder.path();
    let simulate = ["simulate", "mine.toml", "--no-baseline", "-q"];
    // A folder with an experiment of the user is not that of a run.
    fs::copy(path.join("mine.toml"), path.join("experiment.toml")).unwrap();
    let own = "no run has written the experiment.toml";
    refused(path, &["simulate", "experiment.toml", "--out", "."], "experiment.toml", own);
    // A model that the run would write at its end.
    fs::create_dir(path.join("kept")).unwrap();
    let model = "kept/model-mean.safetensors";
    fs::copy(path.join("run/model-mean.safetensors"), path.join(model)).unwrap();
    let from = [&simulate[..], &["--init", model, "--out", "kept"]].concat();
    refused(path, &from, model, "reads model-mean.safetensors in it, and would write over it");
    assert_eq!(fs::read_dir(path.join("kept")).unwrap().count(), 1, "nothing was written");
}

#[test]
fn comparisons_and_studies_are_written_elsewhere_before_anything_runs() {
    let folder = trained();
    let path = folder.path();
    fs::create_dir_all(path.join("out/results")).unwrap();
    for file in ["out/compare.csv", "out/results.md", "out/results/a.md"] {
        fs::copy(path.join("in.csv"), path.join(file)).unwrap();
    }
    fs::copy(path.join("mine.toml"), path.join("out/compare.json")).unwrap();
    // So many rounds take hours.
    let long = ["compare", "--rounds", "1000000000", "--out", "out"];
    let rows = ["--set", "data.source=out/compare.csv"];
    refused(path, &[&long[..], &SMALL[2..], &rows].concat(), "out/compare.csv", READ);
    refused(path, &[&long[..], &["out/compare.json"]].concat(), "out/compare.json", READ);
    let study = |source: &str| {
        let text = format!(
            "title = \"T\"\npaper = \"P\"\nclaim = \"C\"\nsetting = \"S\"\nseeds = 1\n\
             single = \"S\"\n\
             base = \"a-01-x.toml\"\nset = [\"run.rounds=1000000000\", \
             \"data.source={source}\"]\n[[row]]\nname = \"x\"\n"
        );
        fs::write(path.join("a.toml"), text).unwrap();
    };
    fs::copy(path.join("mine.toml"), path.join("a-01-x.toml")).unwrap();
    study("in.csv");
    let rows = ["study", "a.toml", "--experiments", "."];
    refused(path, &rows, "a-01-x.toml", READ);
    for file in ["out/results.md", "out/results/a.md"] {
        study(file);
        refused(path, &["study", "a.toml", "--out", "out"], file, READ);
    }
}

#[test]
#[cfg(unix)]
fn a_report_is_written_elsewhere() {
    let folder = trained();
    let path = folder.path();
    let report = |figures: &str| {
        let mut command = gradvine();
        command.current_dir(path).args(["report", "run", "-q", "--figures", figures]);
        command.assert()
    };
    report("figures").success();
    let figure = fs::read_dir(path.join("figures")).unwrap().next().unwrap().unwrap().path();
    fs::create_dir(path.join("other")).unwrap();
    let link = path.join("other").join(figure.file_name().unwrap());
    fs::hard_link(path.join("run/metrics.jsonl"), link).unwrap();
    report("other").code(2).stderr(contains(READ));
    let page = ["report", "run", "--out", "run/metrics.jsonl"];
    refused(path, &page, "run/metrics.jsonl", "is not a report");
}
