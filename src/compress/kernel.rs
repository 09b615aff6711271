//! Kernels compiled twice: for every CPU of the architecture, and for AVX2, chosen when the program
//! runs.
//!
//! Both give the same bits: neither may fuse a product with a sum, and reductions run in [`LANES`]
//! fixed lanes. In tests [`plainly`] forces the first version, so that each compressor can be
//! compared with itself.

pub(super) use crate::vector::lanes as sum;
use crate::vector::{LANES, update};

/// Defines functions whose body, helpers marked `#[inline(always)]` included, is compiled at each
/// dispatch level.
macro_rules! kernel {
    ($(
        $(#[$attribute:meta])*
        $visible:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?
        $body:block
    )*) => {$(
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments, reason = "a kernel is a loop with its constants, not \
            an interface")]
        $visible fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn body($($argument: $type),*) $(-> $result)? $body
            #[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+lzcnt+popcnt"))]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            fn wide($($argument: $type),*) $(-> $result)? {
                body($($argument),*)
            }
            #[cfg(test)]
            if $crate::compress::kernel::is_plain() {
                return body($($argument),*);
            }
            wide($($argument),*)
        }
    )*};
}
pub(super) use kernel;

#[cfg(test)]
thread_local!(static PLAIN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

/// Whether a test has asked for the plain kernels on this thread.
#[cfg(test)]
pub(super) fn is_plain() -> bool {
    PLAIN.get()
}

/// Runs `work` with the plain kernels.
#[cfg(test)]
pub(super) fn plainly<R>(work: impl FnOnce() -> R) -> R {
    PLAIN.set(true);
    let result = work();
    PLAIN.set(false);
    result
}

/// Prefetches `x`: reads one number of each cache line. A bucket that is read twice comes from the
/// cache the second time, so memory would be idle meanwhile.
#[inline(always)]
pub(super) fn fetch(x: &[f32]) {
    const LINE: usize = 64 / size_of::<f32>();
    let lines = x.as_chunks::<LINE>().0;
    std::hint::black_box(lines.iter().fold(0, |all, line| all | line[0].to_bits()));
}

/// The least and the greatest number of `x`; `None` if one is a NaN or an infinity. (0, 0) if `x`
/// is empty.
#[inline(always)]
pub(super) fn range(x: &[f32]) -> Option<(f32, f32)> {
    let Some(&first) = x.first() else { return Some((0.0, 0.0)) };
    let (mut low, mut high, mut poison) = ([first; LANES], [first; LANES], [0f32; LANES]);
    let mut see = |block: &[f32]| {
        update(&mut low, block, |low, &x| *low = if x < *low { x } else { *low });
        update(&mut high, block, |high, &x| *high = if x > *high { x } else { *high });
        // 0 for a finite number, else NaN, which stays: the comparisons above do not detect a NaN.
        update(&mut poison, block, |poison, &x| *poison += x * 0.0);
    };
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        see(block);
    }
    see(rest);
    if poison.iter().any(|p| *p != 0.0) {
        return None;
    }
    let least = low.iter().fold(first, |a, &b| if b < a { b } else { a });
    let greatest = high.iter().fold(first, |a, &b| if b > a { b } else { a });
    Some((least, greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    kernel! {
        fn total(x: &[f32]) -> f64 { sum(x, f64::from) }
        fn ends(x: &[f32]) -> Option<(f32, f32)> { range(x) }
    }

    #[test]
    fn sums_and_ranges_do_not_depend_on_the_level() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.7).sin() * 1e3).collect();
        for len in [0, 1, 15, 16, 17, 1003] {
            let x = &x[..len];
            assert_eq!(total(x).to_bits(), plainly(|| total(x)).to_bits());
            let least = x.iter().copied().reduce(f32::min).unwrap_or(0.0);
            let greatest = x.iter().copied().reduce(f32::max).unwrap_or(0.0);
            assert_eq!(ends(x), Some((least, greatest)));
            assert_eq!(plainly(|| ends(x)), Some((least, greatest)));
        }
    }

    #[test]
    fn a_range_refuses_what_is_not_finite() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 7, 16, 40, 41] {
                let mut x = vec![1.0f32; 42];
                x[at] = bad;
                assert_eq!(ends(&x), None, "{bad} at {at}");
            }
        }
        assert_eq!(ends(&[f32::MAX, -f32::MAX]), Some((-f32::MAX, f32::MAX)));
    }
}
