//! The log of a command on standard error.

use std::{
    io::{self, Write},
    sync::OnceLock,
};

use gradvine::printable::Printable;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::{
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::stderr::{self, LineKind};

/// How lines on standard error are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// As text for people.
    #[default]
    Text,
    /// Each as a JSON object with `timestamp`, `level` and `message`.
    Json,
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// A line that the command prints, in the format of the log.
pub(crate) fn formatted(line: &str) -> String {
    if FORMAT.get() != Some(&LogFormat::Json) {
        return line.to_string();
    }
    let (level, message) = match line.split_once(": ") {
        Some(("warning", rest)) => ("WARN", rest),
        Some(("error", rest)) => ("ERROR", rest),
        _ => ("INFO", line),
    };
    let mut timestamp = String::new();
    // A String takes any text.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    serde_json::json!({ "timestamp": timestamp, "level": level, "message": message }).to_string()
}

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
pub fn log_to_stderr(format: LogFormat) {
    let _ = FORMAT.set(format);
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let usual = || Targets::new().with_target("gradvine", LevelFilter::WARN);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(|| LogLine)
        .with_target(false)
        // It would report errors of writing on standard error, and panic if that fails too.
        .log_internal_errors(false)
        // Its colours are control characters.
        .with_ansi(false);
    let layer = match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let targets = asked.and_then(|text| text.parse().ok()).unwrap_or_else(usual);
    tracing_subscriber::registry().with(layer).with(targets).init();
}
