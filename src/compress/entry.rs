//! What a compressor says about itself, and how it is built from a section of a file.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Compressor;
use crate::{
    config::{self, ConfigError},
    registry::Named,
};

impl Named for Entry {
    fn name(&self) -> &str {
        self.name
    }
}

/// The description of a compressor.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name, the value of `kind` in `[compressor]`.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Authors, title and year of its source.
    pub paper: &'static str,
    /// Unbiased, contraction or exact, in words.
    pub class_words: &'static str,
    /// Each constant's key, and its default with its meaning.
    pub constants: &'static [(&'static str, &'static str)],
    /// Constants beside the defaults that the law tests and the benches cover, as TOML.
    pub variants: &'static [&'static str],
    /// Builds it from its section.
    pub build: fn(&toml::Table) -> Result<Built, ConfigError>,
    /// A change of its resolved constants that sends less, as a suggestion.
    pub cheaper: fn(&toml::Table) -> Option<Cheaper>,
}

impl Entry {
    /// Values that most compressors share, for `..Entry::BLANK`.
    pub const BLANK: Entry = Entry {
        name: "",
        summary: "",
        paper: "",
        class_words: "",
        constants: &[],
        variants: &[],
        build: |_| Err(ConfigError::at("compressor", "this compressor has no `build`")),
        cheaper: |_| None,
    };
}

/// A change of one constant, or of the kind, that sends fewer bytes.
#[derive(Clone, Debug)]
pub struct Cheaper {
    /// A key of `[compressor]`, such as `bits`.
    pub key: &'static str,
    /// The value of the key that sends less.
    pub value: toml::Value,
    /// How much less is sent.
    pub words: &'static str,
}

impl Cheaper {
    /// The change of `key` to `value`.
    pub fn new(key: &'static str, value: impl Into<toml::Value>, words: &'static str) -> Cheaper {
        Cheaper { key, value: value.into(), words }
    }
}

/// A compressor and the constants that it was built with.
#[derive(Clone)]
pub struct Built {
    /// It compresses vectors of any length.
    pub compressor: Arc<dyn Compressor>,
    /// Its section with `kind` and all defaults filled in: building from it gives the same
    /// compressor.
    pub resolved: toml::Table,
}

impl Built {
    /// A compressor with its section, `kind` and all defaults filled in.
    pub fn new(compressor: impl Compressor + 'static, resolved: toml::Table) -> Built {
        Built { compressor: Arc::new(compressor), resolved }
    }

    /// A compressor that has no constants, from its section without `kind`.
    ///
    /// # Errors
    /// If the section has one.
    pub(super) fn without_constants(
        name: &str,
        compressor: impl Compressor + 'static,
        table: &toml::Table,
    ) -> Result<Built, ConfigError> {
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Params {}
        let params: Params = config::read("compressor", table)?;
        Ok(Built::new(compressor, config::resolved(name, &params)))
    }
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("compressor", &self.compressor).finish_non_exhaustive()
    }
}

/// Checks that an integer is in its bounds; the error names them.
pub(super) fn within(key: &str, value: i64, least: i64, most: i64) -> Result<u64, ConfigError> {
    match u64::try_from(value) {
        Ok(number) if (least..=most).contains(&value) => Ok(number),
        _ => {
            let problem = format!("expected a whole number from {least} to {most}");
            Err(ConfigError::new(format!("compressor.{key}"), value, problem))
        }
    }
}
