//! The run directory: the resolved experiment, metrics during the run, models and summary at the
//! end.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    card::{self, MODEL_CARD},
    lock::{self, unwritable},
    metrics::Metric,
};
use crate::{config::ConfigError, data::check_unread, files, inputs, run::Summary};

/// The files that a run writes before its first round, and its summaries.
const FILES: [&str; 8] = [
    AWAY,
    STATUS_FILE,
    "metrics.jsonl",
    "experiment.toml",
    "topology.toml",
    "data.json",
    "summary.json",
    MODEL_CARD,
];

/// What a node knows of all while it runs.
pub const STATUS_FILE: &str = "status.json";

/// Why nodes are away, as a node has seen it last.
pub(crate) const AWAY: &str = "away.json";

/// The folder of checkpoints in a run's.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// The folder of the nodes of a run, if they are processes of their own.
const NODES: &str = "nodes";

/// A run's folder, open for metrics.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Whether the folder was created for this run.
    fresh: bool,
    /// Whether it holds an earlier part of this run.
    resumes: bool,
    metrics: Lines,
    /// Keeps other processes away.
    _lock: Option<File>,
}

impl RunDirectory {
    /// Creates the folder, which must be new or hold no run.
    ///
    /// # Errors
    /// If another process writes a run into it, it holds a run already, or cannot be written.
    pub fn create(path: &Path) -> Result<RunDirectory, ConfigError> {
        let held = Held::take(path)?;
        if RunDirectory::is_taken(path) {
            let problem = "this folder holds a run already; name another, or remove it";
            return Err(ConfigError::new("run.out", path.display(), problem));
        }
        if holds_run(path) {
            remove(path);
        }
        held.open()
    }

    /// Creates the folder, or empties it: removes the files of an earlier run, also its models and
    /// checkpoints. Other files stay.
    ///
    /// # Errors
    /// If another process writes a run into it (then it stays as it is), or a file cannot be
    /// removed or written.
    pub fn again(path: &Path) -> Result<RunDirectory, ConfigError> {
        let held = Held::take(path)?;
        clear(path).map_err(|error| {
            ConfigError::new("run.out", path.display(), format!("cannot be removed: {error}"))
        })?;
        held.open()
    }

    /// Opens the folder of a run that continues; its files stay as they are until
    /// [`RunDirectory::rewind`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn go_on(path: &Path) -> Result<RunDirectory, ConfigError> {
        refuse_links(path)?;
        let _lock = lock::lock(path)?;
        let metrics = files::append(&path.join("metrics.jsonl"));
        let metrics = metrics.map_err(|error| unwritable(path, &error))?;
        let (path, metrics) = (path.to_path_buf(), Lines::new(metrics));
        Ok(RunDirectory { path, fresh: false, resumes: true, metrics, _lock })
    }

    /// Whether a folder holds a run that can continue: it has checkpoints, or had started to write
    /// them.
    pub fn can_go_on(path: &Path) -> bool {
        path.join(CHECKPOINTS).is_dir()
    }

    /// Removes what was written after this many rounds: the run continues from there.
    ///
    /// # Errors
    /// If `metrics.jsonl` cannot be read or written.
    pub fn rewind(&mut self, rounds: u64) -> io::Result<()> {
        let path = self.path.join("metrics.jsonl");
        let rewound = (|| {
            let text = fs::read_to_string(&path)?;
            let stays = |line: &&str| {
                let metric = Metric::from_json(line.as_bytes());
                metric.is_ok_and(|metric| metric.round <= rounds)
            };
            let kept: String = text.lines().filter(stays).flat_map(|line| [line, "\n"]).collect();
            self.write("metrics.jsonl", &kept)?;
            files::append(&path)
        })();
        self.metrics = Lines::new(rewound.map_err(|error| at(&path, &error))?);
        // They would say how the run ended.
        for name in ["summary.json", MODEL_CARD] {
            let _ = fs::remove_file(self.path.join(name));
        }
        Ok(())
    }

    /// Whether a folder holds a run already.
    pub fn is_taken(path: &Path) -> bool {
        holds_run(path) && !did_nothing(path)
    }

    /// Removes the files of a run that never began, so that the folder can be used again.
    pub fn discard(&self) {
        if self.resumes {
            return;
        }
        remove(&self.path);
        lock::forget(&self.path);
        if self.fresh {
            let _ = fs::remove_dir_all(self.path.join(CHECKPOINTS));
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// The folder, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line to `metrics.jsonl`. A line that the file does not accept now (the disk is
    /// full, say) is held and written with a later one, or by [`RunDirectory::finish`].
    ///
    /// # Errors
    /// If the file accepts nothing; returned once, until it accepts data again.
    pub fn metric(&mut self, metric: &Metric) -> io::Result<()> {
        let line = serde_json::to_string(metric)?;
        self.metrics.append(&line).map_err(|error| at(&self.path.join("metrics.jsonl"), &error))
    }

    /// Writes the lines of `metrics.jsonl` that are held.
    ///
    /// # Errors
    /// If the file does not accept them; the error counts the lost lines.
    pub fn finish(&mut self) -> io::Result<()> {
        self.metrics.finish().map_err(|error| at(&self.path.join("metrics.jsonl"), &error))
    }

    /// Writes a text file into the folder, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path.join(name);
        files::replace(&path, text.as_bytes()).map_err(|error| at(&path, &error))
    }

    /// Writes why nodes are away, by name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn away(&self, nodes: &BTreeMap<String, String>) -> io::Result<()> {
        self.write(AWAY, &serde_json::to_string_pretty(nodes)?)
    }

    /// Writes `summary.json`, and `MODEL.md` if the folder has a mean model that no program
    /// brought.
    ///
    /// # Errors
    /// If one of them cannot be written.
    pub fn summary(&self, summary: &Summary) -> io::Result<()> {
        self.write("summary.json", &summary.to_json()?)?;
        match card::describe(&self.path, summary) {
            Some(text) => self.write(MODEL_CARD, &text),
            None => Ok(()),
        }
    }
}

/// A folder that this process holds: nothing in it is changed before that.
struct Held {
    path: PathBuf,
    /// Whether the folder was created.
    fresh: bool,
    lock: Option<File>,
}

impl Held {
    /// Creates the folder unless it exists, and keeps other processes away.
    fn take(path: &Path) -> Result<Held, ConfigError> {
        let own = ["experiment.toml", "topology.toml"];
        let own = own.into_iter().find(|name| path.join(name).exists());
        if let (Some(own), false) = (own, holds_run(path) || RunDirectory::can_go_on(path)) {
            // It may be the one that describes this run.
            let problem = format!("no run has written the {own} in this folder; name another");
            return Err(ConfigError::new("run.out", path.display(), problem));
        }
        check_folder_unread(path)?;
        let fresh = !path.exists();
        files::create_folder(path).map_err(|error| unwritable(path, &error))?;
        refuse_links(path)?;
        Ok(Held { path: path.to_path_buf(), fresh, lock: lock::lock(path)? })
    }

    fn open(self) -> Result<RunDirectory, ConfigError> {
        let Held { path, fresh, lock } = self;
        let metrics = files::create(&path.join("metrics.jsonl"));
        let metrics = Lines::new(metrics.map_err(|error| unwritable(&path, &error))?);
        Ok(RunDirectory { path, fresh, resumes: false, metrics, _lock: lock })
    }
}

/// Removes the files of a run, also its models and checkpoints.
fn clear(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == CHECKPOINTS {
            fs::remove_dir_all(entry.path())?;
        } else if is_of_a_run(&entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a run writes a file of this name, beside its checkpoints.
fn is_of_a_run(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let is_model = name.starts_with("model-") && name.ends_with(".safetensors");
    is_model || FILES.contains(&&*name)
}

/// Refuses a folder in which this run would write over a file that it reads, such as the model
/// that it starts from.
fn check_folder_unread(path: &Path) -> Result<(), ConfigError> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let own = entries.filter(|entry| is_of_a_run(&entry.file_name()));
    let Some(read) = own.map(|entry| entry.path()).find(|file| inputs::check(file).is_err()) else {
        // The folder may be one of rows, which are all read.
        return check_unread("run.out", &path.join("summary.json"));
    };
    let name = read.file_name().unwrap_or_default().display();
    let problem = format!("this run reads {name} in it, and would write over it: name another");
    Err(ConfigError::new("run.out", path.display(), problem))
}

/// Refuses folders of checkpoints, or of nodes, that are links.
fn refuse_links(path: &Path) -> Result<(), ConfigError> {
    let Some(link) = files::find_link(path, &[CHECKPOINTS, NODES]) else { return Ok(()) };
    let problem = format!(
        "{} is a link: nothing in a run directory is followed; remove it, or name another \
         directory",
        link.display()
    );
    Err(ConfigError::new("run.out", path.display(), problem))
}

/// Adds the path to an error.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Writes whole lines to a file that may accept nothing for some time.
#[derive(Debug)]
struct Lines<W = File> {
    file: W,
    /// Bytes that the file has not accepted yet.
    held: Vec<u8>,
    failing: bool,
    /// Lines lost because the memory for held lines was full.
    lost: u64,
}

impl<W: Write> Lines<W> {
    /// The maximum number of held bytes.
    const MOST_HELD: usize = 64 << 20;

    fn new(file: W) -> Lines<W> {
        Lines { file, held: Vec::new(), failing: false, lost: 0 }
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.held.len() + line.len() < Self::MOST_HELD {
            self.held.extend_from_slice(line.as_bytes());
            self.held.push(b'\n');
        } else {
            self.lost += 1;
        }
        let result = self.flush();
        let first = !std::mem::replace(&mut self.failing, result.is_err());
        if first { result } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        let result = self.flush();
        let lost = self.lost + self.held.iter().filter(|byte| **byte == b'\n').count() as u64;
        match result {
            Ok(()) if lost == 0 => Ok(()),
            Ok(()) => Err(io::Error::other(format!(
                "{lost} lines are lost: there was no memory to hold them"
            ))),
            Err(error) => {
                Err(io::Error::new(error.kind(), format!("{error}; {lost} lines are lost")))
            }
        }
    }

    /// Writes as much as the file accepts; accepted bytes are not written again.
    fn flush(&mut self) -> io::Result<()> {
        while !self.held.is_empty() {
            match self.file.write(&self.held) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => _ = self.held.drain(..taken),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.file.flush()
    }
}

/// Whether a run has written into a folder.
fn holds_run(path: &Path) -> bool {
    path.join("summary.json").exists() || path.join("metrics.jsonl").exists()
}

/// Whether the run in a folder failed, or was killed, before it had written anything of use: then
/// it may be overwritten, and the user can correct the cause and start again.
fn did_nothing(path: &Path) -> bool {
    let metrics = fs::metadata(path.join("metrics.jsonl")).map_or(0, |meta| meta.len());
    let summary = path.join("summary.json");
    let failed = match summary.exists() {
        true => Summary::read(&summary)
            .is_ok_and(|summary| summary.rounds == 0 && summary.failure.is_some()),
        false => !holds_models(path) && !RunDirectory::can_go_on(path),
    };
    metrics == 0 && failed
}

/// Whether a folder has the model of a node.
fn holds_models(path: &Path) -> bool {
    let is_model = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("model-");
    fs::read_dir(path).is_ok_and(|entries| entries.flatten().any(is_model))
}

/// Removes the files that a run writes before its first round. A file that is missing or cannot be
/// removed is skipped: the error of the run, or of the next attempt to write, is the one to report.
fn remove(path: &Path) {
    for name in FILES {
        let _ = fs::remove_file(path.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts this many bytes, then nothing.
    struct Disk {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.bytes.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_is_full_for_a_while_costs_no_line_and_is_reported_once() {
        let mut lines = Lines::new(Disk { room: 10, bytes: Vec::new() });
        assert!(lines.append("12345").is_ok());
        assert!(lines.append("67890").is_err(), "four bytes of six fit");
        assert!(lines.append("again").is_ok(), "known already");
        lines.file.room = 100;
        assert!(lines.append("last").is_ok());
        assert_eq!(lines.file.bytes, b"12345\n67890\nagain\nlast\n");
        lines.file.room = lines.file.bytes.len();
        assert!(lines.append("lost").is_err(), "a new outage");
        assert!(lines.finish().unwrap_err().to_string().contains("1 lines are lost"));
    }

    #[test]
    fn only_a_folder_of_a_run_that_never_began_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let experiment = crate::experiment::Experiment::default_with(&[]).unwrap();
        let topology = crate::mixing::Topology::parse("ring:3", 0).unwrap();
        let design =
            crate::run::Design::new(experiment, std::sync::Arc::new(topology), 4, 2).unwrap();
        let mut summary = Summary::blank(&design);
        summary.failure = Some("node a waited 60 s for b".into());
        RunDirectory::create(&path).unwrap().summary(&summary).unwrap();
        RunDirectory::create(&path).unwrap().summary(&summary).unwrap();
        let mut open = RunDirectory::create(&path).unwrap();
        let none = None;
        let metric = Metric {
            round: 1,
            node: 0,
            time_s: 0.0,
            computing_s: 0.0,
            train_loss: none,
            test_loss: none,
            test_accuracy: none,
            consensus: none,
            bytes_payload: 0,
            bytes_wire: 0,
            bytes_dense: 0,
            measures: Default::default(),
        };
        open.metric(&metric).unwrap();
        open.summary(&summary).unwrap();
        drop(open);
        assert!(
            RunDirectory::create(&path)
                .unwrap_err()
                .to_string()
                .contains("this folder holds a run already")
        );
    }

    #[test]
    fn a_run_that_was_killed_before_its_first_round_may_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let killed = || drop(RunDirectory::create(&path).unwrap());
        killed();
        fs::write(path.join("experiment.toml"), "half").unwrap();
        killed();
        for name in ["model-a.safetensors", "summary.json"] {
            fs::write(path.join(name), "kept").unwrap();
            let refused = RunDirectory::create(&path).unwrap_err().to_string();
            assert!(refused.contains("this folder holds a run already"), "{name}: {refused}");
            fs::remove_file(path.join(name)).unwrap();
        }
        killed();
    }

    /// The names and contents of the files of a folder.
    fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let own = files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap()));
        let below = folders.iter().flat_map(|folder| contents(folder));
        let mut all: Vec<_> = own.chain(below).collect();
        all.sort();
        all
    }

    #[test]
    fn nothing_of_a_folder_in_use_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let held = RunDirectory::create(&path).unwrap();
        let checkpoints = path.join(CHECKPOINTS).join("a");
        fs::create_dir_all(&checkpoints).unwrap();
        for file in ["run.json", "round-000000000007.safetensors"] {
            fs::write(checkpoints.join(file), "kept").unwrap();
        }
        for file in ["metrics.jsonl", "model-a.safetensors", "experiment.toml"] {
            fs::write(path.join(file), "kept").unwrap();
        }
        let before = contents(&path);
        let refused = |opened: Result<RunDirectory, ConfigError>| {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("another process writes a run into this folder"), "{error}");
            assert_eq!(contents(&path), before);
        };
        refused(RunDirectory::again(&path));
        refused(RunDirectory::create(&path));
        refused(RunDirectory::go_on(&path));
        // A run that never began, so that its folder looks free, while it is started again.
        fs::write(path.join("metrics.jsonl"), "").unwrap();
        let before = contents(&path);
        assert!(RunDirectory::create(&path).is_err());
        assert_eq!(contents(&path), before);
        drop(held);
        let fresh = RunDirectory::again(&path).unwrap();
        let names: Vec<_> = contents(&path).into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, [path.join(".lock"), path.join("metrics.jsonl")]);
        drop(fresh);
    }

    #[test]
    fn files_that_no_run_wrote_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("experiment.toml"), "mine").unwrap();
        for opened in [RunDirectory::create(folder.path()), RunDirectory::again(folder.path())] {
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("no run has written the experiment.toml"), "{error}");
        }
        assert_eq!(contents(folder.path()).len(), 1);
    }
}
