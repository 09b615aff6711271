//! Copies of vectors that their owners and all neighbours of the owners hold.

use super::{
    entry::visit_all,
    mix::{Row, sum_into},
};
use crate::{
    gossip::party::{Copies, Local},
    mixing::Topology,
    state::Visitor,
    units::NodeId,
};

/// One node's copies: its own, and one of each neighbour, beside its row of W.
#[derive(Debug)]
pub(super) struct Replicas {
    /// The node's row of W.
    pub row: Row,
    /// The own copy xh_i; empty if the model itself is the copy.
    pub own: Vec<f32>,
    /// The copies xh_j of the neighbours, ascending.
    pub theirs: Vec<Vec<f32>>,
}

impl Replicas {
    /// Copies of the models, which all start at `x`: a node's own copy is its model.
    pub(super) fn of_models(topology: &Topology, node: NodeId, x: &[f32]) -> Replicas {
        let row = Row::of(topology, node);
        Replicas { theirs: vec![x.to_vec(); row.neighbours.len()], own: Vec::new(), row }
    }

    /// Copies that all start at `start`, the own one too.
    pub(super) fn new(topology: &Topology, node: NodeId, start: &[f32]) -> Replicas {
        Replicas { own: start.to_vec(), ..Replicas::of_models(topology, node, start) }
    }

    /// The copy of a neighbour's vector.
    ///
    /// # Panics
    /// If `from` is not a neighbour: the plan waits for neighbours only.
    pub(super) fn of_mut(&mut self, from: NodeId) -> &mut [f32] {
        &mut self.theirs[self.row.place(from)]
    }

    /// `acc = f(acc, own) + sum_j w_ij theirs_j`, where `own` is the node's own copy.
    pub(super) fn sum_into(&self, acc: &mut [f32], weights: &[f32], f: impl Fn(f32, f32) -> f32) {
        sum_into(acc, &self.own, weights, &self.theirs, f);
    }

    /// Lists the copies by these names.
    pub(super) fn state(&mut self, visitor: &mut dyn Visitor, own: &str, theirs: &str) {
        if !self.own.is_empty() {
            visitor.vector(own, &mut self.own);
        }
        visit_all(visitor, theirs, &mut self.theirs);
    }
}

impl Copies for Replicas {
    fn own<'a>(&'a self, local: &'a Local, _: Option<NodeId>) -> Option<&'a [f32]> {
        Some(if self.own.is_empty() { &local.x } else { &self.own })
    }

    fn of<'a>(&'a self, _: &'a Local, from: NodeId) -> Option<&'a [f32]> {
        Some(&self.theirs[self.row.place(from)])
    }
}
