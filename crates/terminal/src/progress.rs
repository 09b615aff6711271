//! Progress: a bar on a terminal, plain lines elsewhere, nothing if `--quiet` is set.

use std::{
    collections::BTreeSet,
    io::IsTerminal,
    sync::Mutex,
    time::{Duration, Instant},
};

use gradvine::{
    data::{self, Reading},
    node::Event,
    printable::Printable,
    run::Progress,
    units::{Bytes, duration},
};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Interrupt, bar};

/// Shows the progress of a run: a bar on a terminal, else plain lines, or nothing.
pub struct Display {
    bar: Option<ProgressBar>,
    plain: bool,
    total: u64,
    started: Instant,
    shown: Option<Instant>,
    /// The first of the shown rounds and the time at which it ended.
    first: Option<(Instant, u64)>,
    simulated_time: bool,
    /// Neighbours whose links are lost.
    lost: BTreeSet<String>,
    /// The last test accuracy of a node, until it is shown.
    accuracy: Option<f64>,
    /// It is told the round reached.
    interrupt: Interrupt,
}

/// The minimum interval of plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(2);

impl Display {
    /// A display of this many rounds; silent unless `speaks`. With `simulated_time`, it shows
    /// virtual time. It tells `interrupt` the round reached.
    pub fn new(total: u64, speaks: bool, simulated_time: bool, interrupt: &Interrupt) -> Display {
        let terminal = std::io::stderr().is_terminal();
        let bar = (speaks && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), bar::target());
            let style = ProgressStyle::with_template(
                "  round {pos}/{len} [{bar:28}] {msg}  {elapsed} + {eta} left",
            );
            bar.set_style(style.expect("the template is well formed").progress_chars("=> "));
            bar
        });
        Display {
            bar,
            plain: speaks && !terminal,
            total,
            started: Instant::now(),
            shown: None,
            first: None,
            simulated_time,
            lost: BTreeSet::new(),
            accuracy: None,
            interrupt: interrupt.clone(),
        }
    }

    /// Shows what happens at a node.
    pub fn follow(&mut self, event: Event) {
        match event {
            Event::Evaluation(metric) => self.accuracy = metric.test_accuracy,
            Event::Round { rounds, mean_loss: loss, traffic, elapsed, .. } => {
                let (payload, time) = (traffic.payload, elapsed.time);
                let accuracy = self.accuracy.take();
                self.show(&Progress { rounds, loss, consensus: None, accuracy, payload, time });
            }
            Event::LinkLost { peer, .. } => self.lose(peer),
            Event::Linked { peer, .. } => self.regain(&peer),
            Event::Resumed { rounds } => self.resume(rounds),
            Event::Ended => self.finish(),
            _ => {}
        }
    }

    /// Shows on the bar that the link to a neighbour is lost. Elsewhere the log says so.
    fn lose(&mut self, peer: String) {
        self.lost.insert(peer);
        if let Some(bar) = &self.bar {
            let peers: Vec<&str> = self.lost.iter().map(String::as_str).collect();
            bar.set_message(format!("reconnecting to {}", peers.join(", ")));
        }
    }

    /// The link to a neighbour is up.
    fn regain(&mut self, peer: &str) {
        if self.lost.remove(peer)
            && let Some(bar) = &self.bar
        {
            bar.set_message("linked again");
        }
    }

    /// The run continues after this many rounds.
    fn resume(&mut self, rounds: u64) {
        self.interrupt.reached(rounds);
        self.shown = None;
        match &self.bar {
            Some(bar) => bar.set_position(rounds),
            None if self.plain => note!("the run continues after round {rounds}"),
            None => {}
        }
    }

    /// Shows the progress of the run.
    pub fn show(&mut self, progress: &Progress) {
        self.interrupt.reached(progress.rounds);
        if let Some(bar) = &self.bar {
            bar.set_position(progress.rounds);
            bar.set_message(words(progress, self.simulated_time));
        } else if self.plain {
            let now = Instant::now();
            let last = progress.rounds == self.total;
            if last || self.shown.is_none_or(|shown| now - shown >= PLAIN_EVERY) {
                self.shown = Some(now);
                // Linking may have taken long: the pace is that of the rounds.
                let &mut (started, first) = self.first.get_or_insert((now, progress.rounds));
                let (done, missing) = (
                    progress.rounds.saturating_sub(first),
                    self.total.saturating_sub(progress.rounds),
                );
                let left = if done > 0 && missing > 0 {
                    let pace = (now - started).as_secs_f64() / done as f64;
                    format!(" + {} left", duration(pace * missing as f64))
                } else {
                    String::new()
                };
                note!(
                    "round {}/{}  {}  {}{left}",
                    progress.rounds,
                    self.total,
                    words(progress, self.simulated_time),
                    duration(self.started.elapsed().as_secs_f64())
                );
            }
        }
    }

    /// Removes the bar from the terminal.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn words(progress: &Progress, simulated_time: bool) -> String {
    let mut words = format!("loss {:.4}", progress.loss);
    if let Some(accuracy) = progress.accuracy {
        words += &format!("  test accuracy {:.1}%", 100.0 * accuracy);
    }
    if let Some(consensus) = progress.consensus {
        words += &format!("  consensus {consensus:.2e}");
    }
    words += &format!("  sent {}", Bytes(progress.payload));
    if simulated_time && progress.time.0 > 0 {
        words += &format!("  virtual {:.1} s", progress.time.seconds());
    }
    words
}

/// Shows on a terminal how far the reading of a file is, once it has taken a second.
pub fn show_reading() {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let shown = Mutex::new(None);
    data::observe_reading(move |reading| {
        let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (started, bar) = shown.get_or_insert_with(|| (Instant::now(), None::<ProgressBar>));
        if reading.ended {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            *shown = None;
            return;
        }
        let elapsed = started.elapsed();
        if elapsed >= Duration::from_secs(1) {
            let bar = bar.get_or_insert_with(|| reading_bar(reading));
            bar.set_position(reading.read);
            bar.set_message(pace(reading, elapsed.as_secs_f64()));
        }
    });
}

fn reading_bar(reading: &Reading) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(reading.total, bar::target());
    let template =
        if reading.total.is_some() { "  {prefix} [{bar:28}] {msg}" } else { "  {prefix} {msg}" };
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(Printable(&reading.name).to_string());
    bar
}

/// Bytes read, the speed, and the rest of the time if the length is known.
fn pace(reading: &Reading, seconds: f64) -> String {
    let speed = reading.read as f64 / seconds;
    let mut words = Bytes(reading.read).to_string();
    if let Some(total) = reading.total {
        words += &format!(" of {}", Bytes(total));
    }
    words += &format!("  {:.0} MB/s", speed / 1e6);
    if let Some(total) = reading.total {
        let left = total.saturating_sub(reading.read) as f64 / speed;
        words += &format!("  {} left", duration(left));
    }
    words
}
