//! Progress of many runs: a bar on a terminal, plain lines elsewhere, nothing where it is not
//! wanted.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Plain lines are at least this far apart.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// How progress is shown; from several threads.
pub struct Tally {
    bar: Option<ProgressBar>,
    plain: bool,
    started: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Tally {
    /// Silent where `speaks` is false.
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

    /// So many runs of so many are done, and this was the last.
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

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
