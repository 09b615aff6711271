//! Sites that come together by tickets across networks: behind NATs, late, at an address that
//! changes, and through a relay.

use std::{
    cell::Cell,
    fs,
    path::PathBuf,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use super::{Nat, PortRestricted, RELAYS, World, can_run, public, run};
use crate::command::{Running, json, until, until_within};

const NAMES: [&str; 5] = ["berlin", "lyon", "rome", "oslo", "nice"];

/// Breaks that nobody reports are noticed after 15 s.
const LONG: Duration = Duration::from_secs(90);

/// Sites in namespaces, each in its folder, and how many commands were typed.
struct Sites {
    world: World,
    typed: Cell<usize>,
}

impl Sites {
    fn new(nats: &[Option<Nat>], relays: usize) -> Sites {
        let world = World::with("tcp", true, nats, false, relays);
        for (number, name) in NAMES.iter().enumerate().take(nats.len()) {
            fs::create_dir(world.path().join(name)).unwrap();
            let row = |row: usize| {
                let (a, b) = ((row * 7 + number * 13) % 60, (row * 11 + number) % 60);
                let label = if a + b / 2 > 45 { "sick" } else { "well" };
                format!("{a}.5,{b},{label}\n")
            };
            let rows: String = (0..60).map(row).collect();
            let path = world.path().join(name).join("rows.csv");
            fs::write(path, format!("a,b,diagnosis\n{rows}")).unwrap();
        }
        // A machine finds its own address by its way out.
        for number in nats.iter().enumerate().filter(|(_, nat)| nat.is_none()).map(|(at, _)| at) {
            let name = world.name(&format!("n{number}"));
            run(&["ip", "-n", &name, "route", "add", "default", "dev", "wan"]);
        }
        Sites { world, typed: Cell::new(0) }
    }

    fn path(&self, site: usize) -> PathBuf {
        self.world.path().join(NAMES[site])
    }

    /// What a command prints.
    fn typed(&self, site: usize, arguments: &[&str]) -> String {
        self.typed.set(self.typed.get() + 1);
        let mut command = self.world.command(&format!("n{site}"), arguments);
        let output = command.current_dir(self.path(site)).stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn begin(&self, site: usize, arguments: &[&str]) -> Running {
        self.typed.set(self.typed.get() + 1);
        let mut command = self.world.command(&format!("n{site}"), arguments);
        command.current_dir(self.path(site)).env("RUST_LOG", "gradvine=info");
        let name = format!("{}-{}", NAMES[site], arguments[0]);
        Running::start(&mut command, self.world.path(), &name)
    }

    /// The tickets of these sites.
    fn invite(&self, names: &[&str]) -> Vec<String> {
        let text = self.typed(0, &[&["invite"], names].concat());
        let ticket = |line: &str| line.split(' ').nth(3).unwrap().to_string();
        text.lines().map(ticket).collect()
    }

    /// The address of a site at the relay.
    fn at_relay(&self) -> String {
        let key = self.world.path().join("relay0.key");
        let shown = crate::command::program().args(["identity", "show"]).arg(&key).output();
        let peer = String::from_utf8(shown.unwrap().stdout).unwrap();
        format!("/ip4/{}/tcp/4100/p2p/{}/p2p-circuit", RELAYS[0], peer.trim())
    }

    /// Starts the relay, which serves the sites of the run of the first one.
    fn relay(&self) -> Vec<Running> {
        let relay = format!(
            "key = \"relay0.key\"\nlisten = [\"/ip4/{}/tcp/4100\"]\nruns = [\"berlin/run.json\"]\n",
            RELAYS[0]
        );
        fs::write(self.world.path().join("relay0.toml"), relay).unwrap();
        self.world.start_relays()
    }

    /// These sites accept what is proposed.
    fn accept(&self, sites: &[usize]) {
        for &site in sites {
            let path = self.path(site).join("run.json");
            until_within(LONG, "the proposal", || {
                let book = fs::read_to_string(&path).unwrap_or_default();
                let book = serde_json::from_str::<serde_json::Value>(&book).unwrap_or_default();
                book["notes"]["proposals"].as_array().is_some_and(|open| !open.is_empty())
            });
            self.typed(site, &["accept"]);
        }
    }

    /// Waits until the nodes of these sites do rounds of a stage whose files hold these words.
    fn until_stage(&self, sites: &[usize], file: &str, is_there: &dyn Fn(&str) -> bool) {
        for &site in sites {
            let path = self.path(site).join("run").join(file);
            let made = || fs::read_to_string(&path).is_ok_and(|text| is_there(&text));
            until_within(LONG, "the files of a stage", made);
            until_within(LONG, "rounds of a stage", || self.rounds(site) > 10);
        }
    }

    fn join(&self, site: usize, ticket: &str, more: &[&str]) {
        let arguments = [&["join", ticket, "--data", "rows.csv"], more].concat();
        let mut joins = self.begin(site, &arguments);
        let print = || {
            let errors = joins.errors();
            let (_, rest) = errors.split_once(&format!("gradvine approve {} ", NAMES[site]))?;
            Some(rest.split('`').next()?.to_string())
        };
        until("a fingerprint", || print().is_some());
        let print = print().unwrap();
        self.typed(0, &["approve", NAMES[site], &print]);
        assert_eq!(joins.end_within(LONG).0, Some(0));
    }

    /// The rounds that a site's node has done.
    fn rounds(&self, site: usize) -> u64 {
        let status = fs::read_to_string(self.path(site).join("training/status.json"));
        let status = status.ok().and_then(|text| serde_json::from_str(&text).ok());
        status.map_or(0, |status: serde_json::Value| status["round"].as_u64().unwrap_or(0))
    }

    fn digest(&self, site: usize) -> String {
        json(&self.path(site).join("training/summary.json"))["digest"].to_string()
    }
}

/// Five networks, and only commands that people type: from empty folders to a trained model, with a
/// changed setting, a removed and an added site on the way.
#[test]
#[ignore = "slow"]
fn five_sites_on_five_networks_train_and_change_their_run() {
    if !can_run() {
        return;
    }
    let began = Instant::now();
    // Berlin, lyon behind a NAT and at a relay, rome, which is late, oslo, which moves; later nice.
    let sites = Sites::new(&[None, Some(PortRestricted), None, None, None], 1);
    let sets = ["--set", "run.rounds=100000000", "--set", "run.evaluate_every=100000"];
    let init = ["init", "hospitals", "--site", "berlin", "--sites", "4", "--data", "rows.csv"];
    let made = sites.typed(0, &[&init[..], &sets, &["--set", "run.relayed=true"]].concat());
    assert!(made.contains(&format!("/ip4/{}/tcp/4001", public(0))), "its own address: {made}");
    let _relays = sites.relay();
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(&NAMES[1..4]);
    sites.join(1, &tickets[0], &["--address", &sites.at_relay()]);
    sites.join(2, &tickets[1], &[]);
    sites.join(3, &tickets[2], &[]);
    let mut lyon = sites.begin(1, &["start"]);
    let mut oslo = sites.begin(3, &["start"]);
    until("the others wait", || oslo.errors().contains("node oslo"));
    // Late.
    thread::sleep(Duration::from_secs(2));
    let mut rome = sites.begin(2, &["start"]);
    until_within(LONG, "rounds", || (0..4).all(|site| sites.rounds(site) > 0));
    println!("trains after {} commands and {:?}", sites.typed.get(), began.elapsed());

    // In the middle of the run oslo gets another address.
    let name = sites.world.name("n3");
    let old = format!("{}/24", public(3));
    run(&["ip", "-n", &name, "addr", "del", &old, "dev", "wan"]);
    run(&["ip", "-n", &name, "addr", "add", "9.9.9.77/24", "dev", "wan"]);
    run(&["ip", "-n", &name, "route", "replace", "default", "dev", "wan"]);
    let moved = "node oslo: its addresses are now [/ip4/9.9.9.77/tcp/4001]";
    until_within(LONG, "the new address at a neighbour", || {
        berlin.errors().contains(moved) || rome.errors().contains(moved)
    });
    let before = sites.rounds(1);
    until_within(LONG, "rounds at the new address", || sites.rounds(1) > before + 100);

    // A setting, a site less, a site more: a stage each.
    sites.typed(1, &["propose", "--set", "optimizer.step=0.05", "--reason", "the loss jumps"]);
    sites.accept(&[0, 3]);
    sites.until_stage(&[0, 1, 2, 3], "experiment.toml", &|text| text.contains("step = 0.05"));
    sites.typed(0, &["remove", "rome", "--reason", "its rows are counted twice"]);
    sites.accept(&[1, 3]);
    assert_eq!(rome.end_within(LONG).0, Some(0));
    sites.until_stage(&[0, 1, 3], "topology.toml", &|text| !text.contains("rome"));
    let ticket = sites.invite(&["nice"]).remove(0);
    sites.accept(&[1]);
    sites.join(4, &ticket, &[]);
    let mut nice = sites.begin(4, &["start"]);
    sites.until_stage(&[0, 1, 3, 4], "topology.toml", &|text| text.contains("nice"));

    sites.typed(1, &["propose", "--set", "run.rounds=1"]);
    sites.accept(&[0, 3]);
    for running in [&mut berlin, &mut lyon, &mut oslo, &mut nice] {
        assert_eq!(running.end_within(LONG).0, Some(0), "{}", running.errors());
    }
    let all: Vec<String> = [0, 1, 3].iter().map(|site| sites.digest(*site)).collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    println!("over after {} commands and {:?}", sites.typed.get(), began.elapsed());
}

#[test]
#[ignore = "slow"]
fn two_sites_behind_nats_join_and_train_through_a_relay() {
    if !can_run() {
        return;
    }
    let sites = Sites::new(&[Some(PortRestricted), Some(PortRestricted)], 1);
    let address = sites.at_relay();
    let sets = ["--set", "run.rounds=50", "--set", "run.relayed=true", "--topology", "path"];
    let init = ["init", "hospitals", "--site", "berlin", "--sites", "2", "--data", "rows.csv"];
    sites.typed(0, &[&init[..], &sets, &["--address", &address]].concat());
    let _relays = sites.relay();
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(&["lyon"]);
    sites.join(1, &tickets[0], &["--address", &address]);
    let mut lyon = sites.begin(1, &["start"]);
    for running in [&mut berlin, &mut lyon] {
        assert_eq!(running.end_within(LONG).0, Some(0));
    }
    assert_eq!(sites.digest(0), sites.digest(1));
}

/// Machines with IPv6 only: a site finds its own address.
#[test]
#[ignore = "slow"]
fn sites_with_ipv6_only_train() {
    if !can_run() {
        return;
    }
    let sites = Sites::new(&[None, None], 0);
    for site in 0..2 {
        let name = sites.world.name(&format!("n{site}"));
        let address = format!("fd77::{}/64", site + 1);
        run(&["ip", "-n", &name, "addr", "flush", "dev", "wan"]);
        run(&["ip", "-n", &name, "addr", "add", &address, "dev", "wan", "nodad"]);
        run(&["ip", "-n", &name, "-6", "route", "add", "default", "dev", "wan"]);
    }
    let init = ["init", "pair", "--site", "berlin", "--sites", "2", "--data", "rows.csv"];
    let made = sites.typed(0, &[&init[..], &["--set", "run.rounds=50"]].concat());
    assert!(made.contains("reached at /ip6/fd77::1/tcp/4001\n"), "{made}");
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(&["lyon"]);
    sites.join(1, &tickets[0], &[]);
    let mut lyon = sites.begin(1, &["start"]);
    for running in [&mut berlin, &mut lyon] {
        assert_eq!(running.end_within(LONG).0, Some(0), "{}", running.errors());
    }
    assert_eq!(sites.digest(0), sites.digest(1));
}

/// The interface by which two sites are linked goes away: the link continues by the other one.
#[test]
#[ignore = "slow"]
fn one_of_two_interfaces_goes_away() {
    if !can_run() {
        return;
    }
    let sites = Sites::new(&[None, None], 0);
    let net = sites.world.name("net");
    for site in 0..2 {
        let (name, port) = (sites.world.name(&format!("n{site}")), format!("q{site}"));
        let address = format!("9.9.8.{}/24", site + 1);
        run(&[
            "ip", "-n", &net, "link", "add", &port, "type", "veth", "peer", "name", "wan2",
            "netns", &name,
        ]);
        run(&["ip", "-n", &net, "link", "set", &port, "master", "br0", "up"]);
        run(&["ip", "-n", &name, "addr", "add", &address, "dev", "wan2"]);
        run(&["ip", "-n", &name, "link", "set", "wan2", "up"]);
    }
    let both = |site: usize| [public(site), format!("9.9.8.{}", site + 1)];
    let [first, second] = both(0);
    let sets = ["--set", "run.rounds=100000000", "--set", "run.evaluate_every=100000"];
    let init = ["init", "pair", "--site", "berlin", "--sites", "2", "--data", "rows.csv"];
    let place = ["--address", &first, "--address", &second];
    sites.typed(0, &[&init[..], &sets, &place].concat());
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(&["lyon"]);
    let [first, second] = both(1);
    sites.join(1, &tickets[0], &["--address", &first, "--address", &second]);
    let mut lyon = sites.begin(1, &["start"]);
    let trains = |more: u64| {
        let before = sites.rounds(1);
        until_within(LONG, "rounds", || sites.rounds(1) > before + more);
    };
    trains(100);
    // Whichever of the two it is: first one, then the other.
    let name = sites.world.name("n1");
    for (gone, back) in [("wan", "wan2"), ("wan2", "wan")] {
        run(&["ip", "-n", &name, "link", "set", back, "up"]);
        run(&["ip", "-n", &name, "link", "set", gone, "down"]);
        // What is under way ends first.
        trains(2);
        trains(100);
    }
    sites.typed(1, &["propose", "--set", "run.rounds=1"]);
    sites.accept(&[0]);
    for running in [&mut berlin, &mut lyon] {
        assert_eq!(running.end_within(LONG).0, Some(0), "{}", running.errors());
    }
    assert_eq!(sites.digest(0), sites.digest(1));
}

/// The relay of two sites behind NATs gets another address. Both say so at their next start, and
/// resume.
#[test]
#[ignore = "slow"]
fn a_relay_moves() {
    if !can_run() {
        return;
    }
    let sites = Sites::new(&[Some(PortRestricted), Some(PortRestricted)], 1);
    let address = sites.at_relay();
    let sets = ["--set", "run.rounds=100000000", "--set", "run.evaluate_every=100000"];
    let init = ["init", "pair", "--site", "berlin", "--sites", "2", "--data", "rows.csv"];
    let more =
        ["--set", "run.relayed=true", "--set", "checkpoint.every_rounds=20", "--topology", "path"];
    sites.typed(0, &[&init[..], &sets, &more, &["--address", &address]].concat());
    let relays = sites.relay();
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(&["lyon"]);
    sites.join(1, &tickets[0], &["--address", &address]);
    let mut lyon = sites.begin(1, &["start"]);
    until_within(LONG, "rounds", || (0..2).all(|site| sites.rounds(site) > 40));
    for running in [&mut berlin, &mut lyon] {
        running.signal("TERM");
        // The second one may have ended because the first one has left.
        let (code, _) = running.end_within(LONG);
        assert!(matches!(code, Some(4 | 130)), "{}", running.errors());
    }
    drop(relays);
    let name = sites.world.name("relay0");
    run(&["ip", "-n", &name, "addr", "flush", "dev", "wan"]);
    run(&["ip", "-n", &name, "addr", "add", "9.9.9.55/24", "dev", "wan"]);
    let file = sites.world.path().join("relay0.toml");
    let moved = |text: &str| text.replace(RELAYS[0], "9.9.9.55");
    fs::write(&file, moved(&fs::read_to_string(&file).unwrap())).unwrap();
    let _relays = sites.world.start_relays();
    let before = sites.rounds(0);
    let mut all: Vec<Running> =
        (0..2).map(|site| sites.begin(site, &["start", "--address", &moved(&address)])).collect();
    until_within(LONG, "rounds", || (0..2).all(|site| sites.rounds(site) > before + 40));
    sites.typed(1, &["propose", "--set", "run.rounds=1"]);
    sites.accept(&[0]);
    for running in &mut all {
        assert_eq!(running.end_within(LONG).0, Some(0), "{}", running.errors());
    }
    assert_eq!(sites.digest(0), sites.digest(1));
}
