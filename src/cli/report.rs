//! `gradvine report`

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use gradvine::{
    config::ConfigError,
    data::write_atomically,
    report::{MARK, page},
    run::Run,
    units::Bytes,
};

use super::Exit;

/// The arguments of `gradvine report`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine report runs/first                          report.html in this folder
  gradvine report runs/* --out comparison.html        all of these beside each other
  gradvine report runs/first runs/second --figures figures
  gradvine report runs/first --unfinished             while it runs, or after it was killed

Run directories are what train, node and simulate write. The page holds everything that it shows: \
                        no network, no scripts, no other files; it
follows light and dark, and prints. Behind every picture stands a table of its figures.

A report that is there already is overwritten, and so are figures of the same names; any other \
                        file at --out is left as it is and refused.")]
pub struct Args {
    /// Run directories, in the order in which they are to be shown
    #[arg(required = true, value_name = "RUN_DIR")]
    runs: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// A folder for each picture as an SVG file of its own; may exist
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Take runs without summary.json as far as they are
    #[arg(long)]
    unfinished: bool,
    /// No word of what was written: only errors
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
        super::print(&format!(
            "{}: {}, {}, {}{folder}\n",
            args.out.display(),
            Bytes(page.html.len() as u64),
            plural(count, "run"),
            plural(page.figures.len(), "picture"),
        ))?;
    }
    Ok(())
}

/// Whether the page may be written there: nothing is lost by replacing an earlier one.
fn replaceable(out: &Path) -> Result<(), ConfigError> {
    let refuse = |why: &str| Err(ConfigError::new("--out", out.display(), why));
    if out.is_dir() {
        return refuse("is a folder; name a file, such as report.html");
    }
    let Ok(file) = File::open(out) else { return Ok(()) };
    let mut begin = Vec::new();
    let read = file.take(MARK.len() as u64).read_to_end(&mut begin);
    if read.is_err() || (!begin.is_empty() && begin != MARK.as_bytes()) {
        return refuse(
            "is there already and no report of gradvine; name another file, or remove it",
        );
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
