//! The Byzantine nodes of a simulation.

use std::collections::BTreeMap;

use super::resolved::Design;
use crate::{
    config::ConfigError,
    experiment::{ByzantineParams, Sends},
    gossip::Byzantine,
    units::NodeId,
};

/// What each node of `network.liars` sends.
///
/// # Errors
/// If a name or a number is wrong.
pub(crate) fn of(design: &Design) -> Result<BTreeMap<NodeId, Byzantine>, ConfigError> {
    let mut all = BTreeMap::new();
    for ByzantineParams { nodes, sends, by } in &design.experiment.network.liars {
        let single = *by as f32;
        if !single.is_finite() || (*sends == Sends::Random && single < 0.0) {
            let problem = "expected a finite number, and with sends = \"random\" one from 0";
            return Err(ConfigError::new("network.liars", format!("by = {by}"), problem));
        }
        let byzantine = match sends {
            Sends::Scaled => Byzantine::Scaled(single),
            Sends::Random => Byzantine::Random(single),
        };
        for name in nodes {
            let wrong = |problem: String| {
                Err(ConfigError::new("network.liars", format!("{name:?}"), problem))
            };
            let Some(node) = design.topology.find(name) else {
                return wrong(format!("`{}` has no node of this name", design.topology.name()));
            };
            if all.insert(node, byzantine).is_some() {
                return wrong(
                    "a node sends one kind of wrong values, and this one is named twice".into(),
                );
            }
        }
    }
    Ok(all)
}
