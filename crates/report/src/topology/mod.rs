//! Topologies and schedules: their key figures, one in full, and lists of them.

mod drawing;
mod figures;
mod listing;
mod rounds;
mod sheet;

pub use drawing::{draw, narrow_svg, svg};
pub use figures::Figures;
pub use listing::Listing;
pub use rounds::Rounds;
pub use sheet::{Checks, sheet};

use std::path::Path;

use gradvine::{
    config::ConfigError,
    data::{check_output, write_atomically},
    mixing::Topology,
};

/// Writes a drawing of a topology that was read from `spec`, a file or a family.
///
/// # Errors
/// If the file cannot be written or is `spec`; `place` is `--svg`.
pub fn write_svg(path: &Path, topology: &Topology, spec: &str) -> Result<(), ConfigError> {
    check_output("--svg", path, &[spec.into()])?;
    write_atomically(path, &[svg(topology).as_bytes()])
        .map_err(|error| ConfigError::from(error).with_place("--svg"))
}
