//! The log of a command on standard error.

use std::io::{self, Write};

use gradvine::printable::Printable;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::stderr::{self, LineKind};

/// Hands log lines to standard error.
struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        stderr::write(&Printable(&text).to_string(), LineKind::Log);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        // Its colours are control characters.
        .with_ansi(false);
    let targets = asked.and_then(|text| text.parse().ok()).unwrap_or_else(usual);
    tracing_subscriber::registry().with(layer).with(targets).init();
}
