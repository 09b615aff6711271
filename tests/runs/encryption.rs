//! Encryption of TCP connections: both ends agree on the faster kind that both have.
#![cfg(feature = "net")]

use std::sync::Arc;

use gradvine::{
    net::{Deadlines, Event, has_aes},
    run::Security,
    units::NodeId,
};

use crate::links::{End, Terms, dialled, runtime};

/// Links two nodes, sends frames both ways, and returns how the connection is encrypted, as each
/// end says.
fn link(kinds: [Security; 2]) -> [String; 2] {
    let runtime = runtime();
    let terms = kinds.map(|security| Terms { security, deadlines: Deadlines::default() });
    let [mut a, mut b] = dialled(&runtime, ["0.1"; 2], terms);
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
    [a.host.cipher(&b.peer), b.host.cipher(&a.peer)].map(Option::unwrap)
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
