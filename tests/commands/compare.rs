//! `gradvine compare` and `gradvine study` as users run them: rows for runs that end, diverge and
//! are refused; tuning; reports.

use crate::command;

use std::{fs, path::Path};

use command::{ROOT, folder, gradvine, json};
use serde_json::Value;

/// The list of topologies of a small comparison.
const SMALL: [&str; 2] = ["--topologies", "path:3"];
/// Its settings: those of small runs without their topology.
const SETTINGS: [&[&str]; 2] = [command::SMALL.split_at(2).1, &["--set", "run.evaluate_every=5"]];

fn compared(args: &[&str]) -> Value {
    compared_for("20", args)
}

fn compared_for(rounds: &str, args: &[&str]) -> Value {
    let run = gradvine()
        .arg("compare")
        .args(SETTINGS.concat())
        .args(SMALL)
        .args(["--rounds", rounds, "--json"])
        .args(args)
        .assert()
        .success();
    serde_json::from_slice(&run.get_output().stdout).unwrap()
}

fn mean(row: &Value, figure: &str) -> f64 {
    row["figures"][figure]["mean"].as_f64().unwrap()
}

#[test]
fn every_rule_meets_every_compressor_and_runs_as_simulate_does() {
    let list = [
        "--rules",
        "d-psgd,choco:order=iclr",
        "--compressors",
        "min-max:bits=8,top-k:fraction=0.5",
        "--seeds",
        "2",
    ];
    let all = compared(&list);
    let rows = all["combinations"].as_array().unwrap();
    let names: Vec<String> = rows
        .iter()
        .map(|row| {
            format!("{} / {}", row["rule"].as_str().unwrap(), row["compressor"].as_str().unwrap())
        })
        .collect();
    // Uncompressed vectors are sent once, and not once per compressor.
    let expected = [
        "d-psgd / identity",
        "choco order=iclr / min-max bits=8",
        "choco order=iclr / top-k fraction=0.5",
    ];
    assert_eq!(names, expected);
    assert!(rows.iter().all(|row| row["status"] == "ok"), "{all}");
    // The second seed of the second row, by itself.
    let folder = folder();
    let out = folder.path().join("run");
    let sets = [
        "rule.kind=choco",
        "rule.order=iclr",
        "compressor.kind=min-max",
        "compressor.bits=8",
        "topology.file=path:3",
    ];
    gradvine()
        .args(["simulate", "--rounds", "20", "--seed", "2", "-q", "--no-baseline"])
        .args(SETTINGS.concat())
        .args(sets.iter().flat_map(|set| ["--set", set]))
        .arg("--out")
        .arg(&out)
        .assert()
        .success();
    let (summary, run) = (json(&out.join("summary.json")), &rows[1]["runs"][1]);
    assert_eq!((&run["digest"], run["seed"].as_u64()), (&summary["digest"], Some(2)));
    let last = run["points"].as_array().unwrap().last().unwrap();
    assert_eq!(last["train_loss"], summary["final"]["train_loss"]);
    assert_eq!(last["test_accuracy"], summary["final"]["test_accuracy_of_mean"]);
    assert_eq!(
        3.0 * last["payload"].as_f64().unwrap(),
        summary["bytes"]["payload"].as_f64().unwrap()
    );
    // The mean over seeds is that of the runs.
    let losses: Vec<f64> = (rows[1]["runs"].as_array().unwrap().iter())
        .map(|run| {
            run["points"].as_array().unwrap().last().unwrap()["train_loss"].as_f64().unwrap()
        })
        .collect();
    assert!(
        (mean(&rows[1], "train_loss") - (losses[0] + losses[1]) / 2.0).abs() < 1e-12
            && losses[0] != losses[1]
    );
}

#[test]
#[ignore = "slow"]
fn the_number_of_threads_changes_nothing() {
    let list = [
        "--rules",
        "dcd,choco",
        "--compressors",
        "qsgd,sign",
        "--grid",
        "optimizer.step=0.02,0.1",
        "--seeds",
        "5",
    ];
    let run = |jobs: &str| compared(&[&list[..], &["--jobs", jobs]].concat()).to_string();
    assert_eq!(run("1"), run("5"));
}

#[test]
fn diverged_and_refused_runs_are_rows() {
    let list = [
        "--rules",
        "c-sgd:collective=ring,choco,dcd",
        "--compressors",
        "qsgd:levels=1,min-max",
        "--set",
        "optimizer.step=0.1",
    ];
    let all = compared(&list);
    let status = |row: usize| all["combinations"][row]["status"].as_str().unwrap().to_string();
    assert!(
        status(0).starts_with("refused: ") && status(0).contains("path-3"),
        "a path is no ring: {}",
        status(0)
    );
    assert!(
        status(1).starts_with("refused: ")
            && status(1).contains("choco feeds the compression error back")
    );
    assert_eq!(status(2), "ok");
    let wild = [
        "--set",
        "run.allow_unstable=true",
        "--set",
        "rule.gamma=1.0",
        "--set",
        "compressor.bucket=0",
    ];
    let list = ["--rules", "choco", "--compressors", "qsgd:levels=1,min-max"];
    let all = compared_for("800", &[&list[..], &wild].concat());
    let row = &all["combinations"][0];
    assert!(row["status"].as_str().unwrap().starts_with("diverged at round "), "{}", row["status"]);
    assert_eq!(all["combinations"][1]["rule"], "choco");
}

#[test]
fn each_combination_is_tuned_for_itself() {
    let list = [
        "--rules",
        "d-psgd,choco",
        "--compressors",
        "sign",
        "--grid",
        "optimizer.step=0.000001,0.05",
        "--grid",
        "rule.gamma=default,0.2",
    ];
    let all = compared(&list);
    let tuned = |row: usize| all["combinations"][row]["tuned"].clone();
    let count = |row: usize| tuned(row)["tried"].as_array().unwrap().len();
    // d-psgd has no gamma. The step's best is at the edge of its grid, so that the grid widens: by
    // 50,000, as far as it was wide.
    assert!(count(0) >= 3 && count(1) >= 5, "{} and {}", tuned(0), tuned(1));
    assert!(
        tuned(0)["added"].as_array().unwrap().contains(&"optimizer.step=2500".into()),
        "{}",
        tuned(0)
    );
    assert_eq!(tuned(0)["seeds"], serde_json::json!([1001, 1002, 1003]));
    assert_eq!(
        all["seeds"],
        serde_json::json!([1, 2, 3, 4, 5]),
        "tuned settings are measured over five seeds by default"
    );
    for row in 0..2 {
        let tried = tuned(row)["tried"].as_array().unwrap().clone();
        let whole = tried.iter().filter(|tried| tried["seeds"] == 3);
        let least =
            whole.map(|tried| tried["loss"].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
        let chosen = tried.iter().find(|tried| tried["sets"] == tuned(row)["chosen"]).unwrap();
        assert_eq!(chosen["loss"].as_f64(), Some(least));
        assert!(
            tried.iter().any(|tried| tried["seeds"] == 1),
            "what is hopeless is tried once: {tried:?}"
        );
    }
}

#[test]
fn on_links_that_take_time_time_is_compared() {
    let folder = folder();
    let run = gradvine()
        .args([
            "compare",
            "--rules",
            "dcd,d-psgd",
            "--compressors",
            "identity",
            "--rounds",
            "10",
            "--out",
        ])
        .arg(folder.path())
        .args(["--set", "network.latency_ms=20", "--set", "run.evaluate_every=1"])
        .args(SETTINGS.concat())
        .args(SMALL)
        .assert()
        .success();
    let table = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(table.contains("virtual time"), "{table}");
    assert!(
        folder.path().join("loss-time.svg").is_file()
            && folder.path().join("accuracy-time.svg").is_file()
    );
    let all = json(&folder.path().join("compare.json"));
    let seconds =
        |row: usize| all["combinations"][row]["figures"]["time"]["mean"].as_f64().unwrap();
    // Ten latencies, and four of the setup up and down the path.
    assert!(
        [0, 1].iter().all(|row| (seconds(*row) - 0.28).abs() < 1e-9),
        "{} and {}",
        seconds(0),
        seconds(1)
    );
}

#[test]
fn the_folder_holds_figures_and_pictures() {
    let folder = folder();
    let out = folder.path().join("out");
    let run = gradvine()
        .args(["compare", "--rules", "dcd,naive", "--rounds", "20", "--seeds", "2", "--out"])
        .arg(&out)
        .args(SETTINGS.concat())
        .args(SMALL)
        .assert()
        .success();
    let table = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(
        table.contains("worst node")
            && table.contains(" ± ")
            && table.contains("* the best of its column"),
        "{table}"
    );
    assert!(table.contains("mean of 2 seeds ± half its 95 % interval (t)"), "{table}");
    assert!(
        table.contains("naive beside dcd, seed by seed: accuracy ") && table.contains(" points ("),
        "{table}"
    );
    assert!(table.contains("warning: naive compression stalls"), "{table}");
    let csv = fs::read_to_string(out.join("compare.csv")).unwrap();
    assert!(
        csv.starts_with("rule,compressor,topology,status,rounds,test_accuracy_mean,")
            && csv.lines().count() == 3
    );
    assert_eq!(json(&out.join("compare.json"))["combinations"].as_array().unwrap().len(), 2);
    for name in ["loss-rounds", "accuracy-rounds", "loss-payload", "consensus-rounds"] {
        let picture = fs::read_to_string(out.join(format!("{name}.svg"))).unwrap();
        assert!(
            picture.starts_with("<svg") && picture.contains(">naive<") && !picture.contains("NaN"),
            "{name}"
        );
    }
}

/// The study of the cases too.
const STUDY: &str = include_str!("cases/study.in/studies/small.toml");

fn study(file: &Path, out: &Path) -> assert_cmd::assert::Assert {
    gradvine().arg("study").arg(file).args(["-q", "--out"]).arg(out).assert()
}

#[test]
#[ignore = "slow"]
fn a_study_is_written_and_judged_and_repeats_to_the_byte() {
    let folder = folder();
    let studies = folder.path().join("studies");
    fs::create_dir(&studies).unwrap();
    fs::write(studies.join("small.toml"), STUDY).unwrap();
    let out = folder.path().join("docs");
    study(&studies, &out).success();
    let page = fs::read_to_string(out.join("results/small.md")).unwrap();
    let picture = fs::read_to_string(out.join("img/results/small-1.svg")).unwrap();
    for words in [
        "# A small study",
        "| dcd, 4 bits | ",
        "- Alike — agrees. dcd, 8 bits: train loss",
        "](../img/results/small-1.svg)",
        "seeds 1 to 5",
        "95 % interval (Student's t)",
        // A setup of 20 ms, then 20 rounds of 30 ms of gradients and 10 ms of latency.
        " | 0.820 s | 40.0 ms | 0.220 s | 75.0 % |",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let list = fs::read_to_string(out.join("results.md")).unwrap();
    assert!(list.contains("| [A small study](results/small.md) |"), "{list}");
    let head = "## [A small study](results/small.md)\n\nDCD and C-SGD are alike.\n\n- Alike — \
                agrees. dcd, 8 bits: train loss";
    assert!(list.contains(head), "{list}");
    study(&studies, &out).success();
    assert_eq!(fs::read_to_string(out.join("results/small.md")).unwrap(), page);
    assert_eq!(fs::read_to_string(out.join("img/results/small-1.svg")).unwrap(), picture);
    // The figures can disagree, and a row may have no evidence.
    for (from, to, words) in [
        ("below = 1.1", "above = 1.1", "**does not agree**"),
        ("metric = 'train_loss'\nbelow = 1.1", "metric = 'excess'\nbelow = 1.1", "**no evidence**"),
        ("value = 0.5 }", "value = 1.0 }", "**no evidence**"),
    ] {
        let text = STUDY.replace(from, to);
        let text = if from.starts_with("value") {
            text.replace("metric = 'train_loss'\nbelow", "metric = 'rounds_to'\nbelow")
        } else {
            text
        };
        assert_ne!(text, STUDY);
        fs::write(studies.join("small.toml"), text).unwrap();
        study(&studies, &out).code(1);
        let page = fs::read_to_string(out.join("results/small.md")).unwrap();
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
#[ignore = "slow"]
fn a_study_without_its_data_is_skipped_and_keeps_its_page() {
    let folder = folder();
    let (studies, out) = (folder.path().join("studies"), folder.path().join("docs"));
    fs::create_dir(&studies).unwrap();
    fs::write(studies.join("small.toml"), STUDY).unwrap();
    let text = STUDY
        .replace(
            "headline = true\nseeds = 5",
            "seeds = 5\nneeds = { name = 'own-rows', files = ['rows.csv'] }",
        )
        .replace("breast-cancer", "{own-rows}/rows.csv")
        .replace("A small study", "A study of own rows");
    fs::write(studies.join("own.toml"), text).unwrap();
    let claim = "title = 't'\npaper = 'p'\nclaim = 'Needs | a GPU'\nsetting = ''\nnot_shown = \
                 'There is none.'\n";
    fs::write(studies.join("gpu.toml"), claim).unwrap();
    let run = |data: &[&str]| {
        let mut command = gradvine();
        command
            .env_remove("GRADVINE_OWN_ROWS")
            .arg("study")
            .arg(&studies)
            .args(data)
            .arg("--out")
            .arg(&out);
        String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
    };
    let said = run(&[]);
    let named = "name it by --data own-rows=DIR or GRADVINE_OWN_ROWS in the environment";
    assert!(
        said.contains(&format!("own: skipped: it needs rows.csv in a folder: {named}\n")),
        "{said}"
    );
    assert!(!out.join("results/own.md").exists() && out.join("results/small.md").exists());
    let list = fs::read_to_string(out.join("results.md")).unwrap();
    assert!(
        !list.contains("own rows")
            && list.contains("## Not shown")
            && list.contains("Needs \\| a GPU | There is none."),
        "{list}"
    );
    // With its rows it has a page, which does not name their folder, and which stays without them.
    let rows: String = (0..60)
        .map(|row| format!("{},{},{}\n", row % 7, row % 5, u8::from(row % 7 > row % 5)))
        .collect();
    let private = folder.path().join("private");
    fs::create_dir(&private).unwrap();
    fs::write(private.join("rows.csv"), rows).unwrap();
    let data = format!("own-rows={}", private.display());
    run(&["--data", &data]);
    let page = fs::read_to_string(out.join("results/own.md")).unwrap();
    assert!(page.contains("--data own-rows=DIR") && !page.contains("private"), "{page}");
    let list = fs::read_to_string(out.join("results.md")).unwrap();
    run(&["--data", "own-rows=nowhere"]);
    assert_eq!(fs::read_to_string(out.join("results/own.md")).unwrap(), page);
    assert_eq!(
        fs::read_to_string(out.join("results.md")).unwrap(),
        list.replace(&format!(" --data {data}"), "")
    );
}

#[test]
#[ignore = "slow"]
fn each_rule_can_choose_its_local_steps_and_runs_end_at_the_target() {
    let folder = folder();
    let file = folder.path().join("steps.toml");
    let text = STUDY
        .replace(
            "seeds = 5",
            "seeds = 5\ntune_to_target = true\nstop_at_target = true\nagainst = { row = 'c-sgd', \
             metric = 'time_to' }\n\
                  grid = ['optimizer.local_steps=1,4; network.compute_ms=30,120', \
                  'optimizer.step=0.02,0.1']",
        )
        .replace("'rounds_to',", "'rounds_to', 'local_steps',")
        .replace("'run.evaluate_every=5'", "'run.evaluate_every=1'")
        .replace("value = 0.5 }", "value = 0.9 }")
        .replace("metric = 'train_loss'\nbelow = 1.1", "metric = 'rounds_to'\nbelow = 9.0");
    fs::write(&file, text).unwrap();
    study(&file, folder.path()).success();
    let page = fs::read_to_string(folder.path().join("results/steps.md")).unwrap();
    assert!(page.contains("Tuned on seeds 1001, 1002, 1003, none of the above"), "{page}");
    assert!(
        page.contains("optimizer.local_steps=") && page.contains("network.compute_ms="),
        "{page}"
    );
    assert!(
        page.contains("| time to target, times that of c-sgd | |")
            && page.contains("| gradients a round |"),
        "{page}"
    );
    let row = page.lines().find(|line| line.starts_with("| c-sgd |")).unwrap();
    assert!(row.contains("| 1.00 |"), "{row}");
}

#[test]
fn rows_of_a_study_are_experiments_too() {
    let folder = folder();
    let (studies, rows) = (folder.path().join("studies"), folder.path().join("rows"));
    fs::create_dir(&studies).unwrap();
    fs::write(studies.join("small.toml"), STUDY).unwrap();
    let run = |more: &[&str]| {
        let mut command = gradvine();
        command.arg("study").arg(&studies).args(more).args(["-q", "--experiments"]).arg(&rows);
        command
    };
    run(&[]).assert().success();
    let row = gradvine::experiment::Experiment::load(&rows.join("small-02-dcd-4-bits.toml"), &[])
        .unwrap();
    assert_eq!((row.run.seed, row.run.rounds), (1, 20));
    assert_eq!(row.compressor["bits"].as_integer(), Some(4));
}

#[test]
fn studies_of_the_project_can_be_read() {
    let folders =
        ["paper", "world", "data"].map(|name| Path::new(ROOT).join("experiments").join(name));
    let mut read = 0;
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let study = gradvine_study::Study::load(&entry.unwrap().path()).unwrap();
        assert!(
            study.not_shown.is_some() || !study.expect.is_empty(),
            "{}: what is expected?",
            study.name
        );
        for (case, _) in &study.rows {
            case.experiment(&[])
                .unwrap_or_else(|error| panic!("{}, {}: {error}", study.name, case.name));
        }
        read += 1;
    }
    assert!(read >= 30, "{read} studies");
}

#[test]
#[ignore = "slow"]
fn rules_and_compressors_are_priced_by_their_plans() {
    let listed = |args: &[&str]| -> Vec<Value> {
        serde_json::from_slice(
            &gradvine().args(args).arg("--json").assert().success().get_output().stdout,
        )
        .unwrap()
    };
    let find = |all: &[Value], name: &str| {
        all.iter().find(|entry| entry["name"] == name).unwrap()["priced"].clone()
    };
    let rules = listed(&[
        "rules",
        "--parameters",
        "1000",
        "--topology",
        "torus:4x4",
        "--compressor",
        "sign",
    ]);
    // Four neighbours; 4 d bytes whole, and with sign d / 8 bytes and a scale.
    let whole = find(&rules, "d-psgd");
    assert_eq!(
        (whole["messages"]["mean"].as_f64(), whole["payload"]["mean"].as_f64()),
        (Some(4.0), Some(16_000.0))
    );
    let signs = find(&rules, "choco")["payload"]["most"].as_f64().unwrap();
    assert!((500.0..=600.0).contains(&signs), "{signs}");
    assert!(find(&rules, "choco")["resolved"]["gamma"].is_number());
    // A server on a star: the hub sends to all, the leaves to the hub.
    let star = listed(&["rules", "--parameters", "1000", "--topology", "star:8"]);
    let server = find(&star, "c-sgd");
    assert_eq!(
        (server["messages"]["mean"].as_f64(), server["messages"]["most"].as_f64()),
        (Some(14.0 / 8.0), Some(7.0))
    );
    // Every call is answered.
    let pairs = find(&star, "ad-psgd")["messages"]["mean"].as_f64().unwrap();
    assert!((pairs - 2.0).abs() < 1e-9, "{pairs}");
    let ring = listed(&[
        "rules",
        "--parameters",
        "10",
        "--compressor",
        "qsgd:levels=1:bucket=0",
        "--topology",
        "ring:4",
    ]);
    assert!(rules.iter().chain(&star).chain(&ring).all(|rule| rule["priced"].is_object()));
    let compressors = listed(&["compressors", "--parameters", "1000"]);
    assert_eq!(find(&compressors, "identity")["payload"], 4000);
    assert!(
        find(&compressors, "sign")["nominal_delta"]
            .as_f64()
            .is_some_and(|delta| (delta - 0.64).abs() < 0.02)
    );
    gradvine()
        .args(["rules", "--parameters", "2000000", "--topology", "ring:8"])
        .assert()
        .success();
}
