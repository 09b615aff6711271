//! Weights of one node, and sums over its copies in one pass.

use std::sync::Arc;

use crate::{
    compress::Payload,
    mixing::{Schedule, Topology},
    units::{NodeId, Round},
    vector::update,
};

/// Elements per block, which fits the first-level cache: a sum over several vectors reads each
/// element once and writes it once.
const BLOCK: usize = 2048;

/// One node's row of W, in `f32`, neighbours ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// w_ii.
    pub own: f32,
    pub neighbours: Vec<NodeId>,
    /// w_ij.
    pub weights: Vec<f32>,
}

impl Row {
    pub(super) fn of(topology: &Topology, node: NodeId) -> Row {
        let matrix = topology.matrix();
        Row {
            own: matrix.self_weight(node) as f32,
            neighbours: topology.neighbours(node).to_vec(),
            weights: matrix.neighbour_weights(node).iter().map(|&w| w as f32).collect(),
        }
    }

    /// The position of a neighbour in the row.
    ///
    /// # Panics
    /// If it is not a neighbour: the plan waits for neighbours only.
    pub(super) fn place(&self, neighbour: NodeId) -> usize {
        self.neighbours.binary_search(&neighbour).expect("frames come from neighbours")
    }

    /// w_ij for a neighbour j.
    pub(super) fn weight(&self, neighbour: NodeId) -> f32 {
        self.weights[self.place(neighbour)]
    }

    /// 1 - w_ii as the sum of the neighbours' weights, so that what i sends and receives cancels in
    /// `f32` too.
    pub(super) fn off_diagonal(&self) -> f32 {
        self.weights.iter().sum()
    }
}

/// The neighbours' vectors of one round, in the order of a [`Row`].
#[derive(Debug)]
pub(super) struct Held {
    len: usize,
    vectors: Vec<Vec<f32>>,
}

impl Held {
    /// None yet, of `len` numbers each.
    pub(super) fn new(len: usize) -> Held {
        Held { len, vectors: Vec::new() }
    }

    /// Keeps the vector of a neighbour.
    pub(super) fn take(&mut self, row: &Row, from: NodeId, payload: &Payload<'_>) {
        let most = self.vectors.len().max(row.neighbours.len());
        self.vectors.resize_with(most, || vec![0.0; self.len]);
        payload.write_into(&mut self.vectors[row.place(from)]);
    }

    /// The vectors of this round, once all have been taken.
    pub(super) fn vectors(&self, row: &Row) -> &[Vec<f32>] {
        &self.vectors[..row.neighbours.len()]
    }

    pub(super) fn vectors_mut(&mut self, row: &Row) -> &mut [Vec<f32>] {
        &mut self.vectors[..row.neighbours.len()]
    }

    /// The numbers that it has room for.
    pub(super) fn numbers(&self) -> usize {
        self.len * self.vectors.len()
    }
}

/// The gradient g of an update `step * g`. With a step of 0 it is lost and counts as 0.
#[inline]
pub(super) fn unscaled(update: f32, step: f32) -> f32 {
    if step == 0.0 { 0.0 } else { update / step }
}

/// One node's rows of the matrices of a schedule, one at a time.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    schedule: Arc<Schedule>,
    node: NodeId,
    /// The round of the stored row.
    here: Option<Round>,
    row: Row,
}

impl Rows {
    pub(super) fn of(schedule: &Arc<Schedule>, node: NodeId) -> Rows {
        Rows { schedule: Arc::clone(schedule), node, here: None, row: Row::default() }
    }

    /// The row of a round.
    pub(super) fn at(&mut self, round: Round) -> &Row {
        let known = self.here.is_some_and(|here| here == round || self.schedule.period() == 1);
        if !known {
            let turn = self.schedule.turn(round, self.node);
            self.row.own = turn.own as f32;
            self.row.neighbours.clear();
            self.row.neighbours.extend_from_slice(turn.from);
            self.row.weights.clear();
            self.row.weights.extend(turn.weights.iter().map(|&w| w as f32));
            self.here = Some(round);
        }
        &self.row
    }
}

/// `acc = f(acc, own) + sum_j weights_j copies_j`, block by block: one pass over each vector.
pub(super) fn sum_into(
    acc: &mut [f32],
    own: &[f32],
    weights: &[f32],
    copies: &[Vec<f32>],
    f: impl Fn(f32, f32) -> f32,
) {
    sum_at(0, acc, own, weights, copies, f);
}

/// [`sum_into`] with the elements from `start` on of the own vector and of the copies.
pub(super) fn sum_at(
    start: usize,
    acc: &mut [f32],
    own: &[f32],
    weights: &[f32],
    copies: &[Vec<f32>],
    f: impl Fn(f32, f32) -> f32,
) {
    for (index, (acc, own)) in acc.chunks_mut(BLOCK).zip(own[start..].chunks(BLOCK)).enumerate() {
        update(acc, own, |acc, own| *acc = f(*acc, *own));
        let from = start + index * BLOCK;
        for (&weight, copy) in weights.iter().zip(copies) {
            update(acc, &copy[from..], |acc, copy| *acc += weight * copy);
        }
    }
}
