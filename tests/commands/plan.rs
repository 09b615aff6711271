//! `gradvine plan`: its output, and its agreement with the simulator.

use crate::command;

use command::{ROOT, gradvine};
use serde_json::Value;

const FAR: [&str; 4] =
    ["--topology", "topologies/four-regions.toml", "--set", "network.compute=fixed"];

fn plan(more: &[&str]) -> Value {
    let mut command = gradvine();
    command.current_dir(ROOT).arg("plan").args(FAR).args(["--set", "network.compute_ms=5"]);
    let assert = command.args(["--json"]).args(more).assert().success();
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn a_round_takes_the_simulated_time_and_the_bottleneck_is_the_farthest_link() {
    let said = plan(&["--rounds", "60", "--alone", "--no-data"]);
    let round = said["plan"]["round_s"].as_f64().unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut command = gradvine();
    command.current_dir(ROOT).arg("simulate").args(FAR).args(["--set", "network.compute_ms=5"]);
    command.args([
        "--set",
        "run.evaluate_every=30",
        "--rounds",
        "60",
        "--no-baseline",
        "-q",
        "--out",
    ]);
    command.arg(out.path().join("run")).assert().success();
    let metrics = std::fs::read_to_string(out.path().join("run/metrics.jsonl")).unwrap();
    let at = |round: u64| {
        let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let times = lines
            .filter(|line| line["round"] == round)
            .map(|line| line["time_s"].as_f64().unwrap());
        times.fold(0.0, f64::max)
    };
    let simulated = (at(60) - at(30)) / 30.0;
    assert!((round / simulated - 1.0).abs() < 0.05, "predicted {round}, simulated {simulated}");
    let mut ends =
        [&said["bottleneck"]["from"], &said["bottleneck"]["to"]].map(|name| name.as_str().unwrap());
    ends.sort_unstable();
    assert_eq!(ends, ["london", "tokyo"]);
}

/// The constants of the experiment's rule are none of another one's, to which it is compared.
#[test]
fn a_rule_with_constants_is_compared_with_others() {
    let sets = ["rule.gamma=0.3", "compressor.bits=8", "compressor.bucket=64"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let said = plan(&[&["--no-data"], &sets[..]].concat());
    assert_eq!(said["plan"]["relaxation"], 0.3);
    assert_eq!(said["centralized"].as_array().unwrap().len(), 2);
    assert_eq!(said["refused"].as_array().unwrap().len(), 0, "{}", said["refused"]);
    let kinds = said["candidates"].as_array().unwrap().iter().map(|one| one["compressor"].as_str());
    assert!(kinds.clone().any(|kind| kind == Some("identity")), "{:?}", kinds.collect::<Vec<_>>());
}

/// A thousandth of the bytes of a round, and of the agreement.
#[test]
fn a_rule_that_exchanges_seldom_sends_little_and_agrees_late() {
    let of = |period: u64| {
        let period = format!("rule.period={period}");
        let sets = ["rule.kind=delayed", "compressor.kind=identity", "rule.delay=0", &period];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let said = plan(&[&["--no-data", "--alone"], &sets[..]].concat());
        let payload = said["plan"]["payload"]["mean"].as_f64().unwrap();
        (payload, said["plan"]["mixing_time"].as_u64().unwrap())
    };
    let (all, often) = (of(1), of(7));
    assert!(all.0 > 0.0 && all.1 == 1);
    for (seldom, times) in [(often, 7), (of(1000), 1000)] {
        assert!((seldom.0 * times as f64 / all.0 - 1.0).abs() < 1e-6, "{times}");
        assert_eq!(seldom.1, times);
    }
}

#[test]
fn a_faster_line_is_a_change_too() {
    // Only the lines can change: one topology, whole vectors, frames one after the other.
    let slow = "network.preset=ethernet,network.bandwidth_mbps=1,network.latency_ms=0";
    let sets = slow.split(',').chain(["network.compute=fixed", "network.compute_ms=5"]);
    let mut command = gradvine();
    command.current_dir(ROOT).args(["plan", "--json", "--no-data", "--topology", "ring:4"]);
    command.args(["--topologies", "ring:4", "--compressors", "identity", "--local-steps", "1"]);
    sets.for_each(|set| _ = command.args(["--set", set]));
    let assert = command.assert().success();
    let said: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let raised = &said["raises_computing"];
    assert_eq!(raised["change"], "4 lines of twice the rate");
    let [before, after] =
        [&said["plan"]["computing"], &raised["computing"]].map(|share| share.as_f64().unwrap());
    // A round is gradients, then frames: the frames take half as long.
    let by_hand = 1.0 / (1.0 + (1.0 / before - 1.0) / 2.0);
    assert!((after / by_hand - 1.0).abs() < 0.01, "{before} {after} {by_hand}");
}

#[test]
fn rules_are_candidates_too() {
    let said = plan(&["--rounds", "100", "--no-data", "--rules", "d-psgd,choco,c-sgd,swarm"]);
    let candidates = said["candidates"].as_array().unwrap();
    for (rule, compressors) in [("d-psgd", 1), ("choco", 4), ("c-sgd", 1)] {
        let all = candidates.iter().filter(|one| one["rule"] == rule);
        let names: std::collections::BTreeSet<&str> =
            all.map(|one| one["compressor"].as_str().unwrap()).collect();
        assert_eq!(names.len(), compressors, "{rule}: {names:?}");
    }
    // Its nodes call each other at any time.
    let refused = said["refused"].as_array().unwrap();
    let about = |one: &Value| one["what"].as_str().unwrap().contains("rule.kind=swarm");
    assert!(refused.iter().any(about), "{refused:?}");
    let cost = |one: &Value| one["cost_s"].as_f64().unwrap_or(f64::INFINITY);
    assert!(candidates.windows(2).all(|pair| cost(&pair[0]) <= cost(&pair[1])));
}

#[test]
fn it_chooses_a_rule_and_says_why() {
    let said = plan(&["--rounds", "60", "--no-data"]);
    let choice = &said["choice"];
    let order = choice["order"].as_array().unwrap();
    // Without the data rows count as different: the time of a round divided by its mixing.
    let by_hand = |one: &Value| {
        one["plan"]["round_s"].as_f64().unwrap() / one["plan"]["mixing"].as_f64().unwrap()
    };
    for pair in order.windows(2) {
        assert!(by_hand(&pair[0]) <= by_hand(&pair[1]), "{order:?}");
    }
    for one in order {
        assert!((one["cost_s"].as_f64().unwrap() / by_hand(one) - 1.0).abs() < 1e-12, "{one}");
    }
    assert_eq!(order[0]["plan"]["topology"], "complete-4", "one latency, all agree");
    assert!(choice["why"].as_str().unwrap().contains("was not measured"), "{choice}");
    assert!(plan(&["--rounds", "60", "--no-data", "--alone"])["choice"].is_null());
}

#[test]
#[ignore = "slow"]
fn rows_that_differ_are_told_from_rows_that_are_alike() {
    let share = |split: &str| {
        let said = plan(&["--rounds", "60", "--set", &format!("data.split={split}")]);
        let of = |key: &str| said["choice"][key].as_f64().unwrap();
        let data = |key: &str| said["data"][key].as_f64().unwrap().sqrt();
        assert!((of("zeta") - data("between")).abs() < 1e-12 * data("between"));
        assert!((of("sigma") - data("within")).abs() < 1e-12 * data("within"));
        (of("zeta") / of("sigma"), said["choice"]["why"].as_str().unwrap().to_string())
    };
    let ((far, differ), (near, alike)) = (share("by-label"), share("iid"));
    assert!(far > 1.0 && differ.starts_with("rows differ"), "{far} {differ}");
    assert!(near < 1.0 && alike.starts_with("rows are much alike"), "{near} {alike}");
}

#[test]
#[ignore = "slow"]
fn candidates_come_best_first_and_a_server_is_slower_than_gossip() {
    let said = plan(&["--rounds", "200"]);
    let candidates = said["candidates"].as_array().unwrap();
    assert!(candidates.len() > 10);
    // The run's time, divided by the mixing of a round with W, relaxed by CHOCO's gamma.
    let cost = |one: &Value| {
        let rounds = one["mixing_time"].as_f64().unwrap_or(f64::INFINITY);
        let left = if rounds > 1.0 { 0.01f64.powf(1.0 / rounds) } else { 0.0 };
        let gamma = one["relaxation"].as_f64().unwrap();
        assert!(gamma > 0.0 && gamma <= 1.0, "{one}");
        one["run_s"].as_f64().unwrap() / (1.0 - (1.0 - gamma * (1.0 - left)).powi(2))
    };
    assert!(
        candidates.iter().any(|one| one["relaxation"].as_f64() < Some(0.9)),
        "few bits, a small gamma"
    );
    assert!(candidates.windows(2).all(|pair| cost(&pair[0]) <= cost(&pair[1])));
    assert!(
        candidates.iter().any(|one| one["mixing_time"].as_u64() > Some(9)),
        "a line agrees slowly"
    );
    for central in said["centralized"].as_array().unwrap() {
        assert!(
            central["plan"]["round_s"].as_f64().unwrap()
                > said["plan"]["round_s"].as_f64().unwrap()
        );
    }
    let data = &said["data"];
    assert!(
        ["smoothness", "within", "between"].iter().all(|key| data[key].as_f64().unwrap() > 0.0),
        "{data}"
    );
}

#[test]
#[ignore = "slow"]
fn all_pairs_linked_average_in_one_latency_and_come_first() {
    let first = |more: &[&str]| {
        let said = plan(&[&["--rounds", "200", "--no-data"], more].concat());
        let first = said["candidates"][0].clone();
        (first["topology"].as_str().unwrap().to_string(), first["round_s"].as_f64().unwrap())
    };
    let (topology, by_ways) = first(&[]);
    assert_eq!(topology, "complete-4");
    // Four gradients of 5 ms, one latency of the longest link, 138.5 ms, and the frame's time on
    // the line.
    assert!((0.1385..0.17).contains(&(by_ways - 0.02)), "{by_ways}");
    let (topology, measured) = first(&["--links", "topologies/four-regions-all.toml"]);
    assert_eq!(topology, "complete-4");
    assert!(measured <= by_ways, "{measured}");
}
