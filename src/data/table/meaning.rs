//! What a cell means, whatever its column holds.

use super::cell::Cell;

/// Texts that stand for a missing value, in letters of any case, beside an empty cell.
const MISSING: [&str; 12] =
    ["na", "n/a", "nan", "-nan", "null", "none", "nil", "?", "#n/a", "#na", "<na>", "\\n"];

/// Texts of booleans, in letters of any case.
const BOOLEANS: [(&str, bool); 10] = [
    ("true", true),
    ("false", false),
    ("1", true),
    ("0", false),
    ("yes", true),
    ("no", false),
    ("t", true),
    ("f", false),
    ("y", true),
    ("n", false),
];

/// Whether a cell has no value.
pub(crate) fn is_missing(cell: Cell<'_>) -> bool {
    match cell {
        Cell::Empty => true,
        Cell::Text(text) => {
            text.len() <= 4 && MISSING.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(text))
        }
        Cell::Number(value) => value.is_nan(),
        Cell::Bool(_) => false,
    }
}

/// A cell as a boolean.
pub(crate) fn boolean(cell: Cell<'_>) -> Option<bool> {
    match cell {
        Cell::Empty => None,
        Cell::Bool(value) => Some(value),
        Cell::Number(value) if value == 0.0 || value == 1.0 => Some(value == 1.0),
        Cell::Number(_) => None,
        Cell::Text(text) => {
            let word = BOOLEANS.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(text));
            match word {
                Some((_, value)) => Some(*value),
                None => match cell.number() {
                    Some(value) if value == 0.0 || value == 1.0 => Some(value == 1.0),
                    _ => None,
                },
            }
        }
    }
}

/// The text by which a value of a category, or the name of a class, is found. It is the text
/// itself, except that a whole number is the same with a fraction of zeros, as programs write
/// columns with gaps: `3.0` is `3`, but `03`, `3e0` and `+3` are other texts.
pub(crate) fn plain(text: &[u8]) -> &[u8] {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let Some(point) = memchr::memchr(b'.', digits) else { return text };
    let (whole, zeros) = (&digits[..point], &digits[point + 1..]);
    let is_whole =
        whole == b"0" || (whole.iter().all(u8::is_ascii_digit) && !whole.starts_with(b"0"));
    let has_zeros = !zeros.is_empty() && zeros.iter().all(|byte| *byte == b'0');
    if is_whole && !whole.is_empty() && has_zeros {
        &text[..text.len() - zeros.len() - 1]
    } else {
        text
    }
}

/// The plain text of a number in a column of numbers.
pub(crate) fn digits(value: f64) -> String {
    // Without the sign of a zero.
    (value + 0.0).to_string()
}

/// A number with a comma before its fraction, as `1.234,5`, or a date as `17.05.2024`: other
/// writings, which are not read.
pub(crate) fn foreign(cell: Cell<'_>) -> Option<()> {
    let Cell::Text(text) = cell else { return None };
    let text = std::str::from_utf8(text).ok()?;
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = || {
        let (whole, fraction) = text.strip_prefix('-').unwrap_or(text).split_once(',')?;
        let thousands = whole.split('.').skip(1).all(|part| part.len() == 3);
        (is_digits(fraction) && whole.split('.').all(is_digits) && thousands).then_some(())
    };
    let date = || {
        let day = text.split([' ', 'T']).next()?;
        let parts: Vec<&str> = day.split('.').collect();
        let [day, month, year] = parts[..] else { return None };
        let fits = day.len() <= 2 && month.len() <= 2 && [2, 4].contains(&year.len());
        (fits && [day, month, year].into_iter().all(is_digits)).then_some(())
    };
    number().or_else(date)
}

/// The plain text of a cell; `None` of an empty one.
pub(crate) fn plain_text(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Empty => None,
        Cell::Text(text) => Some(String::from_utf8_lossy(plain(text)).into_owned()),
        Cell::Number(value) => Some(digits(value)),
        Cell::Bool(value) => Some(value.to_string()),
    }
}
