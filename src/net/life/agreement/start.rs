//! Waits until all nodes are linked, and agrees with them on the round after which the run
//! continues.

use std::{sync::mpsc::RecvTimeoutError, time::Duration};

use litemap::LiteMap;

use super::gathering::Gathering;
use crate::{
    config::ConfigError,
    drive::{Absence, Membership, RunError, Waiting},
    gossip::Failure,
    mixing::Topology,
    net::{
        life::{
            clock,
            event::{Difference, Event, note_difference, refusal},
            limits::{POLL, WARNING_INTERVAL},
            links::Links,
            observer::NodeObserver,
        },
        link::wire::{Beginning, Saved},
    },
    units::{NodeId, Round},
};

/// A node before the run begins or continues.
pub(crate) struct Starter<'a> {
    pub id: NodeId,
    /// The links between the members.
    pub topology: &'a Topology,
    pub membership: &'a Membership,
    pub links: &'a dyn Links,
    pub observer: &'a mut dyn NodeObserver,
    pub stop: &'a mut dyn FnMut() -> bool,
    /// How long to wait for the other nodes.
    pub limit: Option<Duration>,
    /// Whether the run can continue without nodes.
    pub may_continue: bool,
    /// The checkpoints that this node has.
    pub saved: &'a Saved,
    /// The rounds of the run.
    pub rounds: u64,
}

pub(crate) struct Started {
    /// Where it begins or continues.
    pub at: Beginning,
    /// Frames of neighbours that have started before, in order.
    pub early: Vec<Event>,
}

impl Starter<'_> {
    fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }

    /// The next event, if one comes within a moment.
    fn next(&mut self) -> Result<Option<Event>, RunError> {
        if (self.stop)() {
            return Err(RunError::Interrupted(Round(self.newest())));
        }
        match self.links.next(POLL) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunError::Network("the host's tasks ended".into()))
            }
        }
    }

    /// The rounds of this node's newest checkpoint.
    fn newest(&self) -> u64 {
        self.saved.newest().rounds
    }

    /// Runs until all nodes are linked. Frames of neighbours that have started are held meanwhile;
    /// a link that breaks may come up again.
    #[expect(clippy::too_many_lines)]
    pub(crate) fn gather(&mut self) -> Result<Started, RunError> {
        let started = clock::now();
        let neighbours = self.topology.neighbours(self.id).len();
        let (membership, saved) = (self.membership.clone(), self.saved.clone());
        let mut gathering = Gathering::new(self.topology, membership, self.id, saved, self.rounds);
        let mut early: Vec<Event> = Vec::new();
        let mut differences: LiteMap<NodeId, Difference> = LiteMap::new();
        // The last message of each neighbour that left: the first cause.
        let mut before: LiteMap<NodeId, String> = LiteMap::new();
        // Whether any neighbour has had the same files and program: then not only this node has
        // them.
        let mut agrees = false;
        let mut next_warning = started + WARNING_INTERVAL;
        loop {
            match self.next()? {
                Some(Event::Up(peer) | Event::Back { peer, .. }) => {
                    agrees = true;
                    differences.remove(&peer);
                    before.remove(&peer);
                    gathering.up(peer);
                    let up = neighbours - gathering.missing();
                    tracing::info!("linked with {} ({up} of {neighbours})", self.name(peer));
                    self.observer.linked(peer, up, neighbours);
                }
                Some(Event::Lost { peer, reason }) => {
                    tracing::warn!(
                        "the link to {} broke before the run began: {reason}; waiting for it",
                        self.name(peer)
                    );
                    gathering.down(peer);
                    self.observer.link_lost(peer, &reason);
                }
                Some(Event::Restarted(peer)) => forget(&mut early, peer),
                Some(Event::Left { peer, cause }) => {
                    tracing::warn!(
                        "node {} left before the run began: {}; waiting for it",
                        self.name(peer),
                        cause.text
                    );
                    gathering.down(peer);
                    self.observer.link_lost(peer, &cause.text);
                    before.insert(peer, cause.text);
                    forget(&mut early, peer);
                }
                Some(Event::Start { from, message }) => {
                    gathering.message(from, message).map_err(|reason| {
                        let failure = Failure::Peer { peer: from, reason };
                        RunError::Failed { node: self.id, failure }
                    })?;
                }
                // Before the run it means no more than the loss of the link, which follows.
                Some(Event::Goodbye(_)) => {}
                Some(Event::Differs { peer, difference }) => {
                    before.insert(peer, difference.to_string());
                    note_difference(&mut differences, peer, difference);
                }
                Some(Event::Down { peer, reason }) => {
                    let name = self.name(peer);
                    return Err(RunError::Network(format!("the link to {name} broke: {reason}")));
                }
                Some(Event::Rival { peer, text }) => {
                    let problem = format!(
                        "{text} (node {} says so); stop one of them, or give this one a key and a \
                         node of its own",
                        self.name(peer)
                    );
                    return Err(RunError::Setup(ConfigError::at("node.key", problem)));
                }
                // A member chooses members again; others visit, and will see the run.
                Some(Event::OtherMembership(peer))
                    if self.may_continue && self.topology.neighbours(self.id).contains(&peer) =>
                {
                    return Err(RunError::Absent(Absence::default()));
                }
                Some(Event::OtherMembership(_)) => {}
                Some(
                    event @ (Event::Frame { .. }
                    | Event::Piece { .. }
                    | Event::Taken(_)
                    | Event::Computed(_)),
                ) => early.push(event),
                None => {}
            }
            if !agrees && !differences.is_empty() && differences.len() == neighbours {
                return Err(refusal(&differences));
            }
            let now = clock::now();
            let own = (gathering.missing() > 0).then(|| {
                format!("node {} waits for {}", self.name(self.id), self.troubles(&before))
            });
            let messages = gathering.new_messages(own.as_deref(), now >= next_warning);
            let messages = messages
                .map_err(|problem| RunError::Setup(ConfigError::at("checkpoints", problem)))?;
            for (to, message) in messages {
                self.links.send_start(to, message);
            }
            if let Some(at) = gathering.begins().cloned() {
                self.links.status().begin(at.clone());
                return Ok(Started { at, early });
            }
            let waits = || {
                let (name, reason) = (self.name(self.id), gathering.reason(own.as_deref()));
                let host = self
                    .links
                    .status()
                    .of_host()
                    .map(|trouble| format!("; {trouble}"))
                    .unwrap_or_default();
                if own.is_some() {
                    format!("{reason}{host}")
                } else {
                    format!("node {name} is linked, the run has not started: {reason}{host}")
                }
            };
            if self.limit.is_some_and(|limit| now >= started + limit) {
                if !agrees
                    && differences
                        .values()
                        .any(|difference| matches!(difference, Difference::Files(_)))
                {
                    return Err(refusal(&differences));
                }
                let seconds = (now - started).as_secs_f64().round();
                let text = format!("after {seconds} s {}", waits());
                let lacks = self.links.status().of_host().is_some();
                let missing = self.links.status().missing();
                let nodes = missing.into_iter().map(|(peer, _)| peer).collect();
                return Err(match lacks {
                    true => RunError::Host(text),
                    false => RunError::Deadline { nodes, text },
                });
            }
            if now >= next_warning {
                next_warning = now + WARNING_INTERVAL;
                let text = waits();
                tracing::warn!("{text}");
                let missing = self.links.status().missing();
                let peers = missing.into_iter().map(|(peer, _)| peer).collect();
                self.observer.waits(&Waiting { peers, text });
            }
        }
    }

    /// The missing neighbours and the causes, as far as they are known. `before`: the last messages
    /// of those that left.
    fn troubles(&self, before: &LiteMap<NodeId, String>) -> String {
        let one = |(node, trouble): (NodeId, String)| {
            let said = before.get(&node).filter(|said| !trouble.contains(*said));
            let said = said.map_or_else(String::new, |said| format!("; before that: {said}"));
            format!("{} ({trouble}{said})", self.name(node))
        };
        self.links.status().missing().into_iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Drops the frames of a neighbour whose program was started again or has left.
fn forget(early: &mut Vec<Event>, peer: NodeId) {
    early.retain(|event| match event {
        Event::Frame { from, .. } | Event::Piece { from, .. } => *from != peer,
        Event::Taken(to) => *to != peer,
        _ => true,
    });
}
