//! The cell of a sketch's row that a number is added to, and its sign there.
//!
//! Numbers are placed by blocks of B = 32 (if a row has fewer than 32 cells: the greatest power of
//! two that fits). For block b a row draws one word f(b), f a random polynomial of degree 3 over
//! the integers modulo p = 2^61 - 1 (Carter and Wegman 1979; Wegman and Carter 1981), with
//! coefficients from the stream that all nodes share:
//!
//! ```text
//! f(b) = a3 b^3 + a2 b^2 + a1 b + a0 mod p                 h(i) = (floor(high(f) c / 2^29) + i mod B) mod c
//! b = floor(i / B)                                         s(i) = -1 if bit i mod B of low(f) is set, else +1
//! ```
//!
//! with low(f) the lowest 32 bits and high(f) the 29 above.
//!
//! **Independence.** f is 4-wise independent over blocks, and a word is uniform except for 1 in
//! 2^61. So the signs of any four numbers are independent, as the variance of the second moment
//! requires, and independent of all cells. Two numbers of different blocks share a cell with
//! probability 1/c (1 + c / 2^29 at the most, by the rounding of a position), two of the same block
//! never: h is 2-universal, which is all that the proofs of a count sketch need. Rows have
//! coefficients of their own and are independent.
//!
//! DIFFERENCE to a hash of every number: neighbouring numbers stay side by side, so that a block is
//! one range of memory. The expected error of one number is the same; but if two blocks overlap,
//! several of their numbers collide at once, so failures come in clusters.

use crate::rng::Stream;

/// The most numbers that are placed together: a word has this many sign bits.
pub(super) const BLOCK: usize = 32;

/// 2^61 - 1, a prime.
const P: u64 = (1 << 61) - 1;

/// The polynomial of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hash {
    /// a0 to a3, each below 2^61 - 1.
    coefficients: [u64; 4],
}

/// The position and the signs of a block in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The cell of its first number; the others follow, and wrap around at the end of the row.
    pub(super) start: usize,
    /// Bit i is set if its number i changes its sign.
    pub(super) signs: u32,
}

impl Hash {
    /// The hash of a row, from the stream of the whole sketch.
    pub(super) fn of_row(hashes: Stream, row: usize) -> Hash {
        let words = hashes.with(row as u64);
        Hash { coefficients: [0, 1, 2, 3].map(|degree| words.u64_at(degree) % P) }
    }

    /// The place of a block in a row of `columns` cells.
    #[inline(always)]
    pub(super) fn place(&self, block: usize, columns: usize) -> Place {
        Place::of(self.word(block), columns)
    }

    /// The places of the blocks from `block` on, in order.
    #[inline]
    pub(super) fn walk(&self, block: usize) -> Walk {
        let mut differences = [0; 4];
        for (ahead, difference) in differences.iter_mut().enumerate() {
            *difference = self.word(block + ahead);
        }
        for order in 1..4 {
            for i in (order..4).rev() {
                differences[i] = sum(differences[i], P - differences[i - 1]);
            }
        }
        Walk { differences }
    }

    /// f(block).
    #[inline(always)]
    fn word(&self, block: usize) -> u64 {
        let [a0, a1, a2, a3] = self.coefficients;
        let at =
            |factor, constant| reduced(u128::from(factor) * block as u128 + u128::from(constant));
        at(at(at(a3, a2), a1), a0)
    }
}

impl Place {
    #[inline(always)]
    fn of(word: u64, columns: usize) -> Place {
        Place { start: (((word >> 32) * columns as u64) >> 29) as usize, signs: word as u32 }
    }
}

/// The blocks of a row in order. The third differences of a cubic are constant, so the next word
/// takes three additions and no multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    /// f(b), then its differences of first, second and third order.
    differences: [u64; 4],
}

impl Walk {
    /// Returns the place of the current block and advances to the next one.
    #[inline(always)]
    pub(super) fn step(&mut self, columns: usize) -> Place {
        let [word, first, second, third] = self.differences;
        self.differences = [sum(word, first), sum(first, second), sum(second, third), third];
        Place::of(word, columns)
    }
}

/// a + b mod p, for a < p and b <= p.
#[inline(always)]
fn sum(a: u64, b: u64) -> u64 {
    let sum = a + b;
    // If the sum is below p, the difference wraps around to a large number.
    sum.min(sum.wrapping_sub(P))
}

/// The length of a block in rows of `columns` cells: no two of its numbers may share a cell.
#[inline]
pub(super) fn block_of(columns: usize) -> usize {
    if columns >= BLOCK { BLOCK } else { 1 << columns.max(1).ilog2() }
}

/// x mod p, for x < 2^122.
#[inline(always)]
fn reduced(x: u128) -> u64 {
    let sum = (x as u64 & P) + (x >> 61) as u64;
    let sum = (sum & P) + (sum >> 61);
    if sum >= P { sum - P } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    fn hash(trial: u64) -> Hash {
        Hash::of_row(Stream::new(trial, Purpose::Test), 0)
    }

    #[test]
    fn remainders_are_those_of_the_prime() {
        let p = u128::from(P);
        let most = (p - 1) * u128::from(u32::MAX) + p - 1;
        for x in [
            0,
            1,
            p - 1,
            p,
            p + 1,
            2 * p - 1,
            2 * p,
            3 * p + 7,
            p * u128::from(u32::MAX),
            most,
            p * p - 1,
        ] {
            assert_eq!(u128::from(reduced(x)), x % p);
        }
    }

    #[test]
    fn a_polynomial_is_what_the_documentation_says() {
        let (p, columns) = (u128::from(P), 1000usize);
        for trial in 0..50 {
            let hash = hash(trial);
            for block in [0usize, 1, 2, 77, 31_337, u32::MAX as usize] {
                let b = block as u128;
                let [a0, a1, a2, a3] = hash.coefficients.map(u128::from);
                let word =
                    (a0 + a1 * b % p + a2 * (b * b % p) % p + a3 * (b * b % p * b % p) % p) % p;
                let start = (word >> 32) * columns as u128 / (1 << 29);
                let expected = Place { start: start as usize, signs: word as u32 };
                assert_eq!(hash.place(block, columns), expected);
            }
        }
    }

    #[test]
    fn a_walk_meets_every_place() {
        for trial in 0..20 {
            let hash = hash(trial);
            for from in [0, 1, 1000, (1 << 27) - 50] {
                let mut walk = hash.walk(from);
                for block in from..from + 500 {
                    assert_eq!(walk.step(777), hash.place(block, 777), "block {block} from {from}");
                }
            }
        }
    }

    #[test]
    fn two_blocks_meet_as_often_as_chance_and_signs_are_fair() {
        let (columns, trials) = (64usize, 60_000u64);
        let (mut met, mut signs) = (0u32, [0f64; 32]);
        let mut products = 0f64;
        for trial in 0..trials {
            let hash = hash(trial);
            // Close and far apart: the polynomial must not favour any distance.
            let (a, b) = (
                hash.place(trial as usize % 7, columns),
                hash.place(7 + trial as usize % 1000, columns),
            );
            assert!(a.start < columns);
            met += u32::from(a.start == b.start);
            for (i, sum) in signs.iter_mut().enumerate() {
                *sum += if a.signs >> i & 1 == 1 { -1.0 } else { 1.0 };
            }
            products += if (a.signs ^ b.signs ^ (a.signs >> 9) ^ (b.signs >> 20)) & 1 == 1 {
                -1.0
            } else {
                1.0
            };
        }
        let n = trials as f64;
        let expected = n / columns as f64;
        assert!(
            (f64::from(met) - expected).abs() < 5.0 * expected.sqrt(),
            "{met}, {expected} expected"
        );
        assert!(
            signs.iter().chain([&products]).all(|sum| sum.abs() < 5.0 * n.sqrt()),
            "{signs:?} {products}"
        );
    }

    #[test]
    fn blocks_fit_into_their_rows() {
        let sizes = [1, 2, 3, 4, 20, 31, 32, 1000].map(block_of);
        assert_eq!(sizes, [1, 2, 2, 4, 16, 16, 32, 32]);
    }
}
