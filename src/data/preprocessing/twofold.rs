//! Sums with twice the digits of `f64`: a number as the exact sum of two.
//!
//! Each operation keeps the error of its rounding (Knuth, The Art of Computer Programming, volume
//! 2, section 4.2.2, theorem C; Dekker, A floating-point technique for extending the available
//! precision, 1971). The relative error of a sum is below 1e-30, so that the variance of numbers
//! that differ only in their last digits as `f32` comes out right.

/// `high + low`: `low` is at most half of the last digit of `high`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Twofold {
    high: f64,
    low: f64,
}

impl Twofold {
    /// The number of these two parts; `None` if they are not finite, or `low` is too large.
    pub(crate) fn of_parts(high: f64, low: f64) -> Option<Twofold> {
        (high.is_finite() && high + low == high).then_some(Twofold { high, low })
    }

    pub(crate) fn parts(self) -> [f64; 2] {
        [self.high, self.low]
    }

    /// The nearest `f64`.
    pub(crate) fn value(self) -> f64 {
        self.high
    }

    /// The sum with an `f64`.
    pub(crate) fn plus(self, other: f64) -> Twofold {
        let (sum, error) = sum(self.high, other);
        normal(sum, error + self.low)
    }

    /// The sum of two of them.
    pub(crate) fn plus_all(self, other: Twofold) -> Twofold {
        let (high, error) = sum(self.high, other.high);
        let (low, rest) = sum(self.low, other.low);
        let first = normal(high, error + low);
        normal(first.high, first.low + rest)
    }

    /// The product with an `f64`.
    pub(crate) fn times(self, factor: f64) -> Twofold {
        let (product, error) = product(self.high, factor);
        normal(product, error + self.low * factor)
    }

    pub(crate) fn squared(self) -> Twofold {
        let (square, error) = product(self.high, self.high);
        normal(square, error + 2.0 * self.high * self.low)
    }
}

impl std::ops::Neg for Twofold {
    type Output = Twofold;

    fn neg(self) -> Twofold {
        Twofold { high: -self.high, low: -self.low }
    }
}

/// `a + b` and the error of its rounding: together the exact sum.
fn sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// `a b` and the error of its rounding: together the exact product.
fn product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, libm::fma(a, b, -product))
}

/// The same number, if `low` is far smaller than `high`.
fn normal(high: f64, low: f64) -> Twofold {
    let sum = high + low;
    Twofold { high: sum, low: low - (sum - high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_beyond_an_f64_are_kept() {
        // 2^60 + 1 - 2^60, each number too small for the digits of the sum.
        let mut number = Twofold::default().plus(f64::powi(2.0, 60));
        (0..1000).for_each(|_| number = number.plus(1.0));
        assert_eq!(number.plus(-f64::powi(2.0, 60)).value(), 1000.0);
        assert_eq!(number.plus_all(-number), Twofold::default());
        // (2^30 + 1)^2 = 2^60 + 2^31 + 1; 3 (2^53 + 1) = 2^54 + 2^53 + 3.
        let square = Twofold::default().plus(f64::powi(2.0, 30) + 1.0).squared();
        let rest = square.plus(-f64::powi(2.0, 60)).plus(-f64::powi(2.0, 31));
        assert_eq!(rest.value(), 1.0);
        let number = Twofold::default().plus(f64::powi(2.0, 53)).plus(1.0);
        let rest = number.times(3.0).plus(-f64::powi(2.0, 54)).plus(-f64::powi(2.0, 53));
        assert_eq!(rest.value(), 3.0);
        let [high, low] = number.parts();
        assert_eq!(Twofold::of_parts(high, low), Some(number));
        assert_eq!(Twofold::of_parts(1.0, 1.0), None);
        assert_eq!(Twofold::of_parts(f64::INFINITY, 0.0), None);
    }
}
