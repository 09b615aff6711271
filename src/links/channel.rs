//! One direction of a virtual link: how long a frame takes.
//!
//! Store and forward: frames leave one after the other at the link's rate, and each arrives one
//! latency after its last bit left. In addition:
//!
//! * **Framing**: the line carries more than the frame (TCP and IP headers of each packet, Noise's
//!   tags, Yamux's headers).
//! * **Jitter**: an extra latency, exponentially distributed; order is kept, as TCP and QUIC do.
//! * **Variation**: the rate is drawn again at regular intervals, log-normal around the link's
//!   mean.
//! * **Loss**: every packet is lost with the same probability, independently on each try; a round
//!   of retransmissions costs a round trip and the packets' time on the line. The effect of loss on
//!   a congestion controller's window is not modelled: then [`LinkModel::rate`] is the rate that
//!   the link really carries.
//!
//! All random numbers depend only on the run's seed, the link and the number of the frame.

use crate::{rng::Stream, units::Time};

/// Payload of a TCP segment on an Ethernet or TUN path: 1500 bytes less 20 of IPv4, 20 of TCP and
/// 12 of timestamps.
pub(super) const SEGMENT: usize = 1448;
/// The bytes of a packet beside its payload.
const PACKET_HEADERS: usize = 52;
/// Noise: a length of 2 bytes and a tag of 16 for every message of at most 65,519 bytes. TLS 1.3
/// has 22 bytes for at most 16,384, a tenth of a percent more.
const NOISE: (usize, usize) = (65_519, 18);
/// Yamux: a header of 12 bytes for every frame of at most 16,384 bytes.
const YAMUX: (usize, usize) = (16_384, 12);

/// The properties of a link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// The latency one way, in nanoseconds.
    pub latency: u64,
    /// Bits per second; infinite for a link that takes no time.
    pub rate: f64,
    /// Mean of the extra latency, in nanoseconds.
    pub jitter: u64,
    /// The probability that a packet is lost, from 0 to below 1.
    pub loss: f64,
    /// The deviation of the logarithm of the rate; 0 for a constant one.
    pub variation: f64,
    /// How long a drawn rate holds, in nanoseconds.
    pub variation_period: u64,
}

impl LinkModel {
    /// A link without latency or rate limit.
    pub const IDEAL: LinkModel = LinkModel {
        latency: 0,
        rate: f64::INFINITY,
        jitter: 0,
        loss: 0.0,
        variation: 0.0,
        variation_period: 1_000_000_000,
    };

    /// The bytes on the line of a frame of this many bytes, with the headers of all layers.
    pub fn on_the_line(frame: usize) -> usize {
        let layered =
            |bytes: usize, (most, header): (usize, usize)| bytes + bytes.div_ceil(most) * header;
        let sealed = layered(layered(frame, YAMUX), NOISE);
        sealed + sealed.div_ceil(SEGMENT) * PACKET_HEADERS
    }

    /// The nanoseconds that this many bytes take on the line at the mean rate.
    pub fn line_time(&self, bytes: usize) -> u64 {
        (bytes as f64 * 8e9 / self.rate) as u64
    }

    /// The nanoseconds that this many bytes take from `start`, at the rate at that time; `dice`
    /// belongs to this direction.
    pub fn time_from(&self, dice: Stream, start: Time, bytes: usize) -> u64 {
        if self.variation == 0.0 || self.rate.is_infinite() {
            return self.line_time(bytes);
        }
        let (mut at, mut bits) = (start.0, bytes as f64 * 8.0);
        loop {
            let number = at / self.variation_period;
            let mut dice = dice.with(u64::MAX).with(number).sequence();
            // Its mean is the link's rate.
            let factor =
                libm::exp(self.variation * dice.normal() - 0.5 * self.variation * self.variation);
            let rate = self.rate * factor / 1e9;
            let room = ((number + 1) * self.variation_period - at) as f64;
            if bits <= rate * room {
                return at + (bits / rate) as u64 - start.0;
            }
            bits -= rate * room;
            at = (number + 1) * self.variation_period;
        }
    }

    /// An extra latency in nanoseconds, for a uniform `u`.
    pub fn jitter_at(&self, u: f64) -> u64 {
        if self.jitter > 0 { (-libm::log(1.0 - u) * self.jitter as f64) as u64 } else { 0 }
    }
}

/// One direction of a link, with the state of its traffic.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    model: LinkModel,
    dice: Stream,
    frames: u64,
    /// When the last frame arrives.
    last: Time,
}

/// The times at which a frame leaves the sender and arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// The sender's queue is free for the next frame.
    pub(crate) left: Time,
    /// The receiver has the whole frame.
    pub(crate) arrives: Time,
}

impl Channel {
    /// A channel without traffic. `dice` belongs to this direction.
    pub(crate) fn new(model: LinkModel, dice: Stream) -> Channel {
        Channel { model, dice, frames: 0, last: Time(0) }
    }

    /// Sends a frame of this many bytes. `free` is the time at which the queue in front of the line
    /// is empty; it is updated.
    pub(crate) fn send(&mut self, now: Time, bytes: usize, free: &mut Time) -> Passage {
        let model = &self.model;
        let dice = self.dice.with(self.frames);
        self.frames += 1;
        let mut line = LinkModel::on_the_line(bytes);
        let mut delay = model.latency + model.jitter_at(dice.f64_at(0));
        if model.loss > 0.0 {
            let packets = line.div_ceil(SEGMENT + PACKET_HEADERS);
            let tries = tries(model.loss, packets, dice.f64_at(1));
            delay += (tries - 1) * 2 * model.latency;
            // The mean number of retransmissions: p + p^2 + ... of each packet.
            line += (line as f64 * model.loss / (1.0 - model.loss)) as usize;
        }
        let start = now.max(*free);
        let left = Time(start.0 + model.time_from(self.dice, start, line));
        *free = left;
        let arrives = self.last.max(Time(left.0 + delay));
        self.last = arrives;
        Passage { left, arrives }
    }
}

/// How often the unluckiest of this many packets is sent, for a uniform `u`: P(at most r tries) =
/// (1 - p^r)^packets.
fn tries(loss: f64, packets: usize, u: f64) -> u64 {
    let mut all_lost = 1.0;
    for tries in 1..=1000 {
        all_lost *= loss;
        if libm::pow(1.0 - all_lost, packets as f64) > u {
            return tries;
        }
    }
    1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    const LINK: LinkModel = LinkModel { latency: 70_000_000, rate: 20e6, ..LinkModel::IDEAL };

    fn channel(model: LinkModel) -> Channel {
        Channel::new(model, Stream::new(1, Purpose::Link))
    }

    #[test]
    fn frames_queue_behind_each_other_and_arrive_a_latency_later() {
        let (mut channel, mut free) = (channel(LINK), Time(0));
        let first = channel.send(Time(5), 10_000, &mut free);
        // Of 10,000 bytes Yamux makes 10,012, Noise 10,030, seven packets 10,394: at 20 Mbit/s
        // 4,157,600 ns.
        assert_eq!(LinkModel::on_the_line(10_000), 10_394);
        assert_eq!(first, Passage { left: Time(4_157_605), arrives: Time(74_157_605) });
        let second = channel.send(Time(6), 10_000, &mut free);
        assert_eq!(second.left, Time(2 * 4_157_600 + 5));
        let later = channel.send(Time(1_000_000_000), 10_000, &mut free);
        assert_eq!(later.left, Time(1_004_157_600));
    }

    #[test]
    fn an_ideal_link_takes_no_time() {
        let passage = channel(LinkModel::IDEAL).send(Time(7), 1 << 30, &mut Time(0));
        assert_eq!(passage, Passage { left: Time(7), arrives: Time(7) });
    }

    #[test]
    fn jitter_has_its_mean_and_keeps_the_order() {
        let (mut channel, mut free) =
            (channel(LinkModel { jitter: 30_000_000, rate: f64::INFINITY, ..LINK }), Time(0));
        let (mut extra, mut before) = (0.0, Time(0));
        for number in 0..2000 {
            let now = Time(number * 10_000_000_000);
            let passage = channel.send(now, 100, &mut free);
            assert!(passage.arrives >= before);
            before = passage.arrives;
            extra += (passage.arrives.0 - now.0 - LINK.latency) as f64 / 2000.0;
        }
        assert!((extra / 30e6 - 1.0).abs() < 0.1, "{extra}");
    }

    #[test]
    fn a_varying_rate_has_its_mean_over_long_times() {
        let model = LinkModel { variation: 0.5, variation_period: 1_000_000_000, ..LINK };
        let (mut free, seconds) = (Time(0), 2000.0);
        let bytes = (20e6 / 8.0 * seconds) as usize;
        let mut sent = channel(model);
        let passage = sent.send(Time(0), bytes, &mut free);
        let expected = LinkModel::on_the_line(bytes) as f64 * 8e9 / 20e6;
        assert!(
            (passage.left.0 as f64 / expected - 1.0).abs() < 0.05,
            "{} {expected}",
            passage.left.0
        );
    }

    #[test]
    fn lost_packets_cost_round_trips() {
        let model = LinkModel { loss: 0.01, rate: f64::INFINITY, ..LINK };
        let (mut channel, mut free) = (channel(model), Time(0));
        let mut delays = [0u32; 5];
        for number in 0..2000 {
            let now = Time(number * 10_000_000_000);
            let arrives = channel.send(now, 100 * SEGMENT, &mut free).arrives;
            delays[((arrives.0 - now.0 - LINK.latency) / (2 * LINK.latency)) as usize] += 1;
        }
        // 102 packets get through at once with probability 0.99^102 = 0.36, with one retransmission
        // in all but 1%.
        assert!((660..780).contains(&delays[0]), "{delays:?}");
        assert!(delays[2] > 5 && delays[2] < 60, "{delays:?}");
        assert_eq!(tries(0.01, 1, 0.0), 1);
        assert_eq!(tries(0.5, 1, 0.6), 2);
    }
}
