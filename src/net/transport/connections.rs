//! How a host makes connections: TCP with TLS or Noise and Yamux, QUIC, and connections through a
//! relay.
//!
//! Names in addresses are looked up by the system's resolver, as every other program of the
//! machine does. Every error that leaves this module is an [`io::Error`] whose kind says what
//! failed: the types of libp2p's layers cannot be named elsewhere.

use std::{
    error::Error,
    io,
    net::ToSocketAddrs,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    AsyncRead, AsyncWrite, FutureExt,
    future::{BoxFuture, Either},
};
use libp2p::{
    Multiaddr, PeerId, Transport, TransportError,
    core::{
        muxing::StreamMuxerBox,
        transport::{
            Boxed, DialOpts, ListenerId, TransportEvent,
            timeout::{TransportTimeout, TransportTimeoutError},
        },
        upgrade::{NegotiationError, Version},
    },
    identity::Keypair,
    multiaddr::Protocol,
    noise, quic, relay, tcp, yamux,
};
use tokio::sync::oneshot;

use super::{
    Tried,
    gate::Gate,
    lobby::Lobby,
    security::{Encryption, EncryptionError},
};
use crate::threads;

/// How long a connection may take, from the lookup of its name to its last handshake.
const CONNECTION: Duration = Duration::from_secs(10);

/// The least time that a connection to one of several addresses of a name gets.
const MIN_SHARE: Duration = Duration::from_secs(3);

/// The maximum number of streams per connection of a node: three are ours; identify, ping and
/// relays have the rest.
const STREAMS: usize = 64;

/// Authenticated connections with many streams.
pub(crate) type Connections = Boxed<(PeerId, StreamMuxerBox)>;

/// TCP and QUIC. A connection of TCP has at most so many streams, and waits in the gate's lobby.
pub(crate) fn direct(
    key: &Keypair,
    encryption: Encryption,
    streams: usize,
    gate: &Gate,
) -> Connections {
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let tcp = Lobby::new(tcp, gate.clone());
    let quic = quic::tokio::Transport::new(quic::Config::new(key))
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)))
        .map_err(of_quic);
    let both = encrypted(tcp, encryption, streams, |error| error).or_transport(quic);
    let both = both.map(|either, _| either.into_inner()).map_err(|either| either.into_inner());
    limited(Names(Arc::new(Mutex::new(both.boxed()))))
}

/// TCP, QUIC and, on top of them, connections through relays.
pub(super) fn with_relays(
    key: &Keypair,
    encryption: Encryption,
    gate: &Gate,
) -> (Connections, relay::client::Behaviour) {
    let (relayed, behaviour) = relay::client::new(key.public().to_peer_id());
    // An address at a relay is one of TCP or QUIC with more behind it, so relays come first.
    let all = encrypted(relayed, encryption.clone(), STREAMS, io::Error::other)
        .or_transport(direct(key, encryption, STREAMS, gate))
        .map(|either, _| either.into_inner())
        .map_err(|either| either.into_inner());
    (limited(all), behaviour)
}

/// A transport whose connections have a deadline.
fn limited<T>(transport: T) -> Connections
where
    T: Transport<Output = (PeerId, StreamMuxerBox), Error = io::Error> + Send + Unpin + 'static,
    T::Dial: Send + 'static,
    T::ListenerUpgrade: Send + 'static,
{
    let late = |error| match error {
        TransportTimeoutError::Timeout => {
            let text = format!("the connection was not complete after {} s", CONNECTION.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        TransportTimeoutError::TimerError(error) | TransportTimeoutError::Other(error) => error,
    };
    TransportTimeout::new(transport, CONNECTION).map_err(late).boxed()
}

/// Encrypts the streams of a transport, and divides each among many streams.
fn encrypted<T>(
    transport: T,
    encryption: Encryption,
    streams: usize,
    of_transport: fn(T::Error) -> io::Error,
) -> impl Transport<
    Output = (PeerId, StreamMuxerBox),
    Error = io::Error,
    Dial: Send,
    ListenerUpgrade: Send,
> + Send
+ Unpin
where
    T: Transport<Error: Send + 'static, Dial: Send, ListenerUpgrade: Send>,
    T: Send + Unpin + 'static,
    T::Output: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut multiplex = yamux::Config::default();
    multiplex.set_max_num_streams(streams);
    transport
        .upgrade(Version::V1Lazy)
        .authenticate(encryption)
        .multiplex(multiplex)
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)))
        .map_err(move |error| {
            error.either(|error| error.either(of_transport, of_handshake), of_handshake)
        })
}

/// The error of a handshake: the two ends have no protocol in common, or the protocol failed.
fn of_handshake(error: impl Error + Send + Sync + 'static) -> io::Error {
    let kind_of = |cause: &(dyn Error + 'static)| {
        if let Some(EncryptionError::Tls(error) | EncryptionError::Noise(noise::Error::Io(error))) =
            cause.downcast_ref()
        {
            return kind_of_io(error);
        }
        match cause.downcast_ref::<io::Error>() {
            Some(error) => kind_of_io(error),
            None if cause.is::<NegotiationError>() => io::ErrorKind::InvalidData,
            None => io::ErrorKind::Other,
        }
    };
    io::Error::new(error.source().map_or(io::ErrorKind::Other, kind_of), error)
}

/// The kind of an error that may hold the end of a negotiation: one without an answer yet ends only
/// when the first bytes are read.
fn kind_of_io(error: &io::Error) -> io::ErrorKind {
    match error.get_ref() {
        Some(inner) if inner.is::<NegotiationError>() => io::ErrorKind::InvalidData,
        _ => error.kind(),
    }
}

fn of_quic(error: quic::Error) -> io::Error {
    match error {
        quic::Error::Io(error) => error,
        quic::Error::HandshakeTimedOut => io::Error::new(io::ErrorKind::TimedOut, error),
        other => io::Error::other(other),
    }
}

/// Looks up the names in addresses before they are dialled.
struct Names<T>(Arc<Mutex<T>>);

impl<T> Names<T> {
    fn inner(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Transport for Names<T>
where
    T: Transport<Error = io::Error> + Send + Unpin + 'static,
    T::Output: Send + 'static,
    T::Dial: Send + 'static,
{
    type Output = T::Output;
    type Error = io::Error;
    type ListenerUpgrade = T::ListenerUpgrade;
    type Dial = Either<T::Dial, BoxFuture<'static, io::Result<T::Output>>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Tried<()> {
        self.inner().listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner().remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Tried<Self::Dial> {
        let Some(name) = Name::of(&address) else {
            return Ok(Either::Left(self.inner().dial(address, options)?));
        };
        let names = Names(Arc::clone(&self.0));
        let dial = async move {
            let (mut failure, found) = (None, name.look_up(&address).await?);
            // One address that does not answer leaves time for the others.
            let share = (CONNECTION / found.len().max(1) as u32).max(MIN_SHARE);
            for address in found {
                let dial = names.inner().dial(address, options);
                let result = match dial {
                    Ok(dial) => tokio::time::timeout(share, dial).await.unwrap_or_else(|_| {
                        let text = format!("not complete after {:.1} s", share.as_secs_f64());
                        Err(io::Error::new(io::ErrorKind::TimedOut, text))
                    }),
                    Err(TransportError::Other(error)) => Err(error),
                    Err(error) => Err(io::Error::new(io::ErrorKind::Unsupported, error)),
                };
                match result {
                    Ok(connection) => return Ok(connection),
                    Err(error) => failure = Some(error),
                }
            }
            Err(failure.unwrap_or_else(|| name.unknown("it has no address of this kind")))
        };
        Ok(Either::Right(dial.boxed()))
    }

    fn poll(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        Pin::new(&mut *self.inner()).poll(context)
    }
}

/// A name in an address.
struct Name {
    name: String,
    /// Its position among the parts of the address.
    at: usize,
    /// The kinds of IP addresses that are wanted.
    v4: bool,
    v6: bool,
}

impl Name {
    /// The first name of an address, if it has one.
    fn of(address: &Multiaddr) -> Option<Name> {
        address.iter().enumerate().find_map(|(at, part)| {
            let (name, v4, v6) = match part {
                Protocol::Dns(name) => (name, true, true),
                Protocol::Dns4(name) => (name, true, false),
                Protocol::Dns6(name) => (name, false, true),
                _ => return None,
            };
            Some(Name { name: name.into_owned(), at, v4, v6 })
        })
    }

    /// The address with each of the name's IP addresses in its place.
    async fn look_up(&self, address: &Multiaddr) -> io::Result<Vec<Multiaddr>> {
        let name = self.name.clone();
        let (answer, answered) = oneshot::channel();
        // A thread of our own: the runtime panics if the system refuses it one.
        let look_up = move || {
            let found = (name.as_str(), 0).to_socket_addrs().map(Vec::from_iter);
            drop(answer.send(found));
        };
        let found = match threads::spawn("gradvine-name", look_up) {
            Ok(_) => answered.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            Err(error) => Err(error),
        };
        let found = found.map_err(|error| self.unknown(&error.to_string()))?.into_iter();
        let wanted = found.map(|socket| socket.ip()).filter(|ip| match ip.is_ipv4() {
            true => self.v4,
            false => self.v6,
        });
        Ok(wanted.filter_map(|ip| address.replace(self.at, |_| Some(ip.into()))).collect())
    }

    fn unknown(&self, reason: &str) -> io::Error {
        let text = format!("the name {} cannot be looked up: {reason}", self.name);
        io::Error::new(io::ErrorKind::NotFound, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_are_looked_up_and_replaced() {
        let address: Multiaddr = "/dns4/localhost/tcp/4001".parse().unwrap();
        let found = Name::of(&address).unwrap().look_up(&address).await.unwrap();
        assert_eq!(found, ["/ip4/127.0.0.1/tcp/4001".parse().unwrap()]);
        let address: Multiaddr = "/dns/no-such-host.invalid/udp/1/quic-v1".parse().unwrap();
        let error = Name::of(&address).unwrap().look_up(&address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("no-such-host.invalid cannot be looked up"), "{error}");
        assert!(Name::of(&"/ip4/127.0.0.1/tcp/1".parse().unwrap()).is_none());
    }
}
