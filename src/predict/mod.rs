//! Predicts the cost of a run before a byte is sent: from the exchange plan, the payloads' sizes,
//! the links and the spectral gap.
//!
//! Links follow the alpha-beta model: a frame of B bytes takes alpha + beta B, and frames of one
//! direction queue. [`clockwork`] steps the core's own program with sizes in place of numbers; the
//! rounds after the first ones are the prediction.

pub mod clockwork;

use clockwork::{Load, Timetable, follow};

use crate::{
    compress::Format,
    gossip::plan::{self, At, Meeting, Plan, Step},
    links::Conditions,
    units::{NodeId, Round},
};

/// The cost of a round once the first rounds are over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Prediction {
    /// Mean time from one round to the next, in seconds.
    pub round_s: f64,
    /// When round 0 is over on all nodes.
    pub first_s: f64,
    /// Bytes of payload that a node sends in a round: mean and maximum.
    pub payload: (f64, f64),
    /// The same with headers, before encryption.
    pub wire: (f64, f64),
    /// The traffic of each direction of a link in a round.
    pub links: Vec<LinkLoad>,
    /// The share of time in which a node computes, mean over nodes.
    pub computing: f64,
}

/// The traffic of one direction of a link in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkLoad {
    /// The node at which the direction begins.
    pub from: NodeId,
    /// The node at which it ends.
    pub to: NodeId,
    /// The mean number of frames.
    pub frames: f64,
    /// Bytes of payloads, without headers.
    pub payload: f64,
    /// Bytes with envelopes and headers, before encryption.
    pub wire: f64,
    /// Seconds in which the line is occupied.
    pub busy_s: f64,
    /// Seconds that its frames would need one after the other, latencies included.
    pub alone_s: f64,
}

impl Prediction {
    /// The direction of a link that a round waits for longest: the largest `alone_s`.
    pub fn bottleneck(&self) -> Option<&LinkLoad> {
        self.links.iter().max_by(|a, b| a.alone_s.total_cmp(&b.alone_s))
    }

    /// Seconds of a run of `rounds` rounds.
    pub fn run_s(&self, rounds: u64) -> f64 {
        self.first_s + self.round_s * rounds.saturating_sub(1) as f64
    }
}

/// The longest period that is followed round by round.
const LONGEST: u64 = 400;

/// Follows a plan until it repeats. Of a plan that repeats after many rounds, most of them alike,
/// two shorter periods are followed: what a round more costs is the same in between.
///
/// # Panics
/// If the plan calls (see [`crate::gossip::plan::is_asynchronous`]).
pub fn predict(
    plan: &dyn Plan,
    nodes: usize,
    parameters: usize,
    conditions: &Conditions,
) -> Prediction {
    let period = plan.period();
    let of = |plan: &dyn Plan| measure(plan, nodes, parameters, conditions);
    if period <= LONGEST || !plan::is_silent(plan, nodes, Round(0)) {
        return of(plan);
    }
    let lag = plan::lag(plan);
    let kept = [1, 2].map(|times| times * (64 + 2 * lag).min(period / 2));
    let [short, long] = kept.map(|kept| of(&Shortened { plan, rounds: period, kept }));
    let [few, more] = kept.map(|kept| kept as f64);
    let period = period as f64;
    let mean = |short: f64, long: f64| {
        let round = (more * long - few * short) / (more - few);
        (few * short + (period - few) * round) / period
    };
    let both = |short: (f64, f64), long: (f64, f64)| (mean(short.0, long.0), mean(short.1, long.1));
    let link = |(short, long): (&LinkLoad, &LinkLoad)| LinkLoad {
        frames: mean(short.frames, long.frames),
        payload: mean(short.payload, long.payload),
        wire: mean(short.wire, long.wire),
        busy_s: mean(short.busy_s, long.busy_s),
        alone_s: mean(short.alone_s, long.alone_s),
        ..*short
    };
    let round_s = mean(short.round_s, long.round_s);
    let computed = |one: &Prediction| one.computing * one.round_s;
    let computed = mean(computed(&short), computed(&long));
    Prediction {
        round_s,
        first_s: long.first_s,
        payload: both(short.payload, long.payload),
        wire: both(short.wire, long.wire),
        links: short.links.iter().zip(&long.links).map(link).collect(),
        computing: if round_s > 0.0 { (computed / round_s).min(1.0) } else { long.computing },
    }
}

/// A plan without the first rounds of each period, which are alike.
struct Shortened<'a> {
    plan: &'a dyn Plan,
    /// Those of a whole period.
    rounds: u64,
    /// The last rounds of a period, which it has.
    kept: u64,
}

impl Shortened<'_> {
    fn of(&self, at: &At) -> At {
        let Round(round) = at.round;
        let (periods, in_it) = (round / self.kept, round % self.kept);
        let first = periods.saturating_mul(self.rounds).saturating_add(self.rounds - self.kept);
        At { round: Round(first.saturating_add(in_it)), ..*at }
    }
}

impl Plan for Shortened<'_> {
    fn steps(&self) -> &[Step] {
        self.plan.steps()
    }

    fn exchanges(&self, flight: u8) -> u16 {
        self.plan.exchanges(flight)
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        self.plan.meet(node, &self.of(at), out);
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        self.plan.format(&self.of(at), from)
    }

    fn parts(&self) -> &[usize] {
        self.plan.parts()
    }

    fn period(&self) -> u64 {
        self.kept
    }
}

/// Follows some whole periods.
fn measure(
    plan: &dyn Plan,
    nodes: usize,
    parameters: usize,
    conditions: &Conditions,
) -> Prediction {
    let drawn = conditions.compute.spread > 0.0
        || std::iter::once(&conditions.rest)
            .chain(conditions.links.values())
            .any(|link| link.jitter > 0 || link.loss > 0.0 || link.variation > 0.0);
    let least = if drawn { 200 } else { 24 };
    let period = plan.period().clamp(1, LONGEST);
    let measured = u64::next_multiple_of(least, period);
    let warm = (plan::lag(plan) + 4).next_multiple_of(period);
    let Timetable { rounds, links, computing } =
        follow(plan, nodes, parameters, conditions, warm + measured);
    let total = rounds.len() as f64;
    let at = |round: u64| rounds[round as usize].seconds();
    let (begin, end) = (at(warm - 1), at(warm + measured - 1));
    let of_node = |take: &dyn Fn(&Load) -> u64| {
        let mut sums = vec![0.0; nodes];
        links.iter().for_each(|((from, _), load)| sums[from.index()] += take(load) as f64 / total);
        let most = sums.iter().copied().fold(0.0, f64::max);
        (sums.iter().sum::<f64>() / nodes as f64, most)
    };
    let load = |(&(from, to), used): (&(NodeId, NodeId), &Load)| {
        let busy_s = used.busy as f64 / 1e9 / total;
        let frames = used.frames as f64 / total;
        LinkLoad {
            from,
            to,
            frames,
            payload: used.payload as f64 / total,
            wire: used.wire as f64 / total,
            busy_s,
            alone_s: busy_s + frames * conditions.link(from, to).latency as f64 / 1e9,
        }
    };
    let round_s = (end - begin) / measured as f64;
    let computed = computing.iter().sum::<u64>() as f64 / 1e9 / nodes as f64 / total;
    Prediction {
        round_s,
        first_s: at(0),
        payload: of_node(&|load| load.payload),
        wire: of_node(&|load| load.wire),
        links: links.iter().map(load).collect(),
        computing: if round_s > 0.0 { (computed / round_s).min(1.0) } else { 1.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gossip::collective::{Collective, Pattern},
        links::{ComputeModel, LinkModel},
    };

    fn conditions() -> Conditions {
        let mut conditions = Conditions::ideal();
        conditions.rest = LinkModel { latency: 20_000_000, rate: 1e6, ..conditions.rest };
        conditions.compute = ComputeModel { mean: 3_000_000, ..conditions.compute };
        conditions
    }

    /// Round by round over three periods, the first one left out.
    fn followed(plan: &dyn Plan, parameters: usize) -> (f64, f64) {
        let period = plan.period();
        let all = follow(plan, 4, parameters, &conditions(), 3 * period);
        let at = |rounds: u64| all.rounds[rounds as usize - 1].seconds();
        let payload: u64 = all.links.values().map(|load| load.payload).sum();
        let rounds = (3 * period) as f64;
        ((at(3 * period) - at(period)) / (2 * period) as f64, payload as f64 / 4.0 / rounds)
    }

    #[test]
    fn rules_that_exchange_seldom_cost_what_a_whole_period_does() {
        for pattern in [Pattern::AllToAll, Pattern::Ring, Pattern::Server] {
            for (every, lag) in [(1, 0), (2, 0), (7, 0), (30, 2), (399, 0), (401, 3), (10_000, 0)] {
                let plan = Collective::sum(pattern, 4, 1000, lag, every);
                let predicted = predict(&plan, 4, 1000, &conditions());
                let (round_s, payload) = followed(&plan, 1000);
                let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * other;
                let words = format!("{pattern:?} every {every}, lag {lag}");
                assert!(payload > 0.0, "{words}");
                assert!(is_near(predicted.payload.0, payload), "{words}: {predicted:?} {payload}");
                assert!(
                    is_near(predicted.round_s, round_s),
                    "{words}: {} {round_s}",
                    predicted.round_s
                );
                let computing = 0.003 / round_s;
                assert!(is_near(predicted.computing, computing), "{words}: {computing}");
            }
        }
    }
}
