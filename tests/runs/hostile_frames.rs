//! Bytes from a neighbour never panic, and frames that cannot belong to the run end it with the
//! neighbour's name before any state changes.

use common::{
    Run,
    driver::{Driven, refusal, sealed, sent},
};
use gradvine::{
    gossip::{Effect, Input, frame, plan::At},
    units::{NodeId, Round},
};
use proptest::prelude::*;

/// Node 0 of a ring of 4 in round 0, waiting for frames; and the frame that it sent.
fn waiting() -> (Driven, Vec<u8>) {
    waiting_with("kind = 'min-max'")
}

/// The same with this compressor.
fn waiting_with(compressor: &str) -> (Driven, Vec<u8>) {
    started("kind = 'dcd'", compressor)
}

fn started(rule: &str, compressor: &str) -> (Driven, Vec<u8>) {
    let mut node = Driven::new(Run::new("ring:4", rule, compressor).specs().swap_remove(0));
    let effects = node.settle(Input::Start);
    let (_, frame) = sent(&effects).pop().expect("a frame leaves after the gradient");
    (node, frame)
}

#[test]
fn a_good_frame_is_taken_and_a_second_one_is_not() {
    let (mut node, frame) = waiting();
    assert_eq!(node.refuses(1, frame.clone()), None);
    assert_eq!(node.refuses(3, frame), None);
}

#[test]
fn frames_that_do_not_belong_are_refused_with_the_reason() {
    let payload = {
        let (_, frame) = waiting();
        frame[frame::HEADER..].to_vec()
    };
    let at = |round, flight, exchange| At { round: Round(round), flight, exchange };
    let cases: [(u32, Vec<u8>, &str); 8] = [
        (1, Vec::new(), "a frame of 0 bytes"),
        (1, vec![0; 30], "checksum"),
        (2, sealed(at(0, 0, 0), &payload), "nothing of it is expected"), // no neighbour of node 0
        (1, sealed(at(0, 1, 0), &payload), "nothing of it is expected"), // no such flight
        (1, sealed(at(0, 0, 1), &payload), "nothing of it is expected"), // no such exchange
        (1, sealed(at(900, 0, 0), &payload), "this node is in round 0 of 30"),
        (1, sealed(at(0, 0, 0), &payload[1..]), "bytes"),
        (1, sealed(at(0, 250, 0), &payload), "nothing of it is expected"), // no setup in this run
    ];
    for (from, bytes, expected) in cases {
        let (mut node, _) = waiting();
        let reason = node.refuses(from, bytes).unwrap_or_default();
        assert!(reason.contains(expected), "{reason:?} should say {expected:?}");
    }
}

#[test]
fn a_neighbour_cannot_run_ahead_without_limit() {
    let (mut node, frame) = waiting();
    let payload = frame[frame::HEADER..].to_vec();
    let refused = (1..30).find_map(|round| {
        node.refuses(1, sealed(At { round: Round(round), flight: 0, exchange: 0 }, &payload))
    });
    assert!(refused.unwrap().contains("frames ahead"));
}

/// Node 0 of a ring of 4 that has sent its frame of this round of dense D-PSGD and waits for two,
/// and that frame.
fn waiting_with_floats(last: u64) -> (Driven, Vec<u8>) {
    let (mut node, mut frame) = started("kind = 'd-psgd'", "kind = 'identity'");
    for _ in 0..last {
        let mut effects = Vec::new();
        for from in [1, 3].map(NodeId) {
            effects.extend(node.settle(Input::Frame { from, bytes: frame.clone() }));
        }
        frame = sent(&effects).pop().expect("the round is over").1;
    }
    assert_eq!(frame[..8], last.to_le_bytes());
    (node, frame)
}

/// Gives the first bytes of a frame of `length` bytes in pieces of this size; returns the reason of
/// the failure, if any, and how many pieces were returned.
fn give_pieces(
    node: &mut Driven,
    from: u32,
    length: usize,
    bytes: &[u8],
    size: usize,
) -> (Option<String>, usize) {
    let mut returned = 0;
    for piece in bytes.chunks(size) {
        let piece = Input::Piece { from: NodeId(from), length, bytes: piece.to_vec() };
        let effects = node.give(piece);
        let recycled = |effect: &&Effect| matches!(effect, Effect::Recycle { .. });
        returned += effects.iter().filter(recycled).count();
        if let Some(reason) = refusal(&effects, from) {
            return (Some(reason), returned);
        }
    }
    (None, returned)
}

#[test]
fn a_damaged_piece_is_refused() {
    let (_, frame) = waiting_with_floats(3);
    let damages: [(usize, &[u8], &str); 4] = [
        // Not a number, in the middle; refused before the last piece has arrived.
        (frame::HEADER + 40, &f32::NAN.to_le_bytes(), "from the number at index"),
        // Another number.
        (frame::HEADER + 40, &1e9f32.to_le_bytes(), "checksum"),
        (frame.len() - 4, &1e9f32.to_le_bytes(), "checksum"),
        // Another checksum.
        (frame::HEADER - 4, &[1, 2, 3, 4], "checksum"),
    ];
    for size in [frame::HEADER + 4, frame::HEADER + 21, frame.len() / 2] {
        for (at, bytes, expected) in damages {
            let (mut node, mut frame) = waiting_with_floats(3);
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            let reason = give_pieces(&mut node, 1, frame.len(), &frame, size).0.unwrap_or_default();
            assert!(reason.contains(expected), "{reason:?} should say {expected:?}");
        }
    }
}

/// Blocks of 7 numbers: 8 bytes of a grid and 4 bytes of codes; the last one has 5 numbers.
#[test]
fn a_damaged_block_is_refused_when_its_piece_arrives() {
    let blocks = || waiting_with("kind = 'min-max'\nbucket = 7");
    let (_, frame) = blocks();
    assert_eq!(frame.len(), frame::HEADER + 5 * 12 + 11);
    let third = frame::HEADER + 2 * 12;
    let damages: [(usize, &[u8], &str); 3] = [
        // A grid that cannot be, refused before the rest has arrived.
        (third, &f32::NAN.to_le_bytes(), "from the number at index"),
        // A bit of the last block that no number uses.
        (frame.len() - 1, &[0xFF], "an unused bit is set"),
        // Another grid.
        (third, &1e9f32.to_le_bytes(), "checksum"),
    ];
    for size in [frame::HEADER + 1, frame::HEADER + 12, frame::HEADER + 17, frame.len() - 1] {
        let (mut node, frame) = blocks();
        let pieces = frame.len().div_ceil(size);
        assert_eq!(give_pieces(&mut node, 1, frame.len(), &frame, size), (None, pieces));
        for (at, bytes, expected) in damages {
            let (mut node, mut frame) = blocks();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            let whole =
                if expected == "from the number at index" { third + 17 } else { frame.len() };
            let some = &frame[..whole.max(size).min(frame.len())];
            let reason = give_pieces(&mut node, 1, frame.len(), some, size).0.unwrap_or_default();
            assert!(reason.contains(expected), "{reason:?} should say {expected:?}");
        }
    }
}

#[test]
fn pieces_are_returned_as_far_as_the_senders_before_have_come() {
    let (mut node, frame) = waiting_with_floats(0);
    let (size, half) = (frame::HEADER + 4, frame.len() / 2);
    // Nothing of node 3 can be added before node 1 has sent.
    assert_eq!(give_pieces(&mut node, 3, frame.len(), &frame[..half], half), (None, 0));
    let (failure, returned) = give_pieces(&mut node, 1, frame.len(), &frame, size);
    assert_eq!((failure, returned), (None, frame.len().div_ceil(size) + 1));
}

#[test]
fn pieces_that_do_not_make_a_frame_are_refused() {
    let (mut node, frame) = waiting_with_floats(0);
    let (first, rest) = frame.split_at(60);
    let piece =
        |bytes: &[u8]| Input::Piece { from: NodeId(1), length: frame.len(), bytes: bytes.to_vec() };
    node.give(piece(first));
    let too_long = refusal(&node.give(piece(&[rest, &[0]].concat())), 1).unwrap_or_default();
    assert!(too_long.contains("are left of the frame"), "{too_long:?}");

    // A second frame of the same place.
    let (mut node, frame) = waiting_with_floats(0);
    node.give(Input::Frame { from: NodeId(3), bytes: frame.clone() });
    let repeated = give_pieces(&mut node, 3, frame.len(), &frame, 60).0.unwrap_or_default();
    assert!(repeated.contains("a second frame"), "{repeated:?}");
}

proptest! {
    #[test]
    fn random_pieces_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 1..300),
        more in 0usize..40,
        size in 1usize..100,
        whole in any::<bool>(),
    ) {
        let (mut node, frame) = waiting_with_floats(0);
        let mut bytes = if whole { [&frame[..40], &bytes].concat() } else { bytes };
        let length = bytes.len();
        bytes.extend(vec![0; more]);
        give_pieces(&mut node, 1, length, &bytes, size);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut node, _) = waiting();
        prop_assert!(node.refuses(1, bytes).is_some());
    }

    #[test]
    fn random_payloads_behind_a_valid_header_never_panic(
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        flight in 0u8..255,
        exchange in 0u16..4,
    ) {
        let (mut node, _) = waiting();
        node.refuses(1, sealed(At { round: Round(0), flight, exchange }, &payload));
    }

    #[test]
    fn a_cut_or_lengthened_payload_is_refused(cut in 1usize..20, longer in any::<bool>()) {
        let (mut node, frame) = waiting();
        let mut payload = frame[frame::HEADER..].to_vec();
        if longer { payload.extend(vec![0; cut]) } else { payload.truncate(payload.len() - cut) }
        let at = At { round: Round(0), flight: 0, exchange: 0 };
        prop_assert!(node.refuses(1, sealed(at, &payload)).is_some());
    }
}
