//! `gradvine study`

use std::{
    collections::BTreeMap,
    env, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use gradvine::{config::ConfigError, data::write_atomically};
use gradvine_study::{Bench, Check, Outcome, Study, Verdict, chart, index, judge, page};

use super::{Exit, compare::jobs, interrupt::Interrupt, run_args::quoted, tally::Tally};

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
    let mut studies = args.load()?;
    let folders = args.folders()?;
    let missing: Vec<Option<String>> =
        studies.iter_mut().map(|study| fill(study, &folders)).collect();
    if args.quick {
        studies.iter_mut().try_for_each(Study::shorten)?;
    }
    let interrupt = Interrupt::install()?;
    let mut judged: Vec<(&Study, Option<Vec<Check>>)> = Vec::new();
    for (study, missing) in studies.iter().zip(missing) {
        if let Some(why) = missing.filter(|_| study.not_shown.is_none() && args.is_chosen(study)) {
            if !args.quiet {
                super::print(&format!("{}: skipped: {why}\n", study.name))?;
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
            args.write(out, study, &outcomes, &checks)?;
        }
        if let Some(folder) = &args.experiments {
            export(folder, study, &outcomes)?;
        }
        if !args.quiet {
            super::print(&listed(study, &checks))?;
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

/// Sets the folder of a study's data; returns the reason if the study cannot run.
fn fill(study: &mut Study, folders: &BTreeMap<String, PathBuf>) -> Option<String> {
    let needs = study.needs.clone()?;
    let named =
        format!("--data {0}=DIR or {1} in the environment", needs.name, variable(&needs.name));
    let Some(folder) = folders
        .get(&needs.name)
        .cloned()
        .or_else(|| env::var_os(variable(&needs.name)).map(Into::into))
    else {
        return Some(format!(
            "it needs {} in a folder: name it by {named}",
            needs.files.join(", ")
        ));
    };
    if let Some(file) = needs.files.iter().find(|file| !folder.join(file).is_file()) {
        return Some(format!(
            "{} does not exist: name its folder by {named}",
            folder.join(file).display()
        ));
    }
    // Relative to the working directory, not to the study.
    study.fill(&std::path::absolute(&folder).unwrap_or(folder));
    None
}

/// The environment variable that names the folder of a data set.
fn variable(name: &str) -> String {
    format!("GRADVINE_{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// Writes each row that can run as an experiment file.
fn export(folder: &Path, study: &Study, outcomes: &[Outcome]) -> Result<(), Exit> {
    let wrong = |error: std::io::Error| {
        ConfigError::new("--experiments", folder.display(), format!("cannot be written: {error}"))
    };
    fs::create_dir_all(folder).map_err(wrong)?;
    for (number, outcome) in (1..).zip(outcomes) {
        let mut sets = outcome.tuned.as_ref().map_or_else(Vec::new, |tuned| tuned.chosen.clone());
        sets.push(format!("run.seed={}", study.seed));
        let Ok(experiment) = outcome.case.experiment(&sets) else { continue };
        let words = outcome
            .case
            .name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty());
        let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
        let file = folder.join(format!("{}-{number:02}-{name}.toml", study.name));
        write_atomically(&file, &[experiment.moved().to_toml().as_bytes()])?;
    }
    Ok(())
}

/// The lines printed for a study.
fn listed(study: &Study, checks: &[Check]) -> String {
    let mut text = format!("{}: {}\n", study.name, study.title);
    for check in checks {
        let word = match check.verdict {
            Verdict::Agrees => "agrees        ",
            Verdict::Contradicted => "DOES NOT AGREE",
            Verdict::Undecided => "UNDECIDED     ",
            Verdict::NoEvidence => "NO EVIDENCE   ",
        };
        text += &format!(
            "  {word} {}: {}\n",
            check.words.split_whitespace().collect::<Vec<_>>().join(" "),
            check.figures
        );
    }
    text
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

    fn load(&self) -> Result<Vec<Study>, Exit> {
        let mut files = Vec::new();
        for path in &self.studies {
            let wrong = |problem: String| ConfigError::new("STUDIES", path.display(), problem);
            if !path.exists() {
                return Err(wrong(
                    "does not exist: expected study files (.toml) or folders of them".into(),
                )
                .into());
            }
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            let entries =
                fs::read_dir(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
            let mut inside: Vec<PathBuf> =
                entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            inside.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
            inside.sort();
            if inside.is_empty() {
                return Err(wrong("holds no study file (.toml)".into()).into());
            }
            files.extend(inside);
        }
        let name = |path: &Path| {
            path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let names: Vec<String> = files.iter().map(|path| name(path)).collect();
        if let Some(missing) = self.only.iter().find(|only| !names.contains(only)) {
            let problem = format!("there is no such study; there are {}", names.join(", "));
            return Err(ConfigError::new("--only", missing, problem).into());
        }
        if let Some(twice) = names
            .iter()
            .enumerate()
            .find_map(|(at, name)| names[..at].contains(name).then_some(name))
        {
            return Err(ConfigError::new(
                "STUDIES",
                twice,
                "two study files have this name, and pages are named by it",
            )
            .into());
        }
        Ok(files.iter().map(|path| Study::load(path)).collect::<Result<_, _>>()?)
    }

    /// Whether to run a study; the list keeps the lines of the others.
    fn is_chosen(&self, study: &Study) -> bool {
        self.only.is_empty() || self.only.contains(&study.name)
    }

    /// Writes a study's page and pictures.
    fn write(
        &self,
        out: &Path,
        study: &Study,
        outcomes: &[Outcome],
        checks: &[Check],
    ) -> Result<(), Exit> {
        let wrong = |error: std::io::Error| {
            ConfigError::new("--out", out.display(), format!("cannot be written: {error}"))
        };
        fs::create_dir_all(out.join("results")).map_err(wrong)?;
        fs::create_dir_all(out.join("img/results")).map_err(wrong)?;
        let mut pictures = Vec::new();
        for (number, picture) in study.picture.iter().enumerate() {
            let chosen: Vec<(&str, &Outcome)> = (outcomes.iter())
                .map(|outcome| (outcome.case.name.as_str(), outcome))
                .filter(|(name, _)| {
                    picture.rows.is_empty() || picture.rows.iter().any(|row| row == name)
                })
                .collect();
            let file = format!("img/results/{}-{}.svg", study.name, number + 1);
            let drawn = chart(&picture.title, &picture.words, picture.curve(), &chosen).svg();
            write_atomically(&out.join(&file), &[drawn.as_bytes()])?;
            pictures.push(format!("../{file}"));
        }
        let text = page(
            study,
            outcomes,
            checks,
            &pictures,
            &self.again(std::slice::from_ref(&study.path), Some(study)),
            self.quick,
        );
        write_atomically(&out.join(format!("results/{}.md", study.name)), &[text.as_bytes()])?;
        Ok(())
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
