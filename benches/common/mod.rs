//! The common part of the round benches: supplied gradients, a clock that watches rounds, medians.
#![allow(dead_code, reason = "each bench uses its own part of this")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gradvine::{
    drive::{Conclusion, Elapsed, Learner, Observer},
    gossip::RoundDone,
    rng::{Purpose, Stream},
    run::record::Closing,
    units::{NodeId, Round},
};

/// Rounds that are not measured: buffers are allocated, windows grow, and the norms of updates are
/// taken, which nodes do in the first 16 rounds only.
pub(crate) const WARM: usize = 16;

/// Supplies the same gradient in every round: a stretch of numbers, repeated, so that a gradient
/// costs only one pass of writing.
pub(crate) struct Supplied(Arc<Vec<f32>>);

impl Supplied {
    /// Another stretch for each node.
    pub(crate) fn new(node: usize) -> Supplied {
        Supplied(stretch(node))
    }
}

impl Learner for Supplied {
    fn compute(&mut self, _round: Round, _x: &[f32], update: &mut [f32]) -> f64 {
        for part in update.chunks_mut(self.0.len()) {
            part.copy_from_slice(&self.0[..part.len()]);
        }
        0.0
    }

    fn step(&self, _round: Round) -> f32 {
        1.0
    }

    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8> {
        Closing {
            rounds: conclusion.rounds.0,
            missed: Vec::new(),
            restarts: 0,
            digest: "0".repeat(64),
            mean: Some(String::new()),
            rows: 1,
            classes: Vec::new(),
            train_loss_of_mean: 0.0,
            distance_squared: 0.0,
            test: None,
            test_of_mean: None,
            counts: None,
            counts_of_mean: None,
            targets: Vec::new(),
            arithmetic: gradvine::run::arithmetic_name(),
            bytes: Closing::traffic(conclusion.traffic),
            time_s: 0.0,
            computing_s: 0.0,
            links: Vec::new(),
            measures: Default::default(),
            measures_of_mean: Default::default(),
        }
        .to_bytes()
    }
}

/// A few thousand small normal numbers.
fn stretch(node: usize) -> Arc<Vec<f32>> {
    let mut dice = Stream::new(node as u64, Purpose::Test).sequence();
    Arc::new((0..4_093).map(|_| 1e-3 * dice.normal() as f32).collect())
}

/// A vector made of one stretch.
pub(crate) fn gradient(node: usize, len: usize) -> Vec<f32> {
    stretch(node).iter().copied().cycle().take(len).collect()
}

/// Records when the last node has finished each round.
pub(crate) struct Clock {
    nodes: usize,
    done: Vec<(usize, Instant, Duration)>,
}

impl Clock {
    pub(crate) fn new(nodes: usize, rounds: u64) -> Clock {
        Clock { nodes, done: vec![(0, Instant::now(), Duration::ZERO); rounds as usize] }
    }

    /// Wall and CPU seconds of one round: the mean over all but the first [`WARM`].
    pub(crate) fn round(&self) -> (f64, f64) {
        let (first, last) = (self.done[WARM - 1], self.done[self.done.len() - 1]);
        assert!(
            self.done.iter().all(|(nodes, ..)| *nodes == self.nodes),
            "every node did every round"
        );
        let rounds = (self.done.len() - WARM) as f64;
        ((last.1 - first.1).as_secs_f64() / rounds, (last.2 - first.2).as_secs_f64() / rounds)
    }
}

impl Observer for Clock {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, done: RoundDone) {
        let entry = &mut self.done[done.round.0 as usize];
        *entry = (entry.0 + 1, Instant::now(), cpu());
    }
}

/// CPU time of this process so far, user and system, all threads; zero if the system does not
/// report it.
pub(crate) fn cpu() -> Duration {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Duration::ZERO };
    // After the name in parentheses: state is field 3, utime and stime are 14 and 15, in ticks of
    // 10 ms.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// The peak memory of this process, in bytes; zero if the system does not report it.
pub(crate) fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Seconds of the fastest of this many calls.
pub(crate) fn best(times: usize, mut work: impl FnMut()) -> f64 {
    let one = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..times).map(|_| one(&mut work)).fold(f64::INFINITY, f64::min)
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// GB/s of a plain copy of this many floats, counted once.
pub(crate) fn copy_speed(len: usize) -> f64 {
    let from = gradient(0, len);
    let mut to = vec![0.0f32; len];
    let seconds = best(9, || {
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
    });
    4.0 * len as f64 / seconds / 1e9
}
