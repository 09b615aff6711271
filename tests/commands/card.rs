//! `MODEL.md` in run directories: its figures are those of the summary, its constants those of the
//! model file, and the commands that it names work.

use std::{fs, path::Path};

use serde_json::Value;

use crate::command::{Deployment, NAMES, Reach, folder, gradvine, json};

/// The text below a heading.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = text.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{text}"));
    let rest = &text[start + 4..];
    rest.find("\n## ").map_or(rest, |end| &rest[..end])
}

/// The cells of the tables of a section. In the text all lines of a table have one length.
fn tables(section: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
    let mut width = None;
    for line in section.lines() {
        if !line.starts_with('|') {
            width = None;
            continue;
        }
        match width {
            None => tables.push(Vec::new()),
            Some(width) => assert_eq!(line.chars().count(), width, "{line}"),
        }
        width = Some(line.chars().count());
        let cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string());
        if !line.starts_with("|-") {
            tables.last_mut().unwrap().push(cells.collect());
        }
    }
    tables
}

fn card(run: &Path) -> String {
    fs::read_to_string(run.join("MODEL.md")).unwrap()
}

/// Whether a cell shows this number: of a percentage two digits, else six.
fn shows(cell: &str, value: &Value) -> bool {
    let value = value.as_f64().unwrap();
    match cell.strip_suffix('%') {
        Some(share) => (share.parse::<f64>().unwrap() - 100.0 * value).abs() < 0.0051,
        None => (cell.parse::<f64>().unwrap() - value).abs() <= 1e-5 * value.abs() + 1e-6,
    }
}

fn check(cells: &[String], values: &[&Value]) {
    assert_eq!(cells.len(), values.len(), "{cells:?}");
    for (cell, value) in cells.iter().zip(values) {
        assert!(shows(cell, value), "{cell} instead of {value}");
    }
}

/// A key's value in a table of two columns.
fn of_key<'a>(table: &'a [Vec<String>], key: &str) -> &'a str {
    let line = table.iter().find(|line| line[0] == key);
    &line.unwrap_or_else(|| panic!("{key}: {table:?}"))[1]
}

/// Two classes with names, in a file whose columns have names.
fn patients() -> String {
    let row = |i: usize| {
        let (age, pressure) = (20 + i * 7 % 61, 100 + i * 13 % 47);
        let sick = age + pressure + i * 5 % 23 > 180;
        format!("{age},{pressure},{}\n", if sick { "sick|ill" } else { "well" })
    };
    "age,pressure,state\n".to_string() + &(0..240).map(row).collect::<String>()
}

#[test]
fn it_has_the_constants_the_figures_and_working_commands() {
    let folder = folder();
    fs::write(folder.path().join("rows.csv"), patients()).unwrap();
    gradvine()
        .current_dir(folder.path())
        .args(["train", "--processes", "--topology", "path:3", "--rounds", "40", "-q"])
        .args(["--set", "data.source=rows.csv", "--set", "data.split=iid", "--out", "run"])
        .args(["--set", "model.kind=mlp", "--set", "model.hidden=[5]", "--set", "run.seed=7"])
        .assert()
        .success();
    let run = folder.path().join("run");
    let (text, summary) = (card(&run), json(&run.join("summary.json")));
    assert_eq!(text, card(&run.join("nodes/1/run")), "every node writes the same");

    let about = &tables(text.split("\n## ").next().unwrap())[0];
    let of = |key: &str| of_key(about, key);
    assert_eq!((of("task"), of("target")), ("classification", "state"));
    assert_eq!((of("classes"), of("hidden layers")), ("sick\\|ill, well", "5"));
    assert_eq!(of("parameters"), summary["parameters"].to_string());

    let file = fs::read(run.join("model-mean.safetensors")).unwrap();
    let length = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let constants = |key: &str| -> Value {
        serde_json::from_str(header["__metadata__"][key].as_str().unwrap()).unwrap()
    };
    let (mean, deviation) = (constants("gradvine.mean"), constants("gradvine.deviation"));
    let inputs = &tables(section(&text, "Inputs"))[0][1..];
    for (i, name) in ["age", "pressure"].into_iter().enumerate() {
        assert_eq!(inputs[i][..2], [i.to_string(), name.to_string()]);
        check(&inputs[i][2..], &[&mean[i], &deviation[i]]);
    }

    let figures = tables(section(&text, "Figures of the mean model"));
    let test = &summary["final"]["test"];
    let keys = ["loss", "accuracy", "balanced_accuracy", "auc", "calibration_error"];
    check(&figures[0][1][1..], &keys.map(|key| &test[key]));
    check(&figures[0][2][2..3], &[&test["baseline"]["accuracy"]]);
    for class in 0..2 {
        let (line, values) = (&figures[1][1 + class], &test["classes"][class]);
        assert_eq!(line[0], ["sick\\|ill", "well"][class]);
        check(&line[1..], &["rows", "predicted", "recall", "precision", "auc"].map(|k| &values[k]));
        let confused = &test["confusion"][class];
        check(&figures[2][1 + class][1..], &[&confused[0], &confused[1]]);
    }
    let nodes = &tables(section(&text, "Nodes"))[0][1..];
    for (line, (name, part)) in nodes.iter().zip(summary["participation"].as_object().unwrap()) {
        let own = &part["test"];
        assert_eq!(line[0], *name);
        let values = [&part["rows"], &own["rows"], &own["loss"], &own["accuracy"]];
        check(&line[1..5], &values);
        check(&line[5..], &[&own["balanced_accuracy"], &own["baseline"]["accuracy"]]);
    }
    let settings = &tables(section(&text, "Run"))[0];
    let of = |key: &str| of_key(settings, key);
    assert_eq!((of("nodes"), of("seed"), of("rounds")), ("3", "7", "40"));
    assert!(of("rule").starts_with("choco (gamma = "), "{}", of("rule"));
    assert_eq!(of("digest of the run"), summary["digest"].as_str().unwrap());
    assert_eq!(of("digest of the mean model"), summary["mean_digest"].as_str().unwrap());

    for name in ["rows.csv", "rows-with-target.csv"] {
        fs::copy(folder.path().join("rows.csv"), run.join(name)).unwrap();
    }
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("$ gradvine ")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    for command in commands {
        let words = command.split(" > ").next().unwrap().split(' ');
        gradvine().current_dir(&run).args(words).assert().success();
    }
}

/// Sites with rows of their own, numbers to be predicted, and one site that differs.
#[test]
fn it_has_the_mean_model_at_each_site() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 30");
    let text = fs::read_to_string(deployment.file("experiment.toml")).unwrap();
    let text = text.replace("kind = \"softmax\"", "kind = \"least-squares\"");
    let text = text.replace("outputs = 3", "outputs = 1");
    deployment.write("experiment.toml", &text);
    for (site, name) in NAMES.into_iter().enumerate() {
        let row = |i: usize| {
            let (x, y) = ((i * 7 % 11) as f64, (i * 5 % 13) as f64);
            format!("{x},{y},{}\n", 2.0 * x - y + (site * site * (i % 3)) as f64)
        };
        let rows: String = (0..60).map(row).collect();
        deployment.write(&format!("{name}.csv"), &format!("x,y,price\n{rows}"));
    }
    let mut nodes = NAMES.map(|name| deployment.start(name));
    for node in &mut nodes {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    let text = card(&deployment.run("oslo"));
    assert!(NAMES.iter().all(|name| card(&deployment.run(name)) == text));
    let summary = json(&deployment.run("london").join("summary.json"));
    let about = &tables(text.split("\n## ").next().unwrap())[0];
    assert_eq!((of_key(about, "task"), of_key(about, "target")), ("regression", "price"));
    let errors = |of: &Value| {
        let of = of["outputs"][0].clone();
        ["mae", "rmse", "r2", "baseline_rmse"].map(|key| of[key].clone())
    };
    let all = errors(&summary["final"]["test"]);
    let figures = tables(section(&text, "Figures of the mean model"));
    check(&figures[0][1][1..], &all.each_ref());
    let lines = &tables(section(&text, "Nodes"))[0][1..];
    assert_eq!(lines.len(), 3);
    for (line, name) in lines.iter().zip(NAMES) {
        let part = &summary["participation"][name];
        assert_eq!(line[0], name);
        let [mae, rmse, r2, baseline] = errors(&part["test"]);
        check(&line[1..3], &[&part["rows"], &part["test"]["rows"]]);
        check(&line[4..7], &[&mae, &rmse, &r2]);
        let [mae, rmse, r2, _] = errors(&part["test_of_mean"]);
        check(&line[7..], &[&mae, &rmse, &r2, &baseline]);
    }
    let warnings = summary["warnings"].as_array().unwrap();
    assert!(!warnings.is_empty(), "{summary}");
    let section = section(&text, "Warnings").replace('\\', "");
    for warning in warnings {
        assert!(section.contains(warning.as_str().unwrap()), "{section}");
    }
}

/// It goes with the results, and says when they are not those of a whole run.
#[test]
fn it_is_written_only_with_a_mean_model() {
    let folder = folder();
    let run = |out: &str, more: &[&str]| {
        let mut command = gradvine();
        command.current_dir(folder.path()).args(["simulate", "--topology", "path:3", "-q"]);
        command.args(["--rounds", "3", "--set", "model.kind=softmax", "--out", out]).args(more);
        command.assert()
    };
    run("bare", &["--set", "data.test_share=0", "--set", "data.standardize=false"]).success();
    let text = card(&folder.path().join("bare"));
    assert!(text.contains("There were no test rows.") && text.contains("takes 64 numbers"));
    assert!(!text.contains("deviation") && !text.contains("## Warnings"), "{text}");
    run("diverged", &["--set", "model.kind=mlp", "--set", "optimizer.step=1e30"]).code(4);
    let diverged = folder.path().join("diverged");
    assert!(diverged.join("summary.json").exists() && !diverged.join("MODEL.md").exists());
}
