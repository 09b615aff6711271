//! An experiment that differs from a base in some settings.

use std::path::PathBuf;

use gradvine::{
    compress::COMPRESSORS,
    config::{self, ConfigError},
    experiment::Experiment,
    gossip::rule,
};

/// The experiment that cases differ from.
#[derive(Clone, Debug)]
pub enum Base {
    /// The experiment that `gradvine train` runs without a file.
    Default,
    /// The path of an experiment file.
    File(PathBuf),
    /// A text, with the name of its file and the folder of its relative paths.
    Text {
        /// An experiment in the form of a file.
        text: String,
        /// The name of its file, for errors.
        origin: String,
        /// The folder of relative paths.
        folder: PathBuf,
    },
}

/// One experiment of a comparison or a study: a base with settings.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of its row.
    pub name: String,
    /// The experiment that `sets` change.
    pub base: Base,
    /// `key=value`, as for `--set`; later ones win.
    pub sets: Vec<String>,
}

impl Case {
    /// The experiment, with further settings.
    ///
    /// # Errors
    /// If the base cannot be read or a setting is wrong.
    pub fn experiment(&self, more: &[String]) -> Result<Experiment, ConfigError> {
        let sets: Vec<String> = self.sets.iter().chain(more).cloned().collect();
        match &self.base {
            Base::Default => Experiment::default_with(&sets),
            Base::File(path) => Experiment::load(path, &sets),
            Base::Text { text, origin, folder } => {
                let mut experiment =
                    Experiment::parse(text, &sets).map_err(|error| error.within(origin))?;
                experiment.folder.clone_from(folder);
                Ok(experiment)
            }
        }
    }

    /// Remembers the files that it reads, before it runs ([`Experiment::note_files`]). What is
    /// wrong with it is found when it runs.
    pub(crate) fn note_files(&self) {
        if let Ok(experiment) = self.experiment(&[]) {
            experiment.note_files();
        }
    }
}

/// Refuses unknown kinds, and constants that the rule or the compressor of an experiment does not
/// have.
///
/// # Errors
/// Names the first one, and the nearest known name.
pub(crate) fn check_constants(experiment: &Experiment) -> Result<(), ConfigError> {
    let kind =
        |table: &toml::Table| table.get("kind").and_then(toml::Value::as_str).map(String::from);
    if let Some(kind) = kind(&experiment.rule) {
        check_keys("rule", &experiment.rule, rule::find(&kind)?.constants)?;
    }
    let kind = kind(&experiment.compressor).unwrap_or_default();
    if let Some(entry) = COMPRESSORS.iter().find(|entry| entry.name == kind) {
        check_keys("compressor", &experiment.compressor, entry.constants)?;
    }
    Ok(())
}

fn check_keys(
    section: &str,
    table: &toml::Table,
    constants: &[(&str, &str)],
) -> Result<(), ConfigError> {
    let known: Vec<&str> =
        std::iter::once("kind").chain(constants.iter().map(|(name, _)| *name)).collect();
    match table.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some((key, value)) => {
            let hint = config::hint(key, known.iter().copied());
            let problem = format!("there is no such constant; expected {}{hint}", known.join(", "));
            Err(ConfigError::new(format!("{section}.{key}"), value, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_its_base_with_settings() {
        let sets = ["run.rounds=7".to_string()];
        let case = Case { name: "c".into(), base: Base::Default, sets: sets.to_vec() };
        assert_eq!(case.experiment(&["run.rounds=9".into()]).unwrap().run.rounds, 9);
        let text = Base::Text {
            text: "[run]\nroundz = 3\n".into(),
            origin: "s.toml".into(),
            folder: "x".into(),
        };
        let error = Case { base: text, ..case }.experiment(&[]).unwrap_err().to_string();
        assert!(error.starts_with("s.toml: run.roundz"), "{error}");
    }
}
