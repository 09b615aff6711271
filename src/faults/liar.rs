//! A member whose program is not that of the others: what it sends is changed on its way out.

use std::sync::Arc;

use super::wire::Message;
use crate::{
    cluster::{
        members::{
            assembly::{News, View, statement},
            keys::{Keys, Named},
        },
        message::CheckpointSchedule,
        statements::{Batch, Said, Statement},
    },
    drive::Membership,
    gossip::{
        frame::{self, Header},
        plan::At,
        tree::{INITIAL, LAST_CALL, MEAN, Readers, SETUP, SIGNATURE, STOP, SUMMARY},
    },
    run::Whole,
    units::{NodeId, Round},
};

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// It raises the number of the newest membership, again and again.
    Raises,
    /// It says that its links are down, and that it awaits nobody.
    Withdraws,
    /// It says that all others take the run for over.
    Forges,
    /// It says of itself, and as node 0 of all, what would have others remove their checkpoints,
    /// write others all the time, or never hear of a later one.
    Deletes,
    /// It says the same in the name of others.
    Counterfeits,
    /// It changes these frames of the spanning tree, which go down: what others have given or,
    /// where the root has formed something of that, the result.
    Tree(u8),
    /// It changes what others give to these flights of the tree, on its way up.
    Up(u8),
    /// It asks, in the name of another node, that the run ends.
    Stops,
    /// From this round on it sends its second neighbour something else than the others.
    TwoFaced(u64),
}

pub(super) const LIES: [Lie; 5] =
    [Lie::Raises, Lie::Withdraws, Lie::Forges, Lie::Deletes, Lie::Counterfeits];

/// The flights of the tree: sums before the rounds, the mean and the records after them.
pub(super) const TREE: [Lie; 3] = [Lie::Tree(SETUP), Lie::Tree(MEAN), Lie::Tree(SUMMARY)];

/// The flights in which each node gives something of its own, with its signature.
pub(super) const UP: [Lie; 3] = [Lie::Up(SETUP), Lie::Up(INITIAL), Lie::Up(MEAN)];
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
            (true, MEAN) if is_formed => payload.len().checked_sub(4),
            (_, _) => of_another(self.node, payload),
        };
        let Some(number) = number.filter(|_| self.lie == lie) else { return frame };
        self.times += 1;
        let mut changed = Arc::unwrap_or_clone(frame);
        changed[frame::HEADER + number] ^= 1;
        frame::seal(&header, None, &mut changed);
        Arc::new(changed)
    }

    pub(super) fn change(&mut self, message: Message, whole: &Whole) -> Message {
        if let Lie::Tree(_) | Lie::Up(_) | Lie::Stops | Lie::TwoFaced(_) = self.lie {
            return message;
        }
        self.times += 1;
        let topology = &whole.design.topology;
        let all: Vec<NodeId> = (0..topology.nodes()).map(NodeId::from).collect();
        let others: Vec<NodeId> = all.iter().copied().filter(|node| *node != self.node).collect();
        match (self.lie, message) {
            (Lie::Raises | Lie::Withdraws, Message::Chooses(mut news)) => {
                for (node, view) in news.views.iter_mut().filter(|(node, _)| *node == self.node) {
                    view.number += self.times;
                    match self.lie {
                        Lie::Raises => {
                            let newest = [view.adopted + (self.times << 32)].into_iter();
                            view.adopted = Membership::after(newest, all.clone(), Vec::new()).id;
                        }
                        _ => {
                            view.late = topology.neighbours(*node).to_vec();
                            view.linked.clear();
                        }
                    }
                    view.signature = Named(*node).sign(&statement(*node, view));
                }
                Message::Chooses(news)
            }
            (Lie::Forges, Message::Chooses(_)) => {
                let view = |node: &NodeId| {
                    let choice = 1_000 + self.times;
                    let view = View { choice, over: true, started: true, ..View::default() };
                    // It has its own key only.
                    let signature = Named(self.node).sign(&statement(*node, &view));
                    (*node, View { signature, ..view })
                };
                let news = News { views: others.iter().map(view).collect() };
                Message::Chooses(news)
            }
            (Lie::Deletes | Lie::Counterfeits, Message::Statements(mut batch))
                if batch.statements.iter().any(|one| matches!(one.said, Said::Saved(_))) =>
            {
                let more = self.statements(&batch, whole.design.experiment.run.rounds);
                batch.statements.extend(more);
                Message::Statements(batch)
            }
            (_, message) => message,
        }
    }

    /// What it adds to these statements, in its own name or in that of another node.
    fn statements(&self, batch: &Batch, rounds: u64) -> Vec<Statement> {
        let names = |node: NodeId| (node == self.node) == (self.lie == Lie::Deletes);
        let Some(one) = batch.statements.iter().find(|one| names(one.node)) else {
            return Vec::new();
        };
        // As long as all are members, they have their numbers in the topology.
        let says = |said| {
            let (keys, numbers) = (Named(self.node), (one.node, one.node));
            Statement::signed(&keys, numbers, (0, one.attempt), said)
        };
        let (number, common) = ((1 << 20) + self.times, rounds - 5);
        let of_all = CheckpointSchedule { number, next: rounds, common };
        let schedules = (one.node == NodeId(0)).then_some(Said::Schedule(of_all));
        schedules.into_iter().chain([Said::Saved(common)]).map(says).collect()
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
