//! `gradvine doctor`: every mistake of a deployment is found and named before the run, and links
//! are measured with nodes that wait and with other doctors.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::command::{self, Deployment, NAMES, Reach, gradvine, until_running};

const RUN: &str = "rounds = 5\nconnect_s = 30";

/// The code and the report of a node's examination.
pub(crate) fn examine(deployment: &Deployment, name: &str, more: &[&str]) -> (i32, Value) {
    let mut command = gradvine();
    let command = command.arg("doctor").arg(deployment.file(&format!("{name}.toml")));
    let output = command.args(["--json", "--send", "1"]).args(more).output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), report)
}

/// The errors of a report, each with what it is about.
pub(crate) fn errors(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap();
    let errors = findings.iter().filter(|finding| finding["level"] == "error");
    errors
        .map(|one| format!("{}: {}", one["about"].as_str().unwrap(), one["text"].as_str().unwrap()))
        .collect()
}

/// Replaces text in a file of a deployment.
fn replace(deployment: &Deployment, file: &str, old: &str, new: &str) {
    let text = fs::read_to_string(deployment.file(file)).unwrap();
    assert!(text.contains(old), "{file}: {text}");
    deployment.write(file, &text.replacen(old, new, 1));
}

#[test]
#[ignore = "slow"]
fn mistakes_in_files_are_found_without_a_network() {
    type Spoil = fn(&Deployment);
    let cases: [(&str, Spoil, &str); 10] = [
        ("key", |all| set_mode(all, 0o644), "its mode is 644: others can read this key"),
        (
            "experiment and data",
            |all| replace(all, "experiment.toml", "inputs = 2\n", ""),
            "a node has only its own rows",
        ),
        ("out", |all| take_folder(all), "holds a run already"),
        ("node file", |all| replace(all, "london.toml", "listen", "lisen"), "lisen"),
        (
            "on_event",
            |all| replace(all, "london.toml", "listen", "on_event = [\"./no\"]\nlisten"),
            "london.toml: node.on_event = [\"",
        ),
        ("topology", |all| replace(all, "net.toml", "\"oslo\"]", "\"olso\"]"), "olso"),
        ("experiment", |all| replace(all, "experiment.toml", "rounds = 5", "rounds = -5"), "-5"),
        ("experiment and data", |all| all.write("london.csv", "x,y,label\n1,2\n"), "london.csv"),
        (
            "congestion",
            |all| replace(all, "experiment.toml", "rounds = 5", "rounds = 5\ncongestion = \"nop\""),
            "this kernel has",
        ),
        (
            "topology",
            |all| {
                for name in ["london", "oslo"] {
                    let address = format!("\"{}\"", all.address(name));
                    replace(all, "net.toml", &address, "");
                }
            },
            "neither end has an address",
        ),
    ];
    for (about, spoil, words) in cases {
        let deployment = Deployment::new(Reach::Tcp, RUN);
        let (code, report) = examine(&deployment, "london", &["--offline"]);
        assert_eq!((code, errors(&report)), (0, Vec::new()));
        spoil(&deployment);
        let (code, report) = examine(&deployment, "london", &["--offline"]);
        let found = errors(&report);
        assert_eq!((code, found.len()), (2, 1), "{found:?}");
        assert!(found[0].starts_with(about) && found[0].contains(words), "{words}: {found:?}");
    }
}

fn set_mode(deployment: &Deployment, mode: u32) {
    fs::set_permissions(deployment.file("london.key"), fs::Permissions::from_mode(mode)).unwrap();
}

fn take_folder(deployment: &Deployment) {
    fs::create_dir(deployment.run("london")).unwrap();
    deployment.write("london-run/summary.json", "{\"rounds\": 5}");
}

#[test]
fn a_foreign_key_is_named() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    fs::remove_file(deployment.file("london.key")).unwrap();
    gradvine().args(["identity", "new"]).arg(deployment.file("london.key")).assert().success();
    let (code, report) = examine(&deployment, "london", &[]);
    let found = errors(&report);
    assert!(code == 2 && found[0].contains("the topology names no node with this PeerId"));
}

#[test]
#[ignore = "slow"]
fn neighbours_that_cannot_be_reached_are_named_with_the_reason() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    // Tokyo is not started; a foreign program has Oslo's port.
    let held = |name: &str| {
        let address = deployment.address(name);
        let port: u16 = address.rsplit('/').next().unwrap().parse().unwrap();
        TcpListener::bind(("127.0.0.1", port)).unwrap()
    };
    let foreign = held("oslo");
    std::thread::spawn(move || {
        use std::io::Write as _;
        // It says no more, but closes nothing: bytes that it has not read would reset the
        // connection before its greeting is read.
        let mut open = Vec::new();
        for stream in foreign.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            open.push(stream);
        }
    });
    let (code, report) = examine(&deployment, "london", &["--wait", "5"]);
    let found = errors(&report);
    assert_eq!(code, 2);
    for (about, words) in
        [("link to tokyo: ", "nothing listens there"), ("link to oslo: ", "is not a gradvine node")]
    {
        let named = |error: &String| error.starts_with(about) && error.contains(words);
        assert!(found.iter().any(named), "{about}{words}: {found:?}");
    }
}

/// Its links are left alone.
#[test]
fn a_node_that_runs_already_is_not_disturbed() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 1000000000\nevaluate_every = 20");
    let mut nodes = NAMES.map(|name| deployment.start(name));
    NAMES.iter().for_each(|name| until_running(&deployment.run(name)));
    let (code, report) = examine(&deployment, "london", &[]);
    let found = errors(&report);
    assert_eq!(code, 2);
    for (about, words) in
        [("listen: ", "another program has this port"), ("links: ", "were not examined")]
    {
        let named = |error: &String| error.starts_with(about) && error.contains(words);
        assert!(found.iter().any(named), "{about}{words}: {found:?}");
    }
    let rounds = || command::metrics(&deployment.run("tokyo")).len();
    let before = rounds();
    command::until("further rounds", || rounds() > before + 1);
    for node in &mut nodes {
        assert!(!node.errors().contains("is lost"), "{}", node.errors());
    }
    nodes[0].signal("TERM");
    assert_eq!(nodes.each_mut().map(|node| node.end().0), [Some(130), Some(4), Some(4)]);
}

#[test]
fn another_key_at_an_address_and_unknown_names_are_named() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    let (tokyo, oslo) = (deployment.address("tokyo"), deployment.address("oslo"));
    // London's topology has Oslo's address for Tokyo, and a name that does not exist for Oslo.
    let port = oslo.rsplit('/').next().unwrap().to_string();
    let net = fs::read_to_string(deployment.file("net.toml")).unwrap();
    let net = net.replace(&oslo, &format!("/dns/no-such-host.invalid/tcp/{port}"));
    deployment.write("london-net.toml", &net.replace(&tokyo, &oslo));
    replace(&deployment, "london.toml", "\"net.toml\"", "\"london-net.toml\"");
    // Oslo does not find London: whichever end dials, only London's topology connects them.
    let net = fs::read_to_string(deployment.file("net.toml")).unwrap();
    let london = "/dns/no-such-host.invalid/tcp/1";
    deployment.write("oslo-net.toml", &net.replace(&deployment.address("london"), london));
    replace(&deployment, "oslo.toml", "\"net.toml\"", "\"oslo-net.toml\"");
    let _oslo = deployment.start("oslo");
    let port: u16 = port.parse().unwrap();
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    command::until("Oslo's port", listens);
    let (code, report) = examine(&deployment, "london", &["--wait", "0"]);
    let found = errors(&report);
    assert_eq!(code, 2);
    let has = |about: &str, words: &str| {
        found.iter().any(|error| error.starts_with(about) && error.contains(words))
    };
    assert!(has("link to tokyo: ", "answers as "), "{found:?}");
    assert!(has("link to oslo: ", "no-such-host.invalid"), "{found:?}");
}

/// Tokyo waits in `node`, London and Oslo examine their links at the same time; over TCP, QUIC, and
/// with a node that has no address. Afterwards the run is not disturbed.
#[test]
#[ignore = "slow"]
fn links_are_measured_and_the_figures_go_into_a_topology() {
    for reach in [Reach::Tcp, Reach::Quic, Reach::FromTheMiddle] {
        let deployment = Deployment::new(reach, RUN);
        let mut tokyo = deployment.start("tokyo");
        let measured = deployment.file("measured.toml");
        let file = measured.display().to_string();
        let (london, oslo) = std::thread::scope(|scope| {
            let london = scope.spawn(|| examine(&deployment, "london", &["--measure", &file]));
            let oslo = examine(&deployment, "oslo", &[]);
            (london.join().unwrap(), oslo)
        });
        for (code, report) in [&london, &oslo] {
            assert_eq!((*code, errors(report)), (0, Vec::new()));
            assert!(report["forecast"]["round_s"].as_f64().unwrap() > 0.0);
        }
        let link = |report: &Value, name: &str| {
            let all = report["neighbours"].as_array().unwrap().clone();
            all.into_iter().find(|one| one["name"] == name).unwrap()["link"].clone()
        };
        for (link, runs) in [
            (link(&london.1, "tokyo"), "node"),
            (link(&london.1, "oslo"), "doctor"),
            (link(&oslo.1, "london"), "doctor"),
        ] {
            assert_eq!(link["neighbour_runs"], runs);
            let figure = |key: &str| link[key].as_f64().unwrap();
            assert!(figure("sent_mbps") > 1.0 && figure("received_mbps") > 1.0, "{link}");
            assert!(figure("round_trip_ms") > 0.0 && figure("clock_s").abs() < 0.5, "{link}");
            if cfg!(target_os = "linux") {
                let text = fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
                let most: u64 = text.trim().parse().unwrap();
                // A packet of IP has at most 65,535 bytes.
                assert_eq!(link["path_mtu"], most.min(65_535));
            }
            let quic = link["cipher"].as_str().unwrap().starts_with("QUIC");
            assert_eq!(quic, reach == Reach::Quic, "{link}");
        }
        let text = fs::read_to_string(&measured).unwrap();
        assert_eq!(text.matches("bandwidth_mbps").count(), 2, "{text}");
        gradvine().args(["topology", "check", &file]).assert().success();
        // The run that follows is as if nothing had been examined.
        let (mut london, mut oslo) = (deployment.start("london"), deployment.start("oslo"));
        for node in [&mut tokyo, &mut london, &mut oslo] {
            assert_eq!(node.end().0, Some(0), "{}", node.errors());
        }
    }
}

#[test]
#[ignore = "slow"]
fn checkpoints_of_another_run_are_found_before_the_node_refuses_them() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    let mut nodes = NAMES.map(|name| deployment.start(name));
    assert_eq!(nodes.each_mut().map(|node| node.end().0), [Some(0); 3]);
    let (code, report) = examine(&deployment, "london", &["--offline"]);
    assert_eq!((code, errors(&report)), (0, Vec::new()), "the same run");
    replace(&deployment, "experiment.toml", "rounds = 5", "rounds = 6");
    let (code, report) = examine(&deployment, "london", &["--offline"]);
    let found = errors(&report).join("; ");
    assert_eq!(code, 2, "{found}");
    assert!(found.contains("belong to another run: experiment: run.rounds"), "{found}");
    // The doctor has changed nothing: the node finds the same.
    let mut node = deployment.start("london");
    assert_eq!(node.end().0, Some(2));
    assert!(node.errors().contains("belong to another run"), "{}", node.errors());
}

#[test]
#[ignore = "slow"]
fn addresses_that_cannot_work_are_found() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    replace(&deployment, "net.toml", "/ip4/127.0.0.1/", "/ip4/0.0.0.0/");
    let (code, report) = examine(&deployment, "oslo", &["--offline"]);
    let found = errors(&report).join("; ");
    assert!(code == 2 && found.contains("stands for all addresses"), "{found}");
}
