//! An experiment that differs from a base in some settings.

use std::path::PathBuf;

use gradvine::{
    compress::COMPRESSORS,
    config::{self, ConfigError},
    experiment::Experiment,
    gossip::rule,
};

/// The base of cases.
#[derive(Clone, Debug)]
pub enum Base {
    /// The default experiment.
    Default,
    /// An experiment file.
    File(PathBuf),
    /// A text, with the name of its file and the folder of its relative paths.
    Text {
        /// TOML.
        text: String,
        /// The name in errors.
        origin: String,
        /// The folder of relative paths.
        folder: PathBuf,
    },
}

/// One combination to run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Its base.
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

/// A rule or compressor by name, with constants: `top-k:fraction=0.01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its `kind`.
    pub kind: String,
    /// `key=value` in the order given.
    pub constants: Vec<String>,
}

impl Pick {
    /// Its settings in a section: the kind, then the constants.
    pub fn sets(&self, section: &str) -> Vec<String> {
        let kind = format!("{section}.kind={}", self.kind);
        std::iter::once(kind)
            .chain(self.constants.iter().map(|constant| format!("{section}.{constant}")))
            .collect()
    }

    /// The section as a table, for checks.
    ///
    /// # Errors
    /// If a constant cannot be set.
    pub fn table(&self, section: &str) -> Result<toml::Table, ConfigError> {
        let sets = self.sets(section);
        let experiment = Experiment::parse("", &sets)?;
        Ok(if section == "rule" { experiment.rule } else { experiment.compressor })
    }
}

impl std::fmt::Display for Pick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        self.constants.iter().try_for_each(|constant| write!(f, " {constant}"))
    }
}

/// Reads a list such as `dcd,choco:gamma=0.3,d-psgd:order=cta`: commas separate items; colons or
/// blanks separate a kind and its constants. Commas and colons in brackets or quotes belong to the
/// value.
///
/// # Errors
/// If an item is empty or a constant is not `key=value`.
///
/// ```
/// let list = "min-max:bits=4,top-k fraction=0.01";
/// let picks = gradvine_study::picks("--compressors", list).unwrap();
/// assert_eq!(picks[1].to_string(), "top-k fraction=0.01");
/// assert_eq!(picks[0].sets("compressor"), ["compressor.kind=min-max", "compressor.bits=4"]);
/// ```
pub fn picks(place: &str, list: &str) -> Result<Vec<Pick>, ConfigError> {
    let wrong = |item: &str| {
        let problem =
            "expected names with constants after colons, apart by commas: top-k:fraction=0.01,sign";
        ConfigError::new(place, format!("\"{item}\""), problem)
    };
    let mut found = Vec::new();
    for item in cut(list, &[',']) {
        let mut words = cut(&item, &[':', ' ']).into_iter().filter(|word| !word.is_empty());
        let kind = words.next().filter(|kind| !kind.contains('=')).ok_or_else(|| wrong(&item))?;
        let constants: Vec<String> = words.collect();
        if let Some(word) =
            constants.iter().find(|word| word.split_once('=').is_none_or(|(key, _)| key.is_empty()))
        {
            return Err(wrong(word));
        }
        found.push(Pick { kind, constants });
    }
    Ok(found)
}

/// Splits a text at these characters, except inside brackets or quotes, and trims the parts.
pub(super) fn cut(text: &str, at: &[char]) -> Vec<String> {
    let (mut parts, mut part, mut depth, mut quote) = (Vec::new(), String::new(), 0u32, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 && at.contains(&c) => {
                parts.push(std::mem::take(&mut part).trim().to_string());
                continue;
            }
            (None, _) => {}
        }
        part.push(c);
    }
    parts.push(part.trim().to_string());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_between_values() {
        assert_eq!(cut("a=[1, 2],b='x,y', c", &[',']), ["a=[1, 2]", "b='x,y'", "c"]);
        let found = picks("--rules", "choco:gamma=0.3:order=iclr, dcd").unwrap();
        assert_eq!(found[0].constants, ["gamma=0.3", "order=iclr"]);
        assert_eq!(found[1], Pick { kind: "dcd".into(), constants: Vec::new() });
        for text in ["", "a,,b", "gamma=3", "choco:gamma", "choco:=3"] {
            let error = picks("--rules", text).unwrap_err().to_string();
            assert!(
                error.starts_with("--rules = \"") && error.contains("apart by commas"),
                "{text}: {error}"
            );
        }
    }

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
