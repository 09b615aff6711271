//! Sketches: tables of sums of numbers with random signs, from which each number is estimated.

mod cells;
pub(super) mod count_sketch;
mod hashing;
pub(super) mod sketch;
