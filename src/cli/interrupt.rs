//! Ctrl-C and SIGTERM: ask the run to stop; if it has not within two seconds, write what is known
//! and go.

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

/// How long a run has to stop by itself.
const GRACE: Duration = Duration::from_millis(1700);

/// The same of a run whose nodes are programs of their own, each with its [`GRACE`].
const LONG_GRACE: Duration = Duration::from_secs(6);

/// Whether the run is interrupted, and what to do if it does not stop by itself.
#[derive(Clone, Default)]
pub struct Interrupt {
    set: Arc<AtomicBool>,
    patient: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    last_words: Arc<Mutex<Option<LastWords>>>,
    last_deed: Arc<Mutex<Option<LastDeed>>>,
}

type LastWords = Box<dyn FnOnce(u64) + Send>;
type LastDeed = Box<dyn FnOnce() + Send>;

impl Interrupt {
    /// Takes over both signals.
    pub fn install() -> Result<Interrupt, Exit> {
        let interrupt = Interrupt::default();
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.raised()).map_err(|error| {
            Exit::from(ConfigError::at("signals", format!("cannot be handled: {error}")))
        })?;
        Ok(interrupt)
    }

    /// Whether somebody has interrupted.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// How far the run is, for the summary of one that does not stop by itself.
    pub fn reached(&self, rounds: u64) {
        self.rounds.store(rounds, Ordering::Relaxed);
    }

    /// How far the run is.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// What to write if the run does not stop by itself: the models that can be had, and what is
    /// known of the run.
    pub fn otherwise_write(&self, recorder: &Recorder, directory: &RunDirectory) {
        let (recorder, path) = (recorder.clone(), directory.path().join("summary.json"));
        let words = move |rounds: u64| {
            recorder.salvage();
            if let Err(error) = recorder.finish(false) {
                note!("error: {error}");
            }
            let mut summary = recorder.summary();
            summary.rounds = summary.rounds.max(rounds);
            summary.interrupted = true;
            if let Ok(text) = serde_json::to_string_pretty(&summary)
                && let Err(error) = std::fs::write(&path, text + "\n")
            {
                note!("warning: {}: {error}", path.display());
            }
        };
        *self.last_words.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(Box::new(words));
    }

    /// What to do before the program leaves in the middle of a run, be it for a second signal.
    #[cfg(target_os = "linux")]
    pub fn before_leaving(&self, deed: impl FnOnce() + Send + 'static) {
        *self.last_deed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(Box::new(deed));
    }

    fn leave(&self) -> ! {
        if let Some(deed) =
            self.last_deed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        {
            deed();
        }
        process::exit(130)
    }

    /// Gives a run that has to wait for other programs more time to stop.
    pub fn wait_longer(&self) {
        self.patient.store(true, Ordering::Relaxed);
    }

    /// Interrupts, as a signal does.
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
            if let Some(words) =
                this.last_words.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
            {
                words(rounds);
            }
            note!("interrupted: stopped in round {rounds} without waiting for its end");
            this.leave();
        });
    }
}
