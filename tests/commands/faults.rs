//! Disks that are full or read-only in the middle of a run. They need root, for a file system of
//! their own.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use crate::command::{Deployment, NAMES, Reach, Running, json, metrics, until, until_running};

/// A small file system in a folder.
struct Disk(PathBuf);

impl Disk {
    /// Mounts it; `None` where that is not allowed.
    fn mount(folder: &Path) -> Option<Disk> {
        fs::create_dir_all(folder).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=4m", "gradvine-test"]).arg(folder);
        let mounted = command.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: a file system cannot be mounted here (it needs root)");
        }
        mounted.then(|| Disk(folder.to_path_buf()))
    }

    /// Writes until nothing fits any more.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("ballast")).unwrap();
        let zeros = vec![0; 1 << 20];
        let mut size = zeros.len();
        while size > 0 {
            if file.write_all(&zeros[..size]).is_err() {
                size /= 2;
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

const RUN: &str = "rounds = 4000\nevaluate_every = 10\n[checkpoint]\nevery_rounds = 100";

/// Three nodes, of which one writes its run to a disk of its own.
fn start(deployment: &Deployment, disk: &Disk) -> [Running; 3] {
    NAMES.map(|name| {
        deployment.start_as(name, |command| match name {
            "london" => command.arg("--out").arg(disk.0.join("run")),
            _ => command,
        })
    })
}

/// The same, once they write checkpoints.
fn nodes(deployment: &Deployment, disk: &Disk) -> [Running; 3] {
    let nodes = start(deployment, disk);
    until_running(&disk.0.join("run"));
    until("a checkpoint", || disk.0.join("run/checkpoints/london").is_dir());
    nodes
}

/// All nodes end with 0 and one digest, and nothing of what they recorded is missing.
fn check(deployment: &Deployment, disk: &Disk, mut nodes: [Running; 3]) {
    for (name, node) in NAMES.iter().zip(&mut nodes) {
        assert_eq!(node.end_within(Duration::from_secs(120)).0, Some(0), "{name}");
    }
    let run = |name: &str| match name {
        "london" => disk.0.join("run"),
        name => deployment.run(name),
    };
    let digest = |name: &str| json(&run(name).join("summary.json"))["digest"].clone();
    assert!(NAMES.iter().all(|name| digest(name) == digest("oslo")), "one digest");
    let rounds = |name: &str| -> Vec<u64> {
        metrics(&run(name)).iter().map(|line| line["round"].as_u64().unwrap()).collect()
    };
    assert_eq!(rounds("london"), rounds("oslo"));
    assert!(run("london").join("model-london.safetensors").exists());
}

#[test]
#[ignore = "slow"]
fn a_full_disk_in_the_middle_of_a_run_costs_checkpoints_and_nothing_else() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    let Some(disk) = Disk::mount(&deployment.file("disk")) else { return };
    let nodes = nodes(&deployment, &disk);
    disk.fill();
    until("the disk is missed", || nodes[1].errors().contains("cannot be written"));
    thread::sleep(Duration::from_millis(300));
    disk.free();
    check(&deployment, &disk, nodes);
}

#[test]
#[ignore = "slow"]
fn a_folder_that_becomes_read_only_for_a_while_costs_checkpoints_and_nothing_else() {
    let deployment = Deployment::new(Reach::Tcp, RUN);
    let Some(disk) = Disk::mount(&deployment.file("disk")) else { return };
    let mut nodes = nodes(&deployment, &disk);
    // Permissions do not bind root, but this does.
    let folders = [disk.0.join("run/checkpoints/london"), disk.0.join("run")];
    let change = |how: &str| {
        let output = Command::new("chattr").arg(how).args(&folders).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !change("+i") {
        eprintln!("skipped: folders cannot be made read-only here (chattr +i)");
        nodes.iter_mut().for_each(|node| node.signal("KILL"));
        return;
    }
    until("the folder is missed", || nodes[1].errors().contains("cannot be written"));
    assert!(change("-i"));
    check(&deployment, &disk, nodes);
}

#[test]
#[ignore = "a node tries for a minute to save its model"]
fn soak_a_disk_that_stays_full_ends_that_node_with_an_error_and_the_others_with_their_results() {
    let deployment = Deployment::new(Reach::Tcp, &format!("patience_s = 10\n{RUN}"));
    let Some(disk) = Disk::mount(&deployment.file("disk")) else { return };
    let mut nodes = nodes(&deployment, &disk);
    disk.fill();
    // A minute for the results, and then the patience of the others.
    let codes = nodes.each_mut().map(|node| node.end_within(Duration::from_secs(300)).0);
    assert_eq!(codes, [Some(0), Some(4), Some(0)], "{}", nodes[1].errors());
    let said = nodes[1].errors();
    assert!(said.contains("disk/run") && said.contains("No space left on device"), "{said}");
    let digest = |name: &str| json(&deployment.run(name).join("summary.json"))["digest"].clone();
    assert_eq!(digest("tokyo"), digest("oslo"));
    // The others have retained their checkpoints: started again together, all have the results.
    let first = digest("tokyo");
    disk.free();
    check(&deployment, &disk, start(&deployment, &disk));
    assert_eq!(digest("tokyo"), first);
}
