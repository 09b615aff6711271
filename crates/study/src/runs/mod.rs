//! Runs of cases: one run, its record, many at once, and the tuning of their settings.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod case;
pub(crate) mod grid;
pub(crate) mod optimum;
pub(crate) mod outcome;
mod running;
pub(crate) mod trace;
pub(crate) mod tune;
