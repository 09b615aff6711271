//! What a driver asks of one node's learning side.

use std::sync::Arc;

use super::Elapsed;
use crate::{
    config::ConfigError,
    gossip::{Input, LinkTraffic, OwnModel, Part, Traffic, tree::Setup},
    learn::Ready,
    units::Round,
};

/// One node's data, loss and optimizer. The drivers know no more of learning than this.
pub trait Learner: Send {
    /// What all nodes must agree on before round 0 (sums for standardisation). Either all nodes
    /// have something or none.
    fn setup(&mut self) -> Option<Setup> {
        None
    }

    /// What all nodes' setup records make together.
    ///
    /// # Errors
    /// If it has no meaning here.
    fn prepare(&mut self, _merged: &[u8]) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Writes the sum of step times direction at `x` into `update` and returns the mean loss of the
    /// batches.
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64;

    /// The same, to the bit, which tells early of what is final.
    fn compute_by_parts(
        &mut self,
        round: Round,
        x: &[f32],
        update: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        let loss = self.compute(round, x, update);
        ready(0..update.len(), update);
        loss
    }

    /// The same with vectors that the learner may hand on: `x` may be kept until the update is
    /// returned, in the buffer `update` or in another one of its length.
    ///
    /// # Errors
    /// Why this node cannot go on. The run ends, and its neighbours are told.
    fn compute_lent(
        &mut self,
        round: Round,
        x: &Arc<Vec<f32>>,
        mut update: Vec<f32>,
        ready: &mut Ready<'_>,
    ) -> Result<(Vec<f32>, f64), String> {
        let loss = self.compute_by_parts(round, x, &mut update, ready);
        Ok((update, loss))
    }

    /// Whether a gradient waits for something else than this computer, such as a training loop of
    /// another program. Then it is always computed beside the core.
    fn waits(&self) -> bool {
        false
    }

    /// The sum of the step sizes in the update of a round.
    fn step(&self, round: Round) -> f32;

    /// This node's record of the run, for the summary that every node writes.
    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8>;
}

/// What is known when the rounds are over.
#[derive(Clone, Copy, Debug)]
pub struct Conclusion<'a> {
    /// Rounds done.
    pub rounds: Round,
    /// This node's model.
    pub model: &'a [f32],
    /// The mean of all nodes' models.
    pub mean: &'a [f32],
    /// Bytes sent.
    pub traffic: Traffic,
    /// The same by neighbour, in ascending order.
    pub links: &'a [LinkTraffic],
    /// Time since the start.
    pub elapsed: Elapsed,
}

impl<'a> Conclusion<'a> {
    /// Of a node's own model and the mean.
    pub fn new(own: &'a OwnModel, mean: &'a [f32], elapsed: Elapsed) -> Conclusion<'a> {
        let OwnModel { rounds, x, traffic, links } = own;
        Conclusion { rounds: *rounds, model: x, mean, traffic: *traffic, links, elapsed }
    }
}

/// Performs [`Effect::Compute`](crate::gossip::Effect::Compute) and hands over the inputs that
/// answer it: every part as soon as it is final, then the whole, or why there is none.
pub fn compute(
    learner: &mut dyn Learner,
    round: Round,
    x: impl Into<Arc<Vec<f32>>>,
    update: Vec<f32>,
    parts: Vec<Part>,
    hand: &mut dyn FnMut(Input),
) {
    let (x, length) = (x.into(), update.len());
    let mut parts = (0..).zip(parts).peekable();
    let computed = learner.compute_lent(round, &x, update, &mut |range, update| {
        while let Some((part, Part { start, mut values })) =
            parts.next_if(|(_, part)| part.start >= range.start)
        {
            let end = start + values.len();
            values.copy_from_slice(&update[start..end]);
            hand(Input::Part { round, part, values });
        }
    });
    let step = learner.step(round);
    let x = Arc::unwrap_or_clone(x);
    hand(match computed {
        Ok((update, loss)) if update.len() == length => {
            Input::Computed { round, x, update, loss, step }
        }
        Ok((update, _)) => {
            let reason = format!("an update of {} numbers, {length} are needed", update.len());
            Input::ComputeFailed { x, reason }
        }
        Err(reason) => Input::ComputeFailed { x, reason },
    });
}
