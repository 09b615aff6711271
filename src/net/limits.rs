//! How long a node and its links wait.

use std::time::Duration;

use crate::experiment::Experiment;

/// Time limits of a link.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For streams and hellos, once connected.
    pub handshake: Duration,
    /// Between two heartbeats; a link breaks after three without a byte.
    pub heartbeat: Duration,
    /// For the neighbours' goodbyes, once this node has finished.
    pub goodbye: Duration,
    /// For a link that broke during the run to come back; `None` for ever.
    pub absence: Option<Duration>,
}

impl Deadlines {
    /// The time limits of an experiment's links.
    pub fn of(experiment: &Experiment) -> Deadlines {
        Deadlines { absence: experiment.absence.deadline(), ..Deadlines::default() }
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            handshake: Duration::from_secs(10),
            heartbeat: Duration::from_secs(5),
            goodbye: Duration::from_secs(30),
            absence: Some(Duration::from_secs(600)),
        }
    }
}

/// How long a node waits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until all nodes are linked.
    pub connect: Duration,
    /// For any progress at all.
    pub patience: Duration,
    /// While another node is known to compute.
    pub work: Duration,
    /// While another node is known to wait for a lost link.
    pub absence: Duration,
}

impl Limits {
    /// The limits of the experiment.
    pub fn of(experiment: &Experiment) -> Limits {
        let run = &experiment.run;
        let [connect, patience, work] =
            [run.connect_s, run.patience_s, run.work_s].map(Duration::from_secs_f64);
        let absence = experiment.absence.deadline().unwrap_or(Duration::MAX);
        Limits { connect, patience, work, absence }
    }
}
