//! Every rule with every compressor on every kind of topology: it runs, or it is refused before it
//! starts, with a reason and a way out.

use std::collections::{BTreeMap, BTreeSet};

use common::Run;
use gradvine::{compress::COMPRESSORS, gossip::rule::RULES};

/// Families that differ in what they lack: links of a ring, a node with links to all, regularity,
/// an eigenvalue above -1/3.
const TOPOLOGIES: [&str; 8] = [
    "ring:4",
    "ring:5",
    "path:4",
    "star:5",
    "complete:5",
    "hypercube:8",
    "torus:3x3",
    "complete:1",
];

/// Words of a refusal that say what would work.
const WAYS_OUT: [&str; 9] = [
    "use ",
    "run.allow_unstable",
    "expected",
    "set ",
    "runs with",
    "needs",
    "choose",
    "leave",
    "give",
];

#[test]
fn every_combination_runs_or_is_refused_with_a_reason() {
    let mut ran: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let (mut runs, mut refusals) = (0, BTreeMap::new());
    for rule in &RULES {
        for compressor in &COMPRESSORS {
            for topology in TOPOLOGIES {
                let what = format!("{} with {} on {topology}", rule.name, compressor.name);
                let table = |kind: &str| format!("kind = '{kind}'");
                let mut run = Run::new(topology, &table(rule.name), &table(compressor.name));
                run.rounds = 20;
                match run.try_prepare() {
                    Ok(_) => {
                        // Warned of or not: what may start must be able to continue for a while.
                        let models = run.ended().unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert!(
                            models.iter().all(|one| one.model.iter().all(|x| x.is_finite())),
                            "{what}"
                        );
                        ran.entry(rule.name).or_default().insert(compressor.name);
                        runs += 1;
                    }
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.len() > 40 && !error.contains('\n'), "{what}: {error}");
                        assert!(
                            WAYS_OUT.iter().any(|words| error.contains(words)),
                            "{what}: no way out: {error}"
                        );
                        *refusals.entry(rule.name).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    println!("{runs} combinations ran; refused: {refusals:?}");
    for rule in &RULES {
        let with = &ran[rule.name];
        if rule.compresses {
            assert!(
                with.len() >= 2 || with.contains("count-sketch"),
                "{} ran with {with:?} only",
                rule.name
            );
        } else {
            assert_eq!(with.iter().copied().collect::<Vec<_>>(), ["identity"], "{}", rule.name);
        }
    }
    assert!(runs > 500 && refusals.values().sum::<i32>() > 500, "{runs} ran, {refusals:?} refused");
}

#[test]
fn every_rule_runs_at_its_home_whatever_the_number_of_nodes() {
    for rule in &RULES {
        let compressor =
            if rule.compresses { ["min-max", "top-k", "count-sketch"] } else { ["identity"; 3] };
        for nodes in [1, 2, 3, 4, 7, 8] {
            let spec = if rule.home == "ring" && nodes < 3 {
                format!("path:{nodes}")
            } else {
                format!("{}:{nodes}", rule.home)
            };
            let tried: Vec<_> = compressor
                .iter()
                .map(|compressor| {
                    let mut run = Run::new(
                        &spec,
                        &format!("kind = '{}'", rule.name),
                        &format!("kind = '{compressor}'"),
                    );
                    run.rounds = 5;
                    run.try_prepare().map(|_| {
                        run.ended()
                            .unwrap_or_else(|error| panic!("{} on {spec}: {error}", rule.name))
                    })
                })
                .collect();
            let errors: Vec<String> = tried
                .iter()
                .filter_map(|one| one.as_ref().err())
                .map(ToString::to_string)
                .collect();
            assert!(errors.len() < tried.len(), "{} on {spec}: {errors:?}", rule.name);
        }
    }
}
