//! Standard error, written by a thread of its own: a pipe that nobody reads, or a terminal that is
//! held (Ctrl-S), delays no round.
//!
//! A line of progress stands below all other lines. The cursor waits at its beginning, where it
//! also stays when the terminal becomes narrower and breaks the line in two: all that is below the
//! cursor is that line, and is erased.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

/// The most bytes that may wait when another line of the log, or state of a bar, comes.
const MOST_LOG: usize = 16 << 20;

/// The same for a line that a command prints, such as a warning, or why it failed.
const MOST_LINES: usize = 24 << 20;

/// The most bytes that are written at once.
const PIECE: usize = 64 << 10;

/// How long the end of the program waits for standard error to accept another piece.
const PATIENCE: Duration = Duration::from_secs(1);

/// Erases the line of progress.
const ERASE: &str = "\r\x1b[J";

/// What is lost first if standard error accepts too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// A line of the log, or the state of a progress bar.
    Log,
    /// A line that the command prints.
    Line,
}

/// Text on its way to standard error.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Hands text to the thread that writes it to standard error.
pub(crate) fn write(text: &str, kind: LineKind) {
    queue().push(text, kind);
}

/// Replaces the line of progress, by none if it is empty.
pub(crate) fn draw(line: &str) {
    if let Some(queue) = QUEUE.get().or_else(|| (!line.is_empty()).then(queue)) {
        queue.draw(line);
    }
}

fn queue() -> &'static Queue {
    QUEUE.get_or_init(|| Queue::new(raw()))
}

/// Waits until standard error has all of it, as long as it accepts more of it.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(PATIENCE);
    }
}

/// Standard error without the lock of the standard library, which a message of a panic needs.
fn raw() -> Box<dyn Write + Send> {
    #[cfg(unix)]
    if let Ok(own) = std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned() {
        return Box::new(std::fs::File::from(own));
    }
    Box::new(io::stderr())
}

/// Text on its way to a writer that may block.
struct Queue {
    shared: Arc<Shared>,
    /// Writes at once if there is no thread.
    direct: Option<Mutex<Box<dyn Write + Send>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<u8>,
    /// Whether the thread is writing a piece.
    busy: bool,
    pieces: u64,
    /// Lines that were lost since the last message about them.
    lost: u64,
    /// The line of progress, as it stands on the terminal when all that waits is written.
    progress: String,
}

impl State {
    /// The line of progress, without a break where the terminal is narrower by now; then the cursor
    /// goes back to its beginning.
    fn add_progress(&mut self) {
        if !self.progress.is_empty() {
            let line = format!("\r\x1b[?7l{}\x1b[J\r\x1b[?7h", self.progress);
            self.waiting.extend(line.as_bytes());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn new(to: Box<dyn Write + Send>) -> Queue {
        let shared = Arc::new(Shared::default());
        let slot = Arc::new(Mutex::new(Some(to)));
        let take =
            |slot: &Mutex<Option<_>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (own, its) = (Arc::clone(&shared), Arc::clone(&slot));
        let thread = thread::Builder::new().name("gradvine-stderr".into());
        let started = thread.spawn(move || {
            if let Some(to) = take(&its) {
                drain(&own, to);
            }
        });
        let direct = started.err().and_then(|_| take(&slot)).map(Mutex::new);
        Queue { shared, direct }
    }

    fn push(&self, text: &str, kind: LineKind) {
        if let Some(direct) = &self.direct {
            let mut to = direct.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = to.write_all(text.as_bytes());
            return;
        }
        let mut state = self.shared.lock();
        let most = if kind == LineKind::Log { MOST_LOG } else { MOST_LINES };
        if state.waiting.len() + text.len() > most {
            state.lost += 1;
            return;
        }
        if !state.progress.is_empty() {
            state.waiting.extend(ERASE.as_bytes());
        }
        if state.lost > 0 {
            let lost = std::mem::take(&mut state.lost);
            let line =
                format!("warning: {lost} lines are lost: standard error accepts too little\n");
            state.waiting.extend(line.as_bytes());
        }
        state.waiting.extend(text.as_bytes());
        state.add_progress();
        self.shared.changed.notify_all();
    }

    /// Without a thread there is no line of progress.
    fn draw(&self, line: &str) {
        let mut state = self.shared.lock();
        let is_new = !(line.is_empty() && state.progress.is_empty());
        if self.direct.is_none() && is_new && state.waiting.len() + line.len() <= MOST_LOG {
            if line.is_empty() {
                state.waiting.extend(ERASE.as_bytes());
            }
            state.progress = line.to_string();
            state.add_progress();
            self.shared.changed.notify_all();
        }
    }

    fn flush(&self, patience: Duration) {
        let mut state = self.shared.lock();
        while !state.waiting.is_empty() || state.busy {
            let before = state.pieces;
            let waited = self.shared.changed.wait_timeout_while(state, patience, |state| {
                state.pieces == before && (!state.waiting.is_empty() || state.busy)
            });
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return;
            }
            state = now;
        }
    }
}

/// Writes what waits, for ever.
fn drain(shared: &Shared, mut to: Box<dyn Write + Send>) {
    let mut piece = Vec::new();
    loop {
        {
            let waits = |state: &mut State| state.waiting.is_empty();
            let found = shared.changed.wait_while(shared.lock(), waits);
            let mut state = found.unwrap_or_else(PoisonError::into_inner);
            let count = state.waiting.len().min(PIECE);
            piece.clear();
            piece.extend(state.waiting.drain(..count));
            state.busy = true;
        }
        // A line that cannot be written (a full disk, a closed pipe) is lost.
        let _ = to.write_all(&piece).and_then(|()| to.flush());
        let mut state = shared.lock();
        (state.busy, state.pieces) = (false, state.pieces + 1);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Accepts a piece for each message of `open`, and passes it on.
    struct Gate {
        open: mpsc::Receiver<()>,
        out: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            self.open.recv().map_err(closed)?;
            self.out.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_blocks_delays_nobody_and_lost_lines_are_counted() {
        let (open, gate) = mpsc::channel();
        let (out, written) = mpsc::channel();
        let queue = Queue::new(Box::new(Gate { open: gate, out }));
        let line = format!("{}\n", "x".repeat(1 << 20));
        // Would wait for ever if a push did.
        for _ in 0..40 {
            queue.push(&line, LineKind::Log);
        }
        queue.push("error: why it failed\n", LineKind::Line);
        queue.flush(Duration::from_millis(1));
        assert!(written.try_recv().is_err());
        let mut text = Vec::new();
        while !text.ends_with(b"why it failed\n") {
            open.send(()).unwrap();
            text.extend(written.recv().unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        // The thread may take a piece between two lines, and then there is room for another one.
        let lost =
            text.lines().filter_map(|line| line.strip_prefix("warning: ")?.split(' ').next());
        let lost: usize = lost.map(|lost| lost.parse::<usize>().unwrap()).sum();
        let whole = text.lines().filter(|line| line.starts_with('x')).count();
        assert_eq!(lost + whole, 40);
        assert!((1..40).contains(&lost), "{lost}");
        queue.flush(PATIENCE);
        queue.push("last\n", LineKind::Log);
        open.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), b"last\n");
    }

    /// What a terminal shows of a queue whose pieces are all written.
    struct Screen {
        queue: Queue,
        written: mpsc::Receiver<Vec<u8>>,
        open: mpsc::Sender<()>,
        terminal: avt::Terminal,
    }

    impl Screen {
        fn new(columns: usize) -> Screen {
            let (open, gate) = mpsc::channel();
            let (out, written) = mpsc::channel();
            let queue = Queue::new(Box::new(Gate { open: gate, out }));
            let terminal = avt::Terminal::with_scrollback(columns, 8, None).unwrap();
            Screen { queue, written, open, terminal }
        }

        /// The lines after one more piece, on a terminal that has so many columns by now.
        fn lines(&mut self, columns: usize) -> Vec<String> {
            self.open.send(()).unwrap();
            let piece = String::from_utf8(self.written.recv().unwrap()).unwrap();
            self.terminal.resize(columns, 8);
            self.terminal.feed(piece.replace('\n', "\r\n"));
            let mut lines = self.terminal.primary_screen().text();
            lines.retain(|line| !line.is_empty());
            lines
        }
    }

    #[test]
    fn nothing_of_an_older_line_of_progress_stays() {
        let mut screen = Screen::new(40);
        let long = "  round 9/1000  loss 0.1234  3m left";
        screen.queue.draw(long);
        assert_eq!(screen.lines(40), [long]);
        screen.queue.draw("  round 10/1000");
        assert_eq!(screen.lines(40), ["  round 10/1000"]);
        screen.queue.draw(long);
        assert_eq!(screen.lines(40), [long]);
        // Narrower, so that the terminal breaks the line; then wider.
        screen.queue.draw("  round 11/1000");
        assert_eq!(screen.lines(20), ["  round 11/1000"]);
        screen.queue.draw(long);
        assert_eq!(screen.lines(80), [long]);
        screen.queue.draw("");
        assert_eq!(screen.lines(80), [""; 0]);
    }

    #[test]
    fn lines_stand_above_the_line_of_progress() {
        let mut screen = Screen::new(40);
        let progress = "  round 9/1000  loss 0.1234  3m left";
        screen.queue.draw(progress);
        assert_eq!(screen.lines(40), [progress]);
        screen.queue.push("warning: one\n", LineKind::Line);
        assert_eq!(screen.lines(40), ["warning: one", progress]);
        // It was drawn for a wider terminal: it is cut at the edge until it is drawn again.
        screen.queue.push("two\n", LineKind::Log);
        let lines = screen.lines(20);
        assert_eq!(lines[..2], ["warning: one", "two"]);
        assert_eq!(lines.len(), 3);
        screen.queue.draw("  round 9/1000");
        assert_eq!(screen.lines(20), ["warning: one", "two", "  round 9/1000"]);
        screen.queue.draw("");
        assert_eq!(screen.lines(20), ["warning: one", "two"]);
    }

    #[test]
    fn without_progress_nothing_is_erased() {
        let screen = Screen::new(40);
        screen.queue.draw("");
        screen.queue.push("a line\n", LineKind::Line);
        screen.open.send(()).unwrap();
        assert_eq!(screen.written.recv().unwrap(), b"a line\n");
    }
}
