//! The token of a page.

use std::{fmt, fs, path::Path};

use gradvine::config::ConfigError;

/// The secret that a client of the page must send.
#[derive(Clone)]
pub struct Token(#[cfg_attr(not(feature = "page"), expect(dead_code))] String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Reads a token from a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no token.
    pub fn load(path: &Path) -> Result<Token, ConfigError> {
        let place = || path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|error| ConfigError::new("node.status.token", place(), error.to_string()))?;
        let text = text.trim_end();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !(16..=200).contains(&text.len()) || !text.chars().all(plain) {
            let problem = "expected 16 to 200 letters, digits, \"-\" and \"_\" on one line";
            return Err(ConfigError::new("node.status.token", place(), problem));
        }
        Ok(Token(text.to_string()))
    }

    /// The header that gives it.
    #[cfg(feature = "page")]
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Takes the same time for all texts of one length.
    #[cfg(feature = "page")]
    pub(crate) fn is(&self, given: &str) -> bool {
        let pairs = self.0.bytes().zip(given.bytes());
        self.0.len() == given.len() && pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}
