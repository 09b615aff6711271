//! The clock of a node's own thread: that of the system, or a virtual one in fault simulations.

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

/// How far the clock of another node may be ahead: nodes begin a run one after the other.
const AHEAD: u64 = 10_000;

/// The number of a node's next statement: the milliseconds since the attempt began, and more than
/// the number of the statement before. A later statement has a greater number, whatever was missed.
pub(super) fn next_number(started: Instant, before: u64) -> u64 {
    (since(started).as_millis() as u64).max(before + 1)
}

/// The number of another node's statement, at most [`AHEAD`] of the own clock. So a false number
/// hides the statements that follow for some seconds only.
pub(super) fn capped_number(started: Instant, number: u64) -> u64 {
    number.min(since(started).as_millis() as u64 + AHEAD)
}

/// Whether this thread's time is virtual: then it starts no threads.
pub(super) fn is_virtual() -> bool {
    #[cfg(test)]
    return virtual_time::now().is_some();
    #[cfg(not(test))]
    false
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
