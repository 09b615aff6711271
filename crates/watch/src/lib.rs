//! A run seen from one of its nodes: what all nodes do, who holds the run up, what has happened.
//!
//! | file | does |
//! |---|---|
//! | `lib` | [`Watcher`]: looks at the records of all nodes once a second, beside the run |
//! | `network` | [`Network`]: what is known, as JSON |
//! | `diagnosis` | who holds the run up, in a sentence |
//! | `events` | what has happened, as sentences |
//! | `curves` | loss and figures of all nodes so far |
//! | `serve` | the page, server-sent events and JSON over HTTP |
//! | `metrics` | the same for Prometheus |
//! | `read` | [`read`]: a network from a run folder, or from an address |
//! | `live` | [`live()`]: the same, drawn again once a second, with keys |
//! | `table` | [`table`]: a network as a table, the worst first |
#![forbid(unsafe_code)]

mod curves;
mod diagnosis;
mod events;
mod live;
mod metrics;
mod network;
mod read;
mod serve;
mod table;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use gradvine::{
    config::ConfigError, files, mixing::Topology, node::Prepared, run::Warn, status::Board, threads,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::watch;

use self::{
    curves::Curves,
    events::Events,
    network::{Run, hops},
};
pub use self::{
    live::live,
    network::{Checkpoint, Event, Link, Network, Node, VERSION},
    read::{Unread, read},
    serve::Token,
    table::table,
};

/// The file of a run folder with the newest [`Network`].
pub const FILE: &str = "status.json";

/// A file that every run folder has.
const EXPERIMENT: &str = "experiment.toml";

/// How often a watcher looks.
const EVERY: Duration = Duration::from_secs(1);

/// The events in the file.
const IN_FILE: u64 = 100;

/// What is watched.
pub struct Watched {
    /// `run.id`.
    pub run: String,
    /// All nodes.
    pub topology: Arc<Topology>,
    /// The rounds of the run.
    pub rounds: u64,
    /// The records of all nodes.
    pub board: Arc<Board>,
    /// The run folder, in which [`FILE`] is written.
    pub folder: Option<PathBuf>,
}

/// Looks at the records of all nodes while a run lasts. Dropping it looks once more, and ends.
pub struct Watcher {
    ends: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    server: Option<serve::Server>,
}

/// What was seen, for those who ask.
struct View {
    network: Network,
    /// The same as JSON, without its last brace.
    open: String,
    events: Events,
    curves: Curves,
}

/// The view, shared with the server.
struct Shared {
    view: Mutex<View>,
    /// Counts looks.
    looks: watch::Sender<u64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network with the events from this number on, as JSON, and the number of the next one.
    fn json(&self, since: u64) -> (String, u64) {
        let view = self.lock();
        let events: Vec<&Event> = view.events.since(since).collect();
        let events = serde_json::to_string(&events).unwrap_or_else(|_| "[]".into());
        (format!("{},\"events\":{events}}}", view.open), view.events.next())
    }
}

impl View {
    fn new(network: Network) -> View {
        let (events, curves) = (Events::default(), Curves::default());
        let mut view = View { open: String::new(), network, events, curves };
        view.open = opened(&view.network);
        view
    }
}

/// A network as JSON up to its events.
fn opened(network: &Network) -> String {
    let json = serde_json::to_string(network).unwrap_or_default();
    json.strip_suffix(",\"events\":[]}").map_or(String::new(), str::to_string)
}

fn clock() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}

impl Watcher {
    /// Watches the run of a node as its file says (`[status]`).
    ///
    /// # Errors
    /// As [`Watcher::start`], or if the file of the token is no token.
    pub fn of(prepared: &Prepared, warn: Warn) -> Result<Watcher, ConfigError> {
        let design = prepared.design();
        let watched = Watched {
            run: design.experiment.run.id.clone(),
            topology: Arc::clone(&design.topology),
            rounds: design.experiment.run.rounds,
            board: prepared.board(),
            folder: prepared.directory().map(|made| made.path().to_path_buf()),
        };
        let status = prepared.status();
        let token = status.token.as_deref().map(Token::load).transpose()?;
        Watcher::start(watched, status.listen.map(|listen| (listen, token)), warn)
    }

    /// Begins to watch; with an address it also serves what it sees there. `warn` shows a line to
    /// the user.
    ///
    /// # Errors
    /// If it cannot listen there, the address is open to others and there is no token, or the
    /// system gives no more threads.
    pub fn start(
        watched: Watched,
        listen: Option<(SocketAddr, Option<Token>)>,
        warn: Warn,
    ) -> Result<Watcher, ConfigError> {
        let hops = hops(&watched.topology, watched.board.node());
        let started = Instant::now();
        let look = {
            let Watched { run, topology, rounds, board, .. } = &watched;
            let run = Run { id: run, topology, rounds: *rounds, board, hops: &hops };
            run.look(started, clock())
        };
        let view = Mutex::new(View::new(look));
        let shared = Arc::new(Shared { view, looks: watch::Sender::new(0) });
        let server = listen.map(|(at, token)| serve::Server::start(at, token, Arc::clone(&shared)));
        let server = server.transpose()?;
        let (ends, ended) = mpsc::channel::<()>();
        let mut file_fails = false;
        let thread = threads::spawn("gradvine-status", move || {
            loop {
                let over = !matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout));
                let now = Instant::now();
                let Watched { run, topology, rounds, board, folder } = &watched;
                let run = Run { id: run, topology, rounds: *rounds, board, hops: &hops };
                let network = run.look(now, clock());
                {
                    let view = &mut *shared.lock();
                    view.events.look(&network);
                    view.curves.look(&network, (now - started).as_secs_f64());
                    view.open = opened(&network);
                    view.network = network;
                }
                shared.looks.send_modify(|looks| *looks += 1);
                if let Some(folder) = folder {
                    let since = shared.lock().events.next().saturating_sub(IN_FILE);
                    let written = write(folder, &shared.json(since).0);
                    if let (Err(error), false) = (&written, file_fails) {
                        let path = folder.join(FILE);
                        warn(&format!("warning: {}: {error}", path.display()));
                    }
                    file_fails = written.is_err();
                }
                if over {
                    return;
                }
            }
        });
        let thread = thread.map_err(|error| {
            ConfigError::at("node.status", format!("the run cannot be watched: {error}"))
        })?;
        Ok(Watcher { ends: Some(ends), thread: Some(thread), server })
    }

    /// Where the page is, with its real port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(serve::Server::address)
    }
}

/// Writes the file of a run folder. One in which nothing has run is removed by its node: then this
/// leaves nothing behind.
fn write(folder: &Path, json: &str) -> io::Result<()> {
    let path = folder.join(FILE);
    if folder.join(EXPERIMENT).exists() {
        files::replace(&path, json.as_bytes())?;
    }
    if !folder.join(EXPERIMENT).exists() {
        let _ = fs::remove_file(&path).and_then(|()| fs::remove_dir(folder));
    }
    Ok(())
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
