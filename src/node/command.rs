//! A command that a node runs when something happens: its program is looked up before the run, and
//! it has a time limit.

use std::{
    env, fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{self, Child, ExitStatus},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{config::ConfigError, run::NodeFile, threads};

/// How long a command may take if the node file does not say.
const LIMIT_S: f64 = 30.0;

/// The longest limit in seconds: the other events wait meanwhile.
const LONGEST_S: f64 = 3600.0;

/// The bytes of a command's output that are logged.
const SHOWN: usize = 4096;

/// How often it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// How long the output of a command that has ended is awaited: a program that it has started may
/// keep it open.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// What is accepted as `on_event`.
const ACCEPTED: &str = "accepted: the path of a program that this user may run, or the name of \
                        one on PATH, then its arguments";

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    program: PathBuf,
    arguments: Vec<String>,
    pub limit: Duration,
}

impl Command {
    /// The command of a node file, if it has one.
    ///
    /// # Errors
    /// If there is no such program, this user may not run it, or the limit is none; `place` is
    /// `node.on_event` or `node.on_event_s`.
    pub(crate) fn of(file: &NodeFile) -> Result<Option<Command>, ConfigError> {
        let limit_s = file.on_event_s.unwrap_or(LIMIT_S);
        if !(limit_s > 0.0 && limit_s <= LONGEST_S) {
            let problem = format!("accepted: seconds, more than 0 and at most {LONGEST_S}");
            return Err(ConfigError::new("node.on_event_s", limit_s, problem));
        }
        let Some(words) = &file.on_event else { return Ok(None) };
        let wrong = |problem: &str| {
            let problem = format!("{problem}; {ACCEPTED}");
            Err(ConfigError::new("node.on_event", format!("{words:?}"), problem))
        };
        let Some((name, arguments)) = words.split_first() else {
            return wrong("names no program");
        };
        if words.iter().any(|word| word.contains('\0')) {
            return wrong("no program takes the character NUL");
        }
        match find(name) {
            Ok(program) => Ok(Some(Command {
                program,
                arguments: arguments.to_vec(),
                limit: Duration::from_secs_f64(limit_s),
            })),
            Err(problem) => wrong(&problem),
        }
    }

    /// The path of its program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs the command with this standard input. Returns what it has printed.
    ///
    /// # Errors
    /// Why it has not succeeded, in words, with what it has printed. After the limit it is killed,
    /// with what it has started.
    pub(crate) fn run(&self, input: &str) -> Result<String, String> {
        let unstarted = |error: io::Error| format!("cannot be started: {error}");
        let (mut child, output) = self.start(input).map_err(unstarted)?;
        let ended = self.wait(&mut child);
        let printed = output.finish();
        let problem = match ended {
            Ok(Some(status)) if status.success() => return Ok(printed),
            Ok(Some(status)) => format!("has failed: {status}"),
            Ok(None) => format!(
                "did not end within {} s, and was killed with what it had started",
                self.limit.as_secs_f64()
            ),
            Err(error) => format!("was killed: its end cannot be awaited: {error}"),
        };
        Err(if printed.is_empty() { problem } else { format!("{problem}; it says: {printed}") })
    }

    /// Starts it with the threads that write its input and read its output.
    fn start(&self, input: &str) -> io::Result<(Child, Output)> {
        let (stdin, mut writer) = io::pipe()?;
        let (reader, stdout) = io::pipe()?;
        let mut command = process::Command::new(&self.program);
        command.args(&self.arguments).stdin(stdin).stderr(stdout.try_clone()?).stdout(stdout);
        // A group of its own: Ctrl-C at the node is not for it, and all of it can be killed.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        // Both threads end when the other ends of their pipes are closed.
        let input = input.to_string();
        threads::spawn("gradvine-event-in", move || {
            // A command need not read it.
            let _ = writer.write_all(input.as_bytes());
        })?;
        let output = Output::of(reader)?;
        Ok((command.spawn()?, output))
    }

    /// Waits for its end; `None` if it had to be killed. It leaves no zombie.
    fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let started = Instant::now();
        let result = loop {
            match child.try_wait() {
                Ok(None) if started.elapsed() < self.limit => thread::sleep(LOOK),
                Ok(None) => break Ok(None),
                ended => return ended,
            }
        };
        kill(child);
        child.wait()?;
        result
    }
}

/// The program that a node file names in `on_event`, if it names one.
///
/// # Errors
/// If it cannot be run, or the limit is none; `place` is `node.on_event` or `node.on_event_s`.
pub fn check_on_event(file: &NodeFile) -> Result<Option<PathBuf>, ConfigError> {
    Ok(Command::of(file)?.map(|command| command.program))
}

/// Kills a process and its group.
fn kill(child: &mut Child) {
    // It is not awaited yet, so its number is that of no other process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::kill_process_group(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::KILL,
    );
    // If it has ended by itself, there is nothing to kill.
    let _ = child.kill();
}

/// The output of a command, read on a thread of its own.
struct Output {
    begin: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn of(mut pipe: io::PipeReader) -> io::Result<Output> {
        let begin = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&begin);
        let reader = threads::spawn("gradvine-event-out", move || {
            let mut chunk = [0; SHOWN];
            // The rest is read too, so that the command can go on writing.
            while let Ok(length @ 1..) = pipe.read(&mut chunk) {
                let mut begin = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let room = SHOWN - begin.len();
                begin.extend_from_slice(&chunk[..length.min(room)]);
            }
        })?;
        Ok(Output { begin, reader })
    }

    /// The begin of the output of a command that has ended, in one line.
    fn finish(self) -> String {
        let ended = Instant::now();
        while !self.reader.is_finished() && ended.elapsed() < LAST_OUTPUT {
            thread::sleep(LOOK);
        }
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&begin);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The program of this name or path.
///
/// # Errors
/// Why there is none.
fn find(name: &str) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("names no program".into());
    }
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match problem_of(&path) {
            None => Ok(path),
            Some(problem) => Err(problem),
        };
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&folders).map(|folder| folder.join(name));
    let found = places.into_iter().find(|path| problem_of(path).is_none());
    found.ok_or_else(|| format!("no folder of PATH has a program {name:?} that this user may run"))
}

/// Why this path is no program that this user may run.
fn problem_of(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Err(error) => Some(format!("{}: {error}", path.display())),
        Ok(found) if !found.is_file() => Some(format!("{} is no file", path.display())),
        Ok(_) if !may_run(path) => Some(format!("this user may not run {}", path.display())),
        Ok(_) => None,
    }
}

#[cfg(target_os = "linux")]
fn may_run(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Elsewhere the system says so when the program is started.
#[cfg(not(target_os = "linux"))]
fn may_run(_path: &Path) -> bool {
    true
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn command(words: &[&str], limit_s: f64) -> Result<Option<Command>, ConfigError> {
        let words = words.iter().map(ToString::to_string).collect();
        let (on_event, on_event_s) = (Some(words), Some(limit_s));
        Command::of(&NodeFile { on_event, on_event_s, ..NodeFile::default() })
    }

    fn run(words: &[&str], limit_s: f64, input: &str) -> Result<String, String> {
        command(words, limit_s).unwrap().unwrap().run(input)
    }

    /// The state of a process, such as `S` or `Z`; `None` if there is none.
    fn state(pid: &str) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Waits until a process has ended; what nobody awaits may be a zombie of another process.
    fn until_gone(pid: &str) {
        let started = Instant::now();
        while state(pid).is_some_and(|state| state != 'Z') {
            assert!(started.elapsed() < Duration::from_secs(60), "process {pid} still runs");
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_command_gets_its_arguments_and_its_input_without_a_shell() {
        let script = r#"for word in "$@"; do printf '<%s>' "$word"; done; cat; echo error >&2"#;
        let words = ["sh", "-c", script, "sh", "$HOME", "two words", "", "*", "; exit 3"];
        let printed = run(&words, 60.0, "{\"text\":\"'\"}\n").unwrap();
        assert_eq!(printed, "<$HOME><two words><><*><; exit 3>{\"text\":\"'\"} error");
    }

    #[test]
    fn a_failure_is_told_with_what_the_command_says() {
        let error = run(&["sh", "-c", "echo one; echo two >&2; exit 3"], 60.0, "").unwrap_err();
        assert_eq!(error, "has failed: exit status: 3; it says: one two");
        assert_eq!(run(&["false"], 60.0, "").unwrap_err(), "has failed: exit status: 1");
        // A program that was there at the start of the run.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        symlink("/bin/sh", &program).unwrap();
        let gone = command(&[program.to_str().unwrap()], 60.0).unwrap().unwrap();
        fs::remove_file(&program).unwrap();
        let error = gone.run("").unwrap_err();
        assert!(error.starts_with("cannot be started: No such file or directory"), "{error}");
    }

    #[test]
    fn neither_much_input_nor_much_output_holds_a_command_up() {
        let large = "x".repeat(1 << 20);
        assert_eq!(run(&["true"], 60.0, &large), Ok(String::new()), "it does not read");
        let printed = run(&["cat"], 60.0, &large).unwrap();
        assert_eq!(printed, "x".repeat(SHOWN), "the begin is kept");
        let counted = run(&["wc", "-c"], 60.0, &large).unwrap();
        assert_eq!(counted, (1 << 20).to_string());
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!("sleep 1000 & echo $! $$ > {}; wait", pids.display());
        // Long enough for a busy machine to start it.
        let error = run(&["sh", "-c", &script], 3.0, "").unwrap_err();
        assert_eq!(error, "did not end within 3 s, and was killed with what it had started");
        let text = fs::read_to_string(&pids).unwrap();
        let (child, own) = text.split_once(' ').unwrap();
        assert_eq!(state(own), None, "it is no zombie");
        until_gone(child);
    }

    #[test]
    fn a_program_in_the_background_that_keeps_the_output_does_not_hold_the_end_up() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; echo done", pid.display());
        assert_eq!(run(&["sh", "-c", &script], 900.0, ""), Ok("done".into()));
        let pid = fs::read_to_string(&pid).unwrap();
        assert!(state(&pid).is_some(), "it has ended, so it is not killed");
        assert!(process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
        until_gone(&pid);
    }

    #[test]
    fn what_is_no_program_is_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let refused = |words: &[&str], problem: &str| {
            let error = command(words, 60.0).unwrap_err();
            assert_eq!(error.place, "node.on_event");
            let error = error.to_string();
            let expected = format!("node.on_event = {words:?}: {problem}; {ACCEPTED}");
            assert_eq!(error, expected);
        };
        fs::write(path("text"), "no program").unwrap();
        refused(&[], "names no program");
        refused(&["", "x"], "names no program");
        refused(&["true", "\0"], "no program takes the character NUL");
        refused(&[&path("no")], &format!("{}: No such file or directory (os error 2)", path("no")));
        refused(&[&path("")], &format!("{} is no file", path("")));
        refused(&[&path("text")], &format!("this user may not run {}", path("text")));
        let problem = "no folder of PATH has a program \"no such program\" that this user may run";
        refused(&["no such program"], problem);
        for limit_s in [0.0, -1.0, f64::NAN, 3601.0] {
            let error = command(&["true"], limit_s).unwrap_err().to_string();
            let expected = format!(
                "node.on_event_s = {limit_s}: accepted: seconds, more than 0 and at most 3600"
            );
            assert_eq!(error, expected);
        }
        assert!(Command::of(&NodeFile::default()).unwrap().is_none());
    }
}
