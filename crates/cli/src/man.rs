//! `gradvine man`

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use clap_mangen::Man;

use gradvine::config::ConfigError;
use gradvine_terminal::{Exit, print};

use crate::Cli;

/// The arguments of `gradvine man`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine man ~/.local/share/man/man1        then: man gradvine-train\n  \
    gradvine man pages && man -l pages/gradvine.1\n\n\
    Pages that are there already are replaced.")]
pub(crate) struct Args {
    /// The folder to write the pages to; it is made if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let folder = &args.folder;
    let wrong = |problem: String| ConfigError::new("DIR", folder.display(), problem);
    if folder.exists() && !folder.is_dir() {
        let problem = "is a file; expected a folder, or a name for a new one";
        return Err(wrong(problem.into()).into());
    }
    fs::create_dir_all(folder).map_err(|error| wrong(format!("cannot be made: {error}")))?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut written = 0;
    write(&command, folder, &mut written)
        .map_err(|error| wrong(format!("a page cannot be written: {error}")))?;
    let first = folder.join("gradvine.1");
    Ok(print(&format!("{written} pages: {} and those of its commands\n", first.display()))?)
}

/// Writes the page of a command and of all below it, and counts them.
fn write(command: &clap::Command, folder: &Path, written: &mut usize) -> std::io::Result<()> {
    Man::new(command.clone()).generate_to(folder)?;
    *written += 1;
    let mut below = command.get_subcommands().filter(|one| !one.is_hide_set());
    below.try_for_each(|one| write(one, folder, written))
}
