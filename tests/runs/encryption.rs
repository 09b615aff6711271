//! Encryption of TCP connections: both ends agree on the faster kind that both have.
#![cfg(feature = "net")]

use std::sync::Arc;

use gradvine::{
    net::{Deadlines, Event, has_aes},
    run::Security,
    units::NodeId,
};

use crate::links::{End, card, keys, runtime};

/// Links two nodes, sends frames both ways, and returns how the connection is encrypted, as each
/// end says.
fn link(kinds: [Security; 2]) -> [String; 2] {
    let (runtime, keys, limits) = (runtime(), keys(), Deadlines::default());
    let peers = [0, 1].map(|i: usize| keys[i].public().to_peer_id());
    let [mut a, mut b] = runtime.block_on(async {
        let a = End::start_with(kinds[0], &keys[0], 0, peers[1], card("0.1"), limits).await;
        let b = End::start_with(kinds[1], &keys[1], 1, peers[0], card("0.1"), limits).await;
        a.dial(1, b.address());
        [a, b]
    });
    [&a, &b].into_iter().for_each(End::up);
    let frame: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    let frame = frame[..1_000_000].to_vec();
    a.host.send(NodeId(1), Arc::new(frame.clone()));
    b.host.send(NodeId(0), Arc::new(frame.clone()));
    for end in [&a, &b] {
        loop {
            match end.next() {
                Event::Frame { bytes, .. } => {
                    assert_eq!(bytes, frame);
                    break;
                }
                Event::Taken(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    [a.host.cipher(&peers[1]), b.host.cipher(&peers[0])].map(Option::unwrap)
}

#[test]
fn two_ends_agree_on_what_both_have() {
    const NOISE: &str = "Noise, CHACHA20_POLY1305";
    let fastest = if has_aes() { "TLS 1.3, TLS13_AES_256_GCM_SHA384" } else { NOISE };
    let (auto, noise) = (Security::Auto, Security::Noise);
    assert_eq!(link([auto, auto]), [fastest; 2]);
    assert_eq!(link([noise, auto]), [NOISE; 2]);
    assert_eq!(link([auto, noise]), [NOISE; 2]);
}
