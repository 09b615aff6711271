//! The simple base-2 graph: exact agreement after finitely many rounds for any number of nodes,
//! with one peer at a time.
//!
//! Takezawa, Sato, Bao, Niwa, Yamada: Beyond Exponential Graph: Communication-Efficient Topologies
//! for Decentralized Learning via Finite-time Convergence (2023), the Simple Base-(k+1) Graph with
//! k = 1.
//!
//! ```text
//! n = |V_1| + ... + |V_L|, descending powers of two
//! 1. hypercube rounds in every group at once: each group agrees
//! 2. r = 1 ... L - 1: every node of V_(r+1) ... V_L pairs with one of V_r, weight |V_r| / (|V_r| + ... + |V_L|);
//!    that brings the mean of V_r to the mean of all, and so the mean of the rest
//! 3. hypercube rounds in V_r, while the rest continues with r + 1: each node of V_r has the mean of
//!    all
//! ```
//! The distance of all pairs is a power of two, so the exponential graph has their links. log2 n
//! rounds if n is a power of two, else 2 floor(log2 n) + 1. Symmetric matrices, at most one peer
//! per round; they do not commute, so their order counts. DIFFERENCE to the paper's Base-2 Graph
//! proper, which for even n first splits off the powers of two that divide n: that is shorter for
//! some even n; this one has the same length for all n between two powers of two.

use super::{Mix, Recipe};
use crate::mixing::Topology;

/// `base-2`: pairs, chosen so that a period ends in exact agreement.
pub(super) const BASE_2: Recipe = Recipe {
    name: "base-2",
    about: "pairs, with weights such that all agree exactly after at most 2 log2 n + 1 rounds, for \
            any n",
    paper: "Takezawa et al. 2023, Beyond Exponential Graph: Communication-Efficient Topologies for \
            Decentralized Learning via Finite-time Convergence",
    remedy: |nodes| format!("exponential:{nodes} or complete:{nodes}"),
    rounds,
    ..Recipe::BLANK
};

fn rounds(topology: &Topology, _number: u64, _seed: u64) -> Result<Vec<Mix>, String> {
    let n = topology.nodes();
    Ok(pairs(n as u32).iter().map(|pairs| Mix::pairs(n, pairs)).collect())
}

/// The pairs of each round, with their weights.
fn pairs(n: u32) -> Vec<Vec<(u32, u32, f64)>> {
    let powers: Vec<u32> = (0..u32::BITS).rev().filter(|power| n >> power & 1 == 1).collect();
    let first = powers[0];
    let length = if powers.len() == 1 { first } else { 2 * first + 1 };
    let mut rounds = vec![Vec::new(); length.max(1) as usize];
    let mut start = 0;
    for (r, &power) in (0..).zip(&powers) {
        let size = 1 << power;
        let cube = |rounds: &mut Vec<Vec<_>>, from: u32| {
            for k in 0..power {
                let lower = (0..size).filter(|v| v >> k & 1 == 0);
                rounds[(from + k) as usize]
                    .extend(lower.map(|v| (start + v, start + v + (1 << k), 0.5)));
            }
        };
        cube(&mut rounds, 0);
        let rest = n - start - size;
        if rest > 0 {
            let weight = f64::from(size) / f64::from(size + rest);
            rounds[(first + r) as usize]
                .extend((0..rest).map(|m| (start + m, start + size + m, weight)));
            cube(&mut rounds, first + r + 1);
        }
        start += size;
    }
    rounds
}
