//! The interface between a driver and one node's learning.

use std::{
    any::Any,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use super::Elapsed;
use crate::{
    config::ConfigError,
    gossip::{Input, LinkTraffic, OwnModel, Tally, Traffic, UpdatePart, tree::Setup},
    learn::Ready,
    state::Visitor,
    units::Round,
};

/// An update that is wanted, with vectors that the driver lends for it.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The round that it is for.
    pub round: Round,
    /// The model, d numbers: shared, so that it is not copied.
    pub x: &'a Arc<Vec<f32>>,
    /// The buffer for the update.
    pub update: Vec<f32>,
}

/// The update, in the buffer that was lent or in another one of its length, and the mean loss of
/// the batches; or why this node cannot continue.
pub type Computed = Result<(Vec<f32>, f64), String>;

/// One node's data, loss and optimizer: all that a driver needs from learning.
pub trait Learner: Send {
    /// Data on which all nodes must agree before round 0 (sums for standardisation). Either all
    /// nodes return some or none does.
    fn setup(&mut self) -> Option<Setup> {
        None
    }

    /// Receives the merged setup records of all nodes.
    ///
    /// # Errors
    /// If they are invalid here.
    fn prepare(&mut self, _merged: &[u8]) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Writes the sum of step times direction at `x` into `update` and returns the mean loss of the
    /// batches.
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64;

    /// The same, to the bit, but reports each part as soon as it is final.
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

    /// The same with vectors that the learner may pass on: it may keep `x` until it returns the
    /// update, in the buffer `update` or in another one of its length.
    ///
    /// # Errors
    /// Why this node cannot continue. The run ends, and its neighbours get the reason.
    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        let Wanted { round, x, mut update } = wanted;
        let loss = self.compute_by_parts(round, x, &mut update, ready);
        Ok((update, loss))
    }

    /// Whether a gradient waits for something outside this computer, such as a training loop of
    /// another program. Then the driver always computes it on another thread.
    fn waits(&self) -> bool {
        false
    }

    /// A loss that shows that this node has diverged, if one does: that of its batch at x, or that
    /// of its rows after its own update, which it has not sent yet. A program's loss may be any
    /// number.
    fn diverged(&self, _loss: f64, _x: &[f32], _update: &[f32]) -> Option<f64> {
        None
    }

    /// Whether this node asks that all nodes end soon; looked at after each gradient. All nodes
    /// end after the same round, in as many rounds as it takes to inform all of them.
    fn ends(&self) -> bool {
        false
    }

    /// The loss of the model of the last gradient on rows that are kept for validation, in rounds
    /// in which it is asked for; looked at after each gradient.
    fn tally(&mut self) -> Option<Tally> {
        None
    }

    /// Visits what later rounds need, and returns whether the learner can be put back by it: then
    /// all else depends on its files and on the round only. By default it cannot.
    fn state(&mut self, _visitor: &mut dyn Visitor) -> bool {
        false
    }

    /// The sum of the step sizes in the update of a round.
    fn step(&self, round: Round) -> f32;

    /// This node's record of the run, for the summary that every node writes.
    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8>;
}

/// The results of a node when the rounds are over.
#[derive(Clone, Copy, Debug)]
pub struct Conclusion<'a> {
    /// The rounds that the run has done.
    pub rounds: Round,
    /// The final model of this node.
    pub model: &'a [f32],
    /// The mean of all nodes' models.
    pub mean: &'a [f32],
    /// Bytes sent since the run began.
    pub traffic: Traffic,
    /// Bytes sent per neighbour, in ascending order.
    pub links: &'a [LinkTraffic],
    /// The node's clocks at the end.
    pub elapsed: Elapsed,
    /// How often the node's program was started again.
    pub restarts: u64,
}

impl<'a> Conclusion<'a> {
    /// The conclusion for a node's own model and the mean.
    pub fn new(own: &'a OwnModel, mean: &'a [f32], elapsed: Elapsed) -> Conclusion<'a> {
        let OwnModel { rounds, x, traffic, links } = own;
        let (rounds, traffic) = (*rounds, *traffic);
        Conclusion { rounds, model: x, mean, traffic, links, elapsed, restarts: 0 }
    }
}

/// Performs [`Effect::Compute`](crate::gossip::Effect::Compute) and passes on the resulting inputs:
/// every part as soon as it is final, then the whole update, or the error. A panic of the learner
/// is such an error: the model is not lost with it.
pub fn compute(
    learner: &mut dyn Learner,
    round: Round,
    x: impl Into<Arc<Vec<f32>>>,
    update: Vec<f32>,
    parts: Vec<UpdatePart>,
    hand: &mut dyn FnMut(Input),
) {
    let (x, length) = (x.into(), update.len());
    let mut parts = (0..).zip(parts).peekable();
    let mut ready = |range: Range<usize>, update: &mut [f32]| {
        while let Some((part, UpdatePart { start, mut values })) =
            parts.next_if(|(_, part)| part.start >= range.start)
        {
            let end = start + values.len();
            values.copy_from_slice(&update[start..end]);
            hand(Input::Part { round, part, values });
        }
    };
    // A learner that has panicked is not called again.
    let computed = panic::catch_unwind(AssertUnwindSafe(|| {
        let computed = learner.compute_lent(Wanted { round, x: &x, update }, &mut ready)?;
        let diverged = learner.diverged(computed.1, &x, &computed.0);
        Ok((computed, learner.step(round), learner.ends(), learner.tally(), diverged))
    }));
    let computed = computed.unwrap_or_else(|payload| Err(describe_panic(&*payload)));
    let x = Arc::unwrap_or_clone(x);
    if let Ok((.., Some(tally), _)) = &computed {
        hand(Input::Tally { round, tally: *tally });
    }
    hand(match computed {
        Ok((.., Some(loss))) => Input::Diverged { round, x, loss },
        Ok(((update, loss), step, ends, ..)) if update.len() == length => {
            Input::Computed { round, x, update, loss, step, ends }
        }
        Ok(((update, _), ..)) => {
            let reason = format!("an update of {} numbers, {length} are needed", update.len());
            Input::ComputeFailed { x, reason }
        }
        Err(reason) => Input::ComputeFailed { x, reason },
    });
}

/// The message of a panic in code of the program.
pub(crate) fn describe_panic(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("the program panicked: {}", text.unwrap_or("without a message"))
}
