//! The sites of a run beside its links: which of them may ask for documents, and their newest
//! addresses.

use std::collections::{BTreeMap, BTreeSet};

use libp2p::{Multiaddr, PeerId, allow_block_list};
use litemap::LiteMap;
use tokio::sync::watch;

use super::{dialled::Dialled, peers::Peer};
use crate::net::relay::reservations::relay_of;

/// Who is let in.
pub(crate) type Allowed = allow_block_list::Behaviour<allow_block_list::AllowedPeers>;

/// What a host knows of the sites of its run, if they exchange documents.
#[derive(Default)]
pub(crate) struct Sites {
    /// Those that may ask, and those that are let in already.
    pub callers: Option<watch::Receiver<BTreeSet<PeerId>>>,
    pub known: BTreeSet<PeerId>,
    /// Their newest addresses.
    pub moved: Option<watch::Receiver<BTreeMap<PeerId, Vec<Multiaddr>>>>,
}

/// Lets these callers in, and those out that are no longer listed and that `is_ours` allows.
pub(crate) fn admit(
    allowed: &mut Allowed,
    known: &mut BTreeSet<PeerId>,
    callers: BTreeSet<PeerId>,
    is_ours: impl Fn(&PeerId) -> bool,
) {
    let gone = known.difference(&callers).filter(|peer| is_ours(peer));
    gone.for_each(|peer| _ = allowed.disallow_peer(*peer));
    callers.difference(known).for_each(|peer| _ = allowed.allow_peer(*peer));
    *known = callers;
}

/// Takes the newest addresses of neighbours, for the next time that one is dialled.
pub(super) fn follow(
    moved: &BTreeMap<PeerId, Vec<Multiaddr>>,
    peers: &mut LiteMap<PeerId, Peer>,
    allowed: &mut Allowed,
    dialled: &Dialled,
) {
    for (id, peer) in peers {
        let Some(addresses) = moved.get(id).filter(|addresses| !addresses.is_empty()) else {
            continue;
        };
        if peer.neighbour.addresses != *addresses {
            tracing::info!("node {}: its addresses are now {addresses:?}", peer.neighbour.name);
            peer.neighbour.addresses.clone_from(addresses);
            for relay in addresses.iter().filter_map(relay_of) {
                allowed.allow_peer(relay);
            }
            dialled.list(addresses.iter());
            if let Some(dial) = &mut peer.dial {
                dial.moved(addresses);
            }
        }
    }
}
