//! Newtypes for identities and quantities, so that a node is never mistaken for a round nor
//! milliseconds for nanoseconds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A node's number: its position in the topology file, from 0 to n - 1. Sums add nodes in this
/// order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id as an index into per-node tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for NodeId {
    /// # Panics
    /// If `index` exceeds `u32::MAX`: a topology of that size cannot be built.
    fn from(index: usize) -> Self {
        NodeId(u32::try_from(index).expect("a topology has fewer than 2^32 nodes"))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One step t of the algorithm, from 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Round(pub u64);

impl Round {
    /// The round after this one.
    #[must_use]
    pub fn next(self) -> Round {
        Round(self.0 + 1)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment, in nanoseconds since the run began: real time in a network run, simulated time in the
/// simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Seconds since the run began.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl std::ops::Add<std::time::Duration> for Time {
    type Output = Time;

    /// Saturates after 584 years.
    fn add(self, by: std::time::Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A number of bytes, printed in decimal units (`1.23 MB` is 1,230,000 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.0 as f64;
        let text = match self.0 {
            0..1_000 => format!("{} B", self.0),
            1_000..1_000_000 => format!("{:.1} kB", amount / 1e3),
            1_000_000..1_000_000_000 => format!("{:.2} MB", amount / 1e6),
            1_000_000_000..1_000_000_000_000 => format!("{:.2} GB", amount / 1e9),
            _ => format!("{:.2} TB", amount / 1e12),
        };
        f.pad(&text)
    }
}

/// A duration in readable units; infinite ones are `never`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 0.01 => format!("{:.2} ms", 1e3 * s),
        s if s < 1.0 => format!("{:.0} ms", 1e3 * s),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
        s if s.is_finite() => format!("{:.1} h", s / 3600.0),
        _ => "never".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_their_digits() {
        let shown = [0.00167, 0.0167, 61.26, 754.0, 9000.0, f64::INFINITY].map(duration);
        assert_eq!(shown, ["1.67 ms", "17 ms", "61.3 s", "12 min 34 s", "2.5 h", "never"]);
    }

    #[test]
    fn bytes_print_in_decimal_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 kB"),
            (77_000_000, "77.00 MB"),
            (2_500_000_000, "2.50 GB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn time_saturates() {
        assert_eq!(Time(u64::MAX) + std::time::Duration::from_secs(1), Time(u64::MAX));
    }
}
