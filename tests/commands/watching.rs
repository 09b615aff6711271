//! A run seen from one of its nodes: who is waited for, and who is not.
#![cfg(unix)]

use crate::command;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use command::{Deployment, NAMES, Reach, Running, gradvine, json, until_running};
use serde_json::Value;

use crate::{members::Ring, page::painted, report_pictures::browser};

/// What a node of a ring knows, and the exit code of the command that tells it.
fn status(ring: &Ring, node: usize) -> (i32, Value) {
    asked(ring.file(node).to_str().unwrap())
}

fn asked(of: &str) -> (i32, Value) {
    let mut command = gradvine();
    let output = command.args(["status", of, "--json"]).assert();
    let output = output.get_output();
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), said)
}

fn names(network: &Value) -> BTreeSet<String> {
    let all = network["holding_up"].as_array();
    all.into_iter().flatten().map(|name| name.as_str().unwrap().to_string()).collect()
}

/// Waits until each of these nodes names exactly those, and returns what the first one says. Prints
/// how long that took; a browser, if there is one, paints the same.
fn until_named(ring: &Ring, seen_by: &[usize], expected: &[&str]) -> Value {
    let started = Instant::now();
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    let mut last = Value::Null;
    for &node in seen_by {
        command::until(&format!("{node} names {expected:?}"), || {
            let (code, network) = status(ring, node);
            let is_so = names(&network) == expected && network["round"].as_u64() > Some(0);
            if is_so && node == seen_by[0] {
                assert_eq!(code, if expected.is_empty() { 0 } else { 3 }, "{network}");
                last = network;
            }
            is_so
        });
    }
    println!("{expected:?} named by {seen_by:?} after {:.1} s", started.elapsed().as_secs_f64());
    if let Some(browser) = browser() {
        // It is painted later than the command has asked, so it may take another look.
        let holders = expected.iter().filter(|_| expected.len() == 1);
        let holders: Vec<String> =
            holders.map(|name| format!("{name}, which holds up the run")).collect();
        let nobody = "id=\"no-holders\" hidden";
        command::until_within(Duration::from_secs(120), "the page says the same", || {
            let painted = painted(&browser, ring.folder.path(), ring.page());
            holders.iter().all(|holder| painted.contains(holder))
                && painted.contains(nobody) != expected.is_empty()
        });
    }
    last
}

fn sentence(network: &Value) -> &str {
    network["sentence"].as_str().unwrap()
}

/// A node that is stopped, one that is slow, a link that is cut, a node that is killed and returns:
/// all others name each, and nobody else.
#[test]
#[ignore = "slow"]
fn each_fault_is_named_by_all_that_see_it() {
    let ring = Ring::new(1_000_000, 600.0, &[]);
    ring.serve();
    // At the pace of the machine, so that a slow node is one.
    ring.delay.store(0, Ordering::Relaxed);
    let mut nodes = ring.start_all();
    until_named(&ring, &[0, 1, 2, 3, 4], &[]);
    command::until("all tell what they do with their time", || {
        let (_, network) = status(&ring, 2);
        network["nodes"].as_array().unwrap().iter().all(|node| {
            let share = |what: &str| node["shares"][what].as_f64();
            let all = ["computing", "mixing", "evaluating", "disk", "held"].map(share);
            all.iter().all(|share| share.is_some_and(|share| (0.0..=1.0).contains(&share)))
                && share("mixing") > Some(0.0)
        })
    });

    nodes[2].1.signal("STOP");
    let network = until_named(&ring, &[0, 1, 3, 4], &["2"]);
    let silent = || {
        let (_, network) = status(&ring, 0);
        let said = sentence(&network).split_once("wait for 2, which has been silent for ");
        let seconds = said.and_then(|(_, rest)| rest.strip_suffix(" s")?.parse::<u64>().ok());
        seconds.is_some_and(|seconds| seconds >= 5)
    };
    command::until(&format!("it is silent: {network}"), silent);
    nodes[2].1.signal("CONT");
    until_named(&ring, &[0, 1, 3, 4], &[]);

    let slow = Arc::new(AtomicBool::new(true));
    let throttle = {
        let (slow, id) = (Arc::clone(&slow), nodes[3].1.id());
        thread::spawn(move || {
            let signal = |name: &str| {
                let mut kill = std::process::Command::new("kill");
                kill.args([&format!("-{name}"), &id.to_string()]).status().unwrap();
            };
            while slow.load(Ordering::SeqCst) {
                signal("STOP");
                thread::sleep(Duration::from_millis(60));
                signal("CONT");
                thread::sleep(Duration::from_millis(6));
            }
        })
    };
    let network = until_named(&ring, &[0, 1, 2, 4], &["3"]);
    assert!(sentence(&network).starts_with("3 holds the run up: it "), "{network}");
    slow.store(false, Ordering::SeqCst);
    throttle.join().unwrap();
    until_named(&ring, &[0, 1, 2, 4], &[]);

    ring.links[0].iter().for_each(|passage| passage.set(false));
    let network = until_named(&ring, &[0, 1, 2, 3, 4], &["0", "1"]);
    assert!(sentence(&network).contains("the link between 0 and 1, which is down ("), "{network}");
    ring.links[0].iter().for_each(|passage| passage.set(true));
    until_named(&ring, &[0, 1, 2, 3, 4], &[]);

    nodes[4].1.signal("KILL");
    nodes[4].1.end();
    let network = until_named(&ring, &[0, 1, 2, 3], &["4"]);
    let (_, own) = status(&ring, 4);
    assert!(own["nodes"].is_array(), "what it knew last is there: {own}");
    nodes[4].1 = ring.start(4);
    let back = until_named(&ring, &[0, 1, 2, 3, 4], &[]);
    let texts: Vec<&str> = back["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    for words in ["2 has been silent for", "3 holds the run up", "4 was started again"] {
        assert!(texts.iter().any(|text| text.contains(words)), "{words}: {texts:?} {network}");
    }
}

/// The digest of a run, with what its nodes say in the node files.
fn run_with(status: &str) -> (Value, [Value; 3]) {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 300\nevaluate_every = 20");
    for name in NAMES {
        let file = format!("{name}.toml");
        let text = std::fs::read_to_string(deployment.file(&file)).unwrap();
        deployment.write(&file, &format!("{text}{status}"));
    }
    let mut nodes: [Running; 3] = NAMES.map(|name| deployment.start(name));
    NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    for node in &mut nodes {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    let summary = json(&deployment.run("tokyo").join("summary.json"));
    let known = NAMES.map(|name| {
        let (code, known) = asked(deployment.run(name).to_str().unwrap());
        assert_eq!(code, 0, "{known}");
        known
    });
    (summary["digest"].clone(), known)
}

/// What nodes tell each other changes no bit, and a run that is over is known as such.
#[test]
fn a_run_ends_with_the_same_bits_whatever_its_nodes_tell() {
    let (digest, known) = run_with("[status]\nlisten = \"127.0.0.1:0\"\n");
    let (terse, less) = run_with("[status]\nshare = false\n");
    assert_eq!(digest, terse);
    let of = |network: &Value, name: &str| -> Value {
        let mut nodes = network["nodes"].as_array().unwrap().iter();
        nodes.find(|node| node["name"] == name).unwrap().clone()
    };
    for (network, name) in known.iter().zip(NAMES) {
        assert_eq!(
            (network["state"].as_str(), network["round"].as_u64()),
            (Some("done"), Some(300))
        );
        assert_eq!(sentence(network), "the run is over after 300 rounds");
        let accuracy = of(network, name)["measures"]["test_accuracy"].as_f64();
        assert!(accuracy > Some(0.5), "{network}");
    }
    for (network, name) in less.iter().zip(NAMES) {
        assert_eq!(network["state"], "done");
        assert!(of(network, name)["loss"].is_number(), "it knows its own: {network}");
        for other in NAMES.into_iter().filter(|other| *other != name) {
            let other = of(network, other);
            assert!(other["loss"].is_null() && other["links"] == serde_json::json!([]), "{other}");
        }
    }
}

#[test]
fn where_nothing_is_known_the_error_says_what_is_expected() {
    let folder = command::folder();
    let refused = |arguments: &[&str], code: i32| {
        let mut command = gradvine();
        let assert = command.current_dir(folder.path()).arg("status").args(arguments).assert();
        let output = assert.get_output();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        String::from_utf8(output.stderr.clone()).unwrap()
    };
    assert!(refused(&[], 2).contains("there is no node.toml here"));
    let text = refused(&["nowhere"], 2);
    assert!(text.contains("expected a node file, a run folder, or an address"), "{text}");
    let text = refused(&["."], 4);
    assert!(text.contains("the node has not run yet"), "{text}");
    std::fs::write(folder.path().join("status.json"), "{\"version\": 2}").unwrap();
    let text = refused(&["."], 4);
    assert!(text.contains("version 2 of the status of a run"), "{text}");
    let port = gradvine::net::free_ports(gradvine::experiment::Transport::Tcp, 1).unwrap()[0];
    let text = refused(&[&format!("127.0.0.1:{port}")], 4);
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn each_line_of_a_log_in_json_is_an_object() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 50\nevaluate_every = 10");
    let mut nodes: [Running; 3] = NAMES.map(|name| {
        deployment.start_as(name, |command| {
            command.args(["--log-format", "json"]).env("RUST_LOG", "gradvine=info")
        })
    });
    for node in &mut nodes {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
        let text = node.errors();
        assert!(text.lines().count() > 2, "{text}");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            for key in ["timestamp", "level", "message"] {
                assert!(line[key].is_string(), "{line}");
            }
        }
    }
    let missing = gradvine().args(["node", "nowhere.toml", "--log-format", "json"]).assert();
    let text = String::from_utf8(missing.code(2).get_output().stderr.clone()).unwrap();
    let line: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("nowhere.toml"), "{line}");
}
