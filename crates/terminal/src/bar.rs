//! Lines of progress on a terminal: indicatif measures the time and says when to draw, `fit` says
//! what fits, and standard error is not waited for.

use std::{
    env, fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};

use super::{
    fit::{Parts, fitted, timed},
    stderr,
};

/// How often a line is drawn: then it has the width that the terminal has by now.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// Whether standard error is a terminal on which a line can be drawn again.
pub(crate) fn on_terminal() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// A line of progress at the bottom of the terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    parts: Arc<Mutex<Parts>>,
}

impl Bar {
    /// A line that has no parts before [`Bar::show`]; `elapsed` has passed already.
    pub(crate) fn new(total: Option<u64>, elapsed: Duration) -> Bar {
        let terminal = Term::stderr();
        let parts = Arc::<Mutex<Parts>>::default();
        let (shown, its) = (Arc::clone(&parts), terminal.clone());
        let line = move |state: &ProgressState, to: &mut dyn fmt::Write| {
            let parts = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // A character in the last column would move the cursor to the next line.
            let width = usize::from(its.size().1).saturating_sub(1);
            let times = (state.elapsed(), state.eta());
            let _ = to.write_str(&fitted(timed(parts, times), state.fraction(), width));
        };
        let target =
            ProgressDrawTarget::term_like(Box::new(Frame { terminal, text: <_>::default() }));
        let bar = ProgressBar::with_draw_target(total, target).with_elapsed(elapsed);
        let style = ProgressStyle::with_template("{line}").expect("the template is well formed");
        bar.set_style(style.with_key("line", line));
        bar.enable_steady_tick(DRAWN_EVERY);
        Bar { bar, parts }
    }

    /// Shows these parts; the times that they leave open are known when the line is drawn.
    pub(crate) fn show(&self, position: u64, total: Option<u64>, parts: Parts) {
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts;
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self.bar.set_position(position);
    }

    /// Work goes on from this position, to which it did not come by itself.
    pub(crate) fn begin_at(&self, position: u64) {
        self.bar.set_position(position);
        self.bar.reset_eta();
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Collects a line until it is complete, and hands it to standard error, which replaces the line
/// before: no movement of the cursor is needed.
#[derive(Debug)]
struct Frame {
    terminal: Term,
    text: Mutex<String>,
}

impl TermLike for Frame {
    fn width(&self) -> u16 {
        self.terminal.size().1
    }

    fn height(&self) -> u16 {
        self.terminal.size().0
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let text = std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner));
        // indicatif begins with a return and fills the line with spaces.
        stderr::draw(text.trim_start_matches('\r').trim_end());
        Ok(())
    }
}
