//! Whose a checkpoint is: a file that was copied from elsewhere is not taken for the node's own.

use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{digest, run::Design, units::NodeId};

/// The run and the node that write a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    run: String,
    seed: u64,
    /// The node's number in the topology of the run.
    node: u32,
    /// Its name there.
    name: String,
    /// A hash of the canonical texts of topology, experiment and model.
    settings: String,
    /// Drawn when the run first begins in a folder: a run that starts from the beginning there has
    /// another one.
    pub(super) incarnation: String,
}

impl Owner {
    /// A node of a run whose canonical texts are these, as if it began in its folder now.
    pub(crate) fn new(design: &Design, node: NodeId, sections: &[String; 3]) -> Owner {
        let name = design.topology.node(node).name.clone();
        let run = &design.experiment.run;
        Owner::of((&run.id, run.seed), (node, name), sections)
    }

    /// The same from `run.id`, `run.seed`, and the number and the name of the node.
    pub(crate) fn of(
        (run, seed): (&str, u64),
        (node, name): (NodeId, String),
        sections: &[String; 3],
    ) -> Owner {
        let hash = sections.iter().fold(Sha256::new(), |hash, text| {
            hash.chain_update((text.len() as u64).to_le_bytes()).chain_update(text)
        });
        let settings = digest::hex(&hash.finalize()[..16]);
        // The standard library's only source of random numbers: two new hash keys.
        let incarnation = format!("{:016x}", RandomState::new().hash_one(0u8));
        Owner { run: run.into(), seed, node: node.0, name, settings, incarnation }
    }

    /// The same in another incarnation.
    pub(super) fn in_incarnation(mut self, incarnation: &str) -> Owner {
        self.incarnation = incarnation.into();
        self
    }

    /// The name of the node.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether both are the same node with the same settings, in whatever incarnation.
    pub(super) fn is_same_place(&self, other: &Owner) -> bool {
        let Owner { run, seed, node, name, settings, incarnation: _ } = other;
        (&self.run, &self.seed, &self.node, &self.name, &self.settings)
            == (run, seed, node, name, settings)
    }

    /// What makes something of this owner unusable for another one, if anything does.
    pub(super) fn difference(&self, other: &Owner) -> Option<String> {
        if self.run != other.run {
            Some(format!("of the run \"{}\", and this one is \"{}\"", self.run, other.run))
        } else if (self.node, &self.name) != (other.node, &other.name) {
            Some(format!(
                "of node {} (number {}), and this is node {} (number {})",
                self.name, self.node, other.name, other.node
            ))
        } else if self.seed != other.seed {
            Some(format!("of a run with run.seed = {}, and this one has {}", self.seed, other.seed))
        } else if self.settings != other.settings {
            Some("of a run with another experiment, topology or model".into())
        } else if self.incarnation != other.incarnation {
            Some("of another start of this run: with --fresh, or on another machine".into())
        } else {
            None
        }
    }
}
