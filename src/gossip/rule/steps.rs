//! Default steps of gossip on compressed differences: half of the largest stable step on every
//! topology.
//!
//! **The limit.** Let random-k send each coordinate of x - xh with probability delta. Between two
//! sends of a coordinate of node i, which are T rounds apart, x_i moves by -gamma T l xh_i, with
//! l = sum_{j != i} |w_ij|, and by the neighbours' changes. Without the latter its square shrinks
//! if and only if E (1 - gamma l T)^2 < 1; T is geometric, so
//!
//! ```text
//! gamma < 2 E T / (l E T^2) = 2 delta / ((2 - delta) l)
//! ```
//! The second moments of all nodes together give the same limit to 1% on rings, tori, hypercubes
//! and complete graphs from delta = 0.01 to 0.3, and a greater one on stars and paths. As delta
//! nears 1, the limit is 2 / |I - W| of exact gossip, which is at least 1 / l (Gershgorin). So the
//! limit is delta / l or more. The default is half of it, with the greatest l of all nodes,
//!
//! ```text
//! gamma = F delta,   F = min(0.7, 1 / (2 max l_i))
//! ```
//! (0.7 was the default before, and holds on rings and paths with Metropolis weights, where half
//! the limit is 0.75 delta.)
//!
//! **delta** is the compressor's nominal one, except where C sends the greatest entries (top-k, and
//! all that keep more of a Gaussian vector than their share of its entries). Error feedback leaves
//! vectors that are flatter than Gaussian ones, so their k greatest entries hold less than nominal
//! delta says. With top-k at a density of 0.01 gossip alone was unstable above 6 k / d on a ring of
//! 8 and above 5 k / d on the complete graph and the torus, where nominal delta would be 8 k / d
//! (17 k / d at a density of 0.0001). All sparse compressors are tested with the defaults alone, at
//! densities from 0.0001 to 0.5 (`tests/rules/gossip_alone.rs`). DeepSqueeze, which compresses x
//! itself, was unstable above 3.5 k / d and 2.5 k / d. The default is half of these limits too, and
//! at most half of nominal delta.
//!
//! **With a momentum gamma** on the models (`compressed-gasloc`) what a copy lags behind adds up
//! over 1 / (1 - gamma) rounds. On rings and all pairs the limit fell as 1 - gamma for random-k and
//! min-max grids, and as (1 - gamma)^2 for the sign: 1, 0.37, 0.14, 0.05 and 0.014 at gamma = 0,
//! 0.5, 0.7, 0.8 and 0.9 on a ring of 4, in steps of 1.4 times. So the default of a biased C is
//! omega = (1 - gamma)^2 F delta. The copies behind an unbiased C do not lag, they are noisy, and
//! as delta nears 1 the limit is that of exact gossip, which no momentum lowers: the roots of r^2 -
//! (l + gamma) r + gamma are inside the unit circle while |l| < 1. There it is
//!
//! ```text
//! omega = min(1, delta / ((2 - delta) max l_i)) (1 - gamma) / (1 - gamma delta^3)
//! ```
//! half of the limit of gamma = 0, times a factor from 1 - gamma at delta = 0 to 1 at delta = 1.
//! For gamma up to 0.9 on rings and all pairs, a min-max grid of 2 bits was stable up to 1.8 times
//! this or more, and one of 4 bits up to omega = 1, where the trial ended.
//!
//! **With the momentum beta of `compressed-qg-dsgdm`**, which follows the mixed models, the sign
//! stands less: from numbers in proportion to 1 / k it was unstable on a ring of 4 at omega = 0.22
//! (1 - beta)^2 for beta = 0.9, and agreed at 0.1 (1 - beta)^2 there and at 0.2 (1 - beta)^2 for
//! beta = 0.5 and 0.7. So a biased C has (1 - beta)^3 F delta. Of an unbiased C it is as above:
//! random-k (0.03) and min-max grids of 2 bits were unstable from 1.9 times the default on, for
//! beta from 0.5 to 0.9, in steps of 1.5 times.

use super::{constants::nine_digits, entry::Setting};
use crate::{compress::Class, units::Round};

/// Replaces delta if C is no contraction: no step is stable then, but a run that is allowed to be
/// unstable still needs one.
const NO_CONTRACTION: f64 = 0.01;

/// The most rounds of a schedule that are examined.
const ROUNDS: u64 = 256;

/// Multiple of k / d for copies: F times this is half of 6 k / d on a ring.
const GREATEST: f64 = 4.2;

/// gamma of CHOCO: half of what is stable; 1 where C is exact.
pub(super) fn of_copies(setting: &Setting<'_>) -> f64 {
    if setting.nominal_delta >= 1.0 { 1.0 } else { factor(setting) * delta(setting, GREATEST) }
}

/// The gossip step on copies of models with a momentum, from 0 on, for any delta; 1 where C is
/// exact. That of a biased C falls with the `power` of `1 - momentum`.
pub(super) fn at_contraction(
    setting: &Setting<'_>,
    momentum: f64,
    power: i32,
) -> impl Fn(f64) -> f64 + Send + Sync + 'static {
    let (factor, away) = (factor(setting), furthest(setting));
    let biased = matches!(setting.compressor.class(setting.parameters), Class::Contraction { .. });
    let exact = setting.nominal_delta >= 1.0;
    move |delta| {
        if exact {
            return 1.0;
        }
        let delta = if delta > 0.0 { delta.min(1.0) } else { NO_CONTRACTION };
        if biased || away == 0.0 {
            return (1.0 - momentum).powi(power) * (factor * delta);
        }
        let half = (delta / ((2.0 - delta) * away)).min(1.0);
        half * (1.0 - momentum) / (1.0 - momentum * delta.powi(3))
    }
}

/// delta for [`at_contraction`] before anything has been measured.
pub(super) fn expected(setting: &Setting<'_>) -> f64 {
    delta(setting, GREATEST)
}

/// eta of DeepSqueeze: half of the same, because its noise does not vanish; 1 where C is exact.
pub(super) fn of_models(setting: &Setting<'_>) -> f64 {
    /// Multiple of k / d: F times this is 2 k / d on a ring.
    const GREATEST: f64 = 2.8;
    if setting.nominal_delta >= 1.0 {
        return 1.0;
    }
    let half = if density_of_greatest(setting).is_some() { 1.0 } else { 0.5 };
    factor(setting) * half * delta(setting, GREATEST)
}

/// Warns if the compressor's nominal error alpha on Gaussian vectors is past the bound under which
/// compressed differences of models are known to converge: sqrt(1 - rho^2) / |I - W| (Tang et al.
/// 2018, Theorem 1).
pub(super) fn warn_of_differences(rule: &str, setting: &Setting<'_>) -> Vec<String> {
    let alpha = (1.0 - setting.nominal_delta).max(0.0).sqrt();
    if setting.topology.nodes() == 1 || alpha == 0.0 {
        return Vec::new();
    }
    let spectrum = setting.topology.spectrum();
    let bound = (1.0 - spectrum.rho * spectrum.rho).max(0.0).sqrt() / spectrum.mu;
    if alpha < bound {
        return Vec::new();
    }
    vec![format!(
        "{rule} with `{}`: its error alpha = {alpha:.3} is past the bound sqrt(1 - rho^2) / |I - \
         W| = {bound:.3} of `{}`, so it may diverge (near 1.2 it does); deep-squeeze or choco \
         stand more, so do more bits and smaller buckets",
        setting.compressor.name(),
        setting.topology.name()
    )]
}

/// F.
fn factor(setting: &Setting<'_>) -> f64 {
    let away = furthest(setting);
    if away > 0.0 { (0.5 / away).min(0.7) } else { 0.7 }
}

/// p = k / d, if C sends k entries and chooses the greatest. Of a Gaussian vector these hold at
/// least p + p (1 - p); entries chosen at random hold p. C has to keep half of the difference.
fn density_of_greatest(setting: &Setting<'_>) -> Option<f64> {
    let most = setting.compressor.most_entries(setting.parameters)?;
    let p = most as f64 / setting.parameters.max(1) as f64;
    (setting.nominal_delta > p + 0.5 * p * (1.0 - p)).then_some(p)
}

/// The part of a vector left by error feedback that C keeps; of the greatest entries at most
/// `times` k / d.
fn delta(setting: &Setting<'_>, times: f64) -> f64 {
    if setting.nominal_delta <= 0.0 {
        return NO_CONTRACTION;
    }
    match density_of_greatest(setting) {
        None => setting.nominal_delta,
        Some(density) => (0.5 * setting.nominal_delta).min(times * density),
    }
}

/// max_i sum_{j != i} |w_ij|, over the rounds of the schedule.
pub(super) fn furthest(setting: &Setting<'_>) -> f64 {
    let rounds = setting.schedule.period().clamp(1, ROUNDS);
    let nodes = setting.topology.nodes();
    let mut most = 0.0f64;
    for round in 0..rounds {
        for node in 0..nodes {
            let turn = setting.schedule.turn(Round(round), node.into());
            most = most.max(turn.weights.iter().map(|w| w.abs()).sum());
        }
    }
    nine_digits(most)
}
