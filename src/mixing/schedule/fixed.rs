//! No schedule: the topology's own W in every round.

use super::{Mix, Rate, Recipe, STATIC};
use crate::{mixing::Topology, units::NodeId};

/// `static`: every node exchanges with all its neighbours in every round.
#[derive(Debug)]
pub(super) struct Static;

impl Recipe for Static {
    fn name(&self) -> &'static str {
        STATIC
    }

    fn about(&self) -> &'static str {
        "every node exchanges with all neighbours in every round, with the topology's weights (the \
         default)"
    }

    fn paper(&self) -> &'static str {
        ""
    }

    fn remedy(&self, _nodes: usize) -> String {
        "any topology".into()
    }

    fn rounds(&self, topology: &Topology, _number: u64, _seed: u64) -> Result<Vec<Mix>, String> {
        let row = |i: usize| {
            let i = NodeId::from(i);
            let weights = topology.matrix().neighbour_weights(i);
            topology.neighbours(i).iter().zip(weights).map(move |(&j, &w)| (i, j, w))
        };
        Ok(vec![Mix::new(topology.nodes(), (0..topology.nodes()).flat_map(row).collect())])
    }

    fn rate(&self, topology: &Topology) -> Option<Rate> {
        let spectrum = topology.spectrum();
        Some(Rate {
            rho: spectrum.rho,
            gap: spectrum.gap,
            mixing_time: spectrum.mixing_time(),
            counted: true,
        })
    }
}
