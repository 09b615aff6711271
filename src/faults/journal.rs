//! What has happened in a run, as far as the checks need to know.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::schedule::{Fault, Kind};
use crate::{
    drive::Membership,
    units::{NodeId, Time},
};

/// A checkpoint: its membership and its rounds.
pub(super) type Id = (u64, u64);

/// What has happened so far, as far as the checks need to know.
#[derive(Default)]
pub(super) struct Journal {
    /// The memberships that nodes have recorded.
    pub adopted: BTreeMap<u64, Membership>,
    /// The nodes on whose disks a checkpoint has been.
    pub durable: BTreeMap<Id, BTreeSet<NodeId>>,
    /// The nodes that have had results, by their mean.
    pub results: BTreeMap<u64, BTreeSet<NodeId>>,
    /// The newest checkpoint that all its members have had.
    pub common: Id,
    /// By node: how often it has chosen since then, where it has begun last, and when that was or
    /// it has written a checkpoint since.
    pub choices: BTreeMap<NodeId, u32>,
    pub begun: BTreeMap<NodeId, (u64, Time)>,
    /// Whether the rounds have begun at any node but the hostile one.
    pub has_begun: bool,
    /// Who refuses whom until when: each is checked once, as the cause may be gone later.
    pub bans: BTreeSet<(NodeId, NodeId, Instant)>,
    /// Nodes that ordinary faults concern: others may have to wait for them.
    pub disturbed: BTreeSet<NodeId>,
}

impl Journal {
    /// For a run with these faults.
    pub(super) fn new(nodes: usize, faults: &[Fault]) -> Journal {
        let concerned = |fault: &Fault| match &fault.kind {
            Kind::Kill(nodes, _)
            | Kind::Hang(nodes)
            | Kind::Partition(nodes)
            | Kind::Slow(nodes, _)
            | Kind::DiskFull(nodes)
            | Kind::DiskSlow(nodes, _) => nodes.clone(),
            Kind::Leave(node) => vec![*node],
            Kind::Cut(links) | Kind::OneWay(links) | Kind::Reset(links) => {
                links.iter().flat_map(|(a, b)| [*a, *b]).collect()
            }
            Kind::Members(_) | Kind::Stop(_) => Vec::new(),
        };
        Journal {
            adopted: BTreeMap::from([(0, Membership::all(nodes))]),
            disturbed: faults.iter().flat_map(concerned).collect(),
            ..Journal::default()
        }
    }
}
