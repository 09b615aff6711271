//! The guarded transport of a host: its gate admits connections that come, and it dials only the
//! addresses that may be dialled.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt;
use libp2p::{
    Multiaddr, PeerId, Transport, TransportError,
    core::{
        muxing::StreamMuxerBox,
        transport::{DialOpts, ListenerId, TransportEvent},
    },
};

use super::{
    Tried,
    dialled::Dialled,
    gate::{AT_ONCE, Gate, Slot},
    layers::Connections,
};

/// A transport with a gate, which dials no other addresses than these.
pub(crate) fn guarded(inner: Connections, gate: Gate, dialled: Dialled) -> Connections {
    Guarded { inner, gate, dialled }.boxed()
}

struct Guarded {
    inner: Connections,
    gate: Gate,
    dialled: Dialled,
}

/// A handshake that may be displaced.
struct Admitted {
    handshake: <Connections as Transport>::ListenerUpgrade,
    slot: Option<Slot>,
}

impl Future for Admitted {
    type Output = io::Result<(PeerId, StreamMuxerBox)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(slot) = &mut self.slot
            && slot.displaced.poll_unpin(context).is_ready()
        {
            let text = "too many open handshakes: another one has the place of this one";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)));
        }
        self.handshake.poll_unpin(context)
    }
}

impl Transport for Guarded {
    type Output = (PeerId, StreamMuxerBox);
    type Error = io::Error;
    type ListenerUpgrade = Admitted;
    type Dial = <Connections as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Tried<()> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Tried<Self::Dial> {
        if self.dialled.allows(&address) {
            return self.inner.dial(address, options);
        }
        let text = "a private address, which is dialled only if the topology lists it";
        Err(TransportError::Other(io::Error::new(io::ErrorKind::PermissionDenied, text)))
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Admitted, io::Error>> {
        for _ in 0..AT_ONCE {
            let event = std::task::ready!(Pin::new(&mut self.inner).poll(context));
            let slot = match &event {
                TransportEvent::Incoming { send_back_addr, .. } => {
                    match self.gate.admit(send_back_addr) {
                        Some(slot) => Some(slot),
                        // Its socket is closed with the event.
                        None => continue,
                    }
                }
                _ => None,
            };
            return Poll::Ready(event.map_upgrade(|handshake| Admitted { handshake, slot }));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
