//! The terminal of a command: standard output and standard error, the log, the progress of runs,
//! and how Ctrl-C ends them.
//!
//! | file | does |
//! |---|---|
//! | `lib` | lines and JSON, safe for a terminal; a closed pipe or a full disk ends no run |
//! | `stderr` | standard error, for which no round waits |
//! | `exit` | [`Exit`]: why a command did not succeed, its exit code and its last line |
//! | `log` | the log on standard error, as `RUST_LOG` asks |
//! | `progress` | [`Display`]: the rounds of one run; the reading of large files |
//! | `session` | [`run_session`]: a run with all nodes in this process, with progress and Ctrl-C |
//! | `bar` | lines of progress on a terminal, drawn ten times a second |
//! | `fit` | which parts of a line of progress fit the width |
//! | `tally` | [`Tally`]: how many of many runs are over |
//! | `interrupt` | [`Interrupt`]: Ctrl-C and SIGTERM stop a run, which keeps its results |
#![forbid(unsafe_code)]

/// Prints a line on standard error. If that fails (a full disk, a closed pipe), the line is lost
/// and the program continues.
#[macro_export]
macro_rules! note {
    ($($word:tt)*) => {
        $crate::print_note(&format!($($word)*))
    };
}

mod bar;
mod exit;
mod fit;
mod interrupt;
mod log;
mod progress;
mod session;
mod stderr;
mod tally;

use std::{
    fmt,
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
    sync::Arc,
};

use gradvine::{
    config::ConfigError,
    data::{DataError, Kind, check_output, write_in_turn},
    printable::{Printable, shorten},
    run::Warn,
};

pub use exit::{Exit, exit_code, refuse};
pub use interrupt::Interrupt;
pub use log::{LogFormat, log_to_stderr};
pub use progress::{Display, show_reading};
pub use session::run_session;
pub use stderr::flush as flush_stderr;
pub use tally::Tally;

/// The most characters of a line on standard error.
const LONGEST_LINE: usize = 4_000;

/// The body of [`note!`]. It does not wait for standard error.
pub fn print_note(line: &str) {
    let line = log::formatted(&shorten(line, LONGEST_LINE));
    stderr::write(&format!("{}\n", Printable(&line)), stderr::LineKind::Line);
}

/// Prints warnings as lines on standard error.
pub fn note_warnings<Text: fmt::Display>(warnings: impl IntoIterator<Item = Text>) {
    warnings.into_iter().for_each(|warning| note!("warning: {warning}"));
}

/// Prints the library's warnings as lines on standard error.
pub fn warnings() -> Warn {
    Arc::new(print_note)
}

/// Prints to standard output, after what was written to standard error. Control characters are
/// printed as escapes ([`Printable`]). A closed pipe (`gradvine rules | head -1`) is no failure.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    flush_stderr();
    let mut out = io::stdout().lock();
    let text = Printable(text).to_string();
    ignore_broken_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// The columns of the terminal to which standard output goes; `None` if it goes elsewhere, where a
/// line may have any length.
pub fn output_width() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(columns.into())
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

/// Writes to a file, as a whole or not at all, or to standard output: on a terminal, control
/// characters are printed as escapes ([`Printable`]). A pipe that its reader has closed is no
/// error.
///
/// # Errors
/// If the file cannot be written, is read, or is of another kind; `place` is `--out`.
pub fn write_output(
    file: Option<&Path>,
    kind: Kind,
    contents: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Exit> {
    let Some(path) = file else {
        flush_stderr();
        let out = io::stdout().lock();
        let mut out: Box<dyn Write> = match out.is_terminal() {
            true => Box::new(BufWriter::new(Shown(out))),
            false => Box::new(BufWriter::new(out)),
        };
        let written = contents(&mut out).and_then(|()| out.flush());
        return Ok(ignore_broken_pipe(written)?);
    };
    check_output("--out", path, kind)?;
    Ok(write_in_turn(path, contents).map_err(|error| {
        let problem = match error.kind() {
            DataError::Unwritable(error) => format!("cannot be written: {error}"),
            other => other.to_string(),
        };
        ConfigError::at("--out", problem).within(path.display())
    })?)
}

/// A terminal to which data is written.
struct Shown<W>(W);

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A character may be cut at the end of a buffer: it is shown as one that is not known.
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(Printable(&text).to_string().as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
        let file = Some(Path::new("no/such/folder/a.csv"));
        let error = write_output(file, Kind::Table, &mut |_| Ok(())).err().unwrap();
        let Exit::Config(error) = error else { panic!("{error:?}") };
        assert!(error.starts_with("no/such/folder/a.csv: --out: cannot be written: "), "{error}");
    }

    #[test]
    fn only_a_closed_pipe_is_ignored() {
        let of = |kind: io::ErrorKind| ignore_broken_pipe(Err(kind.into()));
        assert!(of(io::ErrorKind::BrokenPipe).is_ok());
        assert_eq!(of(io::ErrorKind::StorageFull).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
