//! A membership as one node sees it: its members, the links between them, their numbers.

use std::sync::Arc;

use crate::{
    config::ConfigError,
    drive::{Membership, RunError},
    gossip::{
        NodeConfig,
        tree::{Readers, Setup},
    },
    mixing::Topology,
    run::Design,
    units::NodeId,
};

/// A membership as one node sees it.
pub(crate) struct Part<'a> {
    /// The design of the run.
    pub whole: &'a Design,
    /// The design of the members, if they are not all nodes.
    restricted: Option<Design>,
    pub membership: Membership,
    /// This node's number among the members.
    pub id: NodeId,
    /// The numbers in the topology of the run: of the members, then of the other neighbours.
    pub numbers: Vec<NodeId>,
    /// This node's neighbours in the topology of the run: by their number there, that among
    /// `numbers`, and whether this membership does not use the link.
    pub neighbours: Vec<Adjacent>,
}

/// A neighbour in the topology of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adjacent {
    /// Its number in the topology of the run.
    pub number: NodeId,
    /// Its number among [`Part::numbers`].
    pub node: NodeId,
    /// Whether the membership does not use the link.
    pub unused: bool,
}

impl<'a> Part<'a> {
    /// The membership as `node` sees it, by its number in the topology of the run.
    ///
    /// # Errors
    /// If the run cannot continue with these members, or the node is not a member.
    pub(crate) fn new(
        whole: &'a Design,
        node: NodeId,
        membership: Membership,
    ) -> Result<Part<'a>, RunError> {
        let is_whole = membership.is_whole(whole.topology.nodes());
        let Membership { members, cut, .. } = &membership;
        let restricted = (!is_whole).then(|| whole.restricted(members, cut)).transpose();
        let restricted = restricted.map_err(|error| {
            let nodes = membership.absent(whole.topology.nodes());
            let text = format!("the run cannot continue without the missing nodes: {error}");
            RunError::Deadline { nodes, text }
        })?;
        let Some(id) = membership.place(node) else {
            let problem = "names members without this node".to_string();
            return Err(RunError::Setup(ConfigError::at("membership", problem)));
        };
        let mut numbers = members.clone();
        let neighbours = whole.topology.neighbours(node).iter().map(|&number| {
            let link = (node.min(number), node.max(number));
            let (place, unused) = match membership.place(number) {
                Some(place) => (place, cut.contains(&link)),
                None => {
                    numbers.push(number);
                    (NodeId::from(numbers.len() - 1), true)
                }
            };
            Adjacent { number, node: place, unused }
        });
        let neighbours = neighbours.collect();
        Ok(Part { whole, restricted, membership, id, numbers, neighbours })
    }

    pub(crate) fn design(&self) -> &Design {
        self.restricted.as_ref().unwrap_or(self.whole)
    }

    /// The links between the members.
    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.design().topology
    }

    /// The neighbours, by their numbers in the topology of the run, whose links are not used.
    pub(crate) fn unused(&self) -> impl Iterator<Item = NodeId> {
        self.neighbours.iter().filter(|neighbour| neighbour.unused).map(|unused| unused.number)
    }

    pub(crate) fn config(&self, setup: Option<Setup>) -> NodeConfig {
        self.design().node(self.id, setup, Readers::Everyone)
    }

    /// A node's number in the topology of the run.
    pub(crate) fn number(&self, node: NodeId) -> NodeId {
        self.numbers.get(node.index()).copied().unwrap_or(node)
    }

    /// The same of several nodes.
    pub(crate) fn all_numbers(&self, nodes: Vec<NodeId>) -> Vec<NodeId> {
        nodes.into_iter().map(|node| self.number(node)).collect()
    }

    /// A node's name, also of a neighbour that is not a member.
    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.whole.topology.node(self.number(node)).name
    }

    pub(crate) fn names(&self, nodes: &[NodeId]) -> String {
        nodes.iter().map(|node| self.name(*node)).collect::<Vec<_>>().join(", ")
    }

    /// Why this program ends: a neighbour says that another one has its key.
    pub(crate) fn rival(&self, peer: NodeId, text: &str) -> RunError {
        let problem = format!(
            "{text} (node {} says so); stop one of them, or give this one a key and a node of its \
             own",
            self.name(peer)
        );
        RunError::Setup(ConfigError::at("node.key", problem))
    }

    /// Whether the membership uses a link to this neighbour.
    pub(crate) fn is_member_neighbour(&self, node: NodeId) -> bool {
        self.topology().neighbours(self.id).contains(&node)
    }

    /// The error, with the numbers of the nodes in the topology of the run.
    pub(crate) fn blame(&self, error: RunError) -> RunError {
        match error {
            RunError::Failed { node, failure } => RunError::Failed {
                node: self.number(node),
                failure: failure.renumbered(|node| self.number(node)),
            },
            RunError::Deadline { nodes, text } => {
                RunError::Deadline { nodes: self.all_numbers(nodes), text }
            }
            other => other,
        }
    }
}
