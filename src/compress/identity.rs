//! No compression: `identity`. Raw little-endian `f32`, four bytes a number; C(x) = x.

use super::prelude::*;
use crate::vector;

pub(super) const ENTRY: Entry = Entry {
    name: "identity",
    summary: "the numbers as they are: 32 bits each",
    class_words: "exact",
    build: |table| Built::without_constants(ENTRY.name, Identity, table),
    cheaper: |_| {
        let words = "an eighth of the bytes: 4 bits for each number";
        Some(Cheaper::new("kind", "min-max", words))
    },
    ..Entry::BLANK
};

#[derive(Debug)]
struct Identity;

impl Compressor for Identity {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, _len: usize) -> Class {
        Class::Contraction { delta: 1.0 }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(4 * len)
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        if let Some(error) = NonFinite::first_in(v) {
            return Err(error);
        }
        vector::write_floats(v, out);
        Ok(())
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn blocks(&self, _len: usize) -> Option<Blocks> {
        Some(Blocks { numbers: 1, bytes: 4 })
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, 4 * len)?;
        check_floats(bytes)
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        vector::axpy_bytes(weight, bytes, acc);
    }

    fn gaussian_error(&self, _len: usize) -> Option<f64> {
        Some(0.0)
    }
}
