//! A member whose program is not that of the others: what it sends is changed on its way out.

use std::sync::Arc;

use crate::{
    gossip::{
        frame::{self, Header},
        plan::At,
        stopping::SIGNED,
        tree::{INITIAL, LAST_CALL, MEAN, Readers, SETUP, SIGNATURE, STOP, SUMMARY, TALLY},
    },
    run::Whole,
    units::{NodeId, Round},
};

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// It changes these frames of the spanning tree, which go down: what others have given or,
    /// where the root has formed something of that, the result. An initial model only for its last
    /// neighbour.
    Tree(u8),
    /// It changes what others give to these flights of the tree, on its way up.
    Up(u8),
    /// It asks, in the name of another node, that the run ends.
    Stops,
    /// From this round on it sends its second neighbour something else than the others.
    TwoFaced(u64),
}

/// The flights of the tree: sums before the rounds, the mean and the records after them.
pub(super) const TREE: [Lie; 3] = [Lie::Tree(SETUP), Lie::Tree(MEAN), Lie::Tree(SUMMARY)];

/// The flights in which each node gives something of its own, with its signature.
pub(super) const UP: [Lie; 4] = [Lie::Up(SETUP), Lie::Up(INITIAL), Lie::Up(MEAN), Lie::Up(TALLY)];
pub(super) const DOWN: [Lie; 3] = [Lie::Tree(SETUP), Lie::Tree(INITIAL), Lie::Tree(MEAN)];

pub(super) struct Liar {
    pub node: NodeId,
    pub lie: Lie,
    /// How often it has lied.
    pub times: u64,
}

impl Liar {
    /// A frame as it is sent.
    pub(super) fn frame(&mut self, to: NodeId, frame: Arc<Vec<u8>>, whole: &Whole) -> Arc<Vec<u8>> {
        let (header, payload) = frame::read(&frame);
        if let Lie::TwoFaced(since) = self.lie {
            let second = whole.design.topology.neighbours(self.node).get(1) == Some(&to);
            if !second || header.at.flight >= LAST_CALL || header.at.round.0 < since {
                return frame;
            }
            self.times += 1;
            let first = header.at.round.0 == since && header.at.exchange == 0;
            let mut changed = frame.to_vec();
            if let Some(byte) = changed.last_mut().filter(|_| first) {
                *byte ^= 1;
            }
            // The sum of its own vector would tell.
            frame::seal(&Header { replica: None, ..header }, None, &mut changed);
            return Arc::new(changed);
        }
        let is_last = whole.design.topology.neighbours(self.node).last() == Some(&to);
        if self.lie == Lie::Tree(INITIAL) && !is_last {
            return frame;
        }
        if self.lie == Lie::Stops && header.at.flight < LAST_CALL && header.at.round.0 >= 10 {
            self.times += 1;
            let other = if self.node.0 == 0 { 1u32 } else { 0 };
            let at = At { round: Round(header.at.round.0 + 5), flight: STOP, exchange: 0 };
            let mut notice = Vec::new();
            frame::reserve(&mut notice);
            notice.extend(other.to_le_bytes());
            notice.resize(notice.len() + SIGNATURE, 0);
            frame::seal(&Header { at, replica: None }, None, &mut notice);
            return Arc::new(notice);
        }
        let height = whole.design.topology.spanning_tree().height();
        let is_down = usize::from(header.at.exchange) >= height;
        let lie = if is_down { Lie::Tree } else { Lie::Up }(header.at.flight);
        // The lowest bit of the last number.
        let is_formed = whole.design.node(self.node, None, Readers::Everyone).liars.is_none();
        let number = match (is_down, header.at.flight) {
            (true, SUMMARY) => payload.len().checked_sub(1),
            (true, MEAN | INITIAL) if is_formed => payload.len().checked_sub(4),
            (_, TALLY) => (payload.len() > SIGNED).then_some(SIGNED),
            (_, _) => of_another(self.node, payload),
        };
        let Some(number) = number.filter(|_| self.lie == lie) else { return frame };
        self.times += 1;
        let mut changed = Arc::unwrap_or_clone(frame);
        changed[frame::HEADER + number] ^= 1;
        frame::seal(&header, None, &mut changed);
        Arc::new(changed)
    }
}

/// The first byte of the last number of another node's record, if it has one, among these records.
fn of_another(node: NodeId, records: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(head) = records.get(at..at + 8) {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | *byte as usize);
        let (of, length) = (number(&head[..4]), number(&head[4..]));
        at += 8 + length;
        if of != node.index() && length > SIGNATURE {
            return Some(at - SIGNATURE - 4);
        }
    }
    None
}
