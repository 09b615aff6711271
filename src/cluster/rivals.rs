//! Neighbours that refuse this program, as another one has its key.

use std::collections::BTreeSet;

use super::{effect::Effect, part::Part};
use crate::{drive::RunError, units::NodeId};

/// The neighbours that refuse this program, as another one has its key.
#[derive(Debug, Default)]
pub(crate) struct Rivals(BTreeSet<NodeId>);

impl Rivals {
    /// Upon one that does so.
    ///
    /// # Errors
    /// If none is left that does not, also of those that are no members now: a neighbour alone
    /// could say so falsely.
    pub(crate) fn refuses(
        &mut self,
        part: &Part<'_>,
        peer: NodeId,
        text: &str,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        if self.0.insert(peer) {
            out.push(Effect::Warn(format!("node {} says: {text}", part.name(peer))));
        }
        match self.0.len() == part.neighbours.len() {
            true => Err(part.rival(peer, text)),
            false => Ok(()),
        }
    }

    /// Upon the link to one that is up again.
    pub(crate) fn returns(&mut self, peer: NodeId) {
        self.0.remove(&peer);
    }
}
