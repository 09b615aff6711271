//! Limits and settings of the operating system.

use std::net::UdpSocket;

use gradvine::net;

use crate::{Finding, Report, files::Examined};

/// The number of files that a process needs beside one per link: sockets that listen, logs, the
/// run directory, the runtime.
const OTHER_FILES: u64 = 32;

/// The least MTU over which every link of the Internet works.
pub(crate) const LEAST_MTU: u32 = 1280;

pub(crate) fn examine(node: Option<&Examined>, report: &mut Report) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    report.findings.push(Finding::ok("processors", format!("{cores}")));
    report.findings.push(if net::has_aes() {
        Finding::ok("encryption", "this processor has instructions for AES: TLS 1.3 with AES")
    } else {
        Finding::ok("encryption", "this processor has no instructions for AES: Noise, ChaCha20")
    });
    system(node, report);
}

#[cfg(target_os = "linux")]
fn system(node: Option<&Examined>, report: &mut Report) {
    let mut note = |finding: Finding| report.findings.push(finding);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let needs = node.map_or(1, |node| node.place.neighbours() as u64) + OTHER_FILES;
    match limit {
        Some(limit) if limit < needs => {
            let text = format!("this process may open {limit} files; the node needs {needs}");
            note(Finding::error("open files", text, "ulimit -n, LimitNOFILE= of systemd"));
        }
        _ => {}
    }
    let read = |key: &str| std::fs::read_to_string(format!("/proc/sys/net/{key}")).ok();
    if let (Some(used), Some(known)) =
        (read("ipv4/tcp_congestion_control"), read("ipv4/tcp_available_congestion_control"))
    {
        let asked = node.and_then(|node| node.experiment.run.congestion.clone());
        let (used, known) = (used.trim(), known.trim());
        match asked {
            Some(name) if !known.split_whitespace().any(|one| one == name) => {
                let text = format!("run.congestion = \"{name}\", and this kernel has {known}");
                note(Finding::error("congestion", text, &format!("modprobe tcp_{name}, as root")));
            }
            Some(name) => note(Finding::ok("congestion", format!("{name} (run.congestion)"))),
            None if used == "bbr" => note(Finding::ok("congestion", "bbr")),
            None => note(Finding::ok(
                "congestion",
                format!("{used}; bbr is faster on long links that lose packets (has: {known})"),
            )),
        }
    }
    for (name, mtu) in mtus() {
        if mtu < LEAST_MTU {
            let text = format!("{name} has an MTU of {mtu}");
            note(Finding::warning("MTU", text, "raise it to 1280 or more: QUIC needs that much"));
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn system(_: Option<&Examined>, _: &mut Report) {}

/// The network interfaces that are up, except loopback, with their MTU.
#[cfg(target_os = "linux")]
fn mtus() -> Vec<(String, u32)> {
    let Ok(entries) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    let one = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let read = |name: &str| std::fs::read_to_string(path.join(name)).ok();
        let name = path.file_name()?.to_string_lossy().into_owned();
        let up = read("operstate").is_some_and(|state| state.trim() == "up");
        Some((name, read("mtu")?.trim().parse().ok()?)).filter(|(name, _)| up && name != "lo")
    };
    entries.filter_map(one).collect()
}

/// The largest packet that passes to the other end of a connected socket, as far as the kernel
/// knows, in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn path_mtu(socket: &UdpSocket) -> Option<u32> {
    use rustix::net::sockopt;
    match socket.peer_addr().ok()?.is_ipv4() {
        true => sockopt::ip_mtu(socket).ok(),
        false => sockopt::ipv6_mtu(socket).ok(),
    }
}

/// Not known on other systems.
#[cfg(not(target_os = "linux"))]
pub fn path_mtu(_: &UdpSocket) -> Option<u32> {
    None
}

/// The largest buffers of a TCP socket for receiving and sending, in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn tcp_buffers() -> Option<[u64; 2]> {
    let most = |key: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).ok()?;
        text.split_whitespace().last()?.parse().ok()
    };
    Some([most("tcp_rmem")?, most("tcp_wmem")?])
}

/// Not known on other systems.
#[cfg(not(target_os = "linux"))]
pub fn tcp_buffers() -> Option<[u64; 2]> {
    None
}
