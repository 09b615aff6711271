//! A site for one node: a network namespace, whose only way out is a TUN device that the router
//! holds.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::Ipv4Addr,
    os::fd::AsFd,
    path::Path,
    process::{Command, Output, Stdio},
    sync::OnceLock,
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::LabError;
use gradvine::{config::ConfigError, run::EndError, threads, units::NodeId};
use gradvine_processes::Program;

/// The prefix of a laboratory's namespaces; the process and a number follow.
const PREFIX: &str = "gvlab-";
/// The folder in which `ip netns` lists them.
const NAMED: &str = "/run/netns";
/// The device's name in its namespace.
const DEVICE: &str = "gv0";
/// The packet length of an Ethernet.
pub const MTU: usize = 1500;
/// The maximum number of packets that wait in a device for the router: a burst of 15 MB. Only the
/// router's links may drop packets, so the device must not.
const QUEUE: usize = 10_000;

/// Settings of all sites of a laboratory.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// TCP's congestion controller, set by the route; `None` for the system's.
    pub congestion: Option<String>,
    /// Settings below `net.` for every namespace.
    pub sysctls: Vec<(String, String)>,
}

impl Setup {
    /// The settings for namespaces: a congestion controller, and kernel settings `net.KEY=VALUE`.
    ///
    /// # Errors
    /// If the kernel lacks the controller, or a setting is malformed or does not belong to a
    /// namespace.
    pub fn parse(congestion: Option<&str>, sysctls: &[String]) -> Result<Setup, EndError> {
        if let Some(name) = congestion {
            check_congestion(name)?;
        }
        let sysctl = |text: &String| match text.split_once('=') {
            Some((key, value)) if key.starts_with("net.") => {
                Ok((key.trim().to_string(), value.trim().to_string()))
            }
            _ => Err(ConfigError::new(
                "--sysctl",
                text,
                "expected net.KEY=VALUE: only settings below net. belong to a namespace",
            )),
        };
        let sysctls = sysctls.iter().map(sysctl).collect::<Result<_, _>>()?;
        Ok(Setup { congestion: congestion.map(String::from), sysctls })
    }
}

/// One node's site. Dropping it removes the namespace.
pub struct Site {
    name: String,
    /// The node's only address in the laboratory's network.
    pub address: Ipv4Addr,
    namespace: File,
    tun: Option<SyncDevice>,
}

/// The name of a process's namespace for a node; `laboratory` distinguishes those of one process.
pub fn name(laboratory: u32, node: usize) -> String {
    format!("{PREFIX}{}-{laboratory}-{node}", std::process::id())
}

/// A node's address; the first one's is 10.77.0.1.
pub fn address(node: NodeId) -> Ipv4Addr {
    let number = node.0 + 1;
    Ipv4Addr::new(10, 77, (number >> 8) as u8, (number & 255) as u8)
}

/// The node with this address.
pub(crate) fn node_at(address: [u8; 4]) -> Option<NodeId> {
    let [10, 77, high, low] = address else { return None };
    (u32::from(high) << 8 | u32::from(low)).checked_sub(1).map(NodeId)
}

/// Checks that the machine meets the needs of a laboratory.
///
/// # Errors
/// The first thing that is missing, in one line.
pub fn check() -> Result<(), LabError> {
    let missing = |what: &str| Err(LabError::Missing(what.into()));
    if !rustix::process::geteuid().is_root() {
        return missing("it makes network namespaces: run it as root");
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing(
            "there is no /dev/net/tun: load the kernel's module `tun`, or pass the device into \
             the container",
        );
    }
    // A container's root may lack rights that root has elsewhere, so try it once.
    static TRIED: OnceLock<Option<String>> = OnceLock::new();
    if Command::new("ip").arg("-V").output().is_err() {
        return missing("there is no `ip`: install iproute2");
    }
    let refused = TRIED.get_or_init(|| {
        let name = format!("gvlab-{}-0-0", std::process::id());
        let ip = |what: &str| Command::new("ip").args(["netns", what, &name]).output();
        match ip("add") {
            Ok(made) if made.status.success() => ip("del").err().map(|error| error.to_string()),
            Ok(made) => Some(String::from_utf8_lossy(&made.stderr).trim().to_string()),
            Err(error) => Some(error.to_string()),
        }
    });
    match refused {
        Some(why) => Err(LabError::Missing(format!(
            "network namespaces cannot be made on this machine ({why}): it needs the \
             capabilities NET_ADMIN and SYS_ADMIN"
        ))),
        None => Ok(()),
    }
}

/// Refuses a congestion controller that the kernel does not have.
///
/// # Errors
/// If the kernel lacks it; the error lists those that it has.
pub fn check_congestion(name: &str) -> Result<(), LabError> {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default();
    if known.is_empty() || known.split_whitespace().any(|one| one == name) {
        return Ok(());
    }
    let known: Vec<&str> = known.split_whitespace().collect();
    Err(LabError::Missing(format!(
        "this kernel has no congestion controller \"{name}\": expected one of {}",
        known.join(", ")
    )))
}

/// Removes the namespaces of laboratories whose process is gone.
pub fn clear_leftovers() {
    let Ok(entries) = fs::read_dir(NAMED) else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let dead = names.filter(|name| {
        owner(name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    });
    remove(&dead.collect::<Vec<_>>());
}

/// The process that made a namespace with this name.
fn owner(name: &str) -> Option<u32> {
    let mut numbers =
        name.strip_prefix(PREFIX)?.split('-').map(|number| number.parse::<u32>().ok());
    let (pid, rest): (_, Vec<_>) = (numbers.next()??, numbers.collect());
    (rest.len() == 2 && rest.iter().all(Option::is_some)).then_some(pid)
}

/// Removes namespaces by name; missing ones are skipped.
pub fn remove(names: &[String]) {
    for name in names.iter().filter(|name| Path::new(NAMED).join(name).exists()) {
        let result = ip(&["netns", "del", name], None);
        if let Err(error) = result {
            tracing::warn!("{error}");
        }
    }
}

impl Site {
    /// Makes a node's namespace and device, with an address and a route to all others.
    ///
    /// # Errors
    /// If the system refuses; then nothing is left behind.
    pub fn new(name: String, node: NodeId, setup: &Setup) -> Result<Site, LabError> {
        // A dead process with the same id may have left one.
        remove(std::slice::from_ref(&name));
        ip(&["netns", "add", &name], None)?;
        let made = Site::within_new(&name, node, setup);
        if made.is_err() {
            remove(&[name]);
        }
        made
    }

    fn within_new(name: &str, node: NodeId, setup: &Setup) -> Result<Site, LabError> {
        let namespace = File::open(Path::new(NAMED).join(name))?;
        let tun = inside(&namespace, || {
            // The IPv6 stack must not send router solicitations of its own.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let tun = DeviceBuilder::new().name(DEVICE).enable(false).build_sync()?;
            tun.set_nonblocking(true)?;
            for (key, value) in &setup.sysctls {
                let path = Path::new("/proc/sys").join(key.replace('.', "/"));
                fs::write(&path, value).map_err(|error| {
                    io::Error::new(error.kind(), format!("{key} = {value}: {error}"))
                })?;
            }
            io::Result::Ok(tun)
        })??;
        let address = address(node);
        let congestion =
            setup.congestion.as_ref().map(|name| format!(" congctl {name}")).unwrap_or_default();
        let lines = format!(
            "link set lo up\nlink set {DEVICE} mtu {MTU} txqueuelen {QUEUE} up\naddr add \
             {address}/32 dev {DEVICE}\n\
             route add 10.77.0.0/16 dev {DEVICE}{congestion}\n"
        );
        ip(&["-n", name, "-batch", "-"], Some(&lines))?;
        Ok(Site { name: name.into(), address, namespace, tun: Some(tun) })
    }

    /// A command that runs at this site.
    pub fn command(&self, program: &Program) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(&program.path).args(&program.first);
        command
    }

    /// Runs a function on a thread at this site. A socket that it opens stays there.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        inside(&self.namespace, work)
    }

    /// TCP's default congestion controller at this site.
    pub fn congestion(&self) -> Option<String> {
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        self.within(read).ok()?.ok().map(|text| text.trim().to_string())
    }

    /// The device; it can be taken once.
    pub fn tap(&mut self) -> Option<SyncDevice> {
        self.tun.take()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        remove(std::slice::from_ref(&self.name));
    }
}

/// A namespace belongs to a thread: this one ends with the function.
fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let enter = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    };
    thread::scope(|scope| io::Result::Ok(threads::spawn_scoped(scope, "namespace", enter)?.join()))?
        .unwrap_or_else(|_| Err(io::Error::other("the thread in a namespace panicked")))
}

/// Runs `ip` to its end.
fn ip(arguments: &[&str], input: Option<&str>) -> Result<(), LabError> {
    let run = || -> io::Result<Output> {
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = Command::new("ip")
            .args(arguments)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(text.as_bytes())?;
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| LabError::Ip(arguments.join(" "), error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(LabError::Ip(
        arguments.join(" "),
        message.lines().next().unwrap_or("it gave no reason").to_string(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_nodes_belong_together() {
        for number in [0, 1, 254, 255, 256, 65_534] {
            assert_eq!(node_at(address(NodeId(number)).octets()), Some(NodeId(number)));
        }
        assert_eq!(address(NodeId(255)), Ipv4Addr::new(10, 77, 1, 0));
        assert_eq!(node_at([10, 77, 0, 0]), None);
        assert_eq!(node_at([224, 0, 0, 22]), None);
    }

    #[test]
    fn only_names_of_laboratories_have_an_owner() {
        assert_eq!(owner("gvlab-123-0-7"), Some(123));
        for name in [
            "gvlab-123",
            "gvlab-123-0",
            "gvlab-123-0-7-9",
            "gvlab-x-0-1",
            "gvlab-123-0-x",
            "lab-123-0-7",
            "gvlab-",
        ] {
            assert_eq!(owner(name), None, "{name}");
        }
        assert_eq!(owner(&name(3, 4)), Some(std::process::id()));
    }
}
