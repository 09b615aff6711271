//! The laboratory: links that are as slow, narrow and lossy as asked for, real nodes on them, and
//! nothing left behind.
//!
//! It needs Linux and root. Elsewhere these tests say so and pass.
#![cfg(target_os = "linux")]

#[path = "common/command.rs"]
mod command;

use std::{
    fs,
    net::UdpSocket,
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
    time::{Duration, Instant},
};

use command::{Running, folder, program, refused, until};
use gradvine::{
    links::{Conditions, LinkModel},
    units::NodeId,
};
use gradvine_lab::{self as lab, Cut, Router, RouterCounts, Setup, Site, Wiring};
use serde_json::Value;

const MS: u64 = 1_000_000;

/// Tests that measure hold it for writing, so that nothing else runs; the others for reading.
static LABORATORY: RwLock<()> = RwLock::new(());

fn can_run() -> bool {
    lab::check().inspect_err(|trouble| println!("skipped: {trouble}")).is_ok()
}

/// Waits until no other test runs; `None` where there is no laboratory.
fn alone() -> Option<RwLockWriteGuard<'static, ()>> {
    can_run().then(|| LABORATORY.write().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until no test measures; `None` where there is no laboratory.
fn shared() -> Option<RwLockReadGuard<'static, ()>> {
    can_run().then(|| LABORATORY.read().unwrap_or_else(PoisonError::into_inner))
}

fn named(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Two places, a socket in each, and the link between them.
struct Pair {
    sockets: [UdpSocket; 2],
    router: Router,
    _sites: Vec<Site>,
}

impl Pair {
    fn new(laboratory: u32, model: LinkModel, cuts: Vec<Cut>) -> Pair {
        let site = |node| {
            Site::new(lab::name(laboratory, node), NodeId::from(node), &Setup::default()).unwrap()
        };
        let mut sites: Vec<Site> = (0..2).map(site).collect();
        let socket = |site: &Site| {
            let socket = site.within(|| UdpSocket::bind((site.address, 4001))).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            // A reader that waits for a processor loses nothing that the router has delivered.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
            socket
        };
        let sockets = [socket(&sites[0]), socket(&sites[1])];
        let peers: Vec<_> = sites.iter().map(|site| (site.address, 4001)).collect();
        sockets[0].connect(peers[1]).unwrap();
        sockets[1].connect(peers[0]).unwrap();
        let wiring = Wiring {
            conditions: Conditions { rest: model, ..Conditions::ideal() },
            links: vec![(NodeId(0), NodeId(1))],
            cuts,
            reorders: false,
        };
        let devices = sites.iter_mut().filter_map(Site::tap).collect();
        Pair { sockets, router: Router::start(devices, wiring).unwrap(), _sites: sites }
    }

    /// The numbers of the packets that arrive, each with its time, until none comes any more.
    fn heard(&self) -> Vec<(u64, Instant)> {
        let (mut packet, mut heard) = ([0; 2048], Vec::new());
        while let Ok(length) = self.sockets[1].recv(&mut packet) {
            assert!(length >= 8);
            heard.push((u64::from_le_bytes(packet[..8].try_into().unwrap()), Instant::now()));
        }
        heard
    }

    /// Sends numbered packets of so many bytes, IP header and all, at this pace, and hears them.
    fn send(self, count: u64, bytes: usize, pace: Duration) -> (Vec<(u64, Instant)>, RouterCounts) {
        let sender = self.sockets[0].try_clone().unwrap();
        let sending = thread::spawn(move || {
            let (started, mut packet) = (Instant::now(), vec![0; bytes - 28]);
            for number in 0..count {
                packet[..8].copy_from_slice(&number.to_le_bytes());
                sender.send(&packet).unwrap();
                thread::sleep(
                    (started + pace * number as u32).saturating_duration_since(Instant::now()),
                );
            }
        });
        let heard = self.heard();
        sending.join().unwrap();
        (heard, self.router.stop().unwrap())
    }

    /// Sends numbered packets in bursts, the next when the last one has arrived or is lost: so few
    /// are under way that no queue of the kernel is ever full, however late sender, router and
    /// receiver get a processor.
    fn send_in_bursts(self, bursts: u64, burst: u64, bytes: usize) -> (Vec<u64>, RouterCounts) {
        let (mut packet, mut heard) = (vec![0; bytes - 28], Vec::new());
        self.sockets[1].set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        for first in (0..bursts * burst).step_by(burst as usize) {
            for number in first..first + burst {
                packet[..8].copy_from_slice(&number.to_le_bytes());
                self.sockets[0].send(&packet).unwrap();
            }
            while heard.last() != Some(&(first + burst - 1))
                && self.sockets[1].recv(&mut packet).is_ok()
            {
                heard.push(u64::from_le_bytes(packet[..8].try_into().unwrap()));
            }
        }
        self.sockets[1].set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        heard.extend(self.heard().into_iter().map(|(number, _)| number));
        (heard, self.router.stop().unwrap())
    }
}

#[test]
#[ignore = "slow"]
fn an_echo_takes_two_latencies() {
    let Some(_alone) = alone() else { return };
    let pair =
        Pair::new(1, LinkModel { latency: 35 * MS, rate: 20e6, ..LinkModel::IDEAL }, Vec::new());
    let echo = pair.sockets[1].try_clone().unwrap();
    let echoing = thread::spawn(move || {
        let mut packet = [0; 64];
        while let Ok(length) = echo.recv(&mut packet) {
            echo.send(&packet[..length]).unwrap();
        }
    });
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let (started, mut packet) = (Instant::now(), [0; 64]);
            pair.sockets[0].send(b"are you there?").unwrap();
            pair.sockets[0].recv(&mut packet).unwrap();
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    // Never early; late where the machine is busy, but not every time.
    assert!(times[0] >= 70.0 && times[0] < 80.0, "at best {} ms: {times:?}", times[0]);
    echoing.join().unwrap();
    let passed = pair.router.stop().unwrap();
    let flow = passed.flows[&(NodeId(0), NodeId(1))];
    assert_eq!((flow.packets, flow.bytes, passed.strays), (21, 21 * 42, 0));
}

#[test]
#[ignore = "slow"]
fn a_line_carries_its_rate_and_drops_the_rest() {
    let Some(_alone) = alone() else { return };
    // 1.5 times as much as the line takes, for a second; the queue holds 100 ms.
    let pair =
        Pair::new(2, LinkModel { latency: 5 * MS, rate: 24e6, ..LinkModel::IDEAL }, Vec::new());
    let (heard, passed) = pair.send(3000, 1500, Duration::from_micros(333));
    let (first, last) = (heard[0].1, heard[heard.len() - 1].1);
    let rate = (heard.len() - 1) as f64 * 1500.0 * 8.0 / (last - first).as_secs_f64();
    // Never faster; slower where the sender or the router waits for a processor.
    assert!(rate < 1.05 * 24e6 && rate > 0.5 * 24e6, "{rate} bit/s over {:?}", last - first);
    let flow = passed.flows[&(NodeId(0), NodeId(1))];
    assert!(
        last - first > Duration::from_millis(900) && flow.full > 0,
        "{flow:?} in {:?}",
        last - first
    );
    assert_eq!(flow.packets, heard.len() as u64);
    assert!(heard.is_sorted_by_key(|(number, _)| *number), "packets overtook each other");
}

#[test]
#[ignore = "slow"]
fn packets_are_lost_at_the_rate_asked_for() {
    let Some(_alone) = alone() else { return };
    let model = LinkModel { latency: 5 * MS, loss: 0.05, ..LinkModel::IDEAL };
    let (heard, passed) = Pair::new(3, model, Vec::new()).send_in_bursts(120, 50, 100);
    let flow = passed.flows[&(NodeId(0), NodeId(1))];
    // What the router took in is what was sent, and what it handed over is what arrived.
    assert_eq!(
        (flow.packets + flow.lost, flow.full, flow.cut, passed.strays),
        (6000, 0, 0, 0),
        "{flow:?}"
    );
    assert_eq!(flow.packets, heard.len() as u64);
    // 300 of 6000 in the mean, with a deviation of 17.
    assert!((240..360).contains(&flow.lost), "{flow:?}");
    // The control: a link that loses nothing loses nothing, so that the figure above is the link's
    // own.
    let whole =
        Pair::new(7, LinkModel { loss: 0.0, ..model }, Vec::new()).send_in_bursts(120, 50, 100);
    assert!(
        whole.0.iter().copied().eq(0..6000) && whole.1.flows[&(NodeId(0), NodeId(1))].lost == 0
    );
}

#[test]
#[ignore = "slow"]
fn a_cut_link_carries_nothing_and_comes_back() {
    let Some(_alone) = alone() else { return };
    let at = Duration::from_millis;
    let cut = Cut { between: (NodeId(0), NodeId(1)), begin: at(300), end: at(600) };
    let pair = Pair::new(4, LinkModel { latency: 5 * MS, ..LinkModel::IDEAL }, vec![cut]);
    let (heard, passed) = pair.send(100, 100, at(10));
    let flow = passed.flows[&(NodeId(0), NodeId(1))];
    // 30 at an even pace.
    assert!((5..=60).contains(&flow.cut) && flow.cut + heard.len() as u64 == 100, "{flow:?}");
    let gaps = heard.windows(2).filter(|pair| pair[1].0 > pair[0].0 + 1).count();
    assert_eq!(gaps, 1, "{heard:?}");
}

#[test]
fn namespaces_go_away_with_their_places_and_after_dead_laboratories() {
    let Some(_shared) = shared() else { return };
    let name = lab::name(5, 0);
    let site = Site::new(name.clone(), NodeId(0), &Setup::default()).unwrap();
    assert_eq!(named(&name), [name.as_str()]);
    let mut gone = Command::new("true").spawn().unwrap();
    let left = format!("gvlab-{}-0-3", gone.id());
    gone.wait().unwrap();
    assert!(Command::new("ip").args(["netns", "add", &left]).status().unwrap().success());
    lab::clear_leftovers();
    assert_eq!(named(&left), [""; 0], "a dead laboratory's namespace stays");
    assert_eq!(named(&name), [name.as_str()], "a living one's is gone");
    drop(site);
    assert_eq!(named(&name), [""; 0]);
}

/// Softmax on two nodes that are 20 ms from each other.
const TWO: [&str; 12] = [
    "--topology",
    "path:2",
    "--set",
    "data.source=breast-cancer",
    "--set",
    "model.kind=softmax",
    "--set",
    "network.latency_ms=20",
    "--set",
    "network.bandwidth_mbps=20",
    "--set",
    "optimizer.schedule=constant",
];

/// What a laboratory finds over each transport, which ends where the simulator does, with its run
/// directory and the log of the first node.
fn over_each_transport(arguments: &[&str], check: impl Fn(&Value, &Path, &str)) {
    for transport in ["tcp", "quic"] {
        let folder = folder();
        let run = folder.path().join("run");
        let mut command = program();
        command.arg("lab").args(arguments).args(["--json", "--transport", transport, "--out"]);
        let lab = found(command.arg(&run));
        assert_eq!(lab["same_digest_as_simulated"], true, "{transport}: {lab}");
        check(&lab, &run, &fs::read_to_string(run.join("nodes/0/log.txt")).unwrap());
    }
}

fn found(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A link that loses packets, and both links cut one after the other.
#[test]
#[ignore = "slow"]
fn losses_and_cuts_change_nothing() {
    let Some(_shared) = shared() else { return };
    let arguments = [
        "--topology=path:3",
        "--rounds=60",
        "--cut=0-1@2s+2s",
        "--cut=1-2@5s+3s",
        "--set=network.latency_ms=20",
        "--set=network.bandwidth_mbps=20",
        "--set=network.loss=0.05",
    ];
    over_each_transport(&arguments, |lab, _, _| {
        let lost = lab["links"].as_array().unwrap().iter().map(|link| link["lost"].as_u64());
        assert!(lost.flatten().sum::<u64>() > 20, "{lab}");
    });
}

#[test]
#[ignore = "slow"]
fn real_nodes_over_slow_links_end_where_the_simulator_does_and_no_sooner() {
    let Some(_alone) = alone() else { return };
    let arguments = [&TWO[..], &["--rounds", "25"]].concat();
    let folder = folder();
    let mut simulate = program();
    simulate.arg("simulate").args(&arguments).args(["--json", "--no-baseline", "--out"]);
    let simulated = found(simulate.arg(folder.path().join("run")));
    over_each_transport(&arguments, |lab, run, _| {
        assert_eq!(lab["digest"], simulated["digest"]);
        let seconds = |pointer: &str| lab.pointer(pointer).and_then(Value::as_f64).unwrap();
        let (predicted, simulated, measured) =
            (seconds("/predicted_s"), seconds("/simulated/mean_s"), seconds("/measured/mean_s"));
        assert!(
            (predicted / simulated - 1.0).abs() < 0.01 && predicted > 0.02,
            "{predicted} {simulated}"
        );
        // Never faster. What frames wait for besides the link costs a millisecond or two, and on a
        // busy machine much more.
        assert!(measured > 0.98 * predicted, "{predicted} {measured}: {lab}");
        assert_eq!(command::json(&run.join("lab.json")), *lab);
        assert!(run.join("nodes/1/run/summary.json").exists());
    });
}

/// A path that swallows everything for longer than a link may be silent: the connection is given
/// up, and the link is resumed when the path is back.
#[test]
#[ignore = "slow"]
fn a_link_that_is_cut_in_the_rounds_is_resumed_with_the_same_digest() {
    let Some(_shared) = shared() else { return };
    // On a busy machine the rounds begin late.
    let short = ["--set", "absence.heartbeat_s=1", "--rounds=500", "--cut=0-1@5s+5s"];
    let arguments = [&TWO[..], &short].concat();
    over_each_transport(&arguments, |_, _, log| {
        for line in ["WARN the link to 1 is lost: ", "WARN the link to 1 has returned after "] {
            assert!(log.contains(line), "{log}");
        }
    });
}

/// A frame takes 2.5 s, so the cut falls in the middle of one.
#[test]
#[ignore = "three minutes; .ci/run"]
fn soak_a_frame_that_is_cut_for_a_minute_continues() {
    let Some(_shared) = shared() else { return };
    let arguments = [
        "--topology=path:2",
        "--rounds=6",
        "--warm=1",
        "--cut=0-1@8s+60s",
        "--set=rule.kind=d-psgd",
        "--set=compressor.kind=identity",
        "--set=model.kind=mlp",
        "--set=model.hidden=[512]",
        "--set=network.bandwidth_mbps=0.5",
        "--set=network.latency_ms=20",
        "--set=network.loss=0.05",
    ];
    over_each_transport(&arguments, |_, _, log| {
        assert!(log.contains("WARN the link to 1 has returned after "), "{log}");
    });
}

#[test]
#[ignore = "slow"]
fn an_interrupted_laboratory_leaves_nothing() {
    let Some(_shared) = shared() else { return };
    for (signal, times) in [("TERM", 1), ("INT", 2)] {
        let folder = folder();
        let mut running = Running::start(
            program()
                .arg("lab")
                .args(TWO)
                .args(["--rounds", "3000", "--set", "run.evaluate_every=10", "--quiet"])
                .env("TMPDIR", folder.path()),
            folder.path(),
            "lab",
        );
        let scratch = format!("gradvine-lab-{}", running.id());
        let metrics = folder.path().join(&scratch).join("nodes/1/run/metrics.jsonl");
        until("the nodes' first rounds", || {
            fs::metadata(&metrics).is_ok_and(|meta| meta.len() > 0)
        });
        assert_eq!(named(&format!("gvlab-{}-", running.id())).len(), 2);
        (0..times).for_each(|_| running.signal(signal));
        let pid = running.id();
        let (code, took) = running.end();
        assert_eq!(code, Some(130), "{}", running.errors());
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert_eq!(named(&format!("gvlab-{pid}-")), [""; 0]);
        assert!(!folder.path().join(&scratch).exists(), "its files stay");
        until("the end of its nodes", || !runs(&scratch));
    }
}

/// Whether a process has this in its command line.
fn runs(what: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(what))
}

#[test]
fn what_it_cannot_do_is_refused_in_one_line() {
    let told = |arguments: &[&str]| {
        let mut command = program();
        command.arg("lab").args(arguments);
        refused(&mut assert_cmd::Command::from_std(command))
    };
    if let Err(trouble) = lab::check() {
        assert!(told(&[]).contains(&trouble.to_string()));
        println!("skipped: {trouble}");
        return;
    }
    for (arguments, problem) in [
        (
            &["--congestion", "nonsense"][..],
            "no congestion controller \"nonsense\": expected one of ",
        ),
        (&["--cut", "0-1"], "--cut = 0-1: expected NODE-NODE@BEGIN+FOR"),
        (&["--cut", "0-4@1s+1s"], "--cut = 0-4@1s+1s: no such link"),
        (&["--rounds", "6"], "--warm = 5: leaves too few of 6 rounds"),
        (&["--sysctl", "kernel.panic=1"], "--sysctl = kernel.panic=1: expected net.KEY=VALUE"),
    ] {
        let told = told(arguments);
        assert!(told.contains(problem), "{told}");
    }
    let mut without = program();
    without.arg("lab").env("PATH", "");
    assert!(refused(&mut assert_cmd::Command::from_std(without)).contains("there is no `ip`"));
    let mut nobody = program();
    nobody.arg("lab").uid(65_534);
    // The folder of the program may be root's alone.
    if Command::new(env!("CARGO_BIN_EXE_gradvine")).uid(65_534).arg("--version").output().is_ok() {
        assert!(refused(&mut assert_cmd::Command::from_std(nobody)).contains("run it as root"));
    }
    assert!(Path::new("/dev/net/tun").exists());
}
