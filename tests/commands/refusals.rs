//! Wrong settings: every key of an experiment refuses values that cannot work, with one line that
//! names the place, the value and the accepted ones; no files are left behind.

use crate::command;

use std::{collections::BTreeSet, fs, path::Path};

use command::{ROOT, gradvine, refused};
use serde_json::Value;

/// No float outside its range: none of these is a step, a share, a constant of a rule.
const NOT_POSITIVE: [&str; 6] = ["0", "-1", "nan", "inf", "1e300", "1e-300"];

/// A line of `cases/refusals.txt`: settings, of which the last is wrong, and words of its error.
struct Refusal {
    settings: Vec<String>,
    words: Vec<String>,
}

impl Refusal {
    fn read(line: &str) -> Refusal {
        let (settings, words) =
            line.split_once(" => ").unwrap_or_else(|| panic!("has no \" => \": {line}"));
        Refusal {
            settings: settings.split(", ").map(String::from).collect(),
            words: words.split(" | ").map(String::from).collect(),
        }
    }

    fn read_all() -> Vec<Refusal> {
        let file = Path::new(ROOT).join("tests/commands/cases/refusals.txt");
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Refusal::read).collect()
    }

    fn wrong(&self) -> &str {
        self.settings.last().unwrap()
    }

    /// The key of the wrong setting.
    fn key(&self) -> &str {
        self.wrong().split('=').next().unwrap()
    }
}

/// The error line of `simulate` with these settings, which it must refuse.
fn error_line(settings: &[impl AsRef<str>]) -> String {
    let sets = settings.iter().flat_map(|set| ["--set", set.as_ref()]);
    refused(gradvine().args(["simulate", "--rounds", "2"]).args(sets).args(["--out", "run"]))
}

#[test]
#[ignore = "slow"]
fn every_key_refuses_invalid_values() {
    let all = Refusal::read_all();
    assert!(all.len() > 190, "{} refusals", all.len());
    for refusal in all {
        let (key, wrong) = (refusal.key(), refusal.wrong());
        let line = if key == "run.rounds" {
            // Without a number of rounds, because that is the wrong one.
            refused(gradvine().args(["simulate", "--set", wrong]))
        } else {
            error_line(&refusal.settings)
        };
        assert!(line.starts_with(&format!("error: --set: {key}")), "{wrong}: {line}");
        for words in &refusal.words {
            assert!(line.contains(words), "{wrong} should say {words}: {line}");
        }
    }
    for (rule, constant) in
        [("choco", "gamma"), ("choco-edge", "gamma"), ("beer", "gamma"), ("deep-squeeze", "eta")]
    {
        for value in NOT_POSITIVE {
            let line =
                error_line(&[format!("rule.kind={rule}"), format!("rule.{constant}={value}")]);
            assert!(line.starts_with(&format!("error: --set: rule.{constant} = ")), "{line}");
            assert!(line.contains("expected a finite number above 0"), "{line}");
        }
    }
}

/// A new key needs a line in `cases/refusals.txt`. Sections list their keys in the error of an
/// unknown one, registries in their JSON.
#[test]
#[ignore = "slow"]
fn no_key_is_forgotten() {
    let all = Refusal::read_all();
    let tried: BTreeSet<&str> = all.iter().map(Refusal::key).collect();
    let mut keys = Vec::new();
    for section in ["run", "topology", "data", "model", "optimizer", "network"] {
        let line = error_line(&[format!("{section}.nonsense=1")]);
        assert!(
            line.starts_with(&format!("error: --set: {section}.nonsense = 1: unknown field")),
            "{line}"
        );
        let known = line.split("expected one of ").nth(1).unwrap();
        keys.extend(known.split('`').skip(1).step_by(2).map(|key| format!("{section}.{key}")));
    }
    for (registry, section) in [("rules", "rule"), ("compressors", "compressor")] {
        let listed = gradvine().args([registry, "--json"]).assert().success();
        let entries: Vec<Value> = serde_json::from_slice(&listed.get_output().stdout).unwrap();
        for constant in entries.iter().flat_map(|entry| entry["constants"].as_array().unwrap()) {
            keys.push(format!("{section}.{}", constant["name"].as_str().unwrap()));
        }
    }
    assert!(keys.len() > 45, "{keys:?}");
    let forgotten: Vec<&String> = keys.iter().filter(|key| !tried.contains(key.as_str())).collect();
    assert!(forgotten.is_empty(), "no refusal is tried of {forgotten:?}");
}
