//! Ports for several nodes on one machine, whose topology must name them before they listen.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::Range,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::session::random;
use crate::experiment::Transport;

/// Systems give programs that ask for any port one above these.
const RANGE: Range<u16> = 20_000..32_768;

/// Different ports of 127.0.0.1 on which nothing listens, for nodes that will listen there soon.
///
/// No port is given again in one process before all the others were. A program that asks the
/// system for any port takes none of them, for they are below the system's own range; one that
/// asks for a certain port may.
///
/// # Errors
/// If there are not so many.
pub fn free_ports(transport: Transport, count: usize) -> io::Result<Vec<u16>> {
    // Processes that start together begin at different places.
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(random()));
    let candidates = RANGE.len();
    let next = || RANGE.start + (NEXT.fetch_add(1, Ordering::Relaxed) % candidates as u64) as u16;
    let is_free = |port: &u16| match transport {
        Transport::Tcp => TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok(),
        Transport::Quic => UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_ok(),
    };
    let ports: Vec<u16> =
        std::iter::repeat_with(next).take(candidates).filter(is_free).take(count).collect();
    if ports.len() < count {
        let text = format!(
            "{count} ports of 127.0.0.1 from {} to {} are wanted, {} are free",
            RANGE.start,
            RANGE.end - 1,
            ports.len()
        );
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_free() {
        for transport in [Transport::Tcp, Transport::Quic] {
            let mut ports = free_ports(transport, 20).unwrap();
            ports.extend(free_ports(transport, 20).unwrap());
            let count = ports.len();
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), count);
            assert!(ports.iter().all(|port| RANGE.contains(port)));
        }
        let one = (Ipv4Addr::LOCALHOST, free_ports(Transport::Tcp, 1).unwrap()[0]);
        let _taken = TcpListener::bind(one).unwrap();
        let error = free_ports(Transport::Tcp, RANGE.len()).unwrap_err().to_string();
        assert!(error.starts_with("12768 ports of 127.0.0.1 from 20000 to 32767"), "{error}");
    }
}
