//! The Byzantine nodes of a simulation.

use std::{borrow::Cow, collections::BTreeMap};

use super::resolved::Design;
use crate::{
    config::ConfigError,
    experiment::{ByzantineParams, Sends},
    gossip::{
        Byzantine,
        party::payload_noise,
        plan::At,
        tree::{Averaging, MEAN},
    },
    run::shards::opening::withstands,
    units::{NodeId, Round},
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

impl Design {
    /// The mean model that these nodes would have if the run ended after this round: as the rule
    /// forms it, of what Byzantine nodes give in place of their models.
    ///
    /// # Panics
    /// If there is no model.
    pub fn mean_of(&self, round: Round, models: &[(NodeId, &[f32])]) -> Vec<f32> {
        // The names were checked when the run was made.
        let byzantine = of(self).unwrap_or_default();
        let at = At { round, flight: MEAN, exchange: 0 };
        let given = models.iter().map(|(node, own)| match byzantine.get(node) {
            None => Cow::Borrowed(*own),
            Some(byzantine) => {
                let noise = payload_noise(self.experiment.run.seed, *node, None, &at);
                Cow::Owned(byzantine.distort(own, noise))
            }
        });
        let given: Vec<Cow<'_, [f32]>> = given.collect();
        let liars = withstands(&self.experiment);
        let averaging = Averaging { liars, ..Averaging::of_all(given.len()) };
        averaging.mean((given.len(), given[0].len()), |i, k| given[i][k])
    }
}
