//! Progress: a bar on a terminal, plain lines elsewhere, nothing if `--quiet` is set.

use std::{
    collections::BTreeSet,
    sync::Mutex,
    time::{Duration, Instant},
};

use gradvine::{
    data,
    node::Event,
    printable::Printable,
    run::Progress,
    units::{Bytes, duration},
};

use super::{
    Interrupt,
    bar::{self, Bar},
    fit::{Part, Parts},
};

/// Shows the progress of a run: a bar on a terminal, else plain lines, or nothing.
pub struct Display {
    bar: Option<Bar>,
    plain: bool,
    total: u64,
    started: Instant,
    shown: Option<Instant>,
    /// The first of the shown rounds and the time at which it ended.
    first: Option<(Instant, u64)>,
    simulated_time: bool,
    /// The last round that has ended.
    round: u64,
    /// Neighbours whose links are lost.
    lost: BTreeSet<String>,
    /// The last test accuracy of a node, until it is shown.
    accuracy: Option<f64>,
    /// It is told the round reached.
    interrupt: Interrupt,
}

/// The minimum interval of plain lines.
pub(crate) const PLAIN_EVERY: Duration = Duration::from_secs(60);

impl Display {
    /// A display of this many rounds; silent unless `speaks`. With `simulated_time`, it shows
    /// virtual time. It tells `interrupt` the round reached.
    pub fn new(total: u64, speaks: bool, simulated_time: bool, interrupt: &Interrupt) -> Display {
        let terminal = bar::on_terminal();
        let bar = (speaks && terminal).then(|| Bar::new(Some(total), Duration::ZERO));
        Display {
            bar,
            plain: speaks && !terminal,
            total,
            started: Instant::now(),
            shown: None,
            first: None,
            simulated_time,
            round: 0,
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
        let peers: Vec<&str> = self.lost.iter().map(String::as_str).collect();
        let peers = Printable(&format!("to {}", peers.join(", "))).to_string();
        self.show_links(&[(Part::Links, "reconnecting".into()), (Part::Name, peers)]);
    }

    /// The link to a neighbour is up.
    fn regain(&mut self, peer: &str) {
        if self.lost.remove(peer) {
            self.show_links(&[(Part::Links, "linked again".into())]);
        }
    }

    fn show_links(&self, words: &[(Part, String)]) {
        if let Some(bar) = &self.bar {
            let mut parts = around(self.round, self.total, words);
            // Rounds wait for the links, nobody knows how long.
            parts.retain(|(part, _)| *part != Part::Left);
            bar.show(self.round, None, parts);
        }
    }

    /// The run continues after this many rounds.
    fn resume(&mut self, rounds: u64) {
        self.interrupt.reached(rounds);
        (self.shown, self.round) = (None, rounds);
        match &self.bar {
            Some(bar) => bar.begin_at(rounds),
            None if self.plain => note!("the run continues after round {rounds}"),
            None => {}
        }
    }

    /// Shows the progress of the run.
    pub fn show(&mut self, progress: &Progress) {
        let Progress { rounds, .. } = *progress;
        self.interrupt.reached(rounds);
        self.round = rounds;
        let words = words(progress, self.simulated_time);
        if let Some(bar) = &self.bar {
            bar.show(rounds, None, around(rounds, self.total, &words));
        } else if self.plain {
            let now = Instant::now();
            if rounds == self.total || self.shown.is_none_or(|shown| now - shown >= PLAIN_EVERY) {
                self.shown = Some(now);
                // Linking may have taken long: the pace is that of the rounds.
                let &mut (started, first) = self.first.get_or_insert((now, rounds));
                let done = (rounds.saturating_sub(first), now - started);
                let taken = self.started.elapsed().as_secs_f64();
                note!(
                    "{}",
                    plain(rounds, self.total, &words, (taken, left(done, rounds, self.total)))
                );
            }
        }
    }

    /// Removes the bar from the terminal.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }
}

/// The seconds of the missing rounds at the pace of those that are done, if there are both.
fn left((done, took): (u64, Duration), rounds: u64, total: u64) -> Option<f64> {
    let missing = total.saturating_sub(rounds);
    (done > 0 && missing > 0).then(|| took.as_secs_f64() / done as f64 * missing as f64)
}

/// A line for a file or a pipe: all words, then the seconds that have passed and the rest.
fn plain(rounds: u64, total: u64, words: &Parts, (taken, left): (f64, Option<f64>)) -> String {
    let words: Vec<&str> = words.iter().map(|(_, text)| text.as_str()).collect();
    let left = left.map_or_else(String::new, |left| format!(" + {} left", duration(left)));
    format!("round {rounds}/{total}  {}  {}{left}", words.join("  "), duration(taken))
}

/// The line on a terminal with these words in the middle.
fn around(rounds: u64, total: u64, words: &[(Part, String)]) -> Parts {
    let mut parts =
        vec![(Part::Count, format!("round {rounds}/{total}")), (Part::Bar, String::new())];
    parts.extend_from_slice(words);
    parts.extend([(Part::Elapsed, String::new()), (Part::Left, String::new())]);
    parts
}

fn words(progress: &Progress, simulated_time: bool) -> Parts {
    let mut words = vec![(Part::Loss, format!("loss {:.4}", progress.loss))];
    if let Some(accuracy) = progress.accuracy {
        words.push((Part::Accuracy, format!("test accuracy {:.1}%", 100.0 * accuracy)));
    }
    if let Some(consensus) = progress.consensus {
        words.push((Part::Consensus, format!("consensus {consensus:.2e}")));
    }
    words.push((Part::Sent, format!("sent {}", Bytes(progress.payload))));
    if simulated_time && progress.time.0 > 0 {
        words.push((Part::Virtual, format!("virtual {:.1} s", progress.time.seconds())));
    }
    words
}

/// Shows on a terminal how far the reading of a file is, once it has taken a second.
pub fn show_reading() {
    if !bar::on_terminal() {
        return;
    }
    let shown = Mutex::new(None);
    data::observe_reading(move |reading| {
        let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (started, bar) = shown.get_or_insert_with(|| (Instant::now(), None::<Bar>));
        if reading.ended {
            if let Some(bar) = bar {
                bar.clear();
            }
            *shown = None;
            return;
        }
        let elapsed = started.elapsed();
        if elapsed >= Duration::from_secs(1) {
            let bar = bar.get_or_insert_with(|| Bar::new(reading.total, elapsed));
            bar.show(
                reading.read,
                None,
                reading_parts(&reading.name, (reading.read, reading.total), elapsed.as_secs_f64()),
            );
        }
    });
}

/// The name, the bytes that are read, the speed, and the rest of the time if the length is known.
fn reading_parts(name: &str, (read, total): (u64, Option<u64>), seconds: f64) -> Parts {
    let speed = read as f64 / seconds;
    let mut parts = vec![(Part::Name, Printable(name).to_string())];
    let mut count = Bytes(read).to_string();
    if let Some(total) = total {
        parts.push((Part::Bar, String::new()));
        count += &format!(" of {}", Bytes(total));
    }
    parts.push((Part::Count, count));
    parts.push((Part::Speed, format!("{:.0} MB/s", speed / 1e6)));
    if total.is_some() {
        parts.push((Part::Left, String::new()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use gradvine::units::Time;

    use super::*;
    use crate::fit::{fitted, timed};

    fn progress() -> Progress {
        let (rounds, loss, payload, time) = (120, 0.5, 1_200_000, Time(3_400_000_000));
        Progress { rounds, loss, consensus: Some(2e-3), accuracy: Some(0.931), payload, time }
    }

    #[test]
    fn a_plain_line_has_all_words() {
        let line = |left| plain(120, 200, &words(&progress(), true), (2.5, left));
        let rest = left((80, Duration::from_secs(8)), 120, 200);
        assert_eq!(
            line(rest),
            "round 120/200  loss 0.5000  test accuracy 93.1%  consensus 2.00e-3  sent 1.20 MB  \
             virtual 3.4 s  2.5 s + 8.0 s left"
        );
        assert!(line(left((0, Duration::ZERO), 120, 200)).ends_with("virtual 3.4 s  2.5 s"));
        assert_eq!(left((80, Duration::from_secs(8)), 200, 200), None);
    }

    #[test]
    fn a_line_on_a_terminal_fits() {
        let times = (Duration::from_secs(12), Duration::from_secs(8));
        let of = |words: &[_], width| fitted(timed(around(120, 200, words), times), 0.6, width);
        let words = words(&progress(), false);
        assert_eq!(of(&words, 60), "  round 120/200  loss 0.5000  test accuracy 93.1%  8s left");
        assert_eq!(of(&words, 39), "  round 120/200  loss 0.5000  8s left");
        let lost = [(Part::Links, "reconnecting".into()), (Part::Name, "to a, b".into())];
        assert_eq!(of(&lost, 47), "  round 120/200  reconnecting to a, b  8s left");
        assert_eq!(of(&lost, 39), "  round 120/200  reconnecting  8s left");
    }

    #[test]
    fn the_reading_of_a_file_drops_its_name_before_its_bytes() {
        let bytes = (1 << 30, Some(4 << 30));
        let times = (Duration::from_secs(2), Duration::from_secs(6));
        let of = |width| fitted(timed(reading_parts("rows.csv", bytes, 2.0), times), 0.25, width);
        assert!(of(99).starts_with("  rows.csv [=======>"), "{}", of(99));
        assert_eq!(of(41), "  rows.csv  1.07 GB of 4.29 GB  6s left");
        assert_eq!(of(38), "  1.07 GB of 4.29 GB  6s left");
    }
}
