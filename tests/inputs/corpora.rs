//! The files of `fuzz/corpus` again: what a fuzzer has found, and what it began with.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::{fs, path::Path};

use targets::{TARGETS, seeds};

#[test]
fn nothing_that_a_fuzzer_has_found_does_harm() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in TARGETS {
        seeds(name).iter().for_each(|seed| target(seed));
        for entry in fs::read_dir(root.join(name)).into_iter().flatten() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let harm = std::panic::catch_unwind(|| target(&bytes));
            assert!(harm.is_ok(), "{}", path.display());
        }
    }
}

#[test]
#[ignore = "writes the files with which a fuzzer begins"]
fn soak_write_the_seeds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, _) in TARGETS {
        fs::create_dir_all(root.join(name)).unwrap();
        for (number, seed) in seeds(name).into_iter().enumerate() {
            fs::write(root.join(name).join(format!("seed-{number:02}")), seed).unwrap();
        }
    }
}
