//! Before the rounds: all members are linked, and agree on the round after which the run continues.
//!
//! * Each node has signed which checkpoints it has. Once it is linked with all its neighbours, it
//!   signs that. What nodes have signed goes to [all others](crate::cluster::statements).
//! * Once all nodes have done so, each decides from the [reports](super::reports) itself where the
//!   run continues. One whose checkpoints all have had does not begin at round 0 without them. Nor
//!   do the others, if they are no quorum.
//! * Upon frames of a neighbour that starts earlier: they are held until this node starts. Upon
//!   its restart or its leaving: they are dropped.
//! * Upon a link whose ends differ: once all neighbours differ from this node, it ends, because its
//!   own files may be the wrong ones.
//! * Upon a tick: tells what is new, begins if it can, and waits no longer than its limit. A node
//!   that has nobody to name then lets others decide, which have.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use litemap::LiteMap;

use crate::{
    cluster::{
        effect::{Effect, Facts},
        event::{Difference, Event, refusal},
        message::{Beginning, Saved, most_changes},
        part::Part,
        statements::Statements,
        waiting::limits::{ANSWER, OTHERS_DECIDE, WARNING_INTERVAL},
    },
    config::ConfigError,
    drive::{Absence, RunError, Waiting},
    units::{NodeId, Round},
};

/// How often a node says which links it lacks, at the most.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a node tells at once what is new, besides four times for each member.
const AT_ONCE: usize = 100;

/// A node before the run begins or continues.
pub(crate) struct Rendezvous {
    /// The neighbours whose link is not yet up.
    missing: BTreeSet<NodeId>,
    /// Since when the links of some of them are broken.
    broken: LiteMap<NodeId, Instant>,
    /// When this node may say again which links it lacks.
    next_links: Instant,
    /// How often it has told its neighbours what is new.
    told: usize,
    /// Frames of neighbours that have started earlier, in order.
    early: Vec<Event>,
    differences: LiteMap<NodeId, Difference>,
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
    /// Begins now. `saved` are this node's checkpoints; `limit` says how long it waits, and
    /// `may_continue` whether the run can continue without nodes.
    pub(crate) fn new(
        now: Instant,
        part: &Part<'_>,
        saved: &Saved,
        (limit, may_continue): (Option<Duration>, bool),
    ) -> Rendezvous {
        Rendezvous {
            missing: part.topology().neighbours(part.id).iter().copied().collect(),
            broken: LiteMap::new(),
            next_links: now + PAUSE,
            told: 0,
            early: Vec::new(),
            differences: LiteMap::new(),
            before: LiteMap::new(),
            agrees: false,
            started: now,
            next_warning: now + WARNING_INTERVAL,
            limit,
            may_continue,
            newest: saved.kept.last().map_or(0, |newest| newest.rounds),
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
        (now, event): (Instant, Event),
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        match event {
            Event::Up(peer) | Event::Back { peer, .. } => self.up(part, peer, out),
            Event::Lost { peer, reason } => {
                out.push(Effect::Warn(format!(
                    "the link to {} broke before the run began: {reason}; waiting for it",
                    part.name(peer)
                )));
                self.down(now, peer);
                out.push(Effect::LinkLost { peer: part.number(peer), reason });
            }
            Event::Restarted { peer, .. } => self.forget(peer),
            Event::Left { peer, cause } => self.left(now, part, (peer, cause.text), out),
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
            Event::Rival { peer, text } => return Err(part.rival(peer, &text)),
            // A member chooses members again; others visit, and will see the run.
            Event::OtherMembership { peer, .. }
                if self.may_continue && part.is_member_neighbour(peer) =>
            {
                return Err(RunError::Absent(Absence::default()));
            }
            // Before the run a goodbye means no more than the loss of the link, which follows.
            Event::OtherMembership { .. }
            | Event::Goodbye(_)
            | Event::Chooses { .. }
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

    fn down(&mut self, now: Instant, peer: NodeId) {
        if self.missing.insert(peer) {
            self.broken.insert(peer, now);
        }
    }

    fn up(&mut self, part: &Part<'_>, peer: NodeId, out: &mut Vec<Effect>) {
        self.agrees = true;
        self.differences.remove(&peer);
        self.before.remove(&peer);
        self.missing.remove(&peer);
        self.broken.remove(&peer);
        let links = part.topology().neighbours(part.id).len();
        let up = links - self.missing.len();
        out.push(Effect::Info(format!("linked with {} ({up} of {links})", part.name(peer))));
        out.push(Effect::Linked { peer: part.number(peer), up, links });
    }

    fn left(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        (peer, why): (NodeId, String),
        out: &mut Vec<Effect>,
    ) {
        let name = part.name(peer);
        let text = format!("node {name} left before the run began: {why}; waiting for it");
        out.push(Effect::Warn(text));
        self.down(now, peer);
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
        (part, statements): (&Part<'_>, &mut Statements),
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Result<Option<(Beginning, Vec<Event>)>, RunError> {
        let (is_late, topology) = (now >= self.next_links, part.topology());
        if is_late {
            self.next_links = now + PAUSE;
        }
        statements.link(&self.missing, is_late);
        // At once, so that a run begins soon; but a neighbour must not keep all busy.
        let told = match self.told < AT_ONCE + 4 * topology.nodes() {
            true => statements.tell_now(),
            false => statements.tell(now),
        };
        self.told += usize::from(told.is_some());
        out.extend(told.map(Effect::Tell));
        let is_due = now >= self.next_warning;
        let gathered = statements.gathered(topology).filter(|_| self.missing.is_empty());
        let decided = gathered.map(|all| (all.decide(part), all.holders()));
        if let Some((at, holders)) = decided {
            let Some(problem) = self.problem(part, &at, &holders) else {
                return Ok(Some(self.begins(at, out)));
            };
            // Nodes that return may have the checkpoint.
            let wait = Duration::from_secs_f64(part.whole.experiment.absence.wait_s);
            if !self.may_continue || now >= self.started + wait {
                return Err(RunError::Setup(ConfigError::at("checkpoints", problem)));
            }
            if is_due {
                self.next_warning = now + WARNING_INTERVAL;
                out.push(Effect::Warn(format!("checkpoints: {problem}")));
            }
            return Ok(None);
        }
        let patience = Duration::from_secs_f64(part.whole.experiment.run.patience_s);
        let over = self.limit.and_then(|limit| now.checked_duration_since(self.started + limit));
        let most = match self.limit {
            Some(limit) if over.is_some() => ANSWER.min(limit / 2).max(2 * PAUSE),
            _ => ANSWER.max(patience / 2),
        };
        let silent = statements.lacking(now, topology, &self.missing, most);
        if let Some(since) = over {
            let is_last = since >= OTHERS_DECIDE;
            let nodes = self.to_name(now, is_last, (&*statements, &silent), facts);
            if is_last || !nodes.is_empty() || facts.host.is_some() {
                return Err(self.late(now, (part, statements), nodes, facts));
            }
        } else if self.may_continue && !silent.is_empty() {
            let (names, seconds) = (part.names(&silent), most.as_secs_f64());
            out.push(Effect::Warn(format!(
                "not signed for {seconds:.0} s that they are linked: {names}"
            )));
            return Err(RunError::Absent(Absence { late: silent, ..Absence::default() }));
        }
        if is_due {
            self.next_warning = now + WARNING_INTERVAL;
            let text = self.waits((part, statements), facts);
            out.push(Effect::Warn(text.clone()));
            let peers = facts.missing.iter().map(|(peer, _)| part.number(*peer)).collect();
            out.push(Effect::Waits(Waiting { peers, text }));
        }
        Ok(None)
    }

    fn begins(&mut self, at: Beginning, out: &mut Vec<Effect>) -> (Beginning, Vec<Event>) {
        let (changes, most) = (at.history.len(), most_changes(at.attempts.len()));
        if changes >= most.max(1) {
            out.push(Effect::Warn(format!(
                "the members have changed {changes} times: the history of this run has no room \
                 for more, and each further change replaces the last one"
            )));
        }
        (at, std::mem::take(&mut self.early))
    }

    /// Why this node does not begin there, if it does not. A node with a checkpoint that all have
    /// had does not begin at round 0. If fewer nodes than a quorum are left, those do not either.
    fn problem(&self, part: &Part<'_>, at: &Beginning, holders: &[NodeId]) -> Option<String> {
        let quorum = part.whole.experiment.absence.quorum_of(part.whole.topology.nodes());
        let is_quorum = part.topology().nodes() - holders.len() >= quorum;
        let is_lost = at.rounds == 0 && !holders.is_empty();
        (is_lost && (!is_quorum || holders.contains(&part.id))).then(|| {
            format!(
                "those of {} stay as they are: fewer than {quorum} nodes report the same \
                 checkpoint, so the run would begin at round 0 without them; give the other nodes \
                 their files again, or start all nodes with --fresh",
                part.names(holders)
            )
        })
    }

    /// The neighbours that this node names when its time is over: those whose links are missing,
    /// those that are linked and do not say so, or else those that have taken it back. A link that
    /// has just broken may be that of a neighbour whose time was over first.
    fn to_name(
        &self,
        now: Instant,
        is_last: bool,
        (statements, silent): (&Statements, &[NodeId]),
        facts: &Facts,
    ) -> Vec<NodeId> {
        let has_long = |peer: &NodeId| {
            is_last || self.broken.get(peer).is_none_or(|since| now >= *since + OTHERS_DECIDE)
        };
        let missing = facts.missing.iter().map(|(peer, _)| *peer).filter(has_long);
        let nodes: Vec<NodeId> = missing.chain(silent.iter().copied()).collect();
        if nodes.is_empty() { statements.took_back() } else { nodes }
    }

    /// Why this node waits no longer for these. Some may be linked.
    fn late(
        &self,
        now: Instant,
        (part, statements): (&Part<'_>, &Statements),
        nodes: Vec<NodeId>,
        facts: &Facts,
    ) -> RunError {
        let is_file = |difference: &Difference| matches!(difference, Difference::Files(_));
        if !self.agrees && self.differences.values().any(is_file) {
            return refusal(&self.differences);
        }
        let seconds = (now - self.started).as_secs_f64().round();
        let mut text = format!("after {seconds} s {}", self.waits((part, statements), facts));
        let linked = nodes.iter().filter(|node| !self.missing.contains(*node)).copied();
        let linked: Vec<NodeId> = linked.collect();
        if !linked.is_empty() {
            text +=
                &format!("; not signed all the time that they are linked: {}", part.names(&linked));
        }
        if facts.host.is_some() {
            return RunError::Host(text);
        }
        RunError::Deadline { nodes, text }
    }

    /// What this node waits for, in words.
    fn waits(&self, (part, statements): (&Part<'_>, &Statements), facts: &Facts) -> String {
        let name = part.name(part.id);
        let host = facts.host.as_ref().map(|trouble| format!("; {trouble}")).unwrap_or_default();
        match self.missing.is_empty() {
            false => format!("node {name} waits for {}{host}", self.troubles(part, facts)),
            true => {
                let others = others(part, statements);
                format!("node {name} is linked, the run has not started: {others}{host}")
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

/// What other nodes wait for, as far as they have said so.
fn others(part: &Part<'_>, statements: &Statements) -> String {
    let all = || (0..part.topology().nodes()).map(NodeId::from);
    let waits = all().find_map(|node| {
        let links = statements.links_of(node)?;
        let peers = part.topology().neighbours(node).iter().zip(&links.attempts);
        let missing = peers.filter(|(_, attempt)| attempt.is_none()).map(|(peer, _)| *peer);
        let missing: Vec<NodeId> = missing.collect();
        let names = part.names(&missing);
        (!missing.is_empty()).then(|| format!("node {} waits for {names}", part.name(node)))
    });
    let is_silent = |node: &NodeId| statements.links_of(*node).is_none();
    let silent: Vec<NodeId> = all().filter(is_silent).collect();
    waits.unwrap_or_else(|| match silent.is_empty() {
        true => "the missing links of other nodes are not known yet".into(),
        false => format!("not heard of yet: {}", part.names(&silent)),
    })
}
