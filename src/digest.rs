//! SHA-256 digests of models and runs, in hexadecimal digits.

use sha2::{Digest, Sha256};

/// SHA-256 of a model's little-endian bytes, in hexadecimal.
pub fn of_model(x: &[f32]) -> String {
    let mut hasher = Hasher::default();
    hasher.add_floats(x);
    hasher.finish()
}

/// The same of these bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of numbers in little-endian bytes.
#[derive(Debug, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn add_floats(&mut self, x: &[f32]) {
        if cfg!(target_endian = "little") {
            self.0.update(bytemuck::cast_slice::<f32, u8>(x));
        } else {
            x.iter().for_each(|x| self.0.update(x.to_le_bytes()));
        }
    }

    pub(crate) fn add_number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The first 8 bytes of the SHA-256 of all bytes, the first one highest.
    pub(crate) fn beginning(self) -> u64 {
        u64::from_be_bytes(*self.0.finalize().first_chunk().expect("32 bytes"))
    }

    /// The first half of the SHA-256 of all bytes so far.
    pub(crate) fn fingerprint(&self) -> [u8; 16] {
        *self.0.clone().finalize().first_chunk().expect("32 bytes")
    }

    /// The SHA-256 of all bytes, in hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// A number that tells two models apart: the first 8 bytes of the SHA-256.
pub(crate) fn short(x: &[f32]) -> u64 {
    let mut hasher = Hasher::default();
    hasher.add_floats(x);
    hasher.beginning()
}

/// The run's digest: SHA-256 over the SHA-256s (raw bytes) of the nodes' models in node order, then
/// that of their mean.
///
/// # Errors
/// If a digest is not a hexadecimal SHA-256.
pub(crate) fn of_run<'a>(
    models: impl IntoIterator<Item = &'a str>,
    mean: &'a str,
) -> Result<String, String> {
    let mut hasher = Sha256::new();
    for digest in models.into_iter().chain([mean]) {
        hasher.update(unhex(digest).ok_or_else(|| format!("`{digest}` is no SHA-256"))?);
    }
    Ok(hex(&hasher.finalize()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| char::from(DIGITS[usize::from(number)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of "abc" in FIPS 180-4.
    #[test]
    fn digits_and_beginning_of_a_known_digest() {
        let text = of_bytes(b"abc");
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(unhex(&text).map(|bytes| hex(&bytes)), Some(text));
        let mut hasher = Hasher::default();
        hasher.add_bytes(b"abc");
        assert_eq!(hasher.fingerprint()[..8], 0xba78_16bf_8f01_cfea_u64.to_be_bytes());
        assert_eq!(hasher.beginning(), 0xba78_16bf_8f01_cfea);
    }
}
