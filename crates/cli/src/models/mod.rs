//! Commands for saved models.

pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod predict;
