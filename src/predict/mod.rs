//! Predicts the cost of a run before a byte is sent: from the exchange plan, the payloads' sizes,
//! the links and the spectral gap.
//!
//! Links follow the alpha-beta model: a frame of B bytes takes alpha + beta B, and frames of one
//! direction queue. [`clockwork`] steps the core's own program with sizes in place of numbers; the
//! rounds after the first ones are the prediction.

pub mod clockwork;

use clockwork::{Load, Timetable, follow};

use crate::{
    gossip::plan::{Plan, Step},
    links::Conditions,
    units::{NodeId, Time},
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

/// Follows a plan until it repeats.
///
/// # Panics
/// If the plan calls (see [`crate::gossip::plan::is_asynchronous`]).
pub fn predict(
    plan: &dyn Plan,
    nodes: usize,
    parameters: usize,
    conditions: &Conditions,
) -> Prediction {
    let lag = plan
        .steps()
        .iter()
        .map(|step| if let Step::Land { lag, .. } = step { u64::from(*lag) } else { 0 })
        .max();
    let drawn = conditions.compute.spread > 0.0
        || std::iter::once(&conditions.rest)
            .chain(conditions.links.values())
            .any(|link| link.jitter > 0 || link.loss > 0.0 || link.variation > 0.0);
    let least = if drawn { 200 } else { 24 };
    let measured = least.max(plan.period().min(400));
    let warm = lag.unwrap_or(0) + 4;
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
    let last = rounds.last().copied().unwrap_or(Time(0)).seconds();
    let computed = computing.iter().sum::<u64>() as f64 / 1e9 / nodes as f64;
    Prediction {
        round_s: (end - begin) / measured as f64,
        first_s: at(0),
        payload: of_node(&|load| load.payload),
        wire: of_node(&|load| load.wire),
        links: links.iter().map(load).collect(),
        computing: if last > 0.0 { computed / last } else { 1.0 },
    }
}
