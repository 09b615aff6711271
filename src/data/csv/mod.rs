//! Separated text.

pub(super) mod encoding;
mod header;
mod read;
mod records;

pub(super) use read::{FORMAT, read};
