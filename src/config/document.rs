//! Errors of whole TOML documents.

use super::{ConfigError, plain};

/// Converts the error of a whole TOML document: the line and, if a key is wrong, the key and its
/// value.
///
/// ```
/// use gradvine::{config::{ConfigError, Fault}, mixing::{FileFormat, Topology}};
///
/// let of = |text: &str| Topology::from_text(text, FileFormat::Toml, "net").unwrap_err();
/// let unknown = ConfigError::from(of("family = 'ring'\nnodez = 8"));
/// assert_eq!((&unknown.place[..], unknown.value.as_deref()), ("line 2, nodez", Some("8")));
/// assert!(matches!(unknown.fault, Fault::Unknown { .. }));
/// for no_key in ["nodes = 3\nnodes = 4", "nodes = .5", "family = [\n5]"] {
///     let error = ConfigError::from(of(no_key));
///     assert_eq!((&error.fault, &error.value), (&Fault::Value, &None), "{error}");
/// }
/// ```
pub fn in_document(text: &str, error: &toml::de::Error) -> ConfigError {
    let span = error.span().unwrap_or(0..0);
    let (start, end) = (span.start.min(text.len()), span.end.min(text.len()));
    let line = text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count() + 1;
    let (place, message) = (format!("line {line}"), error.message().trim_end());
    let (before, rest) = (&text[..start], text[end..].lines().next().unwrap_or_default());
    let before = before.rsplit('\n').next().unwrap_or_default().trim_start();
    // What stands before `=`, before the rest of a dotted key, or in the brackets of a section; in
    // a text that is no TOML nothing is known.
    let is_key = rest.trim_start().starts_with(['=', '.'])
        || (rest.starts_with(']')
            && before.starts_with('[')
            && before.trim_matches('[').is_empty());
    let is_toml = || text.parse::<toml::Table>().is_ok();
    let Some(key) = text.get(start..end).filter(|_| is_key && is_toml()) else {
        return ConfigError::at(place, plain(message));
    };
    let place = format!("{place}, {}", key.trim());
    match rest.trim_start().strip_prefix('=') {
        Some(value) => ConfigError::new(place, value.trim(), plain(message)),
        None => ConfigError::at(place, plain(message)),
    }
    .with_accepted::<&str>([])
}
