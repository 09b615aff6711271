//! Command lines that a user may copy into a shell.

use std::path::Path;

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Words as one command line, each quoted where a shell would split it.
pub fn command_line<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

/// The command that starts this program: the relative path that the user has typed (as with `cargo
/// run`), else its name. `started` is the first argument of the process.
pub fn program_name(started: Option<String>) -> String {
    let relative =
        |text: &String| Path::new(text).is_relative() && Path::new(text).components().count() > 1;
    started.filter(relative).map_or_else(|| "gradvine".into(), |text| quoted(&text))
}

/// A path as a word of a command line.
pub(crate) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (word, shown) in [
            ("a.b=c", "a.b=c"),
            ("a b", "'a b'"),
            ("hidden=[8]", "'hidden=[8]'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), shown);
        }
        assert_eq!(
            command_line(["gradvine", "train", "my run.toml"]),
            "gradvine train 'my run.toml'"
        );
    }

    #[test]
    fn suggestions_can_be_typed_unchanged() {
        let shown = |started: &str| program_name(Some(started.into()));
        assert_eq!(shown("target/release/gradvine"), "target/release/gradvine");
        assert_eq!(
            (shown("gradvine"), shown("/usr/bin/gradvine")),
            ("gradvine".into(), "gradvine".into())
        );
        assert_eq!(program_name(None), "gradvine");
    }
}
