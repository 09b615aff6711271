//! Asks the router to forward the ports that this node listens on: UPnP, Internet Gateway Device.
//!
//! A thread finds the router, asks it for a port for each address, asks again before the router
//! would forget, and gives the ports back at the end. The addresses at which the node can then be
//! reached from outside go to the swarm, which tells neighbours.
//!
//! It asks for nothing that belongs to another machine, and only if the node's file says `upnp =
//! true`: a forwarded port is a change of the network that the node is in. libp2p-upnp is not used:
//! it brings 17 more crates, leaves its ports forwarded for up to an hour after the node has ended,
//! and does not look whether another machine has a port before it asks for it.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gradvine_upnp::{Port, Router};
use libp2p::{Multiaddr, multiaddr::Protocol};
use litemap::LiteMap;
use tokio::sync::watch;

use super::{link::session::random, transport::reach::Endpoint};
use crate::config::ConfigError;

/// How long the router keeps a port if this node does not ask again. A node that is killed leaves
/// no more than that.
const LEASE: Duration = Duration::from_secs(1800);

/// The pause before a port is asked for again; a router that was started again has forgotten it.
const AGAIN: Duration = Duration::from_secs(300);

/// The pause after a search in vain.
const RETRY: Duration = Duration::from_secs(60);

/// The number of other ports that are tried where another machine has the one that is listened on.
const OTHERS: usize = 3;

/// The result for each address that is listened on: the address from outside, or why there is none.
pub(super) type Outcomes = Vec<(Multiaddr, Result<Multiaddr, String>)>;

/// The ports that the router forwards to this node. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Forwarding {
    outside: watch::Sender<Vec<Multiaddr>>,
    outcomes: Arc<Mutex<Outcomes>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Default for Forwarding {
    fn default() -> Forwarding {
        let outside = watch::Sender::new(Vec::new());
        Forwarding { outside, outcomes: Arc::default(), stop: Arc::default(), thread: None }
    }
}

/// Refuses to ask a router where this node has no port that one could forward.
///
/// # Errors
/// If no address is an IPv4 address that other machines can reach.
pub(super) fn check(listen: &[Multiaddr]) -> Result<(), ConfigError> {
    if listen.iter().any(|address| wanted(address).is_some()) {
        return Ok(());
    }
    let problem = "expected an IPv4 address in node.listen, such as /ip4/0.0.0.0/tcp/4001: a \
                   router forwards no port to 127.0.0.1, and IPv6 needs no forwarding";
    Err(ConfigError::new("node.upnp", true, problem))
}

/// The socket behind an address, if a router can forward a port to it.
fn wanted(address: &Multiaddr) -> Option<(Ipv4Addr, Port)> {
    let Endpoint { host: Some(IpAddr::V4(ip)), port, quic } = Endpoint::of(address)? else {
        return None;
    };
    (!ip.is_loopback()).then_some((ip, Port { number: port, udp: quic }))
}

/// Whether machines elsewhere on the Internet can have a route to it.
fn is_public(ip: Ipv4Addr) -> bool {
    let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0b1100_0000 == 64;
    !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || shared)
}

impl Forwarding {
    /// The addresses from outside. They change while the node runs.
    pub(super) fn outside(&self) -> watch::Receiver<Vec<Multiaddr>> {
        self.outside.subscribe()
    }

    /// Starts to ask for these addresses, unless that has started before.
    pub(super) fn start(&mut self, listen: &[Multiaddr]) {
        if self.thread.is_some() {
            return;
        }
        let listen: Vec<_> = (listen.iter())
            .filter_map(|address| Some((address.clone(), wanted(address)?)))
            .collect();
        let (outside, outcomes) = (self.outside.clone(), Arc::clone(&self.outcomes));
        let stop = Arc::clone(&self.stop);
        let (router, held) = (None, LiteMap::new());
        let keeper = Keeper { listen, outside, outcomes, stop, router, is_lost: true, held };
        let thread = thread::Builder::new().name("gradvine-upnp".into());
        match thread.spawn(move || keeper.run()) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::warn!("the router cannot be asked for ports: {error}"),
        }
    }

    /// The results for all addresses so far; empty before the first answer.
    pub(super) fn outcomes(&self) -> Outcomes {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

struct Keeper {
    listen: Vec<(Multiaddr, (Ipv4Addr, Port))>,
    outside: watch::Sender<Vec<Multiaddr>>,
    outcomes: Arc<Mutex<Outcomes>>,
    stop: Arc<AtomicBool>,
    /// The router that was found last, and whether it must be searched for again.
    router: Option<Router>,
    is_lost: bool,
    /// The ports at the router, by the ports that are listened on.
    held: LiteMap<Port, Port>,
}

impl Keeper {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let all_good = self.ask();
            // A wake-up without a cause does no harm.
            thread::park_timeout(if all_good { AGAIN } else { RETRY });
        }
        let Some(router) = &self.router else { return };
        for &port in self.held.values() {
            match router.release(port) {
                Ok(()) => tracing::info!("the router no longer forwards port {port} to this node"),
                Err(error) => tracing::warn!(
                    "the router keeps forwarding port {port} for up to {} minutes: {error}",
                    LEASE.as_secs() / 60
                ),
            }
        }
    }

    /// Asks for all addresses, and returns whether all were granted.
    fn ask(&mut self) -> bool {
        if self.is_lost {
            let stopped = || self.stop.load(Ordering::Relaxed);
            match Router::find(&stopped) {
                Ok(found) => (self.router, self.is_lost) = (Some(found), false),
                // The search was not over.
                Err(_) if stopped() => return false,
                Err(error) => {
                    self.publish(&|_| Err(error.to_string()));
                    return false;
                }
            }
        }
        let Some(found) = self.router.clone() else { return false };
        let outside = match found.outside() {
            Ok(ip) if is_public(ip) => ip,
            Ok(ip) => {
                let text = format!(
                    "the router {} is behind a NAT itself (its own address is {ip}): a port that \
                     it forwards is not reached from outside",
                    found.ip()
                );
                self.publish(&|_| Err(text.clone()));
                return false;
            }
            Err(error) => {
                self.publish(&|_| Err(error.to_string()));
                // It may have another address now.
                self.is_lost = true;
                return false;
            }
        };
        let mut granted: LiteMap<_, _> = LiteMap::new();
        for (_, (ip, port)) in self.listen.clone() {
            granted.insert(port, self.ask_for(&found, ip, port));
        }
        self.publish(&|port| {
            let number = granted[&port].clone()?.number;
            let transport = if port.udp { Protocol::Udp(number) } else { Protocol::Tcp(number) };
            let address = Multiaddr::empty().with(Protocol::Ip4(outside)).with(transport);
            Ok(if port.udp { address.with(Protocol::QuicV1) } else { address })
        });
        granted.values().all(Result::is_ok)
    }

    /// Asks for one port: the one that the router forwards already, else the same number outside,
    /// else another one.
    fn ask_for(&mut self, router: &Router, ip: Ipv4Addr, port: Port) -> Result<Port, String> {
        if !ip.is_unspecified() && ip != router.local() {
            return Err(format!(
                "the router {} is reached from {}, not from {ip}",
                router.ip(),
                router.local()
            ));
        }
        let first = self.held.get(&port).copied().unwrap_or(port);
        let other = || Port { number: 49152 + (random() % 16384) as u16, udp: port.udp };
        let mut reason = String::new();
        for outer in std::iter::once(first).chain(std::iter::repeat_with(other).take(OTHERS)) {
            match router.forward(outer, port, LEASE) {
                Ok(()) => {
                    self.held.insert(port, outer);
                    return Ok(outer);
                }
                // The port that the router has forwarded so far is given back at the end.
                Err(error) if !error.is_taken() => return Err(error.to_string()),
                Err(error) => {
                    self.held.remove(&port);
                    reason = error.to_string();
                }
            }
        }
        Err(reason)
    }

    /// Tells the swarm, the doctor and the log the result for each port.
    fn publish(&self, outcome: &dyn Fn(Port) -> Result<Multiaddr, String>) {
        let one = |(address, (_, port)): &(Multiaddr, (Ipv4Addr, Port))| {
            (address.clone(), outcome(*port))
        };
        let now: Outcomes = self.listen.iter().map(one).collect();
        let mut before = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        if *before == now {
            return;
        }
        for (address, outcome) in &now {
            match outcome {
                Ok(outside) => tracing::info!(
                    "the router forwards {outside} to {address} of this node while it runs (UPnP)"
                ),
                Err(reason) => tracing::warn!("the router forwards no port to {address}: {reason}"),
            }
        }
        self.outside.send_replace(now.iter().filter_map(|(_, it)| it.clone().ok()).collect());
        *before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_ports_that_a_router_can_forward_are_asked_for() {
        let port = |text: &str| wanted(&parse(text)).map(|(_, port)| (port.number, port.udp));
        assert_eq!(port("/ip4/0.0.0.0/tcp/4001"), Some((4001, false)));
        assert_eq!(port("/ip4/10.0.0.2/udp/4001/quic-v1"), Some((4001, true)));
        assert_eq!(port("/ip4/127.0.0.1/tcp/4001"), None);
        assert_eq!(port("/ip6/::/tcp/4001"), None);
        let error = check(&[parse("/ip4/127.0.0.1/tcp/4001")]).unwrap_err().to_string();
        assert!(error.contains("node.upnp = true") && error.contains("0.0.0.0"), "{error}");
        check(&[parse("/ip6/::/tcp/1"), parse("/ip4/0.0.0.0/tcp/0")]).unwrap();
    }

    #[test]
    fn a_router_behind_another_nat_has_no_public_address() {
        for (ip, public) in [
            ("9.9.9.9", true),
            ("100.63.0.1", true),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("192.168.1.1", false),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_public(ip.parse().unwrap()), public, "{ip}");
        }
    }

    #[test]
    fn nothing_is_asked_before_the_start() {
        let forwarding = Forwarding::default();
        assert!(forwarding.outcomes().is_empty() && forwarding.outside().borrow().is_empty());
    }
}
