//! Progress of many runs: a bar on a terminal, plain lines elsewhere, nothing if `--quiet` is set.

use std::{
    io::IsTerminal,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::bar;

/// The minimum interval of plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// The display of progress; shared by several threads.
pub struct Tally {
    speaks: bool,
    terminal: bool,
    state: Mutex<State>,
}

/// How far the current series of runs is.
struct State {
    started: Instant,
    bar: Option<ProgressBar>,
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
        let terminal = std::io::stderr().is_terminal();
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
            let bar = bar.get_or_insert_with(|| new_bar().with_elapsed(started.elapsed()));
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_string());
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
            bar.finish_and_clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1), bar::target());
    let style =
        ProgressStyle::with_template("  run {pos}/{len} [{bar:28}] {elapsed} + {eta} left  {msg}");
    bar.set_style(style.expect("the template is well formed").progress_chars("=> "));
    bar
}
