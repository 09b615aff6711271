//! Runs with faults, in virtual time: what a network does when programs are killed, links are cut
//! and disks are lost.
//!
//! Each machine performs the `cluster::Cluster` of a real node, with its learner and the files of
//! its checkpoints on a disk in memory. Links have the latency, rate and jitter of the experiment's
//! network; the frames on them are real. The ends of a link that is down try to connect every 300
//! ms; a handshake takes no time. A connection that carries nothing is given up after three
//! heartbeats. Not part of it: encryption, acknowledgements, frames in pieces, and signs of work,
//! which arrive at once.
//!
//! * `disk`: files in memory, and what is lost with the power.
//! * `schedule`: the faults, from a file or a seed.
//! * `history`: the changes of a real run's members as such a schedule.
//! * `world`: machines, time, and the faults as they come.
//! * `perform`: the effects of a node.
//! * `wire` and `wires`: connections, what they carry, how they break.

#[cfg(test)]
mod check;
mod disk;
mod history;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod liar;
mod machine;
mod perform;
#[cfg(test)]
mod returns;
mod schedule;
#[cfg(test)]
mod tests;
mod wire;
mod wires;
mod world;

use crate::{
    drive::{Ended, Observer, RunError},
    mixing::Topology,
    run::{Design, Summary, Whole},
    units::{NodeId, Time},
};

pub use history::repeat;
pub use schedule::{DiskAfter, Fault, Kind, When, faults_of, parse};

/// Something that happened in a run with faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// When.
    pub time: Time,
    /// At which node; `None` for the network.
    pub node: Option<NodeId>,
    /// What, in words.
    pub text: String,
}

/// How a run with faults went.
#[derive(Debug)]
#[non_exhaustive]
pub struct Story {
    /// What happened, in order.
    pub occurrences: Vec<Occurrence>,
    /// How each node ended: `None` with results or as no member, or its error in words.
    pub ended: Vec<Option<String>>,
    /// The nodes that still wait long after the last fault: then the run has no end.
    pub stuck: Vec<NodeId>,
    /// The results that most nodes have, of each of them; none if no node has results.
    pub results: Vec<Ended>,
    /// What identifies the mean that each node has on its disk; `None` if it has none.
    pub means: Vec<Option<u64>>,
    /// The time at which the last node ended.
    pub time: Time,
    /// How often a program was started again.
    pub restarts: u64,
    /// Rounds that nodes have done again after they went back to a checkpoint, over all nodes.
    pub repeated: u64,
}

impl Story {
    /// The summary of the run; `None` if no node has results.
    ///
    /// # Errors
    /// If the records of the nodes cannot be used.
    pub fn summary(&self, design: &Design) -> Result<Option<Summary>, RunError> {
        let made = self.results.first();
        let summary = made.map(|made| Summary::of_run(design, &made.records, &made.history));
        summary.transpose().map_err(|error| RunError::Stuck(error.to_string()))
    }

    /// Takes the results that most nodes have.
    ///
    /// # Errors
    /// Why no node has any.
    pub fn take_results(&mut self, topology: &Topology) -> Result<Vec<Ended>, RunError> {
        let name = |node: NodeId| topology.node(node).name.as_str();
        let waiting: Vec<&str> = self.stuck.iter().map(|node| name(*node)).collect();
        let errors = self.ended.iter().zip(0_u32..);
        let mut errors = errors.filter_map(|(error, node)| Some((error.as_ref()?, NodeId(node))));
        let why = match (self.results.is_empty(), waiting.is_empty(), errors.next()) {
            (false, ..) => return Ok(std::mem::take(&mut self.results)),
            (_, false, _) => {
                let names = waiting.join(", ");
                format!("long after the last fault these nodes still wait: {names}")
            }
            (_, _, Some((error, node))) => {
                format!("no node has ended with results; node {} {error}", name(node))
            }
            (_, _, None) => "no node has ended with results".into(),
        };
        Err(RunError::Stuck(why))
    }
}

/// Runs an experiment with these faults. `observer` sees rounds and models as that of a run without
/// faults; rounds that are done again, again.
///
/// # Errors
/// [`RunError::Interrupted`] if the observer ends it.
pub fn run(
    whole: &Whole,
    faults: &[Fault],
    observer: &mut dyn Observer,
) -> Result<Story, RunError> {
    world::World::new(whole, &whole.conditions, faults, observer).run()
}
