//! Tables for gradvine: Parquet and Arrow files, with the cargo features of these names; and what
//! is in a table, with a schema and an experiment drafted from it.
//!
//! [`register`] adds the formats to [`gradvine::data::FORMATS`]: then [`gradvine::data::load`]
//! reads their files wherever it reads CSV.
#![forbid(unsafe_code)]

#[cfg(feature = "arrow")]
mod arrow;
mod describe;
mod draft;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(all(test, any(feature = "arrow", feature = "parquet")))]
mod patients;
#[cfg(any(feature = "arrow", feature = "parquet"))]
mod typed;

pub use describe::{classes, describe, guesses, schema};
pub use draft::draft;

/// Adds the formats of this package, as far as it is built with them, to those that are read. More
/// than one call changes nothing.
pub fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // A format that the program has under this name stays.
        #[cfg(feature = "arrow")]
        let _ = gradvine::data::FORMATS.register(arrow::FORMAT);
        #[cfg(feature = "parquet")]
        let _ = gradvine::data::FORMATS.register(parquet::FORMAT);
    });
}
