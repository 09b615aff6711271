//! Random matchings of the topology's own links.
//!
//! Boyd, Ghosh, Prabhakar, Shah: Randomized Gossip Algorithms (2006), with all pairs of a maximal
//! matching at once in place of one pair.
//!
//! ```text
//! each round: the links in a random order, each taken if both its ends are free; the ends of a
//! taken link average
//! ```
//! With M the mean of all W_t, the expected models move by M, and because W_t is a projection (W_t'
//! W_t = W_t) the mean square of disagreement shrinks by lambda_2(M) at least: the factor per round
//! is at most the root of lambda_2(M), and on slow graphs, where many rounds average out, nearly
//! lambda_2(M).
//!
//! DIFFERENCE to an endless draw: up to [`PERIOD`] rounds are drawn from the run's seed (fewer for
//! large topologies), and then repeat. So the plan is data, and any node can check a frame of any
//! round.

use super::{Mix, Recipe};
use crate::{
    mixing::{Graph, Topology},
    rng::{Purpose, Stream},
};

/// The maximum number of rounds that are drawn.
const PERIOD: usize = 1024;

/// The minimum number of rounds that are drawn.
const SHORTEST: usize = 16;

/// The approximate maximum of (nodes + links) times rounds: some 100 MB.
const ROOM: usize = 1 << 22;

/// `random-matching`: disjoint pairs of neighbours, drawn again in each round.
pub(super) const RANDOM_MATCHING: Recipe = Recipe {
    name: "random-matching",
    about: "random disjoint pairs of neighbours average, again each round; on any topology; \
            repeats after up to 1024 rounds",
    paper: "Boyd et al. 2006, Randomized Gossip Algorithms, with a maximal matching a round",
    rounds,
    is_random: true,
    ..Recipe::BLANK
};

fn rounds(topology: &Topology, _number: u64, seed: u64) -> Result<Vec<Mix>, String> {
    let (nodes, links) = (topology.nodes(), topology.graph().links());
    let period = (ROOM / (nodes + links.len())).clamp(SHORTEST, PERIOD);
    let stream = Stream::new(seed, Purpose::Rule).with(nodes as u64).with(links.len() as u64);
    let mut order: Vec<usize> = (0..links.len()).collect();
    let mut met = vec![false; links.len()];
    let rounds: Vec<Mix> = (0..period as u64)
        .map(|t| {
            stream.with(t).sequence().shuffle(&mut order);
            let mut free = vec![true; nodes];
            let mut pairs = Vec::with_capacity(nodes / 2);
            for &link in &order {
                let (a, b) = links[link];
                if free[a.index()] && free[b.index()] {
                    (free[a.index()], free[b.index()], met[link]) = (false, false, true);
                    pairs.push((a.0, b.0, 0.5));
                }
            }
            Mix::pairs(nodes, &pairs)
        })
        .collect();
    let union = links.iter().zip(&met).filter(|(_, met)| **met).map(|(&(a, b), _)| (a.0, b.0));
    match Graph::new(nodes, union).map_err(|error| error.to_string())?.unreached() {
        None => Ok(rounds),
        Some(node) => {
            let name = &topology.node(node).name;
            Err(format!(
                "in {period} rounds, the maximum for this size, {name} is cut off: use \
                 a smaller topology"
            ))
        }
    }
}
