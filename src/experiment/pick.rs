//! Rules and compressors with constants, as lists of the command line name them.

use super::Experiment;
use crate::config::ConfigError;

/// A rule or compressor by name, with constants: `top-k:fraction=0.01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its name, the value of `kind`.
    pub kind: String,
    /// `key=value` in the order given.
    pub constants: Vec<String>,
}

impl Pick {
    /// Its settings in a section: the kind, then the constants.
    pub fn sets(&self, section: &str) -> Vec<String> {
        let kind = format!("{section}.kind={}", self.kind);
        std::iter::once(kind)
            .chain(self.constants.iter().map(|constant| format!("{section}.{constant}")))
            .collect()
    }

    /// The section as a table, for checks.
    ///
    /// # Errors
    /// If a constant cannot be set.
    pub fn table(&self, section: &str) -> Result<toml::Table, ConfigError> {
        let sets = self.sets(section);
        let experiment = Experiment::parse("", &sets)?;
        Ok(if section == "rule" { experiment.rule } else { experiment.compressor })
    }
}

impl std::fmt::Display for Pick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        self.constants.iter().try_for_each(|constant| write!(f, " {constant}"))
    }
}

/// Reads a list such as `dcd,choco:gamma=0.3,d-psgd:order=cta`: commas separate items; colons or
/// blanks separate a kind and its constants. Commas and colons in brackets or quotes belong to the
/// value.
///
/// # Errors
/// If an item is empty or a constant is not `key=value`.
///
/// ```
/// let list = "min-max:bits=4,top-k fraction=0.01";
/// let picks = gradvine::experiment::picks("--compressors", list)?;
/// assert_eq!(picks[1].to_string(), "top-k fraction=0.01");
/// assert_eq!(picks[0].sets("compressor"), ["compressor.kind=min-max", "compressor.bits=4"]);
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
pub fn picks(place: &str, list: &str) -> Result<Vec<Pick>, ConfigError> {
    let wrong = |item: &str| {
        let problem =
            "expected names with constants after colons, apart by commas: top-k:fraction=0.01,sign";
        ConfigError::new(place, format!("\"{item}\""), problem)
    };
    let mut found = Vec::new();
    for item in cut(list, &[',']) {
        let mut words = cut(&item, &[':', ' ']).into_iter().filter(|word| !word.is_empty());
        let kind = words.next().filter(|kind| !kind.contains('=')).ok_or_else(|| wrong(&item))?;
        let constants: Vec<String> = words.collect();
        if let Some(word) =
            constants.iter().find(|word| word.split_once('=').is_none_or(|(key, _)| key.is_empty()))
        {
            return Err(wrong(word));
        }
        found.push(Pick { kind, constants });
    }
    Ok(found)
}

/// Splits a text at these characters, except inside brackets or quotes, and trims the parts.
pub fn cut(text: &str, at: &[char]) -> Vec<String> {
    let (mut parts, mut part, mut depth, mut quote) = (Vec::new(), String::new(), 0u32, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 && at.contains(&c) => {
                parts.push(std::mem::take(&mut part).trim().to_string());
                continue;
            }
            (None, _) => {}
        }
        part.push(c);
    }
    parts.push(part.trim().to_string());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_between_values() {
        assert_eq!(cut("a=[1, 2],b='x,y', c", &[',']), ["a=[1, 2]", "b='x,y'", "c"]);
        let found = picks("--rules", "choco:gamma=0.3:order=iclr, dcd").unwrap();
        assert_eq!(found[0].constants, ["gamma=0.3", "order=iclr"]);
        assert_eq!(found[1], Pick { kind: "dcd".into(), constants: Vec::new() });
        for text in ["", "a,,b", "gamma=3", "choco:gamma", "choco:=3"] {
            let error = picks("--rules", text).unwrap_err().to_string();
            assert!(
                error.starts_with("--rules = \"") && error.contains("apart by commas"),
                "{text}: {error}"
            );
        }
    }
}
