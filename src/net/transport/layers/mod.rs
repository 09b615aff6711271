//! How a host makes connections: TCP with TLS or Noise and Yamux, QUIC, and connections through a
//! relay.
//!
//! Every error that leaves this module is an [`io::Error`] whose kind says what failed: the types
//! of libp2p's layers cannot be named elsewhere.

mod coalesce;
mod names;
mod proxy;
pub(crate) mod security;

use std::{error::Error, io};

use futures::{AsyncRead, AsyncWrite};
use libp2p::{
    PeerId, Transport,
    core::{
        muxing::StreamMuxerBox,
        transport::{
            Boxed,
            timeout::{TransportTimeout, TransportTimeoutError},
        },
        upgrade::{NegotiationError, Version},
    },
    identity::Keypair,
    noise, quic, relay, tcp, yamux,
};

use self::{
    names::{CONNECTION, Names},
    proxy::Outgoing,
    security::{Encryption, EncryptionError},
};
use super::{gate::Gate, lobby::Lobby};
use crate::run::Security;

pub use proxy::Proxy;

/// The maximum number of streams per connection of a node: three are ours; identify, ping and
/// relays have the rest.
const STREAMS: usize = 64;

/// Authenticated connections with many streams.
pub(crate) type Connections = Boxed<(PeerId, StreamMuxerBox)>;

/// How a program connects to others.
#[derive(Clone, Debug, Default)]
pub struct Connecting {
    /// How TCP connections are encrypted.
    pub security: Security,
    /// Through which proxy they leave, if through one.
    pub proxy: Option<Proxy>,
}

/// TCP and QUIC. A connection of TCP has at most so many streams, and waits in the gate's lobby.
/// With a proxy, only TCP goes out, and names are looked up by the proxy.
pub(crate) fn direct(
    key: &Keypair,
    encryption: Encryption,
    streams: usize,
    gate: &Gate,
    proxy: Option<Proxy>,
) -> Connections {
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true));
    let is_by_proxy = proxy.is_some();
    let tcp = Outgoing::new(Lobby::new(tcp, gate.clone()), proxy);
    let quic = quic::tokio::Transport::new(quic::Config::new(key))
        .map(|(peer, connection), _| (peer, StreamMuxerBox::new(connection)))
        .map_err(of_quic);
    let both = encrypted(tcp, encryption, streams, |error| error).or_transport(quic);
    let both = both.map(|either, _| either.into_inner()).map_err(|either| either.into_inner());
    match is_by_proxy {
        true => limited(both),
        false => limited(Names::of(both.boxed())),
    }
}

/// TCP, QUIC and, on top of them, connections through relays.
pub(super) fn with_relays(
    key: &Keypair,
    encryption: Encryption,
    gate: &Gate,
    proxy: Option<Proxy>,
) -> (Connections, relay::client::Behaviour) {
    let (relayed, behaviour) = relay::client::new(key.public().to_peer_id());
    // An address at a relay is one of TCP or QUIC with more behind it, so relays come first.
    let all = encrypted(relayed, encryption.clone(), STREAMS, io::Error::other)
        .or_transport(direct(key, encryption, STREAMS, gate, proxy))
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
