//! Long frames that arrive in pieces.

use super::{Node, rule};
use crate::{
    gossip::{
        event::{Effect, Failure},
        frame::HEADER,
        pieces::{Content, Incoming, Poured, header_of},
        plan::{At, Meeting},
        rule::Rule,
    },
    units::NodeId,
};

impl Node {
    /// Checks a piece, and keeps it until its numbers can be added; or puts its frame together.
    pub(super) fn arrived_piece(
        &mut self,
        from: NodeId,
        length: usize,
        bytes: Vec<u8>,
        out: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        let wrong = |reason: String| Failure::Peer { peer: from, reason };
        let begins = !self.incoming.contains_key(&from);
        if begins {
            let content = match self.poured(from, length, &bytes).map_err(wrong)? {
                Some(poured) => Content::Poured(poured),
                None => Content::Whole(self.transfer.whole(from, length)),
            };
            self.incoming.insert(from, Incoming::new(length, content));
        }
        let incoming = self.incoming.get_mut(&from).expect("it was begun");
        incoming.count(bytes.len()).map_err(wrong)?;
        let is_whole = incoming.is_whole();
        match &mut incoming.content {
            Content::Poured(poured) => {
                let at = poured.at;
                let format = self.plan.format(&at, from);
                let start = if begins { HEADER } else { 0 };
                poured
                    .take(bytes, start, format)
                    .map_err(|error| wrong(format!("{at}: {error}")))?;
                if is_whole {
                    poured.verify().map_err(|error| wrong(error.to_string()))?;
                }
                Ok(())
            }
            Content::Whole(whole) => {
                whole.extend_from_slice(&bytes);
                if !is_whole {
                    out.push(Effect::Recycle { from, buffer: bytes });
                    return Ok(());
                }
                let whole = std::mem::take(whole);
                self.incoming.remove(&from);
                self.transfer.keep_piece(from, bytes);
                self.arrived(from, whole, out)
            }
        }
    }

    /// The frame that begins with this piece, if its numbers can be added as they arrive; `None` if
    /// it must be put together.
    ///
    /// # Errors
    /// If it repeats a frame.
    fn poured(
        &mut self,
        from: NodeId,
        length: usize,
        piece: &[u8],
    ) -> Result<Option<Poured>, String> {
        let Some((sealed, header)) = header_of(piece) else { return Ok(None) };
        let at = header.at;
        let of_rule = self.place(from, &at).is_ok_and(|plan| std::ptr::eq(plan, &*self.plan));
        if !of_rule || self.is_call(&at) || !self.transfer.may_pour(&at) {
            return Ok(None);
        }
        let format = self.plan.format(&at, from);
        let fits =
            format.plain().is_some_and(|(width, len)| len > 0 && length == HEADER + width * len);
        let adds = |rule: &mut Box<dyn Rule>| rule.sum(&mut self.local, &at, from).is_some();
        if !fits || !self.rule.as_mut().is_some_and(adds) {
            return Ok(None);
        }
        if self.flights.holds(from, &at) {
            return Err(format!("a second frame for {at}"));
        }
        Ok(Poured::begin(&sealed, piece, format))
    }

    /// Adds the numbers that have arrived to the sums of open exchanges, each sender's as far as
    /// those of the senders before it; `true` if the last numbers of a frame were added.
    pub(super) fn pour(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
        if self.incoming.is_empty() {
            return Ok(false);
        }
        let (mut moved, mut meeting) = (false, Meeting::default());
        let open: Vec<(At, usize)> = self.flights.open().collect();
        for (at, done) in open {
            meeting.clear();
            self.plan.meet(self.id, &at, &mut meeting);
            let mut most = usize::MAX;
            for &from in &meeting.wait[done..] {
                let Some(Incoming { content: Content::Poured(poured), .. }) =
                    self.incoming.get_mut(&from)
                else {
                    break;
                };
                if poured.at != at {
                    break;
                }
                let noise = self.transfer.noise(&at, from, &*self.plan);
                let format = self.plan.format(&at, from);
                let party = rule(&mut self.rule);
                let acc = party.sum(&mut self.local, &at, from).expect("it was asked before");
                let free = |buffer| out.push(Effect::Recycle { from, buffer });
                poured.pour(acc, most, format, noise, free);
                if !poured.is_over() {
                    most = poured.added();
                    continue;
                }
                if let Some(Incoming { content: Content::Poured(poured), .. }) =
                    self.incoming.remove(&from)
                {
                    let held = self.flights.hold(from, at, poured.into_header());
                    held.map_err(|reason| Failure::Peer { peer: from, reason })?;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }
}
