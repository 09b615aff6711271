//! Whole runs, in the simulator and over libp2p: the core, the drivers, and the files of a run.

#[cfg(feature = "net")]
use std::{
    thread,
    time::{Duration, Instant},
};

#[cfg(feature = "net")]
use gradvine::node::{Event, Node};

mod agreement;
mod any_order;
mod bowl;
mod claims;
mod divergence;
mod embedded;
mod encryption;
mod golden_runs;
mod held_calls;
mod hostile_frames;
mod hostile_peers;
mod judging;
mod leaving;
mod links;
mod lost_frames;
mod lost_models;
/// The example of a crate that adds a rule, with its tests: a build of its own takes minutes.
#[cfg(feature = "net")]
#[path = "../../examples/own-rule/src/main.rs"]
mod own_rule;
mod predictions;
mod relays;
mod same_bits;
mod scaling;
mod sessions;
mod silent;
mod versions;
mod wide;

/// Waits until a condition is true, for longer than a busy machine takes.
#[cfg(feature = "net")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for an event of a node.
#[cfg(feature = "net")]
fn until_event(node: &mut Node, what: &str, is_it: impl Fn(&Event) -> bool) {
    until(what, || std::iter::from_fn(|| node.try_next()).any(|event| is_it(&event)));
}
