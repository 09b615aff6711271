//! Ctrl-C and SIGTERM: within two seconds the program ends, and its results are on disk.
#![cfg(unix)]

use crate::command;

use std::{collections::BTreeMap, path::Path, time::Duration};

use command::{
    Deployment, NAMES, Reach, Running, SMALL, folder, json, metrics, program, until_running,
};

const PROMISED: Duration = Duration::from_secs(2);

/// The run directory of an interrupted run.
fn check(run: &Path) {
    let summary = json(&run.join("summary.json"));
    assert_eq!(summary["interrupted"], true, "{summary}");
    let rounds = summary["rounds"].as_u64().unwrap();
    // Processes stop where they are: the summary counts the rounds of all of them.
    let mut latest = BTreeMap::new();
    for metric in metrics(run) {
        latest.insert(metric["node"].to_string(), metric["round"].as_u64().unwrap());
    }
    let seen = latest.into_values().min().unwrap_or(0);
    assert!(rounds > 0 && rounds + 1 >= seen, "{rounds} rounds, metrics of {seen}");
    // The trained models are saved.
    let part = |name: &str| summary["participation"][name]["bytes_payload"].as_u64().unwrap_or(0);
    let nodes: Vec<String> =
        summary["participation"].as_object().unwrap().keys().cloned().collect();
    assert!(!nodes.is_empty() && nodes.iter().all(|name| part(name) > 0), "{summary}");
    for name in nodes {
        assert!(
            run.join(format!("model-{name}.safetensors")).is_file(),
            "the model of node {name}"
        );
    }
}

fn interrupt(command: &[&str], signal: &str) {
    let folder = folder();
    let out = folder.path().join("run");
    let sets = ["--rounds", "1000000000", "--set", "run.evaluate_every=20", "--quiet", "--out"];
    let mut running = Running::start(
        program().args(command).args(SMALL).args(sets).arg(&out),
        folder.path(),
        "interrupted",
    );
    if command.contains(&"--processes") {
        (0..3).for_each(|node| until_running(&out.join(format!("nodes/{node}/run"))));
    } else {
        until_running(&out);
    }
    running.signal(signal);
    let (code, took) = running.end();
    assert_eq!(code, Some(130), "{}", running.errors());
    assert!(took < PROMISED, "{command:?} took {took:?}");
    let errors = running.errors();
    // There may be a warning before it: metrics of so many rounds may not fit on the disk.
    assert!(
        errors.lines().last().is_some_and(|line| line.starts_with("interrupted: ")),
        "{errors}"
    );
    check(&out);
}

#[test]
fn a_simulation_stops() {
    interrupt(&["simulate"], "INT");
    interrupt(&["simulate"], "TERM");
}

/// As `timeout` does, which signals its child and then its group.
#[test]
fn a_signal_that_is_repeated_at_once_ends_nothing() {
    let folder = folder();
    let out = folder.path().join("run");
    let mut simulate = program();
    simulate
        .arg("simulate")
        .args(SMALL)
        .args(["--rounds", "1000000000", "--quiet", "--out"])
        .arg(&out);
    let mut running = Running::start(&mut simulate, folder.path(), "repeated");
    until_running(&out);
    (0..3).for_each(|_| running.signal("INT"));
    let (code, took) = running.end();
    assert_eq!(code, Some(130), "{}", running.errors());
    assert!(took < PROMISED, "{took:?}");
    check(&out);
}

#[test]
fn training_in_one_process_stops() {
    interrupt(&["train"], "INT");
    interrupt(&["train"], "TERM");
}

#[test]
#[ignore = "slow"]
fn training_in_many_processes_stops() {
    interrupt(&["train", "--processes"], "INT");
    interrupt(&["train", "--processes"], "TERM");
}

#[test]
#[ignore = "slow"]
fn a_node_stops_and_its_neighbours_learn_why() {
    for signal in ["INT", "TERM"] {
        let deployment = Deployment::new(Reach::Tcp, "rounds = 1000000000\nevaluate_every = 20");
        let mut nodes = NAMES.map(|name| deployment.start(name));
        NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
        nodes[0].signal(signal);
        let (code, took) = nodes[0].end();
        assert_eq!(code, Some(130), "{}", nodes[0].errors());
        assert!(took < PROMISED, "{took:?}");
        check(&deployment.run("tokyo"));
        assert_eq!(nodes[1].end().0, Some(4));
        let stderr = nodes[1].errors();
        assert!(stderr.contains("node tokyo left the run: interrupted in round"), "{stderr}");
    }
}

#[test]
fn a_node_that_still_waits_stops() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5");
    let mut node = deployment.start("london");
    command::until("the run directory", || {
        deployment.run("london").join("topology.toml").is_file()
    });
    std::thread::sleep(Duration::from_millis(200));
    node.signal("INT");
    let (code, took) = node.end();
    assert_eq!(code, Some(130), "{}", node.errors());
    assert!(took < PROMISED, "{took:?}");
    let summary = json(&deployment.run("london").join("summary.json"));
    assert_eq!(
        (summary["interrupted"].as_bool(), summary["rounds"].as_u64()),
        (Some(true), Some(0))
    );
}
