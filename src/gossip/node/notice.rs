//! The notice that all nodes end after a round: who asks for it, with its signature, which others
//! pass on unchanged. So nobody asks in the name of another node; the root alone says that the
//! losses end the run.

use crate::{
    gossip::{
        plan::At,
        tree::{SIGNATURE, STOP, Signatures},
    },
    units::{NodeId, Round},
};

/// The root of the spanning tree, which decides by the losses.
const ROOT: NodeId = NodeId(0);

/// The bytes of a node's number.
const NUMBER: usize = 4;

/// The bytes of a notice in the state of a node: the round, whether the losses ask for it, and what
/// is sent.
const KEPT: usize = 8 + 1 + NUMBER + SIGNATURE;

/// A notice of an early end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Notice {
    /// The last round.
    pub last: Round,
    /// Whether the losses ask for it, so that the model of the lowest one is the result.
    pub takes_best: bool,
    /// The node that asks.
    pub by: NodeId,
    signature: Vec<u8>,
}

/// What the signature covers.
fn content(last: Round, takes_best: bool) -> Vec<u8> {
    [&last.0.to_le_bytes()[..], &[u8::from(takes_best)]].concat()
}

impl Notice {
    /// The notice of this node.
    pub(super) fn of(by: NodeId, last: Round, takes_best: bool, signatures: &Signatures) -> Notice {
        let signature = signatures.signature(STOP, &content(last, takes_best));
        Notice { last, takes_best, by, signature }
    }

    /// The position of its frames.
    pub(super) fn at(&self) -> At {
        At { round: self.last, flight: STOP, exchange: u16::from(self.takes_best) }
    }

    /// The payload of its frames: the node's number and signature.
    pub(super) fn payload(&self) -> Vec<u8> {
        [&self.by.0.to_le_bytes()[..], &self.signature].concat()
    }

    /// The notice in a frame at this position.
    ///
    /// # Errors
    /// If the bytes are no notice, or the node that they name has not signed them.
    pub(super) fn read(at: &At, payload: &[u8], signatures: &Signatures) -> Result<Notice, String> {
        let Some((by, signature)) =
            payload.split_first_chunk().filter(|(_, rest)| rest.len() == SIGNATURE)
        else {
            let (length, expected) = (payload.len(), NUMBER + SIGNATURE);
            return Err(format!("{at}: a notice of {length} bytes, {expected} belong there"));
        };
        let (by, takes_best) = (NodeId(u32::from_le_bytes(*by)), at.exchange > 0);
        if takes_best && by != ROOT {
            return Err(format!("{at}: the root decides by the losses, and not node {by}"));
        }
        if !signatures.fits(STOP, by, &content(at.round, takes_best), signature) {
            return Err(format!("{at}: node {by} has not signed this notice"));
        }
        Ok(Notice { last: at.round, takes_best, by, signature: signature.to_vec() })
    }

    /// The notice as numbers of a state.
    pub(super) fn to_numbers(&self) -> Vec<f32> {
        let bytes = [content(self.last, self.takes_best), self.payload()].concat();
        bytes.into_iter().map(f32::from).collect()
    }

    /// The same again; `None` if there was none.
    pub(super) fn from_numbers(numbers: &[f32]) -> Option<Notice> {
        let bytes: Vec<u8> = numbers.iter().map(|number| *number as u8).collect();
        let (last, rest) = bytes.split_first_chunk().filter(|_| bytes.len() == KEPT)?;
        let (takes_best, rest) = rest.split_first()?;
        let (by, signature) = rest.split_first_chunk()?;
        Some(Notice {
            last: Round(u64::from_le_bytes(*last)),
            takes_best: *takes_best > 0,
            by: NodeId(u32::from_le_bytes(*by)),
            signature: signature.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_survives_its_frame_and_a_state() {
        let signatures = Signatures::default();
        let notice = Notice::of(NodeId(3), Round(1 << 40), false, &signatures);
        assert_eq!(Notice::read(&notice.at(), &notice.payload(), &signatures), Ok(notice.clone()));
        assert_eq!(Notice::from_numbers(&notice.to_numbers()), Some(notice));
        assert_eq!(Notice::from_numbers(&[]), None);
    }
}
