//! When two spellings are perhaps one: what they have in common.
//!
//! Compared are letters without their case and marks, digits and signs. So these are one: `Koeln`
//! written with one character for its second letter or with two (the composed and the decomposed
//! form of Unicode, NFC and NFD), other cases, blanks anywhere, characters without width, and full
//! stops, commas, hyphens, underscores and apostrophes that stand beside no digit. Left out are
//! marks of Latin, Greek, Cyrillic and Arabic letters; those of other scripts distinguish words.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;

use super::{cell::Cell, meaning::plain};
use crate::{data::excerpt::excerpt, printable::is_invisible};

/// What two spellings of a text have in common. Of texts without letters and digits, such as `+`
/// and `-`, it is the text.
pub(crate) fn spelling(text: &str) -> String {
    let text = text.trim();
    let chars: Vec<char> = text.chars().filter(|c| !is_invisible(*c)).collect();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(char::is_ascii_digit);
    let mut common = String::new();
    for (at, &char) in chars.iter().enumerate() {
        let separates = matches!(char, '.' | ',' | '-' | '_' | '\'' | '\u{2019}')
            && !is_digit(at.checked_sub(1))
            && !is_digit(Some(at + 1));
        if !separates && !char.is_whitespace() {
            common.push(char);
        }
    }
    // Some letters have two forms in lower case, and one in upper case.
    let plain = common.nfd().filter(|char| !is_mark(*char));
    let plain: String = plain.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    if plain.chars().any(char::is_alphanumeric) { plain } else { text.into() }
}

/// Marks that follow their letter: of Latin, Greek and Cyrillic letters, and of Arabic ones.
fn is_mark(char: char) -> bool {
    matches!(char, '\u{300}'..='\u{36f}' | '\u{653}'..='\u{655}')
}

/// A text with its marks, and what has no width, as escapes: two spellings may look alike.
pub(crate) fn shown(text: &str) -> String {
    let hides =
        |char: char| is_mark(char) || is_invisible(char) || (char.is_whitespace() && char != ' ');
    let escaped: String = text
        .chars()
        .map(|char| if hides(char) { char.escape_unicode().to_string() } else { char.into() })
        .collect();
    excerpt(&escaped)
}

/// Two values of a category that are perhaps the same in different spellings, as messages show
/// them.
pub fn similar_spellings(values: &[String]) -> Option<(String, String)> {
    let mut seen = BTreeMap::new();
    let (value, other) =
        values.iter().find_map(|value| Some((seen.insert(spelling(value), value)?, value)))?;
    Some((shown(value), shown(other)))
}

/// A remark on such names of classes: rows of one class may be divided among two.
pub fn similar_classes(classes: &[String]) -> Option<String> {
    Some(format!("classes: {}", similar_words(classes)?))
}

pub(crate) fn similar_words(values: &[String]) -> Option<String> {
    let (value, other) = similar_spellings(values)?;
    Some(format!("\"{value}\" and \"{other}\" are two values: are they spellings of one?"))
}

/// The listed name that is perhaps meant by a label which is no name, for an error.
pub(crate) fn perhaps(names: &[String], label: Cell<'_>) -> String {
    let Cell::Text(label) = label else { return String::new() };
    let label = String::from_utf8_lossy(label);
    let meant = names.iter().find(|name| spelling(name) == spelling(&label));
    let words = |name: &String| format!("; \"{}\" is spelled otherwise", shown(name));
    meant.map(words).unwrap_or_default()
}

/// Two texts of which each stands for the other.
pub(crate) fn alike(texts: &[String]) -> Option<(&str, &str)> {
    let mut sorted: Vec<&String> = texts.iter().collect();
    let plain = |text: &String| plain(text.as_bytes()).to_vec();
    sorted.sort_by_cached_key(|text| plain(text));
    let pair = sorted.windows(2).find(|pair| plain(pair[0]) == plain(pair[1]))?;
    Some((pair[0], pair[1]))
}

/// Two texts that are alike, for messages.
pub(crate) fn either(text: &str, other: &str) -> String {
    let text = excerpt(text);
    if text == other {
        format!("\"{text}\"")
    } else {
        format!("\"{text}\", also as \"{}\",", excerpt(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_text_are_equal() {
        for (one, other) in [
            ("K\u{f6}ln", "Ko\u{308}ln"),
            ("K\u{f6}ln", "K\u{d6}LN "),
            ("K\u{f6}ln", "\u{a0}Koln"),
            ("Stra\u{df}e", "STRASSE"),
            ("Vi\u{1ec7}t", "Vie\u{323}\u{302}t"),
            ("\u{3b1}\u{3c2}", "\u{391}\u{3a3}"),
            ("\u{3ac}", "\u{3b1}\u{301}"),
            ("\u{1fb7}", "\u{3b1}\u{342}\u{345}"),
            ("\u{1fbc}", "\u{391}\u{345}"),
            ("\u{439}", "\u{438}\u{306}"),
            ("\u{622}", "\u{627}\u{653}"),
            ("\u{304c}", "\u{304b}\u{3099}"),
            ("\u{30d1}", "\u{30cf}\u{309a}"),
            ("\u{d55c}\u{ae00}", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            ("St. Olav", "st olav"),
            ("zero\u{200b}width", "zerowidth"),
            ("1 000", "1000"),
            (" 1.0", "1.0"),
        ] {
            assert_eq!(spelling(one), spelling(other), "{one} {other}");
        }
    }

    #[test]
    fn what_is_hidden_is_shown() {
        assert_eq!(shown("Ko\u{308}ln\u{a0}"), "Ko\\u{308}ln\\u{a0}");
        assert_eq!(shown("K\u{f6}ln "), "K\u{f6}ln ");
    }

    #[test]
    fn different_texts_stay_different() {
        for (one, other) in [
            ("<=50K", ">50K"),
            ("1.0", "10"),
            ("-1", "1"),
            ("1-5", "15"),
            ("+", "-"),
            ("a+", "a"),
            ("\u{304b}", "\u{304c}"),
            ("\u{d55c}", "\u{d558}"),
            ("", "-"),
        ] {
            assert_ne!(spelling(one), spelling(other), "{one} {other}");
        }
    }
}
