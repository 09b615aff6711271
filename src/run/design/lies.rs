//! The nodes that lie in a simulation.

use std::collections::BTreeMap;

use super::resolved::Design;
use crate::{
    config::ConfigError,
    experiment::{LiarParams, Sends},
    gossip::Lie,
    units::NodeId,
};

/// The lies that `network.liars` asks for.
///
/// # Errors
/// If a name or a number is wrong.
pub(crate) fn of(design: &Design) -> Result<BTreeMap<NodeId, Lie>, ConfigError> {
    let mut lies = BTreeMap::new();
    for LiarParams { nodes, sends, by } in &design.experiment.network.liars {
        let single = *by as f32;
        if !single.is_finite() || (*sends == Sends::Random && single < 0.0) {
            let problem = "expected a finite number, of `random` one from 0";
            return Err(ConfigError::new("network.liars", format!("by = {by}"), problem));
        }
        let lie = match sends {
            Sends::Scaled => Lie::Scaled(single),
            Sends::Random => Lie::Random(single),
        };
        for name in nodes {
            let wrong = |problem: String| {
                Err(ConfigError::new("network.liars", format!("{name:?}"), problem))
            };
            let Some(node) = design.topology.find(name) else {
                return wrong(format!("`{}` has no node of this name", design.topology.name()));
            };
            if lies.insert(node, lie).is_some() {
                return wrong("a node has one way to lie, and this one is named twice".into());
            }
        }
    }
    Ok(lies)
}
