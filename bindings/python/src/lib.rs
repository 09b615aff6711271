//! The extension module of the Python package `gradvine`: one node with its exchange, the
//! simulator, and the command. The classes that users see are in `python/gradvine`.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod buffer;
mod catalogue;
mod error;
mod exchange;
mod log;
mod simulate;

use std::{ffi::OsString, path::PathBuf};

use gradvine::{experiment::Experiment, learn::Tensor, run};
use gradvine_cli::Program;
use pyo3::prelude::*;

/// Runs the command line; returns the exit code. `path` with the arguments `first` is what starts
/// it again.
#[pyfunction]
fn command(py: Python<'_>, path: PathBuf, first: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| gradvine_cli::run(Program { path, first }, arguments))
}

/// The name, the shape, and whether the numbers are statistics.
type Described = (String, Vec<usize>, bool);

/// The tensors of a model, as Python describes them.
fn of_described(tensors: Vec<Described>) -> Vec<Tensor> {
    let tensor = |(name, shape, is_statistic): Described| match is_statistic {
        true => Tensor::of_statistics(name, &shape),
        false => Tensor::new(name, &shape),
    };
    tensors.into_iter().map(tensor).collect()
}

/// Writes the files of the nodes of an experiment (TOML text, with paths from `beside`) on this
/// machine; returns the paths of the nodes' files.
#[pyfunction]
fn write_node_files(folder: PathBuf, experiment: &str, beside: PathBuf) -> PyResult<Vec<PathBuf>> {
    let mut experiment = Experiment::parse(experiment, &[]).map_err(error::of_config)?;
    experiment.folder = beside;
    run::check_own(&experiment).map_err(error::of_config)?;
    gradvine_processes::write_node_files(&folder, &experiment).map_err(error::of_end)
}

/// See the package's documentation.
#[pymodule]
fn _gradvine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    gradvine_tables::register();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<exchange::Exchange>()?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(write_node_files, module)?)?;
    module.add_function(wrap_pyfunction!(log::start_logs, module)?)?;
    module.add_function(wrap_pyfunction!(log::next_logs, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::rules, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::compressors, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::topology, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::plan, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::report, module)?)?;
    Ok(())
}
