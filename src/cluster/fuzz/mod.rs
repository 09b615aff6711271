//! A whole node, driven by arbitrary bytes: what its neighbours say, when links break, what the
//! disk answers, how time passes. `fuzz/fuzz_targets/cluster.rs` passes new bytes,
//! `src/cluster/fuzz/tests.rs` those of `fuzz/corpus/cluster` and some random ones.
//!
//! The neighbours have real cores and a real choice of members, so a run can go on until its end.
//! One of them is hostile: it says anything, and signs it with its own key.
//!
//! * `bytes`: numbers, texts and choices from bytes.
//! * `disk`: what is on the disk of the node.
//! * `peers`: the cores of the other nodes, and their parts in the choice of members.
//! * `checks`: what must hold after each input.
//! * `table`: the node, its disk and its links.
//! * `honest` and `messages`: what honest neighbours say, and what a hostile one says.
//! * `steps`: what happens next.

mod bytes;
mod checks;
mod disk;
mod honest;
mod messages;
mod peers;
mod steps;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use checks::Reached;

/// Runs a node with these bytes, and says how far it has come.
///
/// # Panics
/// If the node does what it must not.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    steps::run(bytes)
}
