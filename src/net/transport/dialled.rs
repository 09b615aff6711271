//! Which addresses a node dials: those of the topology, and public ones.
//!
//! Members name further addresses: where they listen (identify), and where they are seen (hole
//! punching). A member could so make a node connect to machines of the network that the node is in.
//! Every address passes this filter, whoever names it. A private address is dialled if the topology
//! lists it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

use libp2p::{Multiaddr, multiaddr::Protocol};

use super::reach::Endpoint;
use crate::net::relay::reservations::is_relayed;

/// The host, the port, and whether it is one of QUIC. Of a relayed address it is the relay's.
type Target = (String, u16, bool);

/// The addresses that a node dials. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialled(Arc<Mutex<BTreeSet<Target>>>);

impl Dialled {
    /// Adds addresses that the topology lists.
    pub(crate) fn list<'a>(&self, addresses: impl Iterator<Item = &'a Multiaddr>) {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listed.extend(addresses.filter_map(target));
    }

    /// Whether an address may be dialled.
    pub(crate) fn allows(&self, address: &Multiaddr) -> bool {
        let listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if target(address).is_some_and(|target| listed.contains(&target)) {
            return true;
        }
        let ip = Endpoint::of(address).and_then(|endpoint| endpoint.host);
        !is_relayed(address) && ip.is_some_and(is_public)
    }
}

/// Where an address leads; `None` without host or port.
fn target(address: &Multiaddr) -> Option<Target> {
    let host = address.iter().find_map(|part| match part {
        Protocol::Ip4(ip) => Some(ip.to_string()),
        Protocol::Ip6(ip) => Some(ip.to_string()),
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => {
            Some(name.to_lowercase())
        }
        _ => None,
    })?;
    Endpoint::of(address).map(|Endpoint { port, quic, .. }| (host, port, quic))
}

/// Whether this is an address of a private network (RFC 1918, 6598 and 4193), or of one link or one
/// machine only.
pub(super) fn is_private(address: &Multiaddr) -> bool {
    let v4 = |ip: Ipv4Addr| {
        let [a, b, ..] = ip.octets();
        let is_shared = a == 100 && (64..128).contains(&b);
        ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_shared
    };
    match Endpoint::of(address).and_then(|endpoint| endpoint.host) {
        Some(IpAddr::V4(ip)) => v4(ip),
        Some(IpAddr::V6(ip)) => {
            ip.is_loopback()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ip.to_ipv4_mapped().is_some_and(v4)
        }
        None => false,
    }
}

/// Whether this is the address of a machine on the Internet.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => is_public_v4(ip),
            None => is_public_v6(ip),
        },
    }
}

/// Not one of the blocks of RFC 6890 that are private, shared or reserved.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_special = (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
    let is_benchmark = a == 198 && (18..20).contains(&b);
    !(a == 0
        || a >= 224
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || is_shared
        || is_special
        || is_benchmark)
}

/// A global unicast address (RFC 4291) outside the blocks that are for documents, or that hold an
/// IPv4 address: Teredo and 6to4.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    let is_special = first == 0x2001 && (second < 0x200 || second == 0xdb8);
    (0x2000..0x4000).contains(&first) && first != 0x2002 && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_and_listed_addresses_are_dialled() {
        let parse = |text: &str| text.parse::<Multiaddr>().unwrap();
        let peer = libp2p::identity::Keypair::generate_ed25519().public().to_peer_id();
        let dialled = Dialled::default();
        let circuit = parse(&format!("/ip4/10.0.0.9/tcp/4100/p2p/{peer}/p2p-circuit"));
        let listed = [
            parse("/ip4/192.168.1.5/tcp/4001"),
            parse("/dns4/Oslo.example.org/tcp/4001"),
            circuit.clone(),
        ];
        dialled.list(listed.iter());
        for allowed in [
            "/ip4/192.168.1.5/tcp/4001",
            "/ip4/9.9.9.9/tcp/22",
            "/ip4/100.128.0.1/udp/4001/quic-v1",
            "/ip6/2a00:1450::1/tcp/1",
            "/dns4/oslo.example.org/tcp/4001",
        ] {
            assert!(dialled.allows(&parse(allowed)), "{allowed}");
            assert!(dialled.allows(&parse(&format!("{allowed}/p2p/{peer}"))), "{allowed}");
        }
        assert!(dialled.allows(&circuit) && dialled.allows(&parse("/ip4/10.0.0.9/tcp/4100")));
        for refused in [
            "/ip4/192.168.1.5/tcp/22",
            "/ip4/192.168.1.5/udp/4001/quic-v1",
            "/ip4/127.0.0.1/tcp/4001",
            "/ip4/0.0.0.0/tcp/4001",
            "/ip4/10.1.2.3/tcp/4001",
            "/ip4/172.16.0.1/tcp/4001",
            "/ip4/169.254.169.254/tcp/80",
            "/ip4/100.64.0.1/tcp/1",
            "/ip4/198.19.0.1/tcp/1",
            "/ip4/203.0.113.7/tcp/1",
            "/ip4/224.0.0.1/udp/1/quic-v1",
            "/ip4/255.255.255.255/tcp/1",
            "/ip6/::1/tcp/1",
            "/ip6/fe80::1/tcp/1",
            "/ip6/fd00::1/tcp/1",
            "/ip6/::ffff:10.0.0.1/tcp/1",
            "/ip6/64:ff9b::a00:1/tcp/1",
            "/ip6/2002:a00:1::1/tcp/1",
            "/ip6/2001::1/tcp/1",
            "/ip6/2001:db8::1/tcp/1",
            "/dns4/internal.example.org/tcp/4001",
        ] {
            assert!(!dialled.allows(&parse(refused)), "{refused}");
        }
        let other = parse(&format!("/ip4/9.9.9.9/tcp/4100/p2p/{peer}/p2p-circuit"));
        assert!(!dialled.allows(&other), "a relay that no topology names");
    }
}
