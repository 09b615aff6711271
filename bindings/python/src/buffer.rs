//! Vectors that Python reads or writes in place.
//!
//! A [`Buffer`] owns its numbers and counts the arrays that show them. A round takes the numbers
//! back only if no array shows them, otherwise it takes a copy: an array that Python keeps stays
//! valid, with the numbers that it had.
#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_void},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pyo3::{exceptions::PyBufferError, ffi, prelude::*};

enum Numbers {
    /// The model: read only.
    Shared(Arc<Vec<f32>>),
    /// The update: written by Python.
    Owned(Vec<f32>),
}

struct State {
    numbers: Numbers,
    /// The arrays that show the numbers.
    exports: usize,
}

/// d numbers (f32, native byte order) behind Python's buffer protocol.
#[pyclass(frozen, module = "gradvine._gradvine")]
pub struct Buffer(Mutex<State>);

impl Buffer {
    pub fn of_model(x: Arc<Vec<f32>>) -> Buffer {
        Buffer(Mutex::new(State { numbers: Numbers::Shared(x), exports: 0 }))
    }

    pub fn of_update(update: Vec<f32>) -> Buffer {
        Buffer(Mutex::new(State { numbers: Numbers::Owned(update), exports: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the numbers of an update out, and leaves none; if an array shows them, a copy, and
    /// leaves them to that array. Returns whether it is a copy.
    pub fn take(&self) -> (Vec<f32>, bool) {
        let mut state = self.state();
        let shown = state.exports > 0;
        match &mut state.numbers {
            Numbers::Owned(numbers) if shown => (numbers.clone(), true),
            Numbers::Owned(numbers) => (std::mem::take(numbers), false),
            Numbers::Shared(x) => (x.to_vec(), true),
        }
    }

    /// The first number that is not finite, and its position.
    pub fn first_not_finite(&self) -> Option<(usize, f32)> {
        let state = self.state();
        let numbers = match &state.numbers {
            Numbers::Owned(numbers) => &numbers[..],
            Numbers::Shared(x) => &x[..],
        };
        let index = gradvine::vector::first_non_finite(numbers)?;
        Some((index, numbers[index]))
    }

    /// Lets go of the model, so that the node can take it back; if an array shows it, it stays
    /// valid and the node makes a copy. Returns whether it does.
    pub fn release(&self) -> bool {
        let mut state = self.state();
        if state.exports == 0 {
            state.numbers = Numbers::Owned(Vec::new());
        }
        state.exports > 0
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        match &self.state().numbers {
            Numbers::Shared(x) => x.len(),
            Numbers::Owned(update) => update.len(),
        }
    }

    /// Shows the numbers as bytes.
    ///
    /// # Safety
    /// Called by Python with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is null"));
        }
        let this = slf.get();
        let mut state = this.state();
        let (start, numbers, read_only) = match &mut state.numbers {
            Numbers::Shared(x) => (x.as_ptr().cast_mut(), x.len(), 1),
            Numbers::Owned(update) => (update.as_mut_ptr(), update.len(), 0),
        };
        let bytes = numbers * size_of::<f32>();
        // A vector is shorter than isize::MAX bytes.
        let bytes = bytes as ffi::Py_ssize_t;
        // SAFETY: `view` is not null and Python's to fill. The memory stays where it is and is not
        // freed while `exports` is above 0: `take` and `release` then leave it alone, and the view
        // holds a reference to this object. Shared numbers are shown read only.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                start.cast::<c_void>(),
                bytes,
                read_only,
                flags,
            )
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        state.exports += 1;
        Ok(())
    }

    /// One array less.
    ///
    /// # Safety
    /// Called by Python with a view that was filled before.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }
}
