//! The same came down the spanning tree to all: checked before the first round, and before any
//! result is written.
//!
//! * Upon an initial model: this node signs what identifies it. It begins once all nodes have
//!   signed the same. Otherwise two honest nodes could begin at different models, and each would
//!   find that its copy of the other one differs.
//! * Upon this node's record of the run: it says with it what identifies the sums and the mean that
//!   it got, and signs both. Each node checks the records of others before it passes them on.
//! * Upon something else that a neighbour in the tree has signed: it is at fault. If one further
//!   away has, this node waits for the neighbour on the way to it, which finds who is at fault or
//!   is late.
//!
//! A root that is hostile itself can form another plain mean, as any node can by its own model. It
//! cannot give different ones to different nodes without signing one of them. Sums, and a mean that
//! withstands wrong models, are formed by each node of what all have signed (`gossip::tree`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::part::Part;
use crate::{gossip::Failure, mixing::SpanningTree, units::NodeId};

/// What identifies the merged setup record and the mean that a node got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Given {
    pub setup: u64,
    pub mean: u64,
}

impl Given {
    /// What identifies a merged setup record.
    pub(crate) fn setup(merged: &[u8]) -> u64 {
        let hash = Sha256::digest(merged);
        u64::from_le_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
    }
}

/// The record of a node, and what came to it over the tree.
pub(crate) fn seal(given: Given, record: Vec<u8>) -> Vec<u8> {
    bincode::serde::encode_to_vec((given, record), bincode::config::standard())
        .expect("a record serialises")
}

/// The records of all nodes, which they have signed with what came to them, and the nodes to which
/// other sums or another mean came than to this one.
///
/// # Errors
/// If one of those is a neighbour in the tree.
pub(crate) fn open(
    part: &Part<'_>,
    own: Given,
    sealed: &[Vec<u8>],
) -> Result<(Vec<Vec<u8>>, Vec<NodeId>), Failure> {
    let mut given = Vec::with_capacity(sealed.len());
    let mut records = Vec::with_capacity(sealed.len());
    for bytes in sealed {
        let opened = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
        let opened: Option<((Given, Vec<u8>), usize)> = opened.ok();
        let (theirs, record) = opened.map(|(opened, _)| opened).unzip();
        given.push(theirs);
        records.push(record.unwrap_or_default());
    }
    let what = |theirs: Given| match theirs.setup == own.setup {
        true => "mean",
        false => "sum over all nodes' rows",
    };
    let unequal = unequal(part, |node| given[node.index()], own, what)?;
    Ok((records, unequal))
}

/// The nodes that have not signed that the same came to them over the tree as to this one.
///
/// # Errors
/// If a neighbour in the tree has signed that something else came to it. One of the two ends of
/// that link says something false. So only its two ends know which, and the honest one refuses the
/// other.
pub(crate) fn unequal<T: Copy + PartialEq>(
    part: &Part<'_>,
    signed: impl Fn(NodeId) -> Option<T>,
    own: T,
    what: impl Fn(T) -> &'static str,
) -> Result<Vec<NodeId>, Failure> {
    let tree = part.topology().spanning_tree();
    let near = tree.children(part.id).iter().copied().chain(tree.parent(part.id));
    for peer in near {
        if let Some(theirs) = signed(peer).filter(|theirs| *theirs != own) {
            let (name, what) = (part.name(part.id), what(theirs));
            let reason = format!(
                "it has signed another {what} than the one that went over its link with node {name}"
            );
            return Err(Failure::Peer { peer, reason });
        }
    }
    let all = (0..part.topology().nodes()).map(NodeId::from);
    Ok(all.filter(|node| *node != part.id && signed(*node) != Some(own)).collect())
}

/// The neighbours on the way to these nodes in the tree.
pub(crate) fn ways(part: &Part<'_>, nodes: &[NodeId]) -> BTreeSet<NodeId> {
    let tree = part.topology().spanning_tree();
    nodes.iter().map(|node| toward(&tree, part.id, *node)).collect()
}

/// The neighbour on the way to another node in the tree.
fn toward(tree: &SpanningTree, me: NodeId, node: NodeId) -> NodeId {
    let mut children = tree.children(me).iter();
    let below = children.find(|child| tree.is_below(node, **child)).copied();
    below.or_else(|| tree.parent(me)).unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        drive::Membership,
        experiment::Experiment,
        run::{Design, Whole},
    };

    /// The path 0 - 1 - 2 - 3, whose root is 0.
    fn design() -> Whole {
        let settings = [
            "topology.file=path:4",
            "data.source=synthetic",
            "model.kind=least-squares",
            "rule.kind=d-psgd",
            "compressor.kind=identity",
        ];
        let settings = settings.map(String::from);
        Whole::new(Experiment::parse("", &settings).unwrap()).unwrap()
    }

    fn part(design: &Design, node: u32) -> Part<'_> {
        Part::new(design, NodeId(node), Membership::all(4)).unwrap()
    }

    /// What node `me` finds if nodes have signed that they got these means.
    fn found(design: &Design, means: [u64; 4], me: u32) -> String {
        let given = means.map(|mean| Given { setup: 7, mean });
        let records: Vec<Vec<u8>> =
            (0..4).map(|node| seal(given[node], vec![node as u8])).collect();
        let part = part(design, me);
        match open(&part, given[me as usize], &records) {
            Ok((records, unequal)) if unequal.is_empty() => format!("{records:?}"),
            Ok((_, unequal)) => {
                let ways = ways(&part, &unequal);
                let ways: Vec<String> = ways.iter().map(ToString::to_string).collect();
                format!("waits for {}", ways.join(", "))
            }
            Err(Failure::Peer { peer, reason }) => format!("{peer}: {reason}"),
            Err(other) => format!("{other:?}"),
        }
    }

    #[test]
    fn records_come_back_as_they_were_signed() {
        let whole = design();
        for me in 0..4 {
            assert_eq!(found(&whole.design, [5; 4], me), "[[0], [1], [2], [3]]");
        }
    }

    #[test]
    fn one_that_gives_another_mean_is_named() {
        let whole = design();
        let at_fault = |peer: u32, me: u32| {
            format!(
                "{peer}: it has signed another mean than the one that went over its link with \
                 node {me}"
            )
        };
        // Node 1 gives another mean to nodes 2 and 3. It signs what it got, or what it gives.
        let (truth, lie) = ([5, 5, 6, 6], [5, 6, 6, 6]);
        assert_eq!(found(&whole.design, truth, 2), at_fault(1, 2));
        assert_eq!(found(&whole.design, lie, 0), at_fault(1, 0));
        // The others have no proof. They wait for the neighbour on the way.
        assert_eq!(found(&whole.design, truth, 0), "waits for 1");
        assert_eq!(found(&whole.design, truth, 3), "waits for 2");
        assert_eq!(found(&whole.design, lie, 2), "waits for 1");
        assert_eq!(found(&whole.design, lie, 3), "waits for 2");
    }
}
