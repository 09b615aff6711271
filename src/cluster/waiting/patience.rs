//! How long a node waits without progress, and when it waits no longer.
//!
//! * Upon a frame, a piece of one, or what this node has done itself: there is progress.
//! * Upon bytes of frames at [a least rate](LEAST_RATE): the same. Fewer are none: a member that
//!   sends a byte now and then is awaited no longer than a silent one.
//! * A lost link has a deadline of its own, and the patience with the others begins again. A link
//!   that only breaks and returns carries nothing, though: after its deadline and the patience
//!   together it is given up, however often it returned.
//! * While all links are up, a node that says that it computes is awaited for longer.

use std::time::{Duration, Instant};

use super::{
    limits::{Limits, WARNING_INTERVAL},
    pace::Alive,
};

/// The bytes of frames a second, over all links and both ways, that are progress: those of a modem.
/// A large frame on a slow link counts: 2 Mbit/s are sixty times as many. A piece of a frame takes
/// four minutes at this rate, less than a neighbour that computes may take (`run.work_s`).
const LEAST_RATE: f64 = 4096.0;

/// What a node has seen of the progress of its run.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The last progress, or the last look at which a link was lost.
    progress: Instant,
    /// The first look since something was carried last at which a link was lost.
    broke: Option<Instant>,
    next_look: Instant,
    /// The time at which something was carried last.
    carried: Instant,
    /// The bytes that had moved by then.
    bytes: u64,
}

/// What is known at a look.
pub(crate) struct Seen {
    pub now: Instant,
    /// The bytes that have moved in all.
    pub bytes: u64,
    /// Whether a link is lost.
    pub lost: bool,
    /// Whether a gradient is computed now.
    pub computing: bool,
    /// The newest sign of work of another node.
    pub beat: Option<Alive>,
}

/// What follows from a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing is to be said.
    Quiet,
    /// It waits for lost links.
    Lost,
    /// It waits for other nodes.
    Waits,
    /// It has waited for so long, and waits no longer.
    Over(Duration),
}

impl Patience {
    /// Begins now, when so many bytes have moved.
    pub(crate) fn new(now: Instant, bytes: u64) -> Patience {
        Patience {
            progress: now,
            carried: now,
            broke: None,
            next_look: now + WARNING_INTERVAL,
            bytes,
        }
    }

    /// There was progress, and so many bytes have moved.
    pub(crate) fn moved(&mut self, now: Instant, bytes: u64) {
        (self.progress, self.next_look) = (now, now + WARNING_INTERVAL);
        self.carries(now, bytes);
    }

    fn carries(&mut self, now: Instant, bytes: u64) {
        (self.carried, self.bytes, self.broke) = (now, bytes, None);
    }

    /// Since when there is no progress.
    pub(crate) fn since(&self) -> Instant {
        self.progress
    }

    /// Whether it is time for a look.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_look
    }

    /// Looks at what has happened since the last look.
    pub(crate) fn look(&mut self, seen: &Seen, limits: &Limits) -> Verdict {
        let now = seen.now;
        self.next_look = now + WARNING_INTERVAL;
        let moved = seen.bytes.saturating_sub(self.bytes);
        let least = LEAST_RATE * now.saturating_duration_since(self.carried).as_secs_f64();
        if moved > 0 && moved as f64 >= least {
            self.progress = now;
            self.carries(now, seen.bytes);
        }
        if seen.computing {
            self.carries(now, seen.bytes);
        }
        let work = seen.beat.filter(|beat| !beat.absent && beat.when > self.carried);
        if seen.lost {
            self.progress = now;
            let (carried, broke) = (now - self.carried, *self.broke.get_or_insert(now));
            let is_over = limits.absence.is_some_and(|absence| {
                let most = absence.saturating_add(limits.patience);
                let most = most.saturating_add(work.map_or(Duration::ZERO, |_| limits.work));
                // A neighbour that has waited as long and gives up now is no cause.
                carried >= most && now - broke >= absence
            });
            return if is_over { Verdict::Over(carried) } else { Verdict::Lost };
        }
        if seen.computing {
            return Verdict::Quiet;
        }
        let alive = seen.beat.map_or(self.progress, |beat| beat.when.max(self.progress));
        let (silence, waited) = (now - alive, now - self.progress);
        let most = match seen.beat {
            Some(beat) if beat.absent => limits.absence.unwrap_or(Duration::MAX),
            _ => limits.work,
        };
        if silence >= limits.patience || waited >= limits.patience.saturating_add(most) {
            return Verdict::Over(waited);
        }
        match waited >= limits.patience.min(WARNING_INTERVAL) {
            true => Verdict::Waits,
            false => Verdict::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::NodeId;

    const LIMITS: Limits = Limits {
        connect: Duration::from_secs(60),
        patience: Duration::from_secs(60),
        work: Duration::from_secs(3600),
        absence: Some(Duration::from_secs(600)),
        may_continue: true,
        start: None,
    };

    /// When a node waits no longer, in seconds, and its last verdict before. `is_lost`, `computes`
    /// and `beats` say what is so at a second; nothing moves.
    fn over(
        limits: &Limits,
        is_lost: impl Fn(u64) -> bool,
        computes: impl Fn(u64) -> bool,
        beats: impl Fn(u64) -> Option<bool>,
    ) -> (Option<u64>, Verdict) {
        over_with(limits, is_lost, computes, beats, |_| 0)
    }

    /// The same where so many bytes have moved by a second.
    fn over_with(
        limits: &Limits,
        is_lost: impl Fn(u64) -> bool,
        computes: impl Fn(u64) -> bool,
        beats: impl Fn(u64) -> Option<bool>,
        moved: impl Fn(u64) -> u64,
    ) -> (Option<u64>, Verdict) {
        let started = Instant::now();
        let at = |second: u64| started + Duration::from_secs(second);
        let (mut patience, mut last, mut beat) = (Patience::new(started, 0), Verdict::Quiet, None);
        for second in 1..20_000 {
            let now = at(second);
            let alive = |absent| Alive { node: NodeId(1), when: now, absent };
            beat = beats(second).map(alive).or(beat);
            if !patience.is_due(now) {
                continue;
            }
            let (lost, computing) = (is_lost(second), computes(second));
            let bytes = moved(second);
            match patience.look(&Seen { now, bytes, lost, computing, beat }, limits) {
                Verdict::Over(_) => return (Some(second), last),
                verdict => last = verdict,
            }
        }
        (None, last)
    }

    #[test]
    fn silence_ends_with_the_patience() {
        let (when, last) = over(&LIMITS, |_| false, |_| false, |_| None);
        assert_eq!((when, last), (Some(60), Verdict::Waits));
    }

    /// A member that sends one byte now and then is awaited no longer than a silent one. A large
    /// frame on a slow link is progress, also if it comes in bursts.
    #[test]
    fn bytes_count_at_a_least_rate() {
        let when = |bytes: &dyn Fn(u64) -> u64| {
            over_with(&LIMITS, |_| false, |_| false, |_| None, bytes).0
        };
        assert_eq!(when(&|second| second / 59), Some(60));
        assert_eq!(when(&|second| second * LEAST_RATE as u64 / 2), Some(60));
        assert_eq!(when(&|second| second * LEAST_RATE as u64), None);
        // 2 Mbit/s, and the same in a burst each 50 seconds.
        assert_eq!(when(&|second| second * 250_000), None);
        assert_eq!(when(&|second| second / 50 * 50 * 250_000), None);
        // The frame is not complete, and nothing more comes.
        assert_eq!(when(&|second| second.min(100) * 250_000), Some(160));
        // Nor do such bytes help a link that is lost again and again.
        let lost = over_with(&LIMITS, |_| true, |_| false, |_| None, |second| second / 59).0;
        assert_eq!(lost, Some(660));
    }

    #[test]
    fn a_link_that_only_breaks_and_comes_back_is_given_up() {
        // It is lost at every look, or at every second one, as when two links take turns.
        for every in [1, 2, 7] {
            let (when, _) = over(&LIMITS, |s| s % (5 * every) < 5, |_| false, |_| None);
            assert!(when.is_some_and(|when| (60..=665).contains(&when)), "{every}: {when:?}");
        }
        let (when, last) = over(&LIMITS, |_| true, |_| false, |_| None);
        assert_eq!((when, last), (Some(660), Verdict::Lost));
        let forever = Limits { absence: None, ..LIMITS };
        assert_eq!(over(&forever, |_| true, |_| false, |_| None), (None, Verdict::Lost));
    }

    #[test]
    fn a_link_that_breaks_after_a_long_wait_has_its_deadline() {
        let short = Duration::from_secs(3);
        let limits = Limits { patience: 4 * short, absence: Some(short), ..LIMITS };
        let (when, last) = over(&limits, |s| s >= 15, |_| false, |_| None);
        assert_eq!((when, last), (Some(20), Verdict::Lost));
    }

    #[test]
    fn a_node_that_sends_signs_of_work_only_is_awaited_for_a_bounded_time() {
        let beats = |s: u64| s.is_multiple_of(5).then_some(false);
        let (when, last) = over(&LIMITS, |_| false, |_| false, beats);
        assert_eq!((when, last), (Some(3660), Verdict::Waits));
        let (when, last) = over(&LIMITS, |_| true, |_| false, beats);
        assert_eq!((when, last), (Some(4260), Verdict::Lost));
        let (when, _) =
            over(&LIMITS, |_| false, |_| false, |s| s.is_multiple_of(5).then_some(true));
        assert_eq!(when, Some(660), "another node waits for a lost link");
    }

    #[test]
    fn the_own_work_has_no_deadline() {
        let (when, last) = over(&LIMITS, |_| false, |_| true, |_| None);
        assert_eq!((when, last), (None, Verdict::Quiet));
        let (when, last) = over(&LIMITS, |_| true, |_| true, |_| None);
        assert_eq!((when, last), (None, Verdict::Lost));
    }
}
