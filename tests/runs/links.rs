//! Links over real sockets: different handshakes, unknown and silent peers, broken links,
//! backpressure.
#![cfg(feature = "net")]

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;
use gradvine::{
    experiment::Transport,
    gossip::Cause,
    net::{
        Connecting, Deadlines, Event, Host, HostConfig, Keypair, Multiaddr, Neighbour, PeerId,
        RunCard, free_ports,
    },
    run::Security,
    status::Board,
    units::NodeId,
};
use libp2p::swarm::SwarmEvent;
use tokio::runtime::Runtime;

use crate::{hostile_peers::raw, until};

/// An upper limit for everything here.
pub(crate) const SOON: Duration = Duration::from_secs(20);

const LIMIT: usize = 1 << 20;

pub(crate) fn card(step: &str) -> RunCard {
    RunCard::of(
        "run",
        10,
        [
            "nodes = 2".into(),
            format!("optimizer.step = {step}\nrun.seed = 1"),
            "model.kind = \"mlp\"".into(),
        ],
    )
}

/// Keys so that the first one's PeerId is the lower: node 0 dials.
pub(crate) fn keys() -> [Keypair; 2] {
    let (a, b) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());
    if a.public().to_peer_id() < b.public().to_peer_id() { [a, b] } else { [b, a] }
}

/// How an end encrypts, and how long it waits.
pub(crate) struct Terms {
    pub security: Security,
    pub deadlines: Deadlines,
}

impl From<Deadlines> for Terms {
    fn from(deadlines: Deadlines) -> Terms {
        Terms { security: Security::default(), deadlines }
    }
}

pub(crate) struct End {
    pub host: Host,
    pub peer: PeerId,
    pub board: Arc<Board>,
    events: Receiver<Event>,
}

impl End {
    pub(crate) async fn start(
        key: &Keypair,
        node: u32,
        peer: PeerId,
        card: RunCard,
        terms: impl Into<Terms>,
    ) -> End {
        let Terms { security, deadlines } = terms.into();
        let (sender, events) = mpsc::channel();
        let neighbour = Neighbour {
            node: NodeId(1 - node),
            name: format!("node-{}", 1 - node),
            peer,
            unused: false,
            addresses: Vec::new(),
            ban: None,
        };
        let board = Arc::new(Board::of_one_process(NodeId(node), 2));
        let config = HostConfig {
            key: key.clone(),
            board: Arc::clone(&board),
            node: NodeId(node),
            nodes: 2,
            neighbours: vec![neighbour],
            card,
            connecting: Connecting { security, proxy: None },
            deadlines,
            events: sender,
            ..listening("/ip4/127.0.0.1/tcp/0")
        };
        let peer = key.public().to_peer_id();
        End { host: Host::start(config).await.unwrap(), peer, board, events }
    }

    pub(crate) fn dial(&self, node: u32, address: &Multiaddr) {
        self.host.connect([(NodeId(node), vec![address.clone()])]);
    }

    pub(crate) fn address(&self) -> &Multiaddr {
        &self.host.listen_addresses()[0]
    }

    pub(crate) fn next(&self) -> Event {
        self.events.recv_timeout(SOON).expect("an event within its time")
    }

    pub(crate) fn up(&self) {
        assert!(matches!(self.next(), Event::Up(_)));
    }

    /// The reason with which the link breaks; earlier frames are skipped.
    pub(crate) fn broken(&self) -> String {
        loop {
            match self.next() {
                Event::Lost { reason, .. } => return reason,
                Event::Frame { .. } | Event::Taken(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    gradvine::net::runtime().unwrap()
}

/// Two hosts, of which the first dials the second, with these steps in their experiments.
pub(crate) fn dialled(runtime: &Runtime, steps: [&str; 2], terms: [Terms; 2]) -> [End; 2] {
    let keys = keys();
    let peers = [0, 1].map(|i: usize| keys[i].public().to_peer_id());
    let [first, second] = terms;
    runtime.block_on(async {
        let a = End::start(&keys[0], 0, peers[1], card(steps[0]), first).await;
        let b = End::start(&keys[1], 1, peers[0], card(steps[1]), second).await;
        a.dial(1, b.address());
        [a, b]
    })
}

/// Two hosts whose link is up.
fn pair(runtime: &Runtime, deadlines: Deadlines) -> [End; 2] {
    let ends = dialled(runtime, ["0.1"; 2], [deadlines, deadlines].map(Terms::from));
    ends.iter().for_each(End::up);
    ends
}

#[test]
fn frames_arrive_in_order_and_goodbyes_end_the_link() {
    let runtime = runtime();
    let long = Duration::from_secs(600);
    let patient = Deadlines { heartbeat: long, goodbye: long, ..Deadlines::default() };
    let [mut a, mut b] = pair(&runtime, patient);
    for number in 0u8..10 {
        a.host.send(NodeId(1), Arc::new(vec![number; 1000 * usize::from(number)]));
        assert!(matches!(a.next(), Event::Taken(NodeId(1))));
    }
    for number in 0u8..10 {
        match b.next() {
            Event::Frame { from: NodeId(0), bytes } => {
                assert_eq!(bytes, vec![number; 1000 * usize::from(number)]);
                b.host.recycle(NodeId(0), bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    // Before the run a goodbye would only be the loss of the link.
    for end in [&a, &b] {
        end.host.status().begin();
    }
    // The neighbour's goodbye ends the wait, not a deadline: this one is long.
    let finish = |host: Host| {
        let started = Instant::now();
        host.finish(None, &mut || started.elapsed() > 3 * SOON);
        started.elapsed()
    };
    let other = std::thread::spawn(move || finish(b.host));
    let waited = [finish(a.host), other.join().unwrap()];
    let events = [a.events, b.events]
        .map(|all| std::iter::from_fn(|| all.recv_timeout(SOON).ok()).collect::<Vec<_>>());
    let have_met = waited.iter().all(|waited| *waited < 3 * SOON);
    assert!(have_met, "the goodbyes did not meet: {waited:?}, {events:?}");
    assert!(matches!(events[0][..], [Event::Goodbye(NodeId(1))]), "{events:?}");
}

#[test]
#[ignore = "slow"]
fn a_slow_neighbour_holds_its_sender_back_within_a_named_bound() {
    let runtime = runtime();
    let [mut a, b] = pair(&runtime, Deadlines::default());
    let frame = Arc::new(vec![7; LIMIT]);
    for _ in 0..2 {
        a.host.send(NodeId(1), Arc::clone(&frame));
    }
    // The neighbour's core takes one frame and returns no buffer.
    assert!(matches!(b.next(), Event::Frame { .. }));
    let mut taken = 0;
    while let Ok(event) = a.events.recv_timeout(Duration::from_secs(2)) {
        assert!(matches!(event, Event::Taken(_)));
        taken += 1;
        a.host.send(NodeId(1), Arc::clone(&frame));
    }
    // One is held, one is being read, and one fits into buffers on the way: the stream's window is
    // 256 KiB at first and grows with the bytes read within a round trip.
    assert!((1..=4).contains(&taken), "{taken} frames left though the neighbour took one");
    assert!(
        b.events.try_recv().is_err(),
        "a second frame came before the first buffer was returned"
    );
}

#[test]
fn experiments_that_differ_are_refused_with_the_key_and_both_values_at_both_ends() {
    let runtime = runtime();
    let terms = || Terms::from(Deadlines::default());
    let [a, b] = dialled(&runtime, ["0.1", "0.25"], [terms(), terms()]);
    let refusal = |end: &End| match end.next() {
        Event::Differs { difference, .. } => difference.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(
        refusal(&a)
            .contains("node node-1 runs another experiment: optimizer.step = 0.1 here, 0.25 there")
    );
    assert!(
        refusal(&b)
            .contains("node node-0 runs another experiment: optimizer.step = 0.25 here, 0.1 there")
    );
}

#[test]
fn a_link_that_breaks_is_reported_with_its_cause() {
    let runtime = runtime();
    let [a, b] = pair(&runtime, Deadlines::default());
    drop(a.host);
    let reason = b.broken();
    assert!(reason.contains("s after the link came up"), "{reason}");
}

#[test]
fn a_node_that_leaves_sends_its_reason() {
    let runtime = runtime();
    let [a, b] = pair(&runtime, Deadlines::default());
    let cause = Cause {
        node: NodeId(0),
        text: format!("interrupted in round 7, {}", "at length ".repeat(50)),
        leaves: true,
    };
    a.host.finish(Some(cause.clone()), &mut || false);
    match b.next() {
        Event::Left { peer: NodeId(0), cause: refusal } => {
            assert_eq!(refusal, cause, "refusal whole");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_peer_is_refused() {
    let runtime = runtime();
    let (key, stranger) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());
    runtime.block_on(async {
        let a = End::start(
            &key,
            0,
            Keypair::generate_ed25519().public().to_peer_id(),
            card("0.1"),
            Deadlines::default(),
        )
        .await;
        let mut swarm = raw(&stranger);
        swarm.dial(a.address().clone()).unwrap();
        let closed = async {
            loop {
                match swarm.select_next_some().await {
                    SwarmEvent::ConnectionClosed { .. }
                    | SwarmEvent::OutgoingConnectionError { .. } => return,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(SOON, closed).await.expect("a stranger's connection is closed");
        assert!(a.events.try_recv().is_err());
    });
}

/// Connections from another address that say nothing keep no neighbour out.
#[test]
#[cfg(target_os = "linux")]
fn idle_connections_of_a_stranger_keep_no_neighbour_out() {
    let runtime = runtime();
    let keys = keys();
    let peers = [0, 1].map(|i: usize| keys[i].public().to_peer_id());
    runtime.block_on(async {
        let a = End::start(&keys[0], 0, peers[1], card("0.1"), Deadlines::default()).await;
        let b = End::start(&keys[1], 1, peers[0], card("0.1"), Deadlines::default()).await;
        let port = b.address().iter().find_map(|part| match part {
            libp2p::multiaddr::Protocol::Tcp(port) => Some(port),
            _ => None,
        });
        let target = std::net::SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let mut idle = Vec::new();
        for _ in 0..100 {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            // All of 127.0.0.0/8 is this machine.
            socket.bind(std::net::SocketAddr::from(([127, 0, 0, 9], 0))).unwrap();
            idle.push(socket.connect(target).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let started = Instant::now();
        a.dial(1, b.address());
        let ends = tokio::task::spawn_blocking(move || {
            a.up();
            b.up();
            (a, b)
        });
        ends.await.unwrap();
        // The handshakes of the idle ones are given up after ten seconds.
        assert!(started.elapsed() < Duration::from_secs(7), "{:?}", started.elapsed());
        drop(idle);
    });
}

/// Connections from the same address that close without a word count for nothing: those that speak
/// shake hands. A key that no topology names is refused after that.
#[test]
fn connections_that_say_nothing_hold_up_none_that_speak() {
    let runtime = runtime();
    runtime.block_on(async {
        let other = Keypair::generate_ed25519().public().to_peer_id();
        let key = Keypair::generate_ed25519();
        let end = End::start(&key, 0, other, card("0.1"), Deadlines::default()).await;
        let target = gradvine::net::socket_address(end.address()).unwrap();
        let flood = move || (0..3000).for_each(|_| drop(std::net::TcpStream::connect(target)));
        tokio::task::spawn_blocking(flood).await.unwrap();
        for number in 0..10 {
            let mut swarm = raw(&Keypair::generate_ed25519());
            swarm.dial(end.address().clone()).unwrap();
            let met = async {
                loop {
                    match swarm.select_next_some().await {
                        SwarmEvent::ConnectionEstablished { .. } => return true,
                        SwarmEvent::OutgoingConnectionError { .. } => return false,
                        _ => {}
                    }
                }
            };
            let met = tokio::time::timeout(SOON, met).await.expect("it is answered");
            assert!(met, "stranger {number} was closed before its handshake");
        }
    });
}

#[test]
fn two_quiet_nodes_keep_their_link_by_heartbeats() {
    let runtime = runtime();
    let deadlines = Deadlines { heartbeat: Duration::from_millis(100), ..Deadlines::default() };
    let [a, b] = pair(&runtime, deadlines);
    // Ten heartbeats; the link breaks after three without a byte.
    assert!(a.events.recv_timeout(Duration::from_secs(1)).is_err());
    assert!(b.events.try_recv().is_err());
}

/// The settings of a host without neighbours.
fn listening(address: &str) -> HostConfig {
    HostConfig {
        key: Keypair::generate_ed25519(),
        listen: vec![address.parse().unwrap()],
        node: NodeId(0),
        nodes: 1,
        neighbours: Vec::new(),
        card: card("0.1"),
        frame_limit: LIMIT,
        congestion: None,
        addresses: Vec::new(),
        relayed: false,
        connecting: Connecting::default(),
        outside: None,
        deadlines: Deadlines::default(),
        restarts: false,
        assembly: None,
        documents: None,
        board: Arc::new(Board::of_one_process(NodeId(0), 2)),
        events: mpsc::channel().0,
    }
}

/// A node goes back to a checkpoint with a new host, which listens where the first one did.
#[test]
fn a_host_that_listens_on_all_addresses_says_so_with_its_port() {
    let runtime = runtime();
    for (before, after) in [("/ip4/0.0.0.0/tcp/", ""), ("/ip4/0.0.0.0/udp/", "/quic-v1")] {
        let asked = format!("{before}0{after}");
        let host = runtime.block_on(Host::start(listening(&asked))).unwrap();
        let found = host.listen_addresses()[0].to_string();
        let port = found.strip_prefix(before).and_then(|port| port.strip_suffix(after));
        let port = port.unwrap_or_else(|| panic!("{found}"));
        assert_ne!(port.parse::<u16>().unwrap(), 0);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let runtime = runtime();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = listening(&format!("/ip4/127.0.0.1/tcp/{port}"));
    let error = runtime.block_on(Host::start(config)).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "listen = \"/ip4/127.0.0.1/tcp/{port}\": cannot be listened on: Address already in use"
        )),
        "{error}"
    );
    assert!(error.contains("choose another"), "{error}");
}

#[test]
fn a_missing_neighbour_is_named_with_the_attempts() {
    let runtime = runtime();
    let [key, other] = keys();
    let end = runtime.block_on(End::start(
        &key,
        0,
        other.public().to_peer_id(),
        card("0.1"),
        Deadlines::default(),
    ));
    let unused = free_ports(Transport::Tcp, 1).unwrap()[0];
    end.dial(1, &format!("/ip4/127.0.0.1/tcp/{unused}").parse().unwrap());
    let trouble = until_said(&end, "nothing listens there");
    assert!(trouble.contains("onnection refused"), "{trouble}");
    assert_eq!(end.host.status().missing()[0].0, NodeId(1));
}

#[test]
fn a_wrong_peer_at_an_address_is_named() {
    let runtime = runtime();
    let ([key, expected], found) = (keys(), Keypair::generate_ed25519());
    let [end, other] = runtime.block_on(async {
        let start = |key, node, peer: &Keypair| {
            End::start(key, node, peer.public().to_peer_id(), card("0.1"), Deadlines::default())
        };
        [start(&key, 0, &expected).await, start(&found, 1, &key).await]
    });
    end.dial(1, other.address());
    until_said(&end, &format!("answers as {}", found.public().to_peer_id()));
}

/// What is known of the only neighbour once the words are there.
fn until_said(end: &End, words: &str) -> String {
    let trouble = || end.host.status().missing().remove(0).1;
    until(words, || trouble().contains(words));
    trouble()
}

#[test]
fn a_program_that_is_no_node_is_named_as_such() {
    // What it answers, whether it closes then, and what is said.
    const SAID: &str = "what listens there is not a gradvine node: it answers in another protocol";
    // The first byte of each is taken for a length: as many bytes must follow.
    let http = format!("HTTP/1.1 400 Bad Request\r\n\r\n{}", "<p>".repeat(40));
    let ssh = format!("SSH-2.0-OpenSSH_9.6p1 {}\r\n", "x".repeat(100));
    let cases: [(&[u8], &str); 4] = [
        (http.as_bytes(), SAID),
        (ssh.as_bytes(), SAID),
        (&[0xFF; 64], SAID),
        (b"", "a gradvine node"),
    ];
    let runtime = runtime();
    for (answer, words) in cases {
        let answer = answer.to_vec();
        let [key, other] = keys();
        let peer = other.public().to_peer_id();
        let end = runtime.block_on(End::start(&key, 0, peer, card("0.1"), Deadlines::default()));
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            for client in server.incoming().take(50) {
                let mut client = client.unwrap();
                let _ = client.read(&mut [0; 256]);
                let _ = client.write_all(&answer);
                let _ = client.shutdown(std::net::Shutdown::Write);
            }
        });
        let address = format!("/ip4/127.0.0.1/tcp/{port}");
        end.dial(1, &address.parse().unwrap());
        let trouble = until_said(&end, words);
        assert!(trouble.starts_with(&format!("dialling {address}: ")), "{trouble}");
        assert!(!trouble.contains("invalid data"), "{trouble}");
    }
}
