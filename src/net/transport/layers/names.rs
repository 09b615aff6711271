//! Names in addresses: they are looked up by the system's resolver, as every other program of the
//! machine does.

use std::{
    io,
    net::ToSocketAddrs,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Either},
};
use libp2p::{
    Multiaddr, Transport, TransportError,
    core::transport::{DialOpts, ListenerId, TransportEvent},
    multiaddr::Protocol,
};
use tokio::sync::oneshot;

use crate::{net::transport::Tried, threads};

/// How long a connection may take, from the lookup of its name to its last handshake.
pub(super) const CONNECTION: Duration = Duration::from_secs(10);

/// The least time that a connection to one of several addresses of a name gets.
const MIN_SHARE: Duration = Duration::from_secs(3);

/// Looks up the names in addresses before they are dialled.
pub(super) struct Names<T>(Arc<Mutex<T>>);

impl<T> Names<T> {
    pub(super) fn of(transport: T) -> Names<T> {
        Names(Arc::new(Mutex::new(transport)))
    }

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
pub(super) struct Name {
    name: String,
    /// Its position among the parts of the address.
    at: usize,
    /// The kinds of IP addresses that are wanted.
    v4: bool,
    v6: bool,
}

impl Name {
    /// The first name of an address, if it has one.
    pub(super) fn of(address: &Multiaddr) -> Option<Name> {
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
    pub(super) async fn look_up(&self, address: &Multiaddr) -> io::Result<Vec<Multiaddr>> {
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
