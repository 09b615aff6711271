//! The k numbers of greatest magnitude: `top-k`.
//!
//! Stich, Cordonnier and Jaggi 2018, Sparsified SGD with Memory, Lemma A.1: |C(x) - x|^2 <= (1 -
//! k/d) |x|^2, tight for constant magnitudes; far better for Gaussian numbers. By |x|; of equal
//! magnitudes the lower index wins, so that C is a function of x. Exactly k entries are sent, zeros
//! among them if x has fewer.
//!
//! Bytes: the k values as `f32` in ascending order of index, then the [indices](super::indices): 1%
//! costs 8.4 + 32 bits an entry, or 0.4 bits per number of the vector.

use super::{
    indices::IndexSet,
    kept::{self, Kept, adder, floats},
    select::{self, Cut},
};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "top-k",
    summary: "the numbers of greatest magnitude, with their indices",
    paper: "Stich et al. 2018, Sparsified SGD with Memory; Lin et al. 2018, Deep Gradient \
            Compression",
    class_words: "contraction",
    constants: &[kept::K, kept::FRACTION],
    variants: &["k = 1", "k = 40", "fraction = 0.1", "fraction = 0.5", "fraction = 1.0"],
    build,
    cheaper: kept::cheaper,
};

params! {
    k: Option<i64> = None,
    fraction: Option<f64> = None,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let kept = Kept::read(params.k, params.fraction)?;
    Ok(Built::new(TopK { kept }, config::resolved(ENTRY.name, &kept)))
}

#[derive(Debug)]
struct TopK {
    kept: Kept,
}

impl TopK {
    fn set(&self, len: usize) -> IndexSet {
        IndexSet::new(len, self.kept.of(len))
    }
}

impl Compressor for TopK {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, len: usize) -> Class {
        Class::Contraction { delta: self.kept.of(len) as f64 / len.max(1) as f64 }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(4 * self.kept.of(len) + self.set(len).bytes())
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let k = self.kept.of(v.len());
        if k == 0 {
            return Ok(());
        }
        let start = out.len();
        out.resize(start + self.size(v.len()).limit(), 0);
        let (values, indices) = out[start..].split_at_mut(4 * k);
        let values = values.as_chunks_mut::<4>().0;
        let Some(cut) = select::cut(v, k, values) else {
            out.truncate(start);
            return Err(NonFinite::known_in(v));
        };
        gather(v, cut, self.set(v.len()), values, indices);
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, self.size(len).limit())?;
        let (values, indices) = bytes.split_at(4 * self.kept.of(len));
        check_floats(values)?;
        self.set(len).check(indices)
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        let (values, indices) = bytes.split_at(4 * self.kept.of(acc.len()));
        let set = self.set(acc.len());
        let mut adder = adder(weight, values, acc);
        set.visit(indices, |index| adder.push(index));
        adder.finish();
    }

    fn entries(&self, len: usize, bytes: &[u8], _noise: Stream, visit: Visit<'_>) -> bool {
        let (values, indices) = bytes.split_at(4 * self.kept.of(len));
        let mut values = floats(values);
        self.set(len).visit(indices, |index| visit(index, values.next().unwrap_or(0.0)));
        true
    }

    fn most_entries(&self, len: usize) -> Option<usize> {
        Some(self.kept.of(len))
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        // Of many normal numbers the k greatest are those beyond the quantile z; they hold k/d + 2
        // z phi(z) of the energy.
        (len > nominal::MOST_SAMPLED).then(|| {
            let part = self.kept.of(len) as f64 / len as f64;
            let z = nominal::quantile_of_magnitude(part);
            (1.0 - part - 2.0 * z * nominal::density(z)).max(0.0)
        })
    }
}

kernel! {
    /// Writes the entries above the cut, and the first of those equal to it.
    fn gather(v: &[f32], cut: Cut, set: IndexSet, values: &mut [[u8; 4]], indices: &mut [u8]) {
        select::visit_kept(v, cut, |position, run| {
            update(&mut values[position..], run, |value, &index| {
                *value = v[index as usize].to_le_bytes();
            });
            set.put(indices, position, run);
        });
    }
}
