//! `run.stop_early`: all nodes end after the same round, however they are connected, and after
//! restarts.
#![cfg(unix)]

use std::{fs, path::Path, thread, time::Duration};

use serde_json::{Value, json};

use crate::command::{Deployment, NAMES, Reach, Running, folder, gradvine, json as read, until};

const STOP: &str = "run.stop_early={share=0.2,every=5,patience=2}";

/// A run on five nodes that stops early.
fn settings() -> Vec<&'static str> {
    let mut all = vec!["--topology", "ring:5", "-q", "--no-baseline"];
    for set in
        ["run.rounds=2000", "data.source=breast-cancer", "model.kind=mlp", "data.split=iid", STOP]
    {
        all.extend(["--set", set]);
    }
    all.extend(["--set", "optimizer.step=0.5", "--set", "optimizer.schedule=constant"]);
    all
}

fn run(command: &str, out: &Path, more: &[&str]) -> Value {
    gradvine().arg(command).args(settings()).args(more).arg("--out").arg(out).assert().success();
    read(&out.join("summary.json"))
}

#[test]
#[ignore = "slow"]
fn all_drivers_stop_after_the_same_round_with_the_same_bits() {
    let folder = folder();
    let out = |name: &str| folder.path().join(name);
    let simulated = run("simulate", &out("simulated"), &[]);
    let rounds = simulated["rounds"].as_u64().unwrap();
    assert!(rounds < 1000, "{rounds}");
    assert_eq!(simulated["stopped_early"], true);
    let mut trained = 0;
    for part in simulated["participation"].as_object().unwrap().values() {
        assert_eq!(part["rounds"], rounds);
        trained += part["rows"].as_u64().unwrap();
    }
    // 455 rows are not for testing; a fifth of each node's 91 is for validation.
    assert_eq!(trained, 455 - 5 * 18);
    let together = run("train", &out("together"), &[]);
    let apart = run("train", &out("apart"), &["--processes"]);
    for other in [&together, &apart] {
        let same = |value: &Value| json!([value["rounds"], value["digest"]]);
        assert_eq!(same(other), same(&simulated));
        assert_eq!(other["stopped_early"], true);
    }
    // A run of so many rounds ends with the same bits, and other losses would end elsewhere.
    let long = STOP.replace("patience=2", "patience=1000");
    let fixed = format!("run.rounds={rounds}");
    let full = run("simulate", &out("full"), &["--set", &fixed, "--set", &long]);
    assert_eq!((&full["digest"], &full["stopped_early"]), (&simulated["digest"], &Value::Null));
    let other = run("simulate", &out("other"), &["--seed", "3"]);
    assert!(other["rounds"] != simulated["rounds"] && other["stopped_early"] == true);
}

#[test]
#[ignore = "slow"]
fn the_models_of_the_lowest_loss_are_those_of_a_shorter_run() {
    let folder = folder();
    let out = |name: &str| folder.path().join(name);
    let best = STOP.replace("patience=2", "patience=2,keep=\"best\"");
    let last = run("simulate", &out("last"), &[]);
    let simulated = run("simulate", &out("simulated"), &["--set", &best]);
    assert_eq!((&last["rounds"], &last["kept_best"]), (&simulated["rounds"], &Value::Null));
    assert_eq!(simulated["kept_best"], true);
    assert_ne!(simulated["digest"], last["digest"]);
    // Two evaluations without a lower loss; then three rounds up and three down the tree.
    let shorter = |early: &Value, name: &str, more: &[&str]| {
        let lowest = early["rounds"].as_u64().unwrap() - 1 - 2 * 5 - 2 * 3;
        let sets = [format!("run.rounds={lowest}"), STOP.replace("patience=2", "patience=1000")];
        let sets = ["--set", &sets[0], "--set", &sets[1]];
        run("simulate", &out(name), &[&sets[..], more].concat())
    };
    let short = shorter(&simulated, "short", &[]);
    assert_eq!(simulated["digest"], short["digest"]);
    let figure = |summary: &Value| summary["final"]["test_accuracy_of_mean"].clone();
    assert_eq!(figure(&simulated), figure(&short));
    for rule in ["rule.kind=d-psgd", "rule.kind=gradient-tracking", "rule.kind=c-sgd"] {
        let sets = ["--set", rule, "--set", "compressor.kind=identity"];
        let early = run("simulate", &out("early"), &[&sets[..], &["--set", &best]].concat());
        assert_eq!(early["kept_best"], true);
        let short = shorter(&early, "short of it", &sets);
        assert_eq!(early["digest"], short["digest"], "{rule}");
        ["early", "short of it"].iter().for_each(|name| fs::remove_dir_all(out(name)).unwrap());
    }
    for (name, more) in [("together", &[][..]), ("apart", &["--processes"])] {
        let more = [&["--set", &best][..], more].concat();
        let other = run("train", &out(name), &more);
        assert_eq!(
            (&other["digest"], &other["kept_best"]),
            (&simulated["digest"], &Value::Bool(true))
        );
    }
}

#[test]
#[ignore = "slow"]
fn runs_with_schedules_stop_after_the_same_round_in_all_drivers() {
    let folder = folder();
    for (rule, topology, schedule) in [
        ("rule.kind=d-psgd", "exponential:8", "topology.schedule=one-peer-exponential"),
        ("rule.kind=sgp", "complete:6", "topology.schedule=base-2"),
    ] {
        let run = |command: &str, more: &[&str]| {
            let out = folder.path().join(format!("{topology} {command}{}", more.len()));
            let sets = ["--set", rule, "--set", "compressor.kind=identity", "--set", schedule];
            gradvine()
                .arg(command)
                .args(settings().split_off(2))
                .args(["--topology", topology])
                .args(sets)
                .args(more)
                .arg("--out")
                .arg(&out)
                .assert()
                .success();
            let summary = read(&out.join("summary.json"));
            json!([summary["rounds"], summary["digest"], summary["stopped_early"]])
        };
        let simulated = run("simulate", &[]);
        assert!(simulated[0].as_u64().unwrap() < 1000 && simulated[2] == true, "{simulated}");
        assert_eq!(run("train", &[]), simulated);
        assert_eq!(run("train", &["--processes"]), simulated);
    }
}

#[test]
fn simulated_absences_do_not_hinder_an_early_end() {
    let folder = folder();
    let run = |name: &str, absent: &str| {
        let absent = format!("network.absent=[{absent}]");
        run("simulate", &folder.path().join(name), &["--set", &absent])
    };
    let whole = run("whole", "");
    let rounds = whole["rounds"].as_u64().unwrap();
    // After the end.
    let later = run("later", &format!("{{nodes=[\"3\"],from={},until=1900}}", rounds + 1));
    let same = |summary: &Value| json!([summary["rounds"], summary["digest"], summary["history"]]);
    assert_eq!(same(&later), same(&whole));
    // The root is back before the end, or is not.
    for (name, until, members) in [("back", 20, 5), ("away", 1900, 4)] {
        let summary = run(name, &format!("{{nodes=[\"0\"],from=12,until={until}}}"));
        assert_eq!(summary["stopped_early"], true, "{summary}");
        let last = summary["history"].as_array().unwrap().last().unwrap();
        assert_eq!(last["members"].as_array().unwrap().len(), members, "{summary}");
        assert_eq!(summary["participation"]["1"]["rounds"], summary["rounds"]);
        assert_eq!(summary["nodes"], 5, "{summary}");
        let out = folder.path().join(name);
        let said = gradvine().arg("members").arg(&out).assert().success().get_output().clone();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.starts_with(&format!("members  {members} of 5: ")), "{said}");
        let mut report = gradvine();
        report.arg("report").arg(&out).arg("--out").arg(out.join("page.html"));
        report.assert().success();
    }
    // What the absent node sent before is in the sum.
    let away = read(&folder.path().join("away/summary.json"));
    let sent = |part: &Value| part["bytes_payload"].as_u64().unwrap();
    let before = 12 * sent(&whole["participation"]["0"]) / rounds;
    let rest = away["participation"].as_object().unwrap().values().map(sent).sum::<u64>();
    assert_eq!(away["bytes"]["payload"].as_u64().unwrap(), rest + before, "{away}");
}

#[test]
fn the_table_and_the_report_say_that_a_run_stopped_early() {
    let folder = folder();
    let out = folder.path().join("run");
    let arguments: Vec<&str> = settings().into_iter().filter(|word| *word != "-q").collect();
    let output = gradvine().arg("simulate").args(arguments).arg("--out").arg(&out).assert();
    let text = String::from_utf8(output.success().get_output().stdout.clone()).unwrap();
    let rounds = read(&out.join("summary.json"))["rounds"].as_u64().unwrap();
    assert!(text.contains(&format!("stopped early    after round {rounds}: ")), "{text}");
    let page = folder.path().join("report.html");
    gradvine().arg("report").arg(&out).arg("--out").arg(&page).assert().success();
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains(&format!("The run stopped early after round {rounds}")));
}

/// Rows of two classes that no model tells apart everywhere: the loss falls to a level.
fn mixed(node: usize) -> String {
    let row = |i: usize| {
        let noise = |k: usize| ((i * k + node) % 17) as f64 / 17.0;
        let class = usize::from(noise(7) + 0.7 * noise(11) > 0.9);
        format!("{:.3},{:.3},{class}\n", noise(7), noise(5))
    };
    "x,y,label\n".to_string() + &(0..60).map(row).collect::<String>()
}

#[test]
#[ignore = "slow"]
fn a_killed_node_leaves_no_trace_in_the_end() {
    kill_nodes("last");
}

#[test]
#[ignore = "slow"]
fn a_killed_node_still_has_the_model_of_the_lowest_loss() {
    kill_nodes("best");
}

fn kill_nodes(keep: &str) {
    let stop =
        format!("stop_early = {{ share = 0.3, every = 10, patience = 150, keep = \"{keep}\" }}");
    let text = format!("rounds = 1000000\n{stop}\n[checkpoint]\nevery_rounds = 50");
    let deployment = Deployment::new(Reach::Tcp, &text);
    for (node, name) in NAMES.iter().enumerate() {
        deployment.write(&format!("{name}.csv"), &mixed(node));
    }
    let end = |nodes: &mut [Running]| -> Vec<Value> {
        for node in nodes.iter_mut() {
            assert_eq!(node.end().0, Some(0), "{}", node.errors());
        }
        let summary = |name| read(&deployment.run(name).join("summary.json"));
        let summaries: Vec<Value> = NAMES.map(summary).into();
        NAMES.iter().for_each(|name| fs::remove_dir_all(deployment.run(name)).unwrap());
        let kept = |summary: &Value| json!([summary["rounds"], summary["digest"]]);
        summaries.iter().map(kept).collect()
    };
    let expected = end(&mut NAMES.map(|name| deployment.start(name)));
    assert!(expected.iter().all(|one| *one == expected[0]), "{expected:?}");
    assert!(expected[0][0].as_u64().unwrap() < 1_000_000);
    let mut nodes = NAMES.map(|name| deployment.start(name));
    // The root of the tree, then a leaf.
    for index in [0, 2] {
        let name = NAMES[index];
        let folder = deployment.run(name).join("checkpoints").join(name);
        until("a checkpoint", || folder.is_dir());
        nodes[index].signal("KILL");
        nodes[index].end();
        nodes[index] = deployment.start(name);
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(end(&mut nodes), expected);
}
