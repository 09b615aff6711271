//! A part of a topology: some of its nodes, and some of their links.

use super::{
    Topology, TopologyError, Weights,
    file::{Draft, DraftLink},
};
use crate::{config::ConfigError, units::NodeId};

impl Topology {
    /// The topology of some of its nodes, given in ascending order and numbered again, without the
    /// links in `cut`. Metropolis weights are computed again; of other weights both ends of a link
    /// that is left out keep its weight for themselves. So W stays symmetric and doubly stochastic.
    ///
    /// # Errors
    /// If there are no such nodes, they are not connected, or W does not mix.
    pub fn restricted(
        &self,
        members: &[NodeId],
        cut: &[(NodeId, NodeId)],
    ) -> Result<Topology, TopologyError> {
        let exist = members.last().is_some_and(|last| last.index() < self.nodes());
        if !exist || !members.is_sorted_by(|a, b| a < b) {
            let problem = format!(
                "expected numbers of nodes in ascending order, below {}, of one node or more",
                self.nodes()
            );
            return Err(ConfigError::new("members", format!("{members:?}"), problem).into());
        }
        let place = |node: NodeId| members.iter().position(|&member| member == node);
        let is_cut = |(a, b)| cut.contains(&(a, b)) || cut.contains(&(b, a));
        let again = matches!(self.weights(), Weights::Metropolis | Weights::LazyMetropolis);
        let link = |(a, b): (NodeId, NodeId)| {
            let (first, second, link) = (place(a)?, place(b)?, self.link(a, b)?);
            (!is_cut((a, b))).then_some(DraftLink {
                a: first as u32,
                b: second as u32,
                line: None,
                weight: (!again).then_some(link.weight),
                latency_ms: link.latency_ms,
                bandwidth_mbps: link.bandwidth_mbps,
            })
        };
        Topology::build(Draft {
            name: Some(self.name().to_string()),
            weights: Some(if again { self.weights() } else { Weights::Given }),
            allow_negative: self.allow_negative(),
            nodes: members.iter().map(|&member| self.node(member).clone()).collect(),
            links: self.edges().filter_map(link).collect(),
            ..Draft::default()
        })
    }
}
