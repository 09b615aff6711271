//! A site's folder.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;

fn folder_of(place: &Place) -> (tempfile::TempDir, Site) {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), place.site.key.clone(), None).unwrap();
    site.begin(&place.book()).unwrap();
    (folder, site)
}

#[test]
fn a_damaged_book_is_named() {
    let (folder, site) = folder_of(&founded("berlin", 2, Consent::Majority));
    let path = folder.path().join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    for (damaged, why) in [
        (text[..text.len() / 2].to_string(), "it is damaged"),
        (text.replace("\"number\": 1", "\"number\": \"1\""), "it is damaged"),
        (
            format!("{{\"format\": {FORMAT}, \"site\": \"a\", \"peer\": \"b\", \"history\": []}}"),
            "no version",
        ),
        // As an earlier program has written it.
        (text.replacen("\"format\": 2,", "", 1), "format 0 of signed runs"),
    ] {
        fs::write(&path, damaged).unwrap();
        let error = site.book().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("run.json"), "{error}");
    }
    let error = site.book().unwrap_err().to_string();
    assert!(error.contains("finish the run with the version of gradvine that has made it"));
    // What was altered on the disk is no longer signed.
    fs::write(&path, text.replace("hospitals", "hospitalz")).unwrap();
    let book = site.book().unwrap();
    assert!(check_history(&book.history).unwrap_err().contains("no signature of berlin"));
}

/// Who may read the file of the lock could hold it: nobody else may.
#[test]
fn the_lock_is_for_the_owner_alone() {
    let (folder, site) = folder_of(&founded("berlin", 2, Consent::Majority));
    let path = folder.path().join("run.lock");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    // One of an earlier version.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    site.change(|_| Ok(())).unwrap();
    assert_eq!(mode(), 0o600);
}

#[test]
#[ignore = "slow: a lock is waited for for 20 s"]
fn a_lock_that_is_held_is_named() {
    let (folder, site) = folder_of(&founded("berlin", 2, Consent::Majority));
    let held = lock_file(&folder.path().join("run.lock")).unwrap();
    held.lock().unwrap();
    let error = site.change(|_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("another program has held it for 20 s"), "{error}");
}

#[test]
fn a_stage_is_written_beside_the_node_file() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let (folder, site) = folder_of(&places[0]);
    let stage = write_files(&site, &site.book().unwrap()).unwrap();
    assert_eq!((stage.rounds_before, stage.first), (0, None));
    let made = Experiment::load(&folder.path().join("run/experiment.toml"), &[]).unwrap();
    let run = places[0].book().run().clone();
    assert_eq!(made.run.id, format!("{}-{}", run.id, &stage.begins[..12]));
    assert!(folder.path().join("run/topology.toml").is_file());
}
