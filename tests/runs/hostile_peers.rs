//! Peers that have a neighbour's key, or none, and speak the protocol of links by hand.
#![cfg(feature = "net")]

use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use gradvine::{
    net::{Deadlines, Event, Hello, Keypair, Message, Multiaddr, PeerId, Rival, RunCard, VERSION},
    status::{Board, Record},
    units::NodeId,
};
use libp2p::{
    StreamProtocol, Swarm, SwarmBuilder, noise,
    swarm::{InvalidProtocol, SwarmEvent},
    tcp, yamux,
};
use tokio::task::AbortHandle;

use crate::links::{End, SOON, card, keys, runtime};

/// A libp2p peer without any protocol of gradvine.
pub(crate) fn raw(key: &Keypair) -> Swarm<libp2p_stream::Behaviour> {
    SwarmBuilder::with_existing_identity(key.clone())
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
        .unwrap()
        .with_behaviour(|_| libp2p_stream::Behaviour::new())
        .unwrap()
        .with_swarm_config(|config| config.with_idle_connection_timeout(SOON))
        .build()
}

fn hello(card: &RunCard) -> Hello {
    card.hello(NodeId(0))
}

/// A neighbour's end of a link after its hello. It closes when this is dropped.
pub(crate) struct Raw {
    pub control: libp2p::Stream,
    pub bulk: libp2p::Stream,
    _theirs: libp2p::Stream,
    network: AbortHandle,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.network.abort();
    }
}

impl Raw {
    /// Dials a node with a neighbour's key and says hello. Only its hello is read.
    ///
    /// # Errors
    /// If the node refuses this, or closes the connection.
    pub(crate) async fn dial(
        key: &Keypair,
        peer: PeerId,
        address: &Multiaddr,
        hello: Hello,
    ) -> Result<Raw, Box<dyn std::error::Error + Send + Sync>> {
        let me = key.public().to_peer_id();
        let (mut opener, network) = connect(key, address).await?;
        let mut inbound = opener.accept(protocol("bulk", peer)?)?;
        let connect = async {
            let mut control = opener.open_stream(peer, protocol("control", me)?).await?;
            say(&mut control, &Message::Hello(hello)).await?;
            // A stream of frames that is older than the node's hello belongs to another connection.
            hear(&mut control).await?;
            let bulk = opener.open_stream(peer, protocol("bulk", me)?).await?;
            let (_, theirs) = inbound.next().await.ok_or("closed")?;
            Ok((control, bulk, theirs))
        };
        match connect.await {
            Ok((control, bulk, _theirs)) => Ok(Raw { control, bulk, _theirs, network }),
            Err(error) => {
                network.abort();
                Err(error)
            }
        }
    }
}

fn protocol(what: &str, opener: PeerId) -> Result<StreamProtocol, InvalidProtocol> {
    StreamProtocol::try_from_owned(format!("/gradvine/{VERSION}/{what}/{opener}"))
}

/// Connects to a node. Another task runs the connection.
async fn connect(
    key: &Keypair,
    address: &Multiaddr,
) -> Result<(libp2p_stream::Control, AbortHandle), Box<dyn std::error::Error + Send + Sync>> {
    let mut swarm = raw(key);
    let opener = swarm.behaviour().new_control();
    swarm.dial(address.clone())?;
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { .. } => break,
            SwarmEvent::OutgoingConnectionError { error, .. } => return Err(error.into()),
            _ => {}
        }
    }
    let network = async move { while swarm.next().await.is_some() {} };
    Ok((opener, tokio::spawn(network).abort_handle()))
}

/// The next message of a node.
pub(crate) async fn hear(control: &mut libp2p::Stream) -> std::io::Result<Message> {
    let mut length = [0; 4];
    control.read_exact(&mut length).await?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    control.read_exact(&mut bytes).await?;
    gradvine::net::decode(&bytes).map_err(std::io::Error::other)
}

pub(crate) async fn say(control: &mut libp2p::Stream, message: &Message) -> std::io::Result<()> {
    control.write_all(&gradvine::net::encode(message)).await?;
    control.flush().await
}

/// A host (node 1) and a peer with a neighbour's key that says a proper hello, then runs `play`
/// with its control and bulk streams.
fn against<F>(deadlines: Deadlines, play: impl FnOnce(Raw) -> F) -> String
where
    F: Future<Output = Raw>,
{
    let runtime = runtime();
    let [key, host_key] = keys();
    let (me, peer) = (key.public().to_peer_id(), host_key.public().to_peer_id());
    runtime.block_on(async {
        let end = End::start(&host_key, 1, me, card("0.1"), deadlines).await;
        let raw = Raw::dial(&key, peer, end.address(), hello(&card("0.1"))).await.unwrap();
        let end = tokio::task::spawn_blocking(move || {
            end.up();
            end
        });
        let end = end.await.unwrap();
        let _kept = play(raw).await;
        tokio::task::spawn_blocking(move || end.broken()).await.unwrap()
    })
}

/// Writes these bytes on the bulk stream.
fn frames(bytes: Vec<u8>) -> String {
    against(Deadlines::default(), |mut raw| async move {
        let _ = raw.bulk.write_all(&bytes).await;
        let _ = raw.bulk.flush().await;
        raw
    })
}

/// Writes these bytes on the control stream.
fn control(bytes: Vec<u8>) -> String {
    against(Deadlines::default(), |mut raw| async move {
        let _ = raw.control.write_all(&bytes).await;
        let _ = raw.control.flush().await;
        raw
    })
}

fn envelope(length: u64, sequence: u64) -> Vec<u8> {
    [length.to_le_bytes(), sequence.to_le_bytes()].concat()
}

#[test]
fn an_oversized_frame_breaks_the_link_before_memory_is_taken() {
    let reason = frames(envelope(1 << 60, 1));
    assert!(
        reason.contains("a frame of 1152921504606846976 bytes: at most 1048576 are accepted"),
        "{reason}"
    );
}

#[test]
fn a_repeated_or_skipped_frame_breaks_the_link() {
    let reason = frames([envelope(3, 1), vec![1, 2, 3], envelope(3, 3), vec![1, 2, 3]].concat());
    // The second one is read only far enough to see its number.
    assert!(reason.contains("frame number 3 instead of 2"), "{reason}");
}

#[test]
fn a_truncated_frame_breaks_the_link() {
    let reason = against(Deadlines::default(), |mut raw| async move {
        raw.bulk.write_all(&[envelope(100, 1), vec![1, 2, 3]].concat()).await.unwrap();
        raw.bulk.close().await.unwrap();
        raw
    });
    assert!(reason.contains("reading its frames: unexpected end of file"), "{reason}");
}

#[test]
fn random_bytes_on_the_control_stream_break_the_link() {
    let reason = control(vec![9, 0, 0, 0, 200, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(reason.contains("a control message that does not decode"), "{reason}");
}

#[test]
fn an_oversized_message_breaks_the_link() {
    let reason = control(u32::MAX.to_le_bytes().to_vec());
    assert!(reason.contains("a control message of 4294967295 bytes: at most"), "{reason}");
}

#[test]
fn a_second_hello_breaks_the_link() {
    let reason = control(gradvine::net::encode(&Message::Hello(hello(&card("0.1")))));
    assert!(reason.contains("it sent a hello in the middle of a run"), "{reason}");
}

#[test]
fn a_silent_peer_is_noticed_after_three_heartbeats() {
    let deadlines = Deadlines { heartbeat: Duration::from_millis(100), ..Deadlines::default() };
    let reason = against(deadlines, |raw| async move { raw });
    assert!(reason.contains("nothing was received for 0."), "{reason}");
}

#[test]
fn a_flood_of_messages_breaks_the_link() {
    let reason = control(gradvine::net::encode(&Message::Heartbeat).repeat(3000));
    assert!(reason.contains("more than 1000 messages without content"), "{reason}");
}

/// What a node says about itself is passed on. One record that its node has not signed, and nothing
/// more is heard from the neighbour that brought it; the link stays.
#[test]
fn a_forged_record_costs_its_bringer_the_ear_and_no_link() {
    let runtime = runtime();
    let [key, host_key] = keys();
    let (me, peer) = (key.public().to_peer_id(), host_key.public().to_peer_id());
    let says = Board::of_one_process(NodeId(0), 2);
    let record = |round: u64| {
        says.say(Instant::now(), Record { round, ..Record::default() });
        says.news(Instant::now(), &mut Default::default())
    };
    runtime.block_on(async {
        let deadlines = Deadlines::default();
        let end = End::start(&host_key, 1, me, card("0.1"), deadlines).await;
        let mut raw = Raw::dial(&key, peer, end.address(), hello(&card("0.1"))).await.unwrap();
        let until = async |round: u64| {
            let known = || end.board.of(NodeId(0)).map(|heard| heard.record.round);
            let heard = async {
                while known() != Some(round) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(SOON, heard).await.unwrap();
        };
        say(&mut raw.control, &Message::Status(record(5))).await.unwrap();
        until(5).await;
        say(&mut raw.control, &Message::Status(record(6))).await.unwrap();
        until(6).await;
        let mut forged = record(7);
        forged[0].node = NodeId(1);
        say(&mut raw.control, &Message::Status(forged)).await.unwrap();
        say(&mut raw.control, &Message::Status(record(8))).await.unwrap();
        // What comes after it has been read: the link is there.
        let bytes = gradvine::net::encode(&Message::Hello(hello(&card("0.1"))));
        raw.control.write_all(&bytes).await.unwrap();
        raw.control.flush().await.unwrap();
        tokio::task::spawn_blocking(move || {
            end.up();
            let reason = end.broken();
            assert!(reason.contains("it sent a hello"), "{reason}");
            let known = end.board.of(NodeId(0)).map(|heard| heard.record.round);
            assert_eq!(known, Some(6), "nothing is heard after the forged one");
        })
        .await
        .unwrap();
    });
}

#[test]
fn a_peer_that_sends_no_more_frames_but_heartbeats_is_noticed() {
    let deadlines = Deadlines { heartbeat: Duration::from_millis(100), ..Deadlines::default() };
    let reason = against(deadlines, |mut raw| async move {
        raw.bulk.close().await.unwrap();
        for _ in 0..20 {
            let _ = say(&mut raw.control, &Message::Heartbeat).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        raw
    });
    assert!(reason.contains("closed its stream of frames without a goodbye"), "{reason}");
}

/// A neighbour says that another program has the key of the node. The node believes that program
/// only: it has signed, with this key, that it runs beside this very program.
#[test]
fn a_rival_counts_once_it_has_signed_that_it_runs() {
    const RIVAL: u64 = 7;
    let runtime = runtime();
    let [key, host_key] = keys();
    let (me, peer) = (key.public().to_peer_id(), host_key.public().to_peer_id());
    let own = hello(&card("0.1")).program;
    let signs = |key: &Keypair, card: &RunCard, rival, other| {
        (rival, key.sign(&card.runs(rival, other)).unwrap())
    };
    let [same, other] = [card("0.1"), card("0.2")];
    let told = [
        ("nothing", (RIVAL, Vec::new())),
        ("the neighbour's own signature", signs(&key, &same, RIVAL, own)),
        ("what it has signed for an earlier program", signs(&host_key, &same, RIVAL, own - 1)),
        ("what it has signed in another run", signs(&host_key, &other, RIVAL, own)),
        ("what this program would sign", signs(&host_key, &same, own, own)),
        ("proved", signs(&host_key, &same, RIVAL, own)),
    ];
    runtime.block_on(async {
        let end = End::start(&host_key, 1, me, card("0.1"), Deadlines::default()).await;
        for (text, (program, proof)) in told {
            let (mut opener, network) = connect(&key, end.address()).await.unwrap();
            let opened = opener.open_stream(peer, protocol("control", me).unwrap()).await;
            let mut control = opened.unwrap();
            let rival = Rival { text: text.into(), program, proof };
            say(&mut control, &Message::Rival(rival)).await.unwrap();
            // It closes. Its hello may be lost with the connection.
            while hear(&mut control).await.is_ok() {}
            network.abort();
        }
        let first = tokio::task::spawn_blocking(move || (end.next(), end)).await.unwrap();
        assert!(matches!(&first.0, Event::Rival { text, .. } if text == "proved"), "{:?}", first.0);
    });
}
