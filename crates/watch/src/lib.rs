//! A run seen from one of its nodes: what all nodes do, who holds the run up, what has happened.
//!
//! | file | does |
//! |---|---|
//! | `lib` | [`Watcher`]: looks at the records of all nodes once a second, beside the run |
//! | `network` | what is known, from the records of the nodes: a [`Network`] |
//! | `diagnosis` | who holds the run up, in a sentence |
//! | `events` | what has happened, as sentences |
//! | `curves` | loss and figures of all nodes so far |
//! | `request` | the same at an address |
//! | `token` | [`Token`]: the secret of a page |
//! | `closed` | what stands for `serve` and `request` without the feature `page` |
//! | `serve` | the page, server-sent events and JSON over HTTP |
//! | `metrics` | the same for Prometheus |
//! | `read` | [`read`]: a network from a run folder, or from an address |
//! | `live` | [`live()`]: the same, drawn again once a second, with keys |
//! | `table` | [`table`]: a network as a table, the worst first |
#![forbid(unsafe_code)]

#[cfg(not(feature = "page"))]
mod closed;
mod curves;
mod diagnosis;
mod events;
mod live;
#[cfg(feature = "page")]
mod metrics;
mod network;
mod read;
#[cfg(feature = "page")]
mod request;
#[cfg(feature = "page")]
mod serve;
mod table;
mod token;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use gradvine::{
    files,
    mixing::Topology,
    node::Prepared,
    run::{STATUS_FILE, Warn},
    status::{Board, utc},
    threads,
};
use gradvine_page::Curves;
pub use gradvine_page::{Checkpoint, Event, Link, Network, Node, VERSION};
use tokio::sync::watch;

#[cfg(not(feature = "page"))]
pub use self::closed::Page;
#[cfg(not(feature = "page"))]
use self::closed::Server;
#[cfg(feature = "page")]
pub use self::serve::Page;
#[cfg(feature = "page")]
use self::serve::Server;
use self::{
    events::Events,
    network::{Run, hops},
};
pub use self::{
    live::live,
    network::old,
    read::{Unread, read},
    table::table,
    token::Token,
};

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
    /// The run folder, in which `status.json` is written.
    pub folder: Option<PathBuf>,
}

impl Watched {
    fn look(&self, hops: &[usize], now: Instant) -> Network {
        let Watched { run, topology, rounds, board, .. } = self;
        let run = Run { id: run, topology, rounds: *rounds, board, hops };
        run.look(now, utc())
    }
}

/// Looks at the records of all nodes while a run lasts. Dropping it looks once more, and ends.
pub struct Watcher {
    ends: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _server: Option<Server>,
}

/// What was seen, for those who ask.
struct View {
    network: Network,
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
        let (network, next) = {
            let view = self.lock();
            let events = view.events.since(since).cloned().collect();
            (Network { events, ..view.network.clone() }, view.events.next())
        };
        (serde_json::to_string(&network).expect("names and figures have a form"), next)
    }
}

impl Watcher {
    /// Watches the run of a node, and serves what it sees at this page.
    pub fn of(prepared: &Prepared, page: Option<Page>, warn: Warn) -> Watcher {
        let design = prepared.design();
        let watched = Watched {
            run: design.experiment.run.id.clone(),
            topology: Arc::clone(&design.topology),
            rounds: design.experiment.run.rounds,
            board: prepared.board(),
            folder: prepared.directory().map(|made| made.path().to_path_buf()),
        };
        Watcher::start(watched, page, warn)
    }

    /// Begins to watch. `warn` shows a line to the user: where the system gives no thread, the run
    /// is not watched, or not served.
    pub fn start(watched: Watched, page: Option<Page>, warn: Warn) -> Watcher {
        let hops = hops(&watched.topology, watched.board.node());
        let started = Instant::now();
        let network = watched.look(&hops, started);
        let view = View { network, events: Events::default(), curves: Curves::default() };
        let shared = Arc::new(Shared { view: Mutex::new(view), looks: watch::Sender::new(0) });
        let server = page.and_then(|page| {
            let failed = |error: &io::Error| warn(&format!("warning: there is no page: {error}"));
            Server::start(page, Arc::clone(&shared)).inspect_err(failed).ok()
        });
        let (ends, ended) = mpsc::channel::<()>();
        let tell = Arc::clone(&warn);
        let thread = threads::spawn("gradvine-status", move || {
            let mut file_fails = false;
            loop {
                let over = !matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout));
                let now = Instant::now();
                let network = watched.look(&hops, now);
                let since = {
                    let view = &mut *shared.lock();
                    view.events.look(&network);
                    curves::look(&mut view.curves, &network, (now - started).as_secs_f64());
                    view.network = network;
                    view.events.next().saturating_sub(IN_FILE)
                };
                shared.looks.send_modify(|looks| *looks += 1);
                if let Some(folder) = &watched.folder {
                    let written = write(folder, &shared.json(since).0);
                    if let (Err(error), false) = (&written, file_fails) {
                        let path = folder.join(STATUS_FILE);
                        tell(&format!("warning: {}: {error}", path.display()));
                    }
                    file_fails = written.is_err();
                }
                if over {
                    return;
                }
            }
        });
        let failed = |error: &io::Error| warn(&format!("warning: the run is not watched: {error}"));
        let thread = thread.inspect_err(failed).ok();
        Watcher { ends: Some(ends), thread, _server: server }
    }
}

/// Writes the file of a run folder. One in which nothing has run is removed by its node: then this
/// leaves nothing behind.
fn write(folder: &Path, json: &str) -> io::Result<()> {
    let path = folder.join(STATUS_FILE);
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
