//! Mappings from figures to pixels, their ticks, and the ticks' labels.

use super::{Spacing, Unit};

/// The maximum span of a logarithmic axis, in decades.
const MOST_DECADES: f64 = 14.0;

/// A mapping from figures to pixels.
pub(crate) struct Scale {
    /// The ends, in transformed figures.
    low: f64,
    high: f64,
    spacing: Spacing,
    /// The least distance from 1 that is told apart on an axis of errors.
    floor: f64,
    pixels: (f64, f64),
}

impl Scale {
    /// A scale over these figures, with a little room at the ends if `roomy`; `None` if none can be
    /// shown.
    pub(crate) fn over(
        values: impl Iterator<Item = f64>,
        spacing: Spacing,
        pixels: (f64, f64),
        roomy: bool,
    ) -> Option<Scale> {
        let values: Vec<f64> = values.filter(|x| is_shown(*x, spacing)).collect();
        // Figures of 1 lie half as far from 1 as the nearest others.
        let errors = values.iter().map(|x| 1.0 - x).filter(|error| *error > 0.0);
        let floor = 0.5 * errors.reduce(f64::min).unwrap_or(2.0 * NO_ERROR);
        let shown = values.iter().map(|x| transformed(*x, spacing, floor));
        let (mut low, high) =
            shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if low > high {
            return None;
        }
        if spacing == Spacing::Log {
            low = low.max(high - MOST_DECADES);
        }
        let least = if spacing == Spacing::Linear { 1e-9 + 1e-3 * high.abs() } else { 0.3 };
        let room =
            if roomy { 0.04 * (high - low) } else { 0.0 } + 0.5 * (least - (high - low)).max(0.0);
        Some(Scale { low: low - room, high: high + room, spacing, floor, pixels })
    }

    /// Whether a figure has a place on the axis.
    pub(super) fn has(&self, value: f64) -> bool {
        is_shown(value, self.spacing)
    }

    /// The position, which may lie outside the plot.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let x = transformed(value, self.spacing, self.floor);
        let share = ((x - self.low) / (self.high - self.low)).clamp(-3.0, 4.0);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Round figures along the axis, about `about` of them if it is linear, and whether each has a
    /// label.
    pub(crate) fn ticks(&self, about: usize) -> Vec<(f64, bool)> {
        match self.spacing {
            Spacing::Linear => {
                let step = round_step((self.high - self.low) / about as f64);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                (first..=last).map(|count| (count as f64 * step, true)).collect()
            }
            Spacing::Log => decades(self.low, self.high),
            Spacing::Error => {
                let mut ticks: Vec<(f64, bool)> = decades(-self.high, -self.low)
                    .into_iter()
                    .filter(|(error, _)| *error <= 1.0 && *error > 1.2 * self.floor)
                    .map(|(error, major)| (1.0 - error, major))
                    .collect();
                if self.high >= -self.floor.log10() {
                    ticks.push((1.0, true));
                }
                ticks
            }
        }
    }
}

/// The distance from 1 of figures of 1 where there are no others.
const NO_ERROR: f64 = 1e-3;

fn is_shown(value: f64, spacing: Spacing) -> bool {
    value.is_finite()
        && match spacing {
            Spacing::Linear => true,
            Spacing::Log => value > 0.0,
            Spacing::Error => value <= 1.0,
        }
}

fn transformed(value: f64, spacing: Spacing, floor: f64) -> f64 {
    match spacing {
        Spacing::Linear => value,
        Spacing::Log => value.log10(),
        Spacing::Error => -(1.0 - value).max(floor).log10(),
    }
}

/// The digits of each decade between two powers of ten, and whether each has a label.
fn decades(low: f64, high: f64) -> Vec<(f64, bool)> {
    let span = high - low;
    let every = (span / 8.0).ceil().max(1.0) as i32;
    let mut ticks = Vec::new();
    for decade in low.floor() as i32..=high.ceil() as i32 {
        for digit in 1..10 {
            let value = f64::from(digit) * 10f64.powi(decade);
            if (low..=high).contains(&value.log10()) {
                let fine = (span < 2.0 && matches!(digit, 2 | 5))
                    || (span < 0.7 && digit != 9 && digit != 7);
                ticks.push((value, if digit == 1 { decade.rem_euclid(every) == 0 } else { fine }));
            }
        }
    }
    ticks.retain(|(_, major)| *major || span < 5.0);
    ticks
}

/// 1, 2 or 5 times a power of ten, not below this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-300).log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * 0.999_999);
    digit.unwrap_or(10.0) * power
}

/// The label of a tick.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{} %", short(100.0 * value)),
        Unit::Bytes => {
            let names = ["B", "kB", "MB", "GB", "TB"];
            let index = ((value.abs().max(1.0).log10() + 1e-9) / 3.0).floor().min(4.0);
            format!("{} {}", short(value / 1000f64.powf(index)), names[index as usize])
        }
        Unit::Plain => short(value),
    }
}

/// At most five digits, with separated thousands, or a power of ten if it is very large or small.
fn short(value: f64) -> String {
    let size = value.abs();
    if size < 1e-12 {
        return "0".into();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.0e}");
    }
    let digits = format!("{value:.5}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let (whole, rest) =
        digits.split_once('.').map_or((digits, String::new()), |(a, b)| (a, format!(".{b}")));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if left.is_multiple_of(3)
            && left < whole.len()
            && digit.is_ascii_digit()
            && !grouped.ends_with('-')
        {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_round_and_short() {
        for (value, unit, text) in [
            (0.0, Unit::Plain, "0"),
            (12_000.0, Unit::Plain, "12,000"),
            (-0.5, Unit::Plain, "-0.5"),
            (1e-6, Unit::Plain, "1e-6"),
            (0.85, Unit::Percent, "85 %"),
            (1_500_000.0, Unit::Bytes, "1.5 MB"),
            (1000.0, Unit::Bytes, "1 kB"),
            (20.0, Unit::Bytes, "20 B"),
        ] {
            assert_eq!(figure(value, unit), text);
        }
        assert_eq!([round_step(0.3), round_step(7.0), round_step(20.0)], [0.5, 10.0, 20.0]);
    }

    #[test]
    fn an_axis_of_errors_separates_good_figures() {
        let values = [0.5, 0.9, 0.99, 1.0];
        let scale = Scale::over(values.into_iter(), Spacing::Error, (0.0, 100.0), false);
        let scale = scale.expect("there are figures");
        let places = values.map(|value| scale.place(value));
        let steps: Vec<f64> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // From 50 % to 90 % the error falls to a fifth, from 90 % to 99 % to a tenth; 100 % lies
        // where half the error of 99 % does.
        assert!((steps[0] / steps[1] - 5f64.log10()).abs() < 1e-9, "{places:?}");
        assert!((steps[2] / steps[1] - 2f64.log10()).abs() < 1e-9, "{places:?}");
        let labels: Vec<String> = (scale.ticks(6).into_iter().filter(|(_, major)| *major))
            .map(|(value, _)| figure(value, Unit::Percent))
            .collect();
        for label in ["50 %", "90 %", "99 %", "100 %"] {
            assert!(labels.iter().any(|found| found == label), "{label}: {labels:?}");
        }
        let all = Scale::over([1.0, 1.0].into_iter(), Spacing::Error, (0.0, 100.0), true);
        assert!(all.is_some_and(|all| (all.place(1.0) - 50.0).abs() < 1e-9));
        let none = Scale::over([f64::NAN, 1.5].into_iter(), Spacing::Error, (0.0, 1.0), true);
        assert!(none.is_none());
    }
}
