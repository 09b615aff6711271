//! Lists of entries that are found by name: rules, compressors, families of topologies, schedules,
//! datasets.
//!
//! Each list starts with this crate's own entries. A program adds entries of other crates before it
//! starts a run; then files can name them, and lists and cost estimates include them.

use std::{
    fmt,
    sync::{PoisonError, RwLock},
};

use crate::config::{self, ConfigError};

/// An entry with a name that files and lists use.
pub trait Named: Sync {
    /// The name that files and the command line have, in kebab-case.
    fn name(&self) -> &str;

    /// Why files could not name this entry, if they could not.
    fn problem(&self) -> Option<String> {
        None
    }
}

impl<T: Named + ?Sized> Named for &T {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn problem(&self) -> Option<String> {
        (**self).problem()
    }
}

/// A list of entries: this crate's own, then those that a program has added.
///
/// ```
/// use gradvine::{
///     compress::COMPRESSORS, config::Fault, gossip::rule::RULES, mixing::family,
///     registry::{Named, Registry},
/// };
///
/// assert!(RULES.find("choco").is_some() && COMPRESSORS.names().contains(&"top-k"));
/// assert_eq!(family::REGISTRY.select(None)?.len(), family::REGISTRY.len());
/// let error = RULES.select(Some("chocolate")).err().expect("there is no such rule");
/// let Fault::Unknown { accepted } = error.fault else { panic!("{error}") };
/// assert!(accepted.contains(&"choco".to_string()));
///
/// // A registry takes entries of other crates, with names that it does not have yet.
/// struct Fruit(&'static str);
/// impl Named for Fruit {
///     fn name(&self) -> &str { self.0 }
/// }
/// static FRUITS: Registry<Fruit> = Registry::new("fruit", &[Fruit("pear")]);
/// FRUITS.register(Fruit("quince"))?;
/// assert_eq!(FRUITS.names(), ["pear", "quince"]);
/// assert!(FRUITS.register(Fruit("pear")).is_err());
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
pub struct Registry<T: 'static> {
    /// What an entry is, for errors.
    what: &'static str,
    own: &'static [T],
    added: RwLock<Vec<&'static T>>,
}

impl<T: Named + Send> Registry<T> {
    /// A registry with these entries. `what` says in errors what an entry is, such as "rule".
    pub const fn new(what: &'static str, own: &'static [T]) -> Registry<T> {
        Registry { what, own, added: RwLock::new(Vec::new()) }
    }

    /// A registry of its own with the same first entries, and none that a program has added. It
    /// lives as long as the program.
    pub fn separate(&self) -> &'static Registry<T> {
        Box::leak(Box::new(Registry::new(self.what, self.own)))
    }

    /// Adds an entry of another crate, for as long as the program runs.
    ///
    /// # Errors
    /// If an entry has this name already, files cannot name this entry, or the name is not of
    /// lower-case letters, digits and hyphens.
    pub fn register(&self, entry: T) -> Result<(), ConfigError> {
        let name = entry.name().to_string();
        let place = format!("register a {}", self.what);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
            let problem = "expected a name of lower-case letters, digits and hyphens";
            return Err(ConfigError::new(place, format!("{name:?}"), problem));
        }
        if let Some(problem) = entry.problem() {
            return Err(ConfigError::new(place, format!("{name:?}"), problem));
        }
        // Under one lock, so that two threads cannot add the same name.
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        if self.own.iter().chain(added.iter().copied()).any(|known| known.name() == name) {
            let problem = "an entry has this name already: expected another name";
            return Err(ConfigError::new(place, format!("{name:?}"), problem));
        }
        added.push(Box::leak(Box::new(entry)));
        Ok(())
    }

    /// All entries, this crate's own first.
    pub fn iter(&self) -> std::vec::IntoIter<&'static T> {
        let added = self.added.read().unwrap_or_else(PoisonError::into_inner);
        self.own.iter().chain(added.iter().copied()).collect::<Vec<_>>().into_iter()
    }

    /// The number of entries, those of other crates included.
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Whether neither this crate nor another one has an entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of this name.
    pub fn find(&self, name: &str) -> Option<&'static T> {
        self.iter().find(|entry| entry.name() == name)
    }

    /// The entry of this name, or all of them without one.
    ///
    /// # Errors
    /// If there is no such entry; the names that exist are listed.
    pub fn select(&self, name: Option<&str>) -> Result<Vec<&'static T>, ConfigError> {
        let Some(name) = name else { return Ok(self.iter().collect()) };
        let wrong = || self.unknown("NAME", name);
        Ok(vec![self.find(name).ok_or_else(wrong)?])
    }

    /// The error of a name at this place that no entry has.
    pub fn unknown(&self, place: impl Into<String>, name: &str) -> ConfigError {
        ConfigError::new(place, format!("\"{name}\""), self.expected(name))
            .with_accepted(self.names())
    }

    /// All names, in order, for errors.
    pub fn names(&self) -> Vec<&'static str> {
        self.iter().map(Named::name).collect()
    }

    /// `expected one of a, b, c`, with the name nearest to `wrong`.
    pub fn expected(&self, wrong: &str) -> String {
        let names = self.names();
        format!("expected one of {}{}", names.join(", "), config::hint(wrong, names.into_iter()))
    }
}

impl<T: Named + Send> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl<T: Named + Send> IntoIterator for &Registry<T> {
    type Item = &'static T;
    type IntoIter = std::vec::IntoIter<&'static T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fruit(&'static str);

    impl Named for Fruit {
        fn name(&self) -> &str {
            self.0
        }
    }

    static FRUITS: Registry<Fruit> = Registry::new("fruit", &[Fruit("apple"), Fruit("pear")]);

    #[test]
    fn entries_are_added_once_and_found() {
        FRUITS.register(Fruit("quince")).unwrap();
        assert_eq!(FRUITS.names(), ["apple", "pear", "quince"]);
        assert!(FRUITS.find("quince").is_some() && FRUITS.find("plum").is_none());
        for (wrong, word) in
            [("apple", "already"), ("quince", "already"), ("Big Plum", "lower-case")]
        {
            let error = FRUITS.register(Fruit(wrong)).unwrap_err().to_string();
            assert!(error.starts_with("register a fruit") && error.contains(word), "{error}");
        }
        assert!(FRUITS.expected("pera").contains("did you mean `pear`?"));

        let separate = FRUITS.separate();
        assert_eq!(separate.names(), ["apple", "pear"]);
        separate.register(Fruit("fig")).unwrap();
        assert!(separate.find("fig").is_some() && FRUITS.find("fig").is_none());
    }
}
