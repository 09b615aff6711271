//! Divides rows into test rows and the shards of the nodes.

use serde::{Deserialize, Serialize};

use super::{DataError, dataset::Dataset};
use crate::{
    config::ConfigError,
    rng::{Purpose, Stream},
    units::NodeId,
};

/// The purposes of this module's streams, below [`Purpose::Split`].
const TEST: u64 = 0;
const IID: u64 = 1;
const DIRICHLET: u64 = 2;

/// The maximum number of draws of a Dirichlet split that leaves no node empty.
const ATTEMPTS: u64 = 1_000;

/// How rows are divided among nodes. Serialised as `iid`, `contiguous`, `by-label`; `dirichlet`
/// with its `alpha`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Split {
    /// Shuffled, then in blocks: every node has the same distribution.
    Iid,
    /// Block i of the file's rows to node i.
    Contiguous,
    /// Sorted by label (stably), then in blocks: a node has one or few classes, the hardest case.
    ByLabel,
    /// Each class divided in proportions drawn from Dirichlet(alpha, ..., alpha) (Hsu, Qi and
    /// Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    /// Classification", 2019; by class as in Li, Diao, Chen and He, "Federated Learning on Non-IID
    /// Data Silos", 2022). Small alpha: few classes per node; large: `Iid`.
    Dirichlet {
        /// The concentration: any number above 0, the smaller the less even.
        alpha: f64,
    },
}

/// The rows for training and those for testing, both ascending: `share` of the rows, to the nearest
/// whole number, is for testing, drawn at random and stratified by label (each class gives its
/// share to within one row: largest remainders, then lower labels first).
///
/// # Errors
/// If `share` is not in [0, 1), or leaves no row for training.
pub fn split_test(
    data: &Dataset,
    share: f64,
    seed: u64,
) -> Result<(Vec<usize>, Vec<usize>), DataError> {
    let refuse = |problem: &str| Err(ConfigError::new("data.test_share", share, problem).into());
    if !(0.0..1.0).contains(&share) {
        return refuse("a share from 0 to below 1 is needed");
    }
    let all: Vec<usize> = (0..data.rows()).collect();
    let mut strata = by_class(data, &all).unwrap_or_else(|| vec![all]);
    let total = (share * data.rows() as f64).round() as usize;
    if total >= data.rows() {
        return refuse(&format!("of {} rows none is left for training", data.rows()));
    }
    let stream = Stream::new(seed, Purpose::Split).with(TEST);
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for (class, (rows, take)) in strata.iter_mut().zip(apportion(data, share, total)).enumerate() {
        stream.with(class as u64).sequence().shuffle(rows);
        test.extend_from_slice(&rows[..take]);
        train.extend_from_slice(&rows[take..]);
    }
    train.sort_unstable();
    test.sort_unstable();
    Ok((train, test))
}

/// Divides `rows` of `data` among nodes: disjoint, together all of them, at least one each.
/// `Contiguous` and `ByLabel` give blocks whose sizes differ by at most 1, larger first, in the
/// order of `rows` or of the sort; the others give each node its rows in ascending order.
///
/// # Errors
/// If there are fewer rows than nodes, a split by label has no labels, or alpha is not positive or
/// leaves a node without rows.
///
/// # Panics
/// If a row does not exist.
pub fn shards(
    data: &Dataset,
    rows: &[usize],
    nodes: usize,
    split: Split,
    seed: u64,
) -> Result<Vec<Vec<usize>>, DataError> {
    check_rows(data, rows, nodes)?;
    Ok(divide(data, rows, &even(rows.len(), nodes), split, seed)?)
}

/// As [`shards`], with a node for each of `sizes`, which are relative: node i gets the share
/// `sizes[i]` of the rows, to within one row (largest remainders, then lower nodes first), and at
/// least one.
///
/// # Errors
/// As [`shards`]; if a size is not a finite number above 0; or with [`Split::Dirichlet`], which
/// draws the sizes itself.
///
/// # Panics
/// If a row does not exist.
pub(crate) fn sized_shards(
    data: &Dataset,
    rows: &[usize],
    sizes: &[f64],
    split: Split,
    seed: u64,
) -> Result<Vec<Vec<usize>>, DataError> {
    check_rows(data, rows, sizes.len())?;
    let refuse =
        |problem| Err(ConfigError::new("data.sizes", format!("{sizes:?}"), problem).into());
    if let Split::Dirichlet { .. } = split {
        return refuse("a dirichlet split draws the sizes: leave the key out");
    }
    if sizes.iter().any(|size| !(*size > 0.0 && *size <= 1e9)) {
        return refuse("each is a number above 0, up to 1e9");
    }
    Ok(divide(data, rows, &apportion_sizes(rows.len(), sizes), split, seed)?)
}

fn check_rows(data: &Dataset, rows: &[usize], nodes: usize) -> Result<(), DataError> {
    let found = rows.len();
    if nodes == 0 || found < nodes {
        let problem = format!("{found} rows for {nodes} nodes: every node needs at least one");
        let count = DataError::Count { place: "data".into(), found, needed: nodes, problem };
        return Err(count.within(&data.name));
    }
    Ok(())
}

/// Divides rows into blocks of these sizes.
fn divide(
    data: &Dataset,
    rows: &[usize],
    sizes: &[usize],
    split: Split,
    seed: u64,
) -> Result<Vec<Vec<usize>>, ConfigError> {
    let unlabelled = |name: &str| {
        let problem = "needs classes; for regression, iid and contiguous are accepted";
        ConfigError::new("data.split", name, problem)
    };
    let stream = Stream::new(seed, Purpose::Split);
    match split {
        Split::Contiguous => Ok(blocks(rows, sizes)),
        Split::Iid => {
            let mut shuffled = rows.to_vec();
            stream.with(IID).sequence().shuffle(&mut shuffled);
            Ok(ascending(blocks(&shuffled, sizes)))
        }
        Split::ByLabel => {
            let labels = data.labels().ok_or_else(|| unlabelled("by-label"))?;
            let mut sorted = rows.to_vec();
            sorted.sort_by_key(|&row| labels[row]);
            Ok(blocks(&sorted, sizes))
        }
        Split::Dirichlet { alpha } => {
            if !(alpha > 0.0 && alpha <= 1e9) {
                let problem = "a number above 0, up to 1e9, is needed";
                return Err(ConfigError::new("data.alpha", alpha, problem));
            }
            let classes = by_class(data, rows).ok_or_else(|| unlabelled("dirichlet"))?;
            dirichlet(&classes, sizes.len(), alpha, stream.with(DIRICHLET)).map(ascending)
        }
    }
}

/// The number of test rows of each class: the whole parts, then one more for the largest fractions.
fn apportion(data: &Dataset, share: f64, total: usize) -> Vec<usize> {
    let mut counts = vec![0usize; if data.labels().is_some() { data.outputs() } else { 1 }];
    match data.labels() {
        Some(labels) => labels.iter().for_each(|&label| counts[label as usize] += 1),
        None => counts[0] = data.rows(),
    }
    let exact: Vec<f64> = counts.iter().map(|&count| share * count as f64).collect();
    let mut take: Vec<usize> = exact.iter().map(|&exact| exact as usize).collect();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let missing = total.saturating_sub(take.iter().sum());
    for class in order
        .into_iter()
        .filter(|&class| take[class] < counts[class])
        .take(missing)
        .collect::<Vec<_>>()
    {
        take[class] += 1;
    }
    take
}

/// The rows of each class in the order given; `None` if the targets are numbers.
fn by_class(data: &Dataset, rows: &[usize]) -> Option<Vec<Vec<usize>>> {
    let labels = data.labels()?;
    let mut classes = vec![Vec::new(); data.outputs()];
    for &row in rows {
        classes[labels[row] as usize].push(row);
    }
    Some(classes)
}

/// Sizes that differ by at most 1, larger first.
fn even(rows: usize, nodes: usize) -> Vec<usize> {
    (0..nodes).map(|node| rows / nodes + usize::from(node < rows % nodes)).collect()
}

/// At least one row for each size, which are relative, and all rows together.
fn apportion_sizes(rows: usize, sizes: &[f64]) -> Vec<usize> {
    let total: f64 = sizes.iter().sum();
    let exact: Vec<f64> = sizes.iter().map(|size| size / total * rows as f64).collect();
    let mut take: Vec<usize> = exact.iter().map(|&exact| (exact as usize).max(1)).collect();
    let lacks = |take: &[usize], node: usize| exact[node] - take[node] as f64;
    // Whole parts lack less than a row each. Nodes that were given their only row take it from
    // those that have the most above their share.
    while take.iter().sum::<usize>() < rows {
        let most =
            (0..take.len()).rev().max_by(|&a, &b| lacks(&take, a).total_cmp(&lacks(&take, b)));
        take[most.expect("there are nodes")] += 1;
    }
    while take.iter().sum::<usize>() > rows {
        let several = (0..take.len()).filter(|&node| take[node] > 1);
        let least = several.min_by(|&a, &b| lacks(&take, a).total_cmp(&lacks(&take, b)));
        take[least.expect("there are at least as many rows as nodes")] -= 1;
    }
    take
}

fn blocks(rows: &[usize], sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut rest = rows;
    let block = |size: &usize| {
        let (block, after) = rest.split_at(*size);
        rest = after;
        block.to_vec()
    };
    sizes.iter().map(block).collect()
}

fn ascending(mut shards: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    for shard in &mut shards {
        shard.sort_unstable();
    }
    shards
}

fn dirichlet(
    classes: &[Vec<usize>],
    nodes: usize,
    alpha: f64,
    stream: Stream,
) -> Result<Vec<Vec<usize>>, ConfigError> {
    for attempt in 0..ATTEMPTS {
        let mut shards = vec![Vec::new(); nodes];
        for (class, rows) in classes.iter().enumerate() {
            let stream = stream.with(attempt).with(class as u64);
            let mut rows = rows.clone();
            stream.with(0).sequence().shuffle(&mut rows);
            let mut start = 0;
            for (node, end) in
                cuts(rows.len(), nodes, alpha, stream.with(1)).into_iter().enumerate()
            {
                shards[node].extend_from_slice(&rows[start..end]);
                start = end;
            }
        }
        if shards.iter().all(|shard| !shard.is_empty()) {
            return Ok(shards);
        }
    }
    let problem = format!(
        "{ATTEMPTS} draws left a node of {nodes} without rows: a larger alpha, fewer nodes or \
         more rows are needed"
    );
    Err(ConfigError::new("data.alpha", alpha, problem))
}

/// The ends of the nodes' parts of `count` rows: proportions from Dirichlet(alpha, ..., alpha), as
/// normalised Gamma(alpha, 1) numbers.
fn cuts(count: usize, nodes: usize, alpha: f64, stream: Stream) -> Vec<usize> {
    let mut weights: Vec<f64> =
        (0..nodes).map(|node| stream.node(NodeId::from(node)).sequence().gamma(alpha)).collect();
    let total: f64 = weights.iter().sum();
    if !(total > 0.0 && total.is_finite()) {
        // If every number underflowed: the limit of alpha towards 0 gives all to one.
        weights.fill(0.0);
        weights[stream.with(u64::MAX).sequence().below(nodes as u64) as usize] = 1.0;
    }
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let mut ends: Vec<usize> = weights
        .iter()
        .map(|weight| {
            sum += weight;
            let end = (sum / total * count as f64).round() as usize;
            if end < count { end } else { count }
        })
        .collect();
    ends[nodes - 1] = count;
    ends
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::super::Target;
    use super::*;

    fn labelled(labels: &[u32], classes: usize) -> Dataset {
        let names = (0..classes).map(|c| c.to_string()).collect();
        let features = Array2::from_shape_fn((labels.len(), 1), |(row, _)| row as f32);
        Dataset::new("t", features, Target::Classes { labels: labels.to_vec(), names }).unwrap()
    }

    #[test]
    fn the_seed_decides() {
        let data = labelled(&[0, 1].repeat(50), 2);
        let rows: Vec<usize> = (0..100).collect();
        for split in [Split::Iid, Split::Dirichlet { alpha: 0.5 }] {
            let draw = |seed| shards(&data, &rows, 4, split, seed).unwrap();
            assert_eq!(draw(1), draw(1));
            assert_ne!(draw(1), draw(2));
        }
        assert_ne!(split_test(&data, 0.3, 1).unwrap(), split_test(&data, 0.3, 2).unwrap());
    }

    #[test]
    fn blocks_keep_the_files_order_and_the_larger_come_first() {
        let data = labelled(&[2, 0, 1, 0, 2, 1, 0], 3);
        let rows: Vec<usize> = (0..7).collect();
        let of = |split| shards(&data, &rows, 3, split, 0).unwrap();
        assert_eq!(of(Split::Contiguous), [vec![0, 1, 2], vec![3, 4], vec![5, 6]]);
        assert_eq!(of(Split::ByLabel), [vec![1, 3, 6], vec![2, 5], vec![0, 4]]);
    }

    #[test]
    fn alpha_decides_how_uneven_the_classes_are() {
        let data = labelled(&(0..4000).map(|i| i % 10).collect::<Vec<u32>>(), 10);
        let rows: Vec<usize> = (0..4000).collect();
        // The mean share of a node's most frequent class: 1 if it holds a single class, 0.1 if all
        // are equal.
        let purity = |alpha| {
            let shards = shards(&data, &rows, 8, Split::Dirichlet { alpha }, 3).unwrap();
            let of = |shard: &Vec<usize>| {
                let count = |class| shard.iter().filter(|&&row| row % 10 == class).count();
                (0..10).map(count).max().unwrap() as f64 / shard.len() as f64
            };
            shards.iter().map(of).sum::<f64>() / 8.0
        };
        assert!(purity(1000.0) < 0.13 && purity(0.05) > 0.5, "{} {}", purity(1000.0), purity(0.05));
    }

    #[test]
    fn sizes_are_relative_and_no_node_is_empty() {
        let sizes = |rows, of: &[f64]| {
            let sizes = apportion_sizes(rows, of);
            assert_eq!(sizes.iter().sum::<usize>(), rows);
            sizes
        };
        assert_eq!(sizes(70, &[1.0, 2.0, 4.0]), [10, 20, 40]);
        assert_eq!(sizes(72, &[0.1, 0.2, 0.4]), [10, 21, 41]);
        assert_eq!(sizes(10, &[1.0; 4]), [3, 3, 2, 2]);
        assert_eq!(sizes(5, &[1e9, 1e-9, 1e-9]), [3, 1, 1]);
        assert_eq!(sizes(3, &[1.0, 1e6, 1.0]), [1, 1, 1]);
        let data = labelled(&[2, 0, 1, 0, 2, 1, 0], 3);
        let rows: Vec<usize> = (0..7).collect();
        let of = |split| sized_shards(&data, &rows, &[1.0, 2.0, 4.0], split, 0).unwrap();
        assert_eq!(of(Split::Contiguous), [vec![0], vec![1, 2], vec![3, 4, 5, 6]]);
        assert_eq!(of(Split::ByLabel), [vec![1], vec![3, 6], vec![2, 5, 0, 4]]);
        let even = sized_shards(&data, &rows, &[3.0; 3], Split::Iid, 5).unwrap();
        assert_eq!(even, shards(&data, &rows, 3, Split::Iid, 5).unwrap());
        for wrong in [[1.0, 0.0], [1.0, f64::NAN], [1.0, -1.0], [1e10, 1.0]] {
            let error = sized_shards(&data, &rows, &wrong, Split::Iid, 0).unwrap_err();
            assert!(error.to_string().starts_with("data.sizes = ["), "{error}");
        }
        assert!(sized_shards(&data, &rows, &[1.0; 8], Split::Iid, 0).is_err());
    }

    #[test]
    fn impossible_splits_are_refused() {
        let data = labelled(&[0, 1, 0], 2);
        let refused = |split, nodes| shards(&data, &[0, 1, 2], nodes, split, 0).unwrap_err();
        for nodes in [0, 4] {
            let error = refused(Split::Iid, nodes);
            let DataError::Count { found, needed, .. } = error.kind() else { panic!("{error}") };
            assert_eq!((error.file(), *found, *needed), (Some("t"), 3, nodes));
        }
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            let error = refused(Split::Dirichlet { alpha }, 3);
            let DataError::Config(error) = error else { panic!("{error}") };
            assert_eq!(error.key(), Some("data.alpha"));
            assert_eq!(error.problem.contains("1000 draws left a node of 3"), alpha == 1e-300);
        }
        for share in [-0.1, 1.0, f64::NAN, 0.9] {
            let error = ConfigError::from(split_test(&data, share, 0).unwrap_err());
            assert_eq!(error.key(), Some("data.test_share"));
        }
        let target = Target::Values(Array2::zeros((3, 1)));
        let numbers = Dataset::new("t", Array2::zeros((3, 1)), target).unwrap();
        assert_eq!(split_test(&numbers, 0.4, 0).unwrap().1.len(), 1);
    }
}
