//! The model while a gradient is computed at it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::units::Round;

/// The model that a node has lent for a gradient: for a run that must end before the gradient is
/// ready.
#[derive(Clone, Debug, Default)]
pub struct Lent(Arc<Mutex<(Round, Weak<Vec<f32>>)>>);

impl Lent {
    /// Sets the model at which the gradient of `round` is computed.
    pub fn set(&self, round: Round, x: &Arc<Vec<f32>>) {
        *self.lock() = (round, Arc::downgrade(x));
    }

    /// The rounds done and the model, while it is lent.
    pub fn get(&self) -> Option<(Round, Arc<Vec<f32>>)> {
        let (round, x) = &*self.lock();
        Some((*round, x.upgrade()?))
    }

    fn lock(&self) -> MutexGuard<'_, (Round, Weak<Vec<f32>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
