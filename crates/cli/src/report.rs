//! `gradvine report`

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use gradvine::{config::ConfigError, data::write_atomically, run::Run, units::Bytes};
use gradvine_report::{MARK, page};
use gradvine_terminal::print;

use super::Exit;

/// The arguments of `gradvine report`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine report runs/first                          report.html in this folder
  gradvine report runs/* --out comparison.html        all of these compared
  gradvine report runs/first runs/second --figures figures
  gradvine report runs/first --unfinished             while it runs, or after it was killed

Run directories are written by train, node and simulate. The page contains everything that it shows:
no network, no scripts, no other files; it has a light and a dark style, and prints. A table of its
figures follows every picture.

An existing report is overwritten, and so are figures with the same names; any other file at --out
is refused.")]
pub struct Args {
    /// Run directories, in the order of the report
    #[arg(required = true, value_name = "RUN_DIR")]
    runs: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// A folder for the pictures as single SVG files; may exist
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Accept runs without summary.json, as far as they have come
    #[arg(long)]
    unfinished: bool,
    /// Do not print what was written: only errors
    #[arg(long, short)]
    quiet: bool,
}

/// Reads all runs, then writes the page and the pictures.
pub fn run(args: &Args) -> Result<(), Exit> {
    let mut known = BTreeSet::new();
    for path in &args.runs {
        if !known.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            return Err(ConfigError::new(
                "RUN_DIR",
                path.display(),
                "is named twice; name each run once",
            )
            .into());
        }
    }
    replaceable(&args.out)?;
    let runs = args
        .runs
        .iter()
        .map(|path| Run::load(path, args.unfinished))
        .collect::<Result<Vec<Run>, _>>()?;
    let count = runs.len();
    let page = page(runs);
    make(args.out.parent(), "--out")?;
    write_atomically(&args.out, &[page.html.as_bytes()])?;
    if let Some(folder) = &args.figures {
        make(Some(folder), "--figures")?;
        for figure in &page.figures {
            write_atomically(&folder.join(format!("{}.svg", figure.id)), &[figure.svg.as_bytes()])?;
        }
    }
    if !args.quiet {
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let folder = args
            .figures
            .as_ref()
            .map_or_else(String::new, |folder| format!(", also in {}", folder.display()));
        print(&format!(
            "{}: {}, {}, {}{folder}\n",
            args.out.display(),
            Bytes(page.html.len() as u64),
            plural(count, "run"),
            plural(page.figures.len(), "picture"),
        ))?;
    }
    Ok(())
}

/// Checks that the file does not exist or is an earlier report.
fn replaceable(out: &Path) -> Result<(), ConfigError> {
    let refuse = |why: &str| Err(ConfigError::new("--out", out.display(), why));
    if out.is_dir() {
        return refuse("is a folder; name a file, such as report.html");
    }
    let Ok(file) = File::open(out) else { return Ok(()) };
    let mut begin = Vec::new();
    let read = file.take(MARK.len() as u64).read_to_end(&mut begin);
    if read.is_err() || (!begin.is_empty() && begin != MARK.as_bytes()) {
        return refuse("exists and is not a report of gradvine; name another file, or remove it");
    }
    Ok(())
}

fn make(folder: Option<&Path>, flag: &str) -> Result<(), ConfigError> {
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    fs::create_dir_all(folder).map_err(|error| {
        ConfigError::new(flag, folder.display(), format!("the folder cannot be made: {error}"))
    })
}
