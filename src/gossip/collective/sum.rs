//! The sum of one dense vector per node, with the same bits on every node.

use super::{Pattern, chunk, chunk_sent};
use crate::{
    compress::{NonFinite, Payload},
    gossip::party::Writer,
    state::Visitor,
    units::NodeId,
    vector,
};

/// One node's side of an exact sum by a collective. Begins with [`Sum::start`]; after the last
/// exchange [`Sum::mean`] holds the mean.
///
/// **Memory:** the vector; with all-to-all one more, because the node's own vector must wait for
/// its turn in the order.
#[derive(Debug)]
pub struct Sum {
    pattern: Pattern,
    nodes: usize,
    id: NodeId,
    /// The node's own vector, then the sum or mean.
    v: Vec<f32>,
    /// All-to-all: the sum so far.
    acc: Vec<f32>,
    /// Whether the node's own vector is in the sum.
    added: bool,
}

impl Sum {
    /// A sum of vectors of `d` numbers.
    pub fn new(pattern: Pattern, nodes: usize, id: NodeId, d: usize) -> Sum {
        let acc = if pattern == Pattern::AllToAll { vec![0.0; d] } else { Vec::new() };
        Sum { pattern, nodes, id, v: vec![0.0; d], acc, added: false }
    }

    /// A sum of updates without a vector of its own: the caller swaps the update's vector into
    /// [`Sum::start`] and takes it back when the mean has been used.
    pub fn of_updates(pattern: Pattern, nodes: usize, id: NodeId, d: usize) -> Sum {
        Sum { v: Vec::new(), ..Sum::new(pattern, nodes, id, d) }
    }

    /// This node's contribution, to be written before the flight starts.
    pub fn start(&mut self) -> &mut Vec<f32> {
        self.added = false;
        &mut self.v
    }

    /// [`Sum::start`] for a vector of another length than the one before.
    pub fn start_with(&mut self, values: impl Iterator<Item = f32>) {
        self.v.clear();
        self.v.extend(values);
        if self.pattern == Pattern::AllToAll {
            self.acc.resize(self.v.len(), 0.0);
        }
        self.added = false;
    }

    /// Writes the payload of an exchange.
    ///
    /// # Errors
    /// If a number is not finite.
    pub fn outgoing(&mut self, exchange: u16, out: &mut Writer<'_>) -> Result<(), NonFinite> {
        match self.ring(exchange) {
            Some((nodes, within)) => {
                let range = chunk(self.v.len(), nodes, chunk_sent(nodes, within, exchange));
                let start = range.start;
                out.vector(&self.v[range])
                    .map_err(|error| NonFinite { index: start + error.index, ..error })
            }
            None => out.vector(&self.v),
        }
    }

    /// Takes the payload of `from`.
    pub fn received(&mut self, exchange: u16, from: NodeId, payload: &Payload<'_>) {
        if let Some((nodes, within)) = self.ring(exchange) {
            let range = chunk(
                self.v.len(),
                nodes,
                chunk_sent(nodes, (within + nodes - 1) % nodes, exchange),
            );
            // While reducing, the sender's part is added to the chunk; then complete chunks are
            // copied.
            if usize::from(exchange) < nodes - 1 {
                payload.add_into(1.0, &mut self.v[range]);
            } else {
                payload.write_into(&mut self.v[range]);
            }
            return;
        }
        match self.pattern {
            Pattern::AllToAll => {
                if from > self.id {
                    self.add_own();
                }
                if from == NodeId(0) {
                    payload.write_into(&mut self.acc);
                } else {
                    payload.add_into(1.0, &mut self.acc);
                }
            }
            _ if Some(exchange) <= self.last_collected() => payload.add_into(1.0, &mut self.v),
            _ => payload.write_into(&mut self.v),
        }
    }

    /// Ends an exchange. If the sum is complete it becomes the mean.
    pub fn close(&mut self, exchange: u16) {
        let mean = 1.0 / self.nodes as f32;
        match self.pattern {
            Pattern::AllToAll => {
                self.add_own();
                std::mem::swap(&mut self.v, &mut self.acc);
                vector::scale(mean, &mut self.v);
            }
            Pattern::Ring if usize::from(exchange) + 2 == self.nodes => {
                // The last exchange of the reduction: the chunk that is sent next is complete.
                let range = chunk(
                    self.v.len(),
                    self.nodes,
                    chunk_sent(self.nodes, self.id.index(), exchange + 1),
                );
                vector::scale(mean, &mut self.v[range]);
            }
            _ if self.id == NodeId(0) && self.last_collected() == Some(exchange) => {
                vector::scale(mean, &mut self.v);
            }
            _ => {}
        }
    }

    /// The mean, after the last exchange.
    pub fn mean(&self) -> &[f32] {
        &self.v
    }

    /// How many numbers its buffers hold.
    pub fn scratch(&self) -> usize {
        self.v.len() + self.acc.len()
    }

    /// Lists its vectors, for sums that last for more than a round.
    pub fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("sum", &mut self.v);
        visitor.scratch(self.acc.len());
    }

    fn add_own(&mut self) {
        if !std::mem::replace(&mut self.added, true) {
            if self.id == NodeId(0) {
                self.acc.copy_from_slice(&self.v);
            } else {
                vector::axpy(1.0, &self.v, &mut self.acc);
            }
        }
    }

    /// The size of the ring and the node's position in it, in exchanges of chunks.
    fn ring(&self, exchange: u16) -> Option<(usize, usize)> {
        let (nodes, within) = match self.pattern {
            Pattern::Ring => (self.nodes, self.id.index()),
            Pattern::Hybrid { group } => (group, self.id.index() % group),
            Pattern::Server | Pattern::AllToAll | Pattern::Tree => return None,
        };
        (usize::from(exchange) < 2 * (nodes - 1)).then_some((nodes, within))
    }

    /// The exchange after which node 0 has the sum of whole vectors.
    fn last_collected(&self) -> Option<u16> {
        match self.pattern {
            Pattern::Server => Some(0),
            Pattern::Hybrid { group } => Some(2 * (group - 1) as u16),
            Pattern::Tree => (self.pattern.exchanges(self.nodes) / 2).checked_sub(1),
            Pattern::Ring | Pattern::AllToAll => None,
        }
    }
}
