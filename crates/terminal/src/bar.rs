//! Where progress bars are drawn: on standard error, without waiting for it.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

use super::stderr::{self, LineKind};

/// The target of a bar on the terminal, drawn at most ten times a second.
pub(crate) fn target() -> ProgressDrawTarget {
    let frame = Frame { terminal: Term::stderr(), text: Mutex::default() };
    ProgressDrawTarget::term_like_with_hz(Box::new(frame), 10)
}

/// Collects what is drawn until it is complete.
#[derive(Debug)]
struct Frame {
    /// The terminal whose width decides how long a line may be.
    terminal: Term,
    text: Mutex<String>,
}

impl Frame {
    fn add(&self, text: &str) -> io::Result<()> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    /// Moves the cursor: the letter says where.
    fn cursor(&self, count: usize, letter: char) -> io::Result<()> {
        if count > 0 { self.add(&format!("\x1b[{count}{letter}")) } else { Ok(()) }
    }
}

impl TermLike for Frame {
    fn width(&self) -> u16 {
        self.terminal.size().1
    }

    fn height(&self) -> u16 {
        self.terminal.size().0
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.cursor(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.cursor(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.cursor(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.cursor(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(text)?;
        self.add("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let text = std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner));
        stderr::write(&text, LineKind::Log);
        Ok(())
    }
}
