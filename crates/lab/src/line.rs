//! One direction of a link: when a packet arrives, or why it is dropped.
//!
//! ```text
//! begins  = max(now, last departure)       a queue in front of a line; full when it is [`Line::room`] long
//! departs = begins + bytes / rate          bytes: the IP packet
//! arrives = departs + latency + jitter     not before the packet ahead of it, unless reordering is asked for
//! ```
//!
//! No sockets and no clock here, so this arithmetic is tested without either.

use std::time::Duration;

use gradvine::{links::LinkModel, rng::Stream, units::Time};

/// The least length of a link's queue: 100 ms of its rate. A queue of one round trip keeps a line
/// busy while one TCP flow halves its window (Villamizar and Song, High Performance TCP in ANSNET,
/// 1994); shorter ones lose bursts that real routers hold.
pub const LEAST_ROOM: Duration = Duration::from_millis(100);

/// One direction of a link, with the state of its traffic.
#[derive(Clone, Debug)]
pub struct Line {
    model: LinkModel,
    dice: Stream,
    reorders: bool,
    packets: u64,
    /// When the last packet arrives.
    last: Time,
}

/// The result of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It arrives at the receiver at this time.
    Arrives(Time),
    /// Dropped, because the queue of the line was full.
    Full,
    /// Dropped by the dice of a lossy link.
    Lost,
}

impl Line {
    /// A line without traffic. `dice` belongs to this direction; with `reorders`, packets may
    /// overtake each other if there is jitter.
    pub fn new(model: LinkModel, dice: Stream, reorders: bool) -> Line {
        Line { model, dice, reorders, packets: 0, last: Time(0) }
    }

    /// How long the queue may become, in nanoseconds: a round trip, at least [`LEAST_ROOM`].
    pub fn room(&self) -> u64 {
        (2 * self.model.latency).max(LEAST_ROOM.as_nanos() as u64)
    }

    /// Sends a packet of this many bytes. `free` is the time at which the queue in front of the
    /// line is empty; it is updated.
    pub fn send(&mut self, now: Time, bytes: usize, free: &mut Time) -> Delivery {
        let model = &self.model;
        let begins = now.max(*free);
        if begins.0 - now.0 > self.room() {
            return Delivery::Full;
        }
        let dice = self.dice.with(self.packets);
        self.packets += 1;
        let departs = Time(begins.0 + model.time_from(self.dice, begins, bytes));
        *free = departs;
        if model.loss > 0.0 && dice.f64_at(1) < model.loss {
            return Delivery::Lost;
        }
        let mut arrives = Time(departs.0 + model.latency + model.jitter_at(dice.f64_at(0)));
        if !self.reorders {
            arrives = arrives.max(self.last);
            self.last = arrives;
        }
        Delivery::Arrives(arrives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradvine::rng::Purpose;

    const MS: u64 = 1_000_000;
    const LINK: LinkModel = LinkModel { latency: 70 * MS, rate: 12e6, ..LinkModel::IDEAL };

    fn line(model: LinkModel, reorders: bool) -> Line {
        Line::new(model, Stream::new(3, Purpose::Link), reorders)
    }

    #[test]
    fn packets_queue_behind_each_other_and_arrive_a_latency_later() {
        let (mut line, mut free) = (line(LINK, false), Time(0));
        // 1500 bytes at 12 Mbit/s: 1 ms.
        assert_eq!(line.send(Time(5), 1500, &mut free), Delivery::Arrives(Time(71 * MS + 5)));
        assert_eq!(line.send(Time(6), 1500, &mut free), Delivery::Arrives(Time(72 * MS + 5)));
        assert_eq!(
            line.send(Time(10 * MS), 750, &mut free),
            Delivery::Arrives(Time(80 * MS + MS / 2))
        );
    }

    #[test]
    fn a_full_queue_drops_the_last_packets_until_it_drains() {
        let (mut line, mut free) = (line(LINK, false), Time(0));
        assert_eq!(line.room(), 140 * MS);
        let deliveries: Vec<Delivery> =
            (0..150).map(|_| line.send(Time(0), 1500, &mut free)).collect();
        // 140 wait behind the first, and one more has room for its first bit.
        assert_eq!(
            deliveries.iter().filter(|delivery| **delivery == Delivery::Full).count(),
            150 - 141
        );
        assert!(deliveries[..141].iter().all(|delivery| *delivery != Delivery::Full));
        assert_eq!(line.send(Time(MS), 1500, &mut free), Delivery::Arrives(Time((142 + 70) * MS)));
        let near =
            Line::new(LinkModel { latency: MS, ..LINK }, Stream::new(3, Purpose::Link), false);
        assert_eq!(near.room(), LEAST_ROOM.as_nanos() as u64);
    }

    #[test]
    fn an_ideal_line_takes_no_time_and_no_limit() {
        let (mut line, mut free) = (line(LinkModel::IDEAL, false), Time(0));
        for _ in 0..100_000 {
            assert_eq!(line.send(Time(7), 1500, &mut free), Delivery::Arrives(Time(7)));
        }
    }

    #[test]
    fn packets_are_lost_as_often_as_asked_and_the_same_ones_each_time() {
        let model = LinkModel { loss: 0.02, rate: f64::INFINITY, ..LINK };
        let run = || {
            let (mut line, mut free) = (line(model, false), Time(0));
            (0..20_000u64)
                .filter(|i| line.send(Time(i * MS), 1500, &mut free) == Delivery::Lost)
                .collect::<Vec<_>>()
        };
        let lost = run();
        assert!((340..460).contains(&lost.len()), "{}", lost.len());
        assert_eq!(lost, run());
    }

    #[test]
    fn jitter_has_its_mean_and_overtakes_only_if_requested() {
        let model = LinkModel { jitter: 10 * MS, rate: f64::INFINITY, ..LINK };
        let run = |reorders, gap| {
            let (mut line, mut free, mut extra, mut before, mut overtakes) =
                (line(model, reorders), Time(0), 0.0, Time(0), 0);
            for i in 0..5000u64 {
                let now = Time(i * gap);
                let Delivery::Arrives(at) = line.send(now, 100, &mut free) else {
                    panic!("this link loses no packets")
                };
                overtakes += usize::from(at < before);
                before = at;
                extra += (at.0 - now.0 - model.latency) as f64 / 5000.0;
            }
            (extra, overtakes)
        };
        let (extra, overtakes) = run(true, MS);
        assert!((extra / 10e6 - 1.0).abs() < 0.1 && overtakes > 1000, "{extra} {overtakes}");
        let (extra, overtakes) = run(false, 1000 * MS);
        assert!((extra / 10e6 - 1.0).abs() < 0.1 && overtakes == 0, "{extra} {overtakes}");
        assert_eq!(run(false, MS).1, 0);
    }
}
