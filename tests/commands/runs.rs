//! Runs that succeed: in one process, in many, simulated, and as nodes started by hand.

use crate::{census, command};

use std::{fs, path::Path, thread, time::Duration};

use command::{Deployment, NAMES, Reach, SMALL, folder, gradvine, json};
use serde_json::Value;

/// The arithmetic of the processors on which the digests were recorded: of products with FMA.
const ARITHMETIC: &str = "cc749ebb3152c1aa";

/// Runs a command to its end and returns the summary that it has written.
fn summary(command: &[&str], settings: &[&str], out: &Path) -> Value {
    gradvine()
        .args(command)
        .args(settings)
        .args(["--quiet", "--out"])
        .arg(out)
        .assert()
        .success()
        .stdout("");
    json(&out.join("summary.json"))
}

/// Trains in one process and in many and simulates: the models must be the same, and the summaries
/// too, except for the time. Returns the summary.
fn three_ways(settings: &[&str]) -> Value {
    let folder = folder();
    let ways = [&["train"][..], &["train", "--processes"], &["simulate"]];
    let mut summaries = ways.map(|way| {
        let mut summary = summary(way, settings, &folder.path().join(way.concat()));
        assert_eq!(summary["digest"].as_str().unwrap().len(), 64);
        summary.as_object_mut().unwrap().remove("time_s");
        let computing = summary
            .as_object_mut()
            .unwrap()
            .remove("computing")
            .and_then(|share| share.as_f64())
            .unwrap();
        // On an ideal virtual network nothing takes time.
        assert!(
            if way[0] == "simulate" {
                computing == 0.0
            } else {
                computing > 0.0 && computing < 1.0
            },
            "{computing}"
        );
        // Only a simulation has one.
        summary.as_object_mut().unwrap().remove("trace");
        summary
    });
    let simulated = summaries[2].take();
    for (way, summary) in ways.iter().zip(&summaries[..2]) {
        assert_eq!(summary["digest"], simulated["digest"], "{way:?} {settings:?}");
        assert_eq!(*summary, simulated, "{way:?} {settings:?}");
        for model in ["model-0", "model-2", "model-mean"] {
            let bytes = |way: &[&str]| {
                fs::read(folder.path().join(way.concat()).join(format!("{model}.safetensors")))
                    .unwrap()
            };
            assert_eq!(bytes(way), bytes(&["simulate"]), "{model} of {way:?} {settings:?}");
        }
    }
    simulated
}

#[test]
#[ignore = "slow"]
fn every_rule_ends_with_one_digest_however_it_is_run() {
    let rules = gradvine().args(["rules", "--json"]).assert().success();
    let rules: Vec<Value> = serde_json::from_slice(&rules.get_output().stdout).unwrap();
    assert!(rules.len() >= 5);
    let mut recorded = String::new();
    for rule in rules {
        let name = rule["name"].as_str().unwrap();
        if ["ad-psgd", "swarm", "stale-synchronous"].contains(&name) {
            // Asynchronous: the order of events decides.
            continue;
        }
        let compressor = match name {
            "top-k-all-gather" => "top-k",
            "sketched-sgd" => "count-sketch",
            _ if rule["compresses"].as_bool().unwrap() => "min-max",
            _ => "identity",
        };
        let (kind, compressor) =
            (format!("rule.kind={name}"), format!("compressor.kind={compressor}"));
        let topology = format!("{}:3", rule["home"].as_str().unwrap());
        let [_, _, small @ ..] = SMALL;
        let sets = ["--rounds", "5", "--topology", &topology, "--set", &kind, "--set", &compressor];
        let settings = [&small[..], &sets].concat();
        let summary = three_ways(&settings);
        let arithmetic = &summary["participation"]["0"]["arithmetic"];
        if arithmetic == ARITHMETIC {
            let digest = summary["digest"].as_str().unwrap();
            recorded += &format!("{name} {compressor} {topology} {digest}\n");
        }
    }
    if recorded.is_empty() {
        println!("skipped: digests are recorded for processors with other arithmetic");
    } else {
        census::check("digests.txt", &recorded);
    }
}

#[test]
fn the_default_experiment_ends_with_one_digest_however_it_is_run() {
    three_ways(&["--rounds", "3"]);
}

/// Every Linux has reno, and lets every program choose it.
#[test]
#[ignore = "slow"]
#[cfg(target_os = "linux")]
fn nodes_choose_their_congestion_control() {
    let folder = folder();
    let run = |congestion: &str| {
        let mut command = gradvine();
        command.args([
            "train",
            "--rounds",
            "2",
            "-q",
            "--set",
            &format!("run.congestion={congestion}"),
            "--out",
        ]);
        command
            .arg(folder.path().join(congestion))
            .env("RUST_LOG", "gradvine=debug")
            .env("NO_COLOR", "1");
        command
    };
    let assert = run("reno").assert().success();
    let log = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    // Both ends of each of the ring's eight links.
    assert_eq!(log.matches(": TCP with reno").count(), 16, "{log}");
    assert!(!log.contains("keeps the system's"), "{log}");
    let assert = run("rneo").assert().code(2);
    let log = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    let expected = "error: --set: run.congestion = \"rneo\": this system has no such congestion \
                control: expected one of ";
    assert!(log.contains(expected), "{log}");
}

#[test]
fn a_run_directory_repeats_its_run() {
    let folder = folder();
    let (first, again) = (folder.path().join("first"), folder.path().join("again"));
    let sets = ["--rounds", "4", "--seed", "7", "--set", "run.transport=quic"];
    let settings = [&SMALL[..], &sets].concat();
    let digest = summary(&["train"], &settings, &first)["digest"].clone();
    let file = first.join("experiment.toml");
    gradvine().arg("simulate").arg(file).args(["-q", "--out"]).arg(&again).assert().success();
    assert_eq!(json(&again.join("summary.json"))["digest"], digest);
    let metrics = command::metrics(&first);
    assert_eq!(metrics.len(), 3, "the last round of each node");
    let model = fs::read(first.join("model-mean.safetensors")).unwrap();
    assert_eq!(model, fs::read(again.join("model-mean.safetensors")).unwrap());
}

#[test]
#[ignore = "slow"]
fn a_run_goes_on_from_the_model_of_another() {
    let folder = folder();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let settings = ["--set", "topology.file=ring:3", "--set", "run.evaluate_every=1"];
    let accuracy = |summary: &Value| summary["final"]["test_accuracy_of_mean"].as_f64().unwrap();
    let more = [&settings[..], &["--rounds", "150"]].concat();
    let before = accuracy(&summary(&["simulate"], &more, &first));

    let model = first.join("model-mean.safetensors").display().to_string();
    let more =
        [&settings[..], &["--rounds", "1", "--set", "optimizer.step=1e-6", "--init", &model]];
    let after = summary(&["train", "--processes"], &more.concat(), &second);
    assert!(before > 0.85, "{before}");
    assert!((accuracy(&after) - before).abs() < 0.01, "{before} and then {}", accuracy(&after));
    // The path of the model may be relative to the experiment.
    let relative = ["--rounds", "1", "--set", "model.init=model-mean.safetensors"];
    let mut train = gradvine();
    train.arg("train").arg(first.join("experiment.toml")).args(["--processes", "-q"]);
    train.args(relative).arg("--out").arg(folder.path().join("third")).assert().success();
    // The features are scaled as for that model.
    let experiment = fs::read_to_string(second.join("experiment.toml")).unwrap();
    assert!(experiment.contains("[data.scale]"), "{experiment}");

    let wrong = |words: &[&str], init: &str| {
        let run =
            gradvine().args(["simulate", "--rounds", "1", "--init", init]).args(words).assert();
        String::from_utf8(run.failure().code(2).get_output().stderr.clone()).unwrap()
    };
    // Its digest is in the summary of its run; values with another one are refused.
    let before: Value =
        serde_json::from_slice(&fs::read(first.join("summary.json")).unwrap()).unwrap();
    let digest = before["mean_digest"].as_str().unwrap();
    let key = format!("model.init_digest=\"{digest}\"");
    let more = [&settings[..], &["--rounds", "1", "--init", &model, "--set", &key]].concat();
    summary(&["simulate"], &more, &folder.path().join("fourth"));
    let own = first.join("model-0.safetensors").display().to_string();
    let text = wrong(&["--set", "topology.file=ring:3", "--set", &key], &own);
    assert!(text.contains(digest) && text.contains("have the SHA-256"), "{text}");
    let text = wrong(&["--set", "model.hidden=[7]"], &model);
    assert!(text.contains("tensor layer0.weight") && text.contains("is needed"), "{text}");
}

#[test]
fn an_experiment_beside_its_data_repeats_from_anywhere() {
    let folder = folder();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("rows.csv"), command::rows(0)).unwrap();
    fs::write(site.join("net.toml"), "family = \"star\"\nnodes = 4\n").unwrap();
    let text = "[run]\nrounds = 3\nout = \"first\"\n[topology]\nfile \
                = \"net.toml\"\n[data]\nsource = \"rows.csv\"\ntarget = 2\n\
                [rule]\nkind = \"d-psgd\"\n";
    fs::write(site.join("e.toml"), text).unwrap();
    let run = |file: &str| {
        let mut command = gradvine();
        command.current_dir(folder.path()).args(["simulate", file, "-q"]);
        command
    };
    run("site/e.toml").assert().success();
    // The resolved file names no run directory and finds its data.
    run("first/experiment.toml").args(["--out", "second"]).assert().success();
    let digest = |run: &str| json(&folder.path().join(run).join("summary.json"))["digest"].clone();
    assert_eq!(digest("first"), digest("second"));
}

#[test]
fn processes_leave_the_files_of_a_deployment() {
    let folder = folder();
    let out = folder.path().join("run");
    summary(&["train", "--processes"], &[&SMALL[..], &["--rounds", "3"]].concat(), &out);
    for node in ["0", "1", "2"] {
        for file in ["node.toml", "node.key", "data.csv", "log.txt", "run/summary.json"] {
            assert!(out.join("nodes").join(node).join(file).is_file(), "nodes/{node}/{file}");
        }
        assert!(out.join(format!("model-{node}.safetensors")).is_file());
    }
    for file in [
        "experiment.toml",
        "topology.toml",
        "model-mean.safetensors",
        "nodes/experiment.toml",
        "nodes/test.csv",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    // One of its nodes alone is as if set up by a user: it waits for the others.
    let text = fs::read_to_string(out.join("nodes/0/node.toml")).unwrap();
    assert!(text.contains("topology = \"../../topology.toml\""), "{text}");
}

/// Starts the nodes in this order with a pause between them; all must succeed with the same files.
fn by_hand(reach: Reach, order: [usize; 3]) {
    let deployment = Deployment::new(reach, "rounds = 20\nevaluate_every = 10");
    let mut running = Vec::new();
    for index in order {
        running.push(deployment.start(NAMES[index]));
        thread::sleep(Duration::from_millis(200));
    }
    for node in &mut running {
        let (code, _) = node.end();
        let errors = node.errors();
        // On a busy machine a start takes so long that others say for whom they wait.
        let others = errors.lines().find(|line| !line.contains(" waits for "));
        assert_eq!((code, others), (Some(0), None));
    }
    let bytes = |name: &str, file: &str| fs::read(deployment.run(name).join(file)).unwrap();
    for name in NAMES {
        for file in ["summary.json", "model-mean.safetensors"] {
            assert_eq!(bytes(name, file), bytes("london", file), "{name}/{file}");
        }
        assert_eq!(command::metrics(&deployment.run(name)).len(), 2);
        assert!(deployment.run(name).join(format!("model-{name}.safetensors")).is_file());
    }
    let summary = json(&deployment.run("oslo").join("summary.json"));
    assert_eq!(
        (summary["topology"].as_str(), summary["rounds"].as_u64()),
        (Some("three"), Some(20))
    );
    for name in NAMES {
        assert_eq!(summary["participation"][name]["rounds"], 20);
    }
}

#[test]
#[ignore = "slow"]
fn nodes_started_by_hand_end_with_the_same_files() {
    by_hand(Reach::Tcp, [2, 1, 0]);
}

#[test]
#[ignore = "slow"]
fn nodes_find_each_other_over_quic() {
    by_hand(Reach::Quic, [1, 0, 2]);
}

#[test]
fn a_node_without_an_address_dials_the_others() {
    by_hand(Reach::FromTheMiddle, [0, 2, 1]);
}
