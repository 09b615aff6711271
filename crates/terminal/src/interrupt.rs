//! Ctrl-C and SIGTERM ask the run to stop; if it has not after two seconds, the program writes the
//! results so far and exits. A second signal ends it at once, unless it is a repetition of the
//! first: `timeout`, for one, signals its child and then its group.

use std::{
    io::{self, Read},
    process,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    config::ConfigError,
    files,
    run::{Recorder, RunDirectory, RunInfo, Whole},
    threads,
};

use super::{flush_stderr, stderr, warnings};

/// How long a run may take to stop by itself.
const GRACE: Duration = Duration::from_millis(1700);

/// The same for a run whose nodes are processes of their own, each with its [`GRACE`].
const LONG_GRACE: Duration = Duration::from_secs(6);

/// A signal that follows the first one so soon is its repetition.
const REPETITION: Duration = Duration::from_millis(500);

/// Whether the run is interrupted, and the actions if it does not stop by itself.
#[derive(Clone, Default)]
pub struct Interrupt {
    set: Arc<AtomicBool>,
    /// When it was interrupted first.
    first: Arc<OnceLock<Instant>>,
    patient: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    write_results: Arc<Mutex<Option<WriteResults>>>,
    clean_up: Arc<Mutex<Option<CleanUp>>>,
}

type WriteResults = Box<dyn FnOnce(u64) + Send>;
type CleanUp = Box<dyn FnOnce() + Send>;

impl Interrupt {
    /// Installs the handler of both signals.
    ///
    /// # Errors
    /// If the program has a handler already, or the system refuses one.
    pub fn install() -> Result<Interrupt, ConfigError> {
        let interrupt = Interrupt::default();
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.raised())
            .map_err(|error| ConfigError::at("signals", format!("cannot be handled: {error}")))?;
        Ok(interrupt)
    }

    /// Whether the user has interrupted the run.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// The round reached, for the summary of a run that does not stop by itself.
    pub fn reached(&self, rounds: u64) {
        self.rounds.store(rounds, Ordering::Relaxed);
    }

    /// The round that was reached.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Sets the writer for a run that does not stop by itself: it saves the available models and a
    /// summary.
    pub fn otherwise_write(&self, recorder: &Recorder, directory: &RunDirectory) {
        let (recorder, path) = (recorder.clone(), directory.path().join("summary.json"));
        let write = move |rounds: u64| {
            recorder.salvage();
            if let Err(error) = recorder.finish(false) {
                note!("error: {error}");
            }
            let mut summary = recorder.summary();
            summary.rounds = summary.rounds.max(rounds);
            summary.interrupt();
            if let Ok(text) = summary.to_json()
                && let Err(error) = files::replace(&path, text.as_bytes())
            {
                note!("warning: {}: {error}", path.display());
            }
        };
        *lock(&self.write_results) = Some(Box::new(write));
    }

    /// The same for a run with all nodes on this machine.
    pub fn otherwise_save(&self, whole: &Whole, directory: &RunDirectory) {
        let recorder = Recorder::new(RunInfo::from(whole), directory, warnings());
        self.otherwise_write(&recorder, directory);
    }

    /// Sets an action for when the program exits in the middle of a run, also on a second signal.
    pub fn before_leaving(&self, action: impl FnOnce() + Send + 'static) {
        *lock(&self.clean_up) = Some(Box::new(action));
    }

    fn leave(&self) -> ! {
        // Another thread that leaves waits here until the action is done.
        let mut action = lock(&self.clean_up);
        if let Some(action) = action.take() {
            action();
        }
        stderr::draw("");
        flush_stderr();
        process::exit(130)
    }

    /// Gives a run that waits for other processes more time to stop.
    pub fn wait_longer(&self) {
        self.patient.store(true, Ordering::Relaxed);
    }

    /// Interrupts the run, as a signal does.
    pub fn raise(&self) {
        if !self.is_set() {
            self.raised();
        }
    }

    /// Interrupts the run once standard input has ended: for a program that starts this one.
    ///
    /// # Errors
    /// If the system refuses the thread that reads it.
    pub fn raise_when_stdin_ends(&self) -> io::Result<()> {
        let interrupt = self.clone();
        let wait = move || {
            let mut bytes = [0; 64];
            while matches!(io::stdin().read(&mut bytes), Ok(1..)) {}
            interrupt.raise();
        };
        threads::spawn("gradvine-stdin", wait).map(drop)
    }

    fn raised(&self) {
        let first = *self.first.get_or_init(Instant::now);
        if self.set.swap(true, Ordering::Relaxed) {
            if first.elapsed() > REPETITION {
                self.leave();
            }
            return;
        }
        let this = self.clone();
        let end = move || {
            thread::sleep(if this.patient.load(Ordering::Relaxed) { LONG_GRACE } else { GRACE });
            let rounds = this.rounds.load(Ordering::Relaxed);
            let write = lock(&this.write_results).take();
            if let Some(write) = write {
                write(rounds);
            }
            note!("interrupted: stopped in round {rounds} without waiting for its end");
            this.leave();
        };
        // Without a thread of its own, this one waits: a second signal is then not handled.
        if threads::spawn("gradvine-end", end.clone()).is_err() {
            end();
        }
    }
}

/// What a mutex holds, also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
