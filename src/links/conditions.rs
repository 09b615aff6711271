//! The properties of a virtual network and its machines.

use std::collections::BTreeMap;

use super::{channel::LinkModel, compute::ComputeModel};
use crate::{
    rng::{Purpose, Stream},
    units::{NodeId, Round},
};

/// Links, uplinks and machines of a simulation or prediction.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The run's seed: jitter, loss and varying rates are drawn from it.
    pub seed: u64,
    /// Links that differ from the rest, lower node first.
    pub links: BTreeMap<(NodeId, NodeId), LinkModel>,
    /// The model of all links that are not in `links`.
    pub rest: LinkModel,
    /// Whether a node's links share one uplink.
    pub shared_uplink: bool,
    /// How long a node computes a gradient.
    pub compute: ComputeModel,
}

impl Conditions {
    /// Links without latency or limit, gradients that take no time.
    pub fn ideal() -> Conditions {
        Conditions {
            seed: 0,
            links: BTreeMap::new(),
            rest: LinkModel::IDEAL,
            shared_uplink: false,
            compute: ComputeModel::NONE,
        }
    }

    /// The conditions of some of the nodes, which are numbered again in this order.
    #[must_use]
    pub(crate) fn restricted(&self, members: &[NodeId]) -> Conditions {
        let place = |node: NodeId| members.iter().position(|&member| member == node);
        let link = |(&(a, b), model): (&(NodeId, NodeId), &LinkModel)| {
            let (a, b) = (NodeId::from(place(a)?), NodeId::from(place(b)?));
            Some(((a.min(b), a.max(b)), *model))
        };
        Conditions { links: self.links.iter().filter_map(link).collect(), ..self.clone() }
    }

    /// The model of the link between two nodes.
    pub fn link(&self, a: NodeId, b: NodeId) -> &LinkModel {
        self.links.get(&(a.min(b), a.max(b))).unwrap_or(&self.rest)
    }

    /// The random stream of one direction of a link.
    pub fn dice(&self, from: NodeId, to: NodeId) -> Stream {
        Stream::new(self.seed, Purpose::Link).node(from).node(to)
    }

    /// The nanoseconds that a node needs for the gradients of a round.
    pub(crate) fn compute_time(&self, nodes: usize, node: NodeId, round: Round) -> u64 {
        let dice = Stream::new(self.seed, Purpose::Link).with(u64::MAX);
        self.compute.time(dice, nodes, node, round)
    }
}
