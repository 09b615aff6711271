//! Nodes behind NATs: which pairs connect, and how, in network namespaces with the kernel's own
//! address translation.
//!
//! They need Linux, root, `ip` and `iptables`, those of UPnP also `nft` and `miniupnpd` (of the
//! Debian package of that name). Elsewhere these tests say so and pass.
#![cfg(target_os = "linux")]

#[path = "common/command.rs"]
mod command;
#[path = "nat/tickets.rs"]
mod tickets;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::{
        LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use command::{Running, folder, json, program, until, until_running};
use serde_json::Value;
use tempfile::TempDir;

/// The address translation of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nat {
    /// Everything that arrives is passed to the node.
    FullCone,
    /// One port for all destinations; packets pass only from where the node has sent to.
    PortRestricted,
    /// Another port for each destination.
    Symmetric,
}

use Nat::{FullCone, PortRestricted, Symmetric};

/// The addresses of relays; most worlds have only the first. Servers of UPnP refuse to forward from
/// an address that is reserved for documentation; nothing leaves the namespaces.
const RELAYS: [&str; 2] = ["9.9.9.10", "9.9.9.11"];

/// Whether these tests can run here.
fn can_run() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        let trial = format!("gvnat{}-trial", std::process::id());
        let works = |arguments: &[&str]| {
            Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
        };
        let can = works(&["netns", "add", &trial])
            && works(&["netns", "exec", &trial, "iptables", "-t", "nat", "-S"]);
        works(&["netns", "del", &trial]);
        can
    });
    if !*CAN {
        println!("skipped: it needs root, network namespaces, `ip` and `iptables`");
    }
    *CAN
}

fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", command.join(" "));
}

/// Namespaces on one public network: relays, and nodes of which some are behind a router.
struct World {
    prefix: String,
    names: Vec<String>,
    nats: Vec<Option<Nat>>,
    /// Whether all nodes are behind the first one's router.
    one_home: bool,
    relays: usize,
    /// The node that asks its router for a port. Without relays it has the router's address.
    upnp: Option<usize>,
    transport: &'static str,
    folder: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

impl World {
    /// A node for each entry, linked as a ring (two nodes: as a pair).
    fn new(transport: &'static str, relayed: bool, nats: &[Option<Nat>]) -> World {
        World::with(transport, relayed, nats, false, 1)
    }

    fn with(
        transport: &'static str,
        relayed: bool,
        nats: &[Option<Nat>],
        one_home: bool,
        relays: usize,
    ) -> World {
        World::build(transport, relayed, nats, one_home, relays, None)
    }

    fn build(
        transport: &'static str,
        relayed: bool,
        nats: &[Option<Nat>],
        one_home: bool,
        relays: usize,
        upnp: Option<usize>,
    ) -> World {
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("gvnat{}-{number}-", std::process::id());
        let mut world = World {
            prefix,
            names: Vec::new(),
            nats: nats.to_vec(),
            one_home,
            relays,
            upnp,
            transport,
            folder: folder(),
        };
        world.wire();
        world.write(relayed);
        world
    }

    /// Two nodes behind symmetric NATs, of which the second asks its router for a port.
    fn asking(transport: &'static str, relays: usize) -> World {
        let nats = [Some(Symmetric), Some(Symmetric)];
        World::build(transport, false, &nats, false, relays, Some(1))
    }

    /// Starts a router's server of UPnP, with the chains that its packages make.
    fn serve_upnp(&self, router: usize) -> Running {
        let name = self.name(&format!("r{router}"));
        let inside = |command: &[&str]| run(&[&["ip", "netns", "exec", &name], command].concat());
        for chain in ["miniupnpd", "prerouting_miniupnpd", "postrouting_miniupnpd"] {
            inside(&["nft", "add table inet filter; add chain inet filter", chain]);
        }
        inside(&[
            "nft",
            "add chain inet filter arrive { type nat hook prerouting priority -100; }",
        ]);
        inside(&["nft", "add rule inet filter arrive iifname wan jump prerouting_miniupnpd"]);
        for (table, chain) in
            [("nat", "MINIUPNPD"), ("nat", "MINIUPNPD-POSTROUTING"), ("filter", "MINIUPNPD")]
        {
            inside(&["iptables", "-t", table, "-N", chain]);
        }
        inside(&["iptables", "-t", "nat", "-A", "PREROUTING", "-i", "wan", "-j", "MINIUPNPD"]);
        let file = self.path().join(format!("upnp{router}.conf"));
        let text = format!(
            "ext_ifname=wan\next_ip={}\nlistening_ip=lan\nenable_upnp=yes\nenable_natpmp=no\n\
             secure_mode=yes\nuuid=00000000-1111-2222-3333-444444444444\n\
             allow 1024-65535 10.0.{router}.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
            public(router)
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name, "miniupnpd", "-d", "-P"]);
        command.arg(self.path().join(format!("upnp{router}.pid"))).arg("-f").arg(&file);
        let server = Running::start(&mut command, self.path(), &format!("upnp{router}"));
        until("the server of UPnP", || server.errors().contains("HTTP listening on port"));
        server
    }

    /// The rules of a router that lead to its nodes.
    fn forwards(&self, router: usize) -> String {
        let name = self.name(&format!("r{router}"));
        let list = |command: &[&str]| {
            let output = Command::new("ip").args(["netns", "exec", &name]).args(command).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let rules = list(&["nft", "list", "ruleset"]);
        rules.lines().filter(|rule| rule.contains("dnat")).map(str::trim).collect()
    }

    fn name(&self, what: &str) -> String {
        format!("{}{what}", self.prefix)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn add(&mut self, what: &str) -> String {
        let name = self.name(what);
        run(&["ip", "netns", "add", &name]);
        run(&["ip", "-n", &name, "link", "set", "lo", "up"]);
        self.names.push(name.clone());
        name
    }

    /// Connects a namespace to the public network.
    fn publish(&self, name: &str, number: usize, address: &str) {
        let (net, port) = (self.name("net"), format!("p{number}"));
        run(&[
            "ip", "-n", &net, "link", "add", &port, "type", "veth", "peer", "name", "wan", "netns",
            name,
        ]);
        run(&["ip", "-n", &net, "link", "set", &port, "master", "br0", "up"]);
        run(&["ip", "-n", name, "addr", "add", &format!("{address}/24"), "dev", "wan"]);
        run(&["ip", "-n", name, "link", "set", "wan", "up"]);
    }

    fn wire(&mut self) {
        let net = self.add("net");
        run(&["ip", "-n", &net, "link", "add", "br0", "type", "bridge"]);
        run(&["ip", "-n", &net, "link", "set", "br0", "up"]);
        for (i, address) in RELAYS.into_iter().enumerate().take(self.relays) {
            let relay = self.add(&format!("relay{i}"));
            self.publish(&relay, 100 + i, address);
        }
        for (i, nat) in self.nats.clone().into_iter().enumerate() {
            let (node, public) = (self.add(&format!("n{i}")), public(i));
            let Some(nat) = nat else {
                self.publish(&node, i + 1, &public);
                continue;
            };
            // All nodes of a home have one router.
            let home = if self.one_home { 0 } else { i };
            let (gateway, inside) = (format!("10.0.{home}.1"), format!("10.0.{home}.{}", i + 2));
            let router = self.name(&format!("r{home}"));
            if home == i {
                self.add(&format!("r{i}"));
                self.publish(&router, i + 1, &public);
                run(&["ip", "-n", &router, "link", "add", "lan", "type", "bridge"]);
                run(&["ip", "-n", &router, "addr", "add", &format!("{gateway}/24"), "dev", "lan"]);
                run(&["ip", "-n", &router, "link", "set", "lan", "up"]);
                translate(&router, nat, &inside);
            }
            let port = format!("l{i}");
            run(&[
                "ip", "-n", &router, "link", "add", &port, "type", "veth", "peer", "name", "eth0",
                "netns", &node,
            ]);
            run(&["ip", "-n", &router, "link", "set", &port, "master", "lan", "up"]);
            run(&["ip", "-n", &node, "addr", "add", &format!("{inside}/24"), "dev", "eth0"]);
            run(&["ip", "-n", &node, "link", "set", "eth0", "up"]);
            run(&["ip", "-n", &node, "route", "add", "default", "via", &gateway]);
        }
    }

    /// Writes keys, topology, experiment, node files and the relay's file.
    fn write(&self, relayed: bool) {
        let key = |name: &str| {
            let file = self.path().join(format!("{name}.key"));
            let made = program().args(["identity", "new", "--json"]).arg(file).output().unwrap();
            let made: Value = serde_json::from_slice(&made.stdout).unwrap();
            made["peer"].as_str().unwrap().to_string()
        };
        let write = |name: &str, text: String| fs::write(self.path().join(name), text).unwrap();
        let at = |port: u16| match self.transport {
            "quic" => format!("udp/{port}/quic-v1"),
            _ => format!("tcp/{port}"),
        };
        let relays: Vec<(&str, String)> = (RELAYS.into_iter().enumerate().take(self.relays))
            .map(|(i, address)| (address, key(&format!("relay{i}"))))
            .collect();
        let relayed_addresses: Vec<String> = relays
            .iter()
            .map(|(ip, peer)| format!("\"/ip4/{ip}/{}/p2p/{peer}/p2p-circuit\"", at(4100)))
            .collect();
        // The earlier of two nodes has the lower PeerId, so that it dials its neighbour.
        let nodes = self.nats.len();
        let mut keys: Vec<(String, usize)> =
            (0..nodes).map(|i| (key(&format!("made{i}")), i)).collect();
        keys.sort();
        for (i, (_, made)) in keys.iter().enumerate() {
            let at = |name: String| self.path().join(format!("{name}.key"));
            fs::rename(at(format!("made{made}")), at(format!("n{i}"))).unwrap();
        }
        let mut topology = format!("family = \"ring\"\nnodes = {nodes}\n");
        for (i, nat) in self.nats.iter().enumerate() {
            let forwarded = self.upnp == Some(i);
            let inside = format!("\"/ip4/10.0.0.{}/{}\"", i + 2, at(4001));
            let inside = self.one_home.then_some(inside);
            let addresses = match nat {
                Some(_) if self.relays > 0 || !forwarded => {
                    relayed_addresses.iter().cloned().chain(inside).collect::<Vec<_>>().join(", ")
                }
                _ => format!("\"/ip4/{}/{}\"", public(i), at(4001)),
            };
            topology += &format!(
                "[[node]]\nname = \"n{i}\"\npeer = \"{}\"\naddresses = [{addresses}]\n",
                keys[i].0
            );
            write(
                &format!("n{i}.toml"),
                format!(
                    "key = \"n{i}.key\"\nlisten = [\"/ip4/0.0.0.0/{}\"]\nupnp = {forwarded}\n\
                     topology = \"topology.toml\"\nexperiment = \"experiment.toml\"\n\
                     data = \"digits\"\nout = \"runs/n{i}\"\n",
                    at(4001)
                ),
            );
        }
        write("topology.toml", topology);
        write(
            "experiment.toml",
            format!(
                "topology.file = \"topology.toml\"\nrule.kind = \"d-psgd\"\n\
                 run = {{ rounds = 3000, connect_s = 15.0, relayed = {relayed} }}\n\
                 model = {{ kind = \"softmax\", inputs = 64, outputs = 10 }}\n"
            ),
        );
        for (i, (address, _)) in relays.iter().enumerate() {
            let text = format!(
                "key = \"relay{i}.key\"\nlisten = [\"/ip4/{address}/{}\"]\n\
                 topologies = [\"topology.toml\"]\n",
                at(4100)
            );
            write(&format!("relay{i}.toml"), text);
        }
    }

    /// Starts a command of `gradvine` in a namespace.
    fn start(&self, place: &str, arguments: &[&str]) -> Running {
        let mut command = self.command(place, arguments);
        command.env("RUST_LOG", "gradvine=info");
        Running::start(&mut command, self.path(), &format!("{place}-{}", arguments[0]))
    }

    /// A command of `gradvine` in a namespace.
    fn command(&self, place: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        let gradvine = program().get_program().to_owned();
        command.args(["netns", "exec", &self.name(place)]).arg(gradvine).args(arguments);
        command.current_dir(self.path());
        command
    }

    /// What the doctor of a node finds, and its exit code.
    fn doctor(&self, node: usize, more: &[&str]) -> (Option<i32>, Value) {
        let file = format!("n{node}.toml");
        let arguments = [&["doctor", &file, "--json", "--send", "1"], more].concat();
        let output = self.command(&format!("n{node}"), &arguments).output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }

    fn start_relays(&self) -> Vec<Running> {
        let start = |i| self.start(&format!("relay{i}"), &["relay", &format!("relay{i}.toml")]);
        let relays = (0..self.relays).map(start).collect();
        thread::sleep(Duration::from_millis(300));
        relays
    }

    /// Runs all nodes, and returns the exit code, log and digest of each.
    fn run(&self) -> Vec<Ended> {
        let _relays = self.start_relays();
        self.end(self.start_nodes())
    }

    fn start_nodes(&self) -> Vec<Running> {
        let start = |i| self.start(&format!("n{i}"), &["node", &format!("n{i}.toml")]);
        (0..self.nats.len()).map(start).collect()
    }

    /// Waits for the end of all nodes.
    fn end(&self, nodes: Vec<Running>) -> Vec<Ended> {
        let end = |(i, mut node): (usize, Running)| {
            let code = node.end().0;
            let summary = self.path().join(format!("runs/n{i}/summary.json"));
            let digest = (code == Some(0)).then(|| json(&summary)["digest"].to_string());
            (code, node.errors(), digest)
        };
        nodes.into_iter().enumerate().map(end).collect()
    }
}

/// The public address of a node or of its router.
fn public(node: usize) -> String {
    format!("9.9.9.{}", 100 + node)
}

fn translate(router: &str, nat: Nat, inside: &str) {
    let iptables = |arguments: &[&str]| {
        run(&[&["ip", "netns", "exec", router, "iptables"], arguments].concat());
    };
    run(&["ip", "netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
    let mut leave = vec!["-t", "nat", "-A", "POSTROUTING", "-o", "wan", "-j", "MASQUERADE"];
    if nat == Symmetric {
        leave.push("--random-fully");
    }
    iptables(&leave);
    if nat == FullCone {
        let arrive = ["-t", "nat", "-A", "PREROUTING", "-i", "wan", "-j", "DNAT"];
        iptables(&[&arrive[..], &["--to-destination", inside]].concat());
    } else {
        // The router drops packets that belong to no connection.
        iptables(&["-A", "INPUT", "-i", "wan", "-j", "DROP"]);
    }
}

/// Whether a node's log says that it connected directly after it had connected through the relay,
/// and how many milliseconds later.
fn direct(log: &str) -> Option<f64> {
    let at = |words: &str| {
        let line = log.lines().find(|line| line.contains(words))?;
        // 2026-11-22T22:56:25.674687Z
        let time = line.split_once('T')?.1.split_once('Z')?.0;
        let parts: Vec<f64> = time.split(':').map(|part| part.parse().unwrap()).collect();
        Some(1e3 * (3600.0 * parts[0] + 60.0 * parts[1] + parts[2]))
    };
    let took = at("connected directly")? - at("connected through the relay")?;
    Some(took.rem_euclid(86_400_000.0))
}

/// The exit code of a node, its log, and its digest if it ended well.
type Ended = (Option<i32>, String, Option<String>);

/// The digest of the run whose nodes have public addresses.
fn undisturbed(nodes: usize) -> String {
    static KNOWN: Mutex<BTreeMap<usize, String>> = Mutex::new(BTreeMap::new());
    let run = || {
        let all = World::new("tcp", false, &vec![None; nodes]).run();
        assert!(all.iter().all(|(code, ..)| *code == Some(0)), "{all:?}");
        all[0].2.clone().unwrap()
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(nodes).or_insert_with(run).clone()
}

/// All nodes end well, with the digest of nodes that have public addresses; their logs.
fn succeed(all: Vec<Ended>) -> Vec<String> {
    let digest = undisturbed(all.len());
    let log = |(code, log, found): Ended| {
        assert_eq!((code, found.as_ref()), (Some(0), Some(&digest)), "{log}");
        log
    };
    all.into_iter().map(log).collect()
}

/// Runs two nodes behind these NATs: whether and after what time they connect directly.
fn pair(transport: &'static str, nats: [Nat; 2]) -> Option<f64> {
    let logs = succeed(World::new(transport, true, &nats.map(Some)).run());
    for log in &logs {
        assert!(log.contains("connected through the relay"), "{transport} {nats:?}: {log}");
    }
    direct(&logs[0])
}

#[test]
#[ignore = "slow"]
fn two_of_four_nodes_are_behind_nats() {
    if !can_run() {
        return;
    }
    // Without leave to send frames through the relay: the two connect directly.
    let world = World::new("tcp", false, &[None, Some(PortRestricted), Some(PortRestricted), None]);
    succeed(world.run());
}

#[test]
#[ignore = "slow"]
fn symmetric_nats_leave_the_link_on_the_relay_if_that_is_allowed() {
    if !can_run() {
        return;
    }
    assert_eq!(pair("tcp", [Symmetric, Symmetric]), None);
    let world = World::new("tcp", false, &[Some(Symmetric), Some(Symmetric)]);
    for (code, log, _) in world.run() {
        assert_eq!(code, Some(4), "{log}");
        assert!(log.contains("run.relayed = true"), "{log}");
    }
}

#[test]
#[ignore = "slow"]
fn nodes_behind_one_router_find_each_other() {
    if !can_run() {
        return;
    }
    let world = World::with("tcp", false, &[Some(Symmetric), Some(Symmetric)], true, 1);
    succeed(world.run());
}

#[test]
#[ignore = "slow"]
fn a_node_whose_address_changes_goes_on_where_it_was() {
    if !can_run() {
        return;
    }
    // It dials its neighbour, which has a public address.
    let world = World::new("tcp", false, &[None, Some(PortRestricted)]);
    let nodes = world.start_nodes();
    until_running(&world.path().join("runs/n1"));
    let node = world.name("n1");
    run(&["ip", "-n", &node, "addr", "flush", "dev", "eth0"]);
    run(&["ip", "-n", &node, "addr", "add", "10.0.1.77/24", "dev", "eth0"]);
    run(&["ip", "-n", &node, "route", "add", "default", "via", "10.0.1.1"]);
    // The dead connection is noticed after three heartbeats.
    let summary = world.path().join("runs/n1/summary.json");
    until("the summary of n1", || summary.exists());
    for log in succeed(world.end(nodes)) {
        assert!(log.contains("has returned after"), "the link was not lost: {log}");
    }
}

#[test]
#[ignore = "slow"]
fn a_node_that_goes_back_to_a_checkpoint_still_listens_on_all_its_addresses() {
    if !can_run() {
        return;
    }
    let world = World::new("tcp", false, &[None, None]);
    let mut nodes = world.start_nodes();
    until_running(&world.path().join("runs/n0"));
    // The node that dials begins again; the other one listens on 0.0.0.0.
    nodes[0].signal("KILL");
    nodes[0].end();
    nodes[0] = world.start("n0", &["node", "n0.toml"]);
    succeed(world.end(nodes));
}

/// Whether there is a server of UPnP for a router.
fn has_upnp() -> bool {
    let has = Command::new("miniupnpd").arg("--version").output().is_ok();
    if !has {
        println!("skipped: it needs miniupnpd");
    }
    has
}

#[test]
#[ignore = "slow"]
fn a_router_that_is_asked_by_upnp_lets_a_neighbour_in_and_closes_again() {
    if !(can_run() && has_upnp()) {
        return;
    }
    for transport in ["tcp", "quic"] {
        let world = World::asking(transport, 0);
        let _server = world.serve_upnp(1);
        let nodes = world.start_nodes();
        until_running(&world.path().join("runs/n1"));
        assert!(world.forwards(1).contains("4001"), "{}", world.forwards(1));
        succeed(world.end(nodes));
        assert_eq!(world.forwards(1), "", "the port is given back");
    }
}

#[test]
#[ignore = "slow"]
fn neighbours_that_are_connected_through_a_relay_hear_of_a_forwarded_port() {
    if !(can_run() && has_upnp()) {
        return;
    }
    let world = World::asking("tcp", 1);
    let _server = world.serve_upnp(1);
    // Symmetric NATs at both ends, and no leave to send frames through the relay.
    succeed(world.run());
}

#[test]
#[ignore = "slow"]
fn the_doctor_tells_what_the_router_forwards() {
    if !(can_run() && has_upnp()) {
        return;
    }
    let world = World::asking("tcp", 0);
    let examine = || {
        let (_, report) = world.doctor(1, &["--wait", "1"]);
        let findings = report["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["about"] == "UPnP").unwrap()
    };
    let without = examine();
    assert_eq!(without["level"], "warning", "{without}");
    assert!(without["text"].as_str().unwrap().contains("no router answered"), "{without}");
    let _server = world.serve_upnp(1);
    let with = examine();
    let expected = format!("/ip4/{}/tcp/4001 to /ip4/0.0.0.0/tcp/4001", public(1));
    assert_eq!(with["level"], "ok", "{with}");
    assert!(with["text"].as_str().unwrap().contains(&expected), "{with}");
    assert_eq!(world.forwards(1), "", "the port is given back");
}

#[test]
#[ignore = "slow"]
fn the_doctor_tells_of_nats_and_relays() {
    if !can_run() {
        return;
    }
    for (nat, relayed, kind) in [
        (PortRestricted, false, "all relays see the same port"),
        (Symmetric, true, "each relay sees another port (a symmetric NAT)"),
    ] {
        // Two relays tell the kind of the NAT.
        let world = World::with("tcp", true, &[Some(nat), Some(nat)], false, 2);
        let _relays = world.start_relays();
        let examine = |node| {
            let (code, report) = world.doctor(node, &[]);
            assert_eq!(code, Some(0), "{nat:?}: {report:#}");
            report
        };
        let examine_both = || {
            thread::scope(|scope| {
                let both = [0, 1].map(|node| scope.spawn(move || examine(node)));
                both.map(|one| one.join().unwrap())
            })
        };
        let is_expected = |reports: &[Value; 2]| {
            reports.iter().all(|report| report["neighbours"][0]["link"]["relayed"] == relayed)
        };
        let mut reports = examine_both();
        // A hole is punched by two connections that meet: on a busy machine they may miss each
        // other, and the doctor says so. A run tries again every 30 s.
        if !relayed && !is_expected(&reports) {
            reports = examine_both();
        }
        assert!(is_expected(&reports), "{nat:?}: {reports:#?}");
        for report in reports {
            let found = |about: &str, words: &str| {
                let all = report["findings"].as_array().unwrap();
                all.iter().any(|finding| {
                    finding["about"] == about && finding["text"].as_str().unwrap().contains(words)
                })
            };
            assert!(found("relay", RELAYS[0]) && found("relay", RELAYS[1]), "{report:#}");
            assert!(found("NAT", kind), "{nat:?}: {report:#}");
        }
    }
}

/// Prints the table of docs/relays.md.
#[test]
#[ignore = "a minute and a half; docs/testing.md"]
fn soak_which_pairs_connect() {
    if !can_run() {
        return;
    }
    println!("| NAT | NAT | TCP | QUIC |\n|---|---|---|---|");
    for (one, other, direct) in [
        (FullCone, FullCone, true),
        (FullCone, PortRestricted, true),
        (FullCone, Symmetric, true),
        (Symmetric, FullCone, true),
        (PortRestricted, PortRestricted, true),
        (PortRestricted, Symmetric, false),
        (Symmetric, PortRestricted, false),
        (Symmetric, Symmetric, false),
    ] {
        let cell = |transport| match pair(transport, [one, other]) {
            Some(ms) => format!("directly, {ms:.0} ms after the relay"),
            None => "through the relay".into(),
        };
        let cells = [cell("tcp"), cell("quic")];
        println!("| {one:?} | {other:?} | {} | {} |", cells[0], cells[1]);
        let is_direct = |cell: &String| cell.starts_with("directly");
        assert!(cells.iter().all(|cell| is_direct(cell) == direct), "{one:?} {other:?}");
    }
}
