//! Options of TCP sockets that libp2p does not offer, where the operating system permits them: the
//! congestion control, how long a dead connection stays, and how much waits to be sent.
//!
//! On a lossy link the congestion control decides more than anything else here: a controller that
//! takes every loss for a full queue (cubic, reno) is slow where one that models the path (bbr) is
//! not. libp2p opens its sockets itself and has no setting for this, so the program searches its
//! own descriptors for them by their addresses, copies each with `pidfd_getfd`, and sets the option
//! on the copy, which sets it on the socket.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use libp2p::{Multiaddr, core::ConnectedPoint, multiaddr::Protocol};

use crate::config::ConfigError;

/// The two ends of the sockets to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// This end, if it is known.
    own: Option<(Option<IpAddr>, u16)>,
    /// The other end; `None` for sockets that listen.
    other: Option<(Option<IpAddr>, u16)>,
}

impl Ends {
    /// The socket that listens on this address; `None` if the address is not TCP.
    pub(crate) fn listening(address: &Multiaddr) -> Option<Ends> {
        Some(Ends { own: Some(tcp_end(address)?), other: None })
    }

    /// A connection's socket; `None` if the connection is not TCP.
    pub(crate) fn of(endpoint: &ConnectedPoint) -> Option<Ends> {
        match endpoint {
            ConnectedPoint::Dialer { address, .. } => {
                Some(Ends { own: None, other: Some(tcp_end(address)?) })
            }
            ConnectedPoint::Listener { local_addr, send_back_addr } => {
                Some(Ends { own: tcp_end(local_addr), other: Some(tcp_end(send_back_addr)?) })
            }
        }
    }

    /// Whether the other end is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self.other, Some((Some(ip), _)) if ip.is_loopback())
    }

    fn matches(&self, own: SocketAddr, other: Option<SocketAddr>) -> bool {
        let same = |wanted: Option<(Option<IpAddr>, u16)>, found: SocketAddr| {
            wanted.is_none_or(|(ip, port)| {
                port == found.port()
                    && ip.is_none_or(|ip| {
                        let found = found.ip().to_canonical();
                        ip == found || ip.is_unspecified() || found.is_unspecified()
                    })
            })
        };
        match other {
            Some(other) => self.other.is_some() && same(self.other, other) && same(self.own, own),
            None => self.other.is_none() && same(self.own, own),
        }
    }
}

/// The port, and the IP address unless it is a name, of a TCP multiaddress.
fn tcp_end(address: &Multiaddr) -> Option<(Option<IpAddr>, u16)> {
    let (mut ip, mut port) = (None, None);
    for part in address {
        match part {
            Protocol::Ip4(found) => ip = Some(found.into()),
            Protocol::Ip6(found) => ip = Some(IpAddr::from(found).to_canonical()),
            Protocol::Tcp(found) => port = Some(found),
            _ => {}
        }
    }
    Some((ip, port?))
}

/// Checks on a socket without a connection that this system has the controller and lets this
/// program choose it.
///
/// # Errors
/// If not; the error lists the controllers that it has.
pub(crate) fn check(name: &str) -> Result<(), ConfigError> {
    let wrong =
        |problem: String| ConfigError::new("run.congestion", format!("\"{name}\""), problem);
    let socket = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| socket.local_addr().map(|own| (socket, own)))
        .map_err(|error| wrong(format!("cannot be tried: {error}")))?;
    let (_open, own) = socket;
    system::choose(name, &Ends { own: Some((Some(own.ip()), own.port())), other: None })
        .map_err(wrong)
}

/// How long bytes may stay unacknowledged before the system gives a connection up.
const SILENCE: Duration = Duration::from_secs(20);

/// Has the system give up the connections with these ends when the other end acknowledges nothing
/// for [`SILENCE`]. Otherwise a dead connection with unsent bytes stays for a quarter of an hour.
pub(super) fn limit_silence(ends: &Ends) {
    if let Err(error) = system::limit_silence(ends, SILENCE) {
        tracing::debug!("a dead connection will be noticed late: {error}");
    }
}

/// The most bytes that wait in a socket to be sent for the first time. A control message waits
/// behind them; without a limit these are megabytes, which take half a minute at 1 Mbit/s.
const UNSENT: u32 = 512 << 10;

/// Limits what waits in the sockets with these ends, for the time that a message takes.
pub(super) fn limit_unsent(ends: &Ends) {
    if let Err(error) = system::limit_unsent(ends, UNSENT) {
        tracing::debug!("control messages may wait behind frames: {error}");
    }
}

/// Sets the controller on the sockets with these ends.
///
/// # Errors
/// A text that says why it could not be set.
pub(crate) fn choose(name: &str, ends: &Ends) -> Result<(), String> {
    system::choose(name, ends)
}

#[cfg(target_os = "linux")]
mod system {
    use std::{fs, net::SocketAddr, time::Duration};

    use rustix::{
        fd::OwnedFd,
        io::Errno,
        net::{SocketType, getpeername, getsockname, sockopt},
        process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
    };

    use socket2::SockRef;

    use super::Ends;

    pub(crate) fn choose(name: &str, ends: &Ends) -> Result<(), String> {
        let found = sockets(ends)?;
        if found.is_empty() {
            return Err("the socket was not found among this process's descriptors".into());
        }
        found
            .iter()
            .try_for_each(|socket| sockopt::set_tcp_congestion(socket, name))
            .map_err(|error| describe(name, error))
    }

    pub(crate) fn limit_silence(ends: &Ends, limit: Duration) -> Result<(), String> {
        sockets(ends)?.iter().try_for_each(|socket| {
            sockopt::set_tcp_user_timeout(socket, limit.as_millis() as u32)
                .map_err(|error| error.to_string())
        })
    }

    pub(crate) fn limit_unsent(ends: &Ends, limit: u32) -> Result<(), String> {
        sockets(ends)?.iter().try_for_each(|socket| {
            SockRef::from(socket).set_tcp_notsent_lowat(limit).map_err(|error| error.to_string())
        })
    }

    /// Copies of this process's TCP sockets with these ends.
    fn sockets(ends: &Ends) -> Result<Vec<OwnedFd>, String> {
        let unseen = |error: &dyn std::fmt::Display| {
            format!(
                "this process may not look up its own sockets ({error}): set \
                 net.ipv4.tcp_congestion_control instead"
            )
        };
        let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| unseen(&error))?;
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc/self/fd").map_err(|error| unseen(&error))?.flatten() {
            let is_socket = fs::read_link(entry.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
            let Some(number) =
                entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_socket)
            else {
                continue;
            };
            match pidfd_getfd(&own, number, PidfdGetfdFlags::empty()) {
                Ok(socket) if is_meant(&socket, ends) => found.push(socket),
                // Another thread has closed it meanwhile.
                Ok(_) | Err(Errno::BADF) => {}
                Err(error) => return Err(unseen(&error)),
            }
        }
        Ok(found)
    }

    fn is_meant(socket: &OwnedFd, ends: &Ends) -> bool {
        let Ok(SocketType::STREAM) = sockopt::socket_type(socket) else { return false };
        let Some(own) = getsockname(socket).ok().and_then(|own| SocketAddr::try_from(own).ok())
        else {
            return false;
        };
        let other =
            getpeername(socket).ok().flatten().and_then(|other| SocketAddr::try_from(other).ok());
        (other.is_some() || sockopt::socket_acceptconn(socket).unwrap_or(false))
            && ends.matches(own, other)
    }

    fn describe(name: &str, error: Errno) -> String {
        let list = |key: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap_or_default();
            text.split_whitespace().collect::<Vec<_>>().join(", ")
        };
        match error {
            Errno::NOENT => format!(
                "this system has no such congestion control: expected one of {} (more may come \
                 with `modprobe tcp_{name}`)",
                list("tcp_available_congestion_control")
            ),
            Errno::PERM => format!(
                "this system does not let programs choose it: expected one of {} (its owner can \
                 add to net.ipv4.tcp_allowed_congestion_control)",
                list("tcp_allowed_congestion_control")
            ),
            error => format!("it cannot be set: {error}"),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::Duration;

    use super::Ends;

    pub fn choose(_name: &str, _ends: &Ends) -> Result<(), String> {
        Err("only on Linux a program can choose it: leave it out".into())
    }

    pub fn limit_unsent(_ends: &Ends, _limit: u32) -> Result<(), String> {
        Err("only on Linux a program finds its sockets".into())
    }

    pub fn limit_silence(_ends: &Ends, _limit: Duration) -> Result<(), String> {
        Err("only on Linux a program finds its sockets".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn silence_is_limited_on_the_connection_that_is_meant() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let dialled = std::net::TcpStream::connect(target).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let ip = dialled.local_addr().unwrap();
        let ends = Ends {
            own: Some((Some(ip.ip()), ip.port())),
            other: Some((Some(target.ip()), target.port())),
        };
        system::limit_silence(&ends, SILENCE).unwrap();
        let limit = |socket| rustix::net::sockopt::tcp_user_timeout(socket).unwrap();
        assert_eq!((limit(&dialled), limit(&accepted)), (20_000, 0));
        system::limit_unsent(&ends, UNSENT).unwrap();
        let unsent = |socket| socket2::SockRef::from(socket).tcp_notsent_lowat().unwrap();
        assert_eq!((unsent(&dialled), unsent(&accepted)), (UNSENT, 0));
    }

    #[test]
    fn sockets_are_identified_by_their_ends() {
        let address = |text: &str| text.parse::<Multiaddr>().unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let listening = Ends::listening(&address("/ip4/0.0.0.0/tcp/4001")).unwrap();
        assert!(
            listening.matches(at("0.0.0.0:4001"), None)
                && !listening.matches(at("0.0.0.0:4002"), None)
        );
        assert!(
            !listening.matches(at("10.0.0.1:4001"), Some(at("10.0.0.2:999"))),
            "a connection does not listen"
        );
        let named = ConnectedPoint::Dialer {
            address: address("/dns4/london.example/tcp/4001"),
            role_override: libp2p::core::Endpoint::Dialer,
            port_use: libp2p::core::transport::PortUse::Reuse,
        };
        let named = Ends::of(&named).unwrap();
        assert!(
            named.matches(at("10.0.0.1:5"), Some(at("10.0.0.2:4001"))),
            "a name is any address"
        );
        assert!(
            !named.matches(at("10.0.0.1:4001"), Some(at("10.0.0.2:5")))
                && !named.matches(at("10.0.0.1:4001"), None)
        );
        let accepted = ConnectedPoint::Listener {
            local_addr: address("/ip6/::ffff:10.0.0.1/tcp/4001"),
            send_back_addr: address("/ip4/10.0.0.2/tcp/999"),
        };
        let accepted = Ends::of(&accepted).unwrap();
        assert!(accepted.matches(at("[::ffff:10.0.0.1]:4001"), Some(at("[::ffff:10.0.0.2]:999"))));
        assert!(!accepted.matches(at("10.0.0.1:4001"), Some(at("10.0.0.3:999"))));
        assert_eq!(
            Ends::listening(&address("/ip4/0.0.0.0/udp/4001/quic-v1")),
            None,
            "QUIC has its own"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_set_on_the_socket_itself() {
        use rustix::net::sockopt::tcp_congestion;
        check("reno").expect("every Linux has it and lets every program choose it");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let dialled = std::net::TcpStream::connect(own).unwrap();
        let (accepted, from) = listener.accept().unwrap();
        let other = ("reno", tcp_congestion(&accepted).unwrap());
        let ends = |own: Option<SocketAddr>, other: SocketAddr| Ends {
            own: own.map(|own| (Some(own.ip()), own.port())),
            other: Some((Some(other.ip()), other.port())),
        };
        choose("reno", &ends(None, own)).unwrap();
        assert_eq!(tcp_congestion(&dialled).unwrap(), "reno");
        assert_eq!(
            tcp_congestion(&accepted).unwrap(),
            other.1,
            "the other end's socket keeps its own"
        );
        choose("reno", &ends(Some(own), from)).unwrap();
        assert_eq!(tcp_congestion(&accepted).unwrap(), "reno");
    }

    #[test]
    fn one_that_is_not_there_is_refused_with_those_that_are() {
        let error = check("rneo").unwrap_err().to_string();
        assert!(error.starts_with("run.congestion = \"rneo\": "), "{error}");
        if cfg!(target_os = "linux") {
            assert!(error.contains("expected one of") && error.contains("reno"), "{error}");
        }
    }
}
