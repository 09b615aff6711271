//! What `low-rank` keeps, against a second one written here from the paper, in `f64` and without
//! blocks.

use std::sync::Arc;

use gradvine::{
    compress::{self, Compressor},
    rng::{Purpose, Stream},
    vector,
};

fn compressor(rank: usize) -> Arc<dyn Compressor> {
    compress::build(&toml::from_str(&format!("kind = 'low-rank'\nrank = {rank}")).unwrap())
        .unwrap()
        .compressor
}

fn noise(trial: u64) -> Stream {
    Stream::new(17, Purpose::Compress).with(trial)
}

fn gaussian(len: usize, seed: u64) -> Vec<f32> {
    let mut normal = Stream::new(seed, Purpose::Test).sequence();
    (0..len).map(|_| normal.normal() as f32).collect()
}

/// P and Q as they are sent.
fn factors(rank: usize, v: &[f32], trial: u64) -> (Vec<f64>, Vec<f64>) {
    let mut bytes = Vec::new();
    compressor(rank).encode(v, noise(trial), &mut bytes).unwrap();
    compressor(rank).check(v.len(), &bytes).unwrap();
    let all: Vec<f64> =
        bytes.as_chunks::<4>().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect();
    let (rows, columns, rank) = shape(v.len(), rank);
    assert_eq!(all.len(), rank * (rows + columns));
    let (p, q) = all.split_at(rank * rows);
    (p.to_vec(), q.to_vec())
}

fn apply(rank: usize, v: &[f32], trial: u64) -> Vec<f32> {
    let mut bytes = Vec::new();
    compressor(rank).encode(v, noise(trial), &mut bytes).unwrap();
    let mut c = vec![0.0; v.len()];
    compressor(rank).add_into(&bytes, noise(trial), 1.0, &mut c);
    c
}

fn shape(len: usize, rank: usize) -> (usize, usize, usize) {
    let columns = (1..).take_while(|m| m * m <= len).last().unwrap_or(0);
    (len.div_ceil(columns.max(1)), columns, rank.min(columns))
}

fn product(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Algorithm 1 for one node and one step.
fn reference(rank: usize, v: &[f32], trial: u64) -> Vec<f64> {
    let (rows, columns, rank) = shape(v.len(), rank);
    let at = |i: usize, j: usize| v.get(i * columns + j).map_or(0.0, |x| f64::from(*x));
    let mut normal = noise(trial).sequence();
    let mut p: Vec<Vec<f64>> = Vec::new();
    for _ in 0..rank {
        let start: Vec<f64> = (0..columns).map(|_| normal.normal()).collect();
        let mut column: Vec<f64> =
            (0..rows).map(|i| (0..columns).map(|j| at(i, j) * start[j]).sum()).collect();
        for other in &p {
            let part = product(&column, other);
            column.iter_mut().zip(other).for_each(|(x, other)| *x -= part * other);
        }
        let norm = product(&column, &column).sqrt();
        column.iter_mut().for_each(|x| *x /= norm);
        p.push(column);
    }
    let q: Vec<Vec<f64>> = p
        .iter()
        .map(|p| (0..columns).map(|j| (0..rows).map(|i| at(i, j) * p[i]).sum()).collect())
        .collect();
    (0..v.len())
        .map(|at| {
            p.iter().zip(&q).map(|(p, q): (_, &Vec<f64>)| p[at / columns] * q[at % columns]).sum()
        })
        .collect()
}

#[test]
fn one_step_of_the_power_iteration_as_in_the_paper() {
    for (len, rank) in
        [(1, 1), (5, 1), (12, 2), (100, 3), (1000, 2), (1000, 8), (5000, 4), (70_000, 1)]
    {
        for trial in 0..3 {
            let v = gaussian(len, 1 + trial);
            let (found, expected) = (apply(rank, &v, trial), reference(rank, &v, trial));
            let error: f64 =
                found.iter().zip(&expected).map(|(f, e)| (f64::from(*f) - e).powi(2)).sum();
            let relative = (error / vector::norm_squared(&v)).sqrt();
            assert!(relative < 1e-4, "rank {rank} of {len}: off by {relative}");
            // Another start is another projection.
            if rank < shape(len, rank).1 {
                assert_ne!(apply(rank, &v, trial + 100), found);
            }
        }
    }
}

#[test]
fn p_is_orthonormal_and_q_is_the_rest() {
    for (len, rank) in [(9, 3), (700, 3), (1000, 16), (5000, 64), (40_000, 128)] {
        let v = gaussian(len, 5);
        let (rows, columns, rank) = shape(len, rank);
        let (p, q) = factors(rank, &v, 1);
        for (k, one) in p.chunks(rows).enumerate() {
            for (l, other) in p.chunks(rows).enumerate() {
                let expected = if k == l { 1.0 } else { 0.0 };
                assert!(
                    (product(one, other) - expected).abs() < 1e-6,
                    "columns {k} and {l} of {len}"
                );
            }
        }
        for (p, q) in p.chunks(rows).zip(q.chunks(columns)) {
            for (j, q) in q.iter().enumerate() {
                let expected: f64 = v
                    .chunks(columns)
                    .zip(p)
                    .map(|(row, p)| f64::from(*row.get(j).unwrap_or(&0.0)) * p)
                    .sum();
                assert!((q - expected).abs() < 1e-4, "{q} and {expected}");
            }
        }
        // Pythagoras: what is kept and what is lost are orthogonal. What is kept of the zeros
        // behind the end is not seen.
        let unseen: f64 = (len..rows * columns)
            .map(|at| {
                (0..rank)
                    .map(|k| p[k * rows + at / columns] * q[k * columns + at % columns])
                    .sum::<f64>()
                    .powi(2)
            })
            .sum();
        let (whole, lost) =
            (vector::norm_squared(&v), vector::distance_squared(&apply(rank, &v, 1), &v));
        assert!((whole - lost - product(&q, &q) - unseen).abs() < 1e-5 * whole, "{len}");
    }
}

/// x of rank r: row i is a sum of r patterns.
fn low_rank(len: usize, rank: usize) -> Vec<f32> {
    let (rows, columns, _) = shape(len, rank);
    let (a, b) = (gaussian(rows * rank, 8), gaussian(columns * rank, 9));
    let at =
        |i: usize| (0..rank).map(|k| a[i / columns * rank + k] * b[i % columns * rank + k]).sum();
    (0..len).map(at).collect()
}

#[test]
fn a_matrix_of_low_rank_comes_back_whole() {
    for (rank, kept) in [(1, 1), (1, 5), (2, 2), (3, 8), (0, 4)] {
        // Of a last row cut short the rank may be one more.
        let v = low_rank(32 * 32, rank);
        let c = apply(kept, &v, 2);
        let lost = vector::distance_squared(&c, &v);
        assert!(lost <= 1e-9 * vector::norm_squared(&v), "rank {rank}, {kept} kept: {lost}");
        // Columns that are no direction of their own are zeros, not noise and not NaN.
        let (p, _) = factors(kept, &v, 2);
        let used = p.chunks(32).filter(|column| column.iter().any(|x| *x != 0.0)).count();
        assert_eq!(used, rank.min(kept), "of {kept} columns");
    }
    // One too few loses something: the figure above can be missed.
    let v = low_rank(32 * 32, 3);
    assert!(vector::distance_squared(&apply(2, &v, 2), &v) > 1e-3 * vector::norm_squared(&v));
}

#[test]
fn every_scale_is_kept() {
    for scale in [1e-30f32, 1e-10, 1.0, 1e10, 1e30] {
        let v: Vec<f32> = low_rank(400, 2).iter().map(|x| scale * x).collect();
        let lost = vector::distance_squared(&apply(2, &v, 3), &v);
        assert!(lost <= 1e-9 * vector::norm_squared(&v), "{scale}: {lost}");
    }
}

#[test]
fn gaussian_numbers_keep_what_the_formula_says() {
    for rank in [1, 2, 8] {
        let compressor = compressor(rank);
        let nominal = compress::nominal_delta(&*compressor, 90_000);
        let kept = (0..4).map(|seed| {
            let v = gaussian(90_000, 20 + seed);
            1.0 - vector::distance_squared(&apply(rank, &v, seed), &v) / vector::norm_squared(&v)
        });
        let kept = kept.sum::<f64>() / 4.0;
        assert!((kept / nominal - 1.0).abs() < 0.02, "rank {rank}: {kept} kept, {nominal} said");
    }
}
