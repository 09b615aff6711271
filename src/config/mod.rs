//! Errors of configurations: the place, the value, and what would be accepted, so that the user can
//! correct them.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    path::Path,
    sync::Arc,
};

use serde::{Serialize, de::DeserializeOwned};
use serde_path_to_error::Segment;

use crate::{inputs, printable::shorten};

mod document;
mod fault;
mod hint;
mod values;

pub use fault::Fault;
internals!({document::in_document, hint::hint});
use values::{ReadError, Values};

/// The most characters of a file's name, a place, a value and a problem that are printed. A problem
/// may list all accepted names.
const LONGEST_FILE: usize = 500;
const LONGEST_PLACE: usize = 200;
const LONGEST_VALUE: usize = 200;
const LONGEST_PROBLEM: usize = 1_500;

/// A value that cannot be used. [`ConfigError::within`] adds the file.
///
/// It prints as `file: place = value: problem`, with long parts shortened. A program finds the
/// whole parts in the fields:
///
/// ```
/// use gradvine::{config::Fault, experiment::Experiment};
///
/// let error = Experiment::parse("", &["run.roundz=3".into()]).unwrap_err();
/// assert_eq!((error.file.as_deref(), error.key()), (Some("--set"), Some("run.roundz")));
/// assert_eq!((error.section(), error.value.as_deref()), ("run", Some("3")));
/// let Fault::Unknown { accepted } = error.fault else { panic!("{error}") };
/// assert!(accepted.contains(&"rounds".to_string()));
/// ```
///
/// If a module made it from its own error, such as
/// [`TopologyError`](crate::mixing::TopologyError), [`ConfigError::cause`] returns that one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file it came from, if any.
    pub file: Option<Box<str>>,
    /// The place: a dotted key such as `compressor.bits`, or `line 7`, or `link london - tokyo`.
    pub place: String,
    /// The offending value, as the user wrote it.
    pub value: Option<Box<str>>,
    /// The problem, and what would be accepted.
    pub problem: String,
    /// What is wrong with the value.
    pub fault: Fault,
    /// The error of a module that it was made from. A thin pointer keeps results small.
    cause: Option<Arc<Box<dyn Error + Send + Sync>>>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", shorten(file, LONGEST_FILE))?;
        }
        f.write_str(&shorten(&self.place, LONGEST_PLACE))?;
        if let Some(value) = &self.value {
            write!(f, " = {}", shorten(value, LONGEST_VALUE))?;
        }
        write!(f, ": {}", shorten(&self.problem, LONGEST_PROBLEM))
    }
}

impl Error for ConfigError {
    /// The source of the error that it was made from, such as an [`std::io::Error`]: that error
    /// itself prints the same text.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref()?.source()
    }
}

/// Whether both say the same, whatever they were made from.
impl PartialEq for ConfigError {
    fn eq(&self, other: &ConfigError) -> bool {
        let ConfigError { file, place, value, problem, fault, cause: _ } = other;
        let own = (&self.file, &self.place, &self.value, &self.problem, &self.fault);
        own == (file, place, value, problem, fault)
    }
}

impl ConfigError {
    /// It prints as `place` = `value`: `problem`.
    pub fn new(
        place: impl Into<String>,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> ConfigError {
        ConfigError::of(place, Some(value), problem)
    }

    /// A problem of a place as a whole, without one value to quote.
    pub fn at(place: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError::of(place, None::<&str>, problem)
    }

    /// With or without a value.
    pub(crate) fn of(
        place: impl Into<String>,
        value: Option<impl fmt::Display>,
        problem: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: None,
            place: place.into(),
            value: value.map(|value| brief(value.to_string()).into()),
            problem: problem.into(),
            fault: Fault::Value,
            cause: None,
        }
    }

    /// The error of a module that it was made from, if that is an `E`.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        self.cause.as_ref()?.downcast_ref()
    }

    /// The same error, made from this one.
    pub(crate) fn caused_by(self, error: impl Error + Send + Sync + 'static) -> ConfigError {
        ConfigError { cause: Some(Arc::new(Box::new(error))), ..self }
    }

    /// The same error at another place, such as the argument of a command that gave the value.
    #[must_use]
    pub fn with_place(mut self, place: impl Into<String>) -> ConfigError {
        self.place = place.into();
        self
    }

    /// Replaces the names of keys in the place and in the problem, such as by those of arguments;
    /// `names` has pairs of old and new ones, which are replaced one after the other.
    #[must_use]
    pub fn renamed(mut self, names: &[(&str, &str)]) -> ConfigError {
        for (key, name) in names {
            self.place = self.place.replace(key, name);
            self.problem = self.problem.replace(key, name);
        }
        self
    }

    /// Adds the file to the error.
    #[must_use]
    pub fn within(mut self, file: impl fmt::Display) -> ConfigError {
        self.file.get_or_insert_with(|| file.to_string().into());
        self
    }

    /// The same error with this fault.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> ConfigError {
        ConfigError { fault, ..self }
    }

    /// The error of a name that does not exist; these do. The printed text does not change.
    #[must_use]
    pub fn with_accepted<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> ConfigError {
        let accepted = names.into_iter().map(Into::into).collect();
        self.with_fault(Fault::Unknown { accepted })
    }

    /// The same error with another value.
    #[must_use]
    pub fn with_value(self, value: impl fmt::Display) -> ConfigError {
        ConfigError { value: Some(brief(value.to_string()).into()), ..self }
    }

    /// The place, if it is one key: `run.rounds` or `listen`, but not `line 7`.
    pub fn key(&self) -> Option<&str> {
        let of_a_key = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
        Some(&*self.place).filter(|place| place.chars().all(of_a_key))
    }

    /// Whether the place is a key of this section, such as `run.rounds` of `run`.
    pub fn is_in(&self, section: &str) -> bool {
        self.place.strip_prefix(section).is_some_and(|key| key.starts_with('.'))
    }

    /// The first part of the place: `run` of `run.rounds`.
    pub fn section(&self) -> &str {
        self.place.split(['.', ' ']).next().unwrap_or_default()
    }
}

/// The constants of a rule or a compressor, each with its default: `Params`, if nothing else is
/// said. Other keys are refused.
macro_rules! params {
    ($($(#[$about:meta])* $key:ident: $Type:ty = $default:expr),* $(,)?) => {
        $crate::config::params! {
            struct Params { $($(#[$about])* $key: $Type = $default),* }
        }
    };
    ($(#[$doc:meta])* $vis:vis struct $Params:ident {
        $($(#[$about:meta])* $own:vis $key:ident: $Type:ty = $default:expr),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        $vis struct $Params {
            $($(#[$about])* $own $key: $Type),*
        }

        impl Default for $Params {
            fn default() -> $Params {
                $Params { $($key: $default),* }
            }
        }
    };
}
pub(crate) use params;

/// Completes the error enum of a module. It has the variants `Config` and `InFile`, a method
/// `details` that returns what the error prints as, and a method `io_error` that returns the error
/// of the system behind it.
macro_rules! typed_error {
    ($Error:ident) => {
        impl std::fmt::Display for $Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.details().fmt(f)
            }
        }

        impl std::error::Error for $Error {
            /// The error of the system, whatever is said about the file: the variants between print
            /// parts of the same text.
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.io_error().map(|error| error as _)
            }
        }

        impl From<$crate::config::ConfigError> for $Error {
            fn from(error: $crate::config::ConfigError) -> $Error {
                $Error::Config(error)
            }
        }

        impl $Error {
            /// Adds the file, unless the error names one.
            #[must_use]
            pub fn within(self, file: impl std::fmt::Display) -> $Error {
                match self {
                    $Error::Config(error) => $Error::Config(error.within(file)),
                    $Error::InFile { .. } => self,
                    error => {
                        $Error::InFile { file: file.to_string().into(), error: Box::new(error) }
                    }
                }
            }

            /// The file that it is about, if there is one.
            pub fn file(&self) -> Option<&str> {
                match self {
                    $Error::Config(error) => error.file.as_deref(),
                    $Error::InFile { file, .. } => Some(file),
                    _ => None,
                }
            }

            /// The error without its file.
            pub fn kind(&self) -> &$Error {
                match self {
                    $Error::InFile { error, .. } => error,
                    _ => self,
                }
            }
        }

        impl From<$Error> for $crate::config::ConfigError {
            fn from(error: $Error) -> Self {
                match error {
                    $Error::Config(error) => error,
                    _ => error.details().caused_by(error),
                }
            }
        }
    };
}

pub(crate) use typed_error;

/// Reads a TOML file that is one section.
///
/// # Errors
/// If it cannot be read, or a key is unknown, missing or of the wrong type.
pub(crate) fn read_file<P: DeserializeOwned>(section: &str, path: &Path) -> Result<P, ConfigError> {
    let within = |error: ConfigError| error.within(path.display());
    let text = inputs::read_to_string(path)
        .map_err(|error| ConfigError::at(section, format!("cannot be read: {error}")))
        .map_err(|error| within(error.with_fault(Fault::Unreadable)))?;
    let table: toml::Table =
        toml::from_str(&text).map_err(|error| within(in_document(&text, &error)))?;
    read(section, &table).map_err(within)
}

/// Reads the constants of a section into `P` (a struct with `#[serde(deny_unknown_fields,
/// default)]` or the like). The key `kind` is not special: remove it first (`without_kind`) if it
/// selected `P`.
///
/// # Errors
/// If a key is unknown, missing or of the wrong type. The message is serde's without the names of
/// Rust types; the place is `section.key` if the key is known. For an unknown key the message ends
/// with the nearest accepted name.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #[derive(Debug, serde::Deserialize, serde::Serialize)]
/// #[serde(deny_unknown_fields)]
/// struct Params { bits: u32 }
/// let table: toml::Table = toml::from_str("bitz = 4")?;
/// let error = gradvine::config::read::<Params>("compressor", &table).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "compressor.bitz = 4: unknown field `bitz`, expected `bits`; did you mean `bits`?"
/// );
/// # Ok(())
/// # }
/// ```
pub fn read<P: DeserializeOwned>(section: &str, table: &toml::Table) -> Result<P, ConfigError> {
    let values = Values::from(table.clone());
    serde_path_to_error::deserialize(values)
        .map_err(|error| in_section(section, table, &error.path().clone(), error.into_inner()))
}

/// The section without `kind`: the constants of the selected kind.
pub(crate) fn without_kind(table: &toml::Table) -> toml::Table {
    let mut constants = table.clone();
    constants.remove("kind");
    constants
}

/// Sections that hold `kind` together with the constants of that kind.
const WITH_KIND: [&str; 2] = ["rule", "compressor"];

/// The error of a value or of the whole section in plain words, with the nearest name that the
/// section accepts.
fn in_section(
    section: &str,
    table: &toml::Table,
    path: &serde_path_to_error::Path,
    error: ReadError,
) -> ConfigError {
    let (mut place, mut value) = (section.to_string(), None);
    for segment in path {
        let inner = match (segment, value) {
            (Segment::Map { key }, None) => table.get(key),
            (Segment::Map { key }, Some(value)) => toml::Value::get(value, key),
            (Segment::Seq { index }, Some(value)) => value.get(*index),
            _ => None,
        };
        let Some(inner) = inner else { break };
        value = Some(inner);
        place += &match segment {
            Segment::Seq { index } => format!("[{index}]"),
            segment => format!(".{segment}"),
        };
    }
    let words = in_words(&error.message);
    let at = |words: String| match value {
        Some(value) => ConfigError::new(place, value, without_value(words)),
        None => ConfigError::at(place, words),
    };
    let Some(name) = error.unknown else { return at(words).with_fault(error.fault) };
    // Only a key can be `kind`, and not one of the names that a value has.
    let is_key = table.contains_key(&name);
    let kind = (is_key && WITH_KIND.contains(&section)).then_some("kind");
    let accepted = error.accepted.iter().copied().chain(kind);
    at(format!("{words}{}", hint(&name, accepted.clone()))).with_accepted(accepted)
}

/// The message of TOML's reader in plain words; for an unknown name it ends with the nearest
/// accepted name. This reader's errors are a message and a span, so the names are taken from its
/// words.
pub(crate) fn plain(message: &str) -> String {
    let words = in_words(message);
    let unknown = ["unknown field `", "unknown variant `"].iter().find_map(|start| {
        let (_, rest) = message.split_once(start)?;
        rest.split_once('`')
    });
    let Some((name, rest)) = unknown else { return words };
    format!("{words}{}", hint(name, rest.split('`').skip(1).step_by(2)))
}

/// serde's message with the expected types in the terms of TOML.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        // TOML integers are signed 64-bit numbers.
        ("expected u64", "expected a whole number from 0 to 9223372036854775807"),
        ("expected usize", "expected a whole number from 0 to 9223372036854775807"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected path string", "expected a path in quotes"),
        ("expected a boolean", "expected true or false"),
        ("expected a sequence", "expected a list in square brackets"),
        ("expected struct Scale", "expected a table with `mean` and `deviation`"),
        (
            "invalid type: unit variant, expected string only",
            "invalid type: expected a name in quotes",
        ),
        (", there are no fields", ": this kind has no constants"),
    ];
    let found = WORDS.iter().find(|(theirs, _)| message.contains(theirs));
    found.map_or_else(|| message.to_string(), |(theirs, ours)| message.replace(theirs, ours))
}

/// The words of an error that says the value itself.
fn without_value(words: String) -> String {
    let repeats = ["invalid type: ", "invalid value: "].iter().any(|it| words.starts_with(it));
    match words.find("expected ").filter(|_| repeats) {
        Some(at) => words[at..].to_string(),
        None => words,
    }
}

/// Shortens a number of many digits: 1e300 is not written out.
fn brief(value: String) -> String {
    const LONG: usize = 24;
    match value.parse::<f64>() {
        Ok(number) if value.len() > LONG => format!("{number:e}"),
        _ => value,
    }
}

/// Writes constants to a table with `kind` first, as a resolved experiment records them.
///
/// # Panics
/// If `P` does not serialise to a table: a parameter struct always does.
pub fn resolved<P: Serialize>(kind: &str, params: &P) -> toml::Table {
    let mut table = toml::Table::new();
    table.insert("kind".into(), kind.into());
    table.extend(toml::Table::try_from(params).expect("a parameter struct serialises to a table"));
    table
}

/// The keys in which two canonical texts of lines `key = value` differ, ascending, with the value
/// in each; `None` where the key is absent.
pub(crate) fn differences<'a>(
    one: &'a str,
    other: &'a str,
) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
    let lines = |text: &'a str| -> BTreeMap<&'a str, &'a str> {
        text.lines().map(|line| line.split_once(" = ").unwrap_or((line, ""))).collect()
    };
    let (one, other) = (lines(one), lines(other));
    let keys: BTreeSet<&str> = one.keys().chain(other.keys()).copied().collect();
    let values = |key| (key, one.get(key).copied(), other.get(key).copied());
    keys.into_iter().map(values).filter(|(_, one, other)| one != other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_are_printed_shortened_and_kept_whole() {
        let long = "9".repeat(100_000);
        let error = ConfigError::new("run.rounds", format!("\"{long}\""), "expected a number")
            .within(&long);
        let text = error.to_string();
        assert!(text.len() < 1_000 && text.ends_with(": expected a number"), "{text}");
        assert!(text.contains("run.rounds = \"999") && text.contains("(99802 characters more)"));
        assert_eq!(error.value.as_ref().map(|value| value.len()), Some(100_002));
        // serde repeats the value in its message, before what it expects.
        let table = toml::Table::from_iter([("bits".to_string(), long.into())]);
        #[derive(Debug, serde::Deserialize, serde::Serialize)]
        struct Params {
            bits: u32,
        }
        let text = read::<Params>("compressor", &table).unwrap_err().to_string();
        assert!(text.len() < 2_500 && text.contains("expected a whole number from 0"), "{text}");
    }
}
