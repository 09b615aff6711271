//! Arrays of numbers: NPY, NPZ, IDX.

pub(super) mod idx;
pub(super) mod npy;
pub(super) mod npz;
mod numbers;

pub(super) use numbers::Numbers;
