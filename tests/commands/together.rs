//! Sites that come together by the commands alone: tickets, approvals, changes by consent.

use std::{collections::BTreeMap, env, fs, ops::Range, path::PathBuf, thread, time::Duration};

use gradvine::{experiment::Transport, net::free_ports};
use tempfile::TempDir;

use crate::command::{Running, folder, gradvine, json, program, until, within};

/// The folders of sites, and the programs that run in them.
struct Sites {
    /// Before the folder: a failure shows what they have written.
    running: BTreeMap<&'static str, Running>,
    folder: TempDir,
    ports: Vec<u16>,
    /// How many commands a person has typed at each site.
    typed: BTreeMap<&'static str, usize>,
}

/// Rows of which the label follows from the features, some of them for each site.
fn rows(of: usize) -> String {
    let mut text = String::from("a,b,diagnosis\n");
    for row in 0..60 {
        let number = (row * 7 + of * 13) % 60;
        let (a, b) = (f64::from(number as u32) / 30.0 - 1.0, f64::from((number * 11 % 60) as u32));
        let b = b / 30.0 - 1.0;
        let label = if a + 0.5 * b > 0.0 { "sick" } else { "well" };
        text += &format!("{a:.3},{b:.3},{label}\n");
    }
    text
}

impl Sites {
    /// The first site, which makes a run of so many.
    fn new(sites: usize, sets: &[&str]) -> Sites {
        let ports = free_ports(Transport::Tcp, 6).unwrap();
        let mut all =
            Sites { folder: folder(), running: BTreeMap::new(), ports, typed: BTreeMap::new() };
        let count = sites.to_string();
        let mut arguments = vec!["init", "hospitals", "--site", "berlin", "--sites", &count];
        arguments.extend(["--data", "rows.csv", "--target", "diagnosis"]);
        sets.iter().for_each(|set| arguments.extend(["--set", set]));
        all.make(0, "berlin");
        let place = all.place(0);
        arguments.extend(place.iter().map(String::as_str));
        all.typed("berlin", &arguments);
        all.start("berlin");
        all
    }

    fn path(&self, site: &str) -> PathBuf {
        self.folder.path().join(site)
    }

    fn make(&self, number: usize, site: &str) {
        fs::create_dir(self.path(site)).unwrap();
        fs::write(self.path(site).join("rows.csv"), rows(number)).unwrap();
    }

    /// Where a site is reached.
    fn place(&self, number: usize) -> [String; 4] {
        let port = self.ports[number].to_string();
        ["--port".into(), port.clone(), "--address".into(), format!("127.0.0.1:{port}")]
    }

    /// A command that a person types, and its output.
    fn typed(&mut self, site: &'static str, arguments: &[&str]) -> String {
        *self.typed.entry(site).or_default() += 1;
        let done = within(&self.path(site), arguments).success();
        String::from_utf8(done.get_output().stdout.clone()).unwrap()
    }

    fn begin(&mut self, site: &'static str, arguments: &[&str]) -> Running {
        *self.typed.entry(site).or_default() += 1;
        let mut command = program();
        command.current_dir(self.path(site)).args(arguments);
        let name = format!("{site}-{}", arguments[0]);
        Running::start(&mut command, self.folder.path(), &name)
    }

    fn start(&mut self, site: &'static str) {
        let running = self.begin(site, &["start"]);
        self.running.insert(site, running);
    }

    /// The tickets of these sites, by their names.
    fn invite(&mut self, arguments: &[&str]) -> BTreeMap<String, String> {
        let arguments: Vec<&str> = ["invite"].iter().chain(arguments).copied().collect();
        let text = self.typed("berlin", &arguments);
        let line = |line: &str| {
            let (site, rest) = line.split_once(": gradvine join ").unwrap();
            (site.to_string(), rest.split(' ').next().unwrap().to_string())
        };
        text.lines().map(line).collect()
    }

    /// A site joins, and is approved by the fingerprint that it prints.
    fn join(&mut self, number: usize, site: &'static str, ticket: &str) {
        self.make(number, site);
        let place = self.place(number);
        let mut arguments = vec!["join", ticket, "--data", "rows.csv"];
        arguments.extend(place.iter().map(String::as_str));
        let mut joins = self.begin(site, &arguments);
        let print = || {
            let errors = joins.errors();
            let (_, rest) = errors.split_once(&format!("gradvine approve {site} "))?;
            Some(rest.split('`').next()?.to_string())
        };
        until("a fingerprint", || print().is_some());
        let print = print().unwrap();
        let wrong = gradvine()
            .current_dir(self.path("berlin"))
            .args(["approve", site, "0000-0000"])
            .assert()
            .code(2);
        let errors = String::from_utf8_lossy(&wrong.get_output().stderr).to_string();
        assert!(errors.contains("Do not approve it: another person"), "{errors}");
        self.typed("berlin", &["approve", site, &print]);
        assert_eq!(joins.end().0, Some(0));
    }

    /// A site joins with a ticket that needs no approval, and that is in a file.
    fn join_at_once(&mut self, number: usize, site: &'static str, ticket: &str) {
        self.make(number, site);
        let place = self.place(number);
        let line = format!("{site}: gradvine join {ticket} --data FILE\n");
        fs::write(self.path(site).join("ticket"), line).unwrap();
        let mut arguments = vec!["join", "--ticket", "ticket", "--data", "rows.csv"];
        arguments.extend(place.iter().map(String::as_str));
        self.typed(site, &arguments);
    }

    /// The newest version that a site knows.
    fn version(&self, site: &str) -> u64 {
        let book = json(&self.path(site).join("run.json"));
        book["history"].as_array().unwrap().last().unwrap()["run"]["number"].as_u64().unwrap()
    }

    /// What a folder of a stage says of it: its rounds, the digest of its mean, that of all models.
    fn ended(&self, site: &str, stage: &str) -> (u64, String, String) {
        let summary = json(&self.path(site).join(stage).join("summary.json"));
        let text = |key: &str| summary[key].as_str().unwrap().to_string();
        (summary["rounds"].as_u64().unwrap(), text("mean_digest"), text("digest"))
    }

    /// Waits until the nodes of a stage train.
    fn until_training(&self, sites: &[&str], stage: &str) {
        for site in sites {
            let path = self.path(site).join("run/experiment.toml");
            until("a node that trains", || {
                let is_newest = fs::read_to_string(&path).is_ok_and(|text| text.contains(stage));
                is_newest && self.running[site].errors().lines().any(|line| line.contains("node "))
            });
        }
    }

    /// Waits until a site's node has done so many rounds of its stage.
    fn until_rounds(&self, site: &str, rounds: u64) {
        let path = self.path(site).join("training/status.json");
        until("rounds", || {
            let status = fs::read_to_string(&path).unwrap_or_default();
            let status = serde_json::from_str::<serde_json::Value>(&status).unwrap_or_default();
            status["round"].as_u64().is_some_and(|done| done >= rounds)
        });
    }

    /// Some sites accept what is proposed.
    fn accept(&mut self, sites: &[&'static str]) {
        for site in sites {
            let path = self.path(site).join("run.json");
            until("a proposal", || {
                let book = fs::read_to_string(&path).unwrap_or_default();
                serde_json::from_str::<serde_json::Value>(&book)
                    .is_ok_and(|book| !book["notes"]["proposals"].as_array().unwrap().is_empty())
            });
            self.typed(site, &["accept"]);
        }
    }

    /// The digests of a stage in the simulator, from the same files.
    fn simulated(
        &self,
        stage: &str,
        rounds: u64,
        init: Option<&str>,
        sites: &[&str],
    ) -> Vec<String> {
        let of = self.path("berlin").join(stage);
        let sources: Vec<String> =
            sites.iter().map(|site| format!("{:?}", self.path(site).join("rows.csv"))).collect();
        let mut command = gradvine();
        let out = format!("simulated-{stage}");
        command.current_dir(self.folder.path()).arg("simulate").arg(of.join("experiment.toml"));
        command.arg("--topology").arg(of.join("topology.toml"));
        command.args(["--out", &out, "--set", &format!("data.sources=[{}]", sources.join(","))]);
        command.args(["--set", &format!("run.rounds={rounds}")]);
        if let Some(init) = init {
            let model = self.path("berlin").join(init).join("model-mean.safetensors");
            command.args(["--set", &format!("model.init={}", model.display())]);
        }
        command.assert().success();
        let summary = json(&self.folder.path().join(out).join("summary.json"));
        ["mean_digest", "digest"].map(|key| summary[key].as_str().unwrap().to_string()).into()
    }
}

#[test]
fn three_sites_train_after_three_commands_each() {
    let mut sites = Sites::new(3, &["run.rounds=20"]);
    let tickets = sites.invite(&["lyon", "rome"]);
    sites.join(1, "lyon", &tickets["lyon"]);
    sites.join(2, "rome", &tickets["rome"]);
    // Used, and then altered.
    let altered = tickets["lyon"].replace("gv1", "gv1aa");
    sites.make(3, "oslo");
    for (ticket, why) in [(&tickets["lyon"], "was used already"), (&altered, "was altered")] {
        let refused = within(&sites.path("oslo"), &["join", ticket, "--data", "rows.csv"]).code(2);
        let errors = String::from_utf8_lossy(&refused.get_output().stderr).to_string();
        assert!(errors.contains(why), "{errors}");
    }
    sites.start("lyon");
    sites.start("rome");
    for site in ["berlin", "lyon", "rome"] {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
    let (rounds, mean, digest) = sites.ended("berlin", "training");
    for site in ["lyon", "rome"] {
        assert_eq!(sites.ended(site, "training"), (rounds, mean.clone(), digest.clone()));
        assert!(sites.typed[site] <= 3, "{:?}", sites.typed);
    }
    assert_eq!(rounds, 20);
    let all = ["berlin", "lyon", "rome"];
    assert_eq!(sites.simulated("training", rounds, None, &all), [mean, digest]);
    // The key has not left its site.
    let key = fs::read(sites.path("lyon").join("node.key")).unwrap();
    let secret = &key[key.len() - 64..key.len() - 32];
    for site in ["berlin", "rome"] {
        let book = fs::read(sites.path(site).join("run.json")).unwrap();
        assert!(!book.windows(32).any(|part| part == secret));
    }
}

/// All stages are repeated by one command, with the rows of all sites.
fn repeats_all_stages(sites: &Sites, others: &[&str]) {
    let again = |site: &str, out: &str, others: &[String]| {
        let mut command = gradvine();
        command.current_dir(sites.path(site)).args(["simulate", "--quiet", "--history", "."]);
        command.args(["--out", out]).args(others.iter().flat_map(|rows| ["--rows", rows]));
        command.assert()
    };
    let rows_of = |site: &&str| format!("{site}={}", sites.path(site).join("rows.csv").display());
    let mut rows_of_all: Vec<String> = others.iter().chain(&["nice"]).map(rows_of).collect();
    again("berlin", "again", &rows_of_all).success();
    for stage in [7, 8, 9, 11] {
        let folder = sites.path("berlin").join(format!("again/stage-{stage}"));
        assert!(folder.join("model-mean.safetensors").exists(), "{stage}");
    }
    // Other rows give other digests, and missing ones are named.
    let other = sites.folder.path().join("other.csv");
    fs::write(&other, rows(9)).unwrap();
    rows_of_all[0] = format!("lyon={}", other.display());
    let differs = again("berlin", "differs", &rows_of_all).code(1);
    let errors = String::from_utf8_lossy(&differs.get_output().stderr).to_string();
    assert!(errors.contains("the repeated run ends with the digest"), "{errors}");
    let missing = again("berlin", "missing", &rows_of_all[1..]).code(2);
    let errors = String::from_utf8_lossy(&missing.get_output().stderr).to_string();
    assert!(errors.contains("the rows of lyon are needed"), "{errors}");
    let late = again("nice", "late", &rows_of_all).code(2);
    let errors = String::from_utf8_lossy(&late.get_output().stderr).to_string();
    assert!(errors.contains("name the folder of a site that has trained it"), "{errors}");
}

#[test]
#[ignore = "slow"]
fn five_sites_change_a_setting_lose_one_and_gain_one() {
    let names = ["berlin", "lyon", "rome", "oslo", "madrid"];
    let mut sites = Sites::new(5, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&names[1..]);
    for (number, site) in names.iter().enumerate().skip(1) {
        sites.join(number, site, &tickets[*site]);
    }
    names[1..].iter().for_each(|site| sites.start(site));
    sites.until_training(&names, "rounds = 100000000");

    // A changed setting, from the mean of the first stage.
    sites.typed("lyon", &["propose", "--set", "optimizer.step=0.05", "--reason", "it jumps"]);
    sites.accept(&["berlin", "rome"]);
    sites.until_training(&names, "step = 0.05");
    // A removed site: the others go on without it.
    sites.typed("berlin", &["remove", "madrid", "--reason", "its rows are counted twice"]);
    sites.accept(&["oslo", "rome"]);
    let mut madrid = sites.running.remove("madrid").unwrap();
    assert_eq!(madrid.end().0, Some(0));
    let left = ["berlin", "lyon", "rome", "oslo"];
    left.iter().for_each(|site| until("the removal", || sites.version(site) == 9));
    // An added site.
    let tickets = sites.invite(&["nice", "--reason", "more rows"]);
    sites.accept(&["oslo", "lyon"]);
    until("the consent", || sites.version("berlin") == 10);
    sites.join(5, "nice", &tickets["nice"]);
    sites.start("nice");
    let now = ["berlin", "lyon", "rome", "oslo", "nice"];
    sites.until_training(&["nice"], "step = 0.05");
    left.iter().for_each(|site| until("the new site", || sites.version(site) == 11));
    sites.until_rounds("nice", 1);
    // Enough.
    sites.typed("rome", &["propose", "--set", "run.rounds=1"]);
    sites.accept(&["oslo", "berlin"]);
    for site in now {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
        assert_eq!(sites.version(site), 12);
    }
    let mut init = None;
    for (stage, members) in
        [("training-7", &names[..]), ("training-8", &names), ("training-9", &left)]
            .into_iter()
            .chain([("training", &now[..])])
    {
        let (rounds, mean, digest) = sites.ended("berlin", stage);
        for site in members.iter().filter(|site| **site != "madrid" && **site != "nice") {
            assert_eq!(sites.ended(site, stage), (rounds, mean.clone(), digest.clone()));
        }
        // The summary has the versions of the run so far.
        let summary = json(&sites.path("berlin").join(stage).join("summary.json"));
        let versions = summary["versions"].as_array().unwrap();
        let began = stage.strip_prefix("training-").map_or(11, |number| number.parse().unwrap());
        assert_eq!(versions.len(), began, "{stage}");
        assert_eq!(versions[0]["change"], "berlin makes the run");
        // The simulator repeats each stage to the bit.
        assert_eq!(sites.simulated(stage, rounds, init, members), [mean, digest], "{stage}");
        init = Some(stage);
    }
    repeats_all_stages(&sites, &names[1..]);
    println!("commands typed: {:?}", sites.typed);
}

#[test]
#[ignore = "slow"]
fn a_dead_site_is_removed_and_the_others_go_on_from_the_newest_model() {
    let mut sites = Sites::new(4, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&["lyon", "rome", "madrid", "--auto"]);
    for (number, site) in [(1, "lyon"), (2, "rome"), (3, "madrid")] {
        sites.join_at_once(number, site, &tickets[site]);
        sites.start(site);
    }
    let (all, left) = (["berlin", "lyon", "rome", "madrid"], ["berlin", "lyon", "rome"]);
    sites.until_training(&all, "rounds = 100000000");
    left.iter().for_each(|site| sites.until_rounds(site, 100));
    sites.running.remove("madrid").unwrap().signal("KILL");
    sites.typed("lyon", &["remove", "madrid", "--reason", "its machine is gone"]);
    sites.accept(&["rome", "berlin"]);
    left.iter().for_each(|site| until("the removal", || sites.version(site) == 7));
    for site in left {
        // They were cut off without a mean.
        let path = sites.path(site).join("run/experiment.toml");
        let made = || fs::read_to_string(&path).unwrap_or_default();
        until("a stage from a model of the last one", || made().contains("init = \"from:"));
        assert!(!made().contains("rounds = 100000000"), "{}", made());
        let topology = fs::read_to_string(sites.path(site).join("run/topology.toml")).unwrap();
        assert!(!topology.contains("madrid"));
    }
    sites.typed("rome", &["propose", "--set", "run.rounds=1"]);
    sites.accept(&["lyon"]);
    for site in left {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
    let ended = sites.ended("berlin", "training");
    assert!(left.iter().all(|site| sites.ended(site, "training") == ended));
}

/// A site declines a change that the others adopt: it leaves, and they train on at once. The stage
/// between the two versions is one that nobody has begun.
#[test]
#[ignore = "slow"]
fn a_site_that_declines_a_change_leaves_and_the_others_train_on() {
    let mut sites = Sites::new(4, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&["lyon", "rome", "nice", "--auto"]);
    for (number, site) in [(1, "lyon"), (2, "rome"), (3, "nice")] {
        sites.join_at_once(number, site, &tickets[site]);
        sites.start(site);
    }
    let (all, left) = (["berlin", "lyon", "rome", "nice"], ["berlin", "lyon", "rome"]);
    sites.until_training(&all, "rounds = 100000000");
    all.iter().for_each(|site| sites.until_rounds(site, 100));
    sites.typed("lyon", &["propose", "--set", "optimizer.step=0.05"]);
    let path = sites.path("nice").join("run.json");
    until("a proposal", || fs::read_to_string(&path).is_ok_and(|text| text.contains("0.05")));
    let shown = sites.typed("nice", &["decline", "--reason", "too small"]);
    assert!(shown.contains("optimizer.step: ") && shown.contains(" -> 0.05"), "{shown}");
    sites.accept(&["berlin", "rome"]);
    assert_eq!(sites.running.remove("nice").unwrap().end().0, Some(0));
    for site in left {
        let path = sites.path(site).join("run/experiment.toml");
        let made = || fs::read_to_string(&path).unwrap_or_default();
        let topology = sites.path(site).join("run/topology.toml");
        let has_nice = || fs::read_to_string(&topology).unwrap_or_default().contains("nice");
        // The change may be adopted before the leave: then a stage with all is replaced.
        until("a stage with the change", || {
            made().contains("step = 0.05") && made().contains("init = \"from:") && !has_nice()
        });
    }
    left.iter().for_each(|site| sites.until_rounds(site, 10));
    sites.typed("rome", &["propose", "--set", "run.rounds=1"]);
    sites.accept(&["lyon"]);
    for site in left {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
}

/// The seeds of the next test; `GRADVINE_SEEDS=0..50` chooses others.
fn seeds() -> Range<u64> {
    let text = env::var("GRADVINE_SEEDS").unwrap_or("0..1".into());
    let (first, last) = text.split_once("..").expect("seeds such as 0..50");
    first.parse().unwrap()..last.parse().unwrap()
}

/// Three versions within a second, then a change that a site declines, or that its node file
/// forbids, all at random times: nothing stops the others.
#[test]
#[ignore = "slow"]
fn changes_at_random_times_stop_nobody() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        changes_at_random_times(seed);
    }
}

fn changes_at_random_times(seed: u64) {
    let names = ["berlin", "lyon", "rome", "nice", "oslo"];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
        (state >> 33) % most
    };
    let pause = |ms: u64| thread::sleep(Duration::from_millis(ms));
    let mut sites = Sites::new(5, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&["lyon", "rome", "nice", "oslo", "--auto"]);
    for (number, site) in names.into_iter().enumerate().skip(1) {
        sites.join_at_once(number, site, &tickets[site]);
        if site == "nice" && seed.is_multiple_of(2) {
            let path = sites.path(site).join("node.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, format!("forbid = [\"optimizer.step\"]\n{text}")).unwrap();
        }
        sites.start(site);
    }
    sites.until_training(&names, "rounds = 100000000");
    // Whoever is asked too early, or has answered, is refused.
    let tries = |sites: &Sites, site: &str, arguments: &[&str]| {
        gradvine().current_dir(sites.path(site)).args(arguments).ok().is_ok()
    };
    for step in ["0.05", "0.06", "0.07"] {
        let by = names[below(5) as usize];
        tries(&sites, by, &["propose", "--set", &format!("optimizer.step={step}")]);
        for _ in 0..below(4) {
            tries(&sites, names[below(5) as usize], &["accept"]);
        }
        pause(below(300));
    }
    // One that forbids the change has left, or leaves now.
    let answers = |sites: &Sites, site: &str, below: &mut dyn FnMut(u64) -> u64| {
        let verb = if site == "oslo" && below(2) == 0 { "decline" } else { "accept" };
        pause(below(200));
        tries(sites, site, &[verb]);
    };
    for _ in 0..2 {
        names.iter().for_each(|site| answers(&sites, site, &mut below));
    }
    tries(&sites, "lyon", &["propose", "--set", "optimizer.step=0.08"]);
    for _ in 0..2 {
        pause(below(500));
        names.iter().for_each(|site| answers(&sites, site, &mut below));
    }
    // The rest of them agree to end: each answers what is open, as some accept one proposal only.
    let mut running: Vec<&str> = names.to_vec();
    for turn in 0_usize.. {
        // A site waits up to 20 s for one that is gone, in each of the last stages.
        assert!(turn < 400, "seed {seed}: {running:?} train for ever");
        for site in running.clone() {
            for by in names.iter().filter(|by| **by != site) {
                let _ = tries(&sites, site, &["accept", by])
                    || tries(&sites, site, &["decline", by, "--reason", "no"]);
            }
        }
        tries(&sites, running[turn % running.len()], &["propose", "--set", "run.rounds=1"]);
        pause(300);
        running.retain(|site| sites.running.get_mut(*site).unwrap().is_running());
        if running.is_empty() {
            break;
        }
    }
    for site in names {
        let process = sites.running.get_mut(site).unwrap();
        assert_eq!(process.end().0, Some(0), "seed {seed}: {site}: {}", process.errors());
    }
    check_stages(&sites, seed);
}

/// Of each stage all sites that are left have the same results, if they have trained it. One that
/// began when the run ended has none.
fn check_stages(sites: &Sites, seed: u64) {
    let versions = sites.running.keys().map(|site| json(&sites.path(site).join("run.json")));
    let newest = |book: &serde_json::Value| book["history"].as_array().unwrap().len();
    let last = versions.max_by_key(newest).unwrap();
    let members = last["history"].as_array().unwrap().last().unwrap()["run"]["members"].clone();
    let members: Vec<String> = members
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap().into())
        .collect();
    assert!(!members.is_empty(), "seed {seed}");
    let mut stages: BTreeMap<usize, String> = BTreeMap::new();
    for site in &members {
        for entry in fs::read_dir(sites.path(site)).unwrap() {
            let path = entry.unwrap().path().join("summary.json");
            let Ok(text) = fs::read_to_string(path) else { continue };
            let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
            let digest = summary["digest"].as_str().unwrap_or_default();
            if !digest.is_empty() {
                let stage = summary["versions"].as_array().unwrap().len();
                let first = stages.entry(stage).or_insert_with(|| digest.into());
                assert_eq!(first, digest, "seed {seed}: {site}, stage {stage}");
            }
        }
    }
    assert!(!stages.is_empty(), "seed {seed}");
}

/// A site is gone, and another one is started again: all have gone back to their newest checkpoint
/// and wait there. The next stage begins from it.
#[test]
#[ignore = "slow"]
fn a_stage_that_is_cut_off_while_all_wait_goes_on_from_the_newest_checkpoint() {
    let every = "checkpoint.every_rounds=50";
    let mut sites = Sites::new(4, &["run.rounds=100000000", "run.evaluate_every=100000", every]);
    let tickets = sites.invite(&["lyon", "rome", "madrid", "--auto"]);
    for (number, site) in [(1, "lyon"), (2, "rome"), (3, "madrid")] {
        sites.join_at_once(number, site, &tickets[site]);
        sites.start(site);
    }
    let left = ["berlin", "lyon", "rome"];
    sites.until_training(&["berlin", "lyon", "rome", "madrid"], "rounds = 100000000");
    left.iter().for_each(|site| sites.until_rounds(site, 300));
    for site in ["madrid", "lyon"] {
        sites.running.remove(site).unwrap().signal("KILL");
    }
    sites.start("lyon");
    until("all wait", || left.iter().all(|site| sites.running[site].errors().contains("madrid")));
    sites.typed("lyon", &["remove", "madrid", "--reason", "its machine is gone"]);
    sites.accept(&["rome", "berlin"]);
    for site in left {
        let path = sites.path(site).join("run/experiment.toml");
        let made = || fs::read_to_string(&path).unwrap_or_default();
        until("a stage from a model of the last one", || made().contains("init = \"from:"));
        assert!(made().contains("init_digest = \""), "{}", made());
        let rounds = made().lines().find_map(|line| line.strip_prefix("rounds = ")?.parse().ok());
        assert!(rounds.is_some_and(|left: u64| left <= 100_000_000 - 250), "{rounds:?}");
    }
    sites.typed("rome", &["propose", "--set", "run.rounds=1"]);
    sites.accept(&["lyon"]);
    for site in left {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
}

/// A stage that the losses on validation rows end, after one that a change ended: both are
/// repeated, with the models of the lowest loss.
#[test]
#[ignore = "slow"]
fn a_stage_that_its_losses_end_is_repeated() {
    let mut sites = Sites::new(2, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&["lyon", "--auto"]);
    sites.join_at_once(1, "lyon", &tickets["lyon"]);
    sites.start("lyon");
    sites.until_training(&["berlin", "lyon"], "rounds = 100000000");
    let stop = "run.stop_early={share=0.2,every=5,patience=3,keep=\"best\"}";
    sites.typed("lyon", &["propose", "--set", stop, "--set", "optimizer.step=3.0"]);
    sites.accept(&["berlin"]);
    for site in ["berlin", "lyon"] {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
    let summary = json(&sites.path("berlin").join("training/summary.json"));
    assert_eq!((&summary["stopped_early"], &summary["kept_best"]), (&true.into(), &true.into()));
    let mut command = gradvine();
    command.current_dir(sites.path("berlin")).args(["simulate", "--history", "."]);
    let lyon = format!("lyon={}", sites.path("lyon").join("rows.csv").display());
    let done = command.args(["--out", "again", "--rows", &lyon]).assert().success();
    let errors = String::from_utf8_lossy(&done.get_output().stderr).to_string();
    assert!(errors.contains("2 of 2 stages end with the digests that the sites had"), "{errors}");
}

/// Two programs with one key: the second one ends and says which, the first one goes on.
#[test]
#[ignore = "slow"]
fn a_copied_folder_of_a_site_is_found_by_start() {
    let mut sites = Sites::new(2, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&["lyon", "--auto"]);
    sites.join_at_once(1, "lyon", &tickets["lyon"]);
    sites.start("lyon");
    let both = ["berlin", "lyon"];
    sites.until_training(&both, "rounds = 100000000");
    fs::create_dir(sites.path("copy")).unwrap();
    for file in ["node.toml", "node.key", "run.json", "rows.csv"] {
        fs::copy(sites.path("lyon").join(file), sites.path("copy").join(file)).unwrap();
    }
    let file = sites.path("copy").join("node.toml");
    let [port, free] = [1, 2].map(|at: usize| sites.ports[at].to_string());
    fs::write(&file, fs::read_to_string(&file).unwrap().replace(&port, &free)).unwrap();
    let mut copy = sites.begin("copy", &["start"]);
    // If the other site dials, the copy does so after 15 s, and then as often.
    let (code, _) = copy.end_within(Duration::from_secs(240));
    let errors = copy.errors();
    let named = "two programs run with the key of node lyon";
    assert!(code == Some(2) && errors.contains(named), "{code:?}: {errors}");
    sites.typed("lyon", &["propose", "--set", "run.rounds=1"]);
    sites.accept(&["berlin"]);
    for site in both {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
}

/// The machine of a site is lost with its key. The site joins again by its name, and trains with
/// the others.
#[test]
#[ignore = "slow"]
fn a_site_that_has_lost_its_key_comes_back_with_another() {
    let mut sites = Sites::new(3, &["run.rounds=100000000", "run.evaluate_every=100000"]);
    let tickets = sites.invite(&["lyon", "rome", "--auto"]);
    for (number, site) in [(1, "lyon"), (2, "rome")] {
        sites.join_at_once(number, site, &tickets[site]);
        sites.start(site);
    }
    let all = ["berlin", "lyon", "rome"];
    sites.until_training(&all, "rounds = 100000000");
    all.iter().for_each(|site| sites.until_rounds(site, 100));
    sites.running.remove("rome").unwrap().signal("KILL");
    fs::rename(sites.path("rome"), sites.path("lost")).unwrap();
    let ticket = sites.invite(&["rome", "--auto", "--reason", "its disk is lost"]).remove("rome");
    sites.accept(&["lyon"]);
    // A ticket is unknown until the invitation is adopted: `join` waits.
    sites.join_at_once(2, "rome", &ticket.unwrap());
    sites.start("rome");
    for site in all {
        let path = sites.path(site).join("run/experiment.toml");
        let made = || fs::read_to_string(&path).unwrap_or_default();
        until("a stage from a model of the last one", || made().contains("init = \"from:"));
    }
    sites.until_rounds("rome", 10);
    let keys = ["rome", "lost"].map(|site| fs::read(sites.path(site).join("node.key")).unwrap());
    assert_ne!(keys[0], keys[1]);
    // The old key is out.
    let file = sites.path("lost").join("node.toml");
    let [port, free] = [2, 3].map(|at: usize| sites.ports[at].to_string());
    fs::write(&file, fs::read_to_string(&file).unwrap().replace(&port, &free)).unwrap();
    let mut old = sites.begin("lost", &["start"]);
    let (code, _) = old.end();
    assert!(code == Some(0) && old.errors().contains("removed from the run"), "{}", old.errors());
    sites.typed("rome", &["propose", "--set", "run.rounds=1"]);
    sites.accept(&["lyon"]);
    for site in all {
        assert_eq!(sites.running.get_mut(site).unwrap().end().0, Some(0), "{site}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = folder();
    fs::write(folder.path().join("rows.csv"), rows(0)).unwrap();
    let refused = |arguments: &[&str]| {
        let mut command = program();
        command.current_dir(folder.path()).args(arguments);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, words) in [
        (&["start"][..], "holds no run"),
        (&["approve"], "holds no run"),
        (&["join", "gv2abc"], "this is no ticket"),
        (&["join", "-"], "this is no ticket"),
        (&["join", "--ticket", "none"], "--ticket = none"),
        (&["join"], "--ticket"),
        (&["settle"], "holds no run"),
        (&["init", "h", "--site", "l\u{443}on"], "no name of a site"),
        (&["init", "a b"], "no name of a site"),
        (&["init", "h", "--site", "a"], "--data"),
        (
            &["init", "h", "--site", "a", "--data", "rows.csv", "--sites", "2", "--proxy", "p:1"],
            "--proxy = p:1",
        ),
        (&["init", "h", "--site", "a", "--data", "rows.csv"], "--sites"),
        (&["init", "h", "--site", "a", "--data", "rows.csv", "--sites", "1"], "expected 2 to"),
        (
            &["init", "h", "--site", "a", "--data", "rows.csv", "--topology", "cloud"],
            "expected one of ring",
        ),
        (&["init", "h", "--site", "a", "--data", "none.csv", "--sites", "2"], "none.csv"),
        (
            &["init", "h", "--site", "a", "--data", "rows.csv", "--sites", "2", "--target", "c"],
            "--target",
        ),
    ] {
        let errors = refused(arguments);
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
    assert!(!folder.path().join("run.json").exists());
    let init = ["init", "h", "--site", "a", "--data", "rows.csv", "--sites", "2"];
    within(folder.path(), &[&init[..], &["--address", "127.0.0.1:4001"]].concat()).success();
    for (arguments, words) in [
        (&init[..], "holds a run already"),
        (&["invite", "a"], "it is this site"),
        (&["invite", "b", "c"], "training begins with 2 sites"),
        (&["approve", "b", "1111-1111"], "does not ask to join"),
        (&["accept"], "nothing is proposed"),
        (&["settle", "3fa2"], "no version contradicts another one"),
        (&["invite", "A"], "capitals"),
        (
            &["remove", "b", "--reason", "a\nversion 9 of the run"],
            "no site of the run has this name",
        ),
        (&["remove", "b"], "no site of the run has this name"),
        (&["propose", "--set", "optimizer.step=0.05"], "may not change before it has started"),
        (&["propose", "--set", "optimizer.stepp=1"], "optimizer.step"),
    ] {
        let errors = refused(arguments);
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}
