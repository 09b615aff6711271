//! Text of unknown origin, made safe for a terminal, and long text, shortened.
//!
//! A name in a table, a class of a foreign model or a message of a peer may hold control
//! characters, which move a terminal's cursor or clear its screen, or marks that change the
//! direction of text. Commands print all text through [`Printable`].

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

/// Text that a terminal shows as it is: control characters and invisible marks are printed as
/// escapes of four hexadecimal digits, such as `\u001b`. Line feeds and tabs stay. A JSON document
/// keeps its meaning, as such characters are only in its strings.
///
/// ```
/// use gradvine::printable::Printable;
///
/// assert_eq!(Printable("Oslo\u{1b}[2J\u{202e}\n").to_string(), "Oslo\\u001b[2J\\u202e\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(is_hidden) {
            let (plain, from) = rest.split_at(at);
            let mut chars = from.chars();
            let hidden = chars.next().map_or(0, u32::from);
            write!(f, "{plain}\\u{hidden:04x}")?;
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

/// Whether a terminal acts upon this character instead of showing it.
fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c)
}

/// Whether a character changes the direction of text, ends a line, or has no width: names that
/// differ only in such characters look alike. Those that join the letters of a script are not among
/// them.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
    )
}

/// The text, or its beginning and its end if it has more than `most` characters: the end of a
/// message says what is accepted.
///
/// ```
/// use gradvine::printable::shorten;
///
/// assert_eq!(shorten("short", 9), "short");
/// assert_eq!(shorten(&"9".repeat(1_000), 12), "99999999 ... (988 characters more) ... 9999");
/// ```
pub fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    // Bytes are no fewer than characters.
    let count = if text.len() <= most { text.len() } else { text.chars().count() };
    if count <= most {
        return text.into();
    }
    let (head, tail) = (most - most / 3, most / 3);
    let place = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    let (before, after) = (&text[..place(head)], &text[place(count - tail)..]);
    let mut short = before.to_string();
    // A String takes any text.
    let _ = write!(short, " ... ({} characters more) ... {after}", count - most);
    short.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_invisible_marks_become_escapes() {
        let shown = |text: &str| Printable(text).to_string();
        assert_eq!(
            shown("plain \u{fc} \u{65e5} \u{1f600}\n\tnext"),
            "plain \u{fc} \u{65e5} \u{1f600}\n\tnext"
        );
        assert_eq!(shown("\u{7}\r\u{7f}\u{9b}31m"), "\\u0007\\u000d\\u007f\\u009b31m");
        assert_eq!(shown("a\u{200b}\u{2066}\u{feff}"), "a\\u200b\\u2066\\ufeff");
        // Persian words need this one.
        assert_eq!(shown("\u{645}\u{6cc}\u{200c}"), "\u{645}\u{6cc}\u{200c}");
    }

    #[test]
    fn a_json_document_keeps_its_meaning() {
        let value = serde_json::json!({ "name\u{202e}": "\u{1b}[2J\u{85}\u{2028}x" });
        let shown = Printable(&value.to_string()).to_string();
        assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{85}', '\u{2028}']));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn long_text_keeps_both_ends_and_whole_characters() {
        let text = format!("{}, expected a number", "\u{e4}".repeat(5_000));
        let short = shorten(&text, 90);
        assert!(short.starts_with("\u{e4}\u{e4}") && short.ends_with(", expected a number"));
        assert!(short.contains(" ... (4929 characters more) ... "), "{short}");
        assert_eq!(shorten("\u{e4}\u{e4}\u{e4}", 3), "\u{e4}\u{e4}\u{e4}");
    }
}
