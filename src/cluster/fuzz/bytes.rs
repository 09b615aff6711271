//! Numbers, texts and choices from bytes. Where there are none left, they are zeros.

use crate::units::NodeId;

/// What is left of the bytes.
pub(super) struct Bytes<'b>(pub &'b [u8]);

impl Bytes<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below this one, which is at most 256.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub(super) fn node(&mut self, nodes: usize) -> NodeId {
        NodeId::from(self.below(nodes))
    }

    /// Any number; often this one, one next to it, or one at an end.
    pub(super) fn number(&mut self, near: u64) -> u64 {
        match self.byte() % 12 {
            0 => 0,
            1 => 1,
            2 | 3 => near,
            4 => near.saturating_add(1),
            5 => near.saturating_sub(1),
            6 => near.saturating_add(self.byte().into()),
            7 => self.byte().into(),
            8 => u64::MAX - u64::from(self.byte() % 4),
            9 => near.saturating_add(1 << (self.byte() % 64)),
            10 => 1 << (self.byte() % 64),
            _ => {
                let mut eight = [0; 8];
                eight.iter_mut().for_each(|byte| *byte = self.byte());
                u64::from_le_bytes(eight)
            }
        }
    }

    /// Up to so many bytes.
    pub(super) fn some(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1).min(self.0.len());
        let (some, rest) = self.0.split_at(length);
        self.0 = rest;
        some.to_vec()
    }

    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.some(8)).into_owned()
    }

    /// A few values.
    pub(super) fn list<T>(&mut self, most: usize, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        let length = self.below(most + 1);
        (0..length).map(|_| one(self)).collect()
    }

    /// Some of so many nodes, at most eight, ascending.
    pub(super) fn subset(&mut self, nodes: usize) -> Vec<NodeId> {
        let mask = self.byte();
        (0..nodes.min(8)).filter(|node| mask >> node & 1 == 1).map(NodeId::from).collect()
    }
}
