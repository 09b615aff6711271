//! Topologies and schedules: their key figures, one in full, and lists of them.

mod drawing;
mod figures;
mod listing;
mod rounds;
mod sheet;

pub use drawing::{draw, svg};
pub use figures::Figures;
pub use listing::Listing;
pub use rounds::Rounds;
pub use sheet::{Checks, sheet};

use std::path::Path;

use gradvine::{
    config::ConfigError,
    data::{Kind, check_output, check_unread, write_atomically},
    mixing::Topology,
};

/// Writes a topology as a file, with another name if there is one, and returns it.
///
/// # Errors
/// If the file's ending is unknown, it cannot be written, or this command reads it; `place` is then
/// `OUT`.
pub fn write_file(
    mut topology: Topology,
    out: &Path,
    name: Option<String>,
) -> Result<Topology, ConfigError> {
    check_unread("OUT", out)?;
    // Such as an experiment, which also ends in .toml.
    if out.metadata().is_ok_and(|there| there.len() > 0) && Topology::load(out).is_err() {
        let problem = "is there, and no topology: name another file";
        return Err(ConfigError::new("OUT", out.display(), problem));
    }
    if let Some(name) = name {
        topology = topology.with_name(name)?;
    }
    topology.write(out)?;
    Ok(topology)
}

/// Writes a drawing of a topology.
///
/// # Errors
/// If the file cannot be written, or this command reads it; `place` is `--svg`.
pub fn write_svg(path: &Path, topology: &Topology) -> Result<(), ConfigError> {
    check_output("--svg", path, Kind::Drawing)?;
    write_atomically(path, &[svg(topology).as_bytes()])
        .map_err(|error| ConfigError::from(error).with_place("--svg"))
}
