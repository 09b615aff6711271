//! Nodes that are killed and started again: the run resumes from a checkpoint, and ends with the
//! same bits.
#![cfg(unix)]

use crate::command;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use command::{
    Deployment, NAMES, Reach, Running, experiment, folder, gradvine, json, metrics, program,
    until_running,
};
use gradvine::rng::{Purpose, Stream};

/// Some seconds long, with checkpoints all the time.
const RUN: &str = "rounds = 2000\nevaluate_every = 20\n[checkpoint]\nevery_rounds = 50";

/// The digest in the summary of a node's run.
fn digest(run: &Path) -> String {
    let summary = json(&run.join("summary.json"));
    assert_eq!(summary["failure"], serde_json::Value::Null, "{summary}");
    summary["digest"].as_str().unwrap().to_string()
}

/// Waits for all nodes, which must succeed.
fn succeed(nodes: &mut [Running]) {
    for node in nodes {
        let code = node.end().0;
        assert_eq!(code, Some(0), "{}", node.errors());
    }
}

/// The digest of the run if nothing happens; its directories are removed.
fn undisturbed(deployment: &Deployment) -> String {
    succeed(&mut NAMES.map(|name| deployment.start(name)));
    let digests = NAMES.map(|name| digest(&deployment.run(name)));
    assert!(digests.iter().all(|digest| *digest == digests[0] && !digest.is_empty()));
    NAMES.iter().for_each(|name| fs::remove_dir_all(deployment.run(name)).unwrap());
    let [digest, ..] = digests;
    digest
}

/// The files of a node's checkpoints, oldest first.
fn checkpoints(run: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints").join(name)).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "safetensors"));
    files.sort();
    files
}

fn until_checkpoint(deployment: &Deployment, name: &str) {
    command::until("a checkpoint", || !checkpoints(&deployment.run(name), name).is_empty());
}

/// Runs the deployment with `disturb` in the middle of it, which returns the nodes that must
/// succeed.
fn same_bits(
    reach: Reach,
    run: &str,
    disturb: impl FnOnce(&Deployment, [Running; 3]) -> Vec<Running>,
) -> Deployment {
    let deployment = Deployment::new(reach, run);
    let expected = undisturbed(&deployment);
    let nodes = NAMES.map(|name| deployment.start(name));
    NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    succeed(&mut disturb(&deployment, nodes));
    for name in NAMES {
        let run = deployment.run(name);
        assert_eq!(digest(&run), expected, "{name}");
        assert!(checkpoints(&run, name).is_empty(), "they are removed when the run is over");
        // No round is missing or twice, although some were computed again.
        let rounds: Vec<u64> =
            metrics(&run).iter().map(|metric| metric["round"].as_u64().unwrap()).collect();
        assert!(rounds.is_sorted_by(|a, b| a < b), "{name}: {rounds:?}");
        assert_eq!(rounds.len(), 100, "{name}");
    }
    deployment
}

#[test]
#[ignore = "slow"]
fn a_killed_node_that_returns_leaves_no_trace_in_the_result() {
    let deployment = same_bits(Reach::Tcp, RUN, |deployment, mut nodes| {
        until_checkpoint(deployment, "oslo");
        for name in ["oslo", "london"] {
            let index = NAMES.iter().position(|other| *other == name).unwrap();
            nodes[index].signal("KILL");
            nodes[index].end();
            nodes[index] = deployment.start(name);
            thread::sleep(Duration::from_millis(300));
        }
        nodes.into()
    });
    let summary = json(&deployment.run("tokyo").join("summary.json"));
    let restarts = NAMES.map(|name| summary["participation"][name]["restarts"].as_u64());
    assert_eq!(restarts, [None, Some(1), Some(1)], "{summary}");
}

#[test]
#[ignore = "slow"]
fn all_nodes_may_be_killed_at_once() {
    same_bits(Reach::FromTheMiddle, RUN, |deployment, mut nodes| {
        NAMES.iter().for_each(|name| until_checkpoint(deployment, name));
        nodes.iter().for_each(|node| node.signal("KILL"));
        nodes.iter_mut().for_each(|node| _ = node.end());
        NAMES.map(|name| deployment.start(name)).into()
    });
}

/// Nothing is lost but time: all nodes start from the beginning.
#[test]
#[ignore = "slow"]
fn a_node_without_a_checkpoint_begins_anew_with_all_others() {
    let never = RUN.replace("every_rounds = 50", "every_s = 0");
    same_bits(Reach::Tcp, &never, |deployment, mut nodes| {
        nodes[0].signal("KILL");
        nodes[0].end();
        nodes[0] = deployment.start("tokyo");
        nodes.into()
    });
}

#[test]
#[ignore = "slow"]
fn a_damaged_checkpoint_is_reported_and_the_one_before_is_used() {
    same_bits(Reach::Tcp, RUN, |deployment, mut nodes| {
        let files = || checkpoints(&deployment.run("oslo"), "oslo");
        let newest = loop {
            command::until("two checkpoints", || files().len() > 1);
            nodes.iter().for_each(|node| node.signal("KILL"));
            nodes.iter_mut().for_each(|node| _ = node.end());
            // The older one may have been removed meanwhile.
            if let [.., _, newest] = files().as_slice() {
                break newest.clone();
            }
            nodes = NAMES.map(|name| deployment.start(name));
        };
        let mut bytes = fs::read(&newest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&newest, bytes).unwrap();
        let nodes = NAMES.map(|name| deployment.start(name));
        command::until("the warning", || {
            let errors = nodes[2].errors();
            errors.contains("damaged") && errors.contains("an earlier one")
        });
        nodes.into()
    });
}

#[test]
#[ignore = "slow"]
fn a_folder_of_another_run_is_refused_and_a_finished_run_stays_as_it_is() {
    let short = "rounds = 20\n[checkpoint]\nevery_rounds = 5";
    let deployment = Deployment::new(Reach::Tcp, short);
    succeed(&mut NAMES.map(|name| deployment.start(name)));
    let summary = fs::read(deployment.run("oslo").join("summary.json")).unwrap();
    let again = gradvine().arg("node").arg(deployment.file("oslo.toml")).arg("--json").assert();
    let output = again.success().get_output().clone();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(),
        json(&deployment.run("oslo").join("summary.json"))
    );
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("is over; to start from the beginning, use --fresh")
    );
    assert_eq!(fs::read(deployment.run("oslo").join("summary.json")).unwrap(), summary);

    deployment.write("experiment.toml", &experiment(short, "0.2"));
    let refused = gradvine().arg("node").arg(deployment.file("oslo.toml")).assert().code(2);
    let errors = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    for words in ["optimizer.step = 0.1 in the checkpoints, 0.2 now", "--fresh"] {
        assert!(errors.contains(words), "{errors}");
    }
    let fresh = |name| deployment.start_as(name, |command: &mut Command| command.arg("--fresh"));
    succeed(&mut NAMES.map(fresh));
}

/// A node that returns with a file that differs from its neighbours' loses nothing.
#[test]
#[ignore = "slow"]
fn what_a_run_has_written_stays_when_it_cannot_go_on() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    let mut nodes = NAMES.map(|name| deployment.start(name));
    until_checkpoint(&deployment, "oslo");
    nodes[2].signal("KILL");
    nodes[2].end();
    let before =
        (metrics(&deployment.run("oslo")).len(), checkpoints(&deployment.run("oslo"), "oslo"));
    let right = fs::read_to_string(deployment.file("experiment.toml")).unwrap();
    deployment.write("experiment.toml", &experiment(RUN, "0.2"));
    let mut wrong = deployment.start("oslo");
    assert_eq!(wrong.end().0, Some(2), "{}", wrong.errors());
    let after =
        (metrics(&deployment.run("oslo")).len(), checkpoints(&deployment.run("oslo"), "oslo"));
    assert_eq!(after, before);
    deployment.write("experiment.toml", &right);
    nodes[2] = deployment.start("oslo");
    succeed(&mut nodes);
}

/// `--fresh` is refused before anything is removed, so the run can be put back as before.
#[test]
#[ignore = "slow"]
fn a_node_that_runs_cannot_be_begun_anew() {
    let deployment = same_bits(Reach::Tcp, RUN, |deployment, mut nodes| {
        NAMES.iter().for_each(|name| until_checkpoint(deployment, name));
        let run = deployment.run("oslo");
        let mut fresh = gradvine();
        fresh.arg("node").arg(deployment.file("oslo.toml")).arg("--fresh");
        let refused = fresh.assert().code(2).get_output().clone();
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(errors.contains("another process writes a run into this folder"), "{errors}");
        for file in ["metrics.jsonl", "experiment.toml", "checkpoints/oslo/run.json"] {
            assert!(run.join(file).exists(), "{file}");
        }
        assert!(!checkpoints(&run, "oslo").is_empty());
        nodes.iter().for_each(|node| node.signal("KILL"));
        nodes.iter_mut().for_each(|node| _ = node.end());
        NAMES.map(|name| deployment.start(name)).into()
    });
    let summary = json(&deployment.run("oslo").join("summary.json"));
    assert_eq!(summary["participation"]["oslo"]["restarts"], 1, "{summary}");
}

/// A folder that was copied to another machine, and a program that was started there.
#[test]
#[ignore = "slow"]
fn of_two_programs_with_one_key_the_first_stays_and_both_are_told() {
    // London dials the others.
    same_bits(Reach::FromTheMiddle, RUN, |deployment, nodes| {
        until_checkpoint(deployment, "london");
        let text = fs::read_to_string(deployment.file("london.toml")).unwrap();
        let listen = text.lines().find(|line| line.starts_with("listen")).unwrap();
        let copy = text.replace(listen, "listen = []").replace("london-run", "copied-run");
        deployment.write("copied.toml", &copy);
        let mut copied = deployment.start("copied");
        let code = copied.end_within(Duration::from_secs(60)).0;
        let said = copied.errors();
        assert_eq!(code, Some(2), "{said}");
        let told = "two programs run with the key of node london";
        assert!(said.contains(told) && said.contains("the one at /ip4/127.0.0.1/tcp/"), "{said}");
        command::until("the first one is told", || nodes[1].errors().contains(told));
        let others = [0, 2].map(|node| nodes[node].errors());
        let named = |said: &String| said.contains("another one connects from /ip4/127.0.0.1/tcp/");
        assert!(others.iter().any(named), "{others:?}");
        nodes.into()
    });
}

#[test]
#[ignore = "slow"]
fn a_run_that_never_began_can_be_corrected() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 1");
    let mut alone = deployment.start("oslo");
    assert_eq!(alone.end().0, Some(4), "{}", alone.errors());
    let mut killed = deployment.start("london");
    thread::sleep(Duration::from_millis(300));
    killed.signal("KILL");
    killed.end();
    deployment.write("experiment.toml", &experiment("rounds = 5\nconnect_s = 20", "0.2"));
    succeed(&mut NAMES.map(|name| deployment.start(name)));
    for name in NAMES {
        let written = fs::read_to_string(deployment.run(name).join("experiment.toml")).unwrap();
        assert!(written.contains("step = 0.2"), "{name}: {written}");
    }
}

/// Runs the deployment until all nodes know of a checkpoint that all have, and kills all of them.
fn kill_with_checkpoints(deployment: &Deployment) {
    let mut nodes = NAMES.map(|name| deployment.start(name));
    let oldest = |name: &str| checkpoints(&deployment.run(name), name).first().cloned();
    until_checkpoint(deployment, "oslo");
    // Earlier ones are removed once all have a newer one.
    let first = NAMES.map(oldest);
    command::until("later ones", || NAMES.map(oldest).iter().zip(&first).all(|(a, b)| a != b));
    nodes.iter().for_each(|node| node.signal("KILL"));
    nodes.iter_mut().for_each(|node| _ = node.end());
}

#[test]
#[ignore = "slow"]
fn a_node_that_has_lost_its_disk_comes_back_through_the_others() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    let expected = undisturbed(&deployment);
    kill_with_checkpoints(&deployment);
    fs::remove_dir_all(deployment.run("oslo")).unwrap();
    let mut nodes = NAMES.map(|name| deployment.start(name));
    succeed(&mut nodes);
    let digests = NAMES.map(|name| digest(&deployment.run(name)));
    assert!(digests.iter().all(|digest| *digest == digests[0] && *digest != expected));
    let summary = json(&deployment.run("tokyo").join("summary.json"));
    let change = &summary["history"][0];
    let round = change["round"].as_u64().unwrap();
    assert!(round > 0 && round.is_multiple_of(50), "{summary}");
    assert_eq!(change["members"], serde_json::json!(["tokyo", "london", "oslo"]));
    assert_eq!(change["models"], serde_json::json!(["tokyo", "london"]));
    let words = format!("no checkpoint of round {round} at oslo: all nodes continue from the mean");
    nodes.iter().for_each(|node| assert!(node.errors().contains(&words), "{}", node.errors()));
    assert!(summary["final"]["test_accuracy_min"].as_f64().unwrap() > 0.9, "{summary}");
}

/// The mean's digest of a run of processes in this folder, in which random ones are killed.
fn killed_processes(out: &Path, sets: &[&str], kills: u64, seed: u64) -> String {
    let mut dice = Stream::new(seed, Purpose::Test).sequence();
    let mut running = Running::start(
        program()
            .args(["train", "--processes", "--no-baseline", "--quiet", "--out"])
            .arg(out)
            .args(sets),
        out.parent().unwrap(),
        "processes",
    );
    let alive = || -> Vec<String> {
        let pattern = format!("node {}/nodes/", out.display());
        let found = Command::new("pgrep").args(["-f", &pattern]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().map(String::from).collect()
    };
    let over = || json_if(&out.join("summary.json")).is_some();
    let written = || fs::metadata(out.join("nodes/0/run/metrics.jsonl")).ok()?.modified().ok();
    for _ in 0..kills {
        command::until("the programs run", || over() || !alive().is_empty());
        for _ in 0..dice.below(5) {
            let before = written();
            command::until("more metrics", || over() || written() != before);
        }
        thread::sleep(Duration::from_millis(dice.below(300)));
        let alive = alive();
        let all = dice.below(4) == 0;
        for (index, id) in alive.iter().enumerate() {
            if all || index as u64 == dice.below(alive.len() as u64) {
                let _ = Command::new("kill").args(["-KILL", id]).status();
            }
        }
    }
    command::until_within(Duration::from_secs(180), "the summary", over);
    assert_eq!(running.end().0, Some(0), "{}", running.errors());
    digest(out)
}

fn json_if(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Rules with little and much state, over TCP and QUIC, with checkpoints by rounds and by time;
/// delayed rules start from the beginning.
const RUNS: [&[&str]; 4] = [
    &["--topology", "ring:4", "--rounds", "1200", "--set", "checkpoint.every_rounds=50"],
    &[
        "--topology",
        "star:4",
        "--rounds",
        "800",
        "--set",
        "checkpoint.every_rounds=40",
        "--set",
        "rule.kind=choco",
        "--set",
        "optimizer.momentum=0.9",
        "--set",
        "optimizer.step=0.02",
    ],
    &[
        "--topology",
        "path:3",
        "--rounds",
        "1500",
        "--set",
        "checkpoint.every_s=0.5",
        "--set",
        "rule.kind=gradient-tracking",
        "--set",
        "compressor.kind=identity",
    ],
    &[
        "--topology",
        "star:4",
        "--rounds",
        "300",
        "--set",
        "rule.kind=delayed",
        "--set",
        "compressor.kind=identity",
        "--set",
        "run.transport=quic",
    ],
];

fn kill_processes(runs: u64) {
    let folder = folder();
    for (index, sets) in RUNS.iter().enumerate() {
        let expected = killed_processes(&folder.path().join(format!("base{index}")), sets, 0, 0);
        for seed in (0..runs).filter(|seed| *seed as usize % RUNS.len() == index) {
            let out = folder.path().join(format!("run{seed}"));
            let kills = 1 + seed % 4;
            assert_eq!(
                killed_processes(&out, sets, kills, seed),
                expected,
                "{sets:?}, seed {seed}"
            );
            fs::remove_dir_all(out).unwrap();
        }
    }
}

#[test]
#[ignore = "slow"]
fn random_processes_are_killed() {
    kill_processes(5);
}

#[test]
#[ignore = "ten minutes"]
fn soak_random_processes_are_killed_a_hundred_times() {
    kill_processes(100);
}

#[test]
#[ignore = "slow"]
fn an_interrupted_run_in_one_process_goes_on() {
    let folder = folder();
    let out = folder.path().join("run");
    let sets = ["--rounds", "2000", "--set", "run.evaluate_every=20", "--no-baseline", "--quiet"];
    let source = folder.path().join("rows.csv");
    let row = |i: usize| format!("{},{},{}\n", (i * 7) % 31, (i * 11) % 29, i % 2);
    let write = |of: &mut dyn Iterator<Item = usize>| {
        fs::write(&source, "x,y,class\n".to_string() + &of.map(row).collect::<String>()).unwrap();
    };
    write(&mut (0..120));
    let of_source = format!("data.source={}", source.display());
    let select = ["--topology", "ring:3", "--set", "rule.kind=dcd", "--set", &of_source, "--set"];
    let select = select.iter().chain(&["model.kind=softmax"]).copied().collect::<Vec<_>>();
    let train = |out: &Path| {
        let mut command = program();
        command.arg("train").args(&select).args(sets).arg("--out").arg(out);
        command
    };
    let whole = folder.path().join("whole");
    assert!(train(&whole).status().unwrap().success());
    let mut running = Running::start(&mut train(&out), folder.path(), "first");
    until_running(&out);
    running.signal("INT");
    assert_eq!(running.end().0, Some(130), "{}", running.errors());
    // The same rows in another order: others would be held out.
    write(&mut (0..120).rev());
    let refused = gradvine().args(["train", "--quiet", "--resume"]).arg(&out).assert().code(2);
    let errors = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(errors.contains("began with other rows: 120 rows with SHA-256"), "{errors}");
    write(&mut (0..120));
    let mut resumed = program();
    resumed.args(["train", "--no-baseline", "--quiet", "--resume"]).arg(&out);
    let mut running = Running::start(&mut resumed, folder.path(), "second");
    assert_eq!(running.end().0, Some(0), "{}", running.errors());
    assert_eq!(digest(&out), digest(&whole));
    let rounds = |run: &Path| -> Vec<u64> {
        let round = |metric: &serde_json::Value| metric["round"].as_u64().unwrap();
        // The last round before the interruption was evaluated too.
        metrics(run).iter().map(round).filter(|round| round.is_multiple_of(20)).collect()
    };
    assert_eq!(rounds(&out), rounds(&whole));
    let refused = gradvine().args(["train", "--resume"]).arg(&out).assert().code(2);
    let errors = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(errors.contains("holds no run that can continue"), "{errors}");
}
