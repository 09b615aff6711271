//! Commands for whole runs, on this machine or in the simulator.

mod again;
pub(crate) mod compare;
mod faulty;
pub(crate) mod lab;
mod outcome;
pub(crate) mod plan;
pub(crate) mod run_args;
pub(crate) mod simulate;
mod stages;
pub(crate) mod study;
pub(crate) mod train;
