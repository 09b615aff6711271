//! Texts from files, shortened for messages of one line.

/// At most the first 40 characters of a text from a file, for a message of one line: line breaks
/// and other control characters are escaped.
pub fn excerpt(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars().take(40) {
        // An escape takes several characters.
        if shown.chars().count() >= 40 {
            break;
        }
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// The first names of a header.
pub(crate) fn list(header: &[String]) -> String {
    let shown: Vec<String> = header.iter().take(20).map(|name| excerpt(name)).collect();
    shown.join(", ") + if header.len() > shown.len() { ", ..." } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_ends_between_characters() {
        assert_eq!(excerpt(&"é".repeat(100)), "é".repeat(40));
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt("a\r\nb\x1b[31mc\u{85}"), "a\\r\\nb\\u{1b}[31mc\\u{85}");
    }
}
