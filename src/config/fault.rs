//! What can be wrong with a configuration.

/// What is wrong with a value of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is out of bounds, or does not go with other values.
    #[default]
    Value,
    /// It is of the wrong type, such as a text where a number is expected.
    Type,
    /// There is no key, section or entry of this name.
    Unknown {
        /// The names that exist, if they are known.
        accepted: Box<[String]>,
    },
    /// A key that is needed is missing.
    Missing,
    /// The file cannot be read.
    Unreadable,
}
