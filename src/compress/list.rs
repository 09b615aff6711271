//! Every compressor by name. To add one: a file and a line of [`COMPRESSORS`]. The command line,
//! the law tests and the benches find it here.

use super::{Built, Entry, identity, low_rank, quantizers, sketches, sparse};
use crate::{
    config::{self, ConfigError},
    registry::Registry,
};

/// All compressors, in the order in which they are listed.
pub static COMPRESSORS: Registry<Entry> = Registry::new(
    "compressor",
    &[
        identity::ENTRY,
        quantizers::f16::ENTRY,
        quantizers::bf16::ENTRY,
        quantizers::qsgd::ENTRY,
        quantizers::min_max::ENTRY,
        quantizers::sign::ENTRY,
        quantizers::one_bit::ENTRY,
        quantizers::ternary::ENTRY,
        quantizers::truncate::ENTRY,
        sparse::top_k::ENTRY,
        sparse::chunked_top_k::ENTRY,
        sparse::random_k::ENTRY,
        low_rank::ENTRY,
        sketches::count_sketch::ENTRY,
    ],
);

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
    build_in(&COMPRESSORS, table)
}

/// As [`build`], with these compressors.
pub(crate) fn build_in(
    compressors: &Registry<Entry>,
    table: &toml::Table,
) -> Result<Built, ConfigError> {
    let kind = match table.get("kind") {
        None => "identity",
        Some(toml::Value::String(kind)) => kind,
        Some(other) => {
            return Err(ConfigError::new("compressor.kind", other, compressors.expected("")));
        }
    };
    match compressors.find(kind) {
        Some(entry) => (entry.build)(&config::without_kind(table)),
        None => Err(compressors.unknown("compressor.kind", kind)),
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
