//! Watches a run with all nodes in this process: consensus distance, loss and accuracy of the mean.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Whole, directory::metrics::Metric};
use crate::{
    drive::{Elapsed, Observer},
    gossip::{RoundDone, Traffic},
    units::{NodeId, Round, Time},
    vector,
};

/// The figures of a progress display.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Rounds that every node has done that takes part.
    pub rounds: u64,
    /// In one process, the mean over all nodes of the loss over their batches of the last round; in
    /// a deployment, the mean over the batches since the last record.
    pub loss: f64,
    /// (1/n) sum |x_i - mean|^2 at the last evaluation.
    pub consensus: Option<f64>,
    /// Accuracy of the mean model at the last evaluation.
    pub accuracy: Option<f64>,
    /// Payload bytes sent by all nodes.
    pub payload: u64,
    /// The time at which the last of these rounds ended: virtual time in the simulator.
    pub time: Time,
}

/// All nodes' models at one evaluation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Rounds that all nodes had done.
    pub rounds: u64,
    /// Seconds from the start until the last node had done them; virtual time in the simulator.
    pub time_s: f64,
    /// The mean time that nodes had spent on gradients by then.
    pub computing_s: f64,
    /// f at the mean of the models of all nodes that take part.
    pub train_loss: Option<f64>,
    /// The mean model's accuracy on the test rows.
    pub accuracy_of_mean: Option<f64>,
    /// The accuracy of each node's own model on its test rows; empty if there are none.
    pub accuracies: Vec<f64>,
    /// (1/n) sum |x_i - mean|^2.
    pub consensus: f64,
    /// The bytes that all nodes have sent, also those that do not take part now.
    pub traffic: Traffic,
}

/// The reports of a round so far.
#[derive(Default)]
struct Reports {
    /// Over the batches of each node.
    losses: BTreeMap<NodeId, f64>,
    /// Those with a model, by node.
    models: BTreeMap<NodeId, (Elapsed, RoundDone)>,
}

/// Collects rounds of all nodes and evaluates the mean in rounds with an evaluation.
pub struct Watch<'a> {
    whole: Arc<Whole>,
    /// Rounds done and traffic of each node.
    latest: Vec<(u64, Traffic)>,
    /// The nodes that have resumed from a checkpoint, until all members have done a round again.
    resumed: BTreeSet<NodeId>,
    /// Of rounds that wait for other nodes.
    reports: BTreeMap<Round, Reports>,
    progress: Progress,
    on_metric: Box<dyn FnMut(&Metric) + 'a>,
    on_progress: Box<dyn FnMut(&Progress) + 'a>,
    on_snapshot: Box<dyn FnMut(&Snapshot) + 'a>,
    stop: Box<dyn FnMut() -> bool + 'a>,
}

impl<'a> Watch<'a> {
    /// Watches a run; metrics are sorted by rounds, then nodes.
    pub fn new(
        whole: Arc<Whole>,
        on_metric: impl FnMut(&Metric) + 'a,
        on_progress: impl FnMut(&Progress) + 'a,
    ) -> Watch<'a> {
        let latest = vec![(0, Traffic::default()); whole.shards.len()];
        Watch {
            whole,
            latest,
            resumed: BTreeSet::new(),
            reports: BTreeMap::new(),
            progress: Progress::default(),
            on_metric: Box::new(on_metric),
            on_progress: Box::new(on_progress),
            on_snapshot: Box::new(|_| ()),
            stop: Box::new(|| false),
        }
    }

    /// Calls `stop` after every round: whether the user has interrupted the run.
    #[must_use]
    pub fn stopping(mut self, stop: impl FnMut() -> bool + 'a) -> Watch<'a> {
        self.stop = Box::new(stop);
        self
    }

    /// Calls `see` with every complete evaluation.
    #[must_use]
    pub fn seeing(mut self, see: impl FnMut(&Snapshot) + 'a) -> Watch<'a> {
        self.on_snapshot = Box::new(see);
        self
    }

    /// A node continues after this many rounds. Returns whether it is the first: all nodes continue
    /// after the same round.
    pub fn resumes(&mut self, node: NodeId, rounds: Round) -> bool {
        let first = self.resumed.is_empty() || self.resumed.contains(&node);
        if first {
            self.resumed.clear();
            self.reports.clear();
            self.latest.iter_mut().for_each(|latest| latest.0 = rounds.0);
            self.progress.rounds = rounds.0;
        }
        self.resumed.insert(node);
        self.latest[node.index()].0 = rounds.0;
        first
    }

    /// The bytes that each node has sent, as far as it has reported them.
    pub fn sent(&self) -> Vec<Traffic> {
        self.latest.iter().map(|(_, traffic)| *traffic).collect()
    }

    fn evaluate(&mut self, round: Round, now: Time, all: &BTreeMap<NodeId, (Elapsed, RoundDone)>) {
        let models =
            all.iter().filter_map(|(node, (_, done))| Some((*node, done.model.as_deref()?)));
        let models: Vec<(NodeId, &[f32])> = models.collect();
        let mean = self.whole.design.mean_of(round, &models);
        let away = models.iter().map(|(_, x)| vector::distance_squared(x, &mean));
        let consensus = away.sum::<f64>() / models.len() as f64;
        let train_loss = self.whole.train_loss(&mean);
        let accuracy = self.whole.score(&mean).and_then(|score| score.accuracy());
        self.progress.consensus = Some(consensus);
        self.progress.accuracy = accuracy;
        let mut snapshot = Snapshot {
            rounds: round.0 + 1,
            time_s: now.seconds(),
            computing_s: 0.0,
            train_loss,
            accuracy_of_mean: accuracy,
            accuracies: Vec::new(),
            consensus,
            traffic: Traffic::default(),
        };
        let away = |(node, _): &(usize, _)| !all.contains_key(&NodeId::from(*node));
        let away = self.latest.iter().enumerate().filter(away).map(|(_, (_, traffic))| traffic);
        for traffic in away.chain(all.values().map(|(_, done)| &done.traffic)) {
            snapshot.traffic.payload += traffic.payload;
            snapshot.traffic.wire += traffic.wire;
            snapshot.traffic.dense += traffic.dense;
        }
        for (&node, (elapsed, done)) in all {
            let score = done.model.as_ref().and_then(|model| self.whole.score_at(node, model));
            (self.on_metric)(&Metric {
                round: round.0 + 1,
                node: node.0,
                time_s: now.seconds(),
                computing_s: elapsed.computing.seconds(),
                train_loss,
                test_loss: score.map(|score| score.loss),
                test_accuracy: score.and_then(|score| score.accuracy()),
                consensus: Some(consensus),
                bytes_payload: done.traffic.payload,
                bytes_wire: done.traffic.wire,
                bytes_dense: done.traffic.dense,
                measures: Default::default(),
            });
            snapshot.accuracies.extend(score.and_then(|score| score.accuracy()));
            snapshot.computing_s += elapsed.computing.seconds() / all.len() as f64;
        }
        (self.on_snapshot)(&snapshot);
    }
}

impl Observer for Watch<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        let (round, members, now) = (done.round, done.members, elapsed.time);
        self.latest[node.index()] = (round.0 + 1, done.traffic);
        let reports = self.reports.entry(round).or_default();
        reports.losses.insert(node, done.loss);
        if done.model.is_some() {
            reports.models.insert(node, (elapsed, done));
        }
        if reports.losses.len() < members {
            return;
        }
        self.resumed.clear();
        let reports = self.reports.remove(&round).unwrap_or_default();
        if !reports.models.is_empty() {
            self.evaluate(round, now, &reports.models);
        }
        self.progress.rounds = round.0 + 1;
        self.progress.time = now;
        self.progress.loss = reports.losses.values().sum::<f64>() / members as f64;
        self.progress.payload = self.latest.iter().map(|(_, traffic)| traffic.payload).sum();
        (self.on_progress)(&self.progress);
    }

    fn stop_after(&mut self) -> Option<Round> {
        // No node is further than the round after the furthest completed one.
        (self.stop)()
            .then(|| Round(self.latest.iter().map(|(rounds, ..)| *rounds).max().unwrap_or(0) + 1))
    }
}
