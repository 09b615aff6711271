//! Wrong files that a test must make: keys, node files of a deployment and models are refused with
//! the file, the place in it, the value and the accepted ones; no files are left behind. Files that
//! do not change are in `cases`.

use crate::command;

use std::{fs, net::TcpListener, path::PathBuf};

use command::{Deployment, NAMES, Reach, folder, gradvine, refused};
use tempfile::TempDir;

struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(folder())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.path().join(name), bytes).unwrap();
        self.path(name)
    }
}

/// The error without its first words, which must be these.
fn after(line: &str, start: &str) -> String {
    line.strip_prefix(start)
        .unwrap_or_else(|| panic!("should start with {start}: {line}"))
        .to_string()
}

/// A deployment whose first node is invalid, and its error message, without the name of the node's
/// folder.
struct Spoilt(Deployment);

impl Spoilt {
    fn new() -> Spoilt {
        Spoilt(Deployment::new(Reach::Tcp, "rounds = 3\nconnect_s = 2"))
    }

    /// Replaces the lines of its node file that have the same keys.
    fn node(&self, lines: &str) -> String {
        let keys: Vec<&str> = lines.lines().map(|line| line.split(' ').next().unwrap()).collect();
        let text = fs::read_to_string(self.0.file("tokyo.toml")).unwrap();
        let kept = text.lines().filter(|line| !keys.iter().any(|key| line.starts_with(key)));
        self.0.write("spoilt.toml", &(kept.collect::<Vec<_>>().join("\n") + "\n" + lines));
        let line = refused(gradvine().arg("node").arg(self.0.file("spoilt.toml")).arg("--quiet"));
        assert!(!self.0.run("tokyo").exists(), "a run directory was left: {line}");
        line.replace(&format!("{}/", self.0.folder.path().display()), "")
    }
}

#[test]
fn node_files_are_refused_by_key() {
    let spoilt = Spoilt::new();
    let starts = |lines: &str, start: &str, words: &str| {
        let line = spoilt.node(lines);
        assert!(
            line.starts_with(&format!("error: {start}")) && line.contains(words),
            "{lines}: {line}"
        );
    };
    starts("key = \"tokyo.csv\"", "tokyo.csv: key: ", "600");
    starts(
        "listen = [\"127.0.0.1:4001\"]",
        "spoilt.toml: node.listen = 127.0.0.1:4001: ",
        "/ip4/203.0.113.7/tcp/4001",
    );
    starts(
        "listen = [\"/ip4/127.0.0.1/udp/4001\"]",
        "spoilt.toml: node.listen = ",
        "only TCP and QUIC",
    );
    starts(
        "listen = [\"/ip4/203.0.113.5/tcp/0\"]",
        "spoilt.toml: node.listen = ",
        "cannot be listened on",
    );
    starts("topology = \"no.toml\"", "no.toml: ", "cannot be read");
    starts("experiment = \"no.toml\"", "no.toml: ", "cannot be read");
    starts(
        "data = \"no.csv\"",
        "spoilt.toml: node.data = \"no.csv\": no such file",
        "digits, breast-cancer",
    );
    starts(
        "test = \"no.csv\"",
        "spoilt.toml: node.test = \"no.csv\": no such file",
        "digits, breast-cancer",
    );
    starts("out = \"tokyo.csv\"", "spoilt.toml: node.out = ", "cannot be written");
}

#[test]
fn a_missing_node_file_is_named_with_the_commands_that_make_one() {
    let files = Files::new();
    for command in ["node", "doctor", "status"] {
        let output = gradvine().arg(command).arg(files.path("no.toml")).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!output.status.success() && text.contains("no.toml"), "{command}: {text}");
        let hint = "`gradvine init` or `gradvine join` makes";
        assert!(text.contains(hint) || command == "status", "{command}: {text}");
    }
}

#[test]
fn initial_values_of_a_node_are_refused_by_key() {
    let spoilt = Spoilt::new();
    let refuses = |init: &str, words: &str| {
        let line = spoilt.node(&format!("init = \"{init}\""));
        let start = format!("error: spoilt.toml: node.init = \"{init}\": ");
        assert!(line.starts_with(&start) && line.contains(words), "{line}");
    };
    refuses("zeros", "model.init = \"from:tokyo\"");
    let experiment = fs::read_to_string(spoilt.0.file("experiment.toml")).unwrap();
    let model = experiment.replace("[model]\n", "[model]\ninit = \"from:tokyo\"\n");
    assert_ne!(model, experiment);
    spoilt.0.write("experiment.toml", &model);
    refuses("from:oslo", "this node's own values");
    refuses("no.safetensors", "no such file; expected");
}

#[test]
fn a_port_in_use_is_named() {
    let spoilt = Spoilt::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port());
    let line = spoilt.node(&format!("listen = [\"{address}\"]"));
    assert!(
        line.starts_with(&format!(
            "error: spoilt.toml: node.listen = \"{address}\": cannot be listened on: "
        )),
        "{line}"
    );
    assert!(line.contains("another program has this port"), "{line}");
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let spoilt = Spoilt::new();
    fs::set_permissions(spoilt.0.file("tokyo.key"), fs::Permissions::from_mode(0o640)).unwrap();
    let line = spoilt.node("");
    assert!(
        line.starts_with(
            "error: tokyo.key: key: its mode is 640: others can read this key; \
                          expected 600 (`chmod 600 "
        ),
        "{line}"
    );
    fs::set_permissions(spoilt.0.file("tokyo.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(spoilt.0.file("tokyo.key"), "not a key").unwrap();
    assert!(spoilt.node("").contains("tokyo.key: key: this is not a key file"));
    assert!(
        refused(gradvine().args(["identity", "show"]).arg(spoilt.0.file("tokyo.key")))
            .contains("this is not a key file")
    );
}

#[test]
fn peers_must_be_in_the_topology() {
    let spoilt = Spoilt::new();
    gradvine().args(["identity", "new"]).arg(spoilt.0.file("stranger.key")).assert().success();
    let line = spoilt.node("key = \"stranger.key\"");
    assert!(
        line.starts_with("error: spoilt.toml: node.key = 12D3KooW")
            && line.contains("the topology names no node"),
        "{line}"
    );
    let net = fs::read_to_string(spoilt.0.file("net.toml")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(net.contains(from));
        spoilt.0.write("net.toml", &net.replacen(from, to, 1));
        spoilt.node("")
    };
    let line = with("peer = \"12D3", "peer = \"x2D3");
    assert!(
        line.starts_with("error: net.toml: ") && line.contains("tokyo") && line.contains("peer"),
        "{line}"
    );
    let line = with("addresses = [\"/ip4", "addresses = [\"/ip9");
    assert!(line.starts_with("error: net.toml: node tokyo: addresses = /ip9/"), "{line}");
    let bare: String = net
        .lines()
        .map(|line| if line.starts_with("addresses") { "" } else { line })
        .collect::<Vec<_>>()
        .join("\n");
    spoilt.0.write("net.toml", &bare);
    let line = spoilt.node("");
    assert!(
        line.starts_with("error: net.toml: link tokyo - london: neither end has an address"),
        "{line}"
    );
    let anonymous: String =
        net.lines().filter(|line| !line.starts_with("peer")).collect::<Vec<_>>().join("\n");
    spoilt.0.write("net.toml", &anonymous);
    let line = spoilt.node("");
    assert!(
        line.starts_with("error: net.toml: node tokyo: peer: ")
            && line.contains("gradvine identity show"),
        "{line}"
    );
}

#[test]
fn a_nodes_experiment_and_rows_must_fit() {
    let spoilt = Spoilt::new();
    let experiment = fs::read_to_string(spoilt.0.file("experiment.toml")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(experiment.contains(from), "{from}");
        spoilt.0.write("experiment.toml", &experiment.replacen(from, to, 1));
        spoilt.node("")
    };
    let line = with("inputs = 2\n", "");
    assert!(
        line.starts_with("error: experiment.toml: model.inputs: a node has only its own rows"),
        "{line}"
    );
    let line = with("outputs = 3", "outputs = 2");
    assert!(
        line.starts_with(
            "error: tokyo.csv: line 4, column 2 (label) = 2: a label is a whole number from 0 to 1"
        ),
        "{line}"
    );
    let line = with("inputs = 2", "inputs = 3");
    assert!(
        line.starts_with("error: tokyo.csv: columns: 2 features beside 1 target: 3 are expected"),
        "{line}"
    );
    let line = with("step = 0.1", "step = -0.1");
    assert!(line.starts_with("error: experiment.toml: optimizer.step = -0.1: "), "{line}");
    let line = with("rounds = 3", "rounds = 0");
    assert!(line.starts_with("error: experiment.toml: run.rounds = 0: "), "{line}");
    assert_eq!(NAMES.iter().filter(|name| spoilt.0.run(name).exists()).count(), 0);
}

/// A model of two inputs and three classes.
fn model(files: &Files) -> PathBuf {
    let rows = files.write("rows.csv", command::rows(0));
    let (source, out) = (format!("data.source={rows}"), files.path("run"));
    let sets = [
        "--topology",
        "path:3",
        "--rounds",
        "2",
        "--set",
        &source,
        "--set",
        "model.kind=softmax",
        "-q",
        "--out",
        &out,
    ];
    gradvine().arg("simulate").args(sets).assert().success();
    files.0.path().join("run/model-mean.safetensors")
}

#[test]
fn rows_are_matched_to_a_models_columns_by_name() {
    let files = Files::new();
    let model = model(&files);
    let lines = |columns: &[usize]| {
        let line = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            columns.iter().map(|&column| cells[column]).collect::<Vec<_>>().join(",") + "\n"
        };
        command::rows(0).lines().map(line).collect::<String>()
    };
    let output = |command: &str, rows: &str| {
        let output = gradvine().arg(command).arg(&model).arg(rows).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    };
    let as_trained = files.path("rows.csv");
    for (name, columns) in [("turned.csv", &[2, 1, 0, 1][..]), ("bare.csv", &[1, 0])] {
        let text = lines(columns).replacen(",x,y\n", ",x,more\n", 1);
        let rows = files.write(name, text);
        assert_eq!(output("predict", &rows), output("predict", &as_trained), "{name}");
    }
    let turned = files.path("turned.csv");
    assert_eq!(output("evaluate", &turned), output("evaluate", &as_trained));
    let other = files.write("other.csv", lines(&[0, 2]).replacen("label", "y2", 1));
    let error = refused(gradvine().arg("predict").arg(&model).arg(&other));
    let expected = "the model's columns = \"y\": no such column: the file has x, y2";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn models_that_are_cut_short_or_foreign_are_refused() {
    let files = Files::new();
    let bytes = fs::read(model(&files)).unwrap();
    let rows = files.path("rows.csv");
    let error_line = |bytes: &[u8]| {
        let file = files.write("spoilt.safetensors", bytes);
        let of = |command: &str| {
            after(&refused(gradvine().args([command, &file, &rows])), &format!("error: {file}: "))
        };
        let line = of("evaluate");
        assert_eq!(of("predict"), line);
        line
    };
    for cut in [0, 7, 8, 100, bytes.len() - 1] {
        assert!(error_line(&bytes[..cut]).starts_with("safetensors: "), "{cut}");
    }
    assert!(error_line(&[bytes.as_slice(), b"more"].concat()).starts_with("safetensors: "));
    assert!(
        error_line(b"PK\x03\x04 a file of another program, long enough")
            .starts_with("safetensors: ")
    );
    let foreign = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let foreign = [&(foreign.len() as u64).to_le_bytes()[..], foreign, &[0; 4]].concat();
    assert!(
        error_line(&foreign)
            .starts_with("metadata gradvine.format: missing: not a model of this program")
    );
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.contains("\"gradvine.inputs\":\"2\""));
    let at =
        bytes.windows(21).position(|window| window == b"\"gradvine.inputs\":\"2\"").unwrap() + 19;
    let mut wider = bytes.clone();
    wider[at] = b'3';
    assert!(
        error_line(&wider).starts_with("tensor weight = [2, 3]: [3, 3] is needed"),
        "{}",
        error_line(&wider)
    );
    let with = |from: &str, to: &str| {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
    };
    let (key, task) = ("\"gradvine.task\":", "\"classification\"");
    assert!(
        error_line(&with(&format!("{key}{task}"), &format!("{key}\"classificatiom\"")))
            .starts_with("metadata gradvine.task = classificatiom: \"classification\" or")
    );
    // Files of before models had a task.
    let file = files.write("older.safetensors", with(key, "\"gradvine.tasx\":"));
    gradvine().args(["evaluate", &file, &rows]).assert().success();
}
