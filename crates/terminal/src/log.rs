//! The log of a command on standard error.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Writes log lines to standard error. On a terminal each first clears its line, where a progress
/// bar may stand, which is drawn again below.
struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        if stderr.is_terminal() {
            stderr.write_all(b"\r\x1b[2K")?;
        }
        stderr.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Logs to standard error what `RUST_LOG` asks for: levels by target. Without it, warnings of
/// gradvine.
///
/// # Panics
/// If the program has a log already.
pub fn log_to_stderr() {
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let usual = || Targets::new().with_target("gradvine", LevelFilter::WARN);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(|| LogLine)
        .with_target(false)
        // It would report errors of writing on standard error, and panic if that fails too.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let targets = asked.and_then(|text| text.parse().ok()).unwrap_or_else(usual);
    tracing_subscriber::registry().with(layer).with(targets).init();
}
