//! Before the rounds: all members are linked, and agree on the round after which the run continues.
//!
//! * Upon a link that comes up or breaks, or a message of a neighbour: [`Gathering`] takes it.
//! * Upon frames of a neighbour that starts earlier: they are held until this node starts. Upon
//!   its restart or its leaving: they are dropped.
//! * Upon a link whose ends differ: once all neighbours differ from this node, it ends, because its
//!   own files may be the wrong ones.
//! * Upon a tick: says what is new to the parent and the children in the spanning tree, begins once
//!   the root says so, and waits no longer than its limit.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use litemap::LiteMap;

use super::gathering::{Agreed, Gathering};
use crate::{
    cluster::{
        effect::{Effect, Facts},
        event::{Difference, Event, refusal},
        members::keys::{Keys, OfMembers},
        message::{Saved, most_changes},
        part::Part,
        waiting::limits::WARNING_INTERVAL,
    },
    config::ConfigError,
    drive::{Absence, RunError, Waiting},
    gossip::Failure,
    units::{NodeId, Round},
};

/// A node before the run begins or continues.
pub(crate) struct Rendezvous {
    gathering: Gathering,
    /// Frames of neighbours that have started earlier, in order.
    early: Vec<Event>,
    differences: LiteMap<NodeId, Difference>,
    /// The neighbours that refuse this program, as another one has its key.
    refusing: BTreeSet<NodeId>,
    /// The last message of each neighbour that left: the first cause.
    before: LiteMap<NodeId, String>,
    /// Whether any neighbour has had the same files and program: then not only this node has them.
    agrees: bool,
    started: Instant,
    next_warning: Instant,
    /// How long to wait for the other nodes.
    limit: Option<Duration>,
    may_continue: bool,
    /// The rounds of this node's newest checkpoint.
    newest: u64,
}

impl Rendezvous {
    /// Begins now. `saved` are this node's checkpoints, which it reports in this attempt; `limit`
    /// says how long it waits, and `may_continue` whether the run can continue without nodes.
    pub(crate) fn new(
        now: Instant,
        part: &Part<'_>,
        keys: &Arc<dyn Keys>,
        (saved, attempt): (Saved, u64),
        (limit, may_continue): (Option<Duration>, bool),
    ) -> Rendezvous {
        let newest = saved.kept.last().map_or(0, |newest| newest.rounds);
        let experiment = &part.whole.experiment;
        let quorum = experiment.absence.quorum_of(part.whole.topology.nodes());
        let gathering = Gathering::new(
            (part.topology(), part.id),
            part.membership.clone(),
            (experiment.run.rounds, quorum),
            Arc::new(OfMembers::new(keys, part, Vec::new())),
            (saved, attempt),
        );
        Rendezvous {
            gathering,
            early: Vec::new(),
            differences: LiteMap::new(),
            refusing: BTreeSet::new(),
            before: LiteMap::new(),
            agrees: false,
            started: now,
            next_warning: now + WARNING_INTERVAL,
            limit,
            may_continue,
            newest,
        }
    }

    /// Upon the wish of the user: why this node ends.
    pub(crate) fn interrupted(&self) -> RunError {
        RunError::Interrupted(Round(self.newest))
    }

    /// Upon an event of the links.
    ///
    /// # Errors
    /// Why this node does not begin.
    pub(crate) fn event(
        &mut self,
        part: &Part<'_>,
        event: Event,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        match event {
            Event::Up(peer) | Event::Back { peer, .. } => self.up(part, peer, out),
            Event::Lost { peer, reason } => {
                out.push(Effect::Warn(format!(
                    "the link to {} broke before the run began: {reason}; waiting for it",
                    part.name(peer)
                )));
                self.gathering.down(peer);
                out.push(Effect::LinkLost { peer: part.number(peer), reason });
            }
            Event::Restarted { peer, .. } => self.forget(peer),
            Event::Left { peer, cause } => self.left(part, peer, cause.text, out),
            Event::Start { from, message } => {
                self.gathering.message(from, message).map_err(|reason| {
                    let failure = Failure::Peer { peer: from, reason };
                    RunError::Failed { node: part.id, failure }
                })?;
            }
            Event::Differs { peer, difference } => {
                self.before.insert(peer, difference.to_string());
                if !self.differences.contains_key(&peer) {
                    out.push(Effect::Warn(difference.to_string()));
                }
                self.differences.insert(peer, difference);
            }
            Event::Down { peer, reason } => {
                let name = part.name(peer);
                return Err(RunError::Network(format!("the link to {name} broke: {reason}")));
            }
            Event::Rival { peer, text } => return self.refused(part, peer, &text, out),
            // A member chooses members again; others visit, and will see the run.
            Event::OtherMembership { peer, .. }
                if self.may_continue && part.is_member_neighbour(peer) =>
            {
                return Err(RunError::Absent(Absence::default()));
            }
            // Before the run a goodbye means no more than the loss of the link, which follows.
            Event::OtherMembership { .. }
            | Event::Goodbye(_)
            | Event::Told { .. }
            | Event::Durable(_) => {}
            early @ (Event::Frame { .. }
            | Event::Piece { .. }
            | Event::Taken(_)
            | Event::Computed(_)) => self.early.push(early),
        }
        match !self.agrees && !self.differences.is_empty() && self.all_differ(part) {
            true => Err(refusal(&self.differences)),
            false => Ok(()),
        }
    }

    fn all_differ(&self, part: &Part<'_>) -> bool {
        self.differences.len() == part.topology().neighbours(part.id).len()
    }

    fn up(&mut self, part: &Part<'_>, peer: NodeId, out: &mut Vec<Effect>) {
        self.agrees = true;
        self.differences.remove(&peer);
        self.refusing.remove(&peer);
        self.before.remove(&peer);
        self.gathering.up(peer);
        let links = part.topology().neighbours(part.id).len();
        let up = links - self.gathering.missing();
        out.push(Effect::Info(format!("linked with {} ({up} of {links})", part.name(peer))));
        out.push(Effect::Linked { peer: part.number(peer), up, links });
    }

    /// Upon a neighbour that refuses this program, as another one has its key. One could say so
    /// falsely: this program ends if no neighbour is left that does not.
    fn refused(
        &mut self,
        part: &Part<'_>,
        peer: NodeId,
        text: &str,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        if self.refusing.insert(peer) {
            out.push(Effect::Warn(format!("node {} says: {text}", part.name(peer))));
        }
        self.before.insert(peer, text.to_string());
        match self.refusing.len() == part.topology().neighbours(part.id).len() {
            true => Err(part.rival(peer, text)),
            false => Ok(()),
        }
    }

    fn left(&mut self, part: &Part<'_>, peer: NodeId, why: String, out: &mut Vec<Effect>) {
        let name = part.name(peer);
        let text = format!("node {name} left before the run began: {why}; waiting for it");
        out.push(Effect::Warn(text));
        self.gathering.down(peer);
        out.push(Effect::LinkLost { peer: part.number(peer), reason: why.clone() });
        self.before.insert(peer, why);
        self.forget(peer);
    }

    /// Drops the frames of a neighbour whose program was started again or has left.
    fn forget(&mut self, peer: NodeId) {
        self.early.retain(|event| match event {
            Event::Frame { from, .. } | Event::Piece { from, .. } => *from != peer,
            Event::Taken(to) => *to != peer,
            _ => true,
        });
    }

    /// Upon a tick: where the run begins, with the frames that came before, if it begins now.
    ///
    /// # Errors
    /// Why this node waits no longer.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Result<Option<(Agreed, Vec<Event>)>, RunError> {
        let own = (self.gathering.missing() > 0).then(|| {
            format!("node {} waits for {}", part.name(part.id), self.troubles(part, facts))
        });
        let is_due = now >= self.next_warning;
        let messages = self.gathering.new_messages(own.as_deref(), is_due);
        out.extend(messages.into_iter().map(|(to, message)| Effect::SendStart { to, message }));
        if let Some(agreed) = self.gathering.begins().cloned() {
            let (changes, most) = (agreed.at.history.len(), most_changes(agreed.at.attempts.len()));
            if changes >= most.max(1) {
                out.push(Effect::Warn(format!(
                    "the members have changed {changes} times: the history of this run has no \
                     room for more, and each further change replaces the last one"
                )));
            }
            return Ok(Some((agreed, std::mem::take(&mut self.early))));
        }
        if let Some(problem) = self.gathering.problem() {
            // Nodes that return may have the checkpoint.
            let wait = Duration::from_secs_f64(part.whole.experiment.absence.wait_s);
            if !self.may_continue || now >= self.started + wait {
                return Err(RunError::Setup(ConfigError::at("checkpoints", problem.to_string())));
            }
            if is_due {
                self.next_warning = now + WARNING_INTERVAL;
                out.push(Effect::Warn(format!("checkpoints: {problem}")));
            }
            return Ok(None);
        }
        if self.limit.is_some_and(|limit| now >= self.started + limit) {
            return Err(self.late(now, part, own.as_deref(), facts));
        }
        if is_due {
            self.next_warning = now + WARNING_INTERVAL;
            let text = self.waits(part, own.as_deref(), facts);
            out.push(Effect::Warn(text.clone()));
            let peers = facts.missing.iter().map(|(peer, _)| part.number(*peer)).collect();
            out.push(Effect::Waits(Waiting { peers, text }));
        }
        Ok(None)
    }

    /// Why this node waits no longer.
    fn late(&self, now: Instant, part: &Part<'_>, own: Option<&str>, facts: &Facts) -> RunError {
        let is_file = |difference: &Difference| matches!(difference, Difference::Files(_));
        if !self.agrees && self.differences.values().any(is_file) {
            return refusal(&self.differences);
        }
        let seconds = (now - self.started).as_secs_f64().round();
        let text = format!("after {seconds} s {}", self.waits(part, own, facts));
        match facts.host {
            Some(_) => RunError::Host(text),
            None => {
                let nodes = facts.missing.iter().map(|(peer, _)| *peer).collect();
                RunError::Deadline { nodes, text }
            }
        }
    }

    /// What this node waits for, in words.
    fn waits(&self, part: &Part<'_>, own: Option<&str>, facts: &Facts) -> String {
        let (name, reason) = (part.name(part.id), self.gathering.reason(own));
        let host = facts.host.as_ref().map(|trouble| format!("; {trouble}")).unwrap_or_default();
        match own {
            Some(_) => format!("{reason}{host}"),
            None => {
                format!("node {name} is linked, the run has not started: {reason}{host}")
            }
        }
    }

    /// The missing neighbours and the causes, as far as they are known.
    fn troubles(&self, part: &Part<'_>, facts: &Facts) -> String {
        let one = |(node, trouble): &(NodeId, String)| {
            let said = self.before.get(node).filter(|said| !trouble.contains(*said));
            let said = said.map_or_else(String::new, |said| format!("; before that: {said}"));
            format!("{} ({trouble}{said})", part.name(*node))
        };
        facts.missing.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
