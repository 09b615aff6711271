//! Commands for the sites of one run: they come together, and change it by consent.

pub(crate) mod approve;
pub(crate) mod consent;
pub(crate) mod init;
pub(crate) mod invite;
pub(crate) mod join;
mod place;
mod rows;
pub(crate) mod run;
pub(crate) mod start;
mod watch;

pub(crate) use start::{aside, model_in};

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::PathBuf,
};

use gradvine::config::ConfigError;
use gradvine_enrol::Site;
use gradvine_terminal::Exit;

/// The folder of a site.
#[derive(clap::Args, Debug)]
pub(crate) struct Folder {
    /// The folder of this site: node.toml, node.key, run.json
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

impl Folder {
    /// The site that is there.
    fn site(&self) -> Result<Site, Exit> {
        if !Site::has_run(&self.dir) {
            return Err(Exit::Config(format!(
                "{} holds no run: `gradvine init NAME` makes one, `gradvine join TICKET` joins one \
                 (--dir names another folder)",
                self.dir.display()
            )));
        }
        Ok(Site::open(&self.dir)?)
    }
}

/// The value of an argument, or the answer of the user at the terminal.
fn asked(value: Option<String>, flag: &str, question: &str) -> Result<String, Exit> {
    if let Some(value) = value {
        return Ok(value);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(ConfigError::at(flag, format!("is missing: {question}")).into());
    }
    let mut error = io::stderr();
    write!(error, "{question} ").and_then(|()| error.flush())?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    match line.trim() {
        "" => Err(ConfigError::at(flag, format!("is missing: {question}")).into()),
        answer => Ok(answer.into()),
    }
}
