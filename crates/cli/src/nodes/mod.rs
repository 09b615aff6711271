//! Commands for one node of a network of machines.

pub(crate) mod doctor;
pub(crate) mod identity;
pub(crate) mod leave;
pub(crate) mod members;
pub(crate) mod node;
pub(crate) mod relay;
pub(crate) mod status;

use gradvine_terminal::LogFormat;

/// How a command that runs for long writes its lines on standard error.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// A JSON object a line: `timestamp`, `level`, `message`
    Json,
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> LogFormat {
        match format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        }
    }
}
