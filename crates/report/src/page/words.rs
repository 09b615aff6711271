//! Numbers and names, as they stand on the page.

use gradvine::units::Bytes;

pub(super) use crate::text::short;

/// Replaces control characters other than line ends by a sign.
pub(super) fn visible(raw: &str) -> String {
    raw.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// A number with its noun.
pub(super) fn count(n: usize, word: &str) -> String {
    format!("{} {word}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// A whole number with separated thousands.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A figure with enough digits to distinguish two runs.
pub(super) fn number(x: f64) -> String {
    let size = x.abs();
    if !x.is_finite() {
        "not finite".into()
    } else if x == 0.0 {
        "0".into()
    } else if (1e-3..1e6).contains(&size) {
        format!("{x:.5}")
    } else {
        format!("{x:.4e}")
    }
}

/// Bytes; a mean may have a fraction.
pub(super) fn bytes(x: f64) -> String {
    Bytes(x.round() as u64).to_string()
}

/// A share as per cent.
pub(super) fn percent(x: f64) -> String {
    format!("{:.2} %", 100.0 * x)
}

/// A number of a curve; `None` if it is not finite.
pub(super) fn seven_digits(value: f64) -> Option<f64> {
    format!("{value:.6e}").parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_digits() {
        let shown = [0.0, 0.123_456_78, 1e-9, 2e7, f64::NAN].map(number);
        assert_eq!(shown, ["0", "0.12346", "1.0000e-9", "2.0000e7", "not finite"]);
        assert_eq!(
            (grouped(1_234_567), count(1, "run"), short("abcdef", 4)),
            ("1,234,567".into(), "1 run".into(), "abc…".into())
        );
        assert_eq!(seven_digits(0.123_456_789), Some(0.123_456_8));
        assert_eq!(seven_digits(f64::NAN), None);
    }
}
