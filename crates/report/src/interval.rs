//! Confidence intervals over seeds: of a mean, and of the comparison of two rows that ran with the
//! same seeds.
//!
//! All are 95 % intervals of Student's t with n - 1 degrees of freedom (Student, "The Probable
//! Error of a Mean", 1908). They hold for means of independent seeds whose figures are about
//! normal. Two rows are compared seed by seed, so the effect of a seed on both (its rows of data,
//! its test rows) cancels:
//!
//! | comparison | is |
//! |---|---|
//! | ratio | the geometric mean of `a_s / b_s`: the t-interval of the mean of `ln a_s - ln b_s`, exponentiated; for figures above 0 |
//! | difference | the t-interval of the mean of `a_s - b_s` |
//! | slope | of each seed the least-squares slope of `ln y` over `ln x`; the t-interval of the mean of these slopes |

use serde::Serialize;

/// The two-sided 95 % points of Student's t for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
    2.262_157, 2.228_139,
];
/// The same point of the normal distribution.
const NORMAL: f64 = 1.959_963_985;

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate: a mean over seeds, a ratio or a slope.
    pub mean: f64,
    /// The lower end; equal to the mean for one seed, or if all seeds agree.
    pub low: f64,
    /// The upper end; equal to the mean where the lower end is.
    pub high: f64,
}

/// The two-sided 95 % point of Student's t: `P(|T| > t) = 0.05`. A table up to 10 degrees of
/// freedom, then Fisher's expansion (Abramowitz and Stegun, "Handbook of Mathematical Functions",
/// 26.7.5), correct to 5 digits from there on.
pub fn student(freedom: usize) -> f64 {
    if let Some(t) = freedom.checked_sub(1).and_then(|index| STUDENT.get(index)) {
        return *t;
    }
    let (x, n) = (NORMAL, freedom as f64);
    let (x3, x5, x7, x9) = (x.powi(3), x.powi(5), x.powi(7), x.powi(9));
    x + (x3 + x) / (4.0 * n)
        + (5.0 * x5 + 16.0 * x3 + 3.0 * x) / (96.0 * n.powi(2))
        + (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / (384.0 * n.powi(3))
        + (79.0 * x9 + 776.0 * x7 + 1482.0 * x5 - 1920.0 * x3 - 945.0 * x) / (92160.0 * n.powi(4))
}

impl Interval {
    /// The interval of the mean of some values; `None` if there are none, or one is not finite.
    pub fn of(values: &[f64]) -> Option<Interval> {
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
        // The remainder for equal values is the rounding of their sum.
        let equal = values.iter().all(|value| *value == values[0]);
        let half = if equal {
            0.0
        } else {
            student(values.len() - 1) * (squares / (count - 1.0) / count).sqrt()
        };
        let mean = if equal { values[0] } else { mean };
        Some(Interval { mean, low: mean - half, high: mean + half })
    }

    /// The interval of `a - b`, seed by seed.
    ///
    /// # Panics
    /// If `a` and `b` differ in length.
    pub fn of_differences(a: &[f64], b: &[f64]) -> Option<Interval> {
        assert_eq!(a.len(), b.len(), "both rows ran with the same seeds");
        Interval::of(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
    }

    /// The interval of `a / b`, seed by seed; `None` unless all values are above 0.
    ///
    /// # Panics
    /// If `a` and `b` differ in length.
    pub fn of_ratios(a: &[f64], b: &[f64]) -> Option<Interval> {
        assert_eq!(a.len(), b.len(), "both rows ran with the same seeds");
        if a.iter().chain(b).any(|value| value.is_nan() || *value <= 0.0) {
            return None;
        }
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        if ratios.iter().all(|ratio| *ratio == ratios[0]) {
            return Interval::of(&ratios);
        }
        let logarithms = Interval::of(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>())?;
        Some(Interval {
            mean: logarithms.mean.exp(),
            low: logarithms.low.exp(),
            high: logarithms.high.exp(),
        })
    }

    /// The interval of the slope of `ln y` over `ln x`, with one slope per seed. `rows` has for
    /// each x the y of every seed. `None` unless there are two or more different x, and all values
    /// are above 0.
    ///
    /// # Panics
    /// If `rows` and `x` differ in length, or rows differ in their seeds.
    pub fn of_slopes(x: &[f64], rows: &[Vec<f64>]) -> Option<Interval> {
        assert_eq!(x.len(), rows.len(), "a row for each x");
        let fine = |value: &f64| value.is_finite() && *value > 0.0;
        if !x.iter().all(fine) || !rows.iter().flatten().all(fine) {
            return None;
        }
        let x: Vec<f64> = x.iter().map(|x| x.ln()).collect();
        let middle = x.iter().sum::<f64>() / x.len() as f64;
        let spread: f64 = x.iter().map(|x| (x - middle) * (x - middle)).sum();
        if spread <= 0.0 {
            return None;
        }
        let slope = |seed: usize| {
            let product = |(x, row): (&f64, &Vec<f64>)| (x - middle) * row[seed].ln();
            x.iter().zip(rows).map(product).sum::<f64>() / spread
        };
        let slopes: Vec<f64> = (0..rows.first()?.len()).map(slope).collect();
        Interval::of(&slopes)
    }

    /// Half the distance between the two ends.
    pub fn half(&self) -> f64 {
        0.5 * (self.high - self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_s_points_are_those_of_the_tables() {
        for (freedom, t) in
            [(1, 12.7062), (2, 4.30265), (4, 2.77645), (7, 2.36462), (9, 2.26216), (10, 2.22814)]
        {
            assert!((student(freedom) - t).abs() < 1e-5, "{freedom}: {}", student(freedom));
        }
        for (freedom, t) in [(11, 2.200_985), (15, 2.131_450), (30, 2.042_272), (100, 1.983_972)] {
            assert!((student(freedom) - t).abs() < 5e-5, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn an_interval_by_hand() {
        // Mean 3, deviation sqrt 7 of three: 4.302653 * sqrt(7 / 3).
        let interval = Interval::of(&[1.0, 2.0, 6.0]).unwrap();
        assert_eq!(interval.mean, 3.0);
        assert!((interval.half() - 4.302_653 * (7f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(
            Interval::of(&[0.1, 0.1, 0.1]),
            Some(Interval { mean: 0.1, low: 0.1, high: 0.1 })
        );
        assert_eq!(Interval::of(&[5.0]).unwrap().half(), 0.0);
        assert_eq!((Interval::of(&[]), Interval::of(&[1.0, f64::INFINITY])), (None, None));
    }

    #[test]
    fn rows_are_compared_seed_by_seed() {
        // The seeds differ a hundredfold, the rows by a factor of 2 and by 1 %.
        let (a, b) = ([2.0, 20.0, 202.0], [1.0, 10.0, 100.0]);
        let ratio = Interval::of_ratios(&a, &b).unwrap();
        assert!(
            (ratio.mean - 2.0066).abs() < 1e-3 && ratio.low > 1.97 && ratio.high < 2.04,
            "{ratio:?}"
        );
        assert_eq!(Interval::of_ratios(&[0.0, 1.0], &[1.0, 1.0]), None);
        let exact = Interval::of_ratios(&[3.0, 30.0], &[1.0, 10.0]).unwrap();
        assert_eq!((exact.low, exact.mean, exact.high), (3.0, 3.0, 3.0));
        let difference =
            Interval::of_differences(&[1.5, 11.0, 101.5], &[1.0, 10.0, 100.0]).unwrap();
        assert!(
            (difference.mean - 1.0).abs() < 1e-12
                && (difference.half() - 4.302_653 * 0.5 / 3f64.sqrt()).abs() < 1e-5
        );
    }

    #[test]
    fn slopes_are_exponents() {
        let x = [1.0, 10.0, 100.0];
        let rows: Vec<Vec<f64>> =
            x.iter().map(|x: &f64| vec![3.0 * x.powi(-2), 7.0 * x.powi(-2)]).collect();
        let slope = Interval::of_slopes(&x, &rows).unwrap();
        assert!((slope.mean + 2.0).abs() < 1e-12 && slope.half() < 1e-9, "{slope:?}");
        let noisy = Interval::of_slopes(
            &[1.0, std::f64::consts::E],
            &[vec![1.0, 1.0], vec![1.0, std::f64::consts::E]],
        );
        let noisy = noisy.unwrap();
        assert!((noisy.mean - 0.5).abs() < 1e-12 && (noisy.half() - 12.706_205 * 0.5).abs() < 1e-6);
        assert_eq!(Interval::of_slopes(&[2.0, 2.0], &[vec![1.0], vec![2.0]]), None);
        assert_eq!(Interval::of_slopes(&[1.0, 2.0], &[vec![1.0], vec![f64::INFINITY]]), None);
    }
}
