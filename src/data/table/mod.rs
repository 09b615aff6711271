//! Tables: which of their columns are read, what their cells mean, and a dataset from them.

pub(super) mod cell;
pub(super) mod choice;
pub(super) mod classes;
pub(super) mod codes;
pub(super) mod columns;
pub(super) mod decimal;
pub(super) mod encode;
pub(super) mod others;
pub(super) mod schema;
pub(super) mod spelling;
#[cfg(any(feature = "arrow", feature = "parquet"))]
pub(super) mod typed;
