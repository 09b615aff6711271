//! Quantizers: each number as a code of fewer bits.

pub(super) mod bf16;
pub(super) mod block;
mod bucketed;
pub(super) mod f16;
mod half_precision;
pub(super) mod min_max;
pub(super) mod one_bit;
pub(super) mod qsgd;
pub(super) mod sign;
pub(super) mod ternary;
pub(super) mod truncate;
