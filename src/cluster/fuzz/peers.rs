//! The other nodes: real cores, whose frames reach each other at once, and real parts in the choice
//! of members.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use crate::{
    cluster::{
        event::Event,
        members::{
            assembly::{Assembly, Chooser, News, NextStep},
            keys::{Keys, Named, OfMembers},
        },
        message::{Beginning, CheckpointId, Saved},
        part::Part,
        seal::{Given, seal},
    },
    digest,
    drive::{Change, Membership},
    gossip::{
        Effect, Input, Node, Rejoin,
        snapshot::Snapshot,
        tree::{Readers, Setup},
    },
    mixing::Topology,
    units::{NodeId, Round},
};

/// How often the others take a snapshot, in rounds: they have all that the node under test has.
const EVERY: u64 = 1;

/// A frame, or the rest of one of this length.
struct Sent {
    bytes: Vec<u8>,
    rest_of: Option<usize>,
}

/// One direction of a link.
#[derive(Default)]
struct Line {
    queue: VecDeque<Sent>,
    /// Whether the core at its end still holds a frame.
    held: bool,
}

/// A checkpoint of another node.
struct Kept {
    membership: u64,
    history: Vec<Change>,
    snapshot: Snapshot,
    merged: Vec<u8>,
}

/// The other nodes.
#[derive(Default)]
pub(super) struct Peers {
    /// By their numbers among the members.
    cores: BTreeMap<NodeId, Node>,
    lines: BTreeMap<(NodeId, NodeId), Line>,
    merged: Vec<u8>,
    membership: u64,
    /// The changes of the members so far.
    history: Vec<Change>,
    numbers: Vec<NodeId>,
    me: NodeId,
    /// The node under test, while members are chosen.
    chooser: NodeId,
    /// By their numbers in the topology of the run, and by rounds.
    kept: BTreeMap<(NodeId, u64), Kept>,
    /// Those that have been part of the run.
    begun: BTreeSet<NodeId>,
    adopted: BTreeMap<NodeId, Membership>,
    /// Those that have results, by their numbers in the topology of the run.
    finished: BTreeSet<NodeId>,
    assemblies: BTreeMap<NodeId, Assembly>,
}

impl Peers {
    /// The node under test has other links.
    pub(super) fn forget(&mut self) {
        self.cores.clear();
        self.lines.clear();
        self.assemblies.clear();
    }

    /// The checkpoints of a node, by its number in the topology of the run, ascending.
    pub(super) fn kept(&self, number: NodeId) -> Vec<CheckpointId> {
        let id = |((_, rounds), kept): (&(NodeId, u64), &Kept)| {
            CheckpointId::new(kept.membership, *rounds, &kept.history)
        };
        let of = self.kept.iter().filter(|((node, _), _)| *node == number);
        let mut all: Vec<CheckpointId> = of.map(id).collect();
        all.sort_unstable();
        all
    }

    /// Whether a node has a checkpoint of this round, by its number in the topology of the run.
    pub(super) fn has(&self, number: NodeId, rounds: u64) -> bool {
        self.kept.contains_key(&(number, rounds))
    }

    /// The nodes that have had results.
    pub(super) fn finished(&self) -> &BTreeSet<NodeId> {
        &self.finished
    }

    /// What a node, by its number in the topology of the run, knows of its checkpoints.
    pub(super) fn saved(&self, number: NodeId) -> Saved {
        let kept = self.kept(number);
        let newest = kept.last().and_then(|newest| self.kept.get(&(number, newest.rounds)));
        let history = newest.map(|newest| newest.history.clone()).unwrap_or_default();
        Saved { kept, history, ..Saved::default() }
    }

    /// The disk of a node is lost.
    pub(super) fn lose(&mut self, number: NodeId) {
        self.kept.retain(|(node, _), _| *node != number);
    }

    /// The rounds begin there. If the others cannot begin there, they stay silent.
    pub(super) fn begin(&mut self, part: &Part<'_>, at: &Beginning, setups: &[Option<Setup>]) {
        self.forget();
        (self.me, self.membership) = (part.id, part.membership.id);
        self.numbers.clone_from(&part.numbers);
        self.history.clone_from(&at.history);
        let members = part.membership.members.len();
        let all = (0..members).map(NodeId::from);
        let givers: Vec<NodeId> = all.filter(|node| !at.without.contains(node)).collect();
        for node in (0..members).map(NodeId::from).filter(|node| *node != part.id) {
            let number = part.number(node);
            let mut config =
                part.design().node(node, setups[number.index()].clone(), Readers::Everyone);
            let keys: Arc<dyn Keys> = Arc::new(Named(number));
            let attempts = at.attempts.clone();
            let signer = OfMembers::new(&keys, part, attempts).of(node, &keys);
            config.signer = Some(Arc::new(signer));
            let kept = self.kept.get(&(number, at.rounds));
            let kept = kept.filter(|_| !at.without.contains(&node));
            let core = match (at.rounds, at.from_mean, kept) {
                (0, false, _) => Node::new(config),
                (_, false, Some(kept)) => Node::resume(config, kept.snapshot.clone()),
                (1.., true, _) if !givers.is_empty() && at.without.is_sorted_by(|a, b| a < b) => {
                    let rejoin = Rejoin {
                        rounds: Round(at.rounds),
                        own: kept.map(|kept| kept.snapshot.clone().into_model()),
                        givers: givers.clone(),
                        merged: kept.map(|kept| kept.merged.clone()).unwrap_or_default(),
                        ..Rejoin::default()
                    };
                    if kept.is_none() && !at.without.contains(&node) {
                        return self.forget();
                    }
                    Node::rejoin(config, rejoin)
                }
                _ => return self.forget(),
            };
            self.cores.insert(node, core);
            self.begun.insert(number);
        }
        self.kept.retain(|(node, rounds), _| {
            part.membership.place(*node).is_none() || *rounds == at.rounds
        });
        let next = Round(at.rounds.saturating_add(EVERY));
        let nodes: Vec<NodeId> = self.cores.keys().copied().collect();
        let mut work = VecDeque::new();
        for node in nodes {
            work.extend([(node, Input::Snapshot(next)), (node, Input::Start)]);
        }
        self.work(work);
    }

    /// A frame of the node under test.
    pub(super) fn send(&mut self, to: NodeId, frame: &[u8]) {
        let sent = Sent { bytes: frame.to_vec(), rest_of: None };
        self.lines.entry((self.me, to)).or_default().queue.push_back(sent);
        self.work(VecDeque::new());
    }

    /// A frame that another node did not send, before those that it did.
    pub(super) fn inject(&mut self, from: NodeId, bytes: Vec<u8>) {
        let queue = &mut self.lines.entry((from, self.me)).or_default().queue;
        let is_rest = queue.front().is_some_and(|sent| sent.rest_of.is_some());
        queue.insert(usize::from(is_rest), Sent { bytes, rest_of: None });
    }

    /// What comes next from a node, if the node under test holds nothing: a frame, or with `piece`
    /// so many bytes of it.
    pub(super) fn take(&mut self, from: NodeId, piece: Option<usize>) -> Option<Event> {
        let line = self.lines.get_mut(&(from, self.me)).filter(|line| !line.held)?;
        let Sent { mut bytes, rest_of } = line.queue.pop_front()?;
        line.held = true;
        let whole = bytes.len();
        let cut = piece.filter(|cut| (1..whole).contains(cut));
        let Some(length) = rest_of.or(cut.map(|_| whole)) else {
            return Some(Event::Frame { from, bytes });
        };
        if let Some(cut) = cut {
            let rest = Sent { bytes: bytes.split_off(cut), rest_of: Some(length) };
            line.queue.push_front(rest);
        }
        Some(Event::Piece { from, length, bytes })
    }

    /// The node under test has read a frame.
    pub(super) fn recycled(&mut self, from: NodeId) {
        self.lines.entry((from, self.me)).or_default().held = false;
    }

    /// What follows until all wait for the node under test.
    fn work(&mut self, mut work: VecDeque<(NodeId, Input)>) {
        let mut effects = Vec::new();
        loop {
            if let Some((node, input)) = work.pop_front() {
                let Some(core) = self.cores.get_mut(&node) else { continue };
                core.handle(input, &mut effects);
                for effect in effects.drain(..) {
                    self.perform(node, effect, &mut work);
                }
                continue;
            }
            let (me, cores) = (self.me, &self.cores);
            let is_ready = |((_, to), line): &(&(NodeId, NodeId), &mut Line)| {
                *to != me && cores.contains_key(to) && !line.held && !line.queue.is_empty()
            };
            let Some((&(from, to), line)) = self.lines.iter_mut().find(is_ready) else { return };
            line.held = true;
            let Some(Sent { bytes, .. }) = line.queue.pop_front() else { return };
            work.push_back((to, Input::Frame { from, bytes }));
        }
    }

    fn perform(&mut self, node: NodeId, effect: Effect, work: &mut VecDeque<(NodeId, Input)>) {
        match effect {
            Effect::Compute { round, x, mut update, parts, .. } => {
                for (part, wanted) in (0..).zip(parts) {
                    work.push_back((node, Input::Part { round, part, values: wanted.values }));
                }
                update.fill(0.01);
                let computed =
                    Input::Computed { round, x, update, loss: 1.0, step: 0.1, ends: false };
                work.push_back((node, computed));
            }
            Effect::Send { to, frame } => {
                let sent = Sent { bytes: frame.to_vec(), rest_of: None };
                self.lines.entry((node, to)).or_default().queue.push_back(sent);
                work.push_back((node, Input::Taken(to)));
            }
            Effect::Recycle { from, .. } => {
                self.lines.entry((from, node)).or_default().held = false;
            }
            Effect::Prepared(merged) => self.merged = merged,
            Effect::Shared { .. } | Effect::Initial { .. } => {}
            Effect::Snapshot(snapshot) => {
                let (rounds, number) = (snapshot.rounds.0, self.numbers[node.index()]);
                let (membership, merged) = (self.membership, self.merged.clone());
                let history = self.history.clone();
                let kept = Kept { membership, history, snapshot: *snapshot, merged };
                self.kept.insert((number, rounds), kept);
                work.push_back((node, Input::Snapshot(Round(rounds + EVERY))));
            }
            Effect::Conclude { mean, .. } => {
                let (setup, mean) = (Given::setup(&self.merged), digest::short(&mean));
                let record = seal(Given { setup, mean }, vec![7; 8]);
                work.push_back((node, Input::Record(record)));
            }
            Effect::Failed(_) => _ = self.cores.remove(&node),
            Effect::Finished(_) => _ = self.finished.insert(self.numbers[node.index()]),
            Effect::RoundDone(_) | Effect::Save(_) => {}
        }
    }

    /// Members are chosen, among all nodes of the run.
    pub(super) fn choose(&mut self, topology: &Arc<Topology>, quorums: [usize; 2], me: NodeId) {
        self.forget();
        self.chooser = me;
        for node in (0..topology.nodes()).map(NodeId::from).filter(|node| *node != me) {
            let adopted = self.adopted.get(&node).cloned();
            let adopted = adopted.unwrap_or_else(|| Membership::all(topology.nodes()));
            let keys = Arc::new(Named(node));
            let started = self.begun.contains(&node);
            let chooser = Chooser { me: node, keys, choice: 1 };
            let assembly = Assembly::new(Arc::clone(topology), chooser, quorums, adopted, started);
            self.assemblies.insert(node, assembly);
        }
    }

    /// Another node hears what the node under test says.
    ///
    /// # Panics
    /// If the node under test says what no honest node says.
    pub(super) fn hear(&mut self, node: NodeId, news: News) {
        if let Some(assembly) = self.assemblies.get_mut(&node) {
            let heard = assembly.receive(self.chooser, news);
            assert_eq!(heard, Ok(()), "an honest neighbour would refuse this");
        }
    }

    /// The nodes that are present talk with each other; the node under test is linked with some.
    pub(super) fn agree(
        &mut self,
        now: Instant,
        topology: &Topology,
        present: &BTreeSet<NodeId>,
        (me, linked): (NodeId, &BTreeSet<NodeId>),
    ) {
        let present: BTreeSet<NodeId> =
            present.iter().copied().filter(|&node| node != me).collect();
        for &node in &present {
            let Some(assembly) = self.assemblies.get_mut(&node) else { continue };
            let is_linked = |peer: &NodeId| match *peer == me {
                true => linked.contains(&node),
                false => present.contains(peer),
            };
            let neighbours = topology.neighbours(node).iter().copied();
            let (up, late): (BTreeSet<NodeId>, BTreeSet<NodeId>) = neighbours.partition(is_linked);
            assembly.observe(&up, &late);
        }
        for &node in &present {
            let Some(news) = self.news(node) else { continue };
            for peer in topology.neighbours(node).iter().filter(|peer| present.contains(peer)) {
                if let Some(assembly) = self.assemblies.get_mut(peer) {
                    let _ = assembly.receive(node, news.clone());
                }
            }
            let Some(assembly) = self.assemblies.get_mut(&node) else { continue };
            if let NextStep::Adopt(membership) = assembly.step(now, None) {
                self.adopted.insert(node, membership.clone());
                assembly.adopt(membership);
            }
        }
    }

    /// What a node knows.
    pub(super) fn news(&self, node: NodeId) -> Option<News> {
        self.assemblies.get(&node).map(Assembly::news)
    }

    /// All members continue in this membership.
    pub(super) fn adopt(&mut self, membership: &Membership) {
        for node in &membership.members {
            let known = self.adopted.get(node).map_or(0, |known| known.id);
            if membership.id > known {
                self.adopted.insert(*node, membership.clone());
            }
        }
    }
}
