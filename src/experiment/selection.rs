//! An experiment as a command line names it: a file, settings, and short forms of some settings.

use std::path::{Path, PathBuf};

use super::Experiment;
use crate::config::ConfigError;

/// Selects an experiment: a file, and settings that replace its values.
///
/// ```
/// use gradvine::experiment::Selection;
///
/// let selection = Selection {
///     sets: vec!["rule.kind=dcd".into()],
///     topology: Some("ring:4".into()),
///     ..Selection::default()
/// };
/// let experiment = selection.read(&["run.rounds=10".into()])?;
/// assert_eq!(experiment.run.rounds, 10);
/// assert_eq!(selection.words(None), ["--topology", "ring:4", "--set", "rule.kind=dcd"]);
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The experiment file; `None`: the default experiment.
    pub experiment: Option<PathBuf>,
    /// Settings `key=value`, as those of `--set`.
    pub sets: Vec<String>,
    /// `--topology`: short for `topology.file`, but relative to the working directory.
    pub topology: Option<String>,
    /// `--rounds`: short for the key `run.rounds`.
    pub rounds: Option<u64>,
    /// `--seed`: short for the key `run.seed`.
    pub seed: Option<u64>,
    /// `--init`: short for `model.init`, but relative to the working directory.
    pub init: Option<PathBuf>,
}

impl Selection {
    /// Reads the experiment, applies all settings, then `more`. Where `more` chooses another kind,
    /// the constants of the former one go, also those that were set.
    ///
    /// # Errors
    /// If the file or a setting is wrong.
    pub fn read(&self, more: &[String]) -> Result<Experiment, ConfigError> {
        let short = self.flags().into_iter();
        let short = short.filter_map(|(_, key, value)| Some(format!("{key}={}", value?)));
        let sets: Vec<String> = self.sets.iter().cloned().chain(short).collect();
        match &self.experiment {
            Some(path) => Experiment::load_in_turn(path, &[&sets, more]),
            None => Experiment::default_in_turn(&[&sets, more]),
        }
    }

    /// Arguments that are short for settings: the argument, the key, the value as TOML.
    fn flags(&self) -> [(&'static str, &'static str, Option<String>); 4] {
        let word = |text: &str| toml::Value::from(text).to_string();
        // Relative to the working directory, not to the experiment's file.
        let absolute = |path: &Path| {
            word(&std::path::absolute(path).unwrap_or_else(|_| path.into()).display().to_string())
        };
        let folder = self.experiment.as_ref().and_then(|path| path.parent());
        let elsewhere = folder.is_some_and(|folder| folder != Path::new(""));
        let spec = self.topology.as_deref().map(|spec| match Path::new(spec) {
            path if elsewhere && (path.is_file() || is_file_name(spec)) => absolute(path),
            _ => word(spec),
        });
        let init = self.init.as_deref().map(absolute);
        [
            ("--topology", "topology.file", spec),
            ("--rounds", "run.rounds", self.rounds.map(|rounds| rounds.to_string())),
            ("--seed", "run.seed", self.seed.map(|seed| seed.to_string())),
            ("--init", "model.init", init),
        ]
    }

    /// Names the argument in an error, instead of the setting made from it.
    #[must_use]
    pub fn blame(&self, mut error: ConfigError) -> ConfigError {
        if let Some((flag, ..)) =
            self.flags().iter().find(|(_, key, value)| value.is_some() && *key == error.place)
            && error.file.as_deref() == Some("--set")
        {
            (error.file, error.place) = (None, flag.to_string());
        }
        error
    }

    /// The arguments that select this experiment; `set`, if given, replaces the settings of its
    /// key.
    pub fn words(&self, set: Option<&str>) -> Vec<String> {
        let key = |set: &str| set.split('=').next().unwrap_or_default().to_string();
        let kept = self.sets.iter().filter(|old| set.is_none_or(|set| key(old) != key(set)));
        let sets = kept.cloned().chain(set.map(String::from)).map(|set| ("--set", Some(set)));
        let flags = [
            ("--topology", self.topology.clone()),
            ("--rounds", self.rounds.map(|rounds| rounds.to_string())),
            ("--seed", self.seed.map(|seed| seed.to_string())),
            ("--init", self.init.as_ref().map(|path| path.display().to_string())),
        ];
        let mut words: Vec<String> =
            self.experiment.iter().map(|path| path.display().to_string()).collect();
        for (flag, value) in flags.into_iter().chain(sets) {
            words.extend(value.into_iter().flat_map(|value| [flag.to_string(), value]));
        }
        words
    }
}

/// Whether a topology is a file's name, not a family with its sizes, such as `ring:8`.
fn is_file_name(spec: &str) -> bool {
    let ends = [".toml", ".csv", ".dot", ".gv", ".graphml"];
    spec.contains('/') || ends.iter().any(|end| spec.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_is_a_file_of_the_working_directory() {
        let value = |spec: &str| {
            let experiment = Some("folder/experiment.toml".into());
            let topology = Some(spec.into());
            let selection = Selection { experiment, topology, ..Selection::default() };
            selection.flags()[0].2.clone().unwrap()
        };
        assert_eq!(value("ring:4"), "\"ring:4\"");
        let here = std::env::current_dir().unwrap().join("t.toml");
        assert_eq!(value("t.toml"), format!("\"{}\"", here.display()));
    }

    #[test]
    fn a_setting_replaces_those_of_its_key() {
        let sets = ["compressor.bits=8", "rule.kind=dcd"].map(String::from).to_vec();
        let selection = Selection { sets, seed: Some(7), ..Selection::default() };
        let words = selection.words(Some("compressor.bits=4")).join(" ");
        assert_eq!(words, "--seed 7 --set rule.kind=dcd --set compressor.bits=4");
    }

    #[test]
    fn another_kind_has_none_of_the_constants_that_were_set() {
        let sets = ["rule.gamma=0.3", "compressor.bits=8", "run.rounds=7"].map(String::from);
        let selection = Selection { sets: sets.to_vec(), ..Selection::default() };
        let read = |more: &[&str]| {
            let more: Vec<String> = more.iter().map(ToString::to_string).collect();
            selection.read(&more).unwrap()
        };
        let own = read(&[]);
        assert_eq!(own.rule["gamma"].as_float(), Some(0.3));
        assert_eq!(read(&["rule.kind=choco", "compressor.kind=min-max"]).rule, own.rule);
        let other = read(&["rule.kind=c-sgd", "compressor.kind=identity"]);
        assert_eq!((other.rule.len(), other.compressor.len(), other.run.rounds), (1, 1, 7));
    }

    #[test]
    fn an_error_names_the_argument_that_was_short_for_the_setting() {
        let selection = Selection { rounds: Some(0), ..Selection::default() };
        let error = ConfigError::new("run.rounds", 0, "expected at least 1").within("--set");
        assert_eq!(selection.blame(error).to_string(), "--rounds = 0: expected at least 1");
        let error = ConfigError::new("run.seed", 0, "expected another").within("--set");
        assert_eq!(selection.blame(error.clone()), error);
    }
}
