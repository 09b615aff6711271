//! The run directory: what is written into it, who may write, and how it is read.

pub(crate) mod begin;
pub(crate) mod card;
pub(crate) mod data_record;
pub(crate) mod folder;
pub(crate) mod leave;
pub(crate) mod lock;
mod markdown;
pub mod metrics;
pub(crate) mod read;
pub(crate) mod recorder;
pub(crate) mod space;
