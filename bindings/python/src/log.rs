//! Log lines of the node's threads, for Python's `logging`. The threads never wait for Python: they
//! put lines into a queue of limited length, which a thread of Python empties.

use std::{
    fmt::{self, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use pyo3::prelude::*;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::{Context, Layer, SubscriberExt},
    util::SubscriberInitExt,
};

/// The maximum number of lines that wait; later ones are dropped and counted.
const WAITING: usize = 4096;

/// Python's level, the target (`gradvine::net`), the message.
type Line = (u8, String, String);

static LINES: Mutex<Option<Receiver<Line>>> = Mutex::new(None);
static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Queue(SyncSender<Line>);

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let mut text = Text(String::new());
        event.record(&mut text);
        if self.0.try_send((level, event.metadata().target().to_string(), text.0)).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The message of an event, and its fields behind it.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// Begins to keep log lines at the levels of `RUST_LOG`, or from `info` on. Returns whether they
/// were not kept before.
#[pyfunction]
pub(crate) fn start_logs() -> bool {
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let usual = || Targets::new().with_target("gradvine", LevelFilter::INFO);
    let targets: Targets = asked.and_then(|text| text.parse().ok()).unwrap_or_else(usual);
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    if tracing_subscriber::registry().with(Queue(sender)).with(targets).try_init().is_err() {
        return false;
    }
    *LINES.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
    true
}

/// The lines since the last call; waits up to `seconds` for the first one.
#[pyfunction]
pub(crate) fn next_logs(py: Python<'_>, seconds: f64) -> Vec<Line> {
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| {
        let queue = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = queue.as_ref() else { return Vec::new() };
        let mut lines = match queue.recv_timeout(limit) {
            Ok(line) => vec![line],
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Vec::new(),
        };
        lines.extend(queue.try_iter());
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let text = format!("{dropped} log lines were dropped: Python did not read them");
            lines.push((30, "gradvine".into(), text));
        }
        lines
    })
}
