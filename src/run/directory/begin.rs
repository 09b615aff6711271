//! A run directory at the beginning of a run: its name, and what is known then.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    config::ConfigError,
    run::{DataRecord, Design, EndError, RunDirectory, SavedFiles, Space, Warn, Whole},
};

impl RunDirectory {
    /// Creates the directory of a run with all nodes in this process, and writes what is known
    /// before the run: the experiment with every value, the topology, and the rows that are held
    /// out for tests. Warns if little space is free.
    ///
    /// # Errors
    /// As [`RunDirectory::create`]; if there is no room for the run, or a file cannot be written.
    pub fn begin(whole: &Whole, path: &Path, warn: &Warn) -> Result<RunDirectory, EndError> {
        let design = &whole.design;
        Space::of(design, SavedFiles::All).ensure(path, warn)?;
        let directory = RunDirectory::create(path)?;
        directory.write("experiment.toml", &design.experiment.moved().to_toml())?;
        directory.write("topology.toml", &design.topology.to_toml())?;
        DataRecord::from(whole).write(&directory)?;
        Ok(directory)
    }

    /// The folder of a run: `out`, or that of the experiment, or one that does not exist.
    ///
    /// # Errors
    /// As [`RunDirectory::unused`].
    pub fn place(design: &Design, out: Option<&Path>) -> Result<PathBuf, ConfigError> {
        let own = design.experiment.run.out.as_deref().map(Path::new);
        out.or(own).map_or_else(|| RunDirectory::unused(design), |path| Ok(path.to_path_buf()))
    }

    /// A folder for a run that does not exist: `runs/<time>-<rule>-<topology>`, with a number if
    /// that exists.
    ///
    /// # Errors
    /// If there are a thousand of them.
    pub fn unused(design: &Design) -> Result<PathBuf, ConfigError> {
        let seconds =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let rule = design.experiment.rule.get("kind").and_then(toml::Value::as_str);
        let (rule, topology) = (rule.unwrap_or("run"), design.topology.name());
        let stem = format!("{}-{rule}-{topology}", stamp(seconds));
        let numbered =
            |number: u32| if number == 0 { stem.clone() } else { format!("{stem}-{number}") };
        (0..1000)
            .map(|number| Path::new("runs").join(numbered(number)))
            .find(|path| !path.exists())
            .ok_or_else(|| {
                ConfigError::at(
                    "run.out",
                    "a thousand runs in one second: name the folder with --out",
                )
            })
    }
}

/// `20260102-030405` in UTC.
fn stamp(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64;
    // Civil date from days since 1970-01-01 (Hinnant, chrono-compatible low-level date algorithms).
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{experiment::Experiment, mixing::Topology};

    #[test]
    fn stamps_are_civil_dates() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_400 + 86_399), "20000229-235959");
        assert_eq!(stamp(1_767_322_845), "20260102-030045");
    }

    #[test]
    fn a_directory_begins_with_the_resolved_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let sets = ["topology.file=ring:3", "run.rounds=2"].map(String::from);
        let whole = Whole::new(Experiment::default_with(&sets).unwrap()).unwrap();
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&warnings);
        let warn: Warn =
            Arc::new(move |line: &str| received.lock().unwrap().push(line.to_string()));
        let path = folder.path().join("run");
        let directory = RunDirectory::begin(&whole, &path, &warn).unwrap();
        let again = Experiment::load(&path.join("experiment.toml"), &[]).unwrap();
        assert_eq!(again.run.rounds, 2);
        assert_eq!(Topology::load(&path.join("topology.toml")).unwrap().nodes(), 3);
        assert!(path.join("data.json").is_file() && warnings.lock().unwrap().is_empty());
        directory.discard();
        assert!(!path.exists());
    }

    #[test]
    fn a_name_says_rule_and_topology() {
        let sets = ["topology.file=ring:3", "rule.kind=dcd"].map(String::from);
        let whole = Whole::new(Experiment::default_with(&sets).unwrap()).unwrap();
        let path = RunDirectory::unused(&whole.design).unwrap();
        assert!(path.to_str().unwrap().ends_with("-dcd-ring-3"), "{path:?}");
    }
}
