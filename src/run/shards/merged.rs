//! The constants that node 0 forms for all before round 0, from the sums of all nodes. Every driver
//! and every node has the same constants, to the bit.

use super::{
    far::{Far, MOST_FAR, far},
    opening::{Opening, Sums},
};
use crate::{
    data::{Moments, Scale},
    run::results::record::MOST_ROWS,
};

/// The constants of a run that follow from the sums of all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Merged {
    /// The number of all rows.
    pub(crate) rows: u64,
    /// What missing values become, in the order of [`Sums::gaps`]; NaN if no node has a value.
    pub(crate) fills: Vec<f32>,
    /// The scale of the features.
    pub(crate) scale: Option<Scale>,
    /// The scale of the predicted numbers.
    pub(crate) targets: Option<Scale>,
    /// Columns of single nodes whose values are far from those of the others, the farthest first.
    pub(crate) far: Vec<Far>,
}

impl Merged {
    /// The constants from the records of all nodes, in node order.
    ///
    /// # Panics
    /// If there is no record.
    pub(crate) fn of(openings: Vec<Opening>, sums: &Sums) -> Merged {
        let far = far(&openings, sums);
        let merged = match sums.byzantine {
            Some(byzantine) => Merged::robust(openings, sums, byzantine),
            None => Merged::pooled(openings, sums),
        };
        Merged { far, ..merged }
    }

    /// The constants of all rows together.
    fn pooled(openings: Vec<Opening>, sums: &Sums) -> Merged {
        let mut openings = openings.into_iter();
        let mut all = openings.next().expect("a run has nodes");
        openings.for_each(|opening| all.merge(&opening));
        let fills = all.fills(sums);
        all.fill(&fills, sums);
        let scale = all.moments.as_ref().filter(|_| sums.standardize).map(Scale::from_moments);
        let targets = all.targets.as_ref().map(Scale::from_moments);
        Merged { rows: all.rows, fills, scale, targets, far: Vec::new() }
    }

    /// Constants that a few wrong records cannot move far: of each number that a record gives, such
    /// as the mean of a column, the least and the greatest quarter of the nodes are left out, and
    /// at least as many as may be wrong. Every node counts the same, whatever rows it claims.
    fn robust(mut openings: Vec<Opening>, sums: &Sums, byzantine: usize) -> Merged {
        let out = byzantine.max(openings.len() / 4);
        let own: Vec<Vec<f32>> = openings.iter().map(|opening| opening.fills(sums)).collect();
        let fill = |at: usize| {
            let fills = own.iter().filter_map(|fills| fills.get(at)).copied();
            let fills: Vec<f64> = fills.filter(|fill| fill.is_finite()).map(f64::from).collect();
            if fills.is_empty() { f32::NAN } else { trimmed(fills, out) as f32 }
        };
        let count = if sums.moments { sums.gaps.len() } else { 0 };
        let fills: Vec<f32> = (0..count).map(fill).collect();
        openings.iter_mut().for_each(|opening| opening.fill(&fills, sums));
        let scale = |moments: &dyn Fn(&Opening) -> Option<&Moments>| {
            let all: Vec<&Moments> = openings.iter().filter_map(moments).collect();
            (!all.is_empty()).then(|| robust_scale(&all, out))
        };
        Merged {
            rows: openings
                .iter()
                .fold(0u64, |sum, one| sum.saturating_add(one.rows))
                .min(MOST_ROWS),
            scale: scale(&|one| one.moments.as_ref().filter(|_| sums.standardize)),
            targets: scale(&|one| one.targets.as_ref()),
            fills,
            far: Vec::new(),
        }
    }

    /// Encodes them: the number of rows, what missing values become, the scales, and what is far.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.rows.to_le_bytes().to_vec();
        bytes.extend(self.fills.iter().flat_map(|fill| fill.to_le_bytes()));
        for scale in [&self.targets, &self.scale].into_iter().flatten() {
            let numbers = scale.mean.iter().chain(&scale.deviation);
            bytes.extend(numbers.flat_map(|number| number.to_le_bytes()));
        }
        bytes.extend(self.far.iter().copied().flat_map(Far::to_bytes));
        bytes
    }

    /// Decodes them, for a run with these sums.
    ///
    /// # Errors
    /// If they are cut short, or no sums can have led to them.
    pub(crate) fn from_bytes(bytes: &[u8], sums: &Sums) -> Result<Merged, String> {
        let short = || "the constants of all nodes are cut short".to_string();
        let (rows, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let rows = u64::from_le_bytes(*rows);
        let gaps = if sums.moments { sums.gaps.len() } else { 0 };
        let (fills, after) = rest.split_at_checked(4 * gaps).ok_or_else(short)?;
        rest = after;
        let fills: Vec<f32> =
            fills.as_chunks::<4>().0.iter().map(|fill| f32::from_le_bytes(*fill)).collect();
        if rows > MOST_ROWS || fills.iter().any(|fill| fill.is_infinite()) {
            return Err("the constants of all nodes are those of no rows".into());
        }
        let mut scale = |columns: usize| -> Result<Option<Scale>, String> {
            if columns == 0 {
                return Ok(None);
            }
            let length = columns.checked_mul(16).ok_or_else(short)?;
            let (numbers, after) = rest.split_at_checked(length).ok_or_else(short)?;
            rest = after;
            let numbers = numbers.as_chunks::<8>().0.iter().map(|one| f64::from_le_bytes(*one));
            let mut mean: Vec<f64> = numbers.collect();
            let deviation = mean.split_off(columns);
            let scale = Scale { mean, deviation };
            scale.check("scale", columns).map_err(|error| error.to_string())?;
            Ok(Some(scale))
        };
        let targets = scale(sums.targets)?;
        let scale = scale(if sums.moments && sums.standardize { sums.inputs } else { 0 })?;
        let mut far = Vec::new();
        while !rest.is_empty() && far.len() < MOST_FAR {
            let (one, after) = Far::from_bytes(rest, sums).ok_or_else(short)?;
            far.push(one);
            rest = after;
        }
        if !rest.is_empty() {
            return Err("the constants of all nodes are followed by more".into());
        }
        Ok(Merged { rows, fills, scale, targets, far })
    }
}

/// Merges the setup records of all nodes, in node order, or checks a single one.
///
/// # Errors
/// If one of them is wrong; see [`Opening::from_bytes`].
pub(crate) fn merge(records: &[&[u8]], sums: &Sums) -> Result<Vec<u8>, String> {
    let openings: Result<Vec<Opening>, String> =
        records.iter().map(|record| Opening::from_bytes(record, sums)).collect();
    Ok(Merged::of(openings?, sums).to_bytes())
}

/// The mean of these numbers without the `out` least and the `out` greatest, or of the middle ones
/// if they are too few; 0 of none.
fn trimmed(mut numbers: Vec<f64>, out: usize) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let out = out.min(numbers.len().saturating_sub(1) / 2);
    let kept = &numbers[out..numbers.len() - out];
    // Divided first: the sum could overflow.
    kept.iter().map(|number| number / kept.len() as f64).sum()
}

/// For each column the trimmed mean M of the nodes' means, and the root of the trimmed mean of
/// their mean squared distances from M.
fn robust_scale(all: &[&Moments], out: usize) -> Scale {
    let columns = all[0].inputs();
    let of = |column: usize| {
        let spreads: Vec<(f64, f64)> = all.iter().map(|one| one.spread(column)).collect();
        let mean = trimmed(spreads.iter().map(|(mean, _)| *mean).collect(), out);
        let distance = |(own, variance): &(f64, f64)| variance.max(0.0) + (own - mean).powi(2);
        (mean, trimmed(spreads.iter().map(distance).collect(), out))
    };
    Scale::from_spreads((0..columns).map(of))
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::{
        data::{Dataset, Gaps, Missing, Target},
        units::NodeId,
    };

    fn data(values: &[f32], missing: &[u32]) -> Dataset {
        let features = Array2::from_shape_vec((values.len(), 1), values.to_vec()).unwrap();
        let target = Target::Values(features.mapv(|value| 0.5 * value));
        let mut data = Dataset::new("t", features, target).unwrap();
        data.gaps = vec![Gaps { feature: 0, rows: missing.to_vec() }];
        data
    }

    fn of_mean() -> Sums {
        Sums {
            inputs: 1,
            moments: true,
            gaps: vec![(0, Missing::Mean)],
            standardize: true,
            targets: 1,
            byzantine: None,
        }
    }

    fn merged(sites: &[Dataset], sums: &Sums) -> Merged {
        let records: Vec<Vec<u8>> = (sites.iter().enumerate())
            .map(|(node, site)| Opening::of(NodeId::from(node), site, sums).to_bytes())
            .collect();
        for record in &records {
            assert!(record.len() <= Opening::byte_len(sums));
            assert!(Opening::from_bytes(&record[..record.len() - 1], sums).is_err());
            merge(&[record], sums).unwrap();
        }
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let bytes = merge(&records, sums).unwrap();
        let merged = Merged::from_bytes(&bytes, sums).unwrap();
        assert_eq!(merged.to_bytes(), bytes);
        assert!(Merged::from_bytes(&bytes[..bytes.len() - 1], sums).is_err());
        merged
    }

    #[test]
    fn nodes_agree_on_what_missing_values_become() {
        // The values 1, 2, 6 | 3, 100: mean 22.4, median 3.
        let sites = [data(&[1.0, 0.0, 2.0, 6.0], &[1]), data(&[0.0, 3.0, 100.0], &[0])];
        for (missing, expected) in [(Missing::Mean, 22.4f32), (Missing::Median, 3.0)] {
            let sums = Sums { gaps: vec![(0, missing)], ..of_mean() };
            let agreed = merged(&sites, &sums);
            assert!((agreed.fills[0] - expected).abs() < expected / 128.0, "{agreed:?}");
            // The scale is that of the filled rows.
            let filled: Vec<f32> =
                [1.0, agreed.fills[0], 2.0, 6.0, agreed.fills[0], 3.0, 100.0].into();
            let plain = Scale::from_moments(&Moments::of(&data(&filled, &[])));
            let scale = agreed.scale.unwrap();
            assert!((scale.mean[0] - plain.mean[0]).abs() < 1e-9);
            assert!((scale.deviation[0] - plain.deviation[0]).abs() < 1e-9);
            // Of the targets there is nothing missing.
            assert!((agreed.targets.unwrap().mean[0] - 8.0).abs() < 1e-9);
        }
        let empty = merged(&[data(&[0.0], &[0])], &of_mean());
        assert!(empty.fills[0].is_nan());
    }

    #[test]
    fn wrong_sums_of_a_few_nodes_do_not_move_robust_constants() {
        let site = |node: usize| -> Vec<f32> {
            (0..50).map(|row| ((row * 7 + node * 3) % 41) as f32).collect()
        };
        let sums = Sums { gaps: Vec::new(), byzantine: Some(1), ..of_mean() };
        let sites = |wrong: &dyn Fn(Vec<f32>) -> Vec<f32>| -> Vec<Dataset> {
            let rows = |node| if node == 5 { wrong(site(node)) } else { site(node) };
            (0..8).map(|node| Dataset { gaps: Vec::new(), ..data(&rows(node), &[]) }).collect()
        };
        let honest = merged(&sites(&|rows| rows), &sums);
        assert!(honest.far.is_empty(), "{:?}", honest.far);
        let (scale, plain) = (honest.scale.unwrap(), Sums { byzantine: None, ..sums.clone() });
        let pooled = merged(&sites(&|rows| rows), &plain).scale.unwrap();
        assert!((scale.mean[0] - pooled.mean[0]).abs() < 0.5, "{scale:?} {pooled:?}");
        assert!((scale.deviation[0] / pooled.deviation[0] - 1.0).abs() < 0.05);
        let times_1000 = |rows: Vec<f32>| rows.iter().map(|value| 1000.0 * value).collect();
        let one_cell = |mut rows: Vec<f32>| {
            rows[3] = 3e38;
            rows
        };
        for wrong in [&times_1000 as &dyn Fn(Vec<f32>) -> Vec<f32>, &one_cell] {
            let robust = merged(&sites(wrong), &sums);
            let found = robust.scale.unwrap();
            assert!((found.mean[0] - scale.mean[0]).abs() < 0.5, "{found:?}");
            assert!((found.deviation[0] / scale.deviation[0] - 1.0).abs() < 0.05, "{found:?}");
            // Every run says so, whether its constants withstand it or not.
            let pooled = merged(&sites(wrong), &plain);
            assert!(pooled.scale.unwrap().deviation[0] > 100.0 * scale.deviation[0]);
            for far in [robust.far, pooled.far] {
                // The target of a row is half its feature.
                assert_eq!(far.len(), 2, "{far:?}");
                assert!(
                    far.iter().all(|far| far.node == NodeId(5) && far.size > 100.0 * far.usual)
                );
            }
        }
    }

    #[test]
    fn columns_that_differ_by_themselves_are_not_far() {
        // Sites with one class each: a pixel that one of them uses, and sizes over a factor of ten.
        let sums = Sums { gaps: Vec::new(), ..of_mean() };
        let of = |sizes: &[f32]| {
            let site =
                |size: &f32| Dataset { gaps: Vec::new(), ..data(&[*size, 0.5 * size, 0.0], &[]) };
            merged(&sizes.iter().map(site).collect::<Vec<_>>(), &sums).far.len() / 2
        };
        assert_eq!(of(&[0.0, 0.0, 0.0, 9.0]), 0);
        assert_eq!(of(&[1.0, 2.0, 4.0, 8.0, 10.0]), 0);
        assert_eq!(of(&[1.0, 1.1, 1.0, 8.0]), 1);
        assert_eq!(of(&[1.0, 1.1, 1.0, 0.1]), 1);
        assert_eq!(of(&[1.0, 20.0]), 0);
        assert_eq!(of(&[1.0, 1000.0]), 1);
    }

    #[test]
    fn the_trimmed_mean_leaves_out_both_ends() {
        assert_eq!(trimmed(vec![9.0, 1.0, 2.0, -50.0], 1), 1.5);
        assert_eq!(trimmed(vec![1.0, 9.0], 3), 5.0);
        assert_eq!(trimmed(vec![9.0, 1.0, 2.0], 5), 2.0);
        assert!(trimmed(Vec::new(), 1) == 0.0);
    }
}
