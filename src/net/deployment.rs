//! The topology of a deployment: whether its nodes can reach each other, as far as the file tells.

use std::{collections::BTreeMap, path::Path};

use libp2p::{Multiaddr, PeerId, multiaddr::Protocol};

use super::{
    link::hello::RunCard,
    relay::reservations::is_relayed,
    transport::{
        dial::{address, peer_of},
        reach::Endpoint,
    },
};
use crate::{
    config::ConfigError,
    mixing::Topology,
    run::{
        Checkpoints, Design,
        checkpoint::{Every, Owner},
    },
    units::NodeId,
};

/// Checks the PeerIds and addresses of a deployment. A topology without any is one for simulations.
///
/// # Errors
/// If a PeerId is missing or wrong, an address cannot be dialled, two nodes have the same address,
/// or a link has no address at either end.
///
/// ```
/// use gradvine::{mixing::{NodeInfo, Topology}, net::check_deployment};
///
/// let ring = Topology::parse("ring:3", 1)?;
/// check_deployment(&ring)?;
/// let name = |name: &str| NodeInfo {
///     addresses: vec!["/ip4/0.0.0.0/tcp/4001".into()],
///     ..NodeInfo::named(name)
/// };
/// let ring = ring.with_nodes(["a", "b", "c"].map(name).into())?;
/// assert!(check_deployment(&ring).is_err());
/// # Ok::<(), gradvine::config::ConfigError>(())
/// ```
pub fn check_deployment(topology: &Topology) -> Result<(), ConfigError> {
    let nodes = || (0..topology.nodes()).map(NodeId::from);
    let info = |node: NodeId| topology.node(node);
    if nodes().all(|node| info(node).peer.is_none() && info(node).addresses.is_empty()) {
        return Ok(());
    }
    let mut taken = BTreeMap::new();
    for node in nodes() {
        let peer = peer_of(topology, node)?;
        for (text, address) in info(node).addresses.iter().zip(addresses_of(topology, node)?) {
            let place = format!("node {}: addresses", info(node).name);
            check_address(&place, text, &address, &peer)?;
            if is_relayed(&address) {
                continue;
            }
            let direct: Multiaddr =
                address.iter().filter(|part| !matches!(part, Protocol::P2p(_))).collect();
            if let Some(other) = taken.insert(direct, node).filter(|other| *other != node) {
                let other = &info(other).name;
                let problem = format!("node {other} has this address too: each has its own");
                return Err(ConfigError::new(place, text, problem));
            }
        }
    }
    for (a, b) in topology.edges() {
        check_link(topology, a, b)?;
    }
    Ok(())
}

/// Checks that a node of this design can continue with the checkpoints in a run directory. Nothing
/// is written.
///
/// # Errors
/// If they belong to another run or another node; the first difference is named.
pub fn check_checkpoints(run: &Path, design: &Design, node: NodeId) -> Result<(), ConfigError> {
    let name = &design.topology.node(node).name;
    // Without the folder there is nothing to continue with.
    if !run.join("checkpoints").join(name).is_dir() {
        return Ok(());
    }
    let (card, every) = (RunCard::new(design), Every::of(design));
    let owner = Owner::new(design, node, card.texts());
    Checkpoints::check(run, every, owner, card.texts())
}

/// The addresses of a node.
///
/// # Errors
/// If one is no address of TCP or QUIC.
pub(super) fn addresses_of(
    topology: &Topology,
    node: NodeId,
) -> Result<Vec<Multiaddr>, ConfigError> {
    let info = topology.node(node);
    let place = format!("node {}: addresses", info.name);
    info.addresses.iter().map(|text| address(&place, text)).collect()
}

/// Checks that a link has an end that can be dialled.
///
/// # Errors
/// If neither end has an address.
pub(super) fn check_link(topology: &Topology, a: NodeId, b: NodeId) -> Result<(), ConfigError> {
    let [a, b] = [a, b].map(|node| topology.node(node));
    if a.addresses.is_empty() && b.addresses.is_empty() {
        return Err(ConfigError::at(
            format!("link {} - {}", a.name, b.name),
            "neither end has an address: give one of them `addresses` in the topology",
        ));
    }
    Ok(())
}

/// Checks that other nodes can dial an address and reach the node with this PeerId.
fn check_address(
    place: &str,
    text: &str,
    address: &Multiaddr,
    peer: &PeerId,
) -> Result<(), ConfigError> {
    let wrong = |problem: String| Err(ConfigError::new(place, text, problem));
    let Some(Endpoint { host, port, .. }) = Endpoint::of(address) else { return Ok(()) };
    if host.is_some_and(|ip| ip.is_unspecified()) {
        let listen = "stands for all addresses of the machine that listens: expected the one at \
                      which other nodes reach this node";
        return wrong(listen.into());
    }
    if host.is_some_and(|ip| ip.is_multicast() || ip.to_string() == "255.255.255.255") {
        return wrong("is not the address of one machine".into());
    }
    if port == 0 {
        return wrong("port 0 takes any free port: expected the one on which it listens".into());
    }
    let is_circuit = |part: &Protocol<'_>| *part == Protocol::P2pCircuit;
    let relay = address.iter().take_while(|part| !is_circuit(part)).last();
    if is_relayed(address) && relay == Some(Protocol::P2p(*peer)) {
        return wrong("the relay has the PeerId of this node: no node is its own relay".into());
    }
    let named = match address.iter().last() {
        Some(Protocol::P2p(named)) if named != *peer => named,
        _ => return Ok(()),
    };
    wrong(format!("it names the PeerId {named}, and this node has {peer}: correct one of them"))
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;
    use crate::mixing::NodeInfo;

    /// What is wrong with a path of two nodes with these addresses; `PEER` stands for the second
    /// one's PeerId, `OTHER` for another.
    fn problem(first: &[&str], second: &[&str]) -> Option<String> {
        let peers = [(); 3].map(|()| Keypair::generate_ed25519().public().to_peer_id().to_string());
        let text = |text: &&str| text.replace("PEER", &peers[1]).replace("OTHER", &peers[2]);
        let node = |name: &str, peer: &String, addresses: &[&str]| NodeInfo {
            peer: Some(peer.clone()),
            addresses: addresses.iter().map(text).collect(),
            ..NodeInfo::named(name)
        };
        let nodes = vec![node("a", &peers[0], first), node("b", &peers[1], second)];
        let topology = Topology::parse("path:2", 0).unwrap().with_nodes(nodes).unwrap();
        check_deployment(&topology).err().map(|error| error.to_string())
    }

    #[test]
    fn deployments_that_can_work_are_fine() {
        let own = "/ip4/9.9.9.9/tcp/4001";
        for second in [
            &[][..],
            &["/ip4/9.9.9.9/udp/4001/quic-v1"],
            &["/ip4/9.9.9.9/tcp/4002", "/dns4/b.example.org/tcp/4001"],
            &["/ip4/10.0.0.2/tcp/4001/p2p/PEER"],
            &["/ip4/9.9.9.8/tcp/4100/p2p/OTHER/p2p-circuit"],
            &["/ip4/9.9.9.8/tcp/4100/p2p/OTHER/p2p-circuit/p2p/PEER"],
        ] {
            assert_eq!(problem(&[own], second), None, "{second:?}");
        }
        let relay = "/ip4/9.9.9.8/tcp/4100/p2p/OTHER/p2p-circuit";
        assert_eq!(problem(&[relay], &[relay]), None, "two nodes at one relay");
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        let own = "/ip4/9.9.9.9/tcp/4001";
        for (first, second, words) in [
            (None, "", "link a - b: neither end has an address"),
            (Some(own), "/ip4/0.0.0.0/tcp/4001", "stands for all addresses"),
            (Some(own), "/ip6/::/tcp/4001", "stands for all addresses"),
            (Some(own), "/ip4/9.9.9.8/tcp/0", "port 0"),
            (Some(own), "/ip4/224.0.0.1/tcp/4001", "not the address of one machine"),
            (Some(own), "/ip4/9.9.9.8/tcp/4001/ws", "only TCP and QUIC"),
            (Some(own), "/ip4/9.9.9.8/tcp/4001/tls/ws", "only TCP and QUIC"),
            (Some(own), "/ip4/9.9.9.8/udp/4001", "only TCP and QUIC"),
            (Some(own), "/ip4/9.9.9.8/tcp/4001/quic-v1", "only TCP and QUIC"),
            (Some(own), "/ip4/9.9.9.8/tcp/4001/p2p/OTHER", "it names the PeerId"),
            (Some(own), own, "node a has this address too"),
            (Some(own), "/ip4/9.9.9.9/tcp/4001/p2p/PEER", "node a has this address too"),
            (Some(own), "/ip4/9.9.9.8/tcp/4100/p2p/PEER/p2p-circuit", "its own relay"),
            (Some(own), "/ip4/9.9.9.8/tcp/4100/p2p-circuit", "the relay's PeerId is missing"),
        ] {
            let second: Vec<&str> =
                Some(second).filter(|text| !text.is_empty()).into_iter().collect();
            let first: Vec<&str> = first.into_iter().collect();
            let error = problem(&first, &second).unwrap_or_default();
            assert!(error.contains(words), "{second:?}: {error}");
            assert!(error.starts_with("node b: addresses = /") || first.is_empty(), "{error}");
        }
    }
}
