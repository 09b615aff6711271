//! The arguments that select an experiment, those of commands that run one, and their common
//! steps before and after a run.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    memory,
    run::{DataRecord, Design, RunDirectory, SavedFiles, Space, Whole},
};

use gradvine_terminal::{note, show_reading};

use super::Exit;

/// Selects an experiment: a file and settings.
#[derive(clap::Args, Clone, Debug)]
pub struct Selection {
    /// The experiment file; without one, the default experiment on the embedded digits
    pub experiment: Option<PathBuf>,
    /// Set a value of the experiment, such as rule.kind=dcd or optimizer.step=0.05; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// A topology file or a spec such as ring:8, torus:4x4, random-regular:16:4
    #[arg(long, value_name = "FILE|SPEC")]
    pub topology: Option<String>,
    /// Number of rounds
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = from_1)]
    pub rounds: Option<u64>,
    /// The seed of all random numbers
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = from_0)]
    pub seed: Option<u64>,
    /// Start from the model in this safetensors file, such as a run's model-mean.safetensors
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Start even if memory or disk seem too small for the run
    #[arg(long)]
    pub no_space_check: bool,
}

/// Selects the run and its output.
#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    /// The experiment.
    #[command(flatten)]
    pub select: Selection,
    /// The run directory to create [default: runs/<time>-<rule>-<topology>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
    /// No progress, no tables: only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Leave out the comparison with plain SGD on the pooled data
    #[arg(long)]
    pub no_baseline: bool,
    /// Whether the run directory is that of a run that goes on.
    #[arg(skip)]
    pub resumes: bool,
}

impl Selection {
    /// Reads the experiment, applies all settings, then `more`.
    pub fn read(&self, more: &[String]) -> Result<Experiment, ConfigError> {
        let mut sets = self.sets.clone();
        sets.extend(
            self.flags()
                .into_iter()
                .filter_map(|(_, key, value)| Some(format!("{key}={}", value?))),
        );
        sets.extend_from_slice(more);
        match &self.experiment {
            Some(path) => Experiment::load(path, &sets),
            None => Experiment::default_with(&sets),
        }
    }

    /// Reads the experiment, applies all settings, then `change`, loads its data and checks
    /// everything. `quiet`: prints no warnings.
    pub fn whole(
        &self,
        quiet: bool,
        change: impl FnOnce(&mut Experiment),
    ) -> Result<Arc<Whole>, Exit> {
        if self.no_space_check {
            memory::trust();
        }
        if !quiet {
            show_reading();
        }
        let changed = self.read(&[]).map(|mut experiment| {
            change(&mut experiment);
            experiment
        });
        let whole = changed.and_then(Whole::new).map_err(|error| self.blame(error))?;
        if !quiet {
            for warning in &whole.design.rule.warnings {
                note!("warning: {warning}");
            }
        }
        Ok(Arc::new(whole))
    }

    /// Arguments that are short for settings: the argument, the key, the value as TOML.
    fn flags(&self) -> [(&'static str, &'static str, Option<String>); 4] {
        let word = |text: &str| toml::Value::from(text).to_string();
        let spec = self.topology.as_deref().map(word);
        // Relative to the working directory, not to the experiment's file.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let init = self.init.as_ref().map(|path| word(&absolute(path).display().to_string()));
        [
            ("--topology", "topology.file", spec),
            ("--rounds", "run.rounds", self.rounds.map(|rounds| rounds.to_string())),
            ("--seed", "run.seed", self.seed.map(|seed| seed.to_string())),
            ("--init", "model.init", init),
        ]
    }

    /// Names the argument in an error, instead of the setting made from it.
    fn blame(&self, mut error: ConfigError) -> ConfigError {
        if let Some((flag, ..)) =
            self.flags().iter().find(|(_, key, value)| value.is_some() && *key == error.place)
            && error.file.as_deref() == Some("--set")
        {
            (error.file, error.place) = (None, flag.to_string());
        }
        error
    }

    /// The command line that repeats this experiment, without its output options; `setting`, if
    /// given, replaces the settings of its key.
    pub fn again(&self, command: &str, set: Option<&str>) -> String {
        let mut words = vec!["gradvine".to_string(), command.to_string()];
        words.extend(self.experiment.iter().map(|path| path.display().to_string()));
        let key = |set: &str| set.split('=').next().unwrap_or_default().to_string();
        let kept = self.sets.iter().filter(|old| set.is_none_or(|set| key(old) != key(set)));
        let sets = kept.cloned().chain(set.map(String::from)).map(|set| ("--set", Some(set)));
        let flags = [
            ("--topology", self.topology.clone()),
            ("--rounds", self.rounds.map(|rounds| rounds.to_string())),
            ("--seed", self.seed.map(|seed| seed.to_string())),
            ("--init", self.init.as_ref().map(|path| path.display().to_string())),
        ];
        for (flag, value) in flags.into_iter().chain(sets) {
            words.extend(value.into_iter().flat_map(|value| [flag.to_string(), value]));
        }
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

impl RunArgs {
    /// The arguments that say what to run.
    pub const SELECTING: [&'static str; 7] =
        ["experiment", "sets", "topology", "rounds", "seed", "init", "out"];

    /// Goes on with the run in this folder.
    pub fn go_on(&mut self, folder: PathBuf) -> Result<(), ConfigError> {
        let experiment = folder.join("experiment.toml");
        if !experiment.is_file()
            || !(is_run_of_processes(&folder) || RunDirectory::can_go_on(&folder))
        {
            let problem = "this folder holds no run that can go on: one that is over, or that \
                           wrote no checkpoint, cannot";
            return Err(ConfigError::new("--resume", folder.display(), problem));
        }
        self.select.experiment = Some(experiment);
        (self.out, self.resumes) = (Some(folder), true);
        Ok(())
    }

    /// Reads the experiment with all settings applied, loads its data and checks everything.
    pub fn whole(&self) -> Result<Arc<Whole>, Exit> {
        self.select.whole(self.quiet, |_| ())
    }

    /// Creates the run directory and writes the files that are known before the run.
    pub fn directory(&self, whole: &Whole) -> Result<RunDirectory, Exit> {
        let run = &whole.design.experiment.run;
        let path = match (&self.out, &run.out) {
            (Some(out), _) => out.clone(),
            (None, Some(out)) => PathBuf::from(out),
            (None, None) => unused(&whole.design.experiment, whole.design.topology.name())?,
        };
        if self.resumes {
            return Ok(RunDirectory::go_on(&path)?);
        }
        let made =
            room(&whole.design, SavedFiles::All, &path).and_then(|()| RunDirectory::create(&path));
        let directory = made.map_err(|error| match &self.out {
            Some(_) => ConfigError { place: "--out".into(), ..error },
            None => whole.design.experiment.blame(error),
        })?;
        directory.write("experiment.toml", &whole.design.experiment.moved().to_toml())?;
        directory.write("topology.toml", &whole.design.topology.to_toml())?;
        DataRecord::from(whole).write(&directory)?;
        Ok(directory)
    }

    /// Whether to print progress and tables.
    pub fn speaks(&self) -> bool {
        !self.quiet && !self.json
    }
}

/// Whether the nodes of the run in this folder are processes of their own.
pub fn is_run_of_processes(folder: &Path) -> bool {
    folder.join("nodes").is_dir()
}

/// Checks that the disk has room for the run's files; warns if there is little.
pub fn room(design: &Design, saves: SavedFiles, path: &Path) -> Result<(), ConfigError> {
    if let Some(warning) = Space::of(design, saves).check(path)? {
        note!("warning: {warning}");
    }
    Ok(())
}

/// Parses a whole number, up to TOML's maximum.
pub fn whole(text: &str, least: u64) -> Result<u64, String> {
    const MOST: u64 = i64::MAX as u64;
    let number = text.parse().ok().filter(|number| (least..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a whole number from {least} to {MOST}"))
}

/// Reads a whole number from 0.
pub fn from_0(text: &str) -> Result<u64, String> {
    whole(text, 0)
}

/// Reads a whole number from 1.
pub fn from_1(text: &str) -> Result<u64, String> {
    whole(text, 1)
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// `runs/<time>-<rule>-<topology>`, with a number if that exists.
fn unused(experiment: &Experiment, topology: &str) -> Result<PathBuf, ConfigError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let rule = experiment.rule.get("kind").and_then(toml::Value::as_str).unwrap_or("run");
    let stem = format!("{}-{rule}-{topology}", stamp(seconds));
    let numbered =
        |number: u32| if number == 0 { stem.clone() } else { format!("{stem}-{number}") };
    (0..1000)
        .map(|number| Path::new("runs").join(numbered(number)))
        .find(|path| !path.exists())
        .ok_or_else(|| {
            ConfigError::at("run.out", "a thousand runs in one second: name the folder with --out")
        })
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
    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (word, shown) in [
            ("a.b=c", "a.b=c"),
            ("a b", "'a b'"),
            ("hidden=[8]", "'hidden=[8]'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(super::quoted(word), shown);
        }
    }

    #[test]
    fn stamps_are_civil_dates() {
        assert_eq!(super::stamp(0), "19700101-000000");
        assert_eq!(super::stamp(951_782_400 + 86_399), "20000229-235959");
        assert_eq!(super::stamp(1_767_322_845), "20260102-030045");
    }
}
