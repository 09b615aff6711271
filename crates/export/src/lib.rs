//! The curves of a run for other programs: what `gradvine export` makes of a run directory. No run
//! needs it.
//!
//! | format | file | one |
//! |---|---|---|
//! | CSV | `metrics.csv` | row per node and evaluation, with every digit |
//! | TensorBoard | `NODE/events.out.tfevents.0000000000.gradvine` | event per evaluation, in `f32` |
//!
//! Everything comes from `metrics.jsonl`, also of a run that failed or has not ended.
#![forbid(unsafe_code)]

mod curves;
mod events;
mod records;
mod table;

use std::{fs, io, path::Path};

use gradvine::{
    config::ConfigError,
    data::{Kind, check_output, write_atomically},
    files,
};

use curves::Curves;

/// The argument that names what is written.
const OUT: &str = "--out";

/// A format of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveFormat {
    /// One table of all nodes, with a header (RFC 4180).
    Csv,
    /// A folder with an event file for each node.
    TensorBoard,
}

/// Writes the curves of a run to `out`: a file, or a folder of TensorBoard's. By default it is
/// `metrics.csv` or `tensorboard` in the run directory. Returns a line about what was written.
///
/// # Errors
/// If the folder holds no run or no evaluation, or `out` cannot be written; unless `overwrite` is
/// set, if a file is there already.
pub fn export_curves(
    run: &Path,
    format: CurveFormat,
    out: Option<&Path>,
    overwrite: bool,
) -> Result<String, ConfigError> {
    let curves = Curves::read(run)?;
    let own = match format {
        CurveFormat::Csv => "metrics.csv",
        CurveFormat::TensorBoard => "tensorboard",
    };
    let out = out.map_or_else(|| run.join(own), Path::to_path_buf);
    let hint = match format {
        CurveFormat::Csv => {
            check_free(&out, overwrite)?;
            check_output(OUT, &out, Kind::Table)?;
            write_atomically(&out, &[&table::write(&curves)])?;
            String::new()
        }
        CurveFormat::TensorBoard => {
            write_events(&curves, &out, overwrite)?;
            format!("; tensorboard --logdir {}", out.display())
        }
    };
    let (evaluations, nodes) = (curves.metrics.len(), curves.nodes().count());
    Ok(format!("{}: evaluations: {evaluations}, nodes: {nodes}{hint}\n", out.display()))
}

/// Writes an event file for each node, after checking all of their paths.
fn write_events(curves: &Curves, out: &Path, overwrite: bool) -> Result<(), ConfigError> {
    let path = |node: u32| out.join(curves.name(node)).join(events::FILE);
    for folder in curves.nodes().map(|node| out.join(curves.name(node))).chain([out.into()]) {
        check_folder(&folder, out)?;
    }
    curves.nodes().try_for_each(|node| check_free(&path(node), overwrite))?;
    for node in curves.nodes() {
        let path = path(node);
        files::create_folder(path.parent().unwrap_or(out)).map_err(|error| unmade(out, &error))?;
        write_atomically(&path, &[&events::write(curves, node)])?;
    }
    Ok(())
}

/// Checks that a folder may be made, or is one. What the user has named may be a link.
fn check_folder(folder: &Path, named: &Path) -> Result<(), ConfigError> {
    let problem = if folder != named && folder.is_symlink() {
        "is a link: nothing below --out is followed; remove it, or name another folder"
    } else if folder.is_dir() || fs::symlink_metadata(folder).is_err() {
        return Ok(());
    } else {
        "is no folder; name a folder, such as tensorboard"
    };
    Err(ConfigError::new(OUT, folder.display(), problem))
}

/// Checks that a file may be written: it is no file of the run, and it does not exist or may be
/// overwritten.
fn check_free(path: &Path, overwrite: bool) -> Result<(), ConfigError> {
    let problem = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => "is a folder; name a file, such as metrics.csv",
        Ok(_) if !overwrite => "exists; --force overwrites it, or name another",
        _ => return Ok(()),
    };
    Err(ConfigError::new(OUT, path.display(), problem))
}

fn unmade(out: &Path, error: &io::Error) -> ConfigError {
    ConfigError::new(OUT, out.display(), format!("the folder cannot be made: {error}"))
}
