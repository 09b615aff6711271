//! `gradvine completions`

use clap::CommandFactory;

use gradvine_terminal::{Exit, print};

use crate::Cli;

/// The arguments of `gradvine completions`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine completions bash > ~/.local/share/bash-completion/completions/gradvine\n  \
    gradvine completions zsh > ~/.zfunc/_gradvine\n  \
    gradvine completions fish > ~/.config/fish/completions/gradvine.fish")]
pub(crate) struct Args {
    /// bash, zsh, fish, elvish or powershell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gradvine", &mut script);
    Ok(print(&String::from_utf8_lossy(&script))?)
}
