//! The mean of one compressed vector per node: at a server, or on every node from all frames.

use super::Pattern;
use crate::{
    compress::{Format, Payload},
    gossip::plan::At,
    rng::Stream,
    state::Visitor,
    units::NodeId,
    vector,
};

/// One node's side of the first exchange of [`Pattern::Server`] or of [`Pattern::AllToAll`]. Frames
/// are added in ascending order of nodes, the node's own one in its turn, so that all nodes that
/// add agree to the bit.
#[derive(Debug)]
pub struct Gather {
    pattern: Pattern,
    id: NodeId,
    /// The weight of each vector.
    weight: f32,
    format: Format,
    /// The node's own frame, until its turn.
    own: Vec<u8>,
    noise: Option<Stream>,
    acc: Vec<f32>,
}

impl Gather {
    /// A mean of vectors of `d` numbers over `nodes` nodes, each in this format.
    pub fn new(pattern: Pattern, nodes: usize, id: NodeId, format: Format, d: usize) -> Gather {
        Gather { weight: 1.0 / nodes as f32, ..Gather::sum(pattern, id, format, d) }
    }

    /// The sum instead of the mean: for votes, whose sum is a whole number.
    pub fn sum(pattern: Pattern, id: NodeId, format: Format, d: usize) -> Gather {
        let mut gather = Gather {
            pattern,
            id,
            weight: 1.0,
            format,
            own: Vec::new(),
            noise: None,
            acc: Vec::new(),
        };
        if gather.adds() {
            gather.acc = vec![0.0; d];
        }
        gather
    }

    /// Whether this node adds: the server, or every node.
    pub fn adds(&self) -> bool {
        self.pattern == Pattern::AllToAll || self.id == NodeId(0)
    }

    /// Takes this node's own frame.
    pub fn sent(&mut self, own: &Payload<'_>) {
        if self.id == NodeId(0) {
            own.add_into(self.weight, &mut self.acc);
        } else if self.pattern == Pattern::AllToAll {
            let (bytes, noise) = own.parts();
            self.own.clear();
            self.own.extend_from_slice(bytes);
            self.noise = Some(noise.unwrap_or(Stream::new(0, crate::rng::Purpose::Compress)));
        }
    }

    /// Takes the frame of another node: a vector to add in exchange 0; then the server's result, by
    /// which the model moves, `x -= step * result`.
    pub fn received(
        &mut self,
        at: &At,
        from: NodeId,
        payload: &Payload<'_>,
        step: f32,
        x: &mut [f32],
    ) {
        if at.exchange > 0 {
            return payload.add_into(-step, x);
        }
        if from > self.id {
            self.add_own();
        }
        payload.add_into(self.weight, &mut self.acc);
    }

    /// Takes the server's own result, as it has sent it: `x -= step * result`. Then sets the mean
    /// to 0.
    pub fn sent_result(&mut self, own: &Payload<'_>, step: f32, x: &mut [f32]) {
        own.add_into(-step, x);
        self.acc.fill(0.0);
    }

    /// After all frames: the mean (or sum), plus what was left in it before. Only on a node that
    /// [adds](Gather::adds).
    pub fn mean(&mut self) -> &mut Vec<f32> {
        self.add_own();
        &mut self.acc
    }

    /// After all frames, if all nodes add: `x -= step * f(mean)`, with f in place. Then sets the
    /// mean to 0.
    pub fn land(&mut self, step: f32, x: &mut [f32], f: impl FnOnce(&mut [f32])) {
        if self.pattern == Pattern::AllToAll {
            let mean = self.mean();
            f(mean);
            vector::axpy(-step, mean, x);
            self.acc.fill(0.0);
        }
    }

    /// Lists what the mean keeps from round to round.
    pub fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("mean", &mut self.acc);
    }

    fn add_own(&mut self) {
        if let Some(noise) = self.noise.take() {
            self.format.view(noise, &self.own).add_into(self.weight, &mut self.acc);
        }
    }
}
