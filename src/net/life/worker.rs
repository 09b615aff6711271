//! One attempt of a node at a run: from the first links to the results.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use super::{
    agreement::{
        confirm::{Again, Confirmation},
        restore::{put_back, report_return, save_newest, saved},
        saver::Saver,
        start::{Started, Starter},
    },
    event::Event,
    limits::{Limits, RESULTS_LINGER},
    links::Links,
    observer::NodeObserver,
    rounds::{companion::Owned, driver::Driver, node_state::NodeState, pace::Meter},
};
use crate::{
    drive::{Absence, Ended, Membership, RunError, describe_panic},
    gossip::{Failure, NodeConfig},
    mixing::Topology,
    run::Checkpoints,
    units::{NodeId, Round},
};

/// How long programs that are started again have for their links, if lost links have less.
const RELINK: Duration = Duration::from_secs(60);

/// One node on its thread.
pub(crate) struct Worker {
    pub id: NodeId,
    pub topology: Arc<Topology>,
    /// Its links, with their events.
    pub links: Box<dyn Links>,
    /// Sender of the worker's own events: gradients from another thread.
    pub own: Sender<Event>,
    pub limits: Limits,
}

/// What a node begins with.
pub(crate) struct Start {
    pub config: NodeConfig,
    /// The members of the run: the topology is that of their links.
    pub membership: Membership,
    pub learner: Owned,
    /// Its checkpoints, if it writes any.
    pub checkpoints: Option<Checkpoints>,
    /// Whether it has been part of this run before.
    pub took_part: bool,
    /// Whether it leaves only when all nodes have written their results.
    pub confirms: bool,
    /// The results of an earlier attempt, whose other nodes may not all have theirs.
    pub results: Option<Ended>,
}

/// Why an attempt of a node has stopped.
pub(crate) enum Stopped {
    Failed(RunError),
    /// The program of a neighbour was started again: this node must go back to a checkpoint. Its
    /// neighbours got no reason. The results are there if it had written them.
    Restarted(NodeId, Option<Box<Ended>>),
    /// The members must be chosen again. The results are there if the node had written them.
    Absent(Absence, Option<Box<Ended>>),
    /// A neighbour broke the protocol, and the run can continue without it.
    Broken(NodeId, Failure),
    /// A neighbour carries nothing on, and the run can continue without it. The text says how long.
    Silent(NodeId, String),
}

impl From<RunError> for Stopped {
    fn from(error: RunError) -> Stopped {
        match error {
            RunError::Absent(peers) => Stopped::Absent(peers, None),
            error => Stopped::Failed(error),
        }
    }
}

impl Worker {
    /// Runs a node to its end and says goodbye. `observer` receives every round and the models to
    /// save; `stop` is called again and again and returns whether to leave now.
    ///
    /// # Errors
    /// If a link breaks, a deadline passes, the node fails, or `stop` returns true; the neighbours
    /// get the reason.
    #[expect(clippy::too_many_lines)]
    pub(crate) fn run(
        self,
        start: Start,
        observer: &mut dyn NodeObserver,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, Stopped> {
        let Worker { id, topology, links, own, limits } = self;
        let Start { config, membership, learner, checkpoints, took_part, confirms, results } =
            start;
        let rounds_in_all = config.rounds;
        let (saved, mut newest) = match saved(id, &checkpoints) {
            Ok(saved) => saved,
            Err(error) => {
                links.finish(Some(error.cause(id, &topology)), &mut || false);
                return Err(error.into());
            }
        };
        // Nodes that were part of the run may take as long to return as lost links.
        let is_over =
            results.is_some() || checkpoints.as_ref().is_some_and(|kept| kept.results.is_some());
        let took_part =
            took_part || checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.used);
        let limit = match took_part {
            _ if is_over => Some(RESULTS_LINGER),
            true if limits.may_continue => limits.absence,
            true => limits.absence.map(|absence| absence.max(limits.connect.min(RELINK))),
            false => Some(limits.start.unwrap_or(limits.connect)),
        };
        let start = limits.start.is_some();
        let started = Starter {
            id,
            topology: &topology,
            membership: &membership,
            links: &*links,
            observer,
            stop,
            limit,
            may_continue: limits.may_continue,
            saved: &saved,
            rounds: rounds_in_all,
        }
        .gather();
        let started = started.and_then(|started| {
            Ok((put_back(id, &started.at, &checkpoints, &mut newest, &learner)?, started))
        });
        let (restored, Started { at, early }) = match started {
            Ok(started) => started,
            Err(RunError::Absent(peers)) => {
                return Err(Stopped::Absent(peers, results.map(Box::new)));
            }
            // The run can continue without the nodes that are absent.
            Err(RunError::Deadline { nodes: late, text })
                if limits.may_continue && (took_part || start || is_over) =>
            {
                tracing::warn!("{text}");
                let absence = Absence { late, ..Absence::default() };
                return Err(Stopped::Absent(absence, results.map(Box::new)));
            }
            // It said what no node of this run can say: the run can continue without it.
            Err(RunError::Failed { ref failure, .. })
                if limits.may_continue && failure.culprit().is_some() =>
            {
                let peer = failure.culprit().expect("looked at");
                return Err(Stopped::Broken(peer, failure.clone()));
            }
            Err(error) => {
                save_newest(newest, observer);
                links.finish(Some(error.cause(id, &topology)), &mut || false);
                return match (error, results) {
                    // The other nodes have left: all of them have their results.
                    (RunError::Deadline { .. }, Some(results)) => Ok(results),
                    (error, _) => Err(error.into()),
                };
            }
        };
        // It is as large as the state of the rule.
        drop(newest);
        if took_part || at.rounds > 0 {
            observer.resumes(Round(at.rounds));
        }
        report_return(&at, &topology);
        let status = Arc::clone(links.status());
        let restarts = checkpoints.as_ref().map_or(0, |checkpoints| checkpoints.restarts);
        let saver = checkpoints.map(|checkpoints| {
            Saver::new(checkpoints, Arc::clone(&status), &topology, id, at.clone(), membership.id)
        });
        let mut state = NodeState::new(config, (&at, restored), learner, own, status);
        (state.history, state.restarts) = (at.history, restarts);
        let meter = Meter::new();
        let mut driver =
            Driver { id, topology: &topology, limits, links, state, saver, observer, stop, meter };
        // A panic in code of the program (evaluations, events): the neighbours get the reason and
        // the model is saved before it continues.
        let result = panic::catch_unwind(AssertUnwindSafe(|| driver.drive(early)));
        let (result, payload) = match result {
            Ok(result) => (result, None),
            Err(payload) => {
                let (round, reason) = (driver.state.node.round(), describe_panic(&*payload));
                let failure = Failure::Gradient { round, reason };
                (Err(RunError::Failed { node: id, failure }), Some(payload))
            }
        };
        if result.is_err() {
            driver.salvage();
        }
        let Driver { mut links, state, stop, saver, observer, .. } = driver;
        match result {
            Err(RunError::Restarted(peer)) => return Err(Stopped::Restarted(peer, None)),
            Err(RunError::Absent(mut absence)) => {
                // The choice of members awaits these nodes.
                absence.returned.extend(saver.iter().flat_map(Saver::returned));
                return Err(Stopped::Absent(absence, None));
            }
            Err(RunError::Failed { ref failure, .. }) if limits.may_continue => {
                if let Some(peer) = failure.culprit() {
                    return Err(Stopped::Broken(peer, failure.clone()));
                }
            }
            // One that this node awaits itself is left out. Of others their neighbours decide.
            Err(RunError::Deadline { ref nodes, ref text }) if limits.may_continue => {
                let awaits = state.node.waiting_for().map_or(Vec::new(), |(_, peers)| peers);
                return Err(match nodes.iter().find(|node| awaits.contains(node)) {
                    Some(peer) => Stopped::Silent(*peer, text.clone()),
                    None => Stopped::Absent(Absence::default(), None),
                });
            }
            _ => {}
        }
        let over = result.is_ok() && state.node.round().0 >= rounds_in_all;
        let mut result = result.map(|()| state.end());
        if let Ok(ended) = &mut result {
            observer.ended(ended);
            let Limits { patience, may_continue, .. } = limits;
            if confirms {
                let (topology, there) = (&topology, &*links);
                let waits = Confirmation { id, topology, links: there, patience, may_continue };
                match waits.wait(stop) {
                    None => {}
                    Some(Again::Restarted(peer)) => {
                        let results = Box::new(std::mem::take(ended));
                        return Err(Stopped::Restarted(peer, Some(results)));
                    }
                    Some(Again::Asked) => {
                        let error = RunError::Interrupted(Round(rounds_in_all));
                        links.finish(Some(error.cause(id, topology)), &mut || false);
                        return Err(error.into());
                    }
                    Some(Again::Absent(peers)) => {
                        let results = Box::new(std::mem::take(ended));
                        return Err(Stopped::Absent(peers, Some(results)));
                    }
                }
                links.set_over();
            }
        }
        let reason = result.as_ref().err().map(|error| {
            let cause = error.cause(id, &topology);
            tracing::debug!("{}", cause.text);
            cause
        });
        // From here on a node that was started again finds its results in its files.
        if let Some(saver) = saver.filter(|_| over) {
            saver.clear(confirms);
        }
        // A node that leaves early has its own, short limit.
        let early = reason.is_some();
        links.finish(reason, &mut || !early && stop());
        if let Some(payload) = payload {
            panic::resume_unwind(payload);
        }
        Ok(result?)
    }
}
