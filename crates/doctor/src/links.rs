//! Neighbours: addresses, round trips, rates, clocks, NATs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr, UdpSocket},
};

use gradvine::{
    net::{
        AtRelay, Counterpart, Examination, Examined as Seen, Measured, Multiaddr, socket_address,
    },
    units::{Bytes, NodeId},
};
use serde::Serialize;

use crate::{Finding, Level, Report, files::Examined, machine};

/// Clocks that differ by more make logs hard to compare.
const CLOCK: f64 = 2.0;

/// One address of a neighbour.
#[derive(Clone, Debug, Serialize)]
pub struct AddressFigures {
    /// As the topology has it, a multiaddress.
    pub address: String,
    /// Milliseconds until a connection was secured.
    pub connected_ms: Option<f64>,
    /// Why no connection was made to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A link as it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LinkFigures {
    /// What the neighbour runs: `node` or `doctor`.
    pub neighbour_runs: &'static str,
    /// The address of the connection.
    pub address: String,
    /// Whether it leads through a relay.
    pub relayed: bool,
    /// The protocol that encrypts it, with its cipher if that is known.
    pub cipher: String,
    /// The median over the measured round trips, in milliseconds.
    pub round_trip_ms: f64,
    /// To the neighbour, in 10^6 bits a second.
    pub sent_mbps: f64,
    /// From the neighbour, in 10^6 bits a second.
    pub received_mbps: f64,
    /// Its clock minus this one's, in seconds.
    pub clock_s: f64,
    /// The largest packet that the way to it carries, in bytes, as far as this system has found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
}

/// A neighbour and the link to it.
#[derive(Clone, Debug, Serialize)]
pub struct NeighbourFigures {
    /// Its number in the topology.
    #[serde(skip)]
    pub node: NodeId,
    /// Its name in the topology.
    pub name: String,
    /// Its addresses in the topology.
    pub addresses: Vec<AddressFigures>,
    /// The link, if there is one.
    pub link: Option<LinkFigures>,
    /// Where the neighbour sees this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sees: Option<String>,
}

/// Turns what was measured into findings.
pub(crate) fn judge(node: &Examined, examination: &Examination, report: &mut Report) {
    for listening in &examination.listening {
        report.findings.push(match listening {
            Ok(address) => Finding::ok("listen", address.to_string()),
            Err(error) => Finding::wrong("listen", error),
        });
    }
    if examination.listening.iter().any(Result::is_err) {
        let text = "the links were not examined, because this node cannot listen";
        let remedy = "stop the node if it runs already: the doctor takes its place";
        report.findings.push(Finding::error("links", text, remedy));
        return;
    }
    for relay in &examination.relays {
        report.findings.push(judge_relay(relay));
    }
    for (listen, outcome) in &examination.forwarded {
        report.findings.push(judge_forwarded(node, listen, outcome));
    }
    for seen in &examination.neighbours {
        judge_neighbour(node, seen, report);
    }
    report.findings.extend(behind_nat(examination));
}

fn judge_relay(relay: &AtRelay) -> Finding {
    match &relay.reserved {
        Ok(()) => Finding::ok("relay", format!("a place is reserved at {}", relay.address)),
        Err(problem) => {
            let text = format!("no place at {}: {problem}", relay.address);
            let remedy = "start `gradvine relay` there; see that its file names this node, that \
                          its address in the topology is right and its port is open";
            Finding::warning("relay", text, remedy)
        }
    }
}

/// Judges what the router says about a port on which this node listens.
fn judge_forwarded(
    node: &Examined,
    listen: &Multiaddr,
    outcome: &Result<Multiaddr, String>,
) -> Finding {
    match outcome {
        Ok(outside) if node.place.own_addresses().contains(outside) => {
            Finding::ok("UPnP", format!("the router forwards {outside} to {listen}"))
        }
        Ok(outside) => {
            let text = format!(
                "the router forwards {outside} to {listen}, and the topology gives this node \
                 another address"
            );
            let remedy = "add it to this node's addresses in the topology: otherwise only \
                          neighbours that are connected through a relay hear of it";
            Finding::warning("UPnP", text, remedy)
        }
        Err(problem) => {
            let text = format!("the router forwards no port to {listen}: {problem}");
            let remedy = "switch UPnP on at the router, forward the port there by hand, or use a \
                          relay (`gradvine relay`)";
            Finding::warning("UPnP", text, remedy)
        }
    }
}

fn judge_neighbour(node: &Examined, seen: &Seen, report: &mut Report) {
    let about = format!("link to {}", seen.name);
    let reached = seen.addresses.iter().any(|reach| reach.connected.is_ok());
    for reach in &seen.addresses {
        if let Err(problem) = &reach.connected {
            // Another address, or the neighbour's own connection, may do.
            let level = if reached || seen.link.is_ok() { Level::Warning } else { Level::Error };
            report.findings.push(Finding::new(level, &about, problem.clone(), None));
        }
    }
    let path_mtu = seen.link.as_ref().ok().and_then(path_mtu);
    match &seen.link {
        Ok(link) => {
            judge_link(&about, link, path_mtu, node.experiment.run.relayed, report);
        }
        Err(_) if seen.addresses.is_empty() => {
            let text = "it has no address in the topology, and it did not connect to this node";
            let remedy = "start it, or `gradvine doctor` there; see that this node's address in \
                          the topology is right and its port is open";
            report.findings.push(Finding::error(&about, text, remedy));
        }
        Err(problem) if reached => {
            let remedy = "start `gradvine node` or `gradvine doctor` of the same release there";
            report.findings.push(Finding::error(&about, problem.clone(), remedy));
        }
        Err(_) if node.place.dials(seen.node) => {}
        Err(_) => {
            let text = "it did not connect to this node, which it will dial";
            let remedy = "start it, or `gradvine doctor` there; open this node's port for it";
            report.findings.push(Finding::error(&about, text, remedy));
        }
    }
    report.neighbours.push(figures(seen, path_mtu));
}

fn judge_link(
    about: &str,
    link: &Measured,
    path_mtu: Option<u32>,
    relayed: bool,
    report: &mut Report,
) {
    let text = format!(
        "{:.1} ms, {:.1} Mbit/s there, {:.1} Mbit/s back",
        1e3 * link.round_trip_s,
        8e-6 * link.sent,
        8e-6 * link.received
    );
    report.findings.push(Finding::ok(about, text));
    if link.relayed {
        report.findings.push(judge_relayed(about, relayed));
    }
    if link.clock_s.abs() > CLOCK {
        let text = format!("its clock differs by {:+.1} s", link.clock_s);
        let remedy = "set both by NTP: a run does not need it, but its logs do";
        report.findings.push(Finding::warning(about, text, remedy));
    }
    if let Some(bytes) = path_mtu.filter(|bytes| *bytes < machine::LEAST_MTU) {
        let text = format!("packets of more than {bytes} bytes do not pass");
        let remedy = "raise the MTU on the way (of a VPN, say) to 1280 or more: QUIC \
                      needs that much";
        report.findings.push(Finding::warning(about, text, remedy));
    }
    buffers(about, link.round_trip_s, link.sent.max(link.received), report);
}

fn figures(seen: &Seen, path_mtu: Option<u32>) -> NeighbourFigures {
    let of_address = |reach: &gradvine::net::Reach| AddressFigures {
        address: reach.address.to_string(),
        connected_ms: reach.connected.as_ref().ok().map(|seconds| 1e3 * seconds),
        problem: reach.connected.as_ref().err().cloned(),
    };
    NeighbourFigures {
        node: seen.node,
        name: seen.name.clone(),
        addresses: seen.addresses.iter().map(of_address).collect(),
        link: seen.link.as_ref().ok().map(|link| LinkFigures {
            neighbour_runs: match link.counterpart {
                Counterpart::Node => "node",
                Counterpart::Probe => "doctor",
            },
            address: link.address.to_string(),
            relayed: link.relayed,
            cipher: link.cipher.clone(),
            round_trip_ms: 1e3 * link.round_trip_s,
            sent_mbps: 8e-6 * link.sent,
            received_mbps: 8e-6 * link.received,
            clock_s: link.clock_s,
            path_mtu,
        }),
        sees: seen.sees.as_ref().map(ToString::to_string),
    }
}

/// What a link means that could not be made directly.
fn judge_relayed(about: &str, allowed: bool) -> Finding {
    const TEXT: &str = "it leads through a relay: no direct connection could be made";
    if allowed {
        let remedy = "a forwarded port or a public address at one end makes it faster";
        return Finding::warning(about, TEXT, remedy);
    }
    let remedy = "say run.relayed = true in the experiment, or forward a port or give a public \
                  address to one end";
    Finding::error(about, TEXT, remedy)
}

/// Warns if TCP's buffers hold less than the link has in flight.
fn buffers(about: &str, round_trip: f64, rate: f64, report: &mut Report) {
    let flight = round_trip * rate;
    let Some([receive, send]) = machine::tcp_buffers() else { return };
    // Half of a receive buffer is the kernel's own; a link that fills the buffer may carry more.
    let room = (receive / 2).min(send);
    if flight > 0.8 * room as f64 {
        let text = format!(
            "{} are in flight, and TCP's buffers hold {}: they limit the rate",
            Bytes(flight as u64),
            Bytes(room)
        );
        let remedy = "raise the last number of net.ipv4.tcp_rmem and tcp_wmem at both ends";
        report.findings.push(Finding::warning(about, text, remedy));
    }
}

/// Compares where neighbours and relays see this node with its own addresses.
fn behind_nat(examination: &Examination) -> Option<Finding> {
    let neighbours = (examination.neighbours.iter()).filter_map(|one| {
        let link = one.link.as_ref().ok().filter(|link| !link.relayed)?;
        Some((one.name.clone(), &link.address, one.sees.as_ref()?))
    });
    let relays = (examination.relays.iter()).filter_map(|one| {
        Some((format!("the relay {}", one.address), &one.address, one.sees.as_ref()?))
    });
    let mut seen = Vec::new();
    for (name, other, sees) in neighbours.chain(relays) {
        let (Some(other), Some(sees)) = (socket_address(other), socket_address(sees)) else {
            continue;
        };
        if own_address(other).is_some_and(|own| own != sees.ip()) {
            seen.push((name, sees));
        }
    }
    if seen.is_empty() {
        return None;
    }
    let addresses: BTreeSet<IpAddr> = seen.iter().map(|(_, address)| address.ip()).collect();
    let list = seen
        .iter()
        .map(|(name, address)| format!("{name} sees {address}"))
        .collect::<Vec<_>>()
        .join(", ");
    let several =
        if addresses.len() > 1 { "several public addresses" } else { "one public address" };
    let (kind, remedy) = match mapping(&examination.relays) {
        Some(Mapping::Same) => (
            "; all relays see the same port, so hole punching works with most other NATs",
            "nothing, unless a neighbour's NAT is symmetric: then forward a port or allow relayed \
             links",
        ),
        Some(Mapping::Differs) => (
            "; each relay sees another port (a symmetric NAT): hole punching fails unless the \
             other end is open",
            "forward a port, or allow relayed links (run.relayed = true)",
        ),
        None => (
            "",
            "it can dial; to be dialled it needs a forwarded port (`upnp = true` in the node file \
             asks the router), neighbours that have addresses, or a relay (`gradvine relay`); \
             with two relays the doctor tells the kind of NAT",
        ),
    };
    let text = format!("this node is behind a NAT with {several}: {list}{kind}");
    Some(Finding::warning("NAT", text, remedy))
}

/// Which ports a NAT uses for connections from one port to several relays.
enum Mapping {
    Same,
    Differs,
}

/// `None` if no two relays of one transport tell. Connections to relays leave from the port that
/// the node listens on.
fn mapping(relays: &[AtRelay]) -> Option<Mapping> {
    let mut ports: BTreeMap<bool, BTreeMap<SocketAddr, u16>> = BTreeMap::new();
    for relay in relays {
        let (Some(other), Some(sees)) =
            (socket_address(&relay.address), relay.sees.as_ref().and_then(socket_address))
        else {
            continue;
        };
        let is_udp = relay.address.to_string().contains("/udp/");
        ports.entry(is_udp).or_default().insert(other, sees.port());
    }
    let seen_twice: Vec<_> = ports.values().filter(|seen| seen.len() > 1).collect();
    let same =
        |seen: &&BTreeMap<SocketAddr, u16>| seen.values().collect::<BTreeSet<_>>().len() == 1;
    match seen_twice.as_slice() {
        [] => None,
        all if all.iter().all(same) => Some(Mapping::Same),
        _ => Some(Mapping::Differs),
    }
}

/// This machine's address on the way to another one. No packet is sent.
fn own_address(to: SocketAddr) -> Option<IpAddr> {
    Some(socket_towards(to)?.local_addr().ok()?.ip())
}

/// The path MTU of a direct link, in bytes. The kernel has learnt it from what was sent before.
fn path_mtu(link: &Measured) -> Option<u32> {
    let to = socket_address(&link.address).filter(|_| !link.relayed)?;
    machine::path_mtu(&socket_towards(to)?)
}

fn socket_towards(to: SocketAddr) -> Option<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_transports_are_read() {
        let of =
            |text: &str| socket_address(&text.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(of("/ip4/1.2.3.4/tcp/4001").as_deref(), Some("1.2.3.4:4001"));
        assert_eq!(of("/ip6/::1/udp/4001/quic-v1").as_deref(), Some("[::1]:4001"));
        assert_eq!(of("/dns/example.org/tcp/4001"), None);
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert_eq!(own_address("127.0.0.1:9".parse().unwrap()), "127.0.0.1".parse().ok());
    }
}
