//! The container image can be built: what `.dockerignore` lets through is a whole workspace.
//! No container engine is needed: a folder with these files stands for the build stage.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").into()
}

/// The paths that `.dockerignore` lets through. The file has one form only: first `*`, then
/// `!PATH`.
fn allowed() -> Vec<String> {
    let text = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"), "everything is left out at first");
    lines.map(|line| line.strip_prefix('!').expect("a path that is let through").into()).collect()
}

/// Copies `from` to `to`, folders with all that they hold, without build outputs.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().expect("a path in a folder")).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_name() != "target" {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

/// The build stage of the Dockerfile after its only `COPY`, in a new folder.
fn context() -> tempfile::TempDir {
    let file = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let stage = file.split("\nFROM ").nth(1).expect("the build stage");
    let copies: Vec<_> = stage.lines().filter(|line| line.starts_with("COPY")).collect();
    assert_eq!(copies, ["COPY . ."], "the build stage takes what .dockerignore lets through");
    let folder = tempfile::tempdir().unwrap();
    for path in allowed() {
        copy(&root().join(&path), &folder.path().join(&path));
    }
    folder
}

fn cargo(folder: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

const METADATA: &[&str] = &["metadata", "--no-deps", "--offline", "--format-version=1"];

#[test]
fn the_image_is_built_from_a_whole_workspace() {
    let folder = context();
    cargo(folder.path(), METADATA).unwrap();
    fs::remove_dir_all(folder.path().join("bindings")).unwrap();
    let error = cargo(folder.path(), METADATA).unwrap_err();
    assert!(error.contains("bindings/python"), "a missing member is noticed: {error}");
}

#[test]
fn every_file_that_the_image_takes_later_is_let_through() {
    let file = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let later = file.split("\nFROM ").nth(2).expect("the stage of the image");
    let copies = later.lines().filter(|line| line.starts_with("COPY") && !line.contains("--from"));
    let mut count = 0;
    for line in copies {
        let words: Vec<_> =
            line.split(' ').skip(1).filter(|word| !word.starts_with("--")).collect();
        for path in &words[..words.len() - 1] {
            assert!(allowed().iter().any(|allowed| allowed == path), "{path} is in .dockerignore");
            count += 1;
        }
    }
    assert!(count >= 3, "gradvine-start and two licences");
}

#[test]
#[ignore = "builds the whole program once more: several minutes"]
fn soak_the_image_s_program_is_built() {
    let folder = context();
    cargo(
        folder.path(),
        &["build", "--profile", "dist", "--locked", "--offline", "-p", "gradvine-cli"],
    )
    .unwrap();
    let program = folder.path().join("target/dist/gradvine");
    let output = Command::new(program).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("gradvine "));
}
