//! A member whose program is not that of the others: what it sends is changed on its way out.

use super::{super::wires::Message, *};
use crate::{
    cluster::{
        assembly::{News, View},
        keys::{self, Keys, Named},
        message::{CheckpointId, CheckpointSchedule, StartMessage},
    },
    drive::Membership,
};

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Lie {
    /// It proposes members without another node, under ever higher numbers.
    Evicts,
    /// It cuts the links of others.
    Cuts,
    /// It says that all others take the run for over.
    Forges,
    /// It proposes itself with nobody else, which no run can have.
    Alone,
    /// It says that it has a checkpoint of far later members, and asks to begin there.
    Dictates,
    /// It asks all to remove their checkpoints, and to write others all the time.
    Deletes,
}

pub(in super::super) const LIES: [Lie; 6] =
    [Lie::Evicts, Lie::Cuts, Lie::Forges, Lie::Alone, Lie::Dictates, Lie::Deletes];

pub(in super::super) struct Liar {
    pub node: NodeId,
    pub lie: Lie,
    /// How often it has lied.
    pub times: u64,
}

impl Liar {
    pub(in super::super) fn change(&mut self, message: Message, whole: &Whole) -> Message {
        self.times += 1;
        let topology = &whole.design.topology;
        let all: Vec<NodeId> = (0..topology.nodes()).map(NodeId::from).collect();
        let newest = self.times << 32;
        let propose = |members: Vec<NodeId>, cut: Vec<(NodeId, NodeId)>| {
            Some(Membership::after([newest].into_iter(), members, cut))
        };
        let others: Vec<NodeId> = all.iter().copied().filter(|node| *node != self.node).collect();
        match (self.lie, message) {
            (Lie::Evicts, Message::Start(StartMessage::Assembly(news))) => {
                let victim = others[self.times as usize % others.len()];
                let members = all.iter().copied().filter(|node| *node != victim).collect();
                let news = News { proposal: propose(members, Vec::new()), ..news };
                Message::Start(StartMessage::Assembly(news))
            }
            (Lie::Cuts, Message::Start(StartMessage::Assembly(news))) => {
                let edges: Vec<_> = topology.edges().collect();
                let cut = vec![edges[self.times as usize % edges.len()]];
                let news = News { proposal: propose(all, cut), ..news };
                Message::Start(StartMessage::Assembly(news))
            }
            (Lie::Alone, Message::Start(StartMessage::Assembly(news))) => {
                let news = News { proposal: propose(vec![self.node], Vec::new()), ..news };
                Message::Start(StartMessage::Assembly(news))
            }
            (Lie::Forges, Message::Start(StartMessage::Assembly(news))) => {
                let view = |node: &NodeId| {
                    let number = 1_000 + self.times;
                    let view = View { number, over: true, started: true, ..View::default() };
                    // It has its own key only.
                    let signature = Named(self.node).sign(&keys::statement(*node, &view));
                    (*node, View { signature, ..view })
                };
                let news = News { views: others.iter().map(view).collect(), ..news };
                Message::Start(StartMessage::Assembly(news))
            }
            (Lie::Dictates, Message::Start(StartMessage::Ready(mut saved))) => {
                let far = CheckpointId { membership: 9 << 32, rounds: 1 };
                for (_, kept) in &mut saved.nodes {
                    *kept = vec![far];
                }
                Message::Start(StartMessage::Ready(saved))
            }
            (Lie::Dictates, Message::Start(StartMessage::Begin(mut at))) => {
                (at.rounds, at.from_mean) = (0, false);
                Message::Start(StartMessage::Begin(at))
            }
            (Lie::Deletes, Message::Saved(_)) => {
                Message::Saved(all.into_iter().map(|node| (node, 25)).collect())
            }
            (Lie::Deletes, Message::Schedule(schedule)) => {
                let (number, next) = (schedule.number + self.times, schedule.next + self.times);
                Message::Schedule(CheckpointSchedule { number, next, common: 25 })
            }
            (_, message) => message,
        }
    }
}
