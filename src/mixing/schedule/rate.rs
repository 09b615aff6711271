//! How fast a schedule makes nodes agree.
//!
//! The norm of a product of many matrices is found without forming it: by power iteration on the
//! product and its transpose, on the complement of the constant vector, where `W_(t-1) ... W_0` and
//! `W_(t-1) ... W_0 - J` are the same.

use std::collections::BTreeMap;

use super::{Mix, Recipe};
use crate::{
    mixing::{Graph, MixingMatrix, Spectrum, Topology},
    rng::{Purpose, Stream},
};

/// The remaining share of disagreement at which nodes count as agreed.
const TARGET: f64 = 0.01;

/// The share of disagreement down to which the products of a random schedule are computed.
const SMALL: f64 = 1e-6;

/// A product that leaves less than this of a random vector counts as J.
const NOTHING: f64 = 1e-12;

/// The maximum number of iterations of the power method; if two singular values are too close for
/// this many, either may be returned.
const ITERATIONS: usize = 200;

/// The maximum of nodes times rounds for counting rounds, or a period if that is longer; beyond,
/// they follow from rho.
const COUNTED: u64 = 1 << 20;

/// How fast disagreement shrinks under a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The factor per round; 0 if a period ends in exact agreement; measured if the rounds are
    /// random.
    pub rho: f64,
    /// `1 - rho`, the larger the faster.
    pub gap: f64,
    /// The least t at which the first t rounds shrink any disagreement (the norm, not its square)
    /// to a hundredth; `None` if it never shrinks.
    pub mixing_time: Option<u64>,
    /// Whether that was counted on the matrices; else it follows from rho.
    pub counted: bool,
}

impl Rate {
    /// The rate of one period's rounds.
    pub(super) fn of(recipe: &Recipe, rounds: &[Mix], topology: &Topology) -> Rate {
        if let Some(rate) = (recipe.rate)(topology) {
            return rate;
        }
        let period = rounds.len() as u64;
        let rho = if recipe.is_random {
            measured(rounds).unwrap_or_else(|| of_mean(rounds))
        } else {
            libm::pow(norm(rounds, 0, period, f64::INFINITY), 1.0 / period as f64)
        };
        let counted = first_below(rounds, 0, TARGET);
        let estimated = || (rho < 1.0).then(|| (libm::log(TARGET) / libm::log(rho)).ceil() as u64);
        Rate {
            rho,
            gap: 1.0 - rho,
            mixing_time: counted.or_else(estimated),
            counted: counted.is_some(),
        }
    }
}

/// The factor per round of a random schedule: products of consecutive rounds are computed until
/// they are below [`SMALL`], one after the other until a period is over. `None` if that takes too
/// long.
fn measured(rounds: &[Mix]) -> Option<f64> {
    let (mut stretches, mut from) = (0u32, 0);
    while from < rounds.len() as u64 {
        from += first_below(rounds, from, SMALL)?;
        stretches += 1;
    }
    if from == u64::from(stretches) {
        // Every single round ends in agreement: there are two nodes.
        return Some(0.0);
    }
    Some(libm::exp(f64::from(stretches) * libm::log(SMALL) / from as f64))
}

/// The factor per round of the expected models: lambda_2 of the mean of all W, which must be
/// symmetric. On large slow graphs, whose rounds average out, the products shrink by nearly that.
fn of_mean(rounds: &[Mix]) -> f64 {
    let mut sums = BTreeMap::new();
    for mix in rounds {
        for (i, j) in mix.arcs().filter(|(i, j)| i < j) {
            *sums.entry((i.0, j.0)).or_insert(0.0) += mix.weight(i, j) / rounds.len() as f64;
        }
    }
    let weights: Vec<f64> = sums.values().copied().collect();
    let graph = Graph::new(rounds[0].nodes(), sums.into_keys()).expect("links of a topology");
    // Nodes that never exchange never agree.
    MixingMatrix::new(graph, &weights, false).map_or(1.0, |mean| Spectrum::of(&mean, None).lambda_2)
}

/// The least t with `|W_(from+t-1) ... W_from - J| <= target`, if it is not too large. The norm
/// never grows with t.
fn first_below(rounds: &[Mix], from: u64, target: f64) -> Option<u64> {
    let limit = (COUNTED / rounds[0].nodes() as u64).max(rounds.len() as u64);
    let enough = |t: u64| norm(rounds, from, t, target) <= target;
    let mut high = 1;
    while !enough(high) {
        if high >= limit {
            return None;
        }
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// `|W_(from+t-1) ... W_from - J|` in the spectral norm; or, if that is above `stop`, any number
/// between both.
fn norm(rounds: &[Mix], from: u64, t: u64, stop: f64) -> f64 {
    let n = rounds[0].nodes();
    if n == 1 {
        return 0.0;
    }
    let mix = |t: u64| &rounds[((from + t) % rounds.len() as u64) as usize];
    let mut dice = Stream::new(0, Purpose::Graph).with(t).sequence();
    let mut x: Vec<f64> = (0..n).map(|_| dice.normal()).collect();
    let mut y = vec![0.0; n];
    let mut found = 0.0;
    for _ in 0..ITERATIONS {
        centre(&mut x);
        let before = size(&x);
        x.iter_mut().for_each(|x| *x /= before);
        for t in 0..t {
            mix(t).apply(false, &x, &mut y);
            std::mem::swap(&mut x, &mut y);
        }
        centre(&mut x);
        let now = size(&x);
        if now <= NOTHING {
            return 0.0;
        }
        if now > stop || (now - found).abs() <= 1e-10 * now {
            return now;
        }
        found = now;
        for t in (0..t).rev() {
            mix(t).apply(true, &x, &mut y);
            std::mem::swap(&mut x, &mut y);
        }
    }
    found
}

fn centre(x: &mut [f64]) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    x.iter_mut().for_each(|x| *x -= mean);
}

fn size(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::*;
    use crate::{mixing::Schedule, units::Round};

    /// The same by a dense product and its singular values.
    fn dense(schedule: &Schedule, t: u64) -> f64 {
        let n = schedule.nodes();
        let mut product = DMatrix::identity(n, n);
        for t in 0..t {
            let rows = schedule.mix(Round(t)).dense();
            product = DMatrix::from_fn(n, n, |i, j| rows[i][j]) * product;
        }
        product.add_scalar_mut(-1.0 / n as f64);
        product.singular_values().max()
    }

    #[test]
    fn the_norm_is_the_largest_singular_value() {
        for (name, spec) in [
            ("one-peer-exponential", "complete:6"),
            ("one-peer-exponential", "exponential:11"),
            ("base-2", "complete:7"),
            ("random-matching", "ring:9"),
            ("random-matching", "star:5"),
        ] {
            let schedule = Schedule::new(name, &Topology::parse(spec, 0).unwrap(), 4).unwrap();
            for t in [1, 2, 3, 5, 20] {
                let (found, exact) =
                    (norm(&schedule.rounds, 0, t, f64::INFINITY), dense(&schedule, t));
                assert!(
                    (found - exact).abs() < 1e-7,
                    "{name} on {spec}, {t} rounds: {found} and {exact}"
                );
            }
        }
    }

    #[test]
    fn a_hundredth_is_reached_at_the_mixing_time() {
        for (name, spec) in [
            ("one-peer-exponential", "exponential:11"),
            ("random-matching", "ring:9"),
            ("base-2", "complete:13"),
        ] {
            let topology = Topology::parse(spec, 0).unwrap();
            let schedule = Schedule::new(name, &topology, 4).unwrap();
            let rate = schedule.rate(&topology);
            let t = rate.mixing_time.unwrap();
            assert!(
                rate.counted && dense(&schedule, t) <= TARGET && dense(&schedule, t - 1) > TARGET,
                "{name}: {t}"
            );
        }
    }

    #[test]
    fn a_random_schedule_is_not_slower_than_the_root_of_its_mean() {
        for spec in ["ring:9", "ring:24", "star:5", "torus:4x4", "complete:8"] {
            let topology = Topology::parse(spec, 0).unwrap();
            let schedule = Schedule::new("random-matching", &topology, 4).unwrap();
            let (rho, mean) = (schedule.rate(&topology).rho, of_mean(&schedule.rounds));
            // A few percent for chance. Products that happen to end in exact agreement make small
            // dense graphs faster than their mean.
            assert!(rho > 0.8 * mean && rho < 1.05 * mean.sqrt(), "{spec}: {rho}, {mean}");
        }
        // Slow graphs: many rounds average out.
        let schedule =
            Schedule::new("random-matching", &Topology::parse("ring:40", 0).unwrap(), 4).unwrap();
        let (rho, mean) = (measured(&schedule.rounds).unwrap(), of_mean(&schedule.rounds));
        assert!(((1.0 - rho) / (1.0 - mean) - 1.0).abs() < 0.1, "{rho}, {mean}");
    }

    #[test]
    fn two_nodes_agree_at_once_and_exact_rounds_are_counted_at_any_size() {
        let rate = |name: &str, spec: &str| {
            let topology = Topology::parse(spec, 0).unwrap();
            *Schedule::new(name, &topology, 0).unwrap().rate(&topology)
        };
        let two = rate("random-matching", "path:2");
        assert_eq!((two.rho, two.mixing_time), (0.0, Some(1)));
        let large = rate("base-2", "exponential:50000");
        assert_eq!((large.rho, large.mixing_time, large.counted), (0.0, Some(31), true));
    }
}
