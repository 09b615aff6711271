//! The cases in `tests/commands/cases`: commands, and the exit codes and lines that they must give.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use trycmd::TestCases;

use crate::command::{self, ROOT};

fn folder() -> PathBuf {
    Path::new(ROOT).canonicalize().unwrap().join("tests/commands/cases")
}

#[test]
#[ignore = "slow"]
fn cases() {
    let text = |path: &Path| path.canonicalize().unwrap().display().to_string();
    let empty = command::folder();
    TestCases::new()
        .register_bin("gradvine", folder().join("gradvine.sh"))
        .env("PROGRAM", env!("CARGO_BIN_EXE_gradvine"))
        .env("REPOSITORY", text(Path::new(ROOT)))
        .env("START", text(&env::current_dir().unwrap()))
        .env("EMPTY", text(empty.path()))
        .case(folder().join("*.trycmd"))
        .run();
}

/// trycmd skips unknown programs, other kinds of blocks and files with other endings.
#[test]
fn no_case_is_skipped() {
    let mut commands = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.extension().unwrap().to_str().unwrap();
        assert!(["trycmd", "in", "out", "sh", "txt", "md"].contains(&ending), "{}", path.display());
        if ["in", "out"].contains(&ending) {
            assert!(path.with_extension("trycmd").is_file(), "no cases use {}", path.display());
        }
        if ending == "trycmd" {
            commands += count_commands(&path);
        }
    }
    assert!(commands > 100, "{commands} commands");
}

/// The commands of a file, all of which are run.
fn count_commands(path: &Path) -> usize {
    let mut commands = 0;
    let mut inside = false;
    for (index, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
        let place = format!("{}: line {}: {line}", path.display(), index + 1);
        if line.starts_with("```") {
            assert_eq!(line, if inside { "```" } else { "```console" }, "{place}");
            inside = !inside;
        }
        if line.starts_with("$ ") {
            assert!(inside && line.starts_with("$ gradvine"), "{place}");
            commands += 1;
        }
        // `gradvine.sh` says so: an overwritten file must not accept it.
        assert!(!line.contains("NOT ALLOWED"), "{place}");
        assert!(!line.starts_with("? skipped"), "{place}");
    }
    assert!(!inside, "{}: the last block has no end", path.display());
    commands
}
