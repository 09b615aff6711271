//! Nodes that are missing, killed, or set up differently: the others report which one, where and
//! what to try, and end.

use crate::command;

use std::{
    fs,
    net::TcpStream,
    time::{Duration, Instant},
};

use command::{Deployment, NAMES, Reach, Running, experiment, json, until, until_running};

/// A run longer than any test.
const LONG: &str = "rounds = 1000000000\nevaluate_every = 20\n[absence]\ndeadline_s = 1";

#[test]
#[ignore = "slow"]
fn a_missing_node_is_named_with_its_address_and_a_remedy() {
    let deployment = Deployment::new(Reach::FromTheMiddle, "rounds = 5\nconnect_s = 2");
    let (mut tokyo, mut london) = (deployment.start("tokyo"), deployment.start("london"));
    assert_eq!((tokyo.end().0, london.end().0), (Some(4), Some(4)));
    let stderr = london.errors();
    let address = deployment.address("oslo");
    for words in [
        "error: after 2 s node london waits for ",
        "oslo (",
        &address,
        "nothing listens there; has it been started",
    ] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    // A node whose own links are up reports why the run has not started.
    let stderr = tokyo.errors();
    assert!(stderr.contains("london") && stderr.contains("oslo"), "{stderr}");
    let summary = json(&deployment.run("london").join("summary.json"));
    assert_eq!(summary["rounds"], 0);
    assert!(summary["failure"].as_str().unwrap().contains("oslo"));
}

#[test]
fn a_node_is_not_started_twice() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 30");
    let mut first = deployment.start("london");
    let address = deployment.address("london");
    let port: u16 = address.rsplit('/').next().unwrap().parse().unwrap();
    until("the first one listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    fs::rename(deployment.run("london"), deployment.file("first-run")).unwrap();
    let mut second = deployment.start_as("london", |command| command.args(["--out", "second-run"]));
    assert_eq!(second.end().0, Some(2));
    let errors = second.errors();
    assert!(errors.contains("another program has this port"), "{errors}");
    first.signal("TERM");
    assert_eq!(first.end().0, Some(130));
}

#[test]
#[ignore = "slow"]
fn a_killed_node_ends_the_others_when_the_deadline_for_its_return_has_passed() {
    let deployment = Deployment::new(Reach::Tcp, LONG);
    let mut nodes = NAMES.map(|name| deployment.start(name));
    NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    nodes[2].signal("KILL");
    let killed = Instant::now();
    for (name, node) in NAMES.iter().zip(&mut nodes).take(2) {
        let (code, _) = node.end();
        let stderr = node.errors();
        assert_eq!(code, Some(4), "{name}: {stderr}");
        assert!(stderr.lines().any(|line| line.starts_with(&format!("error: node {name}: "))));
        let lost = stderr.find("the link to oslo is lost: ");
        assert!(name != &"london" || lost.is_some(), "{stderr}");
        // Also if another node has reported it: the first failure counts.
        assert!(stderr.contains("the link to node oslo broke in round "), "{stderr}");
        check_saved(&deployment, name);
    }
    // absence.deadline_s is 1.
    assert!(killed.elapsed() < Duration::from_secs(6), "{:?}", killed.elapsed());
    assert!(nodes[1].errors().contains("the link to node oslo broke"), "{}", nodes[1].errors());
    assert!(!command::metrics(&deployment.run("london")).is_empty());
}

/// The model of a node is saved, with a summary of its work.
fn check_saved(deployment: &Deployment, name: &str) {
    let run = deployment.run(name);
    let summary = json(&run.join("summary.json"));
    assert!(summary["rounds"].as_u64().unwrap() > 0 && summary["digest"] == "", "{summary}");
    let part = &summary["participation"][name];
    assert!(
        part["bytes_payload"].as_u64().unwrap() > 0 && part["rows"].as_u64().unwrap() > 0,
        "{summary}"
    );
    assert_eq!(summary["bytes"]["payload"], part["bytes_payload"], "the summary of one node");
    assert!(summary["time_s"].as_f64().unwrap() > 0.0);
    let model = run.join(format!("model-{name}.safetensors"));
    let rows = deployment.file(&format!("{name}.csv"));
    let shown =
        command::gradvine().arg("evaluate").arg(&model).arg(rows).arg("--json").assert().success();
    let shown: serde_json::Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    assert!(shown["accuracy"].as_f64().unwrap() > 0.5, "it is the trained model: {shown}");
}

#[test]
fn a_node_that_is_stopped_saves_its_model_and_so_do_its_neighbours() {
    let deployment = Deployment::new(Reach::Tcp, LONG);
    let mut nodes = NAMES.map(|name| deployment.start(name));
    NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    nodes[1].signal("TERM");
    assert_eq!(nodes.each_mut().map(|node| node.end().0), [Some(4), Some(130), Some(4)]);
    NAMES.iter().for_each(|name| check_saved(&deployment, name));
    assert_eq!(json(&deployment.run("oslo").join("summary.json"))["failed_at"], "london");
}

#[test]
#[ignore = "slow"]
fn before_the_run_begins_nodes_may_be_killed_and_started_again() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 30");
    let undisturbed = {
        let calm = Deployment { folder: command::copy_of(&deployment) };
        let mut nodes = NAMES.map(|name| calm.start(name));
        nodes.iter_mut().for_each(|node| assert_eq!(node.end().0, Some(0), "{}", node.errors()));
        json(&calm.run("oslo").join("summary.json"))["digest"].clone()
    };
    let mut tokyo = deployment.start("tokyo");
    for _ in 0..2 {
        let london =
            deployment.start_as("london", |command| command.env("RUST_LOG", "gradvine=info"));
        until("the link", || london.errors().contains("linked with tokyo"));
        london.signal("KILL");
        drop(london);
        fs::remove_dir_all(deployment.run("london")).unwrap();
    }
    let (mut london, mut oslo) = (deployment.start("london"), deployment.start("oslo"));
    for node in [&mut tokyo, &mut london, &mut oslo] {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
    for name in NAMES {
        assert_eq!(
            json(&deployment.run(name).join("summary.json"))["digest"],
            undisturbed,
            "{name}"
        );
    }
}

#[test]
#[ignore = "slow"]
fn a_neighbours_wrong_file_is_waited_for_and_only_the_node_that_differs_from_all_ends_with_2() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 30");
    let right = fs::read_to_string(deployment.file("tokyo.toml")).unwrap();
    let (mut london, mut oslo) = (deployment.start("london"), deployment.start("oslo"));
    deployment.give("tokyo", &experiment("rounds = 5\nconnect_s = 30", "0.25"));
    let mut tokyo = deployment.start("tokyo");
    assert_eq!(tokyo.end().0, Some(2), "{}", tokyo.errors());
    assert!(tokyo.errors().contains("optimizer.step = 0.25 here, 0.1 there"), "{}", tokyo.errors());
    until("the difference", || london.errors().contains("optimizer.step = 0.1 here, 0.25 there"));
    deployment.write("tokyo.toml", &right);
    let mut tokyo = deployment.start("tokyo");
    for node in [&mut tokyo, &mut london, &mut oslo] {
        assert_eq!(node.end().0, Some(0), "{}", node.errors());
    }
}

/// If standard error fails, or its reader has closed it, the run continues.
#[test]
#[cfg(target_os = "linux")]
fn a_failing_standard_error_ends_no_run() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 50");
    let log = |command: &mut std::process::Command| {
        command.env("RUST_LOG", "gradvine=trace");
    };
    let start = |name: &str, errors: std::process::Stdio| {
        let mut command = command::program();
        log(&mut command);
        command
            .arg("node")
            .arg(deployment.file(&format!("{name}.toml")))
            .stdout(std::process::Stdio::null());
        command.stderr(errors).spawn().unwrap()
    };
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut gone = start("london", std::process::Stdio::piped());
    drop(gone.stderr.take());
    let mut others = [start("tokyo", full().into()), start("oslo", full().into())];
    assert_eq!(gone.wait().unwrap().code(), Some(0));
    others.iter_mut().for_each(|node| assert_eq!(node.wait().unwrap().code(), Some(0)));
    let args = ["simulate", "--rounds", "3", "--no-baseline", "--out"];
    for full_out in [false, true] {
        let mut command = command::program();
        command
            .args(args)
            .arg(deployment.file(&format!("sim-{full_out}")))
            .args(command::SMALL)
            .stderr(full());
        if full_out {
            command.stdout(full());
        }
        assert_eq!(
            command.status().unwrap().code(),
            Some(0),
            "the table is not the result of a run"
        );
        assert!(deployment.file(&format!("sim-{full_out}/model-mean.safetensors")).is_file());
    }
}

#[test]
#[ignore = "slow"]
fn nodes_with_different_experiments_name_the_key_and_both_values() {
    const SHORT: &str = "rounds = 5\nconnect_s = 3";
    let deployment = Deployment::new(Reach::Tcp, SHORT);
    deployment.give("tokyo", &experiment(SHORT, "0.25"));
    let (mut tokyo, mut london) = (deployment.start("tokyo"), deployment.start("london"));
    assert_eq!(
        (tokyo.end().0, london.end().0),
        (Some(2), Some(2)),
        "{}\n{}",
        tokyo.errors(),
        london.errors()
    );
    assert!(tokyo.errors().contains("optimizer.step = 0.25 here, 0.1 there"), "{}", tokyo.errors());
    assert!(
        london
            .errors()
            .contains("node tokyo runs another experiment: optimizer.step = 0.1 here, 0.25 there")
    );
    for name in ["tokyo", "london"] {
        assert!(
            !deployment.run(name).exists(),
            "nothing ran, so no folder stays, and the next attempt may use its name"
        );
    }
}

#[test]
#[ignore = "slow"]
fn nodes_whose_columns_differ_say_so_unless_the_experiment_names_them() {
    const SHORT: &str = "rounds = 5\nconnect_s = 3";
    // x, y and the label become y, x, the label and one more.
    let turned = |end: &str| {
        let line = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            format!("{},{},{}{end}\n", cells[1], cells[0], cells[2])
        };
        command::rows(0).lines().map(line).collect::<String>()
    };
    let deployment = Deployment::new(Reach::Tcp, SHORT);
    deployment.write("tokyo.csv", &turned(""));
    let (mut tokyo, mut london) = (deployment.start("tokyo"), deployment.start("london"));
    assert_eq!((tokyo.end().0, london.end().0), (Some(2), Some(2)), "{}", tokyo.errors());
    let differ = "data.columns = [\"y\", \"x\"] here, [\"x\", \"y\"] there";
    assert!(tokyo.errors().contains(differ), "{}", tokyo.errors());

    let wider = turned(",7").replacen(",7\n", ",more\n", 1);
    let digests = [command::rows(0), wider].map(|rows| {
        let long = "rounds = 5\nconnect_s = 60";
        let deployment = Deployment::new(Reach::Tcp, long);
        deployment.write("tokyo.csv", &rows);
        let named = "[data]\ncolumns = [\"x\", \"y\"]\ntarget = \"label\"";
        let text = experiment(long, "0.1").replacen("[data]", named, 1);
        deployment.write("experiment.toml", &text);
        let mut nodes = NAMES.map(|name| deployment.start(name));
        for node in &mut nodes {
            assert_eq!(node.end().0, Some(0), "{}", node.errors());
        }
        json(&deployment.run("tokyo").join("summary.json"))["digest"].clone()
    });
    assert!(digests[0].is_string());
    assert_eq!(digests[0], digests[1], "the order of columns in a file changes nothing");
}

#[test]
fn a_diverging_run_reports_the_round() {
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

/// The error names the victim, not a node that only noticed; the models of the others are saved.
#[test]
#[cfg(target_os = "linux")]
fn a_process_that_is_stopped_is_named_and_the_others_models_are_kept() {
    let folder = command::folder();
    let out = folder.path().join("run");
    let mut command = command::program();
    command.args([
        "train",
        "--processes",
        "--rounds",
        "1000000000",
        "--set",
        "run.evaluate_every=20",
        "--quiet",
    ]);
    let mut running =
        Running::start(command.args(command::SMALL).arg("--out").arg(&out), folder.path(), "train");
    (0..3).for_each(|node| until_running(&out.join(format!("nodes/{node}/run"))));
    let victim = child_of(running.id(), "nodes/1/node.toml");
    assert!(
        std::process::Command::new("kill")
            .args(["-TERM", &victim.to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(running.end().0, Some(4), "{}", running.errors());
    let stderr = running.errors();
    assert!(stderr.contains("node 1 ended with code 130"), "{stderr}");
    let summary = json(&out.join("summary.json"));
    assert_eq!((summary["failed_at"].as_str(), summary["digest"].as_str()), (Some("1"), Some("")));
    for name in ["0", "2"] {
        assert!(
            out.join(format!("model-{name}.safetensors")).is_file(),
            "the model of node {name}"
        );
        assert!(summary["participation"][name]["rounds"].as_u64().unwrap() > 0, "{summary}");
    }
}

/// The child of a process whose command line has this word.
#[cfg(target_os = "linux")]
fn child_of(parent: u32, word: &str) -> u32 {
    let is_it = |pid: u32| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (stat, line) = (read("stat"), read("cmdline"));
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let parent_of = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent_of == Some(parent) && String::from_utf8_lossy(&line).contains(word)
    };
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|&pid| is_it(pid)).expect("the process of that node")
}

/// The nodes of one process share its files: the first one to give up reports the reason.
#[test]
#[ignore = "slow"]
#[cfg(target_os = "linux")]
fn too_few_open_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for limit in [16, 20, 22, 24] {
        let mut shell = std::process::Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let program = command::program();
        shell.arg("-c").arg(script).arg(program.get_program());
        shell.args(["train", "--rounds", "2", "--no-baseline", "--set", "run.connect_s=5"]);
        let run = shell.arg("--out").arg(folder.path().join(limit.to_string())).output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        let last = stderr.lines().last().unwrap_or_default();
        let words = ["open files", "open no more files"];
        assert!(words.iter().any(|words| last.contains(words)), "{limit} files: {stderr}");
        assert!(matches!(run.status.code(), Some(2 | 4)), "{limit} files: {stderr}");
    }
}

/// Its address in the topology is another one than it listens on: that is said, and no more where
/// it listens on all addresses of that port.
#[test]
fn a_node_that_does_not_listen_on_its_address_is_warned() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 0.2");
    let right = fs::read_to_string(deployment.file("tokyo.toml")).unwrap();
    let address = deployment.address("tokyo");
    let (host, port) = address.rsplit_once('/').unwrap();
    let other = format!("{host}/{}", deployment.address("oslo").rsplit('/').next().unwrap());
    for (listen, words) in [
        (other, Some("the ports differ")),
        (format!("/ip4/0.0.0.0/tcp/{port}"), None),
        (format!("{host}/0"), None),
        (address.clone(), None),
    ] {
        deployment.write("tokyo.toml", &right.replace(&address, &listen));
        let mut tokyo = deployment.start("tokyo");
        assert_eq!(tokyo.end().0, Some(4), "{}", tokyo.errors());
        let told = tokyo.errors();
        let warning = told.lines().find(|line| line.contains("node.listen"));
        assert_eq!(warning.is_some(), words.is_some(), "{listen}: {told}");
        if let (Some(warning), Some(words)) = (warning, words) {
            assert!(warning.starts_with("warning: node.listen: this node listens on "), "{told}");
            assert!(warning.contains(words) && warning.contains(&address), "{told}");
        }
        // It holds what the attempt before has left.
        let _ = fs::remove_dir_all(deployment.run("tokyo"));
    }
}

/// No router forwards a port to the loopback interface.
#[test]
fn a_node_that_asks_for_ports_must_listen_where_a_router_can_reach_it() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 5\nconnect_s = 0.2");
    let file = fs::read_to_string(deployment.file("tokyo.toml")).unwrap();
    deployment.write("tokyo.toml", &format!("upnp = true\n{file}"));
    let mut tokyo = deployment.start("tokyo");
    assert_eq!(tokyo.end().0, Some(2), "{}", tokyo.errors());
    let told = tokyo.errors();
    assert!(told.contains("tokyo.toml: node.upnp = true: expected an IPv4 address"), "{told}");
}

/// The node that differs ends with 2. The others may be started again as they are, so they end with
/// 4, also the one that is linked with none that differs; each names the key and both values.
#[test]
#[ignore = "slow"]
fn nodes_that_wait_for_one_that_differs_say_so_when_they_give_up() {
    const SHORT: &str = "rounds = 5\nconnect_s = 3";
    let deployment = Deployment::new(Reach::Tcp, SHORT);
    deployment.give("tokyo", &experiment(SHORT, "0.25"));
    // It outlives london, whose last words it must pass on.
    deployment.give("oslo", &experiment("rounds = 5\nconnect_s = 6", "0.1"));
    let [mut tokyo, mut london, mut oslo] = NAMES.map(|name| deployment.start(name));
    let ends = [tokyo.end().0, london.end().0, oslo.end().0];
    assert_eq!(ends, [Some(2), Some(4), Some(4)], "{}\n{}", london.errors(), oslo.errors());
    for node in [&london, &oslo] {
        let told = node.errors();
        let last = told.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("node tokyo runs another"), "{told}");
        assert!(last.contains("optimizer.step = 0.1 here, 0.25 there"), "{told}");
    }
}
