//! `deploy/gradvine-start`, the script around a node for service managers.
#![cfg(unix)]

use crate::command;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use command::{Deployment, NAMES, Reach, Running, folder, program, until};
use tempfile::TempDir;

/// The script for one node, with this program on the path and no pause between two starts.
fn script(deployment: &Deployment, options: &[&str], name: &str) -> Command {
    let program = program();
    let folder = Path::new(program.get_program()).parent().unwrap();
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder.into()].into_iter().chain(env::split_paths(&others)));
    let mut command = Command::new("sh");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gradvine-start"))
        .args(options)
        .arg(deployment.file(&format!("{name}.toml")))
        .arg(deployment.run(name))
        .env("PATH", path.unwrap())
        .env("GRADVINE_RETRY_S", "0")
        .stdin(Stdio::null());
    command
}

fn start(deployment: &Deployment, options: &[&str], name: &str) -> Running {
    Running::start(&mut script(deployment, options, name), deployment.folder.path(), name)
}

#[test]
fn wrong_arguments_are_refused() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 2");
    for options in [&["--hold", "--key", "a"][..], &["--other"], &["one-too-many"]] {
        let output = script(&deployment, options, "tokyo").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "), "{options:?}");
    }
}

#[test]
fn a_wrong_file_is_not_tried_again() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 0");
    let output = script(&deployment, &["--retry"], "tokyo").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("run.rounds") && !errors.contains("start 1 of 10"), "{errors}");
}

#[test]
#[ignore = "slow"]
fn a_node_that_could_not_go_on_is_tried_again_until_it_is_told_to_stop() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 2\nconnect_s = 1");
    let mut tokyo = start(&deployment, &["--retry"], "tokyo");
    until("the second start", || tokyo.errors().contains("ended with 4: start 2 of 10 in 0 s"));
    tokyo.signal("TERM");
    // 143: the signal came before the node had a handler for it.
    let (code, _) = tokyo.end();
    assert!(matches!(code, Some(4 | 130 | 143)), "{code:?}");
    assert!(!tokyo.errors().contains("start 4 of 10"), "no start after the signal");
}

#[test]
#[ignore = "slow"]
fn nodes_are_held_after_their_run_and_keep_their_keys_to_themselves() {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 2");
    let nodes = NAMES.map(|name| {
        // A secret store's key, readable by its group.
        let (secret, key) = (deployment.file("secret"), deployment.file(&format!("{name}.key")));
        let secret = secret.with_extension(name);
        fs::rename(&key, &secret).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o440)).unwrap();
        let (secret, key) = (secret.display().to_string(), key.display().to_string());
        let script = script(&deployment, &["--key", &secret, &key, "--hold"], name);
        let mut masked = Command::new("sh");
        masked.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(script.get_program());
        masked.args(script.get_args());
        for (name, value) in script.get_envs() {
            masked.env(name, value.unwrap());
        }
        Running::start(masked.stdin(Stdio::null()), deployment.folder.path(), name)
    });
    for (mut node, name) in nodes.into_iter().zip(NAMES) {
        until("the end of the run", || node.errors().contains("gradvine ended with 0"));
        node.signal("TERM");
        assert_eq!(node.end().0, Some(0));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&deployment.file(&format!("{name}.key"))), 0o600);
        // The mask of the service manager is kept.
        let mean = deployment.run(name).join("model-mean.safetensors");
        assert_eq!(mode(&mean), 0o600, "{}", mean.display());
    }
    // A finished run is left alone.
    let summary = || fs::read(deployment.run("tokyo").join("summary.json")).unwrap();
    let before = summary();
    assert_eq!(script(&deployment, &[], "tokyo").output().unwrap().status.code(), Some(0));
    assert_eq!(before, summary());
}

/// A program in place of another one, in this folder.
fn place(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A script of `deploy` among programs that do what is written here in place of `gradvine` and
/// `scontrol`; the latter notes that it was called.
fn among(script: &str, gradvine: &str) -> (Command, TempDir) {
    let folder = folder();
    place(folder.path(), "gradvine", gradvine);
    place(folder.path(), "scontrol", &format!("echo \"$@\" >{}/called", folder.path().display()));
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder.path().into()].into_iter().chain(env::split_paths(&others)));
    let mut command = Command::new("sh");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(script));
    command.env("PATH", path.unwrap()).env("SLURM_JOB_ID", "7").env("SITE", folder.path());
    command.env("GRADVINE_RETRY_S", "0").stdin(Stdio::null());
    (command, folder)
}

#[test]
fn a_job_of_slurm_is_queued_again_where_that_helps() {
    for (code, is_queued) in [(0, false), (2, false), (3, false), (4, true), (130, false)] {
        let (mut job, folder) = among("slurm/gradvine.sbatch", &format!("exit {code}"));
        assert_eq!(job.output().unwrap().status.code(), Some(code));
        assert_eq!(folder.path().join("called").exists(), is_queued, "{code}");
    }
    // Slurm's signal before the time is over.
    let waits = "echo \"$@\" >&2; trap 'exit 130' TERM; touch $SITE/waits; \
                 for i in $(seq 1200); do sleep 0.05; done";
    let (mut job, folder) = among("slurm/gradvine.sbatch", waits);
    let mut job = Running::start(&mut job, folder.path(), "job");
    until("the program", || folder.path().join("waits").exists());
    job.signal("TERM");
    assert_eq!(job.end().0, Some(130));
    let given = format!("start --dir {}\n", folder.path().display());
    assert!(job.errors().starts_with(&given), "{}", job.errors());
    assert_eq!(fs::read_to_string(folder.path().join("called")).unwrap(), "requeue 7\n");
    // Without a site it says what is missing.
    let (mut job, _folder) = among("slurm/gradvine.sbatch", "exit 0");
    let output = job.env_remove("SITE").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("the folder of the site"));
    assert!(!output.status.success());
}

#[test]
fn a_service_starts_a_site_where_its_folder_holds_one() {
    for (is_site, expected) in [(true, "start --dir"), (false, "node node.toml")] {
        let (mut service, folder) = among("gradvine-start", "echo \"$@\"");
        if is_site {
            fs::write(folder.path().join("run.json"), "{}").unwrap();
        }
        let site = folder.path().display().to_string();
        let output = service.args(["--site", &site, "node.toml", "run"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).to_string();
        assert!(text.starts_with(expected), "{text}");
    }
    let (mut service, folder) = among("gradvine-start", "exit 0");
    let output = service.args(["--site", &folder.path().display().to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds no run: `gradvine init`"));
}

/// What the last stage of the Dockerfile copies, put together as a root file system, with a shell
/// and the libraries that a Debian has. Returns it with the number of the image's user.
fn root_of_the_image() -> (TempDir, String) {
    let root = folder();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(repository.join("deploy/Dockerfile")).unwrap();
    let stage = text.rsplit("\nFROM ").next().unwrap();
    let inside = |path: &str| root.path().join(path.trim_start_matches('/'));
    let put = |from: &Path, to: &Path| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let program = program().get_program().to_owned();
    for line in stage.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let built = line.contains("--from=build");
        let mut words: Vec<&str> =
            line.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        let to = words.pop().unwrap();
        for from in words {
            let name = Path::new(from).file_name().unwrap();
            let to = if to.ends_with('/') { inside(to).join(name) } else { inside(to) };
            put(&if built { PathBuf::from(&program) } else { repository.join(from) }, &to);
            if line.contains("--chmod=0755") {
                fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
    }
    put(Path::new("/bin/sh"), &inside("/bin/sh"));
    for of in [Path::new(&program), Path::new("/bin/sh")] {
        let linked = Command::new("ldd").arg(of).output().unwrap();
        let linked = String::from_utf8(linked.stdout).unwrap();
        for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
            put(Path::new(library), &inside(library));
        }
    }
    let user = stage.lines().find_map(|line| line.strip_prefix("ARG UID=")).unwrap();
    (root, user.into())
}

/// Three nodes in the root file system of the image, as its user: they have nothing else.
#[test]
#[ignore = "slow"]
fn nodes_run_in_the_root_file_system_of_the_image() {
    let may = Command::new("unshare").args(["--mount", "chroot", "/", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this user may not mount, or change the root of a program");
        return;
    }
    let (root, user) = root_of_the_image();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    let deployment = Deployment::new(Reach::Tcp, "rounds = 20");
    // The folder that a container's user would mount.
    let node = root.path().join("node");
    let moved = Command::new("cp").arg("-a").arg(deployment.folder.path()).arg(&node).status();
    assert!(moved.unwrap().success());
    let owned = Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(&node).status();
    assert!(owned.unwrap().success());
    let start = |name: &&str| {
        // A container has /proc; this mount is seen by the node alone.
        let script = "mount --rbind /proc \"$1/proc\"; exec chroot --userspec=\"$2\" \"$1\" \
                      /bin/sh /usr/local/bin/gradvine-start \"/node/$3.toml\" \"/node/$3-run\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script, "sh"]).arg(root.path());
        command.arg(format!("{user}:{user}")).arg(name).stdin(Stdio::null()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/bin");
        Running::start(&mut command, deployment.folder.path(), name)
    };
    let mut nodes: Vec<Running> = NAMES.iter().map(start).collect();
    nodes.iter_mut().for_each(|node| assert_eq!(node.end().0, Some(0), "{}", node.errors()));
    let mean = |name: &str| fs::read(node.join(format!("{name}-run/model-mean.safetensors")));
    let first = mean(NAMES[0]).unwrap();
    assert!(NAMES.iter().all(|name| mean(name).unwrap() == first));
}
