//! `gradvine report`

use std::path::PathBuf;

use gradvine_report::{Loaded, check_named_once, check_replaceable, page};
use gradvine_terminal::{Exit, note, print};

/// The arguments of `gradvine report`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine report runs/first                          report.html in this folder
  gradvine report runs/* --out comparison.html        all of these compared
  gradvine report runs/first runs/second --figures figures
  gradvine report runs/first --unfinished             while it runs: no warning that it does

Run directories are written by train, node and simulate. The page is the one that a node serves
while it trains, with the data inside: it needs no network and no other file. It has a light and a
dark style, and prints. Of several runs it shows all compared, and each one by choice; runs that
differ in their seeds only are one line with a 95 % interval.

An existing report is overwritten, and so are pictures with the same names; any other file at --out
is refused. All values of the curves: gradvine export RUN_DIR --to csv")]
pub(crate) struct Args {
    /// Run directories, in the order of the report
    #[arg(required = true, value_name = "RUN_DIR")]
    runs: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// A folder for the curves as SVG files; may exist
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Do not warn of runs that are not over, and are shown as far as they have come
    #[arg(long)]
    unfinished: bool,
    /// Do not print what was written: only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Reads all runs, then writes the page and the pictures.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    check_named_once(&args.runs)?;
    check_replaceable(&args.out)?;
    let runs: Vec<Loaded> =
        args.runs.iter().map(|path| Loaded::load(path)).collect::<Result<_, _>>()?;
    for warning in runs.iter().filter(|_| !args.unfinished).filter_map(Loaded::warning) {
        note!("warning: {warning}");
    }
    let page = page(runs);
    page.write(&args.out, args.figures.as_deref())?;
    if !args.quiet {
        print(&page.written(&args.out, args.figures.as_deref()))?;
    }
    Ok(())
}
