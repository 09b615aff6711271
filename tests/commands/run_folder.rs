//! Links that others have placed in a run folder are not followed.
#![cfg(unix)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::command::{SMALL, folder, gradvine};

fn simulate(out: &Path) -> assert_cmd::assert::Assert {
    let mut command = gradvine();
    command.arg("simulate").args(SMALL).args(["--rounds", "3", "--no-baseline", "-q", "--out"]);
    command.arg(out).assert()
}

#[test]
fn planted_links_are_replaced_and_lead_nowhere() {
    let folder = folder();
    let (out, mine) = (folder.path().join("run"), folder.path().join("precious"));
    let made = folder.path().join("made");
    fs::create_dir(&out).unwrap();
    fs::write(&mine, "precious").unwrap();
    // A link that leads nowhere hides that the folder is not new.
    symlink(&made, out.join("metrics.jsonl")).unwrap();
    for name in ["experiment.toml.part", "topology.toml.part", "summary.json.part", "data.json"] {
        symlink(&mine, out.join(name)).unwrap();
    }
    simulate(&out).success();
    assert_eq!(fs::read_to_string(&mine).unwrap(), "precious");
    assert!(!made.exists());
    for name in ["metrics.jsonl", "experiment.toml", "topology.toml", "summary.json"] {
        assert!(out.join(name).symlink_metadata().unwrap().is_file(), "{name}");
    }
}

#[test]
fn a_link_in_the_place_of_the_lock_or_of_checkpoints_is_refused() {
    for name in [".lock", "checkpoints"] {
        let folder = folder();
        let (out, mine) = (folder.path().join("run"), folder.path().join("mine"));
        fs::create_dir(&out).unwrap();
        fs::create_dir(&mine).unwrap();
        symlink(&mine, out.join(name)).unwrap();
        let assert = simulate(&out).code(2);
        let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(text.contains(name) && text.contains("nothing in a run directory is"), "{text}");
        assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);
    }
}

#[test]
fn only_the_owner_enters_folders_of_runs() {
    let folder = folder();
    let out = folder.path().join("runs/first");
    simulate(&out).success();
    for path in [out.clone(), folder.path().join("runs")] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
