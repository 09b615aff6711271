//! Ports for several nodes on one machine, whose topology must name them before they listen.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::Range,
};

use super::link::session::random;
use crate::experiment::Transport;

/// Systems give programs that ask for any port one above these.
const RANGE: Range<u16> = 20_000..32_768;

/// The file in the folder of temporary files that counts the ports given so far.
const COUNTER: &str = "gradvine-ports";

/// Different ports of 127.0.0.1 on which nothing listens, for nodes that will listen there soon.
///
/// No port is given again on this machine before all the others were, whichever program asks: a
/// file counts them. A program that asks the system for any port takes none of them, for they are
/// below the system's own range; one that asks for a certain port may.
///
/// # Errors
/// If there are not so many.
pub fn free_ports(transport: Transport, count: usize) -> io::Result<Vec<u16>> {
    let candidates = RANGE.len();
    let is_free = |port: &u16| match transport {
        Transport::Tcp => TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok(),
        Transport::Quic => UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_ok(),
    };
    let mut counter = Counter::open();
    let next = || counter.next();
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

/// Counts candidates for all programs of this machine. No other program counts until it is
/// dropped.
struct Counter {
    /// Locked; `None` if it cannot be written: then the count begins anywhere.
    file: Option<File>,
    next: u64,
}

impl Counter {
    fn open() -> Counter {
        let read = |mut file: File| {
            file.lock()?;
            let mut text = String::new();
            Read::by_ref(&mut file).take(32).read_to_string(&mut text)?;
            io::Result::Ok((file, text.trim().parse().unwrap_or_else(|_| random() >> 1)))
        };
        match open(&std::env::temp_dir().join(COUNTER)).and_then(read) {
            Ok((file, next)) => Counter { file: Some(file), next },
            Err(_) => Counter { file: None, next: random() >> 1 },
        }
    }

    fn next(&mut self) -> u16 {
        let place = self.next % RANGE.len() as u64;
        self.next = (self.next + 1) % RANGE.len() as u64;
        RANGE.start + place as u16
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let Some(file) = &mut self.file else { return };
        // If it fails, the next program may choose some of these ports again.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(self.next.to_string().as_bytes()));
    }
}

/// Opens a file for reading and writing, and makes it if it is not there. All users may write into
/// the folder of temporary files, so a link there is not followed.
fn open(path: &std::path::Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    }
    options.open(path)
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
