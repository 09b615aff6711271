//! Whether numbers that differ in a file become one `f32`.

use crate::data::excerpt::list;

/// The numbers of a column that are remembered.
const SLOTS: usize = 16;

/// The least share of cells that are told.
const SHARE: u64 = 1000;

/// Whether the numbers of this row are looked at: all of a short table, pairs of a long one.
pub(crate) fn is_looked_at(row: usize) -> bool {
    row < 4096 || row % 16 < 2
}

/// The columns that one remark names.
const NAMED: usize = 5;

/// What becomes of the numbers of one column.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Some of those that came last, each by the bits of its `f32`: as it is kept, and in the file.
    seen: [(f32, f64); SLOTS],
    cells: u64,
    /// Those that differ from an earlier one in the file alone.
    lost: u64,
    /// The least and the greatest number, and the greatest error of one.
    bounds: (f64, f64),
    error: f64,
}

impl Kept {
    pub(crate) fn new() -> Kept {
        let bounds = (f64::INFINITY, f64::NEG_INFINITY);
        Kept { seen: [(f32::NAN, 0.0); SLOTS], cells: 0, lost: 0, bounds, error: 0.0 }
    }

    /// Notes a number as it is kept, and as it is in the file.
    pub(crate) fn add(&mut self, value: f32, exact: f64) {
        self.cells += 1;
        self.bounds = (self.bounds.0.min(exact), self.bounds.1.max(exact));
        self.error = self.error.max((f64::from(value) - exact).abs());
        let slot = &mut self.seen[(value.to_bits().wrapping_mul(0x9e37_79b1) >> 28) as usize];
        if slot.0 == value && differ(slot.1, exact) {
            self.lost += 1;
        }
        *slot = (value, exact);
    }

    fn is_told(&self) -> bool {
        let (least, most) = self.bounds;
        let is_coarse = 2.0 * self.error * SHARE as f64 > most - least;
        let is_lost = self.lost > 0 && self.lost * SHARE >= self.cells;
        self.cells > 0 && differ(least, most) && (is_lost || is_coarse)
    }

    /// The greatest number, and the step that `f32` has there.
    fn step(&self) -> (f64, f64) {
        let most = self.bounds.0.abs().max(self.bounds.1.abs());
        (most, f64::from((most as f32).next_up()) - f64::from(most as f32))
    }
}

/// Whether numbers differ in more than the last digits of a calculation, such as
/// 0.30000000000000004 and 0.3.
fn differ(one: f64, other: f64) -> bool {
    (one - other).abs() > 8.0 * f64::EPSILON * other.abs()
}

/// A remark on the columns of which a part is lost; each has its name, and whether it has dates.
pub(crate) fn remark<'a>(
    columns: impl Iterator<Item = (String, bool, &'a Kept)>,
) -> Option<String> {
    let lost: Vec<_> = columns.filter(|(_, _, kept)| kept.is_told()).collect();
    let (_, is_date, kept) = lost.first()?;
    let mut names: Vec<String> = lost.iter().take(NAMED).map(|(name, ..)| name.clone()).collect();
    if lost.len() > NAMED {
        names.push(format!("{} more", lost.len() - NAMED));
    }
    let remedy = match is_date {
        true => "set an origin nearer to the dates in the column's schema",
        false => "subtract a constant from them in the file",
    };
    let (near, step) = kept.step();
    let (least, most) = kept.bounds;
    let lost = match kept.lost {
        0 => String::new(),
        lost => format!(
            ", so that {lost} of {} that were compared become equal to one that differs",
            kept.cells
        ),
    };
    let unit = if *is_date { " days from their origin" } else { "" };
    Some(format!(
        "column {}: numbers near {near}{unit} are kept in 24 binary digits, in steps of \
         {step:.1e}, and they lie within {:.1e}{lost}: {remedy}",
        list(&names),
        most - least
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(numbers: &[f64]) -> Option<String> {
        let mut kept = Kept::new();
        numbers.iter().for_each(|&exact| kept.add(exact as f32, exact));
        remark([("c".to_string(), false, &kept)].into_iter())
    }

    #[test]
    fn numbers_that_are_lost_are_told() {
        // Times in seconds since 1970, in any order, and beside other numbers.
        let times: Vec<f64> = (0..1000).map(|at| 1.714e9 + f64::from(at * 7 % 1000)).collect();
        let found = told(&times).unwrap();
        assert!(found.contains(" of 1000 that were compared become equal"), "{found}");
        assert!(found.contains("steps of 1.3e2, and they lie within 1.0e3, so"), "{found}");
        let mixed: Vec<f64> = times.iter().flat_map(|&time| [time, 5.0, -3.0]).collect();
        assert!(told(&mixed).is_some());
        // In f32 as in the file, or apart from it only in the last digits of a calculation.
        let from_start: Vec<f64> = times.iter().map(|time| time - 1.714e9).collect();
        assert_eq!(told(&from_start), None);
        assert_eq!(told(&[1.714e9 + 1.0; 100]), None);
        assert_eq!(told(&[0.1; 2]), None);
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[0.3, 0.1 + 0.2].repeat(100)), None);
        assert_eq!(told(&[16_777_217.0, 16_777_219.0, 5.0].repeat(100)), None);
        // None is lost, but few are left.
        assert!(told(&[1.7e9, 1.7e9 + 500.0]).is_some());
        // One in many.
        let mut random: Vec<f64> = (0..10_000).map(|at| f64::from(at).sqrt()).collect();
        random.push(99.999_99);
        random.push(99.999_990_1);
        assert_eq!(told(&random), None);
    }
}
