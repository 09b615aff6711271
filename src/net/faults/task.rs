//! How a program waits: its thread continues when the scheduler says so.

use std::{
    cell::RefCell,
    panic,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
    thread,
    time::Duration,
};

use super::state::{Message, Wake, World};
use crate::net::driver::clock::virtual_time;

/// The program of this thread.
pub(super) struct Task {
    pub machine: usize,
    pub world: Arc<World>,
    pub wakes: Receiver<Wake>,
    pub messages: Sender<(usize, Message)>,
}

/// The payload of the unwinding that ends a killed program.
pub(super) struct Killed;

thread_local! {
    static TASK: RefCell<Option<Task>> = const { RefCell::new(None) };
}

/// Sets the program of this thread.
pub(super) fn enter(task: Option<Task>) {
    TASK.set(task);
}

/// Waits until the world says so: at this time or, with `events`, when one has come.
///
/// Unwinds if the program was killed.
pub(super) fn wait_until(until: Duration, events: bool) {
    let killed = TASK.with_borrow(|task| {
        let task = task.as_ref()?;
        let sent = task.messages.send((task.machine, Message::Waits { until, events }));
        let wake = sent.ok().and_then(|()| task.wakes.recv().ok());
        Some(match wake {
            Some(Wake { now, killed }) => {
                virtual_time::set(now);
                killed
            }
            None => true,
        })
    });
    if killed == Some(true) && !thread::panicking() {
        panic::resume_unwind(Box::new(Killed));
    }
}

pub(super) fn pass(time: Duration) {
    let now = TASK.with_borrow(|task| Some(task.as_ref()?.world.lock().now));
    if let Some(now) = now {
        wait_until(now + time, false);
    }
}
