//! How fast a schedule makes nodes agree.
//!
//! The norm of a product of many matrices is found without forming it: by power iteration on the product and its transpose, on the
//! complement of the constant vector, where `W_(t-1) ... W_0` and `W_(t-1) ... W_0 - J` are the same.

use super::{Mix, Recipe};
use crate::{
    mixing::Topology,
    rng::{Purpose, Stream},
};

/// Disagreement at which nodes count as agreed, of what it was.
const TARGET: f64 = 0.01;

/// A product that leaves less than this of a random vector is J.
const NOTHING: f64 = 1e-12;

/// Iterations of the power method at the most; where two singular values are so close that this is not enough, the one stands for the other.
const ITERATIONS: usize = 200;

/// Nodes times rounds up to which the rounds to [`TARGET`] are counted; beyond, they follow from rho.
const COUNTED: u64 = 1 << 20;

/// How fast disagreement shrinks under a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The factor per round; 0 where a period ends in exact agreement.
    pub rho: f64,
    /// `1 - rho`.
    pub gap: f64,
    /// The least t at which the first t rounds shrink any disagreement (the norm, not its square) to a hundredth; `None` if it never shrinks.
    pub mixing_time: Option<u64>,
    /// Whether that was counted on the matrices; else it follows from rho.
    pub counted: bool,
}

impl Rate {
    /// Of one period's rounds.
    pub(super) fn of(recipe: &dyn Recipe, rounds: &[Mix], topology: &Topology) -> Rate {
        let period = rounds.len() as u64;
        let rho = recipe.rho(topology, rounds).unwrap_or_else(|| libm::pow(norm(rounds, period), 1.0 / period as f64));
        let (mixing_time, counted) = match recipe.mixing_time(topology) {
            Some(known) => (known, true),
            None => match counted(rounds) {
                Some(rounds) => (Some(rounds), true),
                None if rho < 1.0 => (Some((libm::log(TARGET) / libm::log(rho)).ceil() as u64), false),
                None => (None, false),
            },
        };
        Rate { rho, gap: 1.0 - rho, mixing_time, counted }
    }
}

/// The least t with `|W_(t-1) ... W_0 - J| <= TARGET`, if it is not too far. The norm never grows with t.
fn counted(rounds: &[Mix]) -> Option<u64> {
    let limit = COUNTED / rounds[0].nodes() as u64;
    let enough = |t: u64| norm(rounds, t) <= TARGET;
    let mut high = 1;
    while !enough(high) {
        high *= 2;
        if high > limit {
            return None;
        }
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// `|W_(t-1) ... W_0 - J|` in the spectral norm.
fn norm(rounds: &[Mix], t: u64) -> f64 {
    let n = rounds[0].nodes();
    if n == 1 {
        return 0.0;
    }
    let mix = |t: u64| &rounds[(t % rounds.len() as u64) as usize];
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
        if (now - found).abs() <= 1e-10 * now {
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

/// Takes the mean away.
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
                let (found, exact) = (norm(&schedule.rounds, t), dense(&schedule, t));
                assert!((found - exact).abs() < 1e-7, "{name} on {spec}, {t} rounds: {found} and {exact}");
            }
        }
    }

    #[test]
    fn a_hundredth_is_reached_when_the_figures_say() {
        for (name, spec) in
            [("one-peer-exponential", "exponential:11"), ("random-matching", "ring:9"), ("base-2", "complete:13")]
        {
            let topology = Topology::parse(spec, 0).unwrap();
            let schedule = Schedule::new(name, &topology, 4).unwrap();
            let rate = schedule.rate(&topology);
            let t = rate.mixing_time.unwrap();
            assert!(rate.counted && dense(&schedule, t) <= TARGET && dense(&schedule, t - 1) > TARGET, "{name}: {t}");
        }
    }
}
