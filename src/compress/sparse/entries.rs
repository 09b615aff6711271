//! Sparse vectors as lists of entries, for rules that merge, re-select or sum sparse vectors.
//!
//! Bytes: the count (`u32`, little-endian), the values as `f32` in ascending order of index, then
//! the [indices](super::indices).

use super::{
    indices::IndexSet,
    kept::{adder, floats},
    select::{self, Cut, magnitude},
};
use crate::compress::prelude::*;

/// Some entries of a vector, ascending by index, each index once. Buffers are kept when it is
/// cleared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    /// The indices of the entries, ascending, each once.
    pub indices: Vec<u32>,
    /// The value at each of `indices`.
    pub values: Vec<f32>,
}

impl Entries {
    /// Sets the entries to the `k` of greatest magnitude of `v` (all, if it has fewer); of equal
    /// magnitudes the lower index wins.
    ///
    /// # Errors
    /// If `v` holds a NaN or an infinity; there are no entries then.
    pub fn select(&mut self, v: &[f32], k: usize) -> Result<(), NonFinite> {
        self.clear();
        let k = k.min(v.len());
        if k == 0 {
            return Ok(());
        }
        self.values.resize(k, 0.0);
        let cut = select::cut(v, k, bytemuck::cast_slice_mut(&mut self.values));
        self.values.clear();
        let cut = cut.ok_or_else(|| NonFinite::known_in(v))?;
        fill(v, cut, self);
        Ok(())
    }

    /// Sets the entries to the sum of two lists: an index in both has the sum of its values, `a`
    /// first.
    pub fn sum(&mut self, a: &Entries, b: &Entries) {
        self.clear();
        let (mut i, mut j) = (0, 0);
        loop {
            match (a.indices.get(i), b.indices.get(j)) {
                (Some(&x), Some(&y)) if x == y => {
                    self.push(x, a.values[i] + b.values[j]);
                    (i, j) = (i + 1, j + 1);
                }
                (Some(&x), y) if y.is_none_or(|&y| x < y) => {
                    self.push(x, a.values[i]);
                    i += 1;
                }
                (_, Some(&y)) => {
                    self.push(y, b.values[j]);
                    j += 1;
                }
                (_, None) => return,
            }
        }
    }

    /// Keeps the `k` entries of greatest magnitude, of equal ones the lower index, and calls
    /// `dropped` with the others in ascending order.
    pub fn keep(&mut self, k: usize, mut dropped: impl FnMut(u32, f32)) {
        if self.len() <= k {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        let greater = |&a: &usize, &b: &usize| {
            magnitude(self.values[b]).cmp(&magnitude(self.values[a])).then(a.cmp(&b))
        };
        if k > 0 {
            order.select_nth_unstable_by(k - 1, greater);
        }
        order.truncate(k);
        order.sort_unstable();
        let (mut kept, mut next) = (0, order.into_iter().peekable());
        for at in 0..self.len() {
            let (index, value) = (self.indices[at], self.values[at]);
            if next.next_if_eq(&at).is_some() {
                (self.indices[kept], self.values[kept]) = (index, value);
                kept += 1;
            } else {
                dropped(index, value);
            }
        }
        self.indices.truncate(kept);
        self.values.truncate(kept);
    }

    /// Appends an entry, whose index is greater than all before.
    pub fn push(&mut self, index: u32, value: f32) {
        debug_assert!(self.indices.last().is_none_or(|last| *last < index), "entries ascend");
        self.indices.push(index);
        self.values.push(value);
    }

    /// The number of entries, of `indices` and of `values`.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether the sender has chosen no entry.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Removes all entries and keeps the buffers.
    pub fn clear(&mut self) {
        self.indices.clear();
        self.values.clear();
    }

    /// Index and value of each entry, ascending by index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f32)> {
        self.indices.iter().copied().zip(self.values.iter().copied())
    }

    /// `acc += weight * entries`.
    ///
    /// # Panics
    /// If an index is not below the length of `acc`.
    pub fn add_into(&self, weight: f32, acc: &mut [f32]) {
        for (index, value) in self.iter() {
            acc[index as usize] += weight * value;
        }
    }
}

kernel! {
    /// Appends the entries that the cut keeps.
    fn fill(v: &[f32], cut: Cut, entries: &mut Entries) {
        select::visit_kept(v, cut, |_, run| {
            entries.indices.extend_from_slice(run);
            entries.values.extend(run.iter().map(|&index| v[index as usize]));
        });
    }
}

/// The most bytes that `most` entries of a vector of `len` numbers take.
pub(crate) fn limit(len: usize, most: usize) -> usize {
    let most = most.min(len);
    4 + 4 * most + IndexSet::new(len, most).bytes()
}

pub(crate) fn write(len: usize, entries: &Entries, out: &mut Vec<u8>) -> Result<(), NonFinite> {
    if let Some(wrong) = NonFinite::first_in(&entries.values) {
        return Err(NonFinite { index: entries.indices[wrong.index] as usize, ..wrong });
    }
    let set = IndexSet::new(len, entries.len());
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.extend(entries.values.iter().flat_map(|value| value.to_le_bytes()));
    let start = out.len();
    out.resize(start + set.bytes(), 0);
    set.put(&mut out[start..], 0, &entries.indices);
    Ok(())
}

/// Values and indices of checked bytes.
fn split(len: usize, bytes: &[u8]) -> Option<(IndexSet, &[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (values, indices) = rest.split_at_checked(count.checked_mul(4)?)?;
    (count <= len).then(|| (IndexSet::new(len, count), values, indices))
}

/// Whether `bytes` are at most `most` entries of a vector of `len` numbers.
pub(crate) fn check(len: usize, most: usize, bytes: &[u8]) -> Result<(), Malformed> {
    let cut_short = || Malformed(format!("{} bytes are no list of entries", bytes.len()));
    let (set, values, indices) = split(len, bytes).ok_or_else(cut_short)?;
    if values.len() / 4 > most {
        return Err(Malformed(format!("{} entries where at most {most} belong", values.len() / 4)));
    }
    expect_length(indices, set.bytes())?;
    check_floats(values)?;
    set.check(indices)
}

/// Calls `visit` with each entry, ascending.
pub(crate) fn visit(len: usize, bytes: &[u8], visit: &mut dyn FnMut(u32, f32)) {
    let Some((set, values, indices)) = split(len, bytes) else { return };
    let mut values = floats(values);
    set.visit(indices, |index| visit(index, values.next().unwrap_or(0.0)));
}

/// `acc += weight * entries`.
pub(crate) fn add_into(bytes: &[u8], weight: f32, acc: &mut [f32]) {
    let Some((set, values, indices)) = split(acc.len(), bytes) else { return };
    let mut adder = adder(weight, values, acc);
    set.visit(indices, |index| adder.push(index));
    adder.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(u32, f32)]) -> Entries {
        let mut entries = Entries::default();
        pairs.iter().for_each(|&(index, value)| entries.push(index, value));
        entries
    }

    #[test]
    fn the_greatest_are_selected_and_of_equals_the_first() {
        let mut found = Entries::default();
        found.select(&[1.0, -3.0, 3.0, 0.5, -1.0], 3).unwrap();
        assert_eq!(found, entries(&[(0, 1.0), (1, -3.0), (2, 3.0)]));
        found.select(&[0.0; 4], 9).unwrap();
        assert_eq!(found.len(), 4);
        assert!(found.select(&[1.0, f32::NAN], 1).is_err() && found.is_empty());
    }

    #[test]
    fn sums_merge_and_what_is_dropped_is_told() {
        let mut sum = Entries::default();
        sum.sum(&entries(&[(1, 1.0), (4, -2.0)]), &entries(&[(0, 0.5), (4, 5.0), (9, -1.0)]));
        assert_eq!(sum, entries(&[(0, 0.5), (1, 1.0), (4, 3.0), (9, -1.0)]));
        let mut dropped = Vec::new();
        sum.keep(2, |index, value| dropped.push((index, value)));
        assert_eq!(sum, entries(&[(1, 1.0), (4, 3.0)]));
        assert_eq!(dropped, [(0, 0.5), (9, -1.0)]);
        sum.keep(0, |_, _| {});
        assert!(sum.is_empty());
    }

    #[test]
    fn bytes_come_back_and_wrong_ones_are_refused() {
        let some = entries(&[(3, 1.5), (70, -2.0), (99, 0.0)]);
        let mut bytes = Vec::new();
        write(100, &some, &mut bytes).unwrap();
        assert!(bytes.len() <= limit(100, 3));
        check(100, 3, &bytes).unwrap();
        let mut read = Entries::default();
        visit(100, &bytes, &mut |index, value| read.push(index, value));
        assert_eq!(read, some);
        let (mut a, mut b) = (vec![1.0; 100], vec![1.0; 100]);
        add_into(&bytes, 0.5, &mut a);
        some.add_into(0.5, &mut b);
        assert_eq!(a, b);
        assert!(
            check(100, 2, &bytes)
                .unwrap_err()
                .to_string()
                .contains("3 entries where at most 2 belong")
        );
        assert!(check(99, 3, &bytes).is_err() && check(100, 3, &bytes[..bytes.len() - 1]).is_err());
        bytes[0] = 200;
        assert!(check(100, 300, &bytes).is_err());
        assert!(
            write(100, &entries(&[(7, f32::INFINITY)]), &mut Vec::new()).unwrap_err().index == 7
        );
    }
}
