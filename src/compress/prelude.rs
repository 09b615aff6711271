//! The imports of most compressors.

pub(super) use super::{
    Blocks, Class, Compressor, Malformed, NonFinite, Size, Visit,
    bits::{BLOCK, Packing},
    entry::{Built, Cheaper, Entry, within},
    kernel::{self, kernel, range},
    nominal,
    quantizers::block::{self, check_floats, expect_length},
};
pub(super) use crate::{
    config::{self, ConfigError, params},
    rng::Stream,
    vector::update,
};
