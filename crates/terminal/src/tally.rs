//! Progress of many runs: a bar on a terminal, plain lines elsewhere, nothing if `--quiet` is set.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use gradvine::printable::Printable;

use super::{
    bar::{self, Bar},
    fit::{Part, Parts},
    progress::PLAIN_EVERY,
};

/// The display of progress; shared by several threads.
pub struct Tally {
    speaks: bool,
    terminal: bool,
    state: Mutex<State>,
}

/// How far the current series of runs is.
struct State {
    started: Instant,
    bar: Option<Bar>,
    shown: Option<Instant>,
}

impl State {
    fn new() -> State {
        State { started: Instant::now(), bar: None, shown: None }
    }
}

impl Tally {
    /// A display of runs that begin now; silent unless `speaks`.
    pub fn new(speaks: bool) -> Tally {
        let terminal = bar::on_terminal();
        Tally { speaks, terminal, state: Mutex::new(State::new()) }
    }

    /// Shows that `done` of `total` runs are over, with the name of the last one.
    pub fn show(&self, done: usize, total: usize, what: &str) {
        if !self.speaks {
            return;
        }
        let mut state = self.lock();
        let State { started, bar, shown } = &mut *state;
        if self.terminal {
            let total_of_bar = Some(total as u64);
            let bar = bar.get_or_insert_with(|| Bar::new(total_of_bar, started.elapsed()));
            bar.show(done as u64, total_of_bar, parts(done, total, what));
            return;
        }
        let now = Instant::now();
        if done == total || shown.is_none_or(|shown| now - shown >= PLAIN_EVERY) {
            *shown = Some(now);
            note!("run {done}/{total}  {:.1} s  {what}", started.elapsed().as_secs_f64());
        }
    }

    /// Removes the bar. Runs that are shown later are another series, which begins now.
    pub fn finish(&self) {
        let ended = std::mem::replace(&mut *self.lock(), State::new());
        if let Some(bar) = ended.bar {
            bar.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The line on a terminal.
fn parts(done: usize, total: usize, what: &str) -> Parts {
    let open = String::new;
    vec![
        (Part::Count, format!("run {done}/{total}")),
        (Part::Bar, open()),
        (Part::Elapsed, open()),
        (Part::Left, open()),
        (Part::Name, Printable(what).to_string()),
    ]
}
