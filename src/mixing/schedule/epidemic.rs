//! A random regular graph in each round.
//!
//! De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma: Epidemic Learning: Boosting
//! Decentralized Learning with Randomized Communication (2023), EL-Oracle: in place of an oracle,
//! all nodes draw the same graphs from the run's seed. Only the abstract was at hand; the
//! contraction below is derived here.
//!
//! ```text
//! each round: a random graph in which every node has s neighbours; W = (I + A) / (s + 1), A its
//! adjacency matrix
//! ```
//! All numberings of the nodes are equally probable, so for x with sum 0
//!
//! ```text
//! E |W x|^2 = (1 - s / (n - 1)) / (s + 1) |x|^2
//! ```
//! however large n is: a fixed graph of this degree mixes more slowly the larger it is.
//!
//! DIFFERENCE to an endless draw: up to [`PERIOD`] rounds are drawn, and then repeat, as for
//! `random-matching`.

use super::{Mix, Recipe};
use crate::{
    mixing::{Graph, Topology, family},
    rng::{Purpose, Stream},
    units::NodeId,
};

/// The maximum number of rounds that are drawn.
const PERIOD: usize = 1024;

/// The minimum number of rounds that are drawn.
const SHORTEST: usize = 16;

/// The approximate maximum of nodes times (s + 1) times rounds: some 100 MB.
const ROOM: usize = 1 << 22;

/// Attempts to draw one round's graph. An attempt rarely fails.
const ATTEMPTS: u64 = 300;

/// `epidemic:s`: every node exchanges with s others, drawn again in each round.
pub(super) const EPIDEMIC: Recipe = Recipe {
    name: "epidemic",
    about: "each node averages with as many random others as the number says, again each round; \
            needs all links; repeats after up to 1024 rounds",
    paper: "De Vos et al. 2023, Epidemic Learning (EL-Oracle)",
    number: Some(("peers", 2)),
    remedy: |nodes| format!("complete:{nodes}"),
    rounds,
    is_random: true,
    ..Recipe::BLANK
};

fn rounds(topology: &Topology, peers: u64, seed: u64) -> Result<Vec<Mix>, String> {
    let nodes = topology.nodes();
    let Some(peers) = usize::try_from(peers).ok().filter(|&s| s > 0 && s < nodes) else {
        return Err(format!(
            "expected a number of peers from 1 to {}, the other nodes of `{}`",
            nodes - 1,
            topology.name()
        ));
    };
    if nodes % 2 == 1 && peers % 2 == 1 {
        let (less, more) = (peers - 1, peers + 1);
        return Err(format!(
            "{nodes} nodes cannot all have {peers} peers, both are odd: use epidemic:{}",
            if less > 0 { less } else { more }
        ));
    }
    let period = (ROOM / (nodes * (peers + 1))).clamp(SHORTEST, PERIOD);
    let stream = Stream::new(seed, Purpose::Rule).with(nodes as u64).with(peers as u64);
    let weight = 1.0 / (peers as f64 + 1.0);
    let mut met = Vec::new();
    let mut rounds = Vec::with_capacity(period);
    for t in 0..period as u64 {
        let mut attempts = (0..ATTEMPTS).map(|k| stream.with(t).with(k).sequence());
        let Some(rows) =
            attempts.find_map(|mut random| family::draw_regular(nodes, peers, &mut random))
        else {
            return Err("no regular graph was found: use another seed".into());
        };
        let mut entries = Vec::with_capacity(nodes * peers);
        for (i, row) in rows.iter().enumerate() {
            let i = NodeId::from(i);
            entries.extend(row.iter().map(|&j| (i, NodeId(j), weight)));
            // The first rounds nearly always connect all nodes.
            if t < SHORTEST as u64 {
                met.extend(row.iter().filter(|&&j| i.0 < j).map(|&j| (i.0, j)));
            }
        }
        rounds.push(Mix::new(nodes, entries));
    }
    met.sort_unstable();
    met.dedup();
    match Graph::new(nodes, met).map_err(|error| error.to_string())?.unreached() {
        None => Ok(rounds),
        Some(node) => {
            let name = &topology.node(node).name;
            Err(format!("in {SHORTEST} rounds, {name} is cut off: use more peers"))
        }
    }
}
