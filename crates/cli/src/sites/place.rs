//! Where a site is: its name, its addresses, its node file.

use std::{
    fs,
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf, absolute},
};

use gradvine::{
    config::ConfigError,
    data::EMBEDDED,
    net::{Keypair, Proxy, identity},
    run::NodeFile,
};
use gradvine_enrol::{Site, check_name};
use gradvine_terminal::{Exit, note};

/// The names of a site's key and of its run directory.
const KEY: &str = "node.key";
const OUT: &str = "training";

/// The first words of a node file that is made here.
const MADE: &str = "# The node of ";

/// The port on which nodes listen if nothing else is said.
const PORT: u16 = 4001;

/// How a site is reached, and its rows.
#[derive(clap::Args, Debug)]
pub(crate) struct Place {
    /// This site's rows, which never leave it: CSV, Parquet, Arrow, or a folder of them
    #[arg(long, value_name = "FILE")]
    pub data: Option<String>,
    /// Where other sites reach this one: a name or an IP address, with a port if it is not 4001, or
    /// a multiaddress; may be repeated [default: this machine's own addresses]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub address: Vec<String>,
    /// The port on which the node listens, over TCP
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,
    /// The proxy through which connections leave this site: http://HOST:PORT or socks5://HOST:PORT,
    /// with USER:PASSWORD@ before HOST if it asks for them
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// A file whose first line is that URL: other users of a machine may see the arguments of
    /// programs
    #[arg(long, value_name = "FILE", conflicts_with = "proxy")]
    pub proxy_file: Option<PathBuf>,
}

impl Place {
    /// The multiaddresses that are given.
    pub(crate) fn addresses(&self) -> Result<Vec<String>, ConfigError> {
        addresses_of(&self.address, self.port)
    }

    /// The URL of the proxy that is given.
    fn proxy_url(&self) -> Result<Option<String>, ConfigError> {
        let Some(path) = &self.proxy_file else { return Ok(self.proxy.clone()) };
        let text = fs::read_to_string(path)
            .map_err(|error| ConfigError::new("--proxy-file", path.display(), error.to_string()))?;
        Ok(Some(text.lines().next().unwrap_or_default().trim().into()))
    }

    /// The proxy that is given.
    pub(crate) fn proxy(&self) -> Result<Option<Proxy>, ConfigError> {
        self.proxy_url()?.map(|text| Proxy::parse("--proxy", &text)).transpose()
    }

    /// The addresses to listen on: none where only a proxy leads out, and nothing leads in.
    fn listen(&self) -> Vec<String> {
        let has_proxy = self.proxy.is_some() || self.proxy_file.is_some();
        if has_proxy && self.address.is_empty() {
            return Vec::new();
        }
        let mut all = vec![format!("/ip4/0.0.0.0/tcp/{}", self.port)];
        if own_addresses().iter().any(IpAddr::is_ipv6) {
            all.push(format!("/ip6/::/tcp/{}", self.port));
        }
        all
    }

    /// Makes the site's key, unless it has one, and its node file.
    pub(crate) fn make(&self, folder: &Path, what: &str) -> Result<Site, Exit> {
        // Nothing is made for a wrong one.
        self.proxy()?;
        let proxy = self.proxy_url()?;
        fs::create_dir_all(folder).map_err(|error| {
            ConfigError::new("--dir", folder.display(), format!("cannot be made: {error}"))
        })?;
        let site = Site::with(folder, key(folder)?, proxy.as_deref())?;
        let path = site.node();
        // One of an attempt that has failed is made again; what a user has written stays.
        let written = fs::read_to_string(&path).ok();
        if written.is_some_and(|text| !text.starts_with(MADE)) {
            let file = NodeFile::load(&path)?;
            let peer = identity::load(&file.key)?.public().to_peer_id().to_string();
            return match peer == site.peer() {
                true => {
                    let proxy = proxy.as_deref().or(file.proxy.as_deref());
                    Ok(Site::with(folder, site.key, proxy)?)
                }
                false => Err(ConfigError::at("key", "is not that of this folder's node.key")
                    .within(path.display())
                    .into()),
            };
        }
        let quote = |text: &str| toml::Value::String(text.into()).to_string();
        let listen: Vec<String> = self.listen().iter().map(|one| quote(one)).collect();
        let mut text = format!(
            "{MADE}{what}. The lines are yours to change.\n\
             key = \"{KEY}\"\n\
             listen = [{}]\n\
             # These two are made from the run by `gradvine start`.\n\
             topology = \"run/topology.toml\"\n\
             experiment = \"run/experiment.toml\"\n",
            listen.join(", ")
        );
        if let Some(data) = &self.data {
            text += &format!("data = {}\n", quote(&beside(folder, data)?));
        }
        if let Some(proxy) = &proxy {
            text += &format!("proxy = {}\n", quote(proxy));
        }
        text += &format!("out = \"{OUT}\"\n");
        let made = fs::File::create(&path).and_then(|mut file| {
            if proxy.is_some() {
                // Its password is for the owner's eyes.
                file.set_permissions(fs::Permissions::from_mode(0o600))?;
            }
            file.write_all(text.as_bytes())
        });
        made.map_err(|error| {
            ConfigError::at("node", format!("cannot be written: {error}")).within(path.display())
        })?;
        Ok(site)
    }
}

/// The key of this folder, new if there is none.
fn key(folder: &Path) -> Result<Keypair, ConfigError> {
    let path = folder.join(KEY);
    match path.exists() {
        true => identity::load(&path),
        false => identity::create(&path),
    }
}

/// A path that is relative to the present folder, as the node file in `folder` names it.
fn beside(folder: &Path, data: &str) -> Result<String, ConfigError> {
    if EMBEDDED.find(data).is_some() {
        return Ok(data.into());
    }
    let wrong = |error: std::io::Error| ConfigError::new("--data", data, error.to_string());
    let (path, folder) = (absolute(data).map_err(wrong)?, absolute(folder).map_err(wrong)?);
    Ok(path.strip_prefix(&folder).unwrap_or(&path).display().to_string())
}

/// The name of this machine, if it can be a site's.
pub(crate) fn machine() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().split('.').next()?.to_string();
    check_name(&name).is_ok().then_some(name)
}

/// The addresses of this machine from which packets leave it.
fn own_addresses() -> Vec<IpAddr> {
    let by = |from: IpAddr, to: IpAddr| {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).ok()?;
        // Connecting sends nothing.
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    };
    // Addresses for documents: they are never on this network.
    let four = by(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let six = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let six = by(Ipv6Addr::UNSPECIFIED.into(), six.into());
    four.into_iter().chain(six).collect()
}

/// Where this machine is reached on this port, as far as it knows itself.
pub(crate) fn found_addresses(listen: &[String]) -> Vec<String> {
    let own = own_addresses();
    // A machine without a network: for trials.
    let own = if own.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { own };
    let mut found = Vec::new();
    for one in listen {
        let parts: Vec<&str> = one.split('/').collect();
        let [_, family, host, protocol, port, rest @ ..] = parts.as_slice() else { continue };
        let Ok(host) = host.parse::<IpAddr>() else {
            found.push(one.clone());
            continue;
        };
        let hosts: Vec<IpAddr> = match host.is_unspecified() {
            false => vec![host],
            true => own.iter().filter(|ip| ip.is_ipv6() == host.is_ipv6()).copied().collect(),
        };
        let rest: String = rest.iter().map(|part| format!("/{part}")).collect();
        found.extend(hosts.iter().map(|ip| format!("/{family}/{ip}/{protocol}/{port}{rest}")));
    }
    found
}

/// Says where this site is reached now: as its user has said, or as this machine knows itself.
/// Returns these addresses.
pub(crate) fn announce(site: &Site, listen: &[String]) -> Result<Vec<String>, ConfigError> {
    site.change(|book| {
        let known = book.me().map(|me| book.addresses_of(me).to_vec()).unwrap_or_default();
        let addresses = match book.addresses.is_empty() {
            true => found_addresses(listen),
            false => book.addresses.clone(),
        };
        // A machine between two addresses has none: the last one stays.
        if is_local(&addresses) && !known.is_empty() {
            return Ok(known);
        }
        site.announce(book, addresses.clone());
        Ok(addresses)
    })
}

/// Whether only programs on this machine reach these.
fn is_local(addresses: &[String]) -> bool {
    addresses.iter().all(|one| one.starts_with("/ip4/127.") || one.starts_with("/ip6/::1/"))
}

/// Warns if other machines cannot reach any of these.
pub(crate) fn warn_of(addresses: &[String]) {
    if addresses.is_empty() {
        note!("this site has no address: it dials the others, and none of them dials it");
    } else if is_local(addresses) {
        note!(
            "warning: only programs on this machine reach this site; --address HOST says where \
             others reach it"
        );
    }
}

/// What users write for addresses, as multiaddresses; `port` is that of a host without one.
pub(crate) fn addresses_of(texts: &[String], port: u16) -> Result<Vec<String>, ConfigError> {
    texts.iter().map(|text| address_of(text, port)).collect()
}

/// The port of the first address that is listened on, or the usual one.
pub(crate) fn port_of(listen: &[String]) -> u16 {
    let port = |one: &String| one.split('/').nth(4).and_then(|port| port.parse().ok());
    listen.iter().find_map(port).unwrap_or(PORT)
}

/// A multiaddress, or a host with or without a port, as a multiaddress.
fn address_of(text: &str, port: u16) -> Result<String, ConfigError> {
    let wrong = || {
        let problem = "expected a name or an IP address, with or without \":PORT\", or a \
                       multiaddress such as /dns4/berlin.example.org/tcp/4001";
        ConfigError::new("--address", text, problem)
    };
    if text.starts_with('/') {
        return match text.parse::<gradvine::net::Multiaddr>() {
            Ok(_) => Ok(text.into()),
            Err(_) => Err(wrong()),
        };
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Ok(multiaddress(socket.ip(), socket.port()));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(multiaddress(ip, port));
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, port.parse::<u16>().map_err(|_| wrong())?),
        None => (text, port),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    match !name.is_empty() && name.chars().all(is_plain) && port > 0 {
        true => Ok(format!("/dns/{name}/tcp/{port}")),
        false => Err(wrong()),
    }
}

fn multiaddress(ip: IpAddr, port: u16) -> String {
    match ip {
        IpAddr::V4(ip) => format!("/ip4/{ip}/tcp/{port}"),
        IpAddr::V6(ip) => format!("/ip6/{ip}/tcp/{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{address_of, found_addresses};

    #[test]
    fn hosts_become_multiaddresses() {
        for (text, address) in [
            ("berlin.example.org", "/dns/berlin.example.org/tcp/4001"),
            ("berlin.example.org:99", "/dns/berlin.example.org/tcp/99"),
            ("9.9.9.9", "/ip4/9.9.9.9/tcp/4001"),
            ("9.9.9.9:99", "/ip4/9.9.9.9/tcp/99"),
            ("2001:db8::1", "/ip6/2001:db8::1/tcp/4001"),
            ("[2001:db8::1]:99", "/ip6/2001:db8::1/tcp/99"),
            ("/ip4/9.9.9.9/udp/99/quic-v1", "/ip4/9.9.9.9/udp/99/quic-v1"),
        ] {
            assert_eq!(address_of(text, 4001).unwrap(), address);
        }
        for text in ["", "a b", "host:", "host:0", "host:70000", "/ip4/9/tcp/1", "http://host"] {
            let error = address_of(text, 4001).unwrap_err().to_string();
            assert!(error.contains("--address") && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn an_address_that_is_listened_on_is_where_it_is_reached() {
        let listen = ["/ip4/127.0.0.1/tcp/5", "/ip6/::1/udp/6/quic-v1"].map(String::from);
        assert_eq!(found_addresses(&listen), listen);
        let all = found_addresses(&["/ip4/0.0.0.0/tcp/5".to_string()]);
        assert!(all.iter().all(|one| !one.contains("0.0.0.0") && one.ends_with("/tcp/5")));
        assert!(!all.is_empty());
    }
}
