//! The `gradvine` program as its users run it: starts it, reads its output, signals it.
// Each test file uses its own part of this one.
#![allow(dead_code)]

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use assert_cmd::assert::Assert;
use gradvine::{experiment::Transport, net::free_ports};
use serde_json::Value;
use tempfile::TempDir;

/// The root of the repository. The command belongs to the package in `crates/cli`.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// An upper limit for everything that tests wait for, long enough for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The program, without logging settings of the environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradvine"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// The same with assertions on its exit.
pub(crate) fn gradvine() -> assert_cmd::Command {
    assert_cmd::Command::from_std(program())
}

/// The program with these arguments in a folder.
pub(crate) fn within(folder: &Path, arguments: &[&str]) -> Assert {
    gradvine().current_dir(folder).args(arguments).assert()
}

/// Simulates in a folder, with these settings.
pub(crate) fn simulate(folder: &Path, out: &str, arguments: &[&str], settings: &[&str]) -> Assert {
    let sets: Vec<&str> = settings.iter().flat_map(|set| ["--set", *set]).collect();
    within(folder, &[&["simulate", "-q", "--out", out], arguments, &sets].concat())
}

/// A folder of its own for a test.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Settings for a small convex run on three nodes.
pub(crate) const SMALL: [&str; 8] = [
    "--topology",
    "path:3",
    "--set",
    "data.source=breast-cancer",
    "--set",
    "model.kind=softmax",
    "--set",
    "optimizer.schedule=constant",
];

pub(crate) fn json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{}: {error}: {text}", path.display()))
}

/// The objects of `metrics.jsonl`, each line of which must be whole.
pub(crate) fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut short");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until a condition is true.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(SOON, what, is_so);
}

/// The same, for so long.
pub(crate) fn until_within(most: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < most, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a run has written its first metrics.
pub(crate) fn until_running(run: &Path) {
    let file = run.join("metrics.jsonl");
    until("the first metrics", || fs::metadata(&file).is_ok_and(|meta| meta.len() > 0));
}

/// A process of this test. It is killed if the test ends before it does.
pub(crate) struct Running {
    child: Child,
    errors: PathBuf,
}

impl Running {
    /// Starts it with its standard error in a file of this folder.
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &str) -> Running {
        let errors = folder.join(format!("{name}.stderr"));
        let child =
            command.stdout(Stdio::null()).stderr(File::create(&errors).unwrap()).spawn().unwrap();
        Running { child, errors }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Its exit code, and how long it took from now on.
    pub(crate) fn end(&mut self) -> (Option<i32>, Duration) {
        self.end_within(SOON)
    }

    /// The same, if it takes no longer than this.
    pub(crate) fn end_within(&mut self, most: Duration) -> (Option<i32>, Duration) {
        let started = Instant::now();
        let mut ended: Option<ExitStatus> = None;
        until_within(most, "the end of a process", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        (ended.unwrap().code(), started.elapsed())
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its standard error so far.
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let text = fs::read_to_string(&self.errors).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(20).collect();
            eprintln!("{}, newest first:\n{}", self.errors.display(), lines.join("\n"));
        }
    }
}

/// The transport and addresses of a [`Deployment`].
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Reach {
    Tcp,
    Quic,
    /// TCP, and the node in the middle has no address: it dials the others.
    FromTheMiddle,
}

/// Three nodes as their operators set them up: tokyo - london - oslo, each with its own key, rows
/// and node file.
pub(crate) struct Deployment {
    pub folder: TempDir,
}

pub(crate) const NAMES: [&str; 3] = ["tokyo", "london", "oslo"];

impl Deployment {
    /// Writes all files. `run` is the `[run]` section.
    pub(crate) fn new(reach: Reach, run: &str) -> Deployment {
        let deployment = Deployment { folder: folder() };
        let mut nodes = String::new();
        for (index, name) in NAMES.into_iter().enumerate() {
            let key = deployment.file(&format!("{name}.key"));
            let made = gradvine().args(["identity", "new"]).arg(&key).assert().success();
            let peer = String::from_utf8(made.get_output().stdout.clone()).unwrap();
            let address = free_address(reach);
            let shown = if reach == Reach::FromTheMiddle && index == 1 {
                String::new()
            } else {
                format!("\"{address}\"")
            };
            nodes += &format!(
                "[[node]]\nname = \"{name}\"\npeer = \"{}\"\naddresses = [{shown}]\n",
                peer.trim()
            );
            deployment.write(&format!("{name}.csv"), &rows(index));
            deployment.write(
                &format!("{name}.toml"),
                &format!(
                    "key = \"{name}.key\"\nlisten = [\"{address}\"]\ntopology \
                     = \"net.toml\"\nexperiment = \"experiment.toml\"\n\
                     data = \"{name}.csv\"\nout = \"{name}-run\"\n"
                ),
            );
        }
        let links = "[[link]]\nbetween = [\"tokyo\", \"london\"]\n[[link]]\nbetween = \
                     [\"london\", \"oslo\"]\n";
        deployment
            .write("net.toml", &format!("name = \"three\"\nfamily = \"custom\"\n{nodes}{links}"));
        deployment.write("experiment.toml", &experiment(run, "0.1"));
        deployment
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// Gives a node an experiment file of its own.
    pub(crate) fn give(&self, name: &str, experiment: &str) {
        let (own, file) = (format!("{name}-experiment.toml"), format!("{name}.toml"));
        self.write(&own, experiment);
        let text = fs::read_to_string(self.file(&file)).unwrap();
        self.write(&file, &text.replace("\"experiment.toml\"", &format!("{own:?}")));
    }

    /// The run directory of a node.
    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}-run"))
    }

    pub(crate) fn start(&self, name: &str) -> Running {
        self.start_as(name, |command| command)
    }

    /// Starts a node with a change to its command.
    pub(crate) fn start_as(
        &self,
        name: &str,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Running {
        let (mut command, file) = (program(), self.file(&format!("{name}.toml")));
        Running::start(
            change(command.arg("node").arg(file).arg("--quiet")),
            self.folder.path(),
            name,
        )
    }

    pub(crate) fn address(&self, name: &str) -> String {
        let text = fs::read_to_string(self.file(&format!("{name}.toml"))).unwrap();
        let line = text.lines().find(|line| line.starts_with("listen")).unwrap();
        line.split('"').nth(1).unwrap().to_string()
    }
}

/// The same files once more, before a run.
pub(crate) fn copy_of(deployment: &Deployment) -> TempDir {
    let copy = folder();
    for file in fs::read_dir(deployment.folder.path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

/// An experiment for the rows of [`rows`].
pub(crate) fn experiment(run: &str, step: &str) -> String {
    format!(
        "[run]\n{run}\n[data]\nstandardize = true\n[model]\nkind = \"softmax\"\ninputs = \
         2\noutputs = 3\n[rule]\nkind = \"choco\"\n\
         [compressor]\nkind = \"min-max\"\n[optimizer]\nstep = {step}\nbatch = 4\n"
    )
}

/// Thirty rows of two features and three classes, others for each node.
pub(crate) fn rows(node: usize) -> String {
    let row = |i: usize| {
        let class = i % 3;
        let (x, y) = (
            class as f64 + 0.1 * ((i * 7 + node) % 5) as f64,
            -(class as f64) + 0.1 * ((i * 3 + node) % 4) as f64,
        );
        format!("{x:.1},{y:.1},{class}\n")
    };
    "x,y,label\n".to_string() + &(0..30).map(row).collect::<String>()
}

/// A loopback address whose port was free a moment ago.
fn free_address(reach: Reach) -> String {
    if reach == Reach::Quic {
        let port = free_ports(Transport::Quic, 1).unwrap()[0];
        format!("/ip4/127.0.0.1/udp/{port}/quic-v1")
    } else {
        let port = free_ports(Transport::Tcp, 1).unwrap()[0];
        format!("/ip4/127.0.0.1/tcp/{port}")
    }
}

/// Runs a command in an empty folder: it must exit with 2 and one line on standard error beside
/// warnings, which is returned, and leave no files.
pub(crate) fn refused(command: &mut assert_cmd::Command) -> String {
    let empty = folder();
    let assert = command.current_dir(empty.path()).assert();
    let output = assert.get_output();
    let (stderr, code) = (String::from_utf8(output.stderr.clone()).unwrap(), output.status.code());
    assert_eq!(code, Some(2), "{command:?}: {stderr}");
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("error: "), "{command:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{command:?} printed something");
    let left: Vec<_> =
        fs::read_dir(empty.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{command:?} left {left:?}");
    lines[0].to_string()
}
