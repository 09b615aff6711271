//! Nodes that are missing, killed, or set up differently: the others say who, where and what to try, and end.
#![cfg(feature = "cli")]

mod command;

use std::{
    fs,
    time::{Duration, Instant},
};

use command::{Deployment, Reach, experiment, json, until_running};

/// A run that nobody sees the end of.
const LONG: &str = "rounds = 1000000000\nevaluate_every = 20";

#[test]
fn a_missing_node_is_named_with_its_address_and_what_to_try() {
    let deployment = Deployment::new(Reach::FromTheMiddle, "rounds = 5\nconnect_s = 2");
    let (mut tokyo, mut london) = (deployment.start("tokyo"), deployment.start("london"));
    assert_eq!((tokyo.end().0, london.end().0), (Some(4), Some(4)));
    let told = london.errors();
    let address = deployment.address("oslo");
    for words in ["error: node london waited 2 s for oslo", &address, "nothing listens there; has it been started"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // Whose link was up is told why the run did not begin.
    assert!(tokyo.errors().contains("node london") && tokyo.errors().contains("oslo"), "{}", tokyo.errors());
    let summary = json(&deployment.run("london").join("summary.json"));
    assert_eq!(summary["rounds"], 0);
    assert!(summary["failure"].as_str().unwrap().contains("oslo"));
}

#[test]
fn a_killed_node_ends_the_others_within_seconds() {
    let deployment = Deployment::new(Reach::Tcp, LONG);
    let mut nodes = command::NAMES.map(|name| deployment.start(name));
    command::NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    nodes[2].signal("KILL");
    let killed = Instant::now();
    for (name, node) in command::NAMES.iter().zip(&mut nodes).take(2) {
        let (code, _) = node.end();
        let told = node.errors();
        assert_eq!(code, Some(4), "{name}: {told}");
        assert!(told.starts_with(&format!("error: node {name}: the link to node ")), "{told}");
        assert!(told.contains("broke in round "), "{told}");
    }
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    assert!(nodes[1].errors().contains("the link to node oslo broke"), "{}", nodes[1].errors());
    let summary = json(&deployment.run("london").join("summary.json"));
    assert!(summary["rounds"].as_u64().unwrap() > 0 && summary["digest"] == "", "{summary}");
    assert!(!command::metrics(&deployment.run("london")).is_empty());
}

#[test]
fn nodes_with_different_experiments_name_the_key_and_both_values() {
    let deployment = Deployment::new(Reach::Tcp, LONG);
    deployment.write("other.toml", &experiment(LONG, "0.25"));
    let file = fs::read_to_string(deployment.file("tokyo.toml")).unwrap();
    deployment.write("tokyo.toml", &file.replace("experiment.toml", "other.toml"));
    let (mut tokyo, mut london) = (deployment.start("tokyo"), deployment.start("london"));
    assert_eq!((tokyo.end().0, london.end().0), (Some(2), Some(2)));
    assert!(tokyo.errors().contains("optimizer.step = 0.25 here, 0.1 there"), "{}", tokyo.errors());
    assert!(london.errors().contains("node tokyo runs another experiment: optimizer.step = 0.1 here, 0.25 there"));
    for name in ["tokyo", "london"] {
        assert!(
            !deployment.run(name).exists(),
            "nothing ran, so nothing stays, and the next attempt may use the same name"
        );
    }
}

#[test]
fn a_diverging_run_says_when() {
    let folder = command::folder();
    let out = folder.path().join("run");
    let mut command = command::gradvine();
    command.arg("simulate").args(command::SMALL).args([
        "--rounds",
        "300",
        "--set",
        "optimizer.weight_decay=1e20",
        "-q",
        "--out",
    ]);
    command.arg(&out).assert().code(4).stderr(predicates::str::contains("diverged in round"));
    assert!(json(&out.join("summary.json"))["diverged_at"].is_u64());
}
