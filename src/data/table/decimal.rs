//! The `f32` and the `f64` that are nearest to a decimal number.

/// Powers of ten that are exact in `f64`.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The bits of an `f64` that an `f32` has no room for, and the value halfway between two of them.
const LOST: u64 = (1 << 29) - 1;
const HALF: u64 = 1 << 28;

/// Parses the text of a number as the standard library does: in one rounding, to infinity beyond
/// `f32`. `None` if it is not a number.
pub(crate) fn parse(text: &[u8]) -> Option<(f32, f64)> {
    plain(text).or_else(|| {
        let text = std::str::from_utf8(text).ok()?;
        Some((text.parse().ok()?, text.parse().ok()?))
    })
}

/// Digits with or without a point, of which most numbers consist (Clinger, "How to read floating
/// point numbers accurately", 1990): both the digits and the power of ten are exact in `f64`, so
/// that their quotient is rounded once. A second rounding, to `f32`, gives another number than one
/// rounding only if the quotient lies halfway between two of `f32`: then, and for all else, `None`.
fn plain(text: &[u8]) -> Option<(f32, f64)> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    if digits.len() > 18 {
        return None;
    }
    let (mut mantissa, mut count, mut point) = (0u64, 0, None);
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa * 10 + u64::from(digit);
            count += 1;
        } else if *byte == b'.' && point.is_none() {
            point = Some(count);
        } else {
            return None;
        }
    }
    if count == 0 || mantissa > 1 << 53 {
        return None;
    }
    let fraction = point.map_or(0, |point| count - point);
    let value = mantissa as f64 / POWERS[fraction];
    // Below this, f32 has fewer digits, and another half.
    if value.to_bits() & LOST == HALF || (value < 1e-37 && mantissa != 0) {
        return None;
    }
    let value = if negative { -value } else { value };
    Some((value as f32, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    /// Compares with the standard library, to the bit.
    fn check(text: &str) {
        let expected: Option<f32> = text.parse().ok();
        let found = parse(text.as_bytes());
        let exact: Option<f64> = text.parse().ok();
        let wide = |value: Option<f64>| value.filter(|value| !value.is_nan()).map(f64::to_bits);
        assert_eq!(wide(found.map(|(_, exact)| exact)), wide(exact), "{text}");
        let found = found.map(|(value, _)| value);
        let bits = |value: Option<f32>| value.filter(|value| !value.is_nan()).map(f32::to_bits);
        assert_eq!(bits(found), bits(expected), "{text}");
        assert_eq!(found.is_some(), expected.is_some(), "{text}");
    }

    #[test]
    fn every_text_is_read_as_the_standard_library_does() {
        for text in [
            "",
            "-",
            ".",
            "-.",
            "+",
            "0",
            "-0",
            "-0.0",
            "+1",
            "1.",
            ".5",
            "-.5",
            "1..2",
            "1.2.3",
            "1e5",
            "1E-5",
            "nan",
            "-inf",
            "infinity",
            "0x10",
            "1_000",
            "1,5",
            "--1",
            "1 ",
            "16777217",
            "16777219",
            "-33554434.0",
            "9007199254740993",
            "99999999999999999999",
            "340282346638528859811704183484516925440",
            "340282356779733661637539395458142568448",
            "0.000000000000000000000000000000000000000000001",
            "0.00000000000000001",
            "1.00000005960464477",
            "1.00000005960464478",
            "1.0000000596046447",
            "\u{661}",
        ] {
            check(text);
        }
        assert_eq!(parse(b"\xFF1"), None);
    }

    #[test]
    fn random_numbers_are_rounded_once() {
        let mut dice = Stream::new(11, Purpose::Test).sequence();
        let mut below = |bound: f64| (dice.uniform() * bound) as u64;
        for _ in 0..200_000 {
            // Digits with a point anywhere.
            let length = 1 + below(17.0) as i32;
            let digits = below(10f64.powi(length)).to_string();
            let at = below(digits.len() as f64 + 1.0) as usize;
            let sign = if below(2.0) == 0 { "" } else { "-" };
            check(&format!("{sign}{digits}"));
            check(&format!("{sign}{}.{}", &digits[..at], &digits[at..]));
            // Neighbours of f32, and the numbers halfway between them with some digits more or
            // less.
            let bits = below(f64::from(0x4C00_0000u32 - 0x3700_0000)) as u32 + 0x3700_0000;
            let value = f32::from_bits(bits);
            check(&value.to_string());
            let half = (f64::from(value) + f64::from(f32::from_bits(bits + 1))) / 2.0;
            check(&half.to_string());
            for digits in [6, 9, 12, 14, 16] {
                check(&format!("{half:.digits$}"));
                check(&format!("{value:.digits$}"));
            }
        }
    }
}
