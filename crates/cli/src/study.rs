//! `gradvine study`

use std::{collections::BTreeMap, fs, num::NonZeroUsize, path::PathBuf};

use gradvine::{config::ConfigError, data::write_atomically};
use gradvine_study::{Bench, Check, Outcome, Study, folder, index, judge};
use gradvine_terminal::{Interrupt, Tally, print};

use super::{Exit, compare::jobs, run_args::quoted};

/// The arguments of `gradvine study`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A study file states a paper's claim, the rows that test it, the pictures and the expected figures:
see experiments/paper. The pages go to OUT/results/NAME.md, their list to OUT/results.md, pictures
to OUT/img/results. They contain no dates and no wall times: the same command on the same machine
gives the same bytes.

Examples:
  gradvine study experiments/paper experiments/world --out docs
  gradvine study experiments/paper --only naive-stalls --out docs     its page and its line \
  in the list
  gradvine study experiments/world/four-regions.toml --experiments rows    its rows, for \
  `gradvine lab rows/...toml`
  gradvine study experiments/data --data mnist=DIR --out docs         studies on files that are \
  not shipped
  gradvine study my-study.toml --quick                                a tenth of the rounds, one \
  seed, no tuning

Settings are tuned on three seeds or more, and measured on five others or more. A grid with its best
at the edge is widened, by up to six points. Figures are means with their 95 % interval (Student's
t), rows are compared seed by seed, and an expectation agrees if the whole interval does. A study
whose files are missing is skipped, and its page stays unchanged.

Exit codes: 0 all expectations agree; 1 some do not; 2 a file is wrong; 130 interrupted.")]
pub struct Args {
    /// Study files, or folders of them
    #[arg(required = true)]
    studies: Vec<PathBuf>,
    /// The folder for the report [default: print only the expectations]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write each row as an experiment file, tuned, with the first seed, into this folder: for
    /// `gradvine lab`, `plan`, `train`
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
    /// Only studies with these names; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The folder of a data set that is not shipped; may be repeated [default: GRADVINE_NAME of the
    /// environment]
    #[arg(long, value_name = "NAME=DIR")]
    data: Vec<String>,
    /// A tenth of the rounds, one seed, no tuning; the report says so
    #[arg(long)]
    quick: bool,
    /// Simultaneous runs [default: one per processor]
    #[arg(long, value_name = "NUMBER", alias = "threads")]
    jobs: Option<NonZeroUsize>,
    /// No progress, no list: only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Runs studies, writes their pages, and prints which expectations agree.
pub fn run(args: &Args) -> Result<(), Exit> {
    let mut studies = folder::load(&args.studies, &args.only)?;
    let folders = args.folders()?;
    let missing: Vec<Option<String>> =
        studies.iter_mut().map(|study| folder::fill(study, &folders)).collect();
    if args.quick {
        studies.iter_mut().try_for_each(Study::shorten)?;
    }
    let interrupt = Interrupt::install()?;
    let mut judged: Vec<(&Study, Option<Vec<Check>>)> = Vec::new();
    for (study, missing) in studies.iter().zip(missing) {
        if let Some(why) = missing.filter(|_| study.not_shown.is_none() && args.is_chosen(study)) {
            if !args.quiet {
                print(&format!("{}: skipped: {why}\n", study.name))?;
            }
            judged.push((study, None));
            continue;
        }
        if study.not_shown.is_some() || !args.is_chosen(study) {
            judged.push((study, None));
            continue;
        }
        let outcomes = args.outcomes(study, &interrupt)?;
        let rows: Vec<(&str, &Outcome)> =
            outcomes.iter().map(|outcome| (outcome.case.name.as_str(), outcome)).collect();
        let checks = judge(&study.expect, &rows, study.rounds_to.as_ref());
        if let Some(out) = &args.out {
            let again = args.again(std::slice::from_ref(&study.path), Some(study));
            folder::write(out, study, &outcomes, &checks, &again, args.quick)?;
        }
        if let Some(into) = &args.experiments {
            folder::export(into, study, &outcomes)?;
        }
        if !args.quiet {
            print(&folder::listed(study, &checks))?;
        }
        judged.push((study, Some(checks)));
    }
    if let (Some(out), true) = (&args.out, args.studies.iter().any(|path| path.is_dir())) {
        let file = out.join("results.md");
        fs::create_dir_all(out)
            .map_err(|error| ConfigError::new("--out", out.display(), error.to_string()))?;
        let before = fs::read_to_string(&file).unwrap_or_default();
        let text = index(&judged, &before, &args.again(&args.studies, None), args.quick);
        write_atomically(&file, &[text.as_bytes()])?;
    }
    let wrong = judged
        .iter()
        .filter_map(|(_, checks)| checks.as_ref())
        .flatten()
        .filter(|check| !check.agrees())
        .count();
    if wrong > 0 {
        Err(Exit::Disagrees(format!("{wrong} expectations do not agree with the figures")))
    } else {
        Ok(())
    }
}

impl Args {
    /// Runs a study's rows.
    fn outcomes(&self, study: &Study, interrupt: &Interrupt) -> Result<Vec<Outcome>, Exit> {
        let tally = Tally::new(!self.quiet);
        let stop = || interrupt.is_set();
        let outcomes = Bench {
            seeds: study.measured(),
            tuning_seeds: study.tuned_on(),
            goal: study.rounds_to.filter(|_| study.tune_to_target),
            until: study.rounds_to.filter(|_| study.stop_at_target),
            jobs: jobs(self.jobs),
            optimum: study.wants_optimum(),
            stop: &stop,
            done: &|done, total, what| tally.show(done, total, &format!("{}: {what}", study.name)),
        }
        .run(&study.rows);
        tally.finish();
        if interrupt.is_set() {
            return Err(Exit::Interrupted(format!(
                "stopped in study {}; the studies before it are written",
                study.name
            )));
        }
        Ok(outcomes)
    }

    /// The folders from `--data`.
    fn folders(&self) -> Result<BTreeMap<String, PathBuf>, ConfigError> {
        let pair = |text: &String| {
            let (name, folder) = text
                .split_once('=')
                .filter(|(name, folder)| !name.is_empty() && !folder.is_empty())?;
            Some((name.to_string(), PathBuf::from(folder)))
        };
        let wrong = |text: &String| {
            ConfigError::new("--data", format!("\"{text}\""), "expected NAME=DIR: mnist=my/mnist")
        };
        self.data.iter().map(|text| pair(text).ok_or_else(|| wrong(text))).collect()
    }

    /// Whether to run a study; the list keeps the lines of the others.
    fn is_chosen(&self, study: &Study) -> bool {
        self.only.is_empty() || self.only.contains(&study.name)
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
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}
