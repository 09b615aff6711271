//! `gradvine lab`

mod args;
#[cfg(target_os = "linux")]
mod real;

pub(crate) use args::Args;

use gradvine_terminal::Exit;

/// Runs real nodes on links with the given properties.
#[cfg(target_os = "linux")]
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    real::run(args)
}

/// These namespaces and TUN devices exist only on Linux.
#[cfg(not(target_os = "linux"))]
pub fn run(_args: Args) -> Result<(), Exit> {
    Err(Exit::Config(
        "lab: it makes network namespaces and TUN devices: run it on Linux, as root".into(),
    ))
}
