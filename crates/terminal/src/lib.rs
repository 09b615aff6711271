//! The terminal of a command: standard output and standard error, the log, the progress of runs,
//! and how Ctrl-C ends them.
//!
//! | file | does |
//! |---|---|
//! | `lib` | lines and JSON, written so that a closed pipe or a full disk ends no run |
//! | `exit` | [`Exit`]: why a command did not succeed, its exit code and its last line |
//! | `log` | the log on standard error, as `RUST_LOG` asks |
//! | `progress` | [`Display`]: the rounds of one run; the reading of large files |
//! | `session` | [`run_session`]: a run with all nodes in this process, with progress and Ctrl-C |
//! | `tally` | [`Tally`]: how many of many runs are over |
//! | `interrupt` | [`Interrupt`]: Ctrl-C and SIGTERM stop a run, which keeps its results |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// Prints a line on standard error. If that fails (a full disk, a closed pipe), the line is lost
/// and the program goes on.
#[macro_export]
macro_rules! note {
    ($($word:tt)*) => {
        $crate::print_note(&format!($($word)*))
    };
}

mod exit;
mod interrupt;
mod log;
mod progress;
mod session;
mod tally;

use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

use gradvine::{config::ConfigError, run::Warn};

pub use exit::Exit;
pub use interrupt::Interrupt;
pub use log::log_to_stderr;
pub use progress::{Display, show_reading};
pub use session::run_session;
pub use tally::Tally;

/// The body of [`note!`].
pub fn print_note(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Prints warnings as lines on standard error.
pub fn note_warnings<Text: fmt::Display>(warnings: impl IntoIterator<Item = Text>) {
    warnings.into_iter().for_each(|warning| note!("warning: {warning}"));
}

/// Prints the library's warnings as lines on standard error.
pub fn warnings() -> Warn {
    Arc::new(print_note)
}

/// Prints to standard output. A closed pipe (`gradvine rules | head -1`) is no failure.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    ignore_broken_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints the results of a run. If standard output fails, the run has still succeeded, as its files
/// are written: the error is a warning.
pub fn print_results(text: &str) {
    if let Err(error) = print(text) {
        note!("warning: standard output: the table cannot be written: {error}");
    }
}

/// Prints a value as JSON, as [`print()`] does.
///
/// # Errors
/// As [`print()`], or if the value cannot be written as JSON.
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Prints an object as JSON if `json` is set, else as text.
///
/// # Errors
/// As [`print_json`].
pub fn print_either<Value: serde::Serialize>(
    json: bool,
    object: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> io::Result<()> {
    if json { print_json(&object()) } else { print(&text()) }
}

/// Opens a file to write to, or standard output.
///
/// # Errors
/// If the file cannot be made; `place` is `--out`.
pub fn open_output(file: Option<&Path>) -> Result<Box<dyn Write>, ConfigError> {
    let Some(path) = file else { return Ok(Box::new(BufWriter::new(io::stdout().lock()))) };
    let file = File::create(path).map_err(|error| {
        ConfigError::at("--out", format!("cannot be written: {error}")).within(path.display())
    })?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Turns the error of a closed pipe into success.
///
/// # Errors
/// Any other error of `result`.
pub fn ignore_broken_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_cannot_be_made_names_the_file() {
        let error = open_output(Some(Path::new("no/such/folder/a.csv"))).err().unwrap();
        assert!(error.to_string().starts_with("no/such/folder/a.csv: --out: cannot be written"));
    }

    #[test]
    fn only_a_closed_pipe_is_ignored() {
        let of = |kind: io::ErrorKind| ignore_broken_pipe(Err(kind.into()));
        assert!(of(io::ErrorKind::BrokenPipe).is_ok());
        assert_eq!(of(io::ErrorKind::StorageFull).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
