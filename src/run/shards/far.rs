//! Columns of single nodes whose values are far from those of the others: another unit, or a wrong
//! cell. The sums that all nodes send before round 0 show them.
//!
//! Where most numbers of a column are 0, its size says how many are not. So a node may be as far
//! from the others as that explains ([`peak`](crate::data::Moments::peak) of the smaller side). If
//! three in four or more are 0, what is beyond [`SPARSE`] counts twice: of so few numbers the size
//! says little, as of a pixel at the rim of pictures, which is faint where few have it.

use super::opening::{Opening, Sums};
use crate::units::NodeId;

/// The maximum number of columns that are named.
pub(crate) const MOST_FAR: usize = 16;

/// A column is far if its size is this many times above or below the median of all nodes.
const FACTOR: f64 = 5.0;

/// The nodes differ by themselves: on a logarithmic scale, this many times their median distance
/// from the median is added.
const DISTANCES: f64 = 4.0;

/// Two nodes have no median to be far from: then this is the factor between them.
const FACTOR_OF_TWO: f64 = 100.0;

/// The peak of a column of which one number in four is not 0, and those are equal.
const SPARSE: f64 = 2.0;

/// A column of a node whose values are far from those of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Far {
    pub(crate) node: NodeId,
    /// The feature, or the number of features plus that of the predicted number.
    pub(crate) column: usize,
    /// The root of the mean square of the node's values.
    pub(crate) size: f64,
    /// The median of those of all nodes; of two nodes that of the other.
    pub(crate) usual: f64,
}

impl Far {
    /// Node, column, size and median, little-endian.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.node.0.to_le_bytes().to_vec();
        bytes.extend((self.column as u64).to_le_bytes());
        bytes.extend([self.size, self.usual].into_iter().flat_map(f64::to_le_bytes));
        bytes
    }

    /// Decodes the first of them; `None` if it is cut short or names no column.
    pub(crate) fn from_bytes<'a>(bytes: &'a [u8], sums: &Sums) -> Option<(Far, &'a [u8])> {
        let (node, rest) = bytes.split_first_chunk::<4>()?;
        let (column, rest) = rest.split_first_chunk::<8>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let (usual, rest) = rest.split_first_chunk::<8>()?;
        let column = usize::try_from(u64::from_le_bytes(*column)).ok()?;
        let far = Far {
            node: NodeId(u32::from_le_bytes(*node)),
            column: (column < sums.inputs + sums.targets).then_some(column)?,
            size: f64::from_le_bytes(*size),
            usual: f64::from_le_bytes(*usual),
        };
        Some((far, rest))
    }
}

/// The columns that are far, the farthest first, at most [`MOST_FAR`].
pub(crate) fn far(openings: &[Opening], sums: &Sums) -> Vec<Far> {
    let mut all = Vec::new();
    for feature in 0..if sums.moments { sums.inputs } else { 0 } {
        let gap = sums.gaps.iter().position(|(with, _)| *with == feature);
        let size = |one: &Opening| {
            let missing = gap.map_or(0, |at| one.gaps[at].missing) as f64;
            let moments = one.moments.as_ref()?;
            Some((moments.size(feature, missing), moments.peak(feature, missing)))
        };
        add_far(openings, &size, feature, &mut all);
    }
    for target in 0..sums.targets {
        let size = |one: &Opening| {
            let targets = one.targets.as_ref()?;
            Some((targets.size(target, 0.0), targets.peak(target, 0.0)))
        };
        add_far(openings, &size, sums.inputs + target, &mut all);
    }
    // Stable: columns that are as far stay in their order.
    all.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    all.into_iter().map(|(_, far)| far).take(MOST_FAR).collect()
}

/// Adds the nodes that are far in one column, with their distance.
fn add_far(
    openings: &[Opening],
    size: &dyn Fn(&Opening) -> Option<(f64, f64)>,
    column: usize,
    all: &mut Vec<(f64, Far)>,
) {
    // Nodes whose values are all 0 say nothing of the unit.
    let (sizes, peaks): (Vec<(NodeId, f64)>, Vec<f64>) = (openings.iter())
        .filter_map(|one| {
            let (size, peak) = size(one)?;
            (size > 0.0 && size.is_finite()).then_some(((one.node, size), libm::log(peak)))
        })
        .unzip();
    if sizes.len() < 2 || 2 * sizes.len() < openings.len() {
        return;
    }
    let logs: Vec<f64> = sizes.iter().map(|(_, size)| libm::log(*size)).collect();
    let (middle, most) = if let [one, other] = logs[..] {
        // The greater one is named.
        (one.min(other), libm::log(FACTOR_OF_TWO))
    } else {
        let middle = median(logs.clone());
        let distances = logs.iter().map(|log| (log - middle).abs()).collect();
        (middle, libm::log(FACTOR) + DISTANCES * median(distances))
    };
    let usual_peak = median(peaks.clone());
    for (((node, size), log), peak) in sizes.iter().zip(&logs).zip(&peaks) {
        // The smaller side may have fewer numbers that are not 0.
        let few = if *log > middle { usual_peak } else { *peak };
        let distance = (log - middle).abs() - few - (few - libm::log(SPARSE)).max(0.0);
        if distance > most {
            let usual = libm::exp(middle);
            all.push((distance, Far { node: *node, column, size: *size, usual }));
        }
    }
}

/// The lower of the two middle numbers, or the middle one.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[(numbers.len() - 1) / 2]
}
