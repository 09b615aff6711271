//! Exit codes and the last line of a command that failed.

use std::process;

use gradvine::{config::ConfigError, run::EndError};

use super::flush_stderr;

/// Why a command did not exit with 0.
#[derive(Debug)]
pub enum Exit {
    /// 1: a study's result differs from the expected one.
    Disagrees(String),
    /// 2: the configuration or a file is wrong.
    Config(String),
    /// 3: the run ended, but not all nodes took part in all rounds.
    Short(String),
    /// 4: the run could not continue.
    Failed(String),
    /// 130: interrupted; the results so far are written.
    Interrupted(String),
}

impl Exit {
    /// Prints the reason on standard error and returns the code.
    pub fn report(&self) -> u8 {
        let (code, message) = match self {
            Exit::Disagrees(message) => (1, message),
            Exit::Config(message) => (2, message),
            Exit::Short(message) => (3, message),
            Exit::Failed(message) => (4, message),
            Exit::Interrupted(message) => (130, message),
        };
        let word = if matches!(self, Exit::Interrupted(_)) { "interrupted" } else { "error" };
        note!("{word}: {message}");
        code
    }
}

/// The exit code of a command, whose reason is then on standard error.
pub fn exit_code(result: Result<(), Exit>) -> u8 {
    let code = result.map_or_else(|exit| exit.report(), |()| 0);
    flush_stderr();
    code
}

/// Ends the process because its arguments are wrong.
pub fn refuse(why: &str, code: i32) -> ! {
    note!("{}", why.trim_end());
    flush_stderr();
    process::exit(code)
}

impl From<ConfigError> for Exit {
    fn from(error: ConfigError) -> Exit {
        Exit::Config(error.to_string())
    }
}

impl From<EndError> for Exit {
    fn from(error: EndError) -> Exit {
        match error {
            EndError::Setup(error) => error.into(),
            EndError::Short(ending) => Exit::Short(ending.text),
            EndError::Interrupted(ending) | EndError::Left(ending) => {
                Exit::Interrupted(ending.text)
            }
            error => Exit::Failed(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Exit {
    fn from(error: std::io::Error) -> Exit {
        Exit::Failed(error.to_string())
    }
}
