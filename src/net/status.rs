//! What a node knows of its links, for the line that says what it waits for.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::units::NodeId;

/// Shared by a host's tasks and the thread of its core.
#[derive(Debug, Default)]
pub struct Status {
    links: Mutex<BTreeMap<NodeId, State>>,
    moved: AtomicU64,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Down(String),
    Up,
}

impl Status {
    /// All links down, nothing tried yet.
    pub fn new(neighbours: impl Iterator<Item = NodeId>) -> Status {
        let links = neighbours.map(|node| (node, State::Down("not heard of yet".into()))).collect();
        Status { links: Mutex::new(links), moved: AtomicU64::new(0) }
    }

    /// What went wrong last.
    pub fn trouble(&self, node: NodeId, text: String) {
        if let Some(state @ State::Down(_)) = self.lock().get_mut(&node) {
            *state = State::Down(text);
        }
    }

    /// The link is up, and stays so as far as dialling is concerned.
    pub fn up(&self, node: NodeId) {
        self.lock().insert(node, State::Up);
    }

    /// Whether the link has been up.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.lock().get(&node) == Some(&State::Up)
    }

    /// The neighbours that are missing, and what went wrong last with each.
    pub fn missing(&self) -> Vec<(NodeId, String)> {
        let trouble = |(node, state): (&NodeId, &State)| match state {
            State::Down(text) => Some((*node, text.clone())),
            State::Up => None,
        };
        self.lock().iter().filter_map(trouble).collect()
    }

    /// So many bytes of frames came or went.
    pub fn moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of frames so far, both ways: a link on which they grow is slow, not dead.
    pub fn bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, State>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
