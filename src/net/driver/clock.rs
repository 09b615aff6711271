//! The clock of the status of links: that of the system, or a virtual one in tests.

use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = virtual_time::now() {
        return now;
    }
    Instant::now()
}

pub(crate) fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

#[cfg(test)]
pub(crate) mod virtual_time {
    use std::{cell::Cell, time::Instant};

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    pub(crate) fn now() -> Option<Instant> {
        NOW.get()
    }

    /// Sets the time of this thread.
    pub(crate) fn set(now: Instant) {
        NOW.set(Some(now));
    }
}
