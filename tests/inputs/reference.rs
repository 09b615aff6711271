//! The reference of files says what the code does: every key is in it, and its bounds are those
//! that are checked.

use std::path::Path;

use gradvine::{
    experiment::Experiment,
    mixing::{FileFormat, Topology},
    run::{NodeFile, Whole},
};
use gradvine_reference::{self as reference, File, Section};
use gradvine_study::Study;

fn read(page: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page)).unwrap()
}

/// `docs/experiment.md` is made by `gradvine experiment --markdown > docs/experiment.md`,
/// `docs/files.md` by `gradvine files --markdown > docs/files.md`.
#[test]
fn the_pages_are_fresh() {
    let (experiment, files) = (read("docs/experiment.md"), read("docs/files.md"));
    assert!(experiment == reference::experiment(), "docs/experiment.md is stale: make it again");
    assert!(files == reference::others(), "docs/files.md is stale: make it again");
}

/// The keys that an error lists as accepted: all but the first of the words in backquotes.
fn listed(error: &str) -> Vec<&str> {
    let (error, _) = error.split_once("; did you mean").unwrap_or((error, ""));
    error.split('`').skip(3).step_by(2).collect()
}

fn check(section: &Section, error: &str) {
    assert!(error.contains("unknown field"), "{error}");
    let names: Vec<&str> = section.keys.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, listed(error), "{error}");
    for key in &section.keys {
        let words = [&key.accepts, &key.meaning];
        assert!(words.iter().all(|words| words.len() > 3), "{}: {key:?}", section.name);
        assert!(!key.accepts.starts_with("Accepts") && !key.meaning.contains("[`"), "{key:?}");
    }
}

#[test]
fn every_key_of_an_experiment_is_explained() {
    for section in File::Experiment.sections() {
        let text = format!("{}.no-such-key = 1", section.name);
        check(&section, &Experiment::parse(&text, &[]).unwrap_err().to_string());
    }
}

#[test]
fn every_key_of_node_topology_and_study_files_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.toml");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    for section in File::Node.sections() {
        write(match section.name.as_str() {
            "node" => "no-such-key = 1",
            // The keys before it must be there.
            _ => {
                "key = 'a'\nlisten = []\ntopology = 'a'\nexperiment = 'a'\nout = 'a'\n\
                 [status]\nno-such-key = 1"
            }
        });
        check(&section, &NodeFile::load(&path).unwrap_err().to_string());
    }
    for section in File::Topology.sections() {
        let text = match section.name.as_str() {
            "topology" => "no-such-key = 1".to_string(),
            table => format!("[[{table}]]\nno-such-key = 1"),
        };
        let error = Topology::from_text(&text, FileFormat::Toml, "file").unwrap_err();
        check(&section, &error.to_string());
    }
    for section in File::Study.sections() {
        write(&match section.name.as_str() {
            "study" => "no-such-key = 1".to_string(),
            table @ ("row" | "picture" | "expect") => format!("[[{table}]]\nno-such-key = 1"),
            table => format!("[{table}]\nno-such-key = 1"),
        });
        check(&section, &Study::load(&path).map(|_| ()).unwrap_err().to_string());
    }
}

/// The quoted names of a key, without those that only stand for a number (`NAME:N`).
fn quoted(accepts: &str) -> Vec<&str> {
    let names = accepts.split("`\"").skip(1).filter_map(|rest| rest.split('"').next());
    names.filter(|name| !name.contains([':', '.', '/', ' '])).collect()
}

#[test]
fn every_name_that_a_key_accepts_is_accepted() {
    let mut tried = 0;
    for section in File::Experiment.sections() {
        // Other keys accept lists and tables: the names belong to what is in these.
        let plain = |accepts: &str| accepts.starts_with("`\"") || accepts.starts_with("one of");
        for key in section.keys.iter().filter(|key| plain(&key.accepts)) {
            for name in quoted(key.accepts.split("; only").next().unwrap()) {
                let set = format!("{}.{}={name}", section.name, key.name);
                let error = Experiment::default_with(std::slice::from_ref(&set)).err();
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                let unknown = ["unknown", "did you mean", "invalid", "expected"];
                assert!(!unknown.iter().any(|word| error.contains(word)), "{set}: {error}");
                tried += 1;
            }
        }
    }
    assert!(tried > 40, "{tried} names: how are they written?");
    let wrong = Experiment::default_with(&["optimizer.kind=adam-w".into()]).unwrap_err();
    assert!(wrong.to_string().contains("unknown"), "the check finds a wrong name: {wrong}");
}

#[test]
fn what_a_file_must_have_is_marked() {
    let required = |file: File| {
        let sections = file.sections();
        let keys = sections.iter().flat_map(|section| &section.keys);
        let required = keys.filter(|key| key.default == "required");
        required.map(|key| key.name.clone()).collect::<Vec<_>>()
    };
    assert!(required(File::Experiment).is_empty());
    assert_eq!(required(File::Node), ["key", "listen", "topology", "experiment", "out"]);
    assert_eq!(required(File::Topology), ["family", "name", "between"]);
    let study = required(File::Study);
    assert_eq!(study[..5], ["title", "paper", "claim", "setting", "name"]);
}

// Bounds
// ------------------------------------------------------------------------------------------

/// Numbers of a key that are accepted and that are refused, as its words have it.
struct Probes {
    inside: Vec<String>,
    outside: Vec<String>,
}

/// Reads `a number from A to B`, `above A`, `to below B`, up to the first semicolon.
fn probes(accepts: &str) -> Option<Probes> {
    let words = accepts.split(';').next()?;
    let whole = words.starts_with("a whole number");
    if !whole && !words.starts_with("a number") {
        return None;
    }
    let words: Vec<&str> = words.split(' ').map(|word| word.trim_end_matches(',')).collect();
    let mut found = Probes { inside: Vec::new(), outside: Vec::new() };
    for pair in words.windows(2) {
        let Ok(value) = pair[1].parse::<f64>() else { continue };
        let beside = |part: f64| {
            let by = if whole { part.signum() } else { part * value.abs().max(1e-3) };
            if whole {
                // Beyond 2^53 a double has no ones.
                (pair[1].parse::<i128>().unwrap() + by as i128).to_string()
            } else {
                format!("{:?}", value + by)
            }
        };
        let (inside, outside) = match pair[0] {
            "from" => (pair[1].to_string(), beside(-0.01)),
            "above" => (beside(0.01), pair[1].to_string()),
            "to" => (pair[1].to_string(), beside(0.01)),
            "below" => (beside(-0.01), pair[1].to_string()),
            _ => continue,
        };
        found.inside.push(inside);
        found.outside.push(outside);
    }
    if !whole {
        found.outside.extend(["nan".into(), "inf".into()]);
    }
    (!found.inside.is_empty()).then_some(found)
}

/// The settings with which a key is one of its experiment.
fn context(key: &str) -> &'static [&'static str] {
    match key {
        "topology.nodes" => &["topology.family=path"],
        "topology.rows" => &["topology.family=torus", "topology.columns=1"],
        "topology.columns" => &["topology.family=torus", "topology.rows=1"],
        "data.rows" | "data.features" | "data.noise" | "data.heterogeneity" => &[
            "data.source=synthetic",
            "model.kind=least-squares",
            "data.split=contiguous",
            "data.test_share=0",
        ],
        "data.alpha" => &["data.split=dirichlet"],
        "optimizer.final_step" => &["optimizer.schedule=cosine"],
        "optimizer.decay_factor" => &["optimizer.schedule=step"],
        "network.compute_ms" => &["network.compute=fixed"],
        "network.compute_spread" => &["network.compute=random", "network.compute_ms=1"],
        "network.stragglers" | "network.straggler_factor" => {
            &["network.compute=fixed", "network.compute_ms=1"]
        }
        _ => &[],
    }
}

/// Why an experiment with this setting is refused.
fn refused(key: &str, value: &str) -> Option<String> {
    let own = format!("{key}={value}");
    let sets = context(key).iter().copied().chain([own.as_str()]).map(String::from);
    let sets: Vec<String> = sets.collect();
    Experiment::default_with(&sets).and_then(Whole::new).err().map(|error| error.to_string())
}

#[test]
#[ignore = "slow"]
fn bounds_of_an_experiments_numbers_are_those_that_are_checked() {
    // The most of these together are too many, and the data decides about sizes.
    const BOUND_ELSEWHERE: [&str; 4] =
        ["data.rows", "data.features", "model.inputs", "model.outputs"];
    let mut probed = 0;
    for section in File::Experiment.sections() {
        for one in &section.keys {
            let Some(probes) = probes(&one.accepts) else { continue };
            let key = format!("{}.{}", section.name, one.name);
            probed += 1;
            for value in probes.outside {
                let why = refused(&key, &value).unwrap_or_default();
                // Rows and columns are too many together.
                let both = one.name == "columns" && why.contains("topology.rows");
                let named = both || why.contains(&key);
                assert!(named, "{key} = {value}: {}: {why}", one.accepts);
            }
            for value in probes.inside {
                // A graph of a million nodes takes seconds.
                if section.name == "topology" && value.len() > 3 {
                    continue;
                }
                let why = refused(&key, &value).unwrap_or_default();
                let blamed = why.starts_with(&format!("--set: {key} = "));
                let free = !BOUND_ELSEWHERE.contains(&key.as_str());
                assert!(!free || !blamed, "{key} = {value}: {}: {why}", one.accepts);
            }
        }
    }
    assert!(probed > 30, "{probed} keys with bounds: how are they written?");
}
