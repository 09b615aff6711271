//! Rules with one flight, which sums a vector of every node: what they share of a [`Party`].

use super::prelude::*;

/// What a rule does with the mean of one vector per node.
pub(super) trait Mean: Send {
    /// Whether all nodes have the same model between rounds.
    const SAME_MODEL: bool;

    /// Takes the update, and writes the node's vector into [`Sum::start`]; by default the update.
    fn gradient(&mut self, local: &mut Local, sum: &mut Sum) {
        std::mem::swap(&mut local.update, sum.start());
    }

    /// Moves the model by [`Sum::mean`], and takes the update's vector back from [`Sum::start`].
    fn land(&mut self, local: &mut Local, sum: &mut Sum);

    /// Lists what later rounds need.
    fn state(&mut self, _visitor: &mut dyn Visitor) {}
}

/// The rule of one node.
pub(super) struct Summed<M> {
    pub(super) mean: M,
    pub(super) sum: Sum,
}

impl<M: Mean> Party for Summed<M> {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.sum.outgoing(at.exchange, out)
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.sum.received(at.exchange, from, p);
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        self.sum.close(at.exchange);
    }

    fn copies(&self) -> Option<&dyn Copies> {
        M::SAME_MODEL.then_some(&SameModel)
    }
}

impl<M: Mean> Rule for Summed<M> {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        self.mean.gradient(local, &mut self.sum);
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        self.mean.land(local, &mut self.sum);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.mean.state(visitor);
        visitor.scratch(self.sum.scratch());
    }
}
