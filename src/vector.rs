//! One-pass kernels over `f32` slices.
//!
//! Replicas of one model live on two machines and must agree to the bit, so these kernels give the
//! same bits on every CPU: plain `*` and `+` (the compiler never fuses them), and sums in `LANES`
//! fixed lanes whatever the vector width.

/// The number of independent partial sums of a reduction. Fixed: it is part of the result.
pub(crate) const LANES: usize = 16;

/// `acc += weight * x`.
///
/// # Panics
/// If the lengths differ (as in every kernel of this module).
pub fn axpy(weight: f32, x: &[f32], acc: &mut [f32]) {
    assert_eq!(x.len(), acc.len());
    update(acc, x, |a, x| *a += weight * x);
}

/// `acc += weight * (x - from)`. With `x` and `from` exchanged, the added terms are the exact
/// negatives.
pub(crate) fn axpy_difference(weight: f32, x: &[f32], from: &[f32], acc: &mut [f32]) {
    assert_eq!((x.len(), from.len()), (acc.len(), acc.len()));
    update_by_two(acc, x, from, |a, x, from| *a += weight * (x - from));
}

/// `acc = weight * x`.
pub(crate) fn scaled(weight: f32, x: &[f32], acc: &mut [f32]) {
    assert_eq!(x.len(), acc.len());
    update(acc, x, |a, x| *a = weight * x);
}

/// `x *= weight`, number by number.
pub fn scale(weight: f32, x: &mut [f32]) {
    for x in x {
        *x *= weight;
    }
}

/// `acc += weight * x` for `x` as little-endian bytes of `f32`.
pub(crate) fn axpy_bytes(weight: f32, x: &[u8], acc: &mut [f32]) {
    assert_eq!(x.len(), 4 * acc.len());
    update(acc, x.as_chunks().0, |a, x| *a += weight * f32::from_le_bytes(*x));
}

/// `acc = x` for `x` as little-endian bytes of `f32`.
pub(crate) fn read_floats(x: &[u8], acc: &mut [f32]) {
    assert_eq!(x.len(), 4 * acc.len());
    update(acc, x.as_chunks().0, |a, x| *a = f32::from_le_bytes(*x));
}

/// [`axpy_difference`] for `x` as little-endian bytes of `f32`.
pub(crate) fn axpy_difference_bytes(weight: f32, x: &[u8], from: &[f32], acc: &mut [f32]) {
    assert_eq!((x.len(), from.len()), (4 * acc.len(), acc.len()));
    update_by_two(acc, x.as_chunks().0, from, |a, x, from| {
        *a += weight * (f32::from_le_bytes(*x) - from);
    });
}

/// Appends `x` as little-endian bytes.
pub fn write_floats(x: &[f32], out: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(x));
    } else {
        out.extend(x.iter().flat_map(|x| x.to_le_bytes()));
    }
}

/// `acc -= x`, number by number.
pub fn subtract(x: &[f32], acc: &mut [f32]) {
    assert_eq!(x.len(), acc.len());
    update(acc, x, |a, x| *a -= x);
}

/// `out = x - y`.
///
/// # Panics
/// If the lengths differ.
pub fn difference(x: &[f32], y: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len() && y.len() == out.len());
    update_by_two(out, x, y, |out, x, y| *out = x - y);
}

/// `acc -= x`, then `x = weight * acc`.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn subtract_and_scale(weight: f32, x: &mut [f32], acc: &mut [f32]) {
    assert_eq!(x.len(), acc.len());
    for (a, x) in acc.iter_mut().zip(x) {
        *a -= *x;
        *x = weight * *a;
    }
}

/// Calls `f` with each element of `a` and the element of `b` at the same place, up to the end of
/// the shorter one.
///
/// In inner loops, instead of [`Iterator::zip`]: the standard library's functions that make a `Zip`
/// are inlined within one codegen unit only.
#[inline(always)]
pub(crate) fn update<A, B>(a: &mut [A], b: &[B], mut f: impl FnMut(&mut A, &B)) {
    let len = a.len().min(b.len());
    let (a, b) = (&mut a[..len], &b[..len]);
    for i in 0..len {
        f(&mut a[i], &b[i]);
    }
}

/// As [`update`], with the elements of two slices.
#[inline(always)]
pub(crate) fn update_by_two<A, B, C>(
    a: &mut [A],
    b: &[B],
    c: &[C],
    mut f: impl FnMut(&mut A, &B, &C),
) {
    let len = a.len().min(b.len()).min(c.len());
    let (a, b, c) = (&mut a[..len], &b[..len], &c[..len]);
    for i in 0..len {
        f(&mut a[i], &b[i], &c[i]);
    }
}

/// The sum of `f(x[i])` in `f64`, in fixed lanes; not finite if a term is not. Part of the
/// functions that call it, which are compiled twice: for every CPU of the architecture and for
/// AVX2, with the same bits.
#[inline(always)]
pub(crate) fn lanes(x: &[f32], f: impl Fn(f32) -> f64) -> f64 {
    let mut sums = [0f64; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        update(&mut sums, block, |sum, &x| *sum += f(x));
    }
    update(&mut sums, rest, |sum, &x| *sum += f(x));
    sums.iter().sum()
}

/// The squared Euclidean norm, accumulated in `f64`.
#[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub fn norm_squared(x: &[f32]) -> f64 {
    lanes(x, |x| f64::from(x) * f64::from(x))
}

/// `x *= weight` in one pass with the squared norm of the result, as [`norm_squared`] forms it.
#[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub(crate) fn scale_and_measure(weight: f32, x: &mut [f32]) -> f64 {
    let mut sums = [0f64; LANES];
    let scaled = |sum: &mut f64, x: &mut f32| {
        *x *= weight;
        *sum += f64::from(*x) * f64::from(*x);
    };
    let (blocks, rest) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            scaled(&mut sums[i], &mut block[i]);
        }
    }
    for i in 0..rest.len() {
        scaled(&mut sums[i], &mut rest[i]);
    }
    sums.iter().sum()
}

/// The sum of absolute values, accumulated in `f64`.
#[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub fn norm_one(x: &[f32]) -> f64 {
    lanes(x, |x| f64::from(x.abs()))
}

/// The sum of `f(x[i], y[i])`, as [`lanes`].
#[inline(always)]
fn lanes_of_two(x: &[f32], y: &[f32], f: impl Fn(f64, f64) -> f64) -> f64 {
    assert_eq!(x.len(), y.len());
    let mut sums = [0f64; LANES];
    let ((blocks, rest), (others, rest_of_others)) =
        (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (block, other) in blocks.iter().zip(others) {
        update_by_two(&mut sums, block, other, |sum, &x, &y| *sum += f(x.into(), y.into()));
    }
    update_by_two(&mut sums, rest, rest_of_others, |sum, &x, &y| *sum += f(x.into(), y.into()));
    sums.iter().sum()
}

/// The inner product, accumulated in `f64`.
#[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub fn dot(x: &[f32], y: &[f32]) -> f64 {
    lanes_of_two(x, y, |x, y| x * y)
}

/// The squared Euclidean distance, accumulated in `f64`.
#[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub fn distance_squared(x: &[f32], y: &[f32]) -> f64 {
    lanes_of_two(x, y, |x, y| (x - y) * (x - y))
}

/// The position of the first NaN or infinity, if there is one. The pass over a finite vector is
/// branch-free.
pub fn first_non_finite(x: &[f32]) -> Option<usize> {
    const EXPONENT: u32 = 0x7F80_0000;
    for (block, chunk) in x.chunks(4096).enumerate() {
        let bad = chunk.iter().fold(false, |bad, x| bad | (x.to_bits() & EXPONENT == EXPONENT));
        if bad {
            return chunk.iter().position(|x| !x.is_finite()).map(|i| block * 4096 + i);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_match_plain_sums() {
        let x: Vec<f32> = (0..1001).map(|i| (i as f32 - 500.0) / 7.0).collect();
        let y: Vec<f32> = (0..1001).map(|i| (i as f32 * 0.3).sin()).collect();
        let plain: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
        assert!((norm_squared(&x) - plain).abs() < 1e-9 * plain);
        let plain: f64 = x.iter().map(|&x| f64::from(x).abs()).sum();
        assert!((norm_one(&x) - plain).abs() < 1e-9 * plain);
        let plain: f64 =
            x.iter().zip(&y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum();
        assert!((distance_squared(&x, &y) - plain).abs() < 1e-9 * plain);
        let mut acc = y.clone();
        axpy(0.5, &x, &mut acc);
        assert!(acc.iter().zip(&x).zip(&y).all(|((a, x), y)| *a == y + 0.5 * x));
    }

    #[test]
    fn sums_have_fixed_lanes_on_every_processor() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.7).sin() * 1e3).collect();
        let y: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.3).cos() * 1e2).collect();
        // One number after the other, which no compiler vectorises.
        let sum = |len: usize, f: &dyn Fn(f64, f64) -> f64| {
            let mut sums = [0f64; LANES];
            for i in 0..len {
                sums[i % LANES] += std::hint::black_box(f(f64::from(x[i]), f64::from(y[i])));
            }
            sums.iter().sum::<f64>().to_bits()
        };
        for len in [0, 1, 15, 16, 17, 1003] {
            let (x, y) = (&x[..len], &y[..len]);
            assert_eq!(norm_squared(x).to_bits(), sum(len, &|x, _| x * x), "{len}");
            assert_eq!(norm_one(x).to_bits(), sum(len, &|x, _| x.abs()), "{len}");
            assert_eq!(dot(x, y).to_bits(), sum(len, &|x, y| x * y), "{len}");
            let squared = sum(len, &|x, y| (x - y) * (x - y));
            assert_eq!(distance_squared(x, y).to_bits(), squared, "{len}");
            let (mut one, mut other) = (x.to_vec(), x.to_vec());
            let measured = scale_and_measure(0.3, &mut one);
            scale(0.3, &mut other);
            assert_eq!((measured.to_bits(), &one), (norm_squared(&other).to_bits(), &other));
        }
    }

    #[test]
    fn the_first_non_finite_value_is_found() {
        let mut x = vec![1.0f32; 10_000];
        assert_eq!(first_non_finite(&x), None);
        x[9_000] = f32::NEG_INFINITY;
        assert_eq!(first_non_finite(&x), Some(9_000));
        x[4_096] = f32::NAN;
        assert_eq!(first_non_finite(&x), Some(4_096));
        assert_eq!(first_non_finite(&[f32::MAX, f32::MIN_POSITIVE / 2.0]), None);
    }
}
