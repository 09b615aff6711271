//! Ctrl-C and SIGTERM ask the run to stop; if it has not after two seconds, the program writes the
//! results so far and exits.

use std::{
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use gradvine::{
    config::ConfigError,
    run::{Recorder, RunDirectory},
};

use super::Exit;

/// How long a run may take to stop by itself.
const GRACE: Duration = Duration::from_millis(1700);

/// The same for a run whose nodes are processes of their own, each with its [`GRACE`].
const LONG_GRACE: Duration = Duration::from_secs(6);

/// Whether the run is interrupted, and the actions if it does not stop by itself.
#[derive(Clone, Default)]
pub struct Interrupt {
    set: Arc<AtomicBool>,
    patient: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    write_results: Arc<Mutex<Option<WriteResults>>>,
    clean_up: Arc<Mutex<Option<CleanUp>>>,
}

type WriteResults = Box<dyn FnOnce(u64) + Send>;
type CleanUp = Box<dyn FnOnce() + Send>;

impl Interrupt {
    /// Installs the handler of both signals.
    pub fn install() -> Result<Interrupt, Exit> {
        let interrupt = Interrupt::default();
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.raised()).map_err(|error| {
            Exit::from(ConfigError::at("signals", format!("cannot be handled: {error}")))
        })?;
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

    /// Sets the round reached.
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
            summary.interrupted = true;
            summary.stopped_early = false;
            if let Ok(text) = serde_json::to_string_pretty(&summary)
                && let Err(error) = std::fs::write(&path, text + "\n")
            {
                note!("warning: {}: {error}", path.display());
            }
        };
        *self.write_results.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(Box::new(write));
    }

    /// Sets an action for when the program exits in the middle of a run, also on a second signal.
    #[cfg(target_os = "linux")]
    pub fn before_leaving(&self, action: impl FnOnce() + Send + 'static) {
        *self.clean_up.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(Box::new(action));
    }

    fn leave(&self) -> ! {
        if let Some(action) =
            self.clean_up.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        {
            action();
        }
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

    fn raised(&self) {
        if self.set.swap(true, Ordering::Relaxed) {
            self.leave();
        }
        let this = self.clone();
        thread::spawn(move || {
            thread::sleep(if this.patient.load(Ordering::Relaxed) { LONG_GRACE } else { GRACE });
            let rounds = this.rounds.load(Ordering::Relaxed);
            if let Some(write) =
                this.write_results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
            {
                write(rounds);
            }
            note!("interrupted: stopped in round {rounds} without waiting for its end");
            this.leave();
        });
    }
}
