//! What all nodes agree on before the first round.

use std::sync::{Arc, Mutex, PoisonError};

/// A value that all nodes of a run have agreed on, once they have; clones share it. A run that
/// begins again before its first checkpoint, with other members, agrees on another one.
#[derive(Debug)]
pub struct Agreed<T>(Arc<Mutex<Option<Arc<T>>>>);

impl<T> Default for Agreed<T> {
    fn default() -> Agreed<T> {
        Agreed(Arc::default())
    }
}

impl<T> Clone for Agreed<T> {
    fn clone(&self) -> Agreed<T> {
        Agreed(Arc::clone(&self.0))
    }
}

impl<T> Agreed<T> {
    /// The value; `None` before the run has started.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value, unless it is equal; returns the one that holds now, and whether it is
    /// new.
    pub(crate) fn set(&self, value: T) -> (Arc<T>, bool)
    where
        T: PartialEq,
    {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(known) if **known == value => (Arc::clone(known), false),
            _ => (Arc::clone(known.insert(Arc::new(value))), true),
        }
    }
}
