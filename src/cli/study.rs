//! `gradvine study`

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use gradvine::{
    config::ConfigError,
    data::write_atomically,
    study::{Bench, Check, Outcome, Study, chart, index, judge, page},
};

use super::{Exit, compare::jobs, interrupt::Interrupt, run_args::quoted, tally::Tally};

/// Seeds of tuning begin here above a study's first.
const TUNING: u64 = 1000;

/// The arguments of `gradvine study`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A study file says what a paper claims, which rows try it, what is drawn and what is expected of the figures: see experiments/paper.
The pages go to OUT/results/NAME.md with a list of them in OUT/results.md, pictures to OUT/img/results. They hold no dates and no wall
times: the same command on the same machine gives the same bytes.

Examples:
  gradvine study experiments/paper experiments/world --out docs
  gradvine study experiments/paper --only naive-stalls --out docs     this one's page; the list stays as it is
  gradvine study experiments/world/four-regions.toml --experiments rows    its rows, for `gradvine lab rows/...toml`
  gradvine study my-study.toml --quick                                a tenth of the rounds, one seed, no tuning

Exit codes: 0 all expectations agree; 1 some do not; 2 a file is wrong; 130 interrupted.")]
pub struct Args {
    /// Study files, or folders of them
    #[arg(required = true)]
    studies: Vec<PathBuf>,
    /// The folder for the report [default: only what agrees is printed]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write each row as an experiment, tuned, with the first seed, into this folder: for `gradvine lab`, `plan`, `train`
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
    /// Only the studies of these names; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A tenth of the rounds, one seed, no tuning; the report says so
    #[arg(long)]
    quick: bool,
    /// Runs at a time [default: one a processor]
    #[arg(long, value_name = "NUMBER", alias = "threads")]
    jobs: Option<NonZeroUsize>,
    /// No progress, no list: only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Runs studies, writes their pages, and says what agrees.
pub fn run(args: &Args) -> Result<(), Exit> {
    let mut studies = args.load()?;
    if args.quick {
        studies.iter_mut().try_for_each(Study::quicken)?;
    }
    let interrupt = Interrupt::install()?;
    let mut judged: Vec<(&Study, Vec<Check>)> = Vec::new();
    for study in &studies {
        let tally = Tally::new(!args.quiet);
        let stop = || interrupt.is_set();
        let outcomes = Bench {
            seeds: (study.seed..study.seed + study.seeds).collect(),
            tuning_seed: study.seed + TUNING,
            goal: study.rounds_to.filter(|_| study.tune_to_target),
            jobs: jobs(args.jobs),
            optimum: study.wants_optimum(),
            stop: &stop,
            done: &|done, total, what| tally.show(done, total, &format!("{}: {what}", study.name)),
        }
        .run(&study.rows);
        tally.finish();
        if interrupt.is_set() {
            return Err(Exit::Interrupted(format!("stopped in study {}; what was done before is written", study.name)));
        }
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
        judged.push((study, checks));
    }
    if let (Some(out), true) = (&args.out, args.only.is_empty() && args.studies.iter().any(|path| path.is_dir())) {
        write_atomically(
            &out.join("results.md"),
            &[index(&judged, &args.again(&args.studies), args.quick).as_bytes()],
        )?;
    }
    let wrong = judged.iter().flat_map(|(_, checks)| checks).filter(|check| !check.agrees).count();
    if wrong > 0 { Err(Exit::Disagrees(format!("{wrong} expectations do not agree with the figures"))) } else { Ok(()) }
}

/// Each row that can be run as an experiment file.
fn export(folder: &Path, study: &Study, outcomes: &[Outcome]) -> Result<(), Exit> {
    let wrong = |error: std::io::Error| {
        ConfigError::new("--experiments", folder.display(), format!("cannot be written: {error}"))
    };
    fs::create_dir_all(folder).map_err(wrong)?;
    for (number, outcome) in (1..).zip(outcomes) {
        let mut sets = outcome.tuned.as_ref().map_or_else(Vec::new, |tuned| tuned.chosen.clone());
        sets.push(format!("run.seed={}", study.seed));
        let Ok(experiment) = outcome.case.experiment(&sets) else { continue };
        let words = outcome.case.name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
        let file = folder.join(format!("{}-{number:02}-{name}.toml", study.name));
        write_atomically(&file, &[experiment.moved().to_toml().as_bytes()])?;
    }
    Ok(())
}

/// What a person sees of a study.
fn listed(study: &Study, checks: &[Check]) -> String {
    let mut text = format!("{}: {}\n", study.name, study.title);
    for check in checks {
        let word = if check.agrees { "agrees       " } else { "DOES NOT AGREE" };
        text +=
            &format!("  {word} {}: {}\n", check.words.split_whitespace().collect::<Vec<_>>().join(" "), check.figures);
    }
    text
}

impl Args {
    fn load(&self) -> Result<Vec<Study>, Exit> {
        let mut files = Vec::new();
        for path in &self.studies {
            let wrong = |problem: String| ConfigError::new("STUDIES", path.display(), problem);
            if !path.exists() {
                return Err(wrong("is not there: expected study files (.toml) or folders of them".into()).into());
            }
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            let entries = fs::read_dir(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
            let mut inside: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            inside.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
            inside.sort();
            if inside.is_empty() {
                return Err(wrong("holds no study file (.toml)".into()).into());
            }
            files.extend(inside);
        }
        let name = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let names: Vec<String> = files.iter().map(|path| name(path)).collect();
        if let Some(missing) = self.only.iter().find(|only| !names.contains(only)) {
            let problem = format!("there is no such study; there are {}", names.join(", "));
            return Err(ConfigError::new("--only", missing, problem).into());
        }
        if let Some(twice) = names.iter().enumerate().find_map(|(at, name)| names[..at].contains(name).then_some(name))
        {
            return Err(ConfigError::new(
                "STUDIES",
                twice,
                "two study files have this name, and pages are named by it",
            )
            .into());
        }
        files.retain(|path| self.only.is_empty() || self.only.contains(&name(path)));
        Ok(files.iter().map(|path| Study::load(path)).collect::<Result<_, _>>()?)
    }

    /// A study's page and pictures.
    fn write(&self, out: &Path, study: &Study, outcomes: &[Outcome], checks: &[Check]) -> Result<(), Exit> {
        let wrong =
            |error: std::io::Error| ConfigError::new("--out", out.display(), format!("cannot be written: {error}"));
        fs::create_dir_all(out.join("results")).map_err(wrong)?;
        fs::create_dir_all(out.join("img/results")).map_err(wrong)?;
        let mut pictures = Vec::new();
        for (number, picture) in study.picture.iter().enumerate() {
            let chosen: Vec<(&str, &Outcome)> = (outcomes.iter())
                .map(|outcome| (outcome.case.name.as_str(), outcome))
                .filter(|(name, _)| picture.rows.is_empty() || picture.rows.iter().any(|row| row == name))
                .collect();
            let file = format!("img/results/{}-{}.svg", study.name, number + 1);
            let drawn = chart(&picture.title, &picture.words, picture.curve(), &chosen).svg();
            write_atomically(&out.join(&file), &[drawn.as_bytes()])?;
            pictures.push(format!("../{file}"));
        }
        let text = page(study, outcomes, checks, &pictures, &self.again(std::slice::from_ref(&study.path)), self.quick);
        write_atomically(&out.join(format!("results/{}.md", study.name)), &[text.as_bytes()])?;
        Ok(())
    }

    /// The command that makes the page of one study, or the list.
    fn again(&self, studies: &[PathBuf]) -> String {
        let mut words = vec!["gradvine".into(), "study".into()];
        words.extend(studies.iter().map(|path| path.display().to_string()));
        if self.quick {
            words.push("--quick".into());
        }
        words.extend(self.out.iter().flat_map(|out| ["--out".into(), out.display().to_string()]));
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}
