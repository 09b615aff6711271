//! Outgoing connections through a proxy of the site: HTTP CONNECT (RFC 9110, section 9.3.6) or
//! SOCKS5 (RFC 1928, RFC 1929).
//!
//! The proxy sees who is called, and encrypted bytes. It looks up the names of other sites itself,
//! as many sites behind a proxy cannot.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use data_encoding::BASE64;
use futures::{
    FutureExt,
    future::{BoxFuture, Either},
};
use libp2p::{
    Multiaddr, Transport, TransportError,
    core::transport::{DialOpts, ListenerId, TransportEvent},
    multiaddr::Protocol,
    tcp::tokio::TcpStream,
};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_socks::tcp::Socks5Stream;
use url::{Host, Url};

use super::names::Name;
use crate::{
    config::ConfigError,
    net::transport::{Tried, lobby::Lobby},
};

/// The longest answer of a proxy to CONNECT, in bytes.
const LONGEST_ANSWER: usize = 16 << 10;

/// A proxy through which connections of TCP leave this machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    kind: Kind,
    host: Host<String>,
    port: u16,
    /// A user's name and password.
    login: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Socks5,
}

impl Proxy {
    /// Reads `http://HOST:PORT` or `socks5://HOST:PORT`, with `USER:PASSWORD@` before the host if
    /// the proxy asks for them. `place` is the key or the argument that has it.
    ///
    /// # Errors
    /// If it is anything else. The message does not show a password.
    pub fn parse(place: &str, text: &str) -> Result<Proxy, ConfigError> {
        let shown = text.rsplit_once('@').map_or(text, |(_, host)| host);
        let wrong = |problem: &str| {
            let expected = "expected http://HOST:PORT or socks5://HOST:PORT, with USER:PASSWORD@ \
                            before HOST if the proxy asks for them";
            Err(ConfigError::new(place, shown, format!("{problem}: {expected}")))
        };
        let Ok(url) = Url::parse(text) else { return wrong("is no URL") };
        let (kind, usual) = match url.scheme() {
            "http" => (Kind::Http, 80),
            "socks5" | "socks5h" => (Kind::Socks5, 1080),
            _ => return wrong("is of another kind"),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return wrong("has more behind the port");
        }
        // Only schemes that browsers know have their hosts examined.
        let host = url.host_str().and_then(|host| Host::parse(host).ok());
        let Some(host) = host else { return wrong("names no host") };
        let decode = |text: &str| percent_decode_str(text).decode_utf8().map(String::from);
        let login = match (decode(url.username()), decode(url.password().unwrap_or(""))) {
            (Ok(user), Ok(_)) if user.is_empty() => None,
            (Ok(user), Ok(password)) => Some((user, password)),
            _ => return wrong("has a user or a password that is not UTF-8"),
        };
        Ok(Proxy { kind, host, port: url.port().unwrap_or(usual), login })
    }

    /// A connection to this host and port, through the proxy.
    async fn connect(&self, host: &Host<String>, port: u16) -> io::Result<TcpStream> {
        let stream = self.reach().await.map_err(|error| {
            // Not the kind of the error: it would speak of the other site.
            io::Error::other(format!("the proxy {self} cannot be reached: {error}"))
        })?;
        stream.set_nodelay(true)?;
        let stream = match self.kind {
            Kind::Http => self.ask_http(stream, host, port).await,
            Kind::Socks5 => self.ask_socks(stream, host, port).await,
        };
        let refused = |why| {
            io::Error::other(format!("the proxy {self} does not connect to {host}:{port}: {why}"))
        };
        Ok(TcpStream(stream.map_err(refused)?))
    }

    /// A connection to the proxy itself.
    async fn reach(&self) -> io::Result<tokio::net::TcpStream> {
        let host = match &self.host {
            Host::Domain(name) => Protocol::Dns(name.into()),
            Host::Ipv4(ip) => Protocol::Ip4(*ip),
            Host::Ipv6(ip) => Protocol::Ip6(*ip),
        };
        let address = Multiaddr::from(host).with(Protocol::Tcp(self.port));
        let found = match Name::of(&address) {
            Some(name) => name.look_up(&address).await?,
            None => vec![address],
        };
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in found {
            let ip = address.iter().find_map(|part| match part {
                Protocol::Ip4(ip) => Some(ip.into()),
                Protocol::Ip6(ip) => Some(ip.into()),
                _ => None,
            });
            let Some(ip) = ip else { continue };
            match tokio::net::TcpStream::connect(SocketAddr::new(ip, self.port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends CONNECT and reads the answer, not a byte more.
    async fn ask_http(
        &self,
        mut stream: tokio::net::TcpStream,
        host: &Host<String>,
        port: u16,
    ) -> Result<tokio::net::TcpStream, String> {
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some((user, password)) = &self.login {
            let login = BASE64.encode(format!("{user}:{password}").as_bytes());
            request += &format!("Proxy-Authorization: Basic {login}\r\n");
        }
        request += "\r\n";
        let broke = |error: io::Error| format!("the connection broke: {error}");
        stream.write_all(request.as_bytes()).await.map_err(broke)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() == LONGEST_ANSWER {
                return Err(format!("its answer has more than {LONGEST_ANSWER} bytes"));
            }
            match stream.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(error) if answer.is_empty() => return Err(broke(error)),
                Err(_) => return Err(unknown(&answer)),
            }
        }
        let text = String::from_utf8_lossy(&answer);
        let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..));
        let status = status.and_then(|rest| rest.lines().next()).unwrap_or_default();
        match status.as_bytes() {
            [b'2', ..] => Ok(stream),
            [b'0'..=b'9', ..] => Err(format!("it answers {}", plain(status))),
            _ => Err(unknown(&answer)),
        }
    }

    async fn ask_socks(
        &self,
        stream: tokio::net::TcpStream,
        host: &Host<String>,
        port: u16,
    ) -> Result<tokio::net::TcpStream, String> {
        let target = match host {
            Host::Domain(name) => (name.clone(), port),
            Host::Ipv4(ip) => (ip.to_string(), port),
            Host::Ipv6(ip) => (ip.to_string(), port),
        };
        let target = (target.0.as_str(), target.1);
        let connected = match &self.login {
            None => Socks5Stream::connect_with_socket(stream, target).await,
            Some((user, password)) => {
                Socks5Stream::connect_with_password_and_socket(stream, target, user, password).await
            }
        };
        connected.map(Socks5Stream::into_inner).map_err(|error| error.to_string())
    }
}

/// What a program says that is no HTTP proxy.
fn unknown(answer: &[u8]) -> String {
    let begin = String::from_utf8_lossy(&answer[..answer.len().min(80)]);
    format!("it does not answer as an HTTP proxy, but with \"{}\"", plain(&begin))
}

/// A proxy's words, without what would change a terminal.
fn plain(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Without the password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Http => "http",
            Kind::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// TCP, whose outgoing connections may leave through a proxy.
pub(super) struct Outgoing {
    lobby: Lobby,
    proxy: Option<Proxy>,
}

impl Outgoing {
    pub(super) fn new(lobby: Lobby, proxy: Option<Proxy>) -> Outgoing {
        Outgoing { lobby, proxy }
    }
}

impl Transport for Outgoing {
    type Output = TcpStream;
    type Error = io::Error;
    type ListenerUpgrade = <Lobby as Transport>::ListenerUpgrade;
    type Dial = Either<<Lobby as Transport>::Dial, BoxFuture<'static, io::Result<TcpStream>>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Tried<()> {
        self.lobby.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.lobby.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Tried<Self::Dial> {
        let Some(proxy) = &self.proxy else {
            return Ok(Either::Left(self.lobby.dial(address, options)?));
        };
        let Some((host, port)) = target(&address) else {
            let text = format!("only connections of TCP pass the proxy {proxy}");
            return Err(TransportError::Other(io::Error::other(text)));
        };
        let proxy = proxy.clone();
        let dial = async move { proxy.connect(&host, port).await };
        Ok(Either::Right(dial.boxed()))
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        Pin::new(&mut self.lobby).poll(context)
    }
}

/// The host and the port of an address of TCP.
fn target(address: &Multiaddr) -> Option<(Host<String>, u16)> {
    let mut parts = address.iter();
    let host = match parts.next()? {
        Protocol::Ip4(ip) => Host::Ipv4(ip),
        Protocol::Ip6(ip) => Host::Ipv6(ip),
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => {
            Host::Domain(name.into_owned())
        }
        _ => return None,
    };
    let Some(Protocol::Tcp(port)) = parts.next() else { return None };
    parts.all(|part| matches!(part, Protocol::P2p(_))).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_urls_and_hide_their_passwords() {
        for (text, shown, login) in [
            ("http://proxy.site:3128", "http://proxy.site:3128", None),
            ("http://proxy.site", "http://proxy.site:80", None),
            ("socks5://10.0.0.1", "socks5://10.0.0.1:1080", None),
            ("socks5h://[2001:db8::1]:99", "socks5://[2001:db8::1]:99", None),
            ("http://me:p%40ss@proxy:8080/", "http://proxy:8080", Some(("me", "p@ss"))),
        ] {
            let proxy = Proxy::parse("proxy", text).unwrap();
            assert_eq!(proxy.to_string(), shown);
            assert_eq!(format!("{proxy:?}"), shown);
            let login = login.map(|(user, word)| (user.to_string(), word.to_string()));
            assert_eq!(proxy.login, login);
        }
        for text in [
            "",
            "proxy:3128",
            "https://me:secret@proxy:3128",
            "ftp://proxy",
            "http://me:secret@",
            "http://me:secret@proxy:99999",
            "http://me:secret@proxy/path",
            "socks5://me:%ff%fesecret@proxy",
        ] {
            let error = Proxy::parse("proxy", text).unwrap_err().to_string();
            assert!(error.contains("expected http://HOST:PORT or socks5://"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn only_addresses_of_tcp_pass() {
        for (address, host) in [
            ("/ip4/10.0.0.1/tcp/4001", "10.0.0.1"),
            ("/ip6/2001:db8::1/tcp/4001", "[2001:db8::1]"),
            ("/dns4/lyon.example.org/tcp/4001", "lyon.example.org"),
        ] {
            let (found, port) = target(&address.parse().unwrap()).unwrap();
            assert_eq!((found.to_string().as_str(), port), (host, 4001));
        }
        for address in ["/ip4/10.0.0.1/udp/1/quic-v1", "/ip4/10.0.0.1/tcp/1/ws", "/memory/1"] {
            assert!(target(&address.parse().unwrap()).is_none());
        }
    }
}
