//! The disk of the node under test.

use std::collections::BTreeMap;

use crate::{
    drive::Membership,
    run::{Checkpoint, checkpoint::Written},
};

/// What is on it.
#[derive(Default)]
pub(super) struct Disk {
    pub checkpoints: BTreeMap<u64, Checkpoint>,
    pub membership: Option<Membership>,
    /// Whether the run has begun here.
    pub begun: bool,
    pub results: Option<Written>,
    pub full: bool,
}
