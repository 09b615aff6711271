//! Tables: which of their columns are read, what their cells mean, and a dataset from them.

pub(super) mod cell;
mod choice;
pub(super) mod classes;
mod codes;
pub(super) mod columns;
pub(super) mod date;
mod decimal;
pub(super) mod encode;
pub(super) mod kept;
pub(super) mod labels;
pub(super) mod meaning;
mod others;
pub(super) mod parts;
pub(super) mod rows;
pub(super) mod schema;
pub(super) mod spelling;
