//! No schedule: the topology's own W in every round.

use super::{Mix, Rate, Recipe, STATIC};
use crate::{mixing::Topology, units::NodeId};

/// `static`: every node exchanges with all its neighbours in every round.
pub(super) const FIXED: Recipe = Recipe {
    name: STATIC,
    about: "every node exchanges with all neighbours in every round, with the topology's weights \
            (the default)",
    rounds,
    rate: |topology| {
        let spectrum = topology.spectrum();
        Some(Rate {
            rho: spectrum.rho,
            gap: spectrum.gap,
            mixing_time: spectrum.mixing_time(),
            counted: true,
        })
    },
    ..Recipe::BLANK
};

fn rounds(topology: &Topology, _number: u64, _seed: u64) -> Result<Vec<Mix>, String> {
    let row = |i: usize| {
        let i = NodeId::from(i);
        let weights = topology.matrix().neighbour_weights(i);
        topology.neighbours(i).iter().zip(weights).map(move |(&j, &w)| (i, j, w))
    };
    Ok(vec![Mix::new(topology.nodes(), (0..topology.nodes()).flat_map(row).collect())])
}
