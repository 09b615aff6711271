//! Nodes that are absent for too long: the others continue without them, and take them back. A run
//! whose members changed can be repeated in the simulator, with the same bits.
#![cfg(unix)]

use crate::command;

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use command::{Running, folder, gradvine, json, program, until_running};
use gradvine::{experiment::Transport, net::free_ports};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Five nodes on a ring, each with its own rows and key. Every link goes through passages.
pub(crate) struct Ring {
    pub folder: TempDir,
    sets: Vec<String>,
    pub links: Vec<[Passage; 2]>,
    /// How long the passages hold what they pass on, in ms: rounds are slow until all that a test
    /// waits for has happened, however fast or busy the computer is.
    pub delay: Arc<AtomicU64>,
}

const NODES: [usize; 5] = [0, 1, 2, 3, 4];

/// Several times as many as pass while the rounds are slow.
const ROUNDS: u64 = 1000;

impl Ring {
    /// Writes all files. `sets` are changes of the experiment.
    pub(crate) fn new(rounds: u64, deadline_s: f64, sets: &[&str]) -> Ring {
        let mut ring = Ring::on("ring:5", 5, rounds, deadline_s, sets);
        ring.links = NODES.map(|node| ring.lead(node, (node + 1) % 5)).into();
        ring
    }

    /// The same on another topology of so many nodes, without passages.
    fn on(topology: &str, nodes: usize, rounds: u64, deadline_s: f64, sets: &[&str]) -> Ring {
        let folder = folder();
        let deadline = format!("absence.deadline_s={deadline_s}");
        let policy = ["absence.policy=continue", "checkpoint.every_rounds=10"];
        let sets: Vec<String> = [deadline.as_str()]
            .iter()
            .chain(&policy)
            .chain(sets.iter())
            .flat_map(|set| ["--set".to_string(), set.to_string()])
            .chain(["--topology".into(), topology.into()])
            .collect();
        let delay = Arc::new(AtomicU64::new(30));
        let ring = Ring { folder, sets, links: Vec::new(), delay };
        // A short run writes keys, rows and files.
        let mut short = gradvine();
        short.args(["train", "--processes", "--no-baseline", "--quiet", "--rounds", "1"]);
        short.args(&ring.sets).arg("--out").arg(ring.folder.path().join("run"));
        short.assert().success();
        for node in 0..nodes {
            fs::remove_dir_all(ring.run(node)).unwrap();
        }
        ring.edit("experiment.toml", "rounds = 1\n", &format!("rounds = {rounds}\n"));
        ring
    }

    fn nodes(&self) -> PathBuf {
        self.folder.path().join("run/nodes")
    }

    fn run(&self, node: usize) -> PathBuf {
        self.nodes().join(node.to_string()).join("run")
    }

    /// Waits until a node has written two more checkpoints: then all have one of its membership.
    fn until_checkpoints(&self, node: usize) {
        let newest = || {
            let kept = self.run(node).join(format!("checkpoints/{node}"));
            let files = fs::read_dir(kept).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            let round = |name: String| {
                let name = name.strip_prefix("round-")?.strip_suffix(".safetensors")?;
                name.parse::<u64>().ok()
            };
            names.filter_map(round).max().unwrap_or(0)
        };
        let first = newest();
        command::until("two more checkpoints", || newest() >= first + 20);
    }

    fn edit(&self, name: &str, from: &str, to: &str) {
        let path = self.nodes().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Lets node 0 serve its page.
    pub(crate) fn serve(&self) {
        let port = free_ports(Transport::Tcp, 1).unwrap()[0];
        let text = fs::read_to_string(self.file(0)).unwrap();
        let text = format!("{text}\n[status]\nlisten = \"127.0.0.1:{port}\"\n");
        fs::write(self.file(0), text).unwrap();
    }

    /// Where that is.
    pub(crate) fn page(&self) -> SocketAddr {
        let text = fs::read_to_string(self.file(0)).unwrap();
        let (_, address) = text.split_once("[status]\nlisten = \"").unwrap();
        address.split('"').next().unwrap().parse().unwrap()
    }

    /// A node's file.
    pub(crate) fn file(&self, node: usize) -> PathBuf {
        self.nodes().join(node.to_string()).join("node.toml")
    }

    pub(crate) fn start(&self, node: usize) -> Running {
        let file = self.file(node);
        let name = format!("node-{node}");
        Running::start(program().arg("node").arg(file).arg("--quiet"), self.folder.path(), &name)
    }

    /// Starts all nodes, and waits until they run.
    pub(crate) fn start_all(&self) -> [(usize, Running); 5] {
        let nodes = NODES.map(|node| (node, self.start(node)));
        NODES.iter().for_each(|node| until_running(&self.run(*node)));
        nodes
    }

    /// Makes the features of a node too large by this factor, and so its gradients.
    fn enlarge(&self, node: usize, factor: f64) {
        let rows = self.nodes().join(format!("{node}/data.csv"));
        let text = fs::read_to_string(&rows).unwrap();
        let large = |line: &str| {
            let (values, label) = line.rsplit_once(',').unwrap();
            let values = values.split(',').map(|value| match value.parse::<f64>() {
                Ok(value) => format!("{:e}", value * factor),
                Err(_) => value.to_string(),
            });
            values.chain([label.to_string()]).collect::<Vec<_>>().join(",")
        };
        fs::write(&rows, text.lines().map(large).collect::<Vec<_>>().join("\n")).unwrap();
    }

    fn summary(&self, node: usize) -> Value {
        json(&self.run(node).join("summary.json"))
    }

    /// Waits for these nodes, which end with this code and the same digest. The simulator ends with
    /// it too. Returns the summary.
    fn end(&self, nodes: &mut [(usize, Running)], code: i32, rounds: u64) -> Value {
        self.delay.store(0, Ordering::Relaxed);
        for (node, running) in nodes.iter_mut() {
            // The rounds of five processes on a busy machine take their time.
            let ended = running.end_within(Duration::from_secs(180)).0;
            assert_eq!(ended, Some(code), "{node}: {}", running.errors());
        }
        let first = self.summary(nodes[0].0);
        assert_eq!(first["failure"], Value::Null, "{first}");
        for (node, _) in nodes.iter() {
            assert_eq!(self.summary(*node)["digest"], first["digest"], "{node}");
            assert_eq!(self.summary(*node)["history"], first["history"], "{node}");
        }
        let mut again = gradvine();
        again.args(["simulate", "--no-baseline", "--json", "--rounds", &rounds.to_string()]);
        again.args(&self.sets).arg("--out").arg(self.folder.path().join("again"));
        again.arg("--history").arg(self.run(nodes[0].0).join("summary.json"));
        let output = again.assert().success().get_output().stdout.clone();
        let repeated: Value = serde_json::from_slice(&output).unwrap();
        assert_eq!(repeated["digest"], first["digest"]);
        assert_eq!(repeated["history"], first["history"]);
        for (node, it) in first["participation"].as_object().unwrap() {
            let all = &repeated["participation"][node];
            let [sent, all] = [it, all].map(|it| it["bytes_payload"].as_u64().unwrap());
            // One that was away may have left before its checkpoint was written.
            let stayed = it["rounds"] == first["rounds"];
            assert!(sent == all || (sent < all && !stayed), "{node}: {sent} of {all}: {first}");
        }
        first
    }
}

/// The members after each change.
fn members(summary: &Value) -> Vec<Vec<String>> {
    let names = |change: &Value| serde_json::from_value(change["members"].clone()).unwrap();
    summary["history"].as_array().unwrap().iter().map(names).collect()
}

/// Asserts that the members have changed to each of these in this order, and last to the last. In
/// between a node that a busy machine held up for longer than the deadline may have been left out.
fn assert_changed(summary: &Value, expected: &[&[&str]]) {
    let history = members(summary);
    let mut rest = history.iter();
    for one in expected {
        assert!(rest.any(|members| members == one), "{one:?} is missing: {history:?}");
    }
    assert_eq!(&history.last().unwrap(), expected.last().unwrap(), "{history:?}");
}

/// The rounds before the last in which a node was a member, by the changes of the members.
fn rounds_as_member(summary: &Value, node: &str, rounds: u64) -> u64 {
    let changes = summary["history"].as_array().unwrap();
    let first = |change: &Value| change["round"].as_u64().unwrap();
    let mut sum = changes.first().map_or(rounds, first);
    for (index, members) in members(summary).iter().enumerate() {
        let end = changes.get(index + 1).map_or(rounds, first);
        if members.iter().any(|name| name == node) {
            sum += end - first(&changes[index]);
        }
    }
    sum
}

fn kill(node: &mut Running) {
    node.signal("KILL");
    node.end();
}

fn until_says(node: &Running, words: &str) {
    command::until(words, || node.errors().contains(words));
}

/// Waits until all five nodes and all links are there again.
fn until_whole(node: &Running) {
    command::until_within(Duration::from_secs(60), "all nodes and links are back", || {
        let text = node.errors();
        let last = text.lines().rfind(|line| line.contains("the run continues with"));
        last.is_some_and(|line| line.ends_with("the run continues with 5 of 5 nodes"))
    });
}

#[test]
#[ignore = "slow"]
fn the_others_go_on_without_a_killed_node_and_it_returns() {
    let ring = Ring::new(ROUNDS, 2.0, &[]);
    let mut nodes = ring.start_all();
    kill(&mut nodes[2].1);
    for node in [0, 1, 3, 4] {
        until_says(&nodes[node].1, "the run continues with 4 of 5 nodes, without 2");
    }
    // A node that is killed meanwhile returns as before, to the membership of now.
    ring.until_checkpoints(0);
    kill(&mut nodes[4].1);
    nodes[4].1 = ring.start(4);
    until_says(&nodes[0].1, "node 4 was started again");
    ring.until_checkpoints(0);
    nodes[2].1 = ring.start(2);
    until_whole(&nodes[0].1);
    let summary = ring.end(&mut nodes, 3, ROUNDS);
    assert_changed(&summary, &[&["0", "1", "3", "4"], &["0", "1", "2", "3", "4"]]);
    for node in ["0", "1", "2", "3", "4"] {
        let took_part = rounds_as_member(&summary, node, ROUNDS);
        assert_eq!(summary["participation"][node]["rounds"], took_part, "node {node}: {summary}");
    }
    assert!(rounds_as_member(&summary, "2", ROUNDS) < ROUNDS, "{summary}");
    // It begins again from the mean of those that were there.
    let (changes, history) = (summary["history"].as_array().unwrap(), members(&summary));
    let back = history.iter().skip(1).position(|members| members.contains(&"2".into())).unwrap();
    assert_eq!(changes[back + 1]["models"], json!(history[back]));
    assert!(summary["final"]["test_accuracy_min"].as_f64().unwrap() > 0.9, "{summary}");
}

/// The run begins again at round 0, with the constants of the features of those that are there. The
/// simulator takes the experiment beside the summary.
#[test]
#[ignore = "slow"]
fn members_that_change_before_the_first_checkpoint_begin_again_with_their_own_constants() {
    let sets = ["data.standardize=true", "checkpoint.every_rounds=100000", "data.split=by-label"];
    let ring = Ring::new(ROUNDS, 2.0, &sets);
    let mut nodes = ring.start_all();
    kill(&mut nodes[3].1);
    let mut rest: Vec<_> = nodes.into_iter().filter(|(node, _)| *node != 3).collect();
    for (_, node) in &rest {
        until_says(node, "the run continues with 4 of 5 nodes, without 3");
    }
    let summary = ring.end(&mut rest, 3, ROUNDS);
    assert_changed(&summary, &[&["0", "1", "2", "4"]]);
    assert_eq!(summary["history"][0]["round"], 0, "{summary}");
    let of_node = ring.run(0).join("summary.json");
    let refused = command::refused(gradvine().args(["simulate", "--history"]).arg(of_node));
    assert!(
        refused.contains("the experiment.toml beside this summary is that of one"),
        "{refused}"
    );
    // The experiment of all nodes, and beside it the summary of one of them.
    let whole = ring.folder.path().join("whole");
    fs::create_dir(&whole).unwrap();
    let text = fs::read_to_string(ring.folder.path().join("run/experiment.toml")).unwrap();
    let text = text.replace("rounds = 1\n", &format!("rounds = {ROUNDS}\n"));
    fs::write(whole.join("experiment.toml"), text).unwrap();
    fs::copy(ring.run(0).join("summary.json"), whole.join("summary.json")).unwrap();
    let mut again = gradvine();
    again.args(["simulate", "--quiet", "--no-baseline", "--history"]);
    again.arg(&whole).arg("--out").arg(ring.folder.path().join("twice"));
    again.assert().success();
}

#[test]
#[ignore = "slow"]
fn a_run_whose_members_change_stops_early() {
    // Each change of the members begins the patience again: no end before the node is back, because
    // 2000 slow rounds take at least a minute.
    let stop = "run.stop_early={share=0.2,every=5,patience=400}";
    let learning = ["model.kind=mlp", "optimizer.step=0.5", "optimizer.schedule=constant"];
    let data = ["data.source=breast-cancer", "data.split=iid", stop];
    let ring = Ring::new(20 * ROUNDS, 2.0, &[&learning[..], &data].concat());
    let mut nodes = ring.start_all();
    // The root of the sums.
    kill(&mut nodes[0].1);
    until_says(&nodes[1].1, "the run continues with 4 of 5 nodes, without 0");
    ring.until_checkpoints(1);
    nodes[0].1 = ring.start(0);
    until_whole(&nodes[1].1);
    let summary = ring.end(&mut nodes, 3, 20 * ROUNDS);
    assert_changed(&summary, &[&["1", "2", "3", "4"], &["0", "1", "2", "3", "4"]]);
    let rounds = summary["rounds"].as_u64().unwrap();
    assert!(summary["stopped_early"] == true && rounds < 20 * ROUNDS, "{summary}");
    let returned =
        summary["history"].as_array().unwrap().last().unwrap()["round"].as_u64().unwrap();
    assert!(rounds > returned + 2000, "{summary}");
    assert_eq!(summary["participation"]["1"]["rounds"], rounds_as_member(&summary, "1", rounds));
}

#[test]
#[ignore = "slow"]
fn a_node_that_leaves_is_not_awaited() {
    let require = ["run.require={ nodes = 4, share = 0.9 }"];
    let ring = Ring::new(ROUNDS, 600.0, &require);
    let mut nodes = ring.start_all();
    nodes[3].1.signal("TERM");
    assert_eq!(nodes[3].1.end().0, Some(130), "{}", nodes[3].1.errors());
    until_says(&nodes[0].1, "the run continues with 4 of 5 nodes, without 3");
    let [a, b, c, _, e] = nodes;
    let summary = ring.end(&mut [a, b, c, e], 0, ROUNDS);
    assert_eq!(members(&summary), [vec!["0", "1", "2", "4"]]);
    let took_part = summary["away"]["3"].as_u64().unwrap();
    assert_eq!(summary["history"][0]["round"], took_part);
    assert!(summary["participation"].get("3").is_none(), "{summary}");
}

#[test]
#[ignore = "slow"]
fn a_node_that_hangs_is_left_out_and_returns_when_it_goes_on() {
    let ring = Ring::new(ROUNDS, 2.0, &[]);
    let mut nodes = ring.start_all();
    nodes[2].1.signal("STOP");
    for node in [0, 1, 3, 4] {
        command::until_within(Duration::from_secs(60), "the others continue", || {
            nodes[node].1.errors().contains("the run continues with 4 of 5 nodes, without 2")
        });
    }
    ring.until_checkpoints(0);
    nodes[2].1.signal("CONT");
    until_whole(&nodes[0].1);
    let summary = ring.end(&mut nodes, 3, ROUNDS);
    assert_changed(&summary, &[&["0", "1", "3", "4"], &["0", "1", "2", "3", "4"]]);
}

#[test]
#[ignore = "slow"]
fn a_node_leaves_on_request_and_comes_back() {
    let ring = Ring::new(ROUNDS, 600.0, &["run.require={ nodes = 4, share = 0.5 }"]);
    let mut nodes = ring.start_all();
    let leave = |code: i32, words: &str| {
        let mut leave = gradvine();
        leave.arg("leave").arg(ring.nodes().join("3/node.toml"));
        let output = leave.assert().code(code).get_output().clone();
        let said = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&said).contains(words), "{:?}", String::from_utf8(said));
    };
    leave(0, "the node has left its run");
    assert_eq!(nodes[3].1.end().0, Some(0), "{}", nodes[3].1.errors());
    assert!(nodes[3].1.errors().contains("left: stopped in round"), "{}", nodes[3].1.errors());
    leave(2, "no node runs in this run directory");
    until_says(&nodes[2].1, "the run continues with 4 of 5 nodes, without 3");
    ring.until_checkpoints(0);
    nodes[3].1 = ring.start(3);
    // The neighbour that sees it first says so.
    command::until("node 3 has returned", || {
        [2, 4].iter().any(|node| nodes[*node].1.errors().contains("node 3 has returned"))
    });
    // Only one process at a time.
    let second = ring.start(3).end_within(Duration::from_secs(60)).0;
    assert_eq!(second, Some(2));
    until_whole(&nodes[0].1);
    let summary = ring.end(&mut nodes, 0, ROUNDS);
    assert_changed(&summary, &[&["0", "1", "2", "4"], &["0", "1", "2", "3", "4"]]);
}

/// Each start throws all back to the last checkpoint, and there is none yet. After so many starts
/// the others continue without it.
#[test]
#[ignore = "slow"]
fn a_node_that_is_killed_again_and_again_is_left_out() {
    let sets = ["checkpoint.every_rounds=100000", "run.evaluate_every=2"];
    let ring = Ring::new(300, 600.0, &sets);
    let mut nodes = ring.start_all();
    let is_left_out =
        |nodes: &[(usize, Running)]| nodes[0].1.errors().contains("4 of 5 nodes, without 2");
    let mut starts = 0;
    while !is_left_out(&nodes) {
        kill(&mut nodes[2].1);
        // It has lost its disk, too: then its files say when the rounds have begun.
        fs::remove_dir_all(ring.run(2)).unwrap();
        nodes[2].1 = ring.start(2);
        starts += 1;
        let metrics = ring.run(2).join("metrics.jsonl");
        command::until("it takes part again, or is left out", || {
            fs::metadata(&metrics).is_ok_and(|file| file.len() > 0) || is_left_out(&nodes)
        });
    }
    assert!((10..=60).contains(&starts), "{starts} starts");
    kill(&mut nodes[2].1);
    let [a, b, _, d, e] = nodes;
    let summary = ring.end(&mut [a, b, d, e], 3, 300);
    assert_eq!(members(&summary).last().unwrap(), &["0", "1", "3", "4"]);
}

/// The features of node 2 are too large by this factor. It ends with exit code 4. `check`
/// looks at what it and its neighbours have said. The others continue without it.
fn goes_on_without_2(factor: f64, sets: &[&str], check: impl Fn(&str, [String; 2])) {
    const ROUNDS: u64 = 300;
    let common = [
        "rule.kind=d-psgd",
        "compressor.kind=identity",
        "data.standardize=false",
        "optimizer.step=0.01",
    ];
    let ring = Ring::new(ROUNDS, 600.0, &[&common, sets].concat());
    ring.enlarge(2, factor);
    let mut nodes = NODES.map(|node| (node, ring.start(node)));
    until_says(&nodes[0].1, "the run continues with 4 of 5 nodes, without 2");
    let code = nodes[2].1.end_within(Duration::from_secs(60)).0;
    let said = nodes[2].1.errors();
    assert_eq!(code, Some(4), "{said}");
    check(&said, [1, 3].map(|node| nodes[node].1.errors()));
    let [a, b, _, d, e] = nodes;
    let summary = ring.end(&mut [a, b, d, e], 3, ROUNDS);
    assert_eq!(members(&summary).last().unwrap(), &["0", "1", "3", "4"]);
    assert_eq!(summary["participation"]["0"]["rounds"], ROUNDS);
}

/// Its model is too long after a step, and its loss is not yet one that ends it.
#[test]
#[ignore = "slow"]
fn a_node_that_sends_what_no_node_may_send_is_left_out_and_told_why() {
    goes_on_without_2(1e2, &["robust.max_norm=50", "absence.wait_s=12"], |said, neighbours| {
        assert!(said.contains("refuses this node for"), "{said}");
        assert!(said.contains("above robust.max_norm = 50"), "{said}");
        let refuses = |text: &String| text.contains("this node refuses node 2 for 60 s");
        assert!(neighbours.iter().any(refuses), "{neighbours:?}");
    });
}

/// Its program is as it should be: its rows are wrong. Its own loss is beyond the limit in round 1;
/// that of its neighbours is not.
#[test]
#[ignore = "slow"]
fn a_node_that_diverges_is_left_out() {
    // Of `softmax` its own loss is beyond the limit in round 1, and that of its neighbours is not.
    // Of `mlp` all would be beyond it: it finds that before it sends.
    for model in [&["model.kind=softmax"][..], &["model.kind=mlp", "model.hidden=[32]"]] {
        goes_on_without_2(1e6, model, |said, neighbours| {
            assert!(said.contains("diverged in round"), "{said}");
            let named = |text: &String| text.contains("node 2 cannot continue: diverged in round");
            assert!(neighbours.iter().any(named), "{neighbours:?}");
        });
    }
}

#[test]
#[ignore = "slow"]
fn a_run_begins_with_a_quorum_and_the_others_join() {
    let ring = Ring::new(ROUNDS, 600.0, &["run.start={ quorum = 3, within_s = 2 }"]);
    let mut nodes: Vec<(usize, Running)> = [0, 1, 2].map(|node| (node, ring.start(node))).into();
    for (_, node) in &nodes {
        until_says(node, "the run continues with 3 of 5 nodes, without 3, 4");
    }
    [0, 1, 2].iter().for_each(|node| until_running(&ring.run(*node)));
    ring.until_checkpoints(0);
    nodes.extend([3, 4].map(|node| (node, ring.start(node))));
    until_whole(&nodes[0].1);
    let summary = ring.end(&mut nodes, 3, ROUNDS);
    let history = members(&summary);
    assert_eq!(history[0], ["0", "1", "2"]);
    assert_eq!(history.last().unwrap(), &["0", "1", "2", "3", "4"]);
    assert_eq!(summary["history"][0]["round"], 0);
}

/// Passes connections on until it is cut, with a delay.
pub(crate) struct Passage {
    port: u16,
    open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Passage {
    fn to(port: u16, delay: &Arc<AtomicU64>) -> Passage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let passage = Passage {
            port: listener.local_addr().unwrap().port(),
            open: Arc::new(AtomicBool::new(true)),
            streams: Arc::default(),
        };
        let (open, streams) = (Arc::clone(&passage.open), Arc::clone(&passage.streams));
        let delay = Arc::clone(delay);
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let to =
                    open.load(Ordering::SeqCst).then(|| TcpStream::connect(("127.0.0.1", port)));
                let Some(Ok(to)) = to else { continue };
                let mut kept = streams.lock().unwrap();
                for (a, b) in [(&from, &to), (&to, &from)] {
                    a.set_nodelay(true).unwrap();
                    let (mut a, mut b) = (a.try_clone().unwrap(), b.try_clone().unwrap());
                    kept.push(a.try_clone().unwrap());
                    let delay = Arc::clone(&delay);
                    thread::spawn(move || {
                        let mut buffer = [0; 1 << 16];
                        while let Ok(count @ 1..) = a.read(&mut buffer) {
                            thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
                            if b.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = b.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        passage
    }

    pub(crate) fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
        if !open {
            for stream in self.streams.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Ring {
    fn port(&self, node: usize) -> u16 {
        let text = fs::read_to_string(self.nodes().join(format!("{node}/node.toml"))).unwrap();
        let address = text.split("/tcp/").nth(1).unwrap();
        address.split('"').next().unwrap().parse().unwrap()
    }

    /// Leads the link of two nodes through passages, whichever of them dials.
    fn lead(&self, a: usize, b: usize) -> [Passage; 2] {
        [(a, b), (b, a)].map(|(from, to)| {
            let (port, own) = (self.port(to), format!("{from}/topology.toml"));
            if !self.nodes().join(&own).exists() {
                let shared = self.nodes().join("../topology.toml");
                fs::copy(shared, self.nodes().join(&own)).unwrap();
                let file = format!("{from}/node.toml");
                self.edit(&file, "\"../../topology.toml\"", "\"topology.toml\"");
            }
            let passage = Passage::to(port, &self.delay);
            self.edit(&own, &format!("/tcp/{port}\""), &format!("/tcp/{}\"", passage.port));
            passage
        })
    }
}

#[test]
#[ignore = "slow"]
fn parts_without_a_majority_wait_and_cut_links_are_left_out() {
    let ring = Ring::new(ROUNDS, 2.0, &[]);
    let mut nodes = ring.start_all();
    let set = |link: usize, open: bool| {
        ring.links[link].iter().for_each(|passage| passage.set(open));
    };
    set(1, false);
    for (_, node) in &nodes {
        until_says(node, "the run continues with 5 of 5 nodes, without the link 1 - 2");
    }
    ring.until_checkpoints(0);
    set(3, false);
    for node in [0, 1, 4] {
        until_says(&nodes[node].1, "the run continues with 3 of 5 nodes, without 2, 3");
    }
    until_says(&nodes[2].1, "2 of 5 nodes are present, at least 3 continue");
    ring.until_checkpoints(0);
    set(1, true);
    set(3, true);
    until_whole(&nodes[0].1);
    let summary = ring.end(&mut nodes, 3, ROUNDS);
    let history = members(&summary);
    assert_eq!(history[0].len(), 5);
    let shown = gradvine().arg("members").arg(ring.run(0)).assert().success();
    let shown = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    assert!(shown.starts_with("members  5 of 5: 0, 1, 2, 3, 4\n"), "{shown}");
    assert!(shown.contains(" on 0, 1, 4, from the mean of 0, 1, 4\n"), "{shown}");
    assert_eq!(summary["history"][0]["cut"], json!([["1", "2"]]));
    assert!(history.iter().any(|members| *members == ["0", "1", "4"]), "{history:?}");
    let last = summary["history"].as_array().unwrap().last().unwrap();
    assert_eq!((last["members"].as_array().unwrap().len(), &last["cut"]), (5, &Value::Null));
}

#[test]
#[ignore = "slow"]
fn a_finished_node_that_is_started_alone_keeps_its_results() {
    const ROUNDS: u64 = 400;
    let ring = Ring::new(ROUNDS, 600.0, &["absence.wait_s=2"]);
    let mut nodes = NODES.map(|node| (node, ring.start(node)));
    until_running(&ring.run(0));
    ring.until_checkpoints(0);
    // As if it had been killed after its results, before its checkpoints were removed.
    let (kept, copy) = (ring.run(0).join("checkpoints/0"), ring.folder.path().join("copy"));
    fs::create_dir(&copy).unwrap();
    let files = |folder: &Path| -> Vec<PathBuf> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).collect()
    };
    for file in files(&kept) {
        // The oldest may be gone meanwhile.
        let _ = fs::copy(&file, copy.join(file.file_name().unwrap()));
    }
    ring.end(&mut nodes, 0, ROUNDS);
    assert!(files(&kept).is_empty(), "{:?}", files(&kept));
    for file in files(&copy) {
        fs::copy(&file, kept.join(file.file_name().unwrap())).unwrap();
    }
    let names = ["summary.json", "metrics.jsonl", "model-0.safetensors", "model-mean.safetensors"];
    let results = names.map(|name| ring.run(0).join(name));
    let read = || results.each_ref().map(|path| fs::read(path).unwrap());
    let before = read();
    let mut alone = ring.start(0);
    assert_eq!(alone.end_within(Duration::from_secs(60)).0, Some(4), "{}", alone.errors());
    assert!(alone.errors().contains("its results are whole"), "{}", alone.errors());
    assert!(read() == before, "results of a finished run changed");
}

/// A node returns while the others end. It takes part, or is told that the run is over.
#[test]
#[ignore = "slow"]
fn a_node_that_returns_when_the_others_end_does_not_wait() {
    const ROUNDS: u64 = 600;
    for tenths in [0, 20] {
        let ring = Ring::new(ROUNDS, 2.0, &["absence.wait_s=600"]);
        let mut nodes = ring.start_all();
        kill(&mut nodes[2].1);
        let others = [0, 1, 3, 4];
        for node in others {
            until_says(&nodes[node].1, "the run continues with 4 of 5 nodes, without 2");
        }
        ring.delay.store(0, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(100 * tenths));
        let has_ended = |node: &mut (usize, Running)| !node.1.is_running();
        let is_too_late = nodes.iter_mut().filter(|node| node.0 != 2).all(has_ended);
        nodes[2].1 = ring.start(2);
        for (node, running) in nodes.iter_mut().filter(|node| node.0 != 2) {
            let ended = running.end_within(Duration::from_secs(180)).0;
            // Nothing was lost if it is back before the others have a checkpoint without it.
            let summary = ring.summary(*node);
            let was_away =
                !summary["history"].is_null() && rounds_as_member(&summary, "2", ROUNDS) < ROUNDS;
            let code = if was_away { 3 } else { 0 };
            assert_eq!(ended, Some(code), "{tenths}: node {node}: {}", running.errors());
        }
        if is_too_late {
            continue;
        }
        let running = &mut nodes[2].1;
        command::until_within(Duration::from_secs(120), "the end of node 2", || {
            !running.is_running()
        });
        let (code, text) = (running.end_within(Duration::ZERO).0, running.errors());
        let takes_part = matches!(code, Some(0 | 3));
        assert!(takes_part || text.contains("the run is over"), "{tenths}: {code:?}: {text}");
    }
}

#[test]
#[ignore = "slow"]
fn a_rule_that_needs_the_absent_node_ends_and_goes_on_when_it_is_back() {
    const ROUNDS: u64 = 400;
    // Groups of two nodes each: three nodes make no such groups.
    let sets =
        ["rule.kind=c-sgd", "rule.collective=hybrid", "rule.group=2", "compressor.kind=identity"];
    let ring = Ring::on("complete:4", 4, ROUNDS, 1.0, &sets);
    let mut nodes = [0, 1, 2, 3].map(|node| (node, ring.start(node)));
    [0, 1, 2, 3].iter().for_each(|node| until_running(&ring.run(*node)));
    kill(&mut nodes[3].1);
    for (_, node) in nodes.iter_mut().take(3) {
        assert_eq!(node.end().0, Some(4), "{}", node.errors());
        let why = "the run cannot continue without the missing nodes";
        assert!(node.errors().contains(why), "{}", node.errors());
    }
    let mut nodes = [0, 1, 2, 3].map(|node| (node, ring.start(node)));
    let summary = ring.end(&mut nodes, 0, ROUNDS);
    assert_eq!(summary["history"], Value::Null);
}

#[test]
#[ignore = "slow"]
fn a_run_of_processes_tells_who_has_left() {
    // Many times as many rounds as pass until the node has left.
    let sets = [
        "rule.kind=d-psgd",
        "compressor.kind=identity",
        "absence.policy=continue",
        "run.evaluate_every=20",
    ];
    for (require, code) in [("{nodes=3,share=1.0}", 3), ("{nodes=2,share=0.001}", 0)] {
        let folder = folder();
        let out = folder.path().join("run");
        let mut train = program();
        train.args(["train", "--processes", "--quiet", "--no-baseline", "--rounds", "10000"]);
        train.args(command::SMALL).arg("--out").arg(&out);
        train.args(sets.iter().flat_map(|set| ["--set", set]));
        train.arg("--set").arg(format!("run.require={require}"));
        let mut running = Running::start(&mut train, folder.path(), "train");
        let nodes = out.join("nodes");
        until_running(&nodes.join("2/run"));
        gradvine().arg("leave").arg(nodes.join("2/node.toml")).assert().success();
        let ended = running.end_within(Duration::from_secs(180)).0;
        assert_eq!(ended, Some(code), "{}", running.errors());
        let summary = json(&out.join("summary.json"));
        let own = json(&nodes.join("0/run/summary.json"));
        for key in ["nodes", "rounds", "bytes", "history", "away", "mean_digest"] {
            assert!(!own[key].is_null(), "{own}");
            assert_eq!(summary[key], own[key], "{summary}");
        }
        let said = gradvine().arg("members").arg(&out).assert().success().get_output().clone();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.starts_with("members  2 of 3: 0, 1\naway     2\n"), "{said}");
        let page = folder.path().join("page.html");
        gradvine().arg("report").arg(&out).arg("--out").arg(page).assert().success();
    }
}
