//! What a user sees and what runs end with, as recorded: the help of every command, and the digest
//! of every rule. A change of the program that moves code changes none of it.
//!
//! `GRADVINE_CENSUS=write cargo test -p gradvine-cli --test commands -- --include-ignored census
//! every_rule` records it again.

use std::{env, fs, path::PathBuf};

use crate::command::gradvine;

/// Compares a text with the recorded one, or records it.
pub(crate) fn check(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/commands/census");
    let path = folder.join(name);
    if env::var("GRADVINE_CENSUS").is_ok_and(|value| value == "write") {
        fs::write(&path, text).unwrap();
        return;
    }
    let recorded = fs::read_to_string(&path).unwrap();
    let lines = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
    let (found, expected) = (lines(text), lines(&recorded));
    let most = found.len().max(expected.len());
    let differs = (0..most).find(|&line| found.get(line) != expected.get(line));
    if let Some(line) = differs {
        let (found, expected) = (found.get(line), expected.get(line));
        panic!("{name}, line {}: {found:?} instead of {expected:?}", line + 1);
    }
}

/// The names below `Commands:` in a help.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(String::from).collect()
}

/// The help of a command and of those below it.
fn add_help(path: &[String], text: &mut String) {
    let output = gradvine().args(path).arg("--help").assert().success();
    let help = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    *text += &format!("$ gradvine {}\n{help}\n", [path, &["--help".into()]].concat().join(" "));
    for name in commands(&help) {
        add_help(&[path, &[name]].concat(), text);
    }
}

#[test]
fn every_command_has_the_recorded_help() {
    let mut text = String::new();
    add_help(&[], &mut text);
    assert!(text.matches("$ gradvine ").count() > 20, "{text}");
    check("help.txt", &text);
}
