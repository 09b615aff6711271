//! Neighbours with another version of the protocol.
#![cfg(feature = "net")]

use crate::links::{End, card, keys, runtime};

use futures::StreamExt;
use gradvine::net::{Deadlines, Event, VERSION};
use libp2p::{
    SwarmBuilder, identify, noise,
    swarm::{NetworkBehaviour, SwarmEvent},
    tcp, yamux,
};

/// A program with streams of its own and a name.
#[derive(NetworkBehaviour)]
struct Old {
    identify: identify::Behaviour,
    streams: libp2p_stream::Behaviour,
}

#[test]
fn a_neighbour_with_another_version_is_told_apart() {
    let runtime = runtime();
    let [key, old] = keys();
    let peers = [&key, &old].map(|key| key.public().to_peer_id());
    runtime.block_on(async {
        let mut swarm = SwarmBuilder::with_existing_identity(old.clone())
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
            .unwrap()
            .with_behaviour(|key| Old {
                identify: identify::Behaviour::new(
                    identify::Config::new("/gradvine/1".into(), key.public())
                        .with_agent_version("gradvine/0.0.9".into()),
                ),
                streams: libp2p_stream::Behaviour::new(),
            })
            .unwrap()
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().unwrap()).unwrap();
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                break address;
            }
        };
        // The version before this one.
        let name = format!("/gradvine/{}/control/{}", VERSION - 1, peers[0]);
        let name = libp2p::StreamProtocol::try_from_owned(name).unwrap();
        let _accepts = swarm.behaviour().streams.new_control().accept(name).unwrap();
        tokio::spawn(async move {
            loop {
                swarm.select_next_some().await;
            }
        });
        let end = End::start(&key, 0, peers[1], card("0.1"), Deadlines::default()).await;
        end.dial(1, &address);
        let event = tokio::task::spawn_blocking(move || end.next()).await.unwrap();
        let Event::Differs { difference, .. } = event else { panic!("{event:?}") };
        let text = difference.to_string();
        let words = format!(
            "node node-1 speaks protocol version {} (gradvine/0.0.9), this node {VERSION}: install \
             the same release of gradvine on both",
            VERSION - 1
        );
        assert_eq!(text, words);
    });
}
