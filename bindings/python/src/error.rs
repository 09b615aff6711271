//! Errors as Python's exceptions, with their fields.

use gradvine::{
    config::ConfigError,
    node::{EndError, Ending},
};
use pyo3::{PyTypeInfo, import_exception, prelude::*};

import_exception!(gradvine._errors, SetupError);
import_exception!(gradvine._errors, RunError);
import_exception!(gradvine._errors, RunInterrupted);
import_exception!(gradvine._errors, RunLeft);
import_exception!(gradvine._errors, RunIncomplete);
import_exception!(gradvine._errors, StateError);
import_exception!(gradvine._errors, UpdateError);

/// A wrong file, value or combination.
pub(crate) fn of_config(error: ConfigError) -> PyErr {
    let text = error.to_string();
    SetupError::new_err((
        text,
        error.file.map(String::from),
        error.place,
        error.value.map(String::from),
        error.problem,
    ))
}

/// Why a run ended early.
pub(crate) fn of_end(error: EndError) -> PyErr {
    match error {
        EndError::Setup(error) => of_config(error),
        EndError::Interrupted(ending) => of_ending::<RunInterrupted>(ending),
        EndError::Left(ending) => of_ending::<RunLeft>(ending),
        EndError::Short(ending) => of_ending::<RunIncomplete>(ending),
        error => of_ending::<RunError>(match error.ending() {
            Some(ending) => ending.clone(),
            None => error.to_string().into(),
        }),
    }
}

fn of_ending<E: PyTypeInfo>(ending: Ending) -> PyErr {
    let Ending { text, node, rounds, awaited, folder } = ending;
    PyErr::new::<E, _>((text, node, rounds, awaited, folder))
}
