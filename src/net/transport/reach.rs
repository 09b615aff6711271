//! Whether neighbours that dial the addresses of a node in the topology reach where it listens.

use std::net::{IpAddr, SocketAddr};

use libp2p::{Multiaddr, multiaddr::Protocol};

/// The parts of an address that tell where its socket is.
pub(crate) struct Endpoint {
    /// None for a name, which is looked up where it is dialled.
    pub host: Option<IpAddr>,
    pub port: u16,
    pub quic: bool,
}

impl Endpoint {
    /// `None` if the address has no port.
    pub(crate) fn of(address: &Multiaddr) -> Option<Endpoint> {
        let (mut host, mut port) = (None, None);
        for part in address {
            match part {
                Protocol::Ip4(ip) => host = Some(IpAddr::from(ip)),
                Protocol::Ip6(ip) => host = Some(IpAddr::from(ip)),
                Protocol::Tcp(number) => port = Some((number, false)),
                Protocol::Udp(number) => port = Some((number, true)),
                _ => {}
            }
        }
        port.map(|(port, quic)| Endpoint { host, port, quic })
    }
}

/// The IP address and port of a multiaddress; `None` for names.
pub fn socket_address(address: &Multiaddr) -> Option<SocketAddr> {
    let endpoint = Endpoint::of(address)?;
    Some(SocketAddr::new(endpoint.host?, endpoint.port))
}

/// Says that an address of the topology is not among those that the node listens on: one line for
/// each such address. Port 0 takes any port, so nothing is known then.
pub(crate) fn unreached(listen: &[Multiaddr], addresses: &[Multiaddr]) -> Vec<String> {
    let listens: Vec<Endpoint> = listen.iter().filter_map(Endpoint::of).collect();
    if listens.is_empty() || listens.iter().any(|one| one.port == 0) {
        return Vec::new();
    }
    let shown = listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let line = |address: &Multiaddr| {
        let differs = difference(&listens, &Endpoint::of(address)?)?;
        Some(format!(
            "node.listen: this node listens on {shown}, the topology gives it the address \
             {address}: {differs}; neighbours that dial it do not reach this node unless it is \
             forwarded, so correct one of them"
        ))
    };
    addresses.iter().filter_map(line).collect()
}

/// In what an address differs from all that are listened on; `None` if one of them is it.
fn difference(listens: &[Endpoint], address: &Endpoint) -> Option<&'static str> {
    let all_hosts = |one: &&Endpoint| one.host.is_none_or(|host| host.is_unspecified());
    let same_transport = || listens.iter().filter(|one| one.quic == address.quic);
    let mut same_port = same_transport().filter(|one| one.port == address.port).peekable();
    if same_transport().next().is_none() {
        return Some("the transports differ");
    }
    if same_port.peek().is_none() {
        return Some("the ports differ");
    }
    let reached =
        |one: &Endpoint| all_hosts(&one) || address.host.is_none() || one.host == address.host;
    (!same_port.any(reached)).then_some("the IP addresses differ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_for(listen: &[&str], address: &str) -> Option<String> {
        let parse = |text: &&str| text.parse().unwrap();
        let listen: Vec<Multiaddr> = listen.iter().map(parse).collect();
        unreached(&listen, &[address.parse().unwrap()]).pop()
    }

    #[test]
    fn what_differs_is_said() {
        let own = "/ip4/203.0.113.7/tcp/4001";
        for (listen, words) in [
            ("/ip4/0.0.0.0/tcp/4002", "the ports differ"),
            ("/ip4/0.0.0.0/udp/4001/quic-v1", "the transports differ"),
            ("/ip4/127.0.0.1/tcp/4001", "the IP addresses differ"),
        ] {
            let line = line_for(&[listen], own).unwrap();
            assert!(line.contains(words) && line.contains(listen) && line.contains(own), "{line}");
        }
    }

    #[test]
    fn nothing_is_said_where_it_is_reached_or_not_known() {
        for (listen, own) in [
            (&["/ip4/0.0.0.0/tcp/4001"][..], "/ip4/203.0.113.7/tcp/4001"),
            (&["/ip6/::/tcp/4001"], "/ip4/203.0.113.7/tcp/4001"),
            (&["/ip4/203.0.113.7/tcp/4001"], "/ip4/203.0.113.7/tcp/4001"),
            (&["/ip4/10.0.0.3/tcp/4001"], "/dns4/london.example.org/tcp/4001"),
            (&["/ip4/10.0.0.3/tcp/0"], "/ip4/203.0.113.7/tcp/4001"),
            (&["/ip4/0.0.0.0/tcp/1", "/ip4/0.0.0.0/tcp/4001"], "/ip4/203.0.113.7/tcp/4001"),
            (&[], "/ip4/203.0.113.7/tcp/4001"),
        ] {
            assert_eq!(line_for(listen, own), None, "{listen:?}");
        }
    }
}
