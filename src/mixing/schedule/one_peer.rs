//! The one-peer exponential graph.
//!
//! Ying, Yuan, Chen, Hu, Pan, Yin: Exponential Graph is Provably Efficient for Decentralized Deep
//! Training (2021), equation (7) and Lemma 1; first used by Assran et al. 2019.
//!
//! ```text
//! W_t = (I + P^(2^k)) / 2,   k = t mod ceil(log2 n),   P the cyclic shift:
//! node i sends to i + 2^k mod n and receives from i - 2^k mod n
//! ```
//! Directed and doubly stochastic. The matrices commute; a period's product is J if and only if n
//! is a power of two.

use super::{Mix, Recipe};
use crate::{mixing::Topology, units::NodeId};

/// `one-peer-exponential`: round k sends to the node 2^k further.
pub(super) const ONE_PEER_EXPONENTIAL: Recipe = Recipe {
    name: "one-peer-exponential",
    about: "round k: node i sends to i + 2^k mod n alone; exact agreement after log2 n rounds \
            where n is a power of two",
    paper: "Ying et al. 2021, Exponential Graph is Provably Efficient for Decentralized Deep \
            Training, equation (7)",
    remedy: |nodes| format!("exponential:{nodes} or complete:{nodes}"),
    rounds,
    ..Recipe::BLANK
};

fn rounds(topology: &Topology, _number: u64, _seed: u64) -> Result<Vec<Mix>, String> {
    let n = topology.nodes();
    let hops = (0..).map(|k| 1usize << k).take_while(|&hop| hop < n);
    let mix = |hop: usize| {
        Mix::new(
            n,
            (0..n).map(|i| (NodeId::from(i), NodeId::from((i + n - hop) % n), 0.5)).collect(),
        )
    };
    let rounds: Vec<Mix> = hops.map(mix).collect();
    Ok(if rounds.is_empty() { vec![Mix::new(n, Vec::new())] } else { rounds })
}
