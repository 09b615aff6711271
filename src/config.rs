//! What is wrong with a configuration, said so that it can be mended: the place, the value, and what would be accepted.

use serde::{Serialize, de::DeserializeOwned};

/// A value that cannot be used. Whoever knows the file adds it with [`ConfigError::within`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{place}{}: {problem}", .file.as_ref().map(|f| format!("{f}: ")).unwrap_or_default(), .value.as_ref().map(|v| format!(" = {v}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file it came from, where there is one.
    pub file: Option<String>,
    /// Where: a dotted key such as `compressor.bits`, or `line 7`, or `link london - tokyo`.
    pub place: String,
    /// The offending value, as the user wrote it.
    pub value: Option<String>,
    /// What is wrong with it, and what would be accepted.
    pub problem: String,
}

impl ConfigError {
    /// `place` = `value`: `problem`.
    pub fn new(place: impl Into<String>, value: impl std::fmt::Display, problem: impl Into<String>) -> ConfigError {
        ConfigError { file: None, place: place.into(), value: Some(brief(value.to_string())), problem: problem.into() }
    }

    /// A problem of a place as a whole, without one value to quote.
    pub fn at(place: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { file: None, place: place.into(), value: None, problem: problem.into() }
    }

    /// The same error, in this file.
    #[must_use]
    pub fn within(mut self, file: impl std::fmt::Display) -> ConfigError {
        self.file.get_or_insert_with(|| file.to_string());
        self
    }
}

/// Reads the constants of a section into `P` (a struct with `#[serde(deny_unknown_fields, default)]` or the like).
/// The key `kind`, which chose `P`, is passed over.
///
/// # Errors
/// If a key is unknown, missing or of the wrong type; the message is serde's without the names of Rust's types, the place is
/// `section.key` where it is known.
///
/// ```
/// #[derive(Debug, serde::Deserialize, serde::Serialize)]
/// #[serde(deny_unknown_fields)]
/// struct Params { bits: u32 }
/// let table: toml::Table = toml::from_str("kind = 'min-max'\nbitz = 4").unwrap();
/// let error = gradvine::config::read::<Params>("compressor", &table).unwrap_err();
/// assert_eq!(error.to_string(), "compressor.bitz = 4: unknown field `bitz`, expected `bits`");
/// ```
pub fn read<P: DeserializeOwned>(section: &str, table: &toml::Table) -> Result<P, ConfigError> {
    let mut constants = table.clone();
    constants.remove("kind");
    for (key, value) in &constants {
        // One key at a time first, so that a wrong type is blamed on its key: serde's table errors do not name it.
        let single = toml::Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = single.try_into::<P>() {
            let message = error.message();
            let of_this_key = ["invalid type", "invalid value", "unknown variant", "unknown field"];
            let within_it = value.is_table() && message.contains("missing field");
            if within_it || of_this_key.iter().any(|words| message.contains(words)) {
                return Err(ConfigError::new(format!("{section}.{key}"), value, plain(message)));
            }
        }
    }
    constants.try_into::<P>().map_err(|error| ConfigError::at(section, plain(error.message())))
}

/// serde's words for what it expected, as somebody who writes TOML would say them.
fn plain(message: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        // TOML's whole numbers have 64 bits and a sign.
        ("expected u64", "expected a whole number from 0 to 9223372036854775807"),
        ("expected usize", "expected a whole number from 0 to 9223372036854775807"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected path string", "expected a path in quotes"),
        ("expected a boolean", "expected true or false"),
        ("expected a sequence", "expected a list in square brackets"),
        ("expected struct Scale", "expected a table with `mean` and `deviation`"),
        ("invalid type: unit variant, expected string only", "invalid type: expected a name in quotes"),
        (", there are no fields", ": this kind has no constants"),
    ];
    let found = WORDS.iter().find(|(theirs, _)| message.contains(theirs));
    found.map_or_else(|| message.to_string(), |(theirs, ours)| message.replace(theirs, ours))
}

/// A number of many digits in short: 1e300 is not written out.
fn brief(value: String) -> String {
    const LONG: usize = 24;
    match value.parse::<f64>() {
        Ok(number) if value.len() > LONG => format!("{number:e}"),
        _ => value,
    }
}

/// Writes constants back as a table with `kind` first: what a resolved experiment records.
///
/// # Panics
/// If `P` does not serialise to a table: a parameter struct always does.
pub fn resolved<P: Serialize>(kind: &str, params: &P) -> toml::Table {
    let mut table = toml::Table::new();
    table.insert("kind".into(), kind.into());
    table.extend(toml::Table::try_from(params).expect("a parameter struct serialises to a table"));
    table
}
