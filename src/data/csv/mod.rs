//! Separated text.

pub(super) mod encoding;
mod header;
mod read;
pub(super) mod records;

pub(super) use read::read;
