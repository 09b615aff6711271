//! For how long this process was ready to run and did not: it was stopped, its share of the
//! processor is limited, or other programs took it.
//!
//! A thread sleeps again and again for a moment. What it sleeps longer than asked is the measure:
//! waiting for neighbours takes no processor, so it does not count.

use std::{
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::threads;

const BEAT: Duration = Duration::from_millis(10);

/// A system that runs a thread so much later is not busy.
const USUAL: Duration = Duration::from_millis(2);

/// Nanoseconds so far.
static HELD: AtomicU64 = AtomicU64::new(0);
static STARTS: Once = Once::new();

/// For how long since the first call.
pub(super) fn held_up() -> Duration {
    // Without the thread nothing is measured, and all waiting counts.
    STARTS.call_once(|| drop(threads::spawn("gradvine-pulse", beat)));
    Duration::from_nanos(HELD.load(Ordering::Relaxed))
}

fn beat() {
    loop {
        let before = Instant::now();
        thread::sleep(BEAT);
        let late = before.elapsed().saturating_sub(BEAT);
        if late > USUAL {
            HELD.fetch_add(late.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}
