//! A learner whose node asks for an early end of the run once it is told to.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    config::ConfigError,
    drive::{Computed, Conclusion, Learner, Wanted},
    gossip::{Tally, tree::Setup},
    learn::Ready,
    state::Visitor,
    units::Round,
};

/// The learner of a node, and whether the run is to end.
pub(super) struct Until {
    pub inner: Box<dyn Learner>,
    pub ends: Arc<AtomicBool>,
}

impl Learner for Until {
    fn setup(&mut self) -> Option<Setup> {
        self.inner.setup()
    }

    fn prepare(&mut self, merged: &[u8]) -> Result<(), ConfigError> {
        self.inner.prepare(merged)
    }

    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64 {
        self.inner.compute(round, x, update)
    }

    fn compute_by_parts(
        &mut self,
        round: Round,
        x: &[f32],
        update: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        self.inner.compute_by_parts(round, x, update, ready)
    }

    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        self.inner.compute_lent(wanted, ready)
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn diverged(&self, loss: f64, x: &[f32], update: &[f32]) -> Option<f64> {
        self.inner.diverged(loss, x, update)
    }

    fn ends(&self) -> bool {
        self.inner.ends() || self.ends.load(Ordering::Relaxed)
    }

    fn tally(&mut self) -> Option<Tally> {
        self.inner.tally()
    }

    fn state(&mut self, visitor: &mut dyn Visitor) -> bool {
        self.inner.state(visitor)
    }

    fn step(&self, round: Round) -> f32 {
        self.inner.step(round)
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        self.inner.conclude(conclusion)
    }
}
