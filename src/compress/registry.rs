//! Every compressor by name. To add one: a file and a line of [`COMPRESSORS`]. The command line,
//! the law tests and the benches find it here.

use std::{fmt, sync::Arc};

use super::{
    Compressor, identity, low_rank,
    quantizers::{bf16, f16, min_max, one_bit, qsgd, sign, ternary, truncate},
    sketches::count_sketch,
    sparse::{chunked_top_k, random_k, top_k},
};
use crate::{
    config::{self, ConfigError},
    registry::{Named, Registry},
};

/// All compressors, in the order in which they are listed.
pub static COMPRESSORS: Registry<Entry> = Registry::new(
    "compressor",
    &[
        identity::ENTRY,
        f16::ENTRY,
        bf16::ENTRY,
        qsgd::ENTRY,
        min_max::ENTRY,
        sign::ENTRY,
        one_bit::ENTRY,
        ternary::ENTRY,
        truncate::ENTRY,
        top_k::ENTRY,
        chunked_top_k::ENTRY,
        random_k::ENTRY,
        low_rank::ENTRY,
        count_sketch::ENTRY,
    ],
);

impl Named for Entry {
    fn name(&self) -> &str {
        self.name
    }
}

/// The description of a compressor.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its `kind` in `[compressor]`.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its source.
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
    /// The key in `[compressor]`.
    pub key: &'static str,
    /// Its new value.
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
    /// The compressor.
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
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("compressor", &self.compressor).finish_non_exhaustive()
    }
}

/// Builds the compressor of a `[compressor]` section: `kind` (default `identity`) and its
/// constants.
///
/// # Errors
/// If there is no such kind, no such constant, or a constant is out of range.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = toml::from_str("kind = 'topk'")?;
/// let error = gradvine::compress::build(&table).unwrap_err().to_string();
/// assert!(error.contains("did you mean `top-k`?"), "{error}");
/// # Ok(())
/// # }
/// ```
pub fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let kind = match table.get("kind") {
        None => "identity",
        Some(toml::Value::String(kind)) => kind,
        Some(other) => {
            return Err(ConfigError::new("compressor.kind", other, COMPRESSORS.expected("")));
        }
    };
    match COMPRESSORS.find(kind) {
        Some(entry) => (entry.build)(&config::without_kind(table)),
        None => Err(COMPRESSORS.unknown("compressor.kind", kind)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> toml::Table {
        toml::from_str(text).unwrap()
    }

    fn error(text: &str) -> String {
        build(&table(text)).unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_identity() {
        assert_eq!(build(&toml::Table::new()).unwrap().compressor.name(), "identity");
    }

    #[test]
    fn resolved_constants_are_complete_and_build_the_same() {
        for entry in &COMPRESSORS {
            for variant in [""].iter().chain(entry.variants) {
                let mut constants = table(variant);
                constants.insert("kind".into(), entry.name.into());
                let built = build(&constants).unwrap();
                assert_eq!(built.compressor.name(), entry.name);
                let again = build(&built.resolved).unwrap();
                assert_eq!(format!("{again:?}"), format!("{built:?}"));
                assert_eq!(again.resolved, built.resolved);
                for (key, value) in &constants {
                    assert_eq!(built.resolved.get(key), Some(value));
                }
                for key in built.resolved.keys().filter(|key| *key != "kind") {
                    assert!(
                        entry.constants.iter().any(|(name, _)| name == key),
                        "{key} of {} has no words",
                        entry.name
                    );
                }
            }
        }
    }

    #[test]
    fn every_dispatch_level_gives_the_same_bits() {
        use crate::{
            compress::kernel::plainly,
            rng::{Purpose, Stream},
        };
        let mut normal = Stream::new(1, Purpose::Test).sequence();
        let noise = Stream::new(2, Purpose::Test);
        for entry in &COMPRESSORS {
            for variant in [""].iter().chain(entry.variants) {
                let compressor = (entry.build)(&table(variant)).unwrap().compressor;
                for len in [1, 5, 33, 511, 1300, 70_000] {
                    let v: Vec<f32> = (0..len).map(|_| normal.normal() as f32).collect();
                    let encode = || {
                        let mut bytes = Vec::new();
                        compressor.encode(&v, noise, &mut bytes).unwrap();
                        bytes
                    };
                    let bytes = encode();
                    assert!(bytes == plainly(encode), "{} {variant}: {len} encoded", entry.name);
                    let add = || {
                        let mut sum = v.clone();
                        compressor.add_into(&bytes, noise, 0.3, &mut sum);
                        sum.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
                    };
                    assert!(add() == plainly(add), "{} {variant}: {len} added", entry.name);
                }
            }
        }
    }

    #[test]
    fn errors_say_what_would_be_accepted() {
        assert_eq!(
            error("kind = 'min-max'\nbits = 9"),
            "compressor.bits = 9: expected a whole number from 1 to 8"
        );
        assert!(
            error("kind = 'min-max'\nbits = 'four'")
                .starts_with("compressor.bits = \"four\": expected a")
        );
        assert!(
            error("kind = 'min-max'\nrounding = 'up'")
                .contains("expected `stochastic` or `nearest`")
        );
        assert!(
            error("kind = 'sign'\nbukket = 4")
                .contains("unknown field `bukket`, expected `bucket`")
        );
        assert!(error("kind = 'qsgd'\nlevels = 0").contains("from 1 to 127"));
        assert!(error("kind = 'qsgd'\nbucket = -1").contains("from 0 to 4294967295"));
        assert!(error("kind = 'identity'\nbits = 1").contains("unknown field"));
        assert!(error("kind = 'minmax'").ends_with("did you mean `min-max`?"));
        assert!(!error("kind = 'zstandard'").contains("did you mean"));
        assert!(
            error("kind = 3").starts_with("compressor.kind = 3: expected one of identity, f16")
        );
        for kind in ["top-k", "random-k"] {
            assert!(error(&format!("kind = '{kind}'\nk = 3\nfraction = 0.1")).contains("not both"));
            for fraction in ["0.0", "1.5", "nan", "-0.1"] {
                assert!(
                    error(&format!("kind = '{kind}'\nfraction = {fraction}"))
                        .contains("above 0 and at most 1")
                );
            }
            assert!(error(&format!("kind = '{kind}'\nk = 0")).contains("from 1 to"));
        }
    }
}
