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
#[derive(Default)]
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

    /// The SHA-256 of all bytes, in hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// The first half of the SHA-256 of a vector: nobody can find two vectors with the same one.
pub(crate) fn fingerprint(x: &[f32]) -> [u8; 16] {
    let mut hasher = Hasher::default();
    hasher.add_floats(x);
    *hasher.0.finalize().first_chunk().expect("32 bytes")
}

/// A number that tells two models apart: the first 8 bytes of the SHA-256.
pub(crate) fn short(x: &[f32]) -> u64 {
    u64::from_str_radix(&of_model(x)[..16], 16).expect("hexadecimal digits")
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
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
