//! What a node keeps and gives away: its snapshots, and its model when a run ends early.

use std::sync::Arc;

use super::{Node, NodeConfig, RULE, Stage, growth::Growth, notice::Notice, rule};
use crate::{
    gossip::{
        event::OwnModel,
        program::Program,
        snapshot::{Rejoin, Snapshot},
        traffic::Traffic,
        tree::{Averaging, Givers, INITIAL, TreePlan},
    },
    state::{State, Visitor},
    units::Round,
};

impl Node {
    /// A node that continues from a snapshot. There is no setup: its learner keeps the merged
    /// record.
    pub fn resume(config: NodeConfig, snapshot: Snapshot) -> Node {
        let mut node = Node::new(NodeConfig { setup: None, initial_from: None, ..config });
        let Snapshot { rounds, x, rule, traffic, links, growth, model: _ } = snapshot;
        node.program = Program::at(rounds);
        node.transfer.count_from(traffic, &links);
        node.growth = Growth::of(growth);
        node.restored = Some((x, rule));
        node
    }

    /// A node that begins at the mean of some models; the rule and the learner start from the
    /// beginning there.
    pub fn rejoin(config: NodeConfig, rejoin: Rejoin) -> Node {
        let Rejoin { rounds, own, givers, merged, traffic } = rejoin;
        let setup = config.setup.map(|setup| setup.keep(merged));
        let patience = config.stopping;
        let mut node = Node::new(NodeConfig { initial_from: None, setup, ..config });
        node.transfer.count_from(traffic, &[]);
        node.stopping = patience.map(|patience| node.watch(patience, rounds));
        let givers = Givers::These(givers);
        let initial = Averaging { givers, ..node.trees.averaging.clone() };
        let (topology, readers) = (&node.topology, node.trees.readers);
        let plan = TreePlan::models(topology, INITIAL, node.parameters, &initial, readers);
        node.trees.initial = Some((initial, plan));
        node.local.x = own.unwrap_or(node.local.x);
        node.program = Program::at(rounds);
        node
    }

    /// This node's current model, for a run that ends early: the model after the last complete
    /// round, or with the step and a part of the mixing of the next one. `lent` returns the model
    /// that [`Compute`](super::super::Effect::Compute) lent, if available. `None` before a round is
    /// complete.
    pub fn salvage(&self, lent: impl FnOnce() -> Option<Vec<f32>>) -> Option<OwnModel> {
        // A node that continues from a mean has no model of its own before it is formed.
        let begins = self.rule.is_none() && self.model.is_empty();
        if self.round() == Round(0) || begins {
            return None;
        }
        let x = match &self.rule {
            None => Arc::clone(&self.model),
            Some(_) if self.program.is_computing() => Arc::new(lent()?),
            Some(_) => Arc::new(self.current()),
        };
        Some(OwnModel { x, ..self.own_model() })
    }

    /// Whether the final mean still lacks this node's model: then no other node can have finished.
    pub(crate) fn owes_its_model(&self) -> bool {
        !matches!(
            self.stage,
            Stage::Mean(_) | Stage::Concluding | Stage::Summary(_) | Stage::Done | Stage::Failed
        )
    }

    /// A copy of the current model.
    pub(super) fn current(&self) -> Vec<f32> {
        let mut x = vec![0.0; self.parameters];
        self.rule.as_ref().expect(RULE).model(&self.local, &mut x);
        x
    }

    /// The traffic so far, with the model if the rounds are over.
    pub(super) fn own_model(&self) -> OwnModel {
        let traffic = self.transfer.traffic;
        let spent = if self.rule.is_some() { traffic } else { self.spent };
        OwnModel {
            rounds: self.round(),
            x: Arc::clone(&self.model),
            traffic: Traffic { tree: traffic.tree, ..spent },
            links: self.transfer.by_link(),
        }
    }

    /// Visits what later rounds need besides the model.
    pub(super) fn state(&mut self, visitor: &mut dyn Visitor) {
        rule(&mut self.rule).state(visitor);
        let Some(stopping) = &mut self.stopping else { return };
        stopping.state(visitor);
        let keeps_best = stopping.keeps_best();
        // A run that is to end early ends after the same round; the neighbours hear of it again.
        let mut rounds = if self.rounds < self.agreed { self.rounds as f64 } else { 0.0 };
        visitor.number("stopping.rounds", &mut rounds);
        let mut takes_best = f64::from(u8::from(self.takes_best));
        if keeps_best {
            visitor.number("stopping.takes_best", &mut takes_best);
        }
        let mut notice = self.notice.as_ref().map(Notice::to_numbers).unwrap_or_default();
        visitor.vector("stopping.notice", &mut notice);
        if rounds > 0.0 && self.rounds == self.agreed {
            self.rounds = rounds as u64;
            self.takes_best = takes_best > 0.0;
            self.pass_on(Notice::from_numbers(&notice), None);
        }
    }

    /// A copy of the state between two rounds.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let model = self.current();
        Snapshot {
            rounds: self.round(),
            x: self.local.x.clone(),
            model: (model != self.local.x).then_some(model),
            rule: State::copy(|visitor| self.state(visitor)),
            traffic: self.transfer.traffic,
            links: self.transfer.by_link(),
            growth: self.growth.numbers(),
        }
    }
}
