//! How long a node waits.

use std::time::Duration;

use crate::experiment::{Experiment, Policy};

/// The interval between two messages about waiting.
pub(crate) const WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// How long a linked neighbour has at least to sign its report, and that it is linked. It has half
/// of `run.patience_s` if that is longer: others may have begun, and wait no longer than that.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// How much longer a node waits that knows of no neighbour for which it does: the neighbours of the
/// one for whom all wait have waited as long, and decide.
pub(crate) const OTHERS_DECIDE: Duration = Duration::from_secs(2);

/// How long a node that was started again when it had its results looks for the others, which may
/// need it.
pub(crate) const RESULTS_LINGER: Duration = Duration::from_secs(10);

/// How long a node waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Until all nodes are linked.
    pub connect: Duration,
    /// For any progress at all.
    pub patience: Duration,
    /// While another node is known to compute.
    pub work: Duration,
    /// While another node is known to wait for a lost link; `None` for ever.
    pub absence: Option<Duration>,
    /// Whether the run continues without nodes that do not return.
    pub may_continue: bool,
    /// Until a run begins without some nodes, if it does.
    pub start: Option<Duration>,
}

impl Limits {
    /// The limits of the experiment.
    pub(crate) fn of(experiment: &Experiment) -> Limits {
        let run = &experiment.run;
        let [connect, patience, work] =
            [run.connect_s, run.patience_s, run.work_s].map(Duration::from_secs_f64);
        let start = experiment.run.start.within();
        let absence = experiment.absence.deadline();
        let may_continue = experiment.absence.policy == Policy::Continue;
        Limits { connect, patience, work, absence, may_continue, start }
    }
}
