//! `gradvine study`

use std::{num::NonZeroUsize, path::PathBuf};

use gradvine_study::{Campaign, Following, folder, jobs};
use gradvine_terminal::{Exit, Interrupt, Tally, print};

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
  gradvine study experiments/data --data mnist=DIR --out docs     on files that are not shipped
  gradvine study my-study.toml --quick          a tenth of the rounds, one seed, no tuning

Settings are tuned on three seeds or more, and measured on five others or more. A grid with its best
at the edge is widened, by up to six points. Figures are means with their 95 % interval (Student's
t), rows are compared seed by seed, and an expectation agrees if the whole interval does. A study
whose files are missing is skipped, and its page stays unchanged.

Exit codes: 0 all expectations agree; 1 some do not; 2 a file is wrong; 130 interrupted.")]
pub(crate) struct Args {
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
    /// Keep runs in this folder: a study that was stopped continues there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
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
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let campaign = Campaign {
        studies: args.studies.clone(),
        only: args.only.clone(),
        data: folder::named(&args.data)?,
        out: args.out.clone(),
        experiments: args.experiments.clone(),
        keep: args.keep.clone(),
        quick: args.quick,
        jobs: jobs(args.jobs),
    };
    let loaded = campaign.load()?;
    let interrupt = Interrupt::install()?;
    let tally = Tally::new(!args.quiet);
    let following = Following {
        stop: &|| interrupt.is_set(),
        done: &|done, total, what| tally.show(done, total, what),
        over: &|| tally.finish(),
        say: &|text| if args.quiet { Ok(()) } else { print(text) },
    };
    match campaign.run(&loaded, &following)? {
        0 => Ok(()),
        n => Err(Exit::Disagrees(format!("{n} expectations do not agree with the figures"))),
    }
}
