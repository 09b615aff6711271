//! The sum of one sparse vector per node: at a server, or on every node from all frames.

use super::Pattern;
use crate::{
    compress::{Entries, Payload},
    gossip::plan::At,
    units::NodeId,
};

/// One node's side of a sum of entries by [`Pattern::Server`] or [`Pattern::AllToAll`]. Frames are
/// added in ascending order of nodes, the node's own one in its turn: all nodes that add agree to
/// the bit, and both patterns give the same sum. Only entries that a node has sent are touched.
///
/// **Memory:** on nodes that form sums a vector and one bit per number; on others the entries
/// alone.
#[derive(Debug)]
pub struct Union {
    id: NodeId,
    nodes: usize,
    d: usize,
    /// This node's entries, until their turn.
    own: Entries,
    /// Whether this node's entries are not yet added.
    waits: bool,
    /// On nodes that form sums: the sum of the entries so far, 0 elsewhere.
    acc: Vec<f32>,
    /// Bit i: an entry of number i was sent.
    touched: Vec<u64>,
    total: Entries,
}

impl Union {
    /// A sum of sparse vectors of `d` numbers.
    pub fn new(pattern: Pattern, nodes: usize, id: NodeId, d: usize) -> Union {
        let adds = pattern == Pattern::AllToAll || id == NodeId(0);
        let (acc, touched) =
            if adds { (vec![0.0; d], vec![0; d.div_ceil(64)]) } else { (Vec::new(), Vec::new()) };
        let (own, total) = (Entries::default(), Entries::default());
        Union { id, nodes, d, own, waits: false, acc, touched, total }
    }

    /// Takes this node's own frame.
    pub fn sent(&mut self, own: &Payload<'_>) {
        if self.adds() {
            read(own, self.d, &mut self.own);
            self.waits = true;
        }
    }

    /// Takes the frame of another node: entries to add in exchange 0; then the server's sum.
    pub fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) {
        if at.exchange > 0 {
            return read(payload, self.d, &mut self.total);
        }
        if from > self.id {
            self.add_own();
        }
        let (acc, touched) = (&mut self.acc, &mut self.touched);
        payload.entries(self.d, &mut |index, value| add(acc, touched, index, value));
    }

    /// After all frames of exchange 0: on nodes that form sums, collects the entries that any node
    /// has sent.
    pub fn close(&mut self, at: &At) {
        if at.exchange > 0 {
            return;
        }
        self.add_own();
        if self.adds() {
            self.total.clear();
        }
        for (word, bits) in self.touched.iter_mut().enumerate() {
            while *bits != 0 {
                let index = 64 * word + bits.trailing_zeros() as usize;
                self.total.push(index as u32, std::mem::take(&mut self.acc[index]));
                *bits &= *bits - 1;
            }
        }
    }

    /// The sum, ascending by index, once all frames are there.
    pub fn total(&self) -> &Entries {
        &self.total
    }

    /// `x -= sum / n`.
    pub fn apply(&self, x: &mut [f32]) {
        self.total.add_into(-1.0 / self.nodes as f32, x);
    }

    /// How many numbers its buffers hold.
    pub fn scratch(&self) -> usize {
        self.acc.len()
    }

    fn adds(&self) -> bool {
        !self.touched.is_empty()
    }

    fn add_own(&mut self) {
        if std::mem::take(&mut self.waits) {
            for (index, value) in self.own.iter() {
                add(&mut self.acc, &mut self.touched, index, value);
            }
        }
    }
}

fn add(acc: &mut [f32], touched: &mut [u64], index: u32, value: f32) {
    acc[index as usize] += value;
    touched[index as usize / 64] |= 1 << (index % 64);
}

fn read(payload: &Payload<'_>, d: usize, out: &mut Entries) {
    out.clear();
    let is_sparse = payload.entries(d, &mut |index, value| out.push(index, value));
    assert!(is_sparse, "{payload:?} has no entries: the rule and its plan disagree");
}
