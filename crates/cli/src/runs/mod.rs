//! Commands for whole runs, on this machine or in the simulator.

pub(crate) mod compare;
mod faulty;
pub(crate) mod lab;
mod outcome;
pub(crate) mod plan;
pub(crate) mod run_args;
pub(crate) mod simulate;
pub(crate) mod study;
pub(crate) mod train;
