//! The run directory: resolved experiment, metrics as they come, models and summary at the end.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use super::{Summary, metrics::Metric};
use crate::config::ConfigError;

/// A run's folder, open for metrics.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Whether the folder was made for this run.
    fresh: bool,
    metrics: BufWriter<File>,
}

impl RunDirectory {
    /// Makes the folder, which must be new or hold no run.
    ///
    /// # Errors
    /// If it holds a run already, or cannot be written.
    pub fn create(path: &Path) -> Result<RunDirectory, ConfigError> {
        let wrong =
            |error: std::io::Error| ConfigError::new("run.out", path.display(), format!("cannot be written: {error}"));
        let holds = path.join("summary.json").exists() || path.join("metrics.jsonl").exists();
        if holds && !did_nothing(path) {
            return Err(ConfigError::new(
                "run.out",
                path.display(),
                "this folder holds a run already; name another, or remove it",
            ));
        }
        if holds {
            remove(path);
        }
        let fresh = !path.exists();
        fs::create_dir_all(path).map_err(wrong)?;
        let metrics = BufWriter::new(File::create(path.join("metrics.jsonl")).map_err(wrong)?);
        Ok(RunDirectory { path: path.to_path_buf(), fresh, metrics })
    }

    /// Takes back what was written for a run that never began, so that the folder can be named again.
    pub fn discard(&self) {
        remove(&self.path);
        if self.fresh {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line to `metrics.jsonl`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn metric(&mut self, metric: &Metric) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.metrics, metric)?;
        self.metrics.write_all(b"\n")?;
        self.metrics.flush()
    }

    /// Writes a text file into the folder, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        let part = self.path.join(format!("{name}.part"));
        fs::write(&part, text)?;
        fs::rename(part, self.path.join(name))
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn summary(&self, summary: &Summary) -> std::io::Result<()> {
        self.write("summary.json", &(serde_json::to_string_pretty(summary)? + "\n"))
    }
}

/// Whether the run in a folder failed before its first round: nothing is lost with it, and whoever mends the cause starts it again.
fn did_nothing(path: &Path) -> bool {
    let summary =
        fs::read(path.join("summary.json")).ok().and_then(|bytes| serde_json::from_slice::<Summary>(&bytes).ok());
    let metrics = fs::metadata(path.join("metrics.jsonl")).map_or(0, |meta| meta.len());
    metrics == 0 && summary.is_some_and(|summary| summary.rounds == 0 && summary.failure.is_some())
}

/// Removes what a run writes before its first round. What is not there or cannot be removed stays as it is: the error of the run, or of
/// the next attempt to write, is the one to tell.
fn remove(path: &Path) {
    for name in ["metrics.jsonl", "experiment.toml", "topology.toml", "summary.json"] {
        let _ = fs::remove_file(path.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_run_did_nothing_is_free_and_any_other_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let experiment = crate::experiment::Experiment::default_with(&[]).unwrap();
        let topology = crate::mixing::Topology::parse("ring:3", 0).unwrap();
        let design = crate::job::Design::new(experiment, std::sync::Arc::new(topology), 4, 2).unwrap();
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
        };
        open.metric(&metric).unwrap();
        open.summary(&summary).unwrap();
        assert!(RunDirectory::create(&path).unwrap_err().to_string().contains("this folder holds a run already"));
    }
}
