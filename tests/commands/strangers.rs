//! Strangers who connect to a node: what they cost is bounded, and they keep no neighbour out.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::command::{Deployment, NAMES, Reach, until};
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, SwarmBuilder, identity::Keypair, noise, swarm::SwarmEvent, tcp, yamux,
};
use rustix::net::{AddressFamily, SocketType};

const WITH_KEYS: usize = 100;

/// The most memory that the node may take, in kB: it takes less than 40 MB without strangers.
const MOST_MEMORY: u64 = 60_000;

/// A connection from an address of this machine that is not 127.0.0.1; from that one, where the
/// neighbours are, if `own` is set.
fn connect(from: usize, own: bool, to: SocketAddr) -> Option<TcpStream> {
    if own {
        let stream = TcpStream::connect(to).ok()?;
        stream.set_nonblocking(true).ok()?;
        return Some(stream);
    }
    let [third, fourth] = [(from / 250) as u8 + 1, (from % 250) as u8 + 2];
    let source = SocketAddr::from((Ipv4Addr::new(127, 1, third, fourth), 0));
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    rustix::net::bind(&socket, &source).ok()?;
    rustix::net::connect(&socket, &to).ok()?;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Ends when it is dropped.
struct Attack<'a>(&'a AtomicBool);

impl Drop for Attack<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps connections open that say nothing, and connects again when they are closed.
fn hold(
    share: std::ops::Range<usize>,
    own: bool,
    to: SocketAddr,
    ends: &AtomicBool,
    made: &AtomicUsize,
) {
    let mut held: Vec<Option<TcpStream>> = share.clone().map(|_| None).collect();
    while !ends.load(Ordering::Relaxed) {
        for (from, slot) in share.clone().zip(&mut held) {
            let is_open = |stream: &mut TcpStream| {
                stream.read(&mut [0; 16]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
            };
            if !slot.as_mut().is_some_and(is_open) {
                *slot = connect(from, own, to);
                made.fetch_add(usize::from(slot.is_some()), Ordering::Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Completes handshakes with a key that no topology names, again and again.
async fn shake_hands(number: usize, own: bool, to: SocketAddr, made: Arc<AtomicUsize>) {
    let passage = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("/ip4/127.0.0.1/tcp/{}", passage.local_addr().unwrap().port());
    let through: Multiaddr = through.parse().unwrap();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = passage.accept().await {
            tokio::spawn(async move {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                let source = match own {
                    true => Ipv4Addr::LOCALHOST,
                    false => Ipv4Addr::new(127, 2, 0, number as u8 + 2),
                };
                socket.bind(SocketAddr::from((source, 0))).unwrap();
                if let Ok(mut to) = socket.connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    });
    let mut swarm = SwarmBuilder::with_existing_identity(Keypair::generate_ed25519())
        .with_tokio()
        .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
        .unwrap()
        .with_behaviour(|_| libp2p::swarm::dummy::Behaviour)
        .unwrap()
        .build();
    swarm.dial(through.clone()).unwrap();
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { .. } => {
                made.fetch_add(1, Ordering::Relaxed);
            }
            SwarmEvent::ConnectionClosed { .. } | SwarmEvent::OutgoingConnectionError { .. } => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                swarm.dial(through.clone()).unwrap();
            }
            _ => {}
        }
    }
}

/// The greatest memory of a process so far, in kB.
fn most_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "slow"]
fn a_thousand_strangers_keep_no_neighbour_out_and_take_little_memory() {
    attack(1000, false);
}

#[test]
#[ignore = "slow"]
fn strangers_at_the_neighbours_own_address_keep_none_out() {
    attack(200, true);
}

/// Runs three nodes of which one is attacked by so many silent connections at once, and by others
/// with keys; `own`: from the address of its neighbours.
fn attack(silent: usize, own: bool) {
    let deployment = Deployment::new(Reach::Tcp, "rounds = 20\nconnect_s = 60");
    // Of two neighbours the one with the lower PeerId dials: the other one is attacked.
    let topology = fs::read_to_string(deployment.file("net.toml")).unwrap();
    let peers: Vec<PeerId> = topology
        .lines()
        .filter_map(|line| line.strip_prefix("peer = \"")?.strip_suffix('"')?.parse().ok())
        .collect();
    let [attacked, other] = if peers[0] > peers[1] { [0, 1] } else { [1, 0] };
    let mut node = deployment.start(NAMES[attacked]);
    let address: Multiaddr = deployment.address(NAMES[attacked]).parse().unwrap();
    let port = address.iter().find_map(|part| match part {
        libp2p::multiaddr::Protocol::Tcp(port) => Some(port),
        _ => None,
    });
    let to = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
    until("the node listens", || TcpStream::connect(to).is_ok());
    let ends = AtomicBool::new(false);
    let (idle, shaken) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for number in 0..WITH_KEYS {
        runtime.spawn(shake_hands(number, own, to, Arc::clone(&shaken)));
    }
    // Later the silent ones leave them few places.
    until("strangers have shaken hands", || shaken.load(Ordering::Relaxed) >= WITH_KEYS);
    thread::scope(|scope| {
        for share in 0..4 {
            let range = share * silent / 4..(share + 1) * silent / 4;
            let (ends, idle) = (&ends, &idle);
            scope.spawn(move || hold(range, own, to, ends, idle));
        }
        // The strangers stop after a failure, too.
        let attack = Attack(&ends);
        until("strangers have connected", || idle.load(Ordering::Relaxed) > 2 * silent);
        let memory = most_memory(node.id());
        let started = Instant::now();
        let mut neighbours = [other, 2].map(|index| deployment.start(NAMES[index]));
        let codes = neighbours.each_mut().map(|node| node.end().0);
        let time = started.elapsed();
        drop(attack);
        let (idle, shaken) = (idle.load(Ordering::Relaxed), shaken.load(Ordering::Relaxed));
        println!(
            "{idle} silent connections, {shaken} handshakes of strangers; the run took {time:?}; \
             memory {memory} kB"
        );
        assert_eq!(codes, [Some(0); 2], "{}", node.errors());
        assert!(memory < MOST_MEMORY, "{memory} kB");
    });
    assert_eq!(node.end().0, Some(0), "{}", node.errors());
    runtime.shutdown_background();
}
