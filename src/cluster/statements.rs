//! What a node says to all others while a run lasts: signed statements, which all nodes pass on.
//!
//! * Upon something that this node has to say: it signs that, together with the membership and its
//!   attempt at the run, and tells its neighbours.
//! * Upon the statements that a neighbour brings: this node checks the signature of each that is
//!   news, retains it, and tells its neighbours. Of each kind the newest statement of a node counts.
//! * Upon a statement that the named node has not signed, or that no node of the run can make: the
//!   neighbour that brought it has broken the protocol, since an honest one checks before it passes
//!   on.
//! * Upon a vector that a neighbour should have in common with all its neighbours: this node
//!   compares it with the neighbour's statement about the same frame, once it knows both. Another
//!   fingerprint proves that the neighbour sends different things. So do two statements about one
//!   frame.
//! * Upon a neighbour whose frames go on, and that has said nothing about one of them for
//!   `run.patience_s`: the neighbour is late. That is no proof, and this node names it as it names
//!   any other neighbour that keeps it waiting.
//!
//! **Attempts.** A node that goes back to a checkpoint may compute other bits for the same round.
//! So a statement counts in one attempt only. Before the rounds begin, all members agree on the
//! attempts of all ([`Statements::agree`]). What is heard before that counts for the attempt that a
//! neighbour states itself, or for the newest one of another node.
//!
//! Memory and work are bounded for each signer: this node retains one statement of each kind and
//! [`MOST_SHARED`] about frames, and takes no more than that in one message.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use super::{
    effect::Effect,
    members::keys::{self, Keys},
    message::CheckpointSchedule,
    part::Part,
};
use crate::{
    gossip::{
        Failure, SHARED_EVERY, is_shared_round,
        plan::{self, Plan},
    },
    units::NodeId,
};

/// The statements about frames that are retained of one node.
const MOST_SHARED: usize = 32;

/// The kinds of statements beside those about frames.
const OTHER_KINDS: usize = 3;

/// The vectors of a neighbour that wait for its statements.
const MOST_SEEN: usize = 64;

/// The statements in one message: the others follow in the next one.
pub(crate) const MOST_IN_MESSAGE: usize = 1000;

/// How often a node passes on what others have said.
const PAUSE: Duration = Duration::from_millis(100);

/// The time that counts between two ticks: a process that was held up has not waited.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// A vector that a node and its neighbours have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The round of the frame after which they have it in common.
    pub round: u64,
    /// The flight of that frame.
    pub flight: u8,
    /// Identifies what the node has sent until then.
    pub fingerprint: [u8; 16],
}

impl Shared {
    /// The frame.
    fn place(&self) -> (u64, u8) {
        (self.round, self.flight)
    }
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// All its neighbours have a copy of this vector.
    Shared(Shared),
    /// Its checkpoint after this many rounds is durable.
    Saved(u64),
    /// When checkpoints are written. Only node 0 says so.
    Schedule(CheckpointSchedule),
    /// It has written the results with this number.
    Written(u64),
}

/// What a node says in one attempt at the run, with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The node, by its number among the members.
    pub node: NodeId,
    /// Its attempt at the run.
    pub attempt: u64,
    /// What it says.
    pub said: Said,
    /// The signature of the node.
    pub signature: Vec<u8>,
}

impl Statement {
    /// A statement with the signature of its node. `number` is that of the node in the topology of
    /// the run.
    pub(crate) fn signed(
        keys: &dyn Keys,
        (node, number): (NodeId, NodeId),
        (membership, attempt): (u64, u64),
        said: Said,
    ) -> Statement {
        let signature = keys.sign(&signed_bytes(number, membership, attempt, &said));
        Statement { node, attempt, said, signature }
    }
}

/// The bytes that a signature covers.
fn signed_bytes(number: NodeId, membership: u64, attempt: u64, said: &Said) -> Vec<u8> {
    let all = ("gradvine statement", number, membership, attempt, said);
    bincode::serde::encode_to_vec(all, bincode::config::standard()).expect("a statement serialises")
}

/// All statements that a node retains. Each has a number: one that was retained later has a greater
/// number, so a link knows which ones its neighbour lacks.
pub(crate) type Retained = Arc<Vec<(u64, Statement)>>;

/// The statements with greater numbers than `sent`, which is brought up to date: as many as one
/// message may have.
pub(crate) fn news(all: &[(u64, Statement)], sent: &mut u64) -> Vec<Statement> {
    let first = all.partition_point(|(number, _)| number <= sent);
    let news = &all[first..all.len().min(first + MOST_IN_MESSAGE)];
    *sent = news.last().map_or(*sent, |(number, _)| *number);
    news.iter().map(|(_, statement)| statement.clone()).collect()
}

/// The attempt of a node.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    number: u64,
    /// Whether no other one counts.
    is_fixed: bool,
}

/// A vector of a neighbour, and for how long this node has waited for a statement about it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    vector: Shared,
    waited: Duration,
}

/// What is known of one node.
#[derive(Debug, Default)]
struct OfNode {
    attempt: Option<Attempt>,
    /// What it says about frames, in their order, and the newest of each other kind.
    frames: Vec<(u64, Shared, Statement)>,
    others: Vec<(u64, Statement)>,
    /// Vectors that this node got from it, and the last frame of them.
    seen: VecDeque<Seen>,
    last: Option<(u64, u8)>,
}

/// The statements of all members, as one node knows them in one attempt.
#[derive(Debug)]
pub(crate) struct Statements {
    keys: Arc<dyn Keys>,
    me: NodeId,
    attempt: u64,
    /// Whether all members have agreed on their attempts.
    are_agreed: bool,
    membership: u64,
    /// The numbers of the members in the topology of the run.
    numbers: Vec<NodeId>,
    neighbours: Vec<NodeId>,
    /// The rounds of the run, and the flights whose vectors are compared.
    rounds: u64,
    flights: Vec<u8>,
    /// Whether no node is far ahead of its neighbours.
    is_synchronous: bool,
    /// The round of this node.
    round: u64,
    nodes: LiteMap<NodeId, OfNode>,
    /// The greatest number of a statement.
    number: u64,
    /// Whether something is to be told, and when it may be.
    is_new: bool,
    next: Option<Instant>,
    /// When this node has last looked for neighbours that are late.
    looked: Option<Instant>,
}

impl Statements {
    /// For a node in an attempt with this number, which is greater than those of its attempts
    /// before.
    pub(crate) fn new(part: &Part<'_>, keys: Arc<dyn Keys>, attempt: u64) -> Statements {
        let design = part.design();
        let plan: &dyn Plan = &*design.rule.plan;
        let flights = plan::flights(plan).into_iter();
        let mut statements = Statements {
            keys,
            me: part.id,
            attempt,
            are_agreed: false,
            membership: part.membership.id,
            numbers: part.membership.members.clone(),
            neighbours: part.topology().neighbours(part.id).to_vec(),
            rounds: design.experiment.run.rounds,
            flights: flights.filter(|flight| plan.is_compared(*flight)).collect(),
            is_synchronous: !plan::is_asynchronous(plan),
            round: 0,
            nodes: LiteMap::new(),
            number: 0,
            is_new: false,
            next: None,
            looked: None,
        };
        statements.nodes.entry(part.id).or_default().set_attempt(attempt, true);
        statements
    }

    /// All members have agreed on these attempts: from now on no other ones count.
    pub(crate) fn agree(&mut self, attempts: &[u64]) {
        self.are_agreed = true;
        for (node, &attempt) in attempts.iter().enumerate() {
            self.nodes.entry(node.into()).or_default().set_attempt(attempt, true);
        }
        // It is an earlier one if the program was started again while the others agreed.
        self.attempt = attempts.get(self.me.index()).copied().unwrap_or(self.attempt);
    }

    /// Forgets a neighbour whose program was started again before the run began.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.nodes.insert(node, OfNode::default());
    }

    /// This node says something.
    pub(crate) fn say(&mut self, said: Said) {
        let (node, known) = (self.me, self.nodes.entry(self.me).or_default());
        if !known.is_news(&said) {
            return;
        }
        let signer = (node, self.numbers[node.index()]);
        let statement =
            Statement::signed(&*self.keys, signer, (self.membership, self.attempt), said);
        self.number += 1;
        known.retain(self.number, statement, self.round);
        self.is_new = true;
    }

    /// Takes the statements that a neighbour brings.
    ///
    /// # Errors
    /// If the neighbour has broken the protocol, or another one is proved to.
    pub(crate) fn hear(&mut self, from: NodeId, all: Vec<Statement>) -> Result<(), Failure> {
        let mut counts: LiteMap<NodeId, usize> = LiteMap::new();
        for statement in all {
            let count = counts.entry(statement.node).or_default();
            *count += 1;
            if *count > MOST_SHARED + OTHER_KINDS || !self.is_possible(&statement) {
                let reason = "it passes on a statement that no node of this run makes".into();
                return Err(Failure::Peer { peer: from, reason });
            }
            self.take(from, statement)?;
        }
        Ok(())
    }

    /// Whether a node of this run can say so.
    fn is_possible(&self, statement: &Statement) -> bool {
        let Statement { node, said, signature, .. } = statement;
        let says = match said {
            Said::Shared(vector) => {
                vector.round < self.rounds
                    && is_shared_round(vector.round)
                    && self.flights.contains(&vector.flight)
            }
            Said::Saved(rounds) => *rounds <= self.rounds,
            Said::Schedule(CheckpointSchedule { next, common, .. }) => {
                *node == NodeId(0) && *next.max(common) <= self.rounds
            }
            Said::Written(_) => true,
        };
        says && node.index() < self.numbers.len() && signature.len() <= keys::LONGEST
    }

    fn take(&mut self, from: NodeId, statement: Statement) -> Result<(), Failure> {
        let Statement { node, attempt, said, ref signature } = statement;
        if node == self.me {
            return Ok(());
        }
        let (is_direct, known) = (node == from, self.nodes.entry(node).or_default());
        if !known.accepts(attempt, is_direct && !self.are_agreed) {
            return Ok(());
        }
        let is_same = known.attempt.is_some_and(|known| known.number == attempt);
        if is_same && !known.is_news(&said) {
            return Ok(());
        }
        let number = self.numbers[node.index()];
        let bytes = signed_bytes(number, self.membership, attempt, &said);
        if !self.keys.verify(number, &bytes, signature) {
            let reason = format!("it passes on what node {number} has not signed");
            return Err(Failure::Peer { peer: from, reason });
        }
        let is_fixed = is_direct || known.is_fixed();
        known.set_attempt(attempt, is_fixed);
        self.number += 1;
        known.retain(self.number, statement, self.round);
        self.is_new = true;
        self.compare(node)
    }

    /// This node has a copy of a neighbour's vector.
    ///
    /// # Errors
    /// If the neighbour has signed another one for its neighbours.
    pub(crate) fn see(&mut self, of: NodeId, vector: Shared) -> Result<(), Failure> {
        let known = self.nodes.entry(of).or_default();
        if known.seen.len() == MOST_SEEN {
            known.seen.pop_front();
        }
        known.seen.push_back(Seen { vector, waited: Duration::ZERO });
        known.last = known.last.max(Some(vector.place()));
        self.compare(of)
    }

    /// Compares what a neighbour says of its vectors with what it has sent.
    fn compare(&mut self, node: NodeId) -> Result<(), Failure> {
        let known = self.nodes.entry(node).or_default();
        // Until its attempt is known, what others pass on may be of another one.
        if !self.neighbours.contains(&node) || !known.is_fixed() {
            return Ok(());
        }
        let failed = |reason: String| Err(Failure::Peer { peer: node, reason });
        let is_pair = |pair: &&[(u64, Shared, Statement)]| pair[0].1.place() == pair[1].1.place();
        if let Some(pair) = known.frames.windows(2).find(is_pair) {
            let round = pair[0].1.round;
            return failed(format!("after round {round} it has signed two different vectors"));
        }
        for Seen { vector, .. } in &known.seen {
            if known.signed(vector.place()).any(|said| said.fingerprint != vector.fingerprint) {
                let round = vector.round;
                return failed(format!(
                    "after round {round} its vector here is not the one that it has signed for \
                     all its neighbours"
                ));
            }
        }
        let mut seen = std::mem::take(&mut known.seen);
        seen.retain(|seen| known.signed(seen.vector.place()).next().is_none());
        known.seen = seen;
        Ok(())
    }

    /// Upon a tick in this round: a neighbour that has not said for so long what it has in common
    /// with its neighbours, while its frames went on. The links to the neighbours `lost` are down.
    pub(crate) fn late(
        &mut self,
        now: Instant,
        round: u64,
        lost: &BTreeSet<NodeId>,
        patience: Duration,
    ) -> Option<NodeId> {
        self.round = round;
        let since = now.saturating_duration_since(*self.looked.get_or_insert(now));
        self.looked = Some(now);
        let since = since.min(LONGEST_TICK);
        let mut late = None;
        for (node, known) in self.nodes.iter_mut().filter(|_| self.is_synchronous) {
            let oldest = known.oldest_of_many();
            known.seen.retain(|seen| oldest.is_none_or(|oldest| seen.vector.place() >= oldest));
            let last = known.last;
            for seen in &mut known.seen {
                seen.waited = match lost.contains(node) {
                    true => Duration::ZERO,
                    false => seen.waited + since,
                };
                let goes_on = last > Some(seen.vector.place());
                late = late.or((goes_on && seen.waited >= patience).then_some(*node));
            }
        }
        late
    }

    /// Tells the neighbours what is new, unless they were told a moment ago.
    pub(crate) fn tell(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.is_new && self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + PAUSE);
            self.tell_now(out);
        }
    }

    /// Tells the neighbours what is new.
    pub(crate) fn tell_now(&mut self, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.is_new) {
            let mut all: Vec<_> = self.nodes.values().flat_map(OfNode::all).collect();
            all.sort_unstable_by_key(|(number, _)| *number);
            out.push(Effect::Tell(Arc::new(all)));
        }
    }

    /// The rounds of the newest checkpoint that a node has reported.
    pub(crate) fn saved(&self, node: NodeId) -> Option<u64> {
        self.find(node, |said| match said {
            Said::Saved(rounds) => Some(*rounds),
            _ => None,
        })
    }

    /// The newest schedule of checkpoints.
    pub(crate) fn schedule(&self) -> Option<CheckpointSchedule> {
        self.find(NodeId(0), |said| match said {
            Said::Schedule(schedule) => Some(*schedule),
            _ => None,
        })
    }

    /// The number of the results that a node has written.
    pub(crate) fn written(&self, node: NodeId) -> Option<u64> {
        self.find(node, |said| match said {
            Said::Written(number) => Some(*number),
            _ => None,
        })
    }

    fn find<T>(&self, node: NodeId, what: impl Fn(&Said) -> Option<T>) -> Option<T> {
        self.nodes.get(&node)?.others.iter().find_map(|(_, statement)| what(&statement.said))
    }
}

impl OfNode {
    fn is_fixed(&self) -> bool {
        self.attempt.is_some_and(|attempt| attempt.is_fixed)
    }

    /// Whether a statement of this attempt may count.
    fn accepts(&self, attempt: u64, is_direct: bool) -> bool {
        self.attempt.is_none_or(|known| match known.is_fixed {
            true => known.number == attempt,
            false => is_direct || attempt >= known.number,
        })
    }

    /// What the node has said in other attempts no longer counts.
    fn set_attempt(&mut self, number: u64, is_fixed: bool) {
        self.frames.retain(|(.., statement)| statement.attempt == number);
        self.others.retain(|(_, statement)| statement.attempt == number);
        self.attempt = Some(Attempt { number, is_fixed });
    }

    /// All that is retained.
    fn all(&self) -> impl Iterator<Item = (u64, Statement)> {
        let frames = self.frames.iter().map(|(number, _, statement)| (*number, statement.clone()));
        frames.chain(self.others.iter().cloned())
    }

    /// The vectors that it has signed for this frame.
    fn signed(&self, place: (u64, u8)) -> impl Iterator<Item = &Shared> {
        self.frames.iter().map(|(_, vector, _)| vector).filter(move |one| one.place() == place)
    }

    /// Whether this says more than what is retained.
    fn is_news(&self, said: &Said) -> bool {
        let is_new = |known: &Said| match (known, said) {
            (Said::Saved(known), Said::Saved(new)) => new > known,
            (Said::Schedule(known), Said::Schedule(new)) => new.number > known.number,
            (Said::Written(_), Said::Written(_)) => false,
            _ => true,
        };
        match said {
            // Two different ones are a proof.
            Said::Shared(new) => {
                let is_other = |one: &Shared| one.fingerprint != new.fingerprint;
                self.signed(new.place()).count() < 2 && self.signed(new.place()).all(is_other)
            }
            _ => self.others.iter().all(|(_, statement)| is_new(&statement.said)),
        }
    }

    /// Retains a statement that is news at a node in this round.
    fn retain(&mut self, number: u64, statement: Statement, round: u64) {
        let Said::Shared(new) = statement.said else {
            let kind = std::mem::discriminant(&statement.said);
            self.others.retain(|(_, other)| std::mem::discriminant(&other.said) != kind);
            return self.others.push((number, statement));
        };
        let at = self.frames.partition_point(|(_, vector, _)| vector.place() <= new.place());
        self.frames.insert(at, (number, new, statement));
        if self.frames.len() > MOST_SHARED {
            // What is far ahead of this node must not take the place of what it compares.
            let ahead = round.saturating_add(2 * SHARED_EVERY);
            match self.frames.last().is_some_and(|(_, vector, _)| vector.round > ahead) {
                true => drop(self.frames.pop()),
                false => drop(self.frames.remove(0)),
            }
        }
    }

    /// The frame of its oldest statement about frames, if there are so many that older ones may
    /// have been dropped.
    fn oldest_of_many(&self) -> Option<(u64, u8)> {
        let oldest = self.frames.first().map(|(_, vector, _)| vector.place());
        oldest.filter(|_| self.frames.len() == MOST_SHARED)
    }
}
