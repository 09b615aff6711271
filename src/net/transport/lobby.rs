//! The lobby of a host: a TCP connection waits here until it says something.
//!
//! Who dials speaks first, at once. So a connection that says nothing is no neighbour's: it costs
//! the system's work of accepting it, and no place among the handshakes. The lobby has places for
//! as many connections as the gate has for handshakes, and they are given in the same way: if all
//! are taken, lots are drawn among those of the source with the most.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures::future;
use libp2p::{
    Multiaddr, Transport,
    core::transport::{DialOpts, ListenerId, TransportEvent},
    tcp::tokio::{TcpStream, Transport as Tcp},
};
use tokio::io::ReadBuf;

use super::{
    Tried,
    gate::{AT_ONCE, Gate, Room, Source, source},
};

/// How long a connection may say nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// TCP, whose incoming connections have said something.
pub(crate) struct Lobby {
    inner: Tcp,
    gate: Gate,
    waiting: Vec<Waiting>,
}

/// A connection that has said nothing yet.
struct Waiting {
    stream: TcpStream,
    source: Source,
    since: Instant,
    listener: ListenerId,
    local: Multiaddr,
    remote: Multiaddr,
}

type Event = TransportEvent<<Lobby as Transport>::ListenerUpgrade, io::Error>;

impl Lobby {
    /// The lobby of this transport.
    pub(crate) fn new(inner: Tcp, gate: Gate) -> Lobby {
        Lobby { inner, gate, waiting: Vec::new() }
    }

    /// A new connection takes a place, or its socket is closed.
    fn take_in(&mut self, new: Waiting) {
        match self.gate.room(self.waiting.iter().map(|one| one.source), new.source) {
            Room::Free => self.waiting.push(new),
            Room::Of(index) => self.waiting[index] = new,
            Room::None => {}
        }
    }

    /// A connection that has said something; those that are over leave.
    fn poll_spoken(&mut self, context: &mut Context<'_>) -> Option<Waiting> {
        let mut index = 0;
        while let Some(one) = self.waiting.get(index) {
            let mut byte = [0];
            match one.stream.0.poll_peek(context, &mut ReadBuf::new(&mut byte)) {
                Poll::Ready(Ok(1..)) => return Some(self.waiting.swap_remove(index)),
                Poll::Pending if one.since.elapsed() < LONGEST => index += 1,
                _ => drop(self.waiting.swap_remove(index)),
            }
        }
        None
    }
}

impl Transport for Lobby {
    type Output = TcpStream;
    type Error = io::Error;
    type ListenerUpgrade = <Tcp as Transport>::ListenerUpgrade;
    type Dial = <Tcp as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Tried<()> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.waiting.retain(|one| one.listener != id);
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Tried<Self::Dial> {
        self.inner.dial(address, options)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Event> {
        for count in 0.. {
            if count == AT_ONCE {
                // Other tasks have their turn.
                context.waker().wake_by_ref();
                break;
            }
            let Poll::Ready(event) = Pin::new(&mut self.inner).poll(context) else { break };
            let TransportEvent::Incoming { listener_id, upgrade, local_addr, send_back_addr } =
                event
            else {
                return Poll::Ready(event);
            };
            if let Ok(stream) = upgrade.into_inner() {
                self.take_in(Waiting {
                    stream,
                    source: source(&send_back_addr),
                    since: Instant::now(),
                    listener: listener_id,
                    local: local_addr,
                    remote: send_back_addr,
                });
            }
        }
        let Some(one) = self.poll_spoken(context) else { return Poll::Pending };
        Poll::Ready(TransportEvent::Incoming {
            listener_id: one.listener,
            upgrade: future::ready(Ok(one.stream)),
            local_addr: one.local,
            send_back_addr: one.remote,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net};

    use libp2p::tcp::Config;

    use super::*;

    const SILENT: usize = 100;

    /// Polls until this is so, and returns how many connections were passed on meanwhile.
    async fn until(lobby: &mut Lobby, is_so: impl Fn(&Lobby, usize) -> bool) -> usize {
        let mut passed = 0;
        future::poll_fn(|context| {
            while let Poll::Ready(event) = Pin::new(&mut *lobby).poll(context) {
                passed += usize::from(matches!(event, TransportEvent::Incoming { .. }));
            }
            if is_so(lobby, passed) { Poll::Ready(passed) } else { Poll::Pending }
        })
        .await
    }

    #[tokio::test]
    async fn a_connection_is_passed_on_once_it_says_something() {
        let mut lobby = Lobby::new(Tcp::new(Config::default()), Gate::new(2));
        lobby.listen_on(ListenerId::next(), "/ip4/127.0.0.1/tcp/0".parse().unwrap()).unwrap();
        let listens = future::poll_fn(|context| Pin::new(&mut lobby).poll(context)).await;
        let address = listens.into_new_address().unwrap().to_string();
        let port: u16 = address.rsplit('/').next().unwrap().parse().unwrap();
        let connect = |_| net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut silent: Vec<_> = (0..SILENT).map(connect).collect();
        let passed = until(&mut lobby, |lobby, _| lobby.waiting.len() == SILENT).await;
        assert_eq!(passed, 0, "they say nothing");
        let mut speak: Vec<_> = (0..10).map(connect).collect();
        speak.iter_mut().for_each(|one| one.write_all(b"x").unwrap());
        assert_eq!(until(&mut lobby, |_, passed| passed >= 10).await, 10);
        assert_eq!(lobby.waiting.len(), SILENT);
        silent.truncate(SILENT / 2);
        let passed = until(&mut lobby, |lobby, _| lobby.waiting.len() == SILENT / 2).await;
        assert_eq!(passed, 0, "those that are closed leave");
    }
}
