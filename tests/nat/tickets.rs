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

const NAMES: [&str; 4] = ["berlin", "lyon", "rome", "oslo"];

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

    /// The tickets of the sites after the first one.
    fn invite(&self, count: usize) -> Vec<String> {
        let text = self.typed(0, &[&["invite"], &NAMES[1..count]].concat());
        let ticket = |line: &str| line.split(' ').nth(3).unwrap().to_string();
        text.lines().map(ticket).collect()
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

#[test]
#[ignore = "slow"]
fn sites_behind_a_nat_late_and_at_a_new_address_train_by_tickets() {
    if !can_run() {
        return;
    }
    let began = Instant::now();
    let sites = Sites::new(&[None, Some(PortRestricted), None, None], 0);
    let sets = ["--set", "run.rounds=100000000", "--set", "run.evaluate_every=100000"];
    let init = ["init", "hospitals", "--site", "berlin", "--sites", "4", "--data", "rows.csv"];
    let made = sites.typed(0, &[&init[..], &sets].concat());
    assert!(made.contains(&format!("/ip4/{}/tcp/4001", public(0))), "its own address: {made}");
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(4);
    for (site, ticket) in tickets.iter().enumerate() {
        sites.join(1 + site, ticket, &[]);
    }
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

    sites.typed(1, &["propose", "--set", "run.rounds=1"]);
    for site in [0, 3] {
        let path = sites.path(site).join("run.json");
        until_within(LONG, "the proposal", || {
            fs::read_to_string(&path).is_ok_and(|text| text.contains("\"by\": \"lyon\""))
        });
        sites.typed(site, &["accept"]);
    }
    for running in [&mut berlin, &mut lyon, &mut rome, &mut oslo] {
        assert_eq!(running.end_within(LONG).0, Some(0));
    }
    let all: Vec<String> = (0..4).map(|site| sites.digest(site)).collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
}

#[test]
#[ignore = "slow"]
fn two_sites_behind_nats_join_and_train_through_a_relay() {
    if !can_run() {
        return;
    }
    let sites = Sites::new(&[Some(PortRestricted), Some(PortRestricted)], 1);
    let key = sites.world.path().join("relay0.key");
    let shown = crate::command::program().args(["identity", "show"]).arg(&key).output().unwrap();
    let peer = String::from_utf8(shown.stdout).unwrap();
    let address = format!("/ip4/{}/tcp/4100/p2p/{}/p2p-circuit", RELAYS[0], peer.trim());
    let sets = ["--set", "run.rounds=50", "--set", "run.relayed=true", "--topology", "path"];
    let init = ["init", "hospitals", "--site", "berlin", "--sites", "2", "--data", "rows.csv"];
    sites.typed(0, &[&init[..], &sets, &["--address", &address]].concat());
    let relay = format!(
        "key = \"relay0.key\"\nlisten = [\"/ip4/{}/tcp/4100\"]\nruns = [\"berlin/run.json\"]\n",
        RELAYS[0]
    );
    fs::write(sites.world.path().join("relay0.toml"), relay).unwrap();
    let _relays = sites.world.start_relays();
    let mut berlin = sites.begin(0, &["start"]);
    let tickets = sites.invite(2);
    sites.join(1, &tickets[0], &["--address", &address]);
    let mut lyon = sites.begin(1, &["start"]);
    for running in [&mut berlin, &mut lyon] {
        assert_eq!(running.end_within(LONG).0, Some(0));
    }
    assert_eq!(sites.digest(0), sites.digest(1));
}
