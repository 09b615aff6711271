//! How long a gradient takes in virtual time.

use crate::{
    rng::Stream,
    units::{NodeId, Round},
};

/// A node's time for the gradients of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComputeModel {
    /// The mean, in nanoseconds; 0 for no time at all.
    pub mean: u64,
    /// The deviation of its logarithm from round to round; 0 for a constant.
    pub spread: f64,
    /// The share of nodes that are slow.
    pub stragglers: f64,
    /// The factor by which they are slower.
    pub factor: f64,
}

impl ComputeModel {
    /// Gradients that take no time.
    pub const NONE: ComputeModel =
        ComputeModel { mean: 0, spread: 0.0, stragglers: 0.0, factor: 1.0 };

    /// The nanoseconds of a node's gradients in a round. The stragglers are the last nodes: this
    /// share of them, rounded up.
    pub fn time(&self, dice: Stream, nodes: usize, node: NodeId, round: Round) -> u64 {
        let mut time = self.mean as f64;
        if self.spread > 0.0 {
            let normal = dice.node(node).round(round).sequence().normal();
            time *= libm::exp(self.spread * normal - 0.5 * self.spread * self.spread);
        }
        if node.index() >= nodes - self.slow(nodes) {
            time *= self.factor;
        }
        time as u64
    }

    /// The nanoseconds until the update is final from `start` on, out of `time` for the whole: the
    /// forward pass takes a third, then the backward pass goes over the parameters at a constant
    /// pace.
    pub(crate) fn until_part(time: u64, parameters: usize, start: usize) -> u64 {
        let back = (parameters - start) as f64 / parameters as f64;
        (time as f64 * (1.0 + 2.0 * back) / 3.0) as u64
    }

    /// The number of slow nodes.
    pub fn slow(&self, nodes: usize) -> usize {
        (libm::ceil(self.stragglers * nodes as f64) as usize).min(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn times_have_their_mean_and_stragglers_their_factor() {
        let dice = Stream::new(1, Purpose::Link);
        let model = ComputeModel { mean: 100_000_000, spread: 0.3, stragglers: 0.2, factor: 4.0 };
        let mean = |node| {
            (0..2000)
                .map(|round| model.time(dice, 8, NodeId(node), Round(round)) as f64)
                .sum::<f64>()
                / 2e11
        };
        assert!((mean(0) - 1.0).abs() < 0.05 && (mean(5) - 1.0).abs() < 0.05, "{}", mean(0));
        assert!((mean(6) - 4.0).abs() < 0.2 && (mean(7) - 4.0).abs() < 0.2, "{}", mean(7));
        assert_eq!(ComputeModel::NONE.time(dice, 8, NodeId(7), Round(3)), 0);
    }
}
