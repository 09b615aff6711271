//! A router that forwards ports: how it is found, and what it is asked.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use quick_xml::{Reader, events::Event};

use super::http::{self, Answer, header};

/// Where routers listen for searches.
const SEARCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 255, 250), 1900);

/// How long answers to a search are awaited, and after what time it is repeated: searches are
/// datagrams, which may be lost.
const WITHIN: Duration = Duration::from_secs(3);
const REPEAT: Duration = Duration::from_secs(1);

/// The kinds of devices that are searched for, and all devices: some routers answer to that only.
/// Those are asked from the first repetition on, because many machines answer then.
const GATEWAYS: [&str; 2] = [
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    "urn:schemas-upnp-org:device:InternetGatewayDevice:2",
];
const ALL: &str = "ssdp:all";

/// Words in the answer of a device, or of a part of it, that may forward ports.
const OF_GATEWAYS: [&str; 4] =
    [":InternetGatewayDevice:", ":WANConnectionDevice:", ":WANIPConnection:", ":WANPPPConnection:"];

/// The most descriptions that are read in a search.
const MOST: usize = 16;

/// The services that forward ports, the preferred one first.
const SERVICES: [&str; 3] = [
    "urn:schemas-upnp-org:service:WANIPConnection:2",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
];

/// The errors of a router whose port another machine has.
const TAKEN: [u16; 2] = [718, 729];

/// The error of a router that knows no leases that end.
const ONLY_PERMANENT: u16 = 725;

/// A port of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// A number from 1 to 65535.
    pub number: u16,
    /// Whether it is a port of UDP (QUIC).
    pub udp: bool,
}

impl Port {
    fn protocol(self) -> &'static str {
        if self.udp { "UDP" } else { "TCP" }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.number, self.protocol())
    }
}

/// Why a router forwards nothing. A router's words are printable and short.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// Nothing has answered the search.
    #[error("no router answered: is UPnP switched on there?")]
    NoAnswer,
    /// The system does not send the search.
    #[error("the search could not be sent: {0}")]
    Search(io::Error),
    /// The connection to the router failed.
    #[error("the router {0}: {1}")]
    Connection(IpAddr, io::Error),
    /// Its description names no service that forwards ports.
    #[error("the router {0} offers no forwarding")]
    NoService(IpAddr),
    /// An answer that is not one to the question.
    #[error("the router {0} answered with something else: {1}")]
    Unexpected(IpAddr, String),
    /// The port, and the address that has it.
    #[error("another machine or program ({1}) has the port {0}")]
    Taken(Port, String),
    /// An error of the router's own.
    #[error("the router refuses: {text} (error {code})")]
    Refused {
        /// Its number in the standard.
        code: u16,
        /// Its description of the error, shortened.
        text: String,
    },
}

impl RouterError {
    /// Whether another port may be had.
    pub fn is_taken(&self) -> bool {
        match self {
            RouterError::Taken(..) => true,
            RouterError::Refused { code, .. } => TAKEN.contains(code),
            _ => false,
        }
    }
}

/// A router that offers to forward ports.
#[derive(Clone, Debug)]
pub struct Router {
    control: SocketAddr,
    path: String,
    service: &'static str,
    /// This machine's address in the router's network.
    local: Ipv4Addr,
    /// Whether it has refused leases that end.
    only_permanent: Arc<AtomicBool>,
}

impl Router {
    /// Searches the local network for at most three seconds; the first router that can forward
    /// ports is taken. `stop`: whether to give up.
    ///
    /// # Errors
    /// If none answers, or the last one that answered offers no forwarding.
    pub fn find(stop: &dyn Fn() -> bool) -> Result<Router, RouterError> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(RouterError::Search)?;
        socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(RouterError::Search)?;
        let (begin, mut sent, mut trouble) = (Instant::now(), 0, RouterError::NoAnswer);
        // A device answers for each of its parts: after each search it is asked once.
        let mut described = BTreeMap::new();
        let mut bytes = [0; 2048];
        while begin.elapsed() < WITHIN && !stop() {
            if begin.elapsed() >= REPEAT * sent {
                for target in GATEWAYS.into_iter().chain((sent > 0).then_some(ALL)) {
                    let text = search(target);
                    socket.send_to(text.as_bytes(), SEARCH).map_err(RouterError::Search)?;
                }
                sent += 1;
            }
            let (length, from) = match socket.recv_from(&mut bytes) {
                Ok(received) => received,
                Err(error) if is_timeout(&error) => continue,
                Err(error) => return Err(RouterError::Search(error)),
            };
            let answer = String::from_utf8_lossy(&bytes[..length]);
            let Some((at, path)) = location(&answer, from.ip()) else { continue };
            if !is_due(&mut described, (at, path.clone()), sent) {
                continue;
            }
            match Router::describe(at, &path) {
                Ok(router) => return Ok(router),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    /// Reads what a router offers.
    fn describe(at: SocketAddr, path: &str) -> Result<Router, RouterError> {
        let ip = at.ip();
        let answer = http::request(at, &format!("GET {path}"), "", "")
            .map_err(|error| RouterError::Connection(ip, error))?;
        let Answer { status: 200, body, local: IpAddr::V4(local) } = answer else {
            return Err(RouterError::Unexpected(ip, format!("status {}", answer.status)));
        };
        let (service, url) = service(&body).ok_or(RouterError::NoService(ip))?;
        let (control, path) = resolve(&url, at).ok_or(RouterError::NoService(ip))?;
        Ok(Router { control, path, service, local, only_permanent: Arc::default() })
    }

    /// Its address in the local network.
    pub fn ip(&self) -> IpAddr {
        self.control.ip()
    }

    /// This machine's address in that network.
    pub fn local(&self) -> Ipv4Addr {
        self.local
    }

    /// The router's address in the network outside.
    ///
    /// # Errors
    /// If the router does not say it.
    pub fn outside(&self) -> Result<Ipv4Addr, RouterError> {
        let body = self.call("GetExternalIPAddress", &[])?;
        let text = element(&body, "NewExternalIPAddress").unwrap_or_default();
        let wrong =
            || RouterError::Unexpected(self.ip(), format!("no IPv4 address: {}", printable(&text)));
        text.parse().map_err(|_| wrong())
    }

    /// Asks for a port outside that leads to one of this machine, unless another machine has it.
    /// `lease`: after this time the router may forget it.
    ///
    /// # Errors
    /// If the router refuses, or another machine or program has the port.
    pub fn forward(&self, outer: Port, inner: Port, lease: Duration) -> Result<(), RouterError> {
        let number = outer.number.to_string();
        let key = key(&number, outer);
        // Some routers replace the entry of another machine or program.
        match self.call("GetSpecificPortMappingEntry", &key) {
            Ok(body) => {
                let owner = element(&body, "NewInternalClient").unwrap_or_default();
                let to = element(&body, "NewInternalPort").and_then(|port| port.parse().ok());
                let is_own = owner.parse() == Ok(self.local);
                if !is_own || to.is_some_and(|to: u16| to != inner.number) {
                    return Err(RouterError::Taken(outer, printable(&owner)));
                }
            }
            // It has no such entry, or does not know this question.
            Err(RouterError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        let (inner, client) = (inner.number.to_string(), self.local.to_string());
        let add = |seconds: u64| {
            let lease = seconds.to_string();
            let rest = [
                ("NewInternalPort", inner.as_str()),
                ("NewInternalClient", &client),
                ("NewEnabled", "1"),
                ("NewPortMappingDescription", "gradvine"),
                ("NewLeaseDuration", &lease),
            ];
            self.call("AddPortMapping", &[&key[..], &rest].concat())
        };
        if self.only_permanent.load(Ordering::Relaxed) {
            return add(0).map(drop);
        }
        match add(lease.as_secs()) {
            Err(RouterError::Refused { code: ONLY_PERMANENT, .. }) => {
                self.only_permanent.store(true, Ordering::Relaxed);
                tracing::warn!(
                    "the router {} forwards ports without a time limit only: the port {outer} \
                     stays open if this node is killed",
                    self.ip()
                );
                add(0).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Gives a port back.
    ///
    /// # Errors
    /// If the router refuses, or does not answer.
    pub fn release(&self, outer: Port) -> Result<(), RouterError> {
        self.call("DeletePortMapping", &key(&outer.number.to_string(), outer)).map(drop)
    }

    /// Calls an action of the router, and returns the document that it answers with.
    fn call(&self, action: &str, arguments: &[(&str, &str)]) -> Result<Vec<u8>, RouterError> {
        let service = self.service;
        let arguments: String =
            arguments.iter().map(|(name, value)| format!("<{name}>{value}</{name}>")).collect();
        let body = format!(
            "<?xml version=\"1.0\"?>\r\n<s:Envelope \
             xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body><u:{action} \
             xmlns:u=\"{service}\">{arguments}</u:{action}></s:Body></s:Envelope>\r\n"
        );
        let headers = format!(
            "Content-Type: text/xml; charset=\"utf-8\"\r\nSOAPAction: \"{service}#{action}\"\r\n"
        );
        let answer = http::request(self.control, &format!("POST {}", self.path), &headers, &body)
            .map_err(|error| RouterError::Connection(self.ip(), error))?;
        if answer.status == 200 {
            return Ok(answer.body);
        }
        let code = element(&answer.body, "errorCode").and_then(|code| code.parse().ok());
        match code {
            Some(code) => {
                let text = element(&answer.body, "errorDescription").unwrap_or_default();
                Err(RouterError::Refused { code, text: printable(&text) })
            }
            None => Err(RouterError::Unexpected(self.ip(), format!("status {}", answer.status))),
        }
    }
}

/// What names an entry of the router's list.
fn key(number: &str, outer: Port) -> [(&'static str, &str); 3] {
    let protocol = outer.protocol();
    [("NewRemoteHost", ""), ("NewExternalPort", number), ("NewProtocol", protocol)]
}

/// A router's words without control characters, and short enough for a message.
fn printable(text: &str) -> String {
    text.chars().take(120).map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The text of a search for devices of a kind.
fn search(target: &str) -> String {
    format!(
        "M-SEARCH * HTTP/1.1\r\nHOST: {SEARCH}\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n\
         ST: {target}\r\n\r\n"
    )
}

/// Whether a device is asked to describe itself after this search, which is then noted.
fn is_due<Device: Ord>(asked: &mut BTreeMap<Device, u32>, device: Device, search: u32) -> bool {
    let is_known = asked.contains_key(&device);
    (is_known || asked.len() < MOST) && asked.insert(device, search) != Some(search)
}

/// Where a router that has answered a search describes itself; `None` for other devices. It must be
/// the machine that has answered: another one may not be named by it.
fn location(answer: &str, from: IpAddr) -> Option<(SocketAddr, String)> {
    let kind = header(answer, "st")?;
    if !OF_GATEWAYS.iter().any(|words| kind.contains(words)) {
        return None;
    }
    if !answer.starts_with("HTTP/1.") || answer.split(' ').nth(1) != Some("200") {
        return None;
    }
    let url = header(answer, "location")?;
    let (at, path) = parse_url(url)?;
    (at.ip() == from).then_some((at, path))
}

/// The address and path of `http://ADDRESS[:PORT][/PATH]`.
fn parse_url(url: &str) -> Option<(SocketAddr, String)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    let at = match host.parse::<SocketAddr>() {
        Ok(at) => at,
        Err(_) => SocketAddr::new(host.parse().ok()?, 80),
    };
    is_plain(path).then(|| (at, path.to_string()))
}

/// The address and path of a service at a router, which names it whole or as a path.
fn resolve(url: &str, router: SocketAddr) -> Option<(SocketAddr, String)> {
    if url.contains("://") {
        return parse_url(url).filter(|(at, _)| at.ip() == router.ip());
    }
    let path = if url.starts_with('/') { url.to_string() } else { format!("/{url}") };
    is_plain(&path).then_some((router, path))
}

/// Whether a path can stand in the first line of a request.
fn is_plain(path: &str) -> bool {
    path.len() <= 1024 && path.chars().all(|c| c.is_ascii_graphic())
}

/// The preferred service that forwards ports in a router's description, and its address.
fn service(description: &[u8]) -> Option<(&'static str, String)> {
    let offered: Vec<(String, String)> = elements(description, &["serviceType", "controlURL"])
        .chunk_by(|_, second| second.0 == "controlURL")
        .filter_map(|pair| match pair {
            [(_, kind), (_, url)] => Some((kind.clone(), url.clone())),
            _ => None,
        })
        .collect();
    SERVICES.into_iter().find_map(|wanted| {
        let (_, url) = offered.iter().find(|(kind, _)| kind == wanted)?;
        Some((wanted, url.clone()))
    })
}

/// The text of the first element of this name.
fn element(document: &[u8], name: &str) -> Option<String> {
    elements(document, &[name]).into_iter().next().map(|(_, text)| text)
}

/// The texts of all elements of these names, in order; up to the first mistake of the document.
fn elements(document: &[u8], names: &[&str]) -> Vec<(String, String)> {
    let mut reader = Reader::from_reader(document);
    let (mut found, mut open) = (Vec::new(), None::<(String, String)>);
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                let local = start.local_name();
                let name: &str = local.as_ref();
                open = names.contains(&name).then(|| (name.to_string(), String::new()));
            }
            Ok(Event::Text(text)) => {
                if let Some((_, so_far)) = &mut open {
                    so_far.push_str(&text);
                }
            }
            Ok(Event::End(_)) => {
                if let Some((name, text)) = open.take() {
                    found.push((name, text.trim().to_string()));
                }
            }
            Ok(Event::Eof) | Err(_) => return found,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    const DESCRIPTION: &str = r#"<?xml version="1.0"?>
        <root xmlns="urn:schemas-upnp-org:device-1-0"><device><serviceList>
        <service><serviceType>urn:schemas-upnp-org:service:Layer3Forwarding:1</serviceType>
          <controlURL>/other</controlURL><eventSubURL>/e</eventSubURL></service>
        </serviceList><deviceList><device><serviceList>
        <service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>
          <serviceId>x</serviceId><controlURL> ctl/IPConn </controlURL></service>
        </serviceList></device></deviceList></device></root>"#;

    #[test]
    fn the_service_that_forwards_is_found_among_others() {
        let (kind, url) = service(DESCRIPTION.as_bytes()).unwrap();
        assert_eq!((kind, url.as_str()), (SERVICES[1], "ctl/IPConn"));
        assert_eq!(service(b"<root><serviceType>urn:x</serviceType></root>"), None);
        assert_eq!(service(b"<root><ser"), None);
    }

    #[test]
    fn a_device_is_asked_once_after_each_search() {
        let mut asked = BTreeMap::new();
        let due = [(1, 1), (1, 1), (2, 1), (1, 2), (1, 2)];
        let due = due.map(|(device, search)| is_due(&mut asked, device, search));
        assert_eq!(due, [true, false, true, true, false]);
        let many = (0..100).filter(|device| is_due(&mut asked, *device, 3)).count();
        assert_eq!((many, asked.len()), (MOST, MOST));
    }

    #[test]
    fn an_answer_names_no_other_machine() {
        let answer = |url: &str| {
            format!("HTTP/1.1 200 OK\r\nST: {}\r\nLocation: {url}\r\n\r\n", GATEWAYS[1])
        };
        let from: IpAddr = "10.0.0.1".parse().unwrap();
        let found = |url: &str| location(&answer(url), from);
        let (at, path) = found("http://10.0.0.1:5000/rootDesc.xml").unwrap();
        assert_eq!((at.to_string().as_str(), path.as_str()), ("10.0.0.1:5000", "/rootDesc.xml"));
        assert_eq!(found("http://10.0.0.1").unwrap().0.port(), 80);
        for url in [
            "http://10.0.0.7:5000/x",
            "https://10.0.0.1/x",
            "http://router/x",
            "http://10.0.0.1:5000/a b",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
        assert_eq!(location("NOTIFY * HTTP/1.1\r\nLocation: http://10.0.0.1/\r\n\r\n", from), None);
        // All devices answer to a search for all.
        let of = |kind: &str| answer("http://10.0.0.1/").replace(GATEWAYS[1], kind);
        assert!(location(&of(SERVICES[2]), from).is_some());
        for kind in ["urn:schemas-upnp-org:device:MediaRenderer:1", "upnp:rootdevice", ""] {
            assert_eq!(location(&of(kind), from), None, "{kind}");
        }
        let router = "10.0.0.1:5000".parse().unwrap();
        assert_eq!(resolve("http://10.0.0.7/ctl", router), None);
        assert_eq!(resolve("http://10.0.0.1:80/ctl", router).unwrap().0.port(), 80);
        assert_eq!(resolve("ctl", router).unwrap(), (router, "/ctl".to_string()));
    }

    /// A router that gives these answers one after the other, and the requests that it got.
    fn scripted(answers: Vec<(u16, String)>) -> (Router, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = listener.local_addr().unwrap();
        let served = thread::spawn(move || {
            let one = |(status, body): (u16, String)| {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut text, mut part) = (Vec::new(), [0; 1024]);
                while !text.ends_with(b"Envelope>\r\n") {
                    let read = stream.read(&mut part).unwrap();
                    text.extend_from_slice(&part[..read]);
                }
                let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
                String::from_utf8(text).unwrap()
            };
            answers.into_iter().map(one).collect()
        });
        let local = Ipv4Addr::LOCALHOST;
        let (path, service, only_permanent) = ("/ctl".into(), SERVICES[1], Arc::default());
        (Router { control, path, service, local, only_permanent }, served)
    }

    fn refusal(code: u16) -> (u16, String) {
        let text = "<s:Envelope xmlns:s=\"s\"><s:Fault><errorCode>CODE</errorCode>\
                    <errorDescription>No\u{7}such</errorDescription></s:Fault></s:Envelope>";
        (500, text.replace("CODE", &code.to_string()))
    }

    fn entry(of: &str) -> (u16, String) {
        (200, format!("<u:R xmlns:u=\"u\"><NewInternalClient>{of}</NewInternalClient></u:R>"))
    }

    const PORT: Port = Port { number: 4001, udp: false };
    const LEASE: Duration = Duration::from_secs(60);

    #[test]
    fn a_port_of_another_machine_is_not_taken_from_it() {
        let (router, served) = scripted(vec![entry("10.0.0.9")]);
        let error = router.forward(PORT, PORT, LEASE).unwrap_err();
        assert!(error.is_taken() && error.to_string().contains("10.0.0.9"), "{error}");
        assert_eq!(served.join().unwrap().len(), 1, "nothing was added");
        let program = "<R><NewInternalClient>127.0.0.1</NewInternalClient>\
                       <NewInternalPort>5000</NewInternalPort></R>";
        let (router, served) = scripted(vec![(200, program.into())]);
        assert!(router.forward(PORT, PORT, LEASE).unwrap_err().is_taken());
        assert_eq!(served.join().unwrap().len(), 1, "nothing was added");
    }

    #[test]
    fn an_own_port_is_renewed_and_a_free_one_taken() {
        for first in [entry("127.0.0.1"), refusal(714), refusal(401)] {
            let (router, served) = scripted(vec![first, (200, "<x/>".into())]);
            router.forward(PORT, PORT, LEASE).unwrap();
            let added = served.join().unwrap().remove(1);
            for words in [
                "POST /ctl HTTP/1.1\r\n",
                "SOAPAction: \"urn:schemas-upnp-org:service:WANIPConnection:1#AddPortMapping\"",
                "<NewExternalPort>4001</NewExternalPort><NewProtocol>TCP</NewProtocol>",
                "<NewInternalClient>127.0.0.1</NewInternalClient>",
                "<NewLeaseDuration>60</NewLeaseDuration>",
            ] {
                assert!(added.contains(words), "{words}: {added}");
            }
        }
    }

    #[test]
    fn refusals_are_told_and_leases_without_end_accepted() {
        let (router, served) = scripted(vec![refusal(714), refusal(606)]);
        let error = router.forward(PORT, PORT, LEASE).unwrap_err().to_string();
        assert_eq!(error, "the router refuses: No?such (error 606)");
        served.join().unwrap();
        let good = || (200, "<x/>".to_string());
        let answers = vec![refusal(714), refusal(725), good(), refusal(714), good()];
        let (router, served) = scripted(answers);
        router.forward(PORT, PORT, LEASE).unwrap();
        // The next time it is known.
        router.forward(PORT, PORT, LEASE).unwrap();
        let asked = served.join().unwrap();
        assert!([2, 4].iter().all(|&at: &usize| asked[at].contains("<NewLeaseDuration>0<")));
    }

    #[test]
    fn the_address_outside_must_be_one() {
        let body =
            |ip: &str| (200, format!("<R><NewExternalIPAddress>{ip}</NewExternalIPAddress></R>"));
        let (router, served) = scripted(vec![body("9.9.9.9"), body(""), (200, "ok".into())]);
        assert_eq!(router.outside().unwrap(), Ipv4Addr::new(9, 9, 9, 9));
        assert!(router.outside().is_err() && router.outside().is_err());
        served.join().unwrap();
    }
}
