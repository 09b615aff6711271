//! Fingerprints of the vectors that all neighbours of a node have a copy of.
//!
//! The owner of a vector and each neighbour form the same SHA-256, one for each flight. It begins
//! when the node does, so all nodes have to begin at the same round. It is over this of each frame:
//!
//! ```text
//! round u64 | checksum u32 | a stretch of the vector after this frame
//! ```
//! The checksum covers the whole frame, so neighbours that got different frames soon find it. But
//! who makes frames can make two with the same CRC. Hence the stretch: a 512th of the vector,
//! another one in each round. Two copies that stay different have different fingerprints within
//! [`ALL`] rounds, whatever the frames. The whole vector at once takes as long as some rounds of
//! 4-bit differences; a stretch a round takes less than a hundredth of a round.

use litemap::LiteMap;

use super::{frame, plan::At};
use crate::{
    digest::Hasher,
    units::{NodeId, Round},
};

/// Rounds between two fingerprints, once a run is that old.
pub(crate) const SHARED_EVERY: u64 = 256;

/// Rounds in which each number of a vector is hashed once.
const ALL: usize = 512;

/// The hashes of one node, each by the owner of its vector and the flight.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(LiteMap<(NodeId, u8), Hasher>);

impl Fingerprints {
    /// Adds a frame, and the vector of `of` after it; the fingerprint, if one is due in this round.
    pub(super) fn add(
        &mut self,
        of: NodeId,
        at: &At,
        frame: &[u8],
        vector: &[f32],
    ) -> Option<[u8; 16]> {
        let hasher = self.0.entry((of, at.flight)).or_default();
        hasher.add_number(at.round.0);
        hasher.add_bytes(&frame::checksum(frame).to_le_bytes());
        hasher.add_floats(stretch(vector, at.round));
        is_shared_round(at.round.0).then(|| hasher.fingerprint())
    }
}

/// Whether a fingerprint is due: in rounds 0, 16, 32, 64, 128, 256 and each multiple of 256.
pub(crate) fn is_shared_round(round: u64) -> bool {
    let early = round.is_multiple_of(16) && (round / 16).is_power_of_two();
    early || round.is_multiple_of(SHARED_EVERY)
}

/// The part of a vector that is hashed in this round.
fn stretch(vector: &[f32], Round(round): Round) -> &[f32] {
    let mut stretches = vector.chunks(vector.len().div_ceil(ALL).max(1));
    let number = round % stretches.len().max(1) as u64;
    stretches.nth(number as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::frame::Header;

    fn place(round: u64) -> At {
        At { round: Round(round), flight: 0, exchange: 0 }
    }

    fn sealed(round: u64, payload: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::new();
        frame::reserve(&mut buffer);
        buffer.extend_from_slice(payload);
        frame::seal(&Header { at: place(round), replica: None }, None, &mut buffer);
        buffer
    }

    /// The last of the fingerprints over so many rounds, in which a node sends `frame` and its
    /// vector is `vector`.
    fn last<'a>(
        rounds: u64,
        frame: impl Fn(u64) -> Vec<u8>,
        vector: impl Fn(u64) -> &'a [f32],
    ) -> [u8; 16] {
        let mut prints = Fingerprints::default();
        let one = |round| prints.add(NodeId(1), &place(round), &frame(round), vector(round));
        (0..=rounds).filter_map(one).last().expect("one is due in round 0")
    }

    #[test]
    fn another_frame_in_any_round_is_found_at_the_next_fingerprint() {
        let vector = [1.0; 700];
        let with = |other: Option<u64>| {
            let payload = |round| if Some(round) == other { b"other" } else { b"frame" };
            last(256, |round| sealed(round, payload(round)), |_| &vector)
        };
        let same = with(None);
        (0..=256).for_each(|round| assert_ne!(with(Some(round)), same, "round {round}"));
        assert_eq!(with(Some(257)), same);
    }

    /// A multiple of the polynomial of CRC-32C, added to a payload, leaves its checksum.
    #[test]
    fn another_number_is_found_also_if_the_checksums_of_the_frames_are_equal() {
        let payload = [0u8; 8];
        let mut other = payload;
        // From x^32, the lowest bit, on to x^0.
        for (byte, add) in other.iter_mut().zip([0xf1, 0x76, 0xec, 0x05, 0x01]) {
            *byte ^= add;
        }
        assert_eq!(sealed(0, &payload)[..frame::HEADER], sealed(0, &other)[..frame::HEADER]);
        for len in [1, 2, 511, 512, 513, 1_000, 5_000] {
            let vector = vec![0.5; len];
            let same = last(512, |round| sealed(round, &payload), |_| &vector);
            for index in [0, len / 3, len / 2, len - 1] {
                let mut wrong = vector.clone();
                wrong[index] = f32::from_bits(wrong[index].to_bits() ^ 1);
                let found = last(512, |round| sealed(round, &other), |_| &wrong);
                assert_ne!(found, same, "number {index} of {len}");
            }
        }
    }

    #[test]
    fn stretches_make_the_whole_vector() {
        for len in [0usize, 1, 511, 512, 513, 700, 1_025] {
            let vector: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let longest = (0..512).map(|round| stretch(&vector, Round(round)).len()).max();
            assert_eq!(longest, Some(len.div_ceil(512)));
            let mut all: Vec<f32> =
                (512..1_024).flat_map(|round| stretch(&vector, Round(round)).to_vec()).collect();
            all.sort_by(f32::total_cmp);
            all.dedup();
            assert_eq!(all, vector);
        }
    }

    #[test]
    fn rounds_of_fingerprints() {
        let due: Vec<u64> = (0..1_100).filter(|&round| is_shared_round(round)).collect();
        assert_eq!(due, [0, 16, 32, 64, 128, 256, 512, 768, 1_024]);
    }
}
