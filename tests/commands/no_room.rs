//! Runs that are too large for this machine: refused with the required and the available size,
//! before anything is allocated, written or sent.

use crate::command;

use std::fs;

use command::{Deployment, NAMES, Reach, program, refused};
#[cfg(target_os = "linux")]
use std::process::Command;

/// The program with this limit of address space, in megabytes.
#[cfg(target_os = "linux")]
fn tight(megabytes: u32) -> assert_cmd::Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -v {megabytes}000; exec \"$@\""), "sh"])
        .arg(program().get_program());
    assert_cmd::Command::from_std(command)
}

#[test]
#[ignore = "slow"]
#[cfg(target_os = "linux")]
fn a_model_that_does_not_fit_the_memory_is_refused() {
    let figures = |line: &str, what: &str| {
        assert!(line.contains("model = ") && line.contains(what), "{line}");
        assert!(line.contains(" of memory, and ") && line.contains(" are available: "), "{line}");
    };
    // 750 million numbers: none of it fits.
    for command in [&["simulate"][..], &["plan"], &["train"], &["train", "--processes"]] {
        let line = refused(tight(3000).args(command).args(["--set", "model.hidden=[10000000]"]));
        figures(&line, "a model with its gradient and one copy needs about 9.00 GB");
    }
    // 20 million numbers: one node fits, forty with their copies do not.
    let large =
        ["--set", "model.hidden=[266000]", "--topology", "ring:40", "--set", "data.split=iid"];
    for command in [&["simulate"][..], &["train"]] {
        let line = refused(tight(3000).args(command).args(large));
        figures(&line, "a run of 40 nodes on one machine");
        assert!(line.contains("gradvine node") && line.contains("--no-space-check"), "{line}");
    }
    figures(&refused(tight(3000).arg("plan").args(large)), "measuring the data");
    // A run that fits continues.
    let folder = command::folder();
    let small = [
        "simulate",
        "-q",
        "--rounds",
        "2",
        "--no-baseline",
        "--set",
        "model.hidden=[5000]",
        "--out",
    ];
    tight(3000).args(small).arg(folder.path().join("run")).assert().success();
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn threads_whose_address_space_does_not_fit_are_refused() {
    let run = |megabytes: u32, folder: &tempfile::TempDir| {
        let mut command = tight(megabytes);
        command.args(["train", "-q", "--rounds", "2", "--no-baseline", "--out"]);
        command.arg(folder.path().join("run")).env_remove("MALLOC_ARENA_MAX");
        command
    };
    let folder = command::folder();
    for megabytes in [200, 400, 600] {
        let line = refused(&mut run(megabytes, &folder));
        assert!(
            line.contains("address space: a network with 8 of its nodes in this process"),
            "{line}"
        );
        assert!(line.contains("(ulimit -v) leaves") && line.contains("MALLOC_ARENA_MAX=2"));
    }
    run(600, &folder).env("MALLOC_ARENA_MAX", "2").assert().success();
}

#[test]
#[ignore = "slow"]
#[cfg(target_os = "linux")]
fn a_node_that_does_not_fit_the_memory_is_refused() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 2");
    let text = fs::read_to_string(deployment.file("experiment.toml")).unwrap();
    let large = text.replace("kind = \"softmax\"", "kind = \"mlp\"\nhidden = [100000000]");
    deployment.write("experiment.toml", &large);
    let line = refused(tight(3000).arg("node").arg(deployment.file(&format!("{}.toml", NAMES[0]))));
    assert!(
        line.contains("needs about 7.20 GB of memory, and ") && line.contains(" are available"),
        "{line}"
    );
    // 21 million numbers: three vectors fit, those of its rule do not.
    deployment.write("experiment.toml", &large.replace("100000000", "3500000"));
    let line = refused(tight(420).arg("node").arg(deployment.file(&format!("{}.toml", NAMES[0]))));
    assert!(line.contains("this node needs about ") && line.contains("--no-space-check"), "{line}");
    assert!(!deployment.run(NAMES[0]).exists());
}
