//! Frames and calls that arrive: the checks before any state changes.

use super::{
    Node, Stage, Trees,
    calls::{self, Turn},
    notice::Notice,
    rule,
};
use crate::{
    gossip::{
        event::{Effect, Failure},
        frame::Sealed,
        plan::{self, At, Meeting, Plan},
        stopping::Stopping,
        tree::{INITIAL, LAST_CALL, MEAN, SETUP, STOP, SUMMARY, TALLY},
    },
    units::NodeId,
};

impl Node {
    /// Checks a frame against the plan before anything changes.
    pub(super) fn arrived(
        &mut self,
        from: NodeId,
        bytes: Vec<u8>,
        out: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        let wrong = |reason: String| Failure::Peer { peer: from, reason };
        let sealed = Sealed::new(&bytes).map_err(|error| wrong(error.to_string()))?;
        let at = sealed.header.at;
        if at.flight == STOP {
            sealed
                .verify(crc32c::crc32c_append(sealed.sum, sealed.payload))
                .map_err(|error| wrong(error.to_string()))?;
            let keeps = self.stopping.as_ref().is_some_and(Stopping::keeps_best);
            if at.exchange > u16::from(keeps) {
                return Err(wrong(format!("{at}: there is no such notice")));
            }
            let signatures = &self.trees.averaging.signatures;
            let notice = Notice::read(&at, sealed.payload, signatures).map_err(wrong)?;
            self.transfer.recycle(from, bytes, out);
            // Who passes it on has not chosen the round: the node that asks has signed it. A notice
            // of this node comes back from nobody who has heard it in this attempt.
            let peer = if notice.by == self.id { from } else { notice.by };
            let ended = self.end_after(notice, Some(from));
            return ended.map_err(|reason| Failure::Peer { peer, reason });
        }
        if at.flight == TALLY {
            sealed
                .verify(crc32c::crc32c_append(sealed.sum, sealed.payload))
                .map_err(|error| wrong(error.to_string()))?;
            self.tallied(from, &at, sealed.payload).map_err(wrong)?;
            self.transfer.recycle(from, bytes, out);
            return Ok(());
        }
        let plan = self.place(from, &at);
        let (checked, sum) = match plan {
            Ok(plan) => plan.format(&at, from).check_and_sum(sealed.payload, sealed.sum),
            Err(_) => (Ok(()), crc32c::crc32c_append(sealed.sum, sealed.payload)),
        };
        // The checksum comes first: the header of a damaged frame would give a misleading error.
        sealed.verify(sum).map_err(|error| wrong(error.to_string()))?;
        plan.map_err(wrong)?;
        checked.map_err(|error| wrong(format!("{at}: {error}")))?;
        if at.flight == LAST_CALL {
            // Not buffered: answers of this neighbour to later calls must not queue behind it.
            self.transfer.recycle(from, bytes, out);
            return self.calls.leave(from).map_err(wrong);
        }
        if self.is_call(&at) {
            let checked = self.transfer.check_call(from, &bytes, &*self.plan);
            checked.map_err(|error| wrong(format!("{at}: {error}")))?;
            return self
                .calls
                .arrived(from, at.round, bytes)
                .map_err(|reason| wrong(format!("{at}: {reason}")));
        }
        self.flights.hold(from, at, bytes).map_err(wrong)?;
        self.transfer.read_on(from, out);
        Ok(())
    }

    /// Keeps the losses on validation rows of a child and the nodes below it.
    fn tallied(&mut self, from: NodeId, at: &At, payload: &[u8]) -> Result<(), String> {
        let Some(stopping) = &mut self.stopping else {
            return Err(format!("{at}: nothing of it is expected there"));
        };
        // No neighbour is further ahead than as many rounds as there are nodes.
        let ahead = self.lag + 2 + self.topology.nodes() as u64;
        let rounds = self.agreed.min(self.program.round().0.saturating_add(ahead));
        let kept = stopping.arrived(from, at.round.0, payload, rounds);
        kept.map_err(|reason| format!("{at}: {reason}"))
    }

    pub(super) fn is_call(&self, at: &At) -> bool {
        at.exchange == 0 && plan::launches(&*self.plan, at.flight) && self.plan.calls(at.flight)
    }

    /// Applies the update of the next call, or answers it, if a call can proceed.
    pub(super) fn answer(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
        let round = self.round().0;
        let works = matches!(self.stage, Stage::Rounds) && round < self.rounds;
        let own = if works { round } else { calls::INFINITY };
        let begins = works && self.program.is_at_gradient(&*self.plan);
        let Some(turn) = self.calls.next(own, begins, |peer| self.flights.has_slot(peer)) else {
            return Ok(false);
        };
        let (plan, party, local) = (&*self.plan, rule(&mut self.rule), &mut self.local);
        match turn {
            Turn::Apply(place) => {
                let call = self.calls.apply(place);
                self.transfer.apply_call(call.from, &call.bytes, plan, party, local);
            }
            Turn::Answer(place) => {
                let call = self.calls.remove(place);
                self.transfer.answer(call.from, call.bytes, plan, party, local, out)?;
                self.flights.take_slot(call.from);
            }
        }
        Ok(true)
    }

    /// The plan that a frame of this sender belongs to.
    ///
    /// # Errors
    /// The reason if there is none.
    pub(super) fn place(&self, from: NodeId, at: &At) -> Result<&dyn Plan, String> {
        let plan: &dyn Plan = match (at.flight, &self.trees) {
            (SETUP, Trees { setup: Some(plan), .. }) => plan,
            (INITIAL, Trees { initial: Some((_, plan)), .. }) => plan,
            (LAST_CALL, Trees { end_of_calls: Some(plan), .. }) => plan,
            (MEAN, Trees { mean, .. }) => mean,
            (SUMMARY, Trees { summary, .. }) => summary,
            _ => {
                // A caller is in a round of its own.
                let rounds = if self.is_call(at) {
                    0..self.agreed
                } else {
                    self.round().0.saturating_sub(self.lag)..self.rounds
                };
                if !rounds.contains(&at.round.0) {
                    return Err(format!(
                        "{at}: this node is in round {} of {}",
                        self.round(),
                        self.rounds
                    ));
                }
                &*self.plan
            }
        };
        let mut meeting = Meeting::default();
        if plan::launches(plan, at.flight)
            && at.exchange < plan.exchanges(at.flight)
            && !self.is_call(at)
        {
            plan.meet(self.id, at, &mut meeting);
        }
        let expected = if at.flight == LAST_CALL && self.trees.end_of_calls.is_some() {
            self.topology.neighbours(self.id).contains(&from)
        } else if self.is_call(at) {
            plan.meet(from, at, &mut meeting);
            meeting.send.contains(&self.id)
        } else {
            meeting.wait.contains(&from)
        };
        if expected { Ok(plan) } else { Err(format!("{at}: nothing of it is expected there")) }
    }
}
