//! Links this node with all neighbours that are present, and chooses with them who continues.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use litemap::LiteMap;

use super::assembly::{Assembly, News, NextStep};
use crate::{
    drive::{Membership, RunError, Waiting},
    mixing::Topology,
    net::{
        life::{
            clock,
            event::{Difference, Event, note_difference},
            limits::{POLL, RESULTS_LINGER, WARNING_INTERVAL},
            links::Links,
            observer::NodeObserver,
        },
        link::wire::StartMessage,
    },
    units::{NodeId, Round},
};

/// How long a node that continues waits until its neighbours know of it.
const LEAVING: Duration = Duration::from_secs(2);

/// How long a node that has returned, and is missing once more, is awaited at least: it may be the
/// one that dials, after a pause.
const RETURN_GRACE_MIN: Duration = Duration::from_secs(5);
/// How long such a node is awaited at most.
const RETURN_GRACE_MAX: Duration = Duration::from_secs(30);

/// A node while members are chosen.
pub(crate) struct Assembler<'a> {
    pub id: NodeId,
    /// The topology of the run.
    pub topology: &'a Arc<Topology>,
    pub links: &'a dyn Links,
    pub observer: &'a mut dyn NodeObserver,
    pub stop: &'a mut dyn FnMut() -> bool,
    /// The membership that this node has adopted last.
    pub adopted: Membership,
    /// Whether it has been part of the run before.
    pub started: bool,
    /// The rounds of its newest checkpoint.
    pub round: Round,
    /// The least number of members, before the run has started and after that.
    pub quorums: [usize; 2],
    /// How long a missing neighbour is awaited, before the run has started and after that.
    pub deadline: [Option<Duration>; 2],
    /// How long this node waits in all.
    pub patience: Duration,
    /// Neighbours that are not awaited.
    pub late: BTreeSet<NodeId>,
    /// Neighbours that were linked a moment ago: they are awaited from [`RETURN_GRACE_MIN`] to
    /// [`RETURN_GRACE_MAX`].
    pub returned: Vec<NodeId>,
    /// Identifies this node's results, if it has written them.
    pub results: Option<u64>,
    /// Checks that the run can continue with a membership, and records it durably.
    pub record: &'a mut dyn FnMut(&Membership) -> Result<(), RunError>,
}

impl Assembler<'_> {
    fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }

    fn names(&self, nodes: &[NodeId]) -> String {
        nodes.iter().map(|node| self.name(*node)).collect::<Vec<_>>().join(", ")
    }

    /// Waits until the members are chosen and this node is one of them; `None` if the run is over.
    #[expect(clippy::too_many_lines)]
    pub(crate) fn choose(&mut self) -> Result<Option<Membership>, RunError> {
        let started = clock::now();
        let topology = Arc::clone(self.topology);
        let mut assembly =
            Assembly::new(topology, self.id, self.quorums, self.adopted.clone(), self.started)
                .with_results(self.results);
        let mut sign = started;
        let neighbours = self.topology.neighbours(self.id);
        let mut lost: LiteMap<NodeId, Instant> =
            neighbours.iter().map(|peer| (*peer, started)).collect();
        let mut linked = BTreeSet::new();
        let mut differences: LiteMap<NodeId, Difference> = LiteMap::new();
        let (mut next_warning, mut sent) = (started + WARNING_INTERVAL, None::<News>);
        let mut confirms = None::<Instant>;
        loop {
            if (self.stop)() {
                return Err(RunError::Interrupted(self.round));
            }
            match self.links.next(POLL) {
                Ok(Event::Up(peer) | Event::Back { peer, .. }) => {
                    sign = clock::now();
                    linked.insert(peer);
                    lost.remove(&peer);
                    self.late.remove(&peer);
                    sent = None;
                    self.observer.linked(peer, linked.len(), neighbours.len());
                }
                Ok(Event::Lost { peer, reason } | Event::Down { peer, reason }) => {
                    self.lose(peer, &reason, &mut linked, &mut lost);
                }
                // Whether it wants to leave or has failed: it does not continue.
                Ok(Event::Left { peer, cause }) => {
                    self.lose(peer, &cause.text, &mut linked, &mut lost);
                    self.late.insert(peer);
                }
                Ok(Event::Start { message: StartMessage::Assembly(news), .. }) => {
                    assembly.receive(news);
                }
                Ok(Event::OtherMembership(_)) => sign = clock::now(),
                Ok(Event::Differs { peer, difference }) => {
                    note_difference(&mut differences, peer, difference);
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RunError::Network("the host's tasks ended".into()));
                }
            }
            let now = clock::now();
            let after = self.deadline[usize::from(assembly.has_started())];
            for (peer, since) in &lost {
                let most = match self.returned.contains(peer) {
                    true => Some(after.map_or(RETURN_GRACE_MAX, |after| {
                        after.clamp(RETURN_GRACE_MIN, RETURN_GRACE_MAX)
                    })),
                    false => after,
                };
                if most.is_some_and(|most| now >= *since + most) {
                    self.late.insert(*peer);
                }
            }
            assembly.observe(&linked, &self.late);
            let step = assembly.step(now);
            if !matches!(step, NextStep::Confirm | NextStep::End) {
                confirms = None;
            }
            let missing = match step {
                NextStep::Adopt(membership) => {
                    if let Err(error) = (self.record)(&membership) {
                        // The others find out by themselves that no run can have these members.
                        self.send(&linked, assembly.news());
                        return Err(error);
                    }
                    self.report(&membership);
                    assembly.adopt(membership.clone());
                    (self.adopted, self.results) = (membership, None);
                    Vec::new()
                }
                NextStep::Confirm => {
                    if now >= *confirms.get_or_insert(now) + LEAVING {
                        return Ok(Some(self.adopted.clone()));
                    }
                    Vec::new()
                }
                NextStep::Leave => return Ok(Some(self.adopted.clone())),
                NextStep::End => {
                    if now >= *confirms.get_or_insert(now) + LEAVING {
                        return match self.results {
                            Some(_) => Ok(None),
                            None => Err(RunError::Alone(format!(
                                "the run is over, and node {} was not a member at its end",
                                self.name(self.id)
                            ))),
                        };
                    }
                    Vec::new()
                }
                NextStep::Wait(missing) => missing,
            };
            let news = assembly.news();
            if sent.as_ref() != Some(&news) || now >= next_warning {
                self.send(&linked, news.clone());
                sent = Some(news);
            }
            if now < next_warning {
                continue;
            }
            next_warning = now + WARNING_INTERVAL;
            let silence = after.map_or(RESULTS_LINGER, |after| after.max(RESULTS_LINGER));
            if self.results.is_some() && now >= sign + silence {
                let seconds = (now - sign).as_secs_f64();
                return Err(RunError::Alone(format!(
                    "node {} has its results, and for {seconds:.0} s no other node has come: \
                     whether the others have the same results is not known",
                    self.name(self.id)
                )));
            }
            let (present, nodes) = (assembly.part().len(), self.topology.nodes());
            let quorum = assembly.quorum();
            let text = format!(
                "{present} of {nodes} nodes are present, at least {quorum} continue; node {} waits \
                 for {}",
                self.name(self.id),
                if missing.is_empty() {
                    "the others' agreement".into()
                } else {
                    self.names(&missing)
                }
            );
            let troubles =
                self.links.status().missing().into_iter().filter(|(_, why)| !why.is_empty());
            let troubles: Vec<String> =
                troubles.map(|(peer, why)| format!("node {}: {why}", self.name(peer))).collect();
            let text = match troubles.is_empty() {
                true => text,
                false => format!("{text} ({})", troubles.join("; ")),
            };
            if now >= started + self.patience {
                let seconds = self.patience.as_secs_f64();
                let text = format!("after {seconds:.0} s {text}");
                return Err(RunError::Deadline { nodes: missing, text });
            }
            tracing::warn!("{text}");
            self.observer.waits(&Waiting { peers: missing, text });
        }
    }

    fn send(&self, linked: &BTreeSet<NodeId>, news: News) {
        for &peer in linked {
            self.links.send_start(peer, StartMessage::Assembly(news.clone()));
        }
    }

    fn lose(
        &mut self,
        peer: NodeId,
        reason: &str,
        linked: &mut BTreeSet<NodeId>,
        lost: &mut LiteMap<NodeId, Instant>,
    ) {
        linked.remove(&peer);
        lost.entry(peer).or_insert_with(clock::now);
        self.observer.link_lost(peer, reason);
    }

    fn report(&self, membership: &Membership) {
        let away = membership.absent(self.topology.nodes());
        let (members, nodes) = (membership.members.len(), self.topology.nodes());
        let mut text = format!("the run continues with {members} of {nodes} nodes");
        if !away.is_empty() {
            text += &format!(", without {}", self.names(&away));
        }
        for (a, b) in &membership.cut {
            text += &format!(", without the link {} - {}", self.name(*a), self.name(*b));
        }
        tracing::warn!("{text}");
    }
}
