//! Progress of many runs: a bar on a terminal, plain lines elsewhere, nothing if `--quiet` is set.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The minimum interval of plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// The display of progress; shared by several threads.
pub struct Tally {
    bar: Option<ProgressBar>,
    plain: bool,
    started: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Tally {
    /// A display; silent unless `speaks`.
    pub fn new(speaks: bool) -> Tally {
        let terminal = std::io::stderr().is_terminal();
        let bar = (speaks && terminal).then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template(
                "  run {pos}/{len} [{bar:28}] {elapsed} + {eta} left  {msg}",
            );
            bar.set_style(style.expect("the template is well formed").progress_chars("=> "));
            bar
        });
        Tally { bar, plain: speaks && !terminal, started: Instant::now(), shown: Mutex::new(None) }
    }

    /// Shows that `done` of `total` runs are over, with the name of the last one.
    pub fn show(&self, done: usize, total: usize, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(what.to_string());
        } else if self.plain {
            let now = Instant::now();
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if done == total || shown.is_none_or(|shown| now - shown >= PLAIN_EVERY) {
                *shown = Some(now);
                note!("run {done}/{total}  {:.1} s  {what}", self.started.elapsed().as_secs_f64());
            }
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
