//! Constants that several rules have, checked: numbers in their ranges, a momentum, and how many
//! entries are sent (`k`, or a fraction of the vector's length).

use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// The constants of a rule that has none.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NoParams {}

/// A constant that must be positive and finite, also in the `f32` that nodes compute with.
///
/// # Errors
/// If it is not.
pub(super) fn positive(key: &str, value: f64) -> Result<f64, ConfigError> {
    let single = value as f32;
    if single.is_normal() && single > 0.0 {
        Ok(value)
    } else {
        Err(ConfigError::new(
            key,
            value,
            "expected a finite number above 0 (from 1.2e-38 to 3.4e38)",
        ))
    }
}

/// A constant that must be a whole number in a range.
///
/// # Errors
/// If it is not.
pub(super) fn whole(key: &str, value: i64, least: i64, most: i64) -> Result<u64, ConfigError> {
    match u64::try_from(value) {
        Ok(number) if (least..=most).contains(&value) => Ok(number),
        _ => Err(ConfigError::new(
            key,
            value,
            format!("expected a whole number from {least} to {most}"),
        )),
    }
}

/// Rounds to 9 significant digits: what the resolved experiment records, and what every node
/// computes with.
pub(crate) fn nine_digits(value: f64) -> f64 {
    format!("{value:.8e}").parse().expect("a formatted number parses")
}

/// Reads k from the constants `k` and `fraction`, of which at most one may be given. Without both,
/// `fraction = default` is used and recorded. Rounded to the nearest integer, at least 1, at most
/// `parameters`.
///
/// # Errors
/// If both are given, or one is out of its range.
pub(super) fn entries(
    k: Option<i64>,
    fraction: &mut Option<f64>,
    default: f64,
    parameters: usize,
) -> Result<usize, ConfigError> {
    const MOST: i64 = u32::MAX as i64;
    let wanted = match (k, *fraction) {
        (Some(_), Some(fraction)) => {
            return Err(ConfigError::new(
                "rule.fraction",
                fraction,
                "expected either k or fraction, not both",
            ));
        }
        (Some(k @ 1..=MOST), None) => k as usize,
        (Some(k), None) => {
            return Err(ConfigError::new(
                "rule.k",
                k,
                format!("expected a whole number from 1 to {MOST}"),
            ));
        }
        (None, given) => {
            let part = *fraction.insert(given.unwrap_or(default));
            if !(part > 0.0 && part <= 1.0) {
                return Err(ConfigError::new(
                    "rule.fraction",
                    part,
                    "expected a number above 0 and at most 1",
                ));
            }
            (part * parameters as f64).round() as usize
        }
    };
    Ok(wanted.clamp(1, parameters.max(1)))
}

/// Checks the rule's own momentum.
///
/// # Errors
/// If it is not at least 0 and below 1.
pub(super) fn momentum(m: f64) -> Result<f32, ConfigError> {
    below_one("rule.momentum", m)
}

/// Checks a factor by which a rule keeps what it has.
///
/// # Errors
/// If it is not at least 0 and, as f32, below 1.
pub(super) fn below_one(place: &str, value: f64) -> Result<f32, ConfigError> {
    let single = value as f32;
    if (0.0..1.0).contains(&single) {
        Ok(single)
    } else {
        Err(ConfigError::new(place, value, "expected a number from 0 to below 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn at_least_one_and_at_most_all() {
        let by = |k, mut fraction, parameters| {
            entries(k, &mut fraction, 0.001, parameters).map(|k| (k, fraction))
        };
        assert_eq!(by(None, None, 10_000), Ok((10, Some(0.001))));
        assert_eq!(by(None, None, 40), Ok((1, Some(0.001))));
        assert_eq!(by(Some(90), None, 40), Ok((40, None)));
        assert_eq!(by(None, Some(0.5), 41), Ok((21, Some(0.5))));
        for (k, fraction) in [
            (Some(0), None),
            (Some(-1), None),
            (Some(1), Some(0.1)),
            (None, Some(0.0)),
            (None, Some(1.5)),
        ] {
            assert!(by(k, fraction, 40).is_err(), "{k:?} {fraction:?}");
        }
        assert!(by(None, Some(f64::NAN), 40).is_err());
    }
}
