//! Wrong files: data, topologies, keys, node files and models are refused with the file, the place
//! in it, the value and the accepted ones; no files are left behind.

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

#[test]
fn data_files_are_refused_by_line() {
    let files = Files::new();
    let error_line = |settings: &[&str], text: &str| {
        let path = files.write("rows.csv", text);
        let source = format!("data.source={path}");
        let sets = settings.iter().flat_map(|set| ["--set", set]);
        let mut command = gradvine();
        command
            .args([
                "train",
                "--topology",
                "path:3",
                "--set",
                &source,
                "--set",
                "model.kind=softmax",
            ])
            .args(sets);
        after(&refused(&mut command), &format!("error: {path}: "))
    };
    assert_eq!(error_line(&[], ""), "line 1: the file is empty: at least one row is needed");
    assert_eq!(
        error_line(&[], "1,2,0\n3,1\n"),
        "line 2: 2 columns found, 3 expected, as in the first line"
    );
    assert_eq!(
        error_line(&[], "a,b,y\n1,2,0\nx,4,1\n"),
        "line 3, column 0 (a) = \"x\": text, but a number is needed"
    );
    assert!(
        error_line(&[], "1,2,0\n3,nan,1\n")
            .starts_with("line 2, column 1 = \"nan\": a finite number")
    );
    assert!(
        error_line(&[], "1,2,0\n3,4,-1\n")
            .starts_with("line 2, column 2 = -1: a label is a whole number 0, 1, 2")
    );
    assert!(
        error_line(&[], "1,2,0\n3,4,1.5\n")
            .starts_with("line 2, column 2 = 1.5: a label is a whole number")
    );
    assert!(
        error_line(&["model.outputs=2"], "1,2,0\n3,4,2\n")
            .contains("line 2, column 2 = 2: a label is a whole number from 0 to 1 (2 classes)")
    );
    assert!(
        error_line(&["model.inputs=5"], "1,2,0\n3,4,2\n")
            .contains("2 features beside 1 target: 5 are expected (model.inputs)")
    );
    let few = error_line(&["data.test_share=0"], "1,2,0\n3,4,1\n");
    assert_eq!(few, "data: 2 rows for 3 nodes: every node needs at least one");
    let gz = files.write("rows.csv.gz", "1,2,0\n");
    let line = refused(gradvine().args(["train", "--set", &format!("data.source={gz}")]));
    assert!(line.contains("not gzip-compressed"), "{line}");
}

#[test]
fn topology_files_are_refused_by_link_and_node() {
    let files = Files::new();
    let nodes = "family = \"custom\"\n[[node]]\nname = \"a\"\n[[node]]\nname \
                 = \"b\"\n[[node]]\nname = \"c\"\n";
    let link = |ends: &str, rest: &str| format!("[[link]]\nbetween = [{ends}]\n{rest}\n");
    let path = link("\"a\", \"b\"", "") + &link("\"b\", \"c\"", "");
    let given = format!("weights = \"given\"\n{nodes}");
    for (text, words) in [
        (format!("{nodes}{path}{}", link("\"a\", \"d\"", "")), &["d", "a, b, c"][..]),
        (
            format!("{nodes}{path}{}", link("\"b\", \"b\"", "")),
            &["line 14, link b - b", "remove the link"],
        ),
        (format!("{nodes}{}", link("\"a\", \"b\"", "")), &["a", "c"]),
        (
            format!(
                "{given}{}{}",
                link("\"a\", \"b\"", "weight = -0.5"),
                link("\"b\", \"c\"", "weight = 0.5")
            ),
            &["-0.5", "above 0"],
        ),
        (
            format!("{given}{}{}", link("\"a\", \"b\"", "weight = 0.5"), link("\"b\", \"c\"", "")),
            &["no weight"],
        ),
        (
            format!(
                "{given}{}{}{}",
                link("\"a\", \"b\"", "weight = 0.5"),
                link("\"b\", \"a\"", "weight = 0.4"),
                link("\"b\", \"c\"", "weight = 0.2")
            ),
            &["0.4", "0.5"],
        ),
        (
            format!(
                "{given}{}{}",
                link("\"a\", \"b\"", "weight = 0.9"),
                link("\"b\", \"c\"", "weight = 0.9")
            ),
            &["b"],
        ),
        (format!("{nodes}{path}").replace("\"c\"\n", "\"a\"\n"), &["a"]),
        ("family = \"ring\"\nnodes = 0\n".into(), &["line 2", "1 or more"]),
        ("family = \"rng\"\n".into(), &["line 1", "rng", "ring, path"]),
        ("family = \"ring\"\nnodes = 3\nsize = 4\n".into(), &["line 3", "size", "`nodes`"]),
        ("family = \"ring\"\nnodes = \"x\"\n".into(), &["line 2", "invalid type"]),
        ("family = ".into(), &["line 1"]),
    ] {
        let file = files.write("net.toml", &text);
        let line = after(
            &refused(gradvine().args(["simulate", "--topology", &file])),
            &format!("error: {file}: "),
        );
        for words in words {
            assert!(line.contains(words), "should say {words}: {line}\n{text}");
        }
        assert_eq!(
            refused(gradvine().args(["topology", "check", &file])),
            format!("error: {file}: {line}")
        );
    }
    for argument in ["no.toml", "ring:x", "blob:4"] {
        for command in [&["topology", "show"][..], &["simulate", "--topology"]] {
            assert!(
                refused(gradvine().args(command).arg(argument))
                    .contains(argument.split(':').next().unwrap())
            );
        }
    }
    let line = refused(gradvine().args(["topology", "make", "ring:4", "net.xml"]));
    assert!(line.contains("net.xml") && line.contains(".graphml"), "{line}");
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
        self.error_line()
    }

    fn error_line(&self) -> String {
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
    starts("key = \"no.key\"", "no.key: key: there is no such file", "gradvine identity new");
    starts("key = \"tokyo.csv\"", "tokyo.csv: key: ", "600");
    starts("key = 3", "spoilt.toml: node.key = 3: ", "a path in quotes");
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
        "listen = \"/ip4/127.0.0.1/tcp/0\"",
        "spoilt.toml: node.listen = ",
        "a list in square brackets",
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
    starts("speed = 3", "spoilt.toml: node.speed = 3: unknown field", "`listen`");
    starts("listen = [", "spoilt.toml: line ", "");
    spoilt.0.write("spoilt.toml", "key = \"tokyo.key\"\n");
    assert_eq!(spoilt.error_line(), "error: spoilt.toml: node: missing field `listen`");
    let missing = refused(gradvine().args(["node", "no.toml"]));
    assert!(missing.starts_with("error: no.toml: node: cannot be read"), "{missing}");
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
    let again = refused(gradvine().args(["identity", "new"]).arg(spoilt.0.file("oslo.key")));
    assert!(again.contains("it exists already: a key is never overwritten"), "{again}");
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
    let missing = refused(gradvine().args(["evaluate", "no.safetensors", &rows]));
    assert!(missing.starts_with("error: no.safetensors: cannot be read: "), "{missing}");
}

#[test]
fn data_that_does_not_fit_a_model_is_refused() {
    let files = Files::new();
    let model = model(&files).display().to_string();
    for command in ["evaluate", "predict"] {
        let error_line = |rest: &[&str]| refused(gradvine().args([command, &model]).args(rest));
        assert_eq!(
            error_line(&["digits"]),
            "error: digits: columns: 64 features beside 1 target: 2 are expected by the model"
        );
        let more = files.write("more.csv", "1,2,0\n1,2,3\n");
        assert!(error_line(&[&more]).starts_with(&format!(
            "error: {more}: line 2, column 2 = 3: a label is a whole number from 0 to 2"
        )));
        assert!(error_line(&["no.csv"]).starts_with("error: DATA = \"no.csv\": no such file"));
        let rows = files.path("rows.csv");
        let line = error_line(&[&rows, "--target", "height"]);
        assert!(
            line.starts_with("error: --target = height: no such column: one of x, y, label"),
            "{line}"
        );
        let line = error_line(&[&rows, "--labels", &more]);
        assert!(
            line.starts_with("error: --labels = ")
                && line.contains("a CSV file holds its labels itself: use --target"),
            "{line}"
        );
    }
    let line = refused(gradvine().args([
        "predict",
        &model,
        &files.path("rows.csv"),
        "--out",
        "/proc/p.csv",
    ]));
    assert!(line.starts_with("error: /proc/p.csv: --out: cannot be written: "), "{line}");
}
