//! Links this node with all neighbours that are present, and chooses with them who continues.
//!
//! * Upon a link that comes up: its node is awaited no longer, and is told all.
//! * Upon a link that breaks: its node is awaited for `absence.deadline_s`; one that has just
//!   returned, for a while at least. Upon one that leaves, or whose link breaks again and again: it
//!   is not awaited.
//! * Upon the news of a neighbour: [`Assembly`] takes them.
//! * Upon a tick: [`Assembly::step`] says what is next. A membership is recorded before any node
//!   hears of it. A node that continues waits a moment, so that its neighbours know of it.
//! * After the end of a run without some nodes: its members tell those that return.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use litemap::LiteMap;

use super::{
    assembly::{Assembly, Chooser, News, NextStep},
    keys::Keys,
};
use crate::{
    cluster::{
        effect::{Effect, Facts},
        event::Event,
        part::Part,
        waiting::limits::{RESULTS_LINGER, WARNING_INTERVAL},
    },
    drive::{Absence, Membership, RunError, Waiting},
    gossip::Failure,
    units::{NodeId, Round},
};

/// How long a node waits until its neighbours know that it ends, or that a quorum continues. Until
/// a quorum does, it waits for its neighbours as long as they can await a link of others.
const LEAVING: Duration = Duration::from_secs(2);

/// How often a node tells its neighbours what it knows, at the most: one that says something new
/// all the time must not keep all others busy.
const PAUSE: Duration = Duration::from_millis(100);

/// A node whose link breaks so often in one choice is not awaited: it must not keep the others from
/// agreeing. Each denial counts, too. There is one for each break: the end that sees a link come up
/// first is denied for a moment.
const MOST_BREAKS: u32 = 20;

/// How long a node that has returned, and is missing once more, is awaited at least: it may be the
/// one that dials, after a pause.
const RETURN_GRACE_MIN: Duration = Duration::from_secs(5);
/// How long such a node is awaited at most.
const RETURN_GRACE_MAX: Duration = Duration::from_secs(30);

/// How much longer than the deadline a neighbour is awaited that was not missing before. It may
/// have waited for others for the whole deadline itself, in a rendezvous. Only then does it join
/// the choice: it opens its links again, and dials after a pause.
const ARRIVAL_GRACE: Duration = Duration::from_secs(5);

/// How much longer than its ends a node awaits a link of others: what they say takes a while.
const NEWS_GRACE: Duration = Duration::from_secs(2);

/// What a node knows when it begins to choose.
#[derive(Debug)]
pub(crate) struct Before {
    /// The membership that it has adopted last.
    pub adopted: Membership,
    /// Whether it has been part of the run before.
    pub has_started: bool,
    /// The rounds of its newest checkpoint.
    pub newest: u64,
    /// Identifies its results, if it has written them.
    pub results: Option<u64>,
    pub absence: Absence,
    /// The number of this choice.
    pub choice: u64,
    /// Whether all members have their results: this node tells those that were none.
    pub is_over: bool,
}

/// What has come of the choice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This node continues with these members.
    Continue(Membership),
    /// The run is over.
    Over,
}

/// A node while members are chosen. Nodes have their numbers in the topology of the run.
#[derive(Debug)]
pub(crate) struct Choosing {
    me: NodeId,
    assembly: Assembly,
    adopted: Membership,
    /// Identifies this node's results, if it has written them.
    results: Option<u64>,
    /// Whether all members had their results before.
    is_over: bool,
    newest: u64,
    /// How long a missing neighbour is awaited, before the run has started and after that.
    deadline: [Option<Duration>; 2],
    /// How long this node waits in all.
    patience: Duration,
    linked: BTreeSet<NodeId>,
    /// Since when the other neighbours are missing.
    lost: LiteMap<NodeId, Instant>,
    /// How often the link to a neighbour has broken.
    breaks: LiteMap<NodeId, u32>,
    /// Since when linked neighbours have said that they are not.
    denied: LiteMap<NodeId, Instant>,
    /// Neighbours that are not awaited.
    late: BTreeSet<NodeId>,
    /// Neighbours that were linked a moment ago.
    returned: Vec<NodeId>,
    /// Neighbours whose files or program differ.
    different: BTreeSet<NodeId>,
    started: Instant,
    /// When another node was last heard.
    sign: Instant,
    next_warning: Instant,
    sent: Option<News>,
    /// When it may tell them again.
    next_news: Instant,
    /// What is next, and since when it is the same.
    step: (NextStep, Instant),
    /// The membership that is being recorded.
    recording: Option<Membership>,
}

impl Choosing {
    /// Begins now, with all links of the run.
    pub(crate) fn new(
        now: Instant,
        part: &Part<'_>,
        keys: Arc<dyn Keys>,
        before: Before,
    ) -> Choosing {
        let Before { adopted, has_started, newest, results, absence, choice, is_over } = before;
        let (topology, experiment) = (&part.whole.topology, &part.whole.experiment);
        let (me, nodes) = (part.id, topology.nodes());
        let quorum = experiment.absence.quorum_of(nodes);
        let first = experiment.run.start.quorum().map_or(nodes, |quorum| quorum as usize);
        let quorums = [first, quorum];
        let (topology, chooser) = (Arc::clone(topology), Chooser { me, keys, choice });
        let assembly = Assembly::new(topology, chooser, quorums, adopted.clone(), has_started)
            .with_results(results)
            .with_least_neighbours(part.whole.rule.least_neighbours);
        let assembly = if is_over { assembly.after_the_end() } else { assembly };
        let neighbours = part.whole.topology.neighbours(me);
        Choosing {
            me,
            assembly,
            adopted,
            results,
            is_over,
            newest,
            deadline: [experiment.run.start.within(), experiment.absence.deadline()],
            patience: Duration::from_secs_f64(experiment.absence.wait_s),
            linked: BTreeSet::new(),
            lost: neighbours.iter().map(|peer| (*peer, now)).collect(),
            breaks: LiteMap::new(),
            denied: LiteMap::new(),
            late: absence.late.into_iter().collect(),
            returned: absence.returned,
            different: BTreeSet::new(),
            started: now,
            sign: now,
            next_warning: now + WARNING_INTERVAL,
            sent: None,
            next_news: now,
            step: (NextStep::Wait(Vec::new()), now),
            recording: None,
        }
    }

    /// The membership that it has adopted last, and what identifies its results.
    pub(crate) fn into_adopted(self) -> (Membership, Option<u64>) {
        (self.adopted, self.results)
    }

    /// Upon the wish of the user: why this node ends.
    pub(crate) fn interrupted(&self) -> RunError {
        RunError::Interrupted(Round(self.newest))
    }

    /// Upon an event of the links.
    ///
    /// # Errors
    /// If a neighbour sends what it cannot know.
    pub(crate) fn event(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        event: Event,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        match event {
            Event::Up(peer) | Event::Back { peer, .. } => {
                self.sign = now;
                self.linked.insert(peer);
                self.lost.remove(&peer);
                if self.breaks.get(&peer).is_none_or(|times| *times < MOST_BREAKS) {
                    self.late.remove(&peer);
                }
                self.sent = None;
                let links = part.whole.topology.neighbours(self.me).len();
                out.push(Effect::Linked { peer, up: self.linked.len(), links });
            }
            Event::Lost { peer, reason } | Event::Down { peer, reason } => {
                self.lose(now, peer, reason, out);
            }
            // Whether it wants to leave or has failed: it does not continue.
            Event::Left { peer, cause } => {
                self.lose(now, peer, cause.text, out);
                self.late.insert(peer);
            }
            Event::Chooses { from, news } => {
                self.assembly.receive(from, news).map_err(|reason| {
                    let failure = Failure::Peer { peer: from, reason };
                    RunError::Failed { node: self.me, failure }
                })?;
            }
            Event::OtherMembership { .. } => self.sign = now,
            Event::Differs { peer, difference } if self.different.insert(peer) => {
                out.push(Effect::Warn(difference.to_string()));
            }
            _ => {}
        }
        Ok(())
    }

    fn lose(&mut self, now: Instant, peer: NodeId, reason: String, out: &mut Vec<Effect>) {
        let was_linked = self.linked.remove(&peer);
        self.lost.entry(peer).or_insert(now);
        let times = self.breaks.entry(peer).or_insert(0);
        *times += u32::from(was_linked);
        if *times >= MOST_BREAKS {
            self.late.insert(peer);
        }
        out.push(Effect::LinkLost { peer, reason });
    }

    /// Upon a membership that is durable.
    ///
    /// # Errors
    /// If it could not be recorded.
    pub(crate) fn recorded(
        &mut self,
        part: &Part<'_>,
        recorded: Result<(), RunError>,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        let Some(membership) = self.recording.take() else { return Ok(()) };
        if let Err(error) = recorded {
            // The others find out by themselves that no run can have these members.
            self.send(out);
            return Err(error);
        }
        out.push(Effect::Warn(continues(part, &membership)));
        self.assembly.adopt(membership.clone());
        (self.adopted, self.results) = (membership, None);
        Ok(())
    }

    /// Upon a tick: the members, once they are chosen and this node is one of them.
    ///
    /// # Errors
    /// Why this node waits no longer.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Choice>, RunError> {
        if self.recording.is_some() {
            return Ok(None);
        }
        let after = self.deadline[usize::from(self.assembly.has_started())];
        self.give_up(now, after);
        let is_used = |peer: &&NodeId| !self.late.contains(*peer);
        let linked: BTreeSet<NodeId> = self.linked.iter().filter(is_used).copied().collect();
        self.assembly.observe(&linked, &self.late);
        let most = after.map(|after| after + ARRIVAL_GRACE + NEWS_GRACE);
        let step = self.assembly.step(now, most);
        if self.step.0 != step {
            self.step = (step.clone(), now);
        }
        let waited = now - self.step.1;
        if self.is_over && now >= self.started + RESULTS_LINGER {
            return Ok(Some(Choice::Over));
        }
        let mut missing = Vec::new();
        match step {
            NextStep::Adopt(membership) => {
                self.record(part, membership, out)?;
                return Ok(None);
            }
            NextStep::Confirm { decided }
                if waited >= most.filter(|_| !decided).unwrap_or(LEAVING) =>
            {
                return Ok(Some(Choice::Continue(self.adopted.clone())));
            }
            NextStep::Leave if waited >= PAUSE => {
                return Ok(Some(Choice::Continue(self.adopted.clone())));
            }
            // Those that are linked must hear all that it knows.
            NextStep::Leave if waited.is_zero() => (self.sent, self.next_news) = (None, now),
            NextStep::End if waited >= LEAVING => return Ok(Some(Choice::Over)),
            NextStep::Outside if waited >= LEAVING => {
                return Err(RunError::Alone(format!(
                    "the run is over, and node {} was not a member at its end",
                    part.name(self.me)
                )));
            }
            NextStep::Wait(nodes) => missing = nodes,
            _ => {}
        }
        let is_due = now >= self.next_warning;
        if now >= self.next_news {
            let news = self.assembly.news();
            if self.sent.as_ref() != Some(&news) || is_due {
                self.send(out);
                (self.sent, self.next_news) = (Some(news), now + PAUSE);
            }
        }
        if is_due {
            self.next_warning = now + WARNING_INTERVAL;
        }
        if is_due && !self.is_over {
            self.wait(now, part, (after, missing), facts, out)?;
        }
        Ok(None)
    }

    /// Records a membership, if the run can continue with it.
    ///
    /// # Errors
    /// If it cannot.
    fn record(
        &mut self,
        part: &Part<'_>,
        membership: Membership,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        if let Err(error) = Part::new(part.whole, self.me, membership.clone()) {
            // The others find the same, and need not wait for this node.
            self.assembly.adopt(membership);
            self.send(out);
            return Err(error);
        }
        out.push(Effect::Record(membership.clone()));
        self.recording = Some(membership);
        Ok(())
    }

    /// Waits no longer for neighbours that have been missing for too long, or that have denied
    /// their link for as long.
    fn give_up(&mut self, now: Instant, after: Option<Duration>) {
        for &peer in &self.linked {
            if !self.assembly.is_denied_by(peer) {
                if self.denied.remove(&peer).is_some() {
                    *self.breaks.entry(peer).or_insert(0) += 1;
                }
                if self.breaks.get(&peer).is_some_and(|times| *times >= MOST_BREAKS) {
                    self.late.insert(peer);
                }
                continue;
            }
            let since = *self.denied.entry(peer).or_insert(now);
            if after.is_some_and(|after| now >= since + after.max(RETURN_GRACE_MIN)) {
                self.late.insert(peer);
            }
        }
        for (peer, since) in &self.lost {
            let most = match self.returned.contains(peer) {
                true => Some(after.map_or(RETURN_GRACE_MAX, |after| {
                    after.clamp(RETURN_GRACE_MIN, RETURN_GRACE_MAX)
                })),
                false => after.map(|after| after + ARRIVAL_GRACE),
            };
            if most.is_some_and(|most| now >= *since + most) {
                self.late.insert(*peer);
            }
        }
    }

    fn send(&self, out: &mut Vec<Effect>) {
        let news = self.assembly.news();
        let to_all = self.linked.iter();
        out.extend(to_all.map(|&to| Effect::SendNews { to, news: news.clone() }));
    }

    /// Says for whom this node waits.
    ///
    /// # Errors
    /// If it waits no longer.
    fn wait(
        &self,
        now: Instant,
        part: &Part<'_>,
        (after, missing): (Option<Duration>, Vec<NodeId>),
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Result<(), RunError> {
        let silence = after.map_or(RESULTS_LINGER, |after| after.max(RESULTS_LINGER));
        if self.results.is_some() && now >= self.sign + silence {
            let seconds = (now - self.sign).as_secs_f64();
            return Err(RunError::Alone(format!(
                "node {} has its results, and for {seconds:.0} s no other node has come: whether \
                 the others have the same results is not known",
                part.name(self.me)
            )));
        }
        let text = self.waits(part, &missing, facts);
        if now >= self.started + self.patience {
            let seconds = self.patience.as_secs_f64();
            let text = format!("after {seconds:.0} s {text}");
            return Err(RunError::Deadline { nodes: missing, text });
        }
        out.push(Effect::Warn(text.clone()));
        out.push(Effect::Waits(Waiting { peers: missing, text }));
        Ok(())
    }

    /// For whom this node waits, and why, as far as it is known.
    fn waits(&self, part: &Part<'_>, missing: &[NodeId], facts: &Facts) -> String {
        let (present, nodes) = (self.assembly.part().len(), part.whole.topology.nodes());
        let quorum = self.assembly.quorum();
        let text = format!(
            "{present} of {nodes} nodes are present, at least {quorum} continue; node {} waits \
             for {}",
            part.name(self.me),
            if missing.is_empty() { "the others' agreement".into() } else { part.names(missing) }
        );
        let troubles = facts.missing.iter().filter(|(_, why)| !why.is_empty());
        let troubles: Vec<String> =
            troubles.map(|(peer, why)| format!("node {}: {why}", part.name(*peer))).collect();
        match troubles.is_empty() {
            true => text,
            false => format!("{text} ({})", troubles.join("; ")),
        }
    }
}

/// A membership in words.
fn continues(part: &Part<'_>, membership: &Membership) -> String {
    let nodes = part.whole.topology.nodes();
    let away = membership.absent(nodes);
    let mut text = format!("the run continues with {} of {nodes} nodes", membership.members.len());
    if !away.is_empty() {
        text += &format!(", without {}", part.names(&away));
    }
    for (a, b) in &membership.cut {
        text += &format!(", without the link {} - {}", part.name(*a), part.name(*b));
    }
    text
}
