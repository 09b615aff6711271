//! The terminal of a command: standard output and standard error, the log, the progress of runs,
//! and how Ctrl-C ends them.
//!
//! | file | does |
//! |---|---|
//! | `lib` | lines and JSON, written so that a closed pipe or a full disk ends no run |
//! | `log` | the log on standard error, as `RUST_LOG` asks |
//! | `progress` | [`Display`]: the rounds of one run; the reading of large files |
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

mod interrupt;
mod log;
mod progress;
mod tally;

use std::{
    io::{self, Write},
    sync::Arc,
};

use gradvine::run::Warn;

pub use interrupt::Interrupt;
pub use log::log_to_stderr;
pub use progress::{Display, show_reading};
pub use tally::Tally;

/// The body of [`note!`].
pub fn print_note(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
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

/// Prints a value as JSON, as [`print()`] does.
///
/// # Errors
/// As [`print()`], or if the value cannot be written as JSON.
pub fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
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
    fn only_a_closed_pipe_is_ignored() {
        let of = |kind: io::ErrorKind| ignore_broken_pipe(Err(kind.into()));
        assert!(of(io::ErrorKind::BrokenPipe).is_ok());
        assert_eq!(of(io::ErrorKind::StorageFull).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
