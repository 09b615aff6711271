//! The same came down the spanning tree to all: checked before the first round, and before any
//! result is written.
//!
//! * Upon an initial model: this node signs what identifies it. It begins once all nodes have
//!   signed the same. Otherwise two honest nodes could begin at different models, and each would
//!   find that its copy of the other one differs.
//! * Upon this node's record of the run: it signs it, with what identifies the sums and the mean
//!   that it got. A record passes through other nodes, which can leave it out only.
//! * Upon the records of all nodes: each must have the signature of its node. Otherwise the
//!   neighbour on the way to that node has changed it.
//! * Upon something else that a neighbour in the tree has signed: it is at fault. If one further
//!   away has, this node waits for the neighbour on the way to it, which finds who is at fault or
//!   is late.
//!
//! A root that is hostile itself can form another plain mean, as any node can by its own model. It
//! cannot give different ones to different nodes without signing one of them. Sums, and a mean that
//! withstands wrong models, are formed by each node of what all have signed (`gossip::tree`).

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::part::Part;
use crate::{
    gossip::{Failure, tree::Signer},
    mixing::SpanningTree,
    units::NodeId,
};

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

/// A record of the run, and what its node says with it.
#[derive(Serialize, Deserialize)]
struct Sealed {
    record: Vec<u8>,
    given: Given,
    signature: Vec<u8>,
}

/// Signs the record of this node, and checks those of all.
pub(crate) struct Seals {
    signer: Arc<dyn Signer>,
    pub given: Given,
    /// This node's record, as it has sent it.
    own: Vec<u8>,
}

impl Seals {
    /// `merged` is the setup record of the checkpoint from which this node continues, if any.
    pub(crate) fn new(signer: Arc<dyn Signer>, merged: &[u8]) -> Seals {
        let given = Given { setup: Given::setup(merged), mean: 0 };
        Seals { signer, given, own: Vec::new() }
    }

    /// This node's record with its signature.
    pub(crate) fn seal(&mut self, record: Vec<u8>) -> Vec<u8> {
        self.own = seal(&*self.signer, self.given, record);
        self.own.clone()
    }

    /// The records of all nodes without their signatures, and the nodes to which other sums or
    /// another mean came.
    ///
    /// # Errors
    /// If one is not what its node has signed, or a neighbour in the tree got something else.
    pub(crate) fn open(
        &self,
        part: &Part<'_>,
        records: &[Vec<u8>],
    ) -> Result<(Vec<Vec<u8>>, Vec<NodeId>), Failure> {
        let tree = part.topology().spanning_tree();
        let mut opened = Vec::with_capacity(records.len());
        for (node, bytes) in records.iter().enumerate() {
            let node = NodeId::from(node);
            let changed = || {
                let name = part.name(node);
                let reason = format!("the record of node {name} is not what that node has signed");
                Failure::Peer { peer: toward(&tree, part.id, node), reason }
            };
            if node == part.id && *bytes != self.own {
                return Err(changed());
            }
            let sealed: Result<(Sealed, usize), _> =
                bincode::serde::decode_from_slice(bytes, bincode::config::standard());
            let (sealed, length) = sealed.map_err(|_| changed())?;
            let statement = statement(sealed.given, &sealed.record);
            if length != bytes.len() || !self.signer.verify(node, &statement, &sealed.signature) {
                return Err(changed());
            }
            opened.push((sealed.given, sealed.record));
        }
        let given = |node: NodeId| Some(opened[node.index()].0);
        let what = |theirs: Given| match theirs.setup == self.given.setup {
            true => "mean",
            false => "sums over all nodes' rows",
        };
        let unequal = unequal(part, given, self.given, what)?;
        Ok((opened.into_iter().map(|(_, record)| record).collect(), unequal))
    }
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

/// The bytes that the signature of a node covers, besides its membership and its attempt.
fn statement(given: Given, record: &[u8]) -> Vec<u8> {
    let statement = ("gradvine record", given, record);
    bincode::serde::encode_to_vec(statement, bincode::config::standard())
        .expect("a record serialises")
}

/// The record of a node, with its signature.
pub(crate) fn seal(signer: &dyn Signer, given: Given, record: Vec<u8>) -> Vec<u8> {
    let signature = signer.sign(&statement(given, &record));
    let sealed = Sealed { record, given, signature };
    bincode::serde::encode_to_vec(sealed, bincode::config::standard()).expect("a record serialises")
}

/// The neighbours on the way to these nodes in the tree.
pub(crate) fn ways(part: &Part<'_>, nodes: &[NodeId]) -> BTreeSet<NodeId> {
    let tree = part.topology().spanning_tree();
    nodes.iter().map(|node| toward(&tree, part.id, *node)).collect()
}

/// The neighbour on the way to a node in the tree; of itself, the one from which all came.
fn toward(tree: &SpanningTree, me: NodeId, node: NodeId) -> NodeId {
    let mut children = tree.children(me).iter();
    let below = children.find(|child| tree.is_below(node, **child)).copied();
    below.or_else(|| tree.parent(me)).unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cluster::members::keys::{Keys, Named},
        drive::Membership,
        experiment::Experiment,
        run::{Design, Whole},
    };

    /// The key of a node.
    struct Signs(NodeId);

    impl Signer for Signs {
        fn sign(&self, statement: &[u8]) -> Vec<u8> {
            Named(self.0).sign(statement)
        }

        fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
            Named(self.0).verify(node, statement, signature)
        }
    }

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

    fn seals(node: u32, mean: u64) -> Seals {
        let mut seals = Seals::new(Arc::new(Signs(NodeId(node))), b"sums");
        seals.given.mean = mean;
        seals
    }

    /// The records of nodes that got these means.
    fn sealed(means: [u64; 4]) -> (Vec<Seals>, Vec<Vec<u8>>) {
        let mut all: Vec<Seals> = (0..4).map(|node| seals(node, means[node as usize])).collect();
        let seal = |(node, seals): (usize, &mut Seals)| seals.seal(vec![node as u8]);
        let records = all.iter_mut().enumerate().map(seal).collect();
        (all, records)
    }

    fn blamed(design: &Design, (seals, records): &(Vec<Seals>, Vec<Vec<u8>>), me: u32) -> String {
        match seals[me as usize].open(&part(design, me), records) {
            Ok((records, unequal)) if unequal.is_empty() => format!("{records:?}"),
            Ok((_, unequal)) => {
                let ways = ways(&part(design, me), &unequal);
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
        let all = sealed([5; 4]);
        for me in 0..4 {
            assert_eq!(blamed(&whole.design, &all, me), "[[0], [1], [2], [3]]");
        }
    }

    #[test]
    fn one_that_changes_a_record_is_named_by_those_to_whom_it_gave_it() {
        let whole = design();
        let mut all = sealed([5; 4]);
        // Node 1 gives the nodes below it another record of node 0, and one of node 3 to node 0.
        all.1[0] = sealed([6; 4]).1[1].clone();
        let text = "1: the record of node 0 is not what that node has signed";
        assert_eq!(blamed(&whole.design, &all, 2), text);
        let mut all = sealed([5; 4]);
        all.1[3].push(0);
        let text = "1: the record of node 3 is not what that node has signed";
        assert_eq!(blamed(&whole.design, &all, 0), text);
        // A node finds its own record, to the bit.
        let mut all = sealed([5; 4]);
        all.1[2] = sealed([6; 4]).1[2].clone();
        let text = "1: the record of node 2 is not what that node has signed";
        assert_eq!(blamed(&whole.design, &all, 2), text);
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
        let [truth, lie] = [[5, 5, 6, 6], [5, 6, 6, 6]].map(sealed);
        assert_eq!(blamed(&whole.design, &truth, 2), at_fault(1, 2));
        assert_eq!(blamed(&whole.design, &lie, 0), at_fault(1, 0));
        // The others have no proof. They wait for the neighbour on the way.
        assert_eq!(blamed(&whole.design, &truth, 0), "waits for 1");
        assert_eq!(blamed(&whole.design, &truth, 3), "waits for 2");
        assert_eq!(blamed(&whole.design, &lie, 2), "waits for 1");
        assert_eq!(blamed(&whole.design, &lie, 3), "waits for 2");
    }
}
