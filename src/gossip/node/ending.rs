//! The end of the rounds: at the limit, or earlier because one node requests it.

use std::sync::Arc;

use super::{Node, Stage, Trees, notice::Notice, rule};
use crate::{
    gossip::{
        event::{Effect, Failure},
        party::Local,
        plan::At,
        stopping::{Patience, Stopping, rounds_of_a_link},
        transfer::Exchange,
        tree::{LAST_CALL, Leaving, Mean, TALLY},
    },
    units::{NodeId, Round},
};

impl Node {
    /// The number of rounds from now on in which every node learns that the run ends. A notice
    /// crosses a link before the frames of the rounds after it. So each link on its way takes as
    /// many rounds as a neighbour may be ahead, times the rounds in which a schedule uses every
    /// link.
    pub(super) fn rounds_to_inform(&self) -> u64 {
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        self.topology.graph().distances(self.id, &mut distances, &mut order);
        let farthest = distances.iter().copied().filter(|far| *far != u32::MAX).max().unwrap_or(0);
        (u64::from(farthest) + 1) * rounds_of_a_link(&*self.plan)
    }

    /// Ends the rounds after the last one of a notice, unless they end before it, and marks the
    /// neighbours to inform. An asynchronous node that is past that round finishes the round in
    /// progress.
    ///
    /// # Errors
    /// If this node is past that round and rounds are synchronous.
    pub(super) fn end_after(&mut self, notice: Notice, from: Option<NodeId>) -> Result<(), String> {
        let Notice { last, takes_best, .. } = notice;
        let (round, rounds) = (self.round().0, last.0.saturating_add(1));
        // Two requests may name the same round; then the losses count at all nodes.
        let is_known = rounds == self.rounds && (self.takes_best || !takes_best);
        if is_known || rounds > self.rounds || rounds >= self.agreed {
            return Ok(());
        }
        if last.0 < round && self.trees.end_of_calls.is_none() {
            return Err(format!(
                "the run is to end after round {last}, and round {round} has started"
            ));
        }
        self.rounds = self.rounds.min(last.0.max(round) + 1);
        self.takes_best = takes_best;
        self.pass_on(Some(notice), from);
        Ok(())
    }

    /// The notice of this node.
    pub(super) fn own_notice(&self, last: Round, takes_best: bool) -> Notice {
        Notice::of(self.id, last, takes_best, &self.trees.averaging.signatures)
    }

    /// Marks the neighbours to inform, but for the one that has informed this node.
    pub(super) fn pass_on(&mut self, notice: Option<Notice>, from: Option<NodeId>) {
        let neighbours = self.topology.neighbours(self.id);
        let others = neighbours.iter().copied().filter(|&peer| Some(peer) != from);
        self.uninformed = others.filter(|_| notice.is_some()).collect();
        self.notice = notice;
    }

    /// The node that has asked for an early end, if one has and the losses have not.
    pub(crate) fn ended_by(&self) -> Option<NodeId> {
        let asked = self.notice.as_ref().filter(|notice| !notice.takes_best);
        let by = asked.map(|notice| notice.by);
        by.filter(|by| self.stopping.is_none() || by.index() > 0)
    }

    /// This node's part in early stopping, from this round on.
    pub(super) fn watch(&self, patience: Patience, from: Round) -> Stopping {
        let hop = rounds_of_a_link(&*self.plan);
        let signatures = &self.trees.averaging.signatures;
        Stopping::new(patience, &self.topology, self.id, hop, from.0, signatures)
    }

    /// Requests the early end in the round in which the losses say so.
    pub(super) fn decide(&mut self, round: Round) {
        let Some(stopping) = &mut self.stopping else { return };
        let takes_best = stopping.keeps_best();
        if stopping.decides(round.0) {
            let last = Round(round.0 + stopping.delay());
            let notice = self.own_notice(last, takes_best);
            self.end_after(notice, None).expect("it ends later than now");
        }
    }

    /// Sends the losses on validation rows to the parent in the tree, before later frames.
    pub(super) fn tell_tallies(&mut self, out: &mut Vec<Effect>) {
        let Node { flights, transfer, stopping, .. } = self;
        let Some(stopping) = stopping else { return };
        let Some(parent) = stopping.parent() else { return };
        while flights.has_slot(parent)
            && let Some((round, tallies)) = stopping.next()
        {
            flights.take_slot(parent);
            let at = At { round: Round(round), flight: TALLY, exchange: 0 };
            transfer.send_bytes(parent, at, &tallies, out);
        }
    }

    /// Sends the notice of an earlier end before any other frame.
    pub(super) fn inform(&mut self, out: &mut Vec<Effect>) {
        let Node { flights, transfer, uninformed, notice, .. } = self;
        let Some(notice) = notice else { return };
        uninformed.retain(|&peer| {
            let slot = flights.has_slot(peer);
            if slot {
                flights.take_slot(peer);
                transfer.send_bytes(peer, notice.at(), &notice.payload(), out);
            }
            !slot
        });
    }

    /// Sends the notices that this node makes no more calls. A call that came before a neighbour's
    /// notice is answered before the model is final.
    pub(super) fn end_calls(&mut self, out: &mut Vec<Effect>) -> Result<(), Failure> {
        let Node { flights, transfer, local, trees, .. } = self;
        let plan = trees
            .end_of_calls
            .as_ref()
            .expect("a plan that calls ends with a notice of the last call");
        let party = &mut Leaving;
        flights.advance(plan, &mut Exchange { transfer, plan, party, local, out })?;
        let left = |&peer: &NodeId| self.calls.has_left(peer);
        let all_left = self.topology.neighbours(self.id).iter().all(left);
        if all_left && self.calls.is_empty() && flights.land(Round(0), LAST_CALL) {
            self.end_rounds(out)?;
        }
        Ok(())
    }

    /// The model is final: requests that it is saved, drops the rule and starts to form the mean.
    pub(super) fn end_rounds(&mut self, out: &mut Vec<Effect>) -> Result<(), Failure> {
        self.spent = self.transfer.traffic;
        // The model goes into the buffer of the update.
        let mut model = std::mem::take(&mut self.local.update);
        model.resize(self.parameters, 0.0);
        rule(&mut self.rule).model(&self.local, &mut model);
        self.growth.check(Round(self.round().0.saturating_sub(1)), &model)?;
        let rounds = self.round().0;
        let best = self.stopping.as_mut().and_then(|stopping| stopping.best_model(rounds));
        if let Some(best) = best.filter(|best| self.takes_best && best.len() == model.len()) {
            model = best;
        }
        self.model = Arc::new(model);
        // Frees the rule's state and the rounds' frames, so that the mean can use their memory.
        (self.rule, self.local) = (None, Local::default());
        self.transfer.forget_buffers();
        out.push(Effect::Save(self.own_model()));
        let Trees { mean: plan, averaging, .. } = &self.trees;
        let given = self.transfer.distorted(&plan.launch(), &self.model);
        let mean = Mean::new(plan, averaging, self.id, self.parameters, Some(&given));
        self.flights.launch(plan.launch(), plan);
        self.stage = Stage::Mean(mean);
        Ok(())
    }
}
