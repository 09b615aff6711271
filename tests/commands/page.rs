//! The server of a node's page against clients that mean no good, and what the page's data say.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gradvine::{
    mixing::Topology,
    run::{STATUS_FILE, StatusFile},
    status::{Board, LinkRecord, Record, State},
    units::NodeId,
};
use gradvine_watch::{Network, Page, Token, Watched, Watcher, read, table};
use serde_json::Value;

use crate::report_pictures::{address, browse, browser};

/// Long after anything here should have happened.
const SOON: Duration = Duration::from_secs(60);

/// A folder as a node makes it.
fn run_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("experiment.toml"), "").unwrap();
    folder
}

/// A page of a ring of three, whose records a test says.
struct Shown {
    board: Arc<Board>,
    address: SocketAddr,
    _watcher: Watcher,
    folder: tempfile::TempDir,
}

/// What is watched there.
fn watched(folder: &Path) -> Watched {
    Watched {
        run: "three".into(),
        topology: Arc::new(Topology::parse("ring:3", 1).unwrap()),
        rounds: 100,
        board: Arc::new(Board::of_one_process(NodeId(0), 3)),
        folder: Some(folder.to_path_buf()),
    }
}

/// The page that a node file with this address and token asks for.
fn opened(listen: &str, token: Option<&Path>) -> Result<Page, String> {
    let listen = Some(listen.to_string());
    let status = StatusFile { listen, token: token.map(Path::to_path_buf), share: true };
    Page::open(&status).map(Option::unwrap).map_err(|error| error.to_string())
}

impl Shown {
    fn new(token: Option<&str>) -> Shown {
        let folder = run_folder();
        let token = token.map(|token| {
            let file = folder.path().join("token");
            std::fs::write(&file, format!("{token}\n")).unwrap();
            file
        });
        let page = opened("127.0.0.1:0", token.as_deref()).unwrap();
        let (address, watched) = (page.address(), watched(folder.path()));
        let board = Arc::clone(&watched.board);
        let watcher = Watcher::start(watched, Some(page), Arc::new(|_| ()));
        Shown { board, address, _watcher: watcher, folder }
    }

    /// The code and the body of the answer to a request with these lines in its head.
    fn ask(&self, path: &str, lines: &str) -> (u16, String) {
        ask(self.address, path, lines)
    }

    fn says(&self, record: Record) {
        self.board.say(Instant::now(), record);
    }
}

fn ask(at: SocketAddr, path: &str, lines: &str) -> (u16, String) {
    let host = if lines.contains("Host:") { String::new() } else { format!("Host: {at}\r\n") };
    let head = format!("GET {path} HTTP/1.1\r\n{host}{lines}Connection: close\r\n\r\n");
    let answer = talk(at, head.as_bytes());
    let code = answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (code, body.to_string())
}

/// The page at an address as one file with its data: a browser never comes to the end of a stream
/// of events.
fn saved(at: SocketAddr) -> String {
    let read = |path: &str| ask(at, path, "").1;
    let data = |path: &str| read(path).replace('<', "\\u003c");
    let mut html = read("/");
    for name in ["uplot.css", "page.css"] {
        let link = format!("<link rel=\"stylesheet\" href=\"{name}\">");
        assert!(html.contains(&link), "{name}");
        html = html.replace(&link, &format!("<style>{}</style>", read(&format!("/{name}"))));
    }
    for name in ["uplot.js", "page.js"] {
        let script = format!("<script src=\"{name}\"></script>");
        assert!(html.contains(&script), "{name}");
        html = html.replace(&script, &format!("<script>{}</script>", read(&format!("/{name}"))));
    }
    let (status, curves) = (data("/status.json"), data("/curves.json"));
    let known = format!("{{\"status\": {status}, \"curves\": {curves}}}");
    let known = format!("<script type=\"application/json\" id=\"data\">{known}</script></main>");
    html.replacen("</main>", &known, 1)
}

/// What a browser shows of the page at an address, as HTML without scripts.
pub(crate) fn painted(browser: &Path, folder: &Path, at: SocketAddr) -> String {
    let file = folder.join("saved.html");
    std::fs::write(&file, saved(at)).unwrap();
    let more = ["--virtual-time-budget=5000", "--dump-dom"];
    let dom = browse(browser, &address(&file), 1280, 1600, &more);
    let body = &dom[dom.find("<main").unwrap()..];
    body[..body.find("<script").unwrap()].to_string()
}

fn talk(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // The server may have answered and closed before all is written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn trains(round: u64) -> Record {
    let members = (0..3).map(NodeId).collect();
    Record { state: State::Computing, round, members, loss: Some(0.5), ..Record::default() }
}

#[test]
fn each_path_has_its_answer_and_the_headers_forbid_the_rest() {
    let page = Shown::new(None);
    for (path, code) in [
        ("/", 200),
        ("/page.js", 200),
        ("/status.json", 200),
        ("/curves.json", 200),
        ("/metrics", 200),
        ("/healthz", 200),
        ("/readyz", 503),
        ("/../etc/passwd", 404),
    ] {
        assert_eq!(page.ask(path, "").0, code, "{path}");
    }
    let answer = talk(
        page.address,
        format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", page.address).as_bytes(),
    );
    let head = answer.split_once("\r\n\r\n").unwrap().0.to_lowercase();
    for line in ["content-security-policy: default-src 'none'", "x-frame-options: deny"] {
        assert!(head.contains(line), "{head}");
    }
    let post = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", page.address);
    let answer =
        talk(page.address, post.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[test]
fn another_host_or_another_origin_reads_nothing() {
    let page = Shown::new(None);
    let host = |host: &str| page.ask("/status.json", &format!("Host: {host}\r\n")).0;
    let port = page.address.port();
    assert_eq!(host("evil.example"), 403);
    assert_eq!(host(&format!("evil.example:{port}")), 403);
    assert_eq!(host(&format!("localhost:{port}")), 200);
    assert_eq!(host(&format!("[::1]:{port}")), 200);
    let origin = |origin: &str| page.ask("/status.json", &format!("Origin: {origin}\r\n")).0;
    assert_eq!(origin("http://evil.example"), 403);
    assert_eq!(origin("null"), 403);
    assert_eq!(origin(&format!("http://{}", page.address)), 200);
}

#[test]
fn a_token_is_asked_for_all_that_is_of_the_run() {
    let page = Shown::new(Some("0123456789abcdef"));
    for path in ["/status.json", "/curves.json", "/events", "/metrics"] {
        assert_eq!(page.ask(path, "").0, 401, "{path}");
        assert_eq!(page.ask(&format!("{path}?token=0123456789abcdeX"), "").0, 401, "{path}");
    }
    assert_eq!(page.ask("/status.json?token=0123456789abcdef", "").0, 200);
    let bearer = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(page.ask("/metrics", bearer).0, 200);
    // These have nothing of the run.
    for path in ["/", "/page.js", "/uplot.css", "/healthz"] {
        assert_eq!(page.ask(path, "").0, 200, "{path}");
    }
    let at = page.address.to_string();
    let error = read(&at, None).unwrap_err().to_string();
    assert!(error.contains("--token FILE"), "{error}");
    let token = Token::load(&page.folder.path().join("token")).unwrap();
    assert_eq!(read(&at, Some(&token)).unwrap().run, "three");
}

#[test]
fn an_open_address_needs_a_token_and_a_token_has_rules() {
    let refused = |listen: &str, token: Option<&Path>| opened(listen, token).err().unwrap();
    let error = refused("0.0.0.0:0", None);
    assert!(error.starts_with("node.status.listen = \"0.0.0.0:0\": other machines can"), "{error}");
    for wrong in ["localhost:9470", "127.0.0.1", "9470", ""] {
        let error = refused(wrong, None);
        assert!(error.contains("expected an IP address and a port, such as 127.0.0.1"), "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = refused(&taken.local_addr().unwrap().to_string(), None);
    assert!(error.contains("cannot listen: Address already in use"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    for wrong in ["short", "has spaces in its text", &"x".repeat(201)] {
        std::fs::write(&file, wrong).unwrap();
        let error = refused("127.0.0.1:0", Some(&file));
        assert!(error.contains("expected 16 to 200"), "{error}");
    }
    std::fs::write(&file, "0123456789abcdef").unwrap();
    assert!(opened("0.0.0.0:0", Some(&file)).is_ok());
}

/// Clients that never end their request, that read nothing, and a thousand at once: others are
/// still answered, and none is waited for.
#[test]
fn slow_and_many_clients_keep_nobody_from_the_page() {
    let page = Shown::new(None);
    page.says(trains(5));
    let at = page.address;
    let mut idle: Vec<TcpStream> = Vec::new();
    for number in 0..1000 {
        let Ok(mut stream) = TcpStream::connect(at) else { break };
        let half: &[u8] = if number % 2 == 0 { b"GET / HT" } else { b"" };
        let _ = stream.write_all(half);
        idle.push(stream);
    }
    assert!(idle.len() > 500, "{} connections", idle.len());
    assert_eq!(page.ask("/healthz", "").0, 200, "the newest has a place at once");
    let started = Instant::now();
    drop(page);
    assert!(started.elapsed() < SOON, "the end of the run waits for clients");
}

#[test]
fn a_long_head_is_refused() {
    let page = Shown::new(None);
    let long = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
    let (code, _) = page.ask("/", &long);
    assert!(matches!(code, 0 | 400 | 431), "{code}");
    assert_eq!(page.ask("/healthz", "").0, 200);
}

/// The stream has the network once a second, with the events since the time before.
#[test]
fn the_stream_follows_the_run() {
    let page = Shown::new(None);
    page.says(trains(5));
    let at = page.address;
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    let mut read_until = |stream: &mut TcpStream, what: &str| {
        while !text.contains(what) {
            let read = stream.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "the stream has ended: {text}");
            text += &String::from_utf8_lossy(&buffer[..read]);
        }
    };
    read_until(&mut stream, "text/event-stream");
    read_until(&mut stream, "\"round\":5,");
    page.says(Record {
        state: State::Failed,
        reason: "its loss is not finite".into(),
        ..trains(6)
    });
    read_until(&mut stream, "has failed: its loss is not finite");
}

/// The file in the run folder, the table, and what is served say the same.
#[test]
fn the_file_has_what_the_page_has() {
    let page = Shown::new(None);
    let names = page.folder.path().to_path_buf();
    let link =
        LinkRecord { to: NodeId(1), reason: "refused \u{1b}[31m".into(), ..Default::default() };
    let waits = Record {
        state: State::Waiting,
        since_ms: 2500,
        waits_for: vec![NodeId(1)],
        links: vec![link],
        ..trains(7)
    };
    page.says(waits);
    let until = Instant::now() + SOON;
    let found: Network = loop {
        let found = read(names.to_str().unwrap(), None);
        match found {
            Ok(network) if network.round == 7 => break network,
            _ => assert!(Instant::now() < until, "{found:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let (first, second) = (&found.nodes[0], &found.nodes[1]);
    assert_eq!(found.holding_up, std::slice::from_ref(&second.name));
    assert_eq!((first.state.as_str(), second.state.as_str()), ("waiting", "unknown"));
    assert_eq!(first.waits_for, std::slice::from_ref(&second.name));
    assert_eq!(first.links[0].reason, "refused \\u001b[31m", "no control character");
    let shown = table(&found, Some(60));
    assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    assert!(shown.contains(&format!("waits for {}", second.name)), "{shown}");
    let served: Value = serde_json::from_str(&page.ask("/status.json", "").1).unwrap();
    assert!(served["nodes"][0]["since_s"].as_f64() >= Some(2.5), "{served}");
    assert_eq!((served["version"].as_u64(), served["run"].as_str()), (Some(1), Some("three")));
    let (_, open) = page.ask("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    let (_, plain) = page.ask("/metrics", "Accept: text/plain\r\n");
    let line = format!("gradvine_holding_up{{node=\"{}\"}} 1.0\n", second.name);
    assert!(open.contains(&line) && plain.contains(&line), "{open}\n{plain}");
    assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"), "{open}\n{plain}");
    assert!(open.contains("# TYPE gradvine_node_sent_bytes counter\n"), "{open}");
    assert!(plain.contains("# TYPE gradvine_node_sent_bytes_total counter\n"), "{plain}");
    assert!(plain.contains("# HELP gradvine_node_sent_bytes_total Bytes"), "{plain}");
    let values = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(values(&open), values(&plain));
    assert!(names.join(STATUS_FILE).is_file());
}

/// A file that cannot be written costs one warning, and no look.
#[test]
fn a_file_that_cannot_be_written_is_warned_of_once() {
    let folder = run_folder();
    std::fs::create_dir(folder.path().join(STATUS_FILE)).unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&warnings);
    let warn = Arc::new(move |line: &str| seen.lock().unwrap().push(line.to_string()));
    let watcher = Watcher::start(watched(folder.path()), None, warn);
    let until = Instant::now() + SOON;
    while warnings.lock().unwrap().is_empty() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(watcher);
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("/status.json: "), "{warnings:?}");
}

/// What a browser shows of a run: the sentence, the nodes, and texts of other nodes as text.
#[test]
#[ignore = "slow"]
fn a_browser_shows_who_is_waited_for() {
    let Some(browser) = browser() else {
        println!("skipped: there is no chromium on the path");
        return;
    };
    let page = Shown::new(None);
    let reason = "<img src=x onerror=alert(1)>".to_string();
    page.says(Record {
        state: State::Waiting,
        since_ms: 4000,
        waits_for: vec![NodeId(1)],
        links: vec![LinkRecord { to: NodeId(1), reason, ..Default::default() }],
        ..trains(7)
    });
    let until = Instant::now() + SOON;
    while !page.ask("/status.json", "").1.contains("waits for 1") {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    let body = painted(&browser, page.folder.path(), page.address);
    let sentence = "0 waits for 1, which is not linked (&lt;img src=x onerror=alert(1)&gt;)";
    for words in [sentence, "held up", "round 7 of 100"] {
        assert!(body.contains(words), "{words}: {body}");
    }
    assert!(!body.contains("<img"), "{body}");
}
