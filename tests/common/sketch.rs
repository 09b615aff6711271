//! A count sketch in plain f64: Charikar, Chen and Farach-Colton 2002, Finding Frequent Items in
//! Data Streams, section 3, with the hashes of the crate's documentation, written from it. It
//! shares no code with the crate except the words of a stream.

use gradvine::{compress::SketchShape, rng::Stream};

/// Cell and sign of number `i` in a row: a random cubic modulo 2^61 - 1 of its block of 32 (or as
/// many as fit), the lowest 32 bits as signs, 29 more as the place.
pub fn place(hashes: Stream, row: usize, i: usize, columns: usize) -> (usize, f64) {
    let p = (1u128 << 61) - 1;
    let length = (0..=5).map(|bits| 1 << bits).filter(|length| *length <= columns).max().unwrap();
    let (block, within) = ((i / length) as u128, i % length);
    let a: Vec<u128> = (0..4).map(|k| u128::from(hashes.with(row as u64).u64_at(k)) % p).collect();
    let word =
        (a[0] + a[1] * block + a[2] * (block * block % p) + a[3] * (block * block % p * block % p))
            % p;
    let start = (((word >> 32) * columns as u128) >> 29) as usize;
    ((start + within) % columns, if word >> within & 1 == 1 { -1.0 } else { 1.0 })
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    let n = x.len();
    if n % 2 == 1 { x[n / 2] } else { (x[n / 2 - 1] + x[n / 2]) / 2.0 }
}

/// A count sketch in plain `f64`, cell by cell.
pub struct Plain {
    hashes: Stream,
    columns: usize,
    len: usize,
    pub table: Vec<Vec<f64>>,
}

impl Plain {
    /// S_j[h_j(i)] += s_j(i) v_i for each row j.
    pub fn of(v: &[f64], SketchShape { rows, columns }: SketchShape, hashes: Stream) -> Plain {
        let mut table = vec![vec![0.0; columns]; rows];
        for (row, table) in table.iter_mut().enumerate() {
            for (i, x) in v.iter().enumerate() {
                let (cell, sign) = place(hashes, row, i, columns);
                table[cell] += sign * x;
            }
        }
        Plain { hashes, columns, len: v.len(), table }
    }

    /// The median over rows of s_j(i) S_j[h_j(i)].
    pub fn estimate(&self, i: usize) -> f64 {
        let of = |(row, table): (usize, &Vec<f64>)| {
            let (cell, sign) = place(self.hashes, row, i, self.columns);
            sign * table[cell]
        };
        median(self.table.iter().enumerate().map(of).collect())
    }

    pub fn estimates(&self) -> Vec<f64> {
        (0..self.len).map(|i| self.estimate(i)).collect()
    }

    /// The median over rows of |S_j|^2.
    pub fn l2_squared(&self) -> f64 {
        median(self.table.iter().map(|row| row.iter().map(|x| x * x).sum()).collect())
    }

    /// The ratio of a number's squared estimate to the limit of the heavy ones among k: {i:
    /// ghat_i^2 >= l2^2 / k} are those with 1 and more.
    pub fn weights(&self, k: usize) -> Vec<f64> {
        let least = self.l2_squared() / k as f64;
        self.estimates().into_iter().map(|x| x * x / least).collect()
    }
}
