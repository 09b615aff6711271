//! Studies run one after the other: their pages, the list of them, and what does not agree.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use gradvine::{config::ConfigError, data::write_atomically, run::EndError};
use gradvine_report::command_line;

use crate::{Bench, Check, Outcome, RunCache, Study, Target, folder, index, judge};

/// Studies to run, and where their results go.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Study files, or folders of them.
    pub studies: Vec<PathBuf>,
    /// Only studies with these names, if there are any; the list keeps the lines of the others.
    pub only: Vec<String>,
    /// The folders of data sets that are not shipped, by name.
    pub data: BTreeMap<String, PathBuf>,
    /// The folder for pages and pictures.
    pub out: Option<PathBuf>,
    /// The folder for the rows as experiment files.
    pub experiments: Option<PathBuf>,
    /// A folder for runs, so that a study that was stopped continues.
    pub keep: Option<PathBuf>,
    /// A tenth of the rounds, one seed, no tuning.
    pub quick: bool,
    /// The number of simultaneous runs.
    pub jobs: usize,
}

/// Studies that were read, each with the reason if it cannot run.
pub struct Loaded(Vec<(Study, Option<String>)>);

/// How a campaign is followed.
pub struct Following<'a> {
    /// Returns whether the user has interrupted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Called after every run: runs done, runs of the study known so far, and the name of the last
    /// one.
    pub done: &'a (dyn Fn(usize, usize, &str) + Sync),
    /// Called after the runs of every study.
    pub over: &'a dyn Fn(),
    /// Receives the expectations of every study as text.
    pub say: &'a dyn Fn(&str) -> io::Result<()>,
}

impl Campaign {
    /// Reads the studies and finds their data.
    ///
    /// # Errors
    /// If a file is wrong, or a name of `only` is no study's.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let mut studies = folder::load(&self.studies, &self.only)?;
        let missing: Vec<Option<String>> =
            studies.iter_mut().map(|study| folder::fill(study, &self.data)).collect();
        for study in studies.iter().filter(|study| self.is_chosen(study)) {
            folder::check_outputs(study, self.out.as_deref(), self.experiments.as_deref())?;
        }
        if self.quick {
            studies.iter_mut().try_for_each(Study::shorten)?;
        }
        Ok(Loaded(studies.into_iter().zip(missing).collect()))
    }

    /// Runs the studies, writes their pages and, if a folder was named, the list. Returns how many
    /// expectations do not agree with the figures.
    ///
    /// # Errors
    /// If a file cannot be written, or the user interrupts. The studies before are written.
    pub fn run(&self, loaded: &Loaded, following: &Following<'_>) -> Result<usize, EndError> {
        let kept = self.keep.as_deref().map(RunCache::in_folder).transpose()?;
        let mut judged: Vec<(&Study, Option<Vec<Check>>)> = Vec::new();
        for (study, missing) in &loaded.0 {
            let checks = match (self.is_chosen(study), missing) {
                (true, Some(why)) => {
                    (following.say)(&format!("{}: skipped: {why}\n", study.name))?;
                    None
                }
                (true, None) => Some(self.judge(study, kept.as_ref(), following)?),
                (false, _) => None,
            };
            judged.push((study, checks));
        }
        if let (Some(out), true) = (&self.out, self.studies.iter().any(|path| path.is_dir())) {
            self.write_list(out, &judged)?;
        }
        let checks = judged.iter().filter_map(|(_, checks)| checks.as_ref()).flatten();
        Ok(checks.filter(|check| !check.agrees()).count())
    }

    /// Whether to run a study.
    fn is_chosen(&self, study: &Study) -> bool {
        study.not_shown.is_none() && (self.only.is_empty() || self.only.contains(&study.name))
    }

    /// Runs a study, and writes its page.
    fn judge(
        &self,
        study: &Study,
        kept: Option<&RunCache>,
        following: &Following<'_>,
    ) -> Result<Vec<Check>, EndError> {
        let outcomes = self.outcomes(study, kept, following)?;
        let rows: Vec<(&str, &Outcome)> =
            outcomes.iter().map(|outcome| (outcome.case.name.as_str(), outcome)).collect();
        let checks = judge(&study.expect, &rows, study.rounds_to.as_ref());
        if let Some(out) = &self.out {
            let again = self.again(std::slice::from_ref(&study.path), Some(study));
            folder::write(out, study, &outcomes, &checks, &again, self.quick)?;
        }
        if let Some(into) = &self.experiments {
            folder::export(into, study, &outcomes)?;
        }
        (following.say)(&folder::listed(study, &checks))?;
        Ok(checks)
    }

    /// Runs the rows of a study, each with its tuning, and returns what they did.
    fn outcomes(
        &self,
        study: &Study,
        kept: Option<&RunCache>,
        following: &Following<'_>,
    ) -> Result<Vec<Outcome>, EndError> {
        let outcomes = Bench {
            seeds: study.measured(),
            tuning_seeds: study.tuned_on(),
            finalists: study.finalists,
            goal: study.rounds_to.filter(|_| study.tune_to_target),
            until: until(study),
            jobs: self.jobs,
            optimum: study.wants_optimum(),
            kept,
            stop: following.stop,
            done: &|done, total, what| {
                (following.done)(done, total, &format!("{}: {what}", study.name));
            },
        }
        .run(&study.rows);
        (following.over)();
        if (following.stop)() {
            return Err(EndError::Interrupted(
                format!("stopped in study {}; the studies before it are written", study.name)
                    .into(),
            ));
        }
        Ok(outcomes)
    }

    /// Writes the list of all studies.
    fn write_list(
        &self,
        out: &Path,
        judged: &[(&Study, Option<Vec<Check>>)],
    ) -> Result<(), ConfigError> {
        let file = out.join(folder::LIST);
        fs::create_dir_all(out)
            .map_err(|error| ConfigError::new("--out", out.display(), error.to_string()))?;
        let before = fs::read_to_string(&file).unwrap_or_default();
        let text = index(judged, &before, &self.again(&self.studies, None), self.quick);
        Ok(write_atomically(&file, &[text.as_bytes()])?)
    }

    /// The command that makes the page of one study, or the list. Folders of data differ per
    /// reader.
    fn again(&self, studies: &[PathBuf], study: Option<&Study>) -> String {
        let mut words = vec!["gradvine".into(), "study".into()];
        words.extend(studies.iter().map(|path| path.display().to_string()));
        let needs = study.and_then(|study| study.needs.as_ref());
        words.extend(
            needs.iter().flat_map(|needs| ["--data".into(), format!("{}=DIR", needs.name)]),
        );
        if self.quick {
            words.push("--quick".into());
        }
        words.extend(self.out.iter().flat_map(|out| ["--out".into(), out.display().to_string()]));
        command_line(words)
    }
}

/// Where a study's runs end early, if they do.
fn until(study: &Study) -> Option<Target> {
    let target = study.rounds_to?;
    let other = study.stop_at.map(|value| Target { value, ..target });
    other.or_else(|| study.stop_at_target.then_some(target))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const STUDY: &str = "title='A ring agrees'\npaper='p'\nclaim='c'\nsetting='s'\nseeds=1\n\
                         single='a test'\ncolumns=['train_loss']\nset=['run.rounds=2']\n\
                         [[row]]\nname='ring'\nset=['topology=ring:3']\n\
                         [[expect]]\nrow='ring'\nstatus='diverged'\nwords='It does not.'\n";

    #[test]
    fn runs_end_at_the_target_or_at_another_value() {
        let folder = tempfile::tempdir().unwrap();
        let end = |more: &str| {
            let target = "rounds_to = { metric = 'train_loss', value = 0.1 }";
            let (path, text) = (folder.path().join("s.toml"), format!("{target}\n{more}\n{STUDY}"));
            fs::write(&path, text).unwrap();
            until(&Study::load(&path).unwrap()).map(|target| target.value)
        };
        assert_eq!(end(""), None);
        assert_eq!(end("stop_at_target = true"), Some(0.1));
        assert_eq!(end("stop_at = 0.05"), Some(0.05));
    }

    #[test]
    fn only_chosen_studies_run_and_each_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["first", "second"] {
            fs::write(folder.path().join(format!("{name}.toml")), STUDY).unwrap();
        }
        let campaign = Campaign {
            studies: vec![folder.path().to_path_buf()],
            only: vec!["second".into()],
            out: Some(folder.path().join("docs")),
            jobs: 1,
            ..Campaign::default()
        };
        let said = Mutex::new(String::new());
        let say = |text: &str| {
            *said.lock().unwrap() += text;
            Ok(())
        };
        let never = || false;
        let following = Following { stop: &never, done: &|_, _, _| {}, over: &|| (), say: &say };
        let loaded = campaign.load().unwrap();
        assert_eq!(campaign.run(&loaded, &following).unwrap(), 1, "it does not diverge");
        let said = said.lock().unwrap().clone();
        assert!(said.starts_with("second: A ring agrees"), "{said}");
        let page = |name: &str| folder.path().join(format!("docs/results/{name}.md"));
        assert!(page("second").is_file() && !page("first").exists());
        let stopped = Following { stop: &|| true, ..following };
        let error = campaign.run(&loaded, &stopped).unwrap_err().to_string();
        assert_eq!(error, "stopped in study second; the studies before it are written");
    }
}
