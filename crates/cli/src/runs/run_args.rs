//! The arguments that select an experiment, those of commands that run one, and their common
//! steps before a run.

use std::{path::PathBuf, sync::Arc};

use gradvine::{
    config::ConfigError,
    experiment::{self, Experiment},
    memory,
    run::{DataRecord, EndError, RunDirectory, Whole},
};
use gradvine_processes as processes;
use gradvine_report::command_line;
use gradvine_terminal::{Exit, note_warnings, show_reading, warnings};

/// Selects an experiment: a file and settings.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Selection {
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
pub(crate) struct RunArgs {
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
    /// Whether the run directory is that of a run that continues.
    #[arg(skip)]
    pub resumes: bool,
}

impl Selection {
    pub(crate) fn selection(&self) -> experiment::Selection {
        let Selection { experiment, sets, topology, rounds, seed, init, .. } = self.clone();
        experiment::Selection { experiment, sets, topology, rounds, seed, init }
    }

    /// Reads the experiment, applies all settings, then `change`, loads its data and checks
    /// everything. `quiet`: prints no warnings.
    pub(crate) fn whole(
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
        let named = self.selection();
        let changed = named.read(&[]).map(|mut experiment| {
            change(&mut experiment);
            experiment
        });
        let whole = changed.and_then(Whole::new).map_err(|error| named.blame(error))?;
        if !quiet {
            note_warnings(whole.design.warnings());
        }
        Ok(Arc::new(whole))
    }

    /// The command line that repeats this experiment, without its output options; `set`, if given,
    /// replaces the settings of its key.
    pub(crate) fn again(&self, command: &str, set: Option<&str>) -> String {
        let start = ["gradvine", command].map(String::from);
        command_line(start.into_iter().chain(self.selection().words(set)))
    }
}

impl RunArgs {
    /// The arguments that say what to run.
    pub(crate) const SELECTING: [&'static str; 7] =
        ["experiment", "sets", "topology", "rounds", "seed", "init", "out"];

    /// Continues with the run in this folder.
    pub(crate) fn go_on(&mut self, folder: PathBuf) -> Result<(), ConfigError> {
        processes::check_goes_on(&folder).map_err(|error| error.with_place("--resume"))?;
        self.select.experiment = Some(folder.join("experiment.toml"));
        (self.out, self.resumes) = (Some(folder), true);
        Ok(())
    }

    /// Reads the experiment with all settings applied, loads its data and checks everything.
    pub(crate) fn whole(&self) -> Result<Arc<Whole>, Exit> {
        self.select.whole(self.quiet, |_| ())
    }

    /// Creates the run directory and writes the files that are known before the run.
    pub(crate) fn directory(&self, whole: &Whole) -> Result<RunDirectory, Exit> {
        let design = &whole.design;
        let path = RunDirectory::place(design, self.out.as_deref())?;
        if self.resumes {
            let directory = RunDirectory::go_on(&path)?;
            DataRecord::from(whole).resumed(&path)?;
            return Ok(directory);
        }
        RunDirectory::begin(whole, &path, &warnings()).map_err(|error| match error {
            EndError::Setup(error) if self.out.is_some() => error.with_place("--out").into(),
            EndError::Setup(error) => design.experiment.blame(error).into(),
            error => error.into(),
        })
    }

    /// Whether to print progress and tables.
    pub(crate) fn speaks(&self) -> bool {
        !self.quiet && !self.json
    }
}

/// Parses a whole number between two.
pub(crate) fn between(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
}

/// Parses a whole number from 0, up to TOML's maximum.
pub(crate) fn from_0(text: &str) -> Result<u64, String> {
    between(text, 0, i64::MAX as u64)
}

/// Parses a whole number from 1, up to TOML's maximum.
pub(crate) fn from_1(text: &str) -> Result<u64, String> {
    between(text, 1, i64::MAX as u64)
}
