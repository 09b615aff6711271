//! Long frames that arrive in pieces.

use super::{Node, rule};
use crate::{
    compress::Size,
    gossip::{
        event::{Effect, Failure},
        frame::HEADER,
        pieces::{Content, Incoming, Streamed, header_of},
        plan::{At, Meeting},
        tree::LAST_CALL,
    },
    units::NodeId,
};

/// The bytes of a block at the most, if a frame is added as it arrives: a block that two pieces
/// share is copied.
const LONGEST_BLOCK: usize = 64 << 10;

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
            let content = match self.streamed(from, length, &bytes).map_err(wrong)? {
                Some(streamed) => Content::Streamed(streamed),
                None => Content::Whole(self.transfer.whole(from, length).map_err(wrong)?),
            };
            self.incoming.insert(from, Incoming::new(length, content));
        }
        let incoming = self.incoming.get_mut(&from).expect("it was started");
        incoming.count(bytes.len()).map_err(wrong)?;
        let is_whole = incoming.is_whole();
        match &mut incoming.content {
            Content::Streamed(streamed) => {
                let at = streamed.at;
                let format = self.plan.format(&at, from);
                let start = if begins { HEADER } else { 0 };
                streamed
                    .take(bytes, start, format)
                    .map_err(|error| wrong(format!("{at}: {error}")))?;
                if is_whole {
                    streamed.verify().map_err(|error| wrong(error.to_string()))?;
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
    fn streamed(
        &mut self,
        from: NodeId,
        length: usize,
        piece: &[u8],
    ) -> Result<Option<Streamed>, String> {
        let Some((sealed, header)) = header_of(piece) else { return Ok(None) };
        let at = header.at;
        let of_rule = at.flight < LAST_CALL && self.place(from, &at).is_ok();
        if !of_rule || self.is_call(&at) || !self.transfer.may_add_pieces() {
            return Ok(None);
        }
        let format = self.plan.format(&at, from);
        let Some(payload) = length.checked_sub(HEADER) else { return Ok(None) };
        let blocks = format.blocks().filter(|(blocks, len)| {
            *len > 0 && blocks.bytes <= LONGEST_BLOCK && format.size() == Size::Exact(payload)
        });
        let Some(blocks) = blocks else { return Ok(None) };
        if self.flights.holds(from, &at) {
            return Err(format!("a second frame for {at}"));
        }
        let Some(rule) = &mut self.rule else { return Ok(None) };
        let adds = rule.target(&mut self.local, &at, from).is_some();
        Ok(adds.then(|| Streamed::begin(&sealed, piece, blocks, payload)))
    }

    /// Adds the numbers that have arrived to the sums of open exchanges, each sender's as far as
    /// those of the senders before it; `true` if the last numbers of a frame were added.
    pub(super) fn add_pieces(&mut self, out: &mut Vec<Effect>) -> Result<bool, Failure> {
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
                let Some(Incoming { content: Content::Streamed(streamed), .. }) =
                    self.incoming.get_mut(&from)
                else {
                    break;
                };
                if streamed.at != at {
                    break;
                }
                let noise = self.transfer.noise(&at, from, &*self.plan);
                let format = self.plan.format(&at, from);
                let party = rule(&mut self.rule);
                let acc = party.target(&mut self.local, &at, from).expect("it was asked before");
                let free = |buffer| out.push(Effect::Recycle { from, buffer });
                streamed.add(acc, most, format, noise, free);
                if !streamed.is_over() {
                    most = streamed.added();
                    continue;
                }
                if let Some(Incoming { content: Content::Streamed(streamed), .. }) =
                    self.incoming.remove(&from)
                {
                    let held = self.flights.hold(from, at, streamed.into_header());
                    held.map_err(|reason| Failure::Peer { peer: from, reason })?;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }
}
