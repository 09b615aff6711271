//! `on_event` in the file of a node: what its command is told when a run waits, loses a member and
//! takes it back, fails or ends.
#![cfg(target_os = "linux")]

use std::{fs, os::unix::fs::symlink, time::Duration};

use serde_json::{Value, json};

use crate::command::{
    self, Deployment, NAMES, Reach, Running, gradvine, json as json_of, until_running,
};

/// The keys of a record, in their order.
const KEYS: [&str; 8] = ["version", "run", "node", "event", "time", "round", "nodes", "text"];

/// Gives a node a command.
fn set(deployment: &Deployment, name: &str, words: &[&str], limit_s: f64) {
    let file = format!("{name}.toml");
    let text = fs::read_to_string(deployment.file(&file)).unwrap();
    let own = format!("on_event = {words:?}\non_event_s = {limit_s}\n");
    deployment.write(&file, &(own + &text));
}

/// Gives each node a command that appends its input to `NAME.records`.
fn record_all(deployment: &Deployment) {
    for name in NAMES {
        let file = deployment.file(&format!("{name}.records"));
        set(deployment, name, &["sh", "-c", "cat >> \"$1\"", "sh", file.to_str().unwrap()], 30.0);
    }
}

/// The records of a node so far; each is a whole line with these keys.
fn records(deployment: &Deployment, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(deployment.file(&format!("{name}.records"))).unwrap_or_default();
    let record = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let keys: Vec<&String> = record.as_object().unwrap().keys().collect();
        assert_eq!(keys, KEYS, "{line}");
        let known = [&record["version"], &record["run"], &record["node"]];
        assert_eq!(known, [&json!(1), &json!("trial"), &json!(name)]);
        let time = record["time"].as_str().unwrap();
        assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{time}");
        record
    };
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(record).collect()
}

/// Those of this event.
fn of(deployment: &Deployment, name: &str, event: &str) -> Vec<Value> {
    let all = records(deployment, name).into_iter();
    all.filter(|record| record["event"] == event).collect()
}

fn until_told(deployment: &Deployment, name: &str, event: &str) {
    let what = format!("{event} at {name}");
    command::until(&what, || !of(deployment, name, event).is_empty());
}

/// The events of a node but `waits`, which a busy machine may add to, with their nodes.
fn changes(deployment: &Deployment, name: &str) -> Vec<(Value, Value)> {
    let all = records(deployment, name).into_iter().filter(|record| record["event"] != "waits");
    all.map(|record| (record["event"].clone(), record["nodes"].clone())).collect()
}

/// Starts all nodes, and waits until they run.
fn start_all(deployment: &Deployment) -> [Running; 3] {
    let nodes = NAMES.map(|name| deployment.start(name));
    NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    nodes
}

fn kill(node: &mut Running) {
    node.signal("KILL");
    node.end();
}

/// The first `waits` for oslo after the first round, which must come before this event.
fn awaited(deployment: &Deployment, name: &str, before: &str) -> Value {
    let all = records(deployment, name);
    let place = all.iter().position(|record| record["event"] == before).unwrap();
    let is_it = |record: &&Value| record["event"] == "waits" && record["nodes"] == json!(["oslo"]);
    all[..place].iter().find(is_it).unwrap_or_else(|| panic!("{all:?}")).clone()
}

#[test]
#[ignore = "slow"]
fn a_killed_node_is_awaited_lost_and_returns() {
    // Longer than the first report of a wait, which comes after five seconds.
    let run = "id = \"trial\"\nrounds = 100000000\nevaluate_every = 50\n[absence]\npolicy = \
               \"continue\"\ndeadline_s = 9\n[checkpoint]\nevery_rounds = 50";
    let deployment = Deployment::new(Reach::Tcp, run);
    record_all(&deployment);
    let mut nodes = start_all(&deployment);
    kill(&mut nodes[2]);
    ["tokyo", "london"].iter().for_each(|name| until_told(&deployment, name, "lost"));
    let waits = awaited(&deployment, "london", "lost");
    let text = waits["text"].as_str().unwrap();
    assert!(text.starts_with("node london waits for the link to oslo ("), "{text}");
    let lost = &of(&deployment, "london", "lost")[0];
    let round = lost["round"].as_u64().unwrap();
    let text = format!("the run continues after round {round} without oslo, with 2 members");
    assert_eq!(lost["text"], text);
    assert!(round.is_multiple_of(50), "a checkpoint: {lost}");
    nodes[2] = deployment.start("oslo");
    ["tokyo", "london"].iter().for_each(|name| until_told(&deployment, name, "returned"));
    let returned = &of(&deployment, "london", "returned")[0];
    let after = returned["round"].as_u64().unwrap();
    assert!(after > round, "{returned}");
    assert_eq!(returned["text"], format!("oslo takes part again, in round {after}"));
    nodes.iter().for_each(|node| node.signal("TERM"));
    for node in &mut nodes {
        assert_ne!(node.end().0, Some(0), "{}", node.errors());
    }
    // They are stopped at once: each is interrupted, or misses the others first.
    for name in ["tokyo", "london"] {
        let changes = changes(&deployment, name);
        let oslo = json!(["oslo"]);
        assert_eq!(changes[..2], [(json!("lost"), oslo.clone()), (json!("returned"), oslo)]);
        let last = &changes.last().unwrap().0;
        assert!(last == "ended" || last == "failed", "{changes:?}");
    }
}

#[test]
#[ignore = "slow"]
fn the_nodes_that_cannot_continue_say_so_and_whom_they_have_awaited() {
    let run = "id = \"trial\"\nrounds = 100000000\nevaluate_every = 50\n[absence]\ndeadline_s = 7";
    let deployment = Deployment::new(Reach::Tcp, run);
    record_all(&deployment);
    let [mut tokyo, mut london, mut oslo] = start_all(&deployment);
    kill(&mut oslo);
    for node in [&mut tokyo, &mut london] {
        assert_eq!(node.end().0, Some(4), "{}", node.errors());
    }
    let waits = awaited(&deployment, "london", "failed");
    assert!(waits["round"].as_u64().unwrap() > 0, "{waits}");
    for name in ["tokyo", "london"] {
        assert_eq!(changes(&deployment, name).len(), 1, "{:?}", records(&deployment, name));
        let failed = &of(&deployment, name, "failed")[0];
        let summary = json_of(&deployment.run(name).join("summary.json"));
        let text = failed["text"].as_str().unwrap();
        assert!(text.contains(summary["failure"].as_str().unwrap()), "{failed} {summary}");
        assert_eq!(failed["round"], summary["rounds"], "{failed} {summary}");
    }
    assert_eq!(of(&deployment, "london", "failed")[0]["nodes"], json!(["oslo"]));
}

#[test]
fn the_end_is_told_and_a_command_that_fails_ends_no_run() {
    let deployment =
        Deployment::new(Reach::Tcp, "id = \"trial\"\nrounds = 400\nevaluate_every = 50");
    // A path beside the node file, not beside the folder from which the node is started.
    fs::create_dir(deployment.file("tools")).unwrap();
    symlink("/bin/sh", deployment.file("tools/notify")).unwrap();
    let records_of_tokyo = deployment.file("tokyo.records");
    let keep = ["tools/notify", "-c", "cat >> \"$0\"", records_of_tokyo.to_str().unwrap()];
    set(&deployment, "tokyo", &keep, 30.0);
    symlink("/bin/sh", deployment.file("tools/gone")).unwrap();
    set(&deployment, "london", &["./tools/gone", "-c", "exit 0"], 30.0);
    let pid = deployment.file("pid");
    let hang = ["sh", "-c", "sleep 1000 & echo $! > \"$0\"; wait", pid.to_str().unwrap()];
    set(&deployment, "oslo", &hang, 3.0);
    // The first two wait for the third, so the programs are there when they look for them.
    let first = ["tokyo", "london"].map(|name| deployment.start(name));
    command::until("london begins", || deployment.run("london").join("experiment.toml").exists());
    fs::remove_file(deployment.file("tools/gone")).unwrap();
    let [mut tokyo, mut london] = first;
    let mut oslo = deployment.start("oslo");
    for node in [&mut tokyo, &mut london, &mut oslo] {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    let ended = &of(&deployment, "tokyo", "ended");
    let text = format!(
        "the run is over after 400 rounds; the results are in {}",
        deployment.run("tokyo").display()
    );
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!((&ended[0]["round"], &ended[0]["nodes"]), (&json!(400), &json!([])));
    assert_eq!(ended[0]["text"], text);
    assert_eq!(changes(&deployment, "tokyo").len(), 1);
    let errors = london.errors();
    let gone = deployment.file("./tools/gone");
    let said = format!(
        "node.on_event: {}, called for ended of round 400, cannot be started: No such file",
        gone.display()
    );
    assert!(errors.contains(&said), "{errors}");
    let errors = oslo.errors();
    assert!(
        errors.contains(
            "called for ended of round 400, did not end within 3 s, and was killed with what it \
             had started"
        ),
        "{errors}"
    );
    let pid = fs::read_to_string(pid).unwrap();
    let is_running = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    command::until_within(Duration::from_secs(60), "the end of its child", || !is_running());
}

#[test]
fn a_command_that_cannot_be_run_is_refused_before_the_run() {
    let deployment = Deployment::new(Reach::Tcp, "id = \"trial\"\nrounds = 5");
    let accepted = "accepted: the path of a program that this user may run, or the name of one on \
                    PATH, then its arguments";
    let file = deployment.file("london.toml");
    let text = fs::read_to_string(&file).unwrap();
    let no = deployment.file("./no");
    let refused = |words: &[&str], limit_s: f64, problem: &str| {
        fs::write(&file, &text).unwrap();
        set(&deployment, "london", words, limit_s);
        let error = command::refused(gradvine().arg("node").arg(&file));
        assert_eq!(error, format!("error: {}: {problem}", file.display()));
        assert!(!deployment.run("london").exists());
    };
    let problem = format!("{}: No such file or directory (os error 2); {accepted}", no.display());
    let words = format!("[{no:?}, \"x\"]");
    refused(&["./no", "x"], 30.0, &format!("node.on_event = {words}: {problem}"));
    refused(&[], 30.0, &format!("node.on_event = []: names no program; {accepted}"));
    let problem = "node.on_event_s = 0: accepted: seconds, more than 0 and at most 3600";
    refused(&["true"], 0.0, problem);
}
