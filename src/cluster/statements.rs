//! What a node says to all others while a run lasts: signed statements, which all nodes pass on.
//!
//! * Upon something that this node has to say: it signs that, together with the membership and its
//!   attempt at the run, and tells its neighbours.
//! * Upon the statements that a neighbour brings: this node checks the signature of each that is
//!   news, retains it, and tells its neighbours. Of each kind the newest one of a node counts.
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
//! So a statement counts in one attempt only: in the newest one of which its node has signed a
//! [`Report`]. A node takes a greater number for its attempt if it hears that its program before
//! has signed in a later one: its clock was put back. Two programs never have the same number,
//! because [a part of it](next_attempt) is random: their reports would seem a contradiction.
//!
//! **Before the rounds** each node signs its report, and once its links are up the attempts of its
//! neighbours. The run begins where [`Gathered`] says, once all have done so and the attempts of
//! both ends of each link agree. So nobody begins by a report from an earlier attempt, whoever
//! passes it on. A node that begins signs where. Two different reports of one attempt prove that
//! their node is at fault.
//!
//! Memory and work are bounded for each signer: this node retains one statement of each kind and
//! [`MOST_SHARED`] about frames, and takes no more than that in one message.

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use super::{
    begin::reports::{Gathered, Report, is_history},
    members::keys::{self, Keys},
    message::{CheckpointSchedule, History, Origin, Saved},
    part::Part,
};
use crate::{
    drive::Change,
    gossip::{
        Failure, SHARED_EVERY, is_shared_round,
        plan::{self, Plan},
    },
    mixing::Topology,
    units::NodeId,
};

/// The statements about frames that are retained of one node.
const MOST_SHARED: usize = 32;

/// The other statements that are retained of one node: one of each kind, and a second report and
/// initial model.
const MOST_OTHERS: usize = 9;

/// The vectors of a neighbour that wait for its statements.
const MOST_SEEN: usize = 64;

/// The statements in one message: the others follow in the next one.
pub(crate) const MOST_IN_MESSAGE: usize = 1000;

/// About how many bytes a message has at the most, unless one statement needs more.
const MOST_BYTES: usize = 1 << 19;

/// How often a node passes on what others have said.
const PAUSE: Duration = Duration::from_millis(100);

/// The time that counts between two ticks: a process that was held up has not waited.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// How many bits of an attempt's number are those of a random one.
const RANDOM_BITS: u32 = 16;

/// The number of the attempt after `before`, from the milliseconds since 1970 and from a random
/// number of this program.
pub(crate) fn next_attempt(before: u64, clock_ms: u64, random: u64) -> u64 {
    let (most, mask) = (u64::MAX >> RANDOM_BITS, (1 << RANDOM_BITS) - 1);
    let when = (before >> RANDOM_BITS).saturating_add(1).max(clock_ms).min(most);
    when << RANDOM_BITS | random & mask
}

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

/// The links of a node before the rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// A greater number is newer.
    pub number: u64,
    /// The attempts of its neighbours, in the order of the topology; `None` without a link.
    pub attempts: Vec<Option<u64>>,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// Which checkpoints it has at the beginning of the attempt.
    Report(Report),
    /// With which neighbours it is linked.
    Links(Links),
    /// It begins or continues at the place with this digest.
    Begins(u64),
    /// The initial model that nodes have given came to it with this fingerprint.
    Initial([u8; 16]),
    /// All its neighbours have a copy of this vector.
    Shared(Shared),
    /// Its checkpoint after this many rounds is durable.
    Saved(u64),
    /// After which round the next checkpoint is written.
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

/// Statements on their way to a neighbour, and what their reports refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The changes of the members before the checkpoints of these reports.
    pub histories: Vec<Vec<Change>>,
    /// What nodes say.
    pub statements: Vec<Statement>,
}

impl From<Vec<Statement>> for Batch {
    fn from(statements: Vec<Statement>) -> Batch {
        Batch { histories: Vec::new(), statements }
    }
}

/// All that a node retains.
#[derive(Debug, Default)]
pub(crate) struct All {
    /// Each statement has a number: one that was retained later has a greater number, so a link
    /// knows which ones its neighbour lacks.
    pub statements: Vec<(u64, Arc<Statement>)>,
    /// What their reports refer to.
    pub histories: Vec<History>,
}

pub(crate) type Retained = Arc<All>;

/// The statements with greater numbers than `sent`, which is brought up to date: as many as one
/// message may have. `None` if there are none.
pub(crate) fn news(all: &All, sent: &mut u64) -> Option<Batch> {
    let first = all.statements.partition_point(|(number, _)| number <= sent);
    let (mut batch, mut bytes) = (Batch::default(), 0);
    for (number, statement) in all.statements[first..].iter().take(MOST_IN_MESSAGE) {
        let mut length = 256;
        match &statement.said {
            Said::Report(report) => {
                length += 24 * report.kept.len();
                let is_new = |history: &&History| !batch.histories.contains(*history);
                if let Some(history) = report.history(&all.histories).filter(is_new) {
                    length += history.iter().map(Change::length).sum::<usize>();
                    batch.histories.push(history.to_vec());
                }
            }
            Said::Links(links) => length += 9 * links.attempts.len(),
            _ => {}
        }
        batch.statements.push(Statement::clone(statement));
        (bytes, *sent) = (bytes + length, *number);
        if bytes >= MOST_BYTES {
            break;
        }
    }
    (!batch.statements.is_empty()).then_some(batch)
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
    attempt: Option<u64>,
    /// What it says about frames, in their order, and the newest of each other kind.
    frames: Vec<(u64, Shared, Arc<Statement>)>,
    others: Vec<(u64, Arc<Statement>)>,
    /// Vectors that this node got from it, and the last frame of them.
    seen: VecDeque<Seen>,
    last: Option<(u64, u8)>,
    /// Whether this neighbour has said that it is linked, since it is; and for how long in all it
    /// has not said so since then.
    has_said: bool,
    lacks: Duration,
}

/// The statements of all members, as one node knows them in one attempt.
#[derive(Debug)]
pub(crate) struct Statements {
    keys: Arc<dyn Keys>,
    me: NodeId,
    attempt: u64,
    /// Where the rounds have begun.
    begun: Option<u64>,
    membership: u64,
    /// The numbers of the members in the topology of the run.
    numbers: Vec<NodeId>,
    neighbours: Vec<NodeId>,
    /// How many nodes the run has.
    all: usize,
    /// What the reports refer to.
    histories: Vec<History>,
    /// The rounds of the run, and the flights whose vectors are compared.
    rounds: u64,
    flights: Vec<u8>,
    /// Whether no node is far ahead of its neighbours.
    is_synchronous: bool,
    /// The round of this node.
    round: u64,
    nodes: LiteMap<NodeId, OfNode>,
    /// Who has signed another report since the rounds have begun.
    reports: Option<NodeId>,
    /// The greatest number of a statement.
    number: u64,
    /// Whether something is to be told, and when it may be.
    is_new: bool,
    next: Option<Instant>,
    /// When this node has last looked for neighbours that are late, and for those that do not say
    /// that they are linked.
    looked: Option<Instant>,
    checked: Option<Instant>,
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
            begun: None,
            membership: part.membership.id,
            numbers: part.membership.members.clone(),
            neighbours: part.topology().neighbours(part.id).to_vec(),
            all: part.whole.topology.nodes(),
            histories: Vec::new(),
            rounds: design.experiment.run.rounds,
            flights: flights.filter(|flight| plan.is_compared(*flight)).collect(),
            is_synchronous: !plan::is_asynchronous(plan),
            round: 0,
            nodes: LiteMap::new(),
            reports: None,
            number: 0,
            is_new: false,
            next: None,
            looked: None,
            checked: None,
        };
        statements.nodes.entry(part.id).or_default().attempt = Some(attempt);
        statements
    }

    /// This node reports its checkpoints. `because`: which node was the first to begin again;
    /// `guards`: whether it looks for a neighbour because of which models diverge.
    pub(crate) fn report(&mut self, saved: Saved, because: Origin, guards: bool) {
        let Saved { kept, common, history } = saved;
        self.histories.push(Arc::new(history));
        self.say(Said::Report(Report { kept, common, because, guards }));
    }

    /// This node says with whom it is linked, if that is news: with all neighbours but the
    /// `missing`. Without `is_due` it does so only if it is linked with all, or was.
    pub(crate) fn link(&mut self, missing: &BTreeSet<NodeId>, is_due: bool) {
        let attempt = |peer: &NodeId| match missing.contains(peer) {
            true => None,
            false => self.report_of(*peer).and_then(|_| self.nodes.get(peer)?.attempt),
        };
        let attempts: Vec<Option<u64>> = self.neighbours.iter().map(attempt).collect();
        let are_all = |attempts: &[Option<u64>]| attempts.iter().all(Option::is_some);
        let before = self.links_of(self.me);
        let is_news = before.is_none_or(|before| before.attempts != attempts);
        let was_linked = before.is_some_and(|before| are_all(&before.attempts));
        if is_news && (is_due || was_linked || are_all(&attempts)) {
            let number = before.map_or(0, |before| before.number) + 1;
            self.say(Said::Links(Links { number, attempts }));
        }
    }

    /// What all members have reported, once each is linked with all its neighbours in this
    /// topology, and the attempts of both ends of each link agree.
    pub(crate) fn gathered(&self, topology: &Topology) -> Option<Gathered<'_>> {
        let all = || (0..self.numbers.len()).map(NodeId::from);
        let attempt = |node: NodeId| self.nodes.get(&node).and_then(|known| known.attempt);
        let is_linked = |node: NodeId| {
            let named = self.links_of(node).into_iter().flat_map(|links| &links.attempts);
            topology.neighbours(node).iter().map(|peer| attempt(*peer)).eq(named.copied())
        };
        let reports = all().map(|node| self.report_of(node)).collect::<Option<Vec<_>>>()?;
        // In the rounds the links are up, or have deadlines of their own.
        let are_linked = self.begun.is_some() || all().all(is_linked);
        let attempts = all().map(attempt).collect::<Option<Vec<_>>>().filter(|_| are_linked)?;
        Some(Gathered { reports, histories: &self.histories, attempts })
    }

    /// The rounds begin at the place with this digest: this node says so.
    pub(crate) fn begin(&mut self, place: u64) {
        self.begun = Some(place);
        self.say(Said::Begins(place));
    }

    /// Whether the rounds of this node have begun at the place with this digest.
    pub(crate) fn has_begun_at(&self, place: u64) -> bool {
        self.begun == Some(place)
    }

    /// Whether a neighbour has begun where this node has.
    pub(crate) fn begins_here(&self, node: NodeId) -> bool {
        self.find(node, |said| match said {
            Said::Begins(place) => Some(self.has_begun_at(*place)),
            _ => None,
        }) == Some(true)
    }

    /// A node that has signed another report since this was asked last, in the rounds.
    pub(crate) fn take_report(&mut self) -> Option<NodeId> {
        self.reports.take()
    }

    /// The report of a node, unless it has signed two different ones.
    pub(crate) fn report_of(&self, node: NodeId) -> Option<&Report> {
        let mut reports = self.nodes.get(&node)?.reports();
        reports.next().filter(|_| reports.next().is_none())
    }

    /// What a node says of its links.
    pub(crate) fn links_of(&self, node: NodeId) -> Option<&Links> {
        let mut others = self.nodes.get(&node)?.others.iter();
        others.find_map(|(_, statement)| match &statement.said {
            Said::Links(links) => Some(links),
            _ => None,
        })
    }

    /// Whether a neighbour has said which checkpoints it has, and that it is linked with this node.
    fn says_links(&self, peer: NodeId, topology: &Topology) -> bool {
        let named = self.links_of(peer).into_iter().flat_map(|links| &links.attempts);
        let own = topology.neighbours(peer).iter().zip(named).find(|(node, _)| **node == self.me);
        self.report_of(peer).is_some() && own.is_some_and(|(_, own)| *own == Some(self.attempt))
    }

    /// Upon a tick: the neighbours that do not say that they are linked, and have not said so for
    /// so long since their links came up. An honest one does so a second after that, and never
    /// takes it back: one that does has half of the time, in all.
    pub(crate) fn lacking(
        &mut self,
        now: Instant,
        topology: &Topology,
        lost: &BTreeSet<NodeId>,
        most: Duration,
    ) -> Vec<NodeId> {
        let since = now.saturating_duration_since(*self.checked.get_or_insert(now));
        self.checked = Some(now);
        let mut lacking = Vec::new();
        for peer in self.neighbours.clone() {
            let (is_lost, says) = (lost.contains(&peer), self.says_links(peer, topology));
            let known = self.nodes.entry(peer).or_default();
            if is_lost || says && !known.has_said {
                (known.has_said, known.lacks) = (!is_lost, Duration::ZERO);
            } else if !says {
                known.lacks += since.min(LONGEST_TICK);
            }
            let most = if known.has_said { most / 2 } else { most };
            lacking.extend((!says && known.lacks >= most).then_some(peer));
        }
        lacking
    }

    /// The neighbours that have said that they are linked, and have taken it back since then.
    pub(crate) fn took_back(&self) -> Vec<NodeId> {
        let of = |peer: &&NodeId| self.nodes.get(*peer);
        let took_back = |known: &OfNode| known.has_said && !known.lacks.is_zero();
        self.neighbours.iter().filter(|peer| of(peer).is_some_and(took_back)).copied().collect()
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
    pub(crate) fn hear(&mut self, from: NodeId, batch: Batch) -> Result<(), Failure> {
        let failed = |reason: String| Err(Failure::Peer { peer: from, reason });
        let Batch { histories, statements } = batch;
        let is_possible =
            |history: &Vec<Change>| is_history(history, self.membership, self.rounds, self.all);
        if !histories.iter().all(is_possible) {
            return failed("it names changes of the members that this run cannot have had".into());
        }
        let histories: Vec<History> = histories.into_iter().map(Arc::new).collect();
        let mut counts: LiteMap<NodeId, usize> = LiteMap::new();
        for statement in statements {
            let count = counts.entry(statement.node).or_default();
            *count += 1;
            if *count > MOST_SHARED + MOST_OTHERS || !self.is_possible(&statement) {
                return failed("it passes on a statement that no node of this run makes".into());
            }
            self.take(statement, &histories)
                .map_err(|reason| Failure::Peer { peer: from, reason })?;
        }
        let heard: Vec<NodeId> = counts.keys().copied().collect();
        heard.into_iter().try_for_each(|node| self.compare(node))
    }

    /// Whether a node of this run can say so.
    fn is_possible(&self, statement: &Statement) -> bool {
        let Statement { node, said, signature, .. } = statement;
        let says = match said {
            Said::Report(report) => report.is_possible(self.membership, self.rounds),
            Said::Links(links) => links.attempts.len() < self.numbers.len(),
            Said::Shared(vector) => {
                vector.round < self.rounds
                    && is_shared_round(vector.round)
                    && self.flights.contains(&vector.flight)
            }
            Said::Saved(rounds) => *rounds <= self.rounds,
            Said::Schedule(schedule) => schedule.next <= self.rounds,
            Said::Begins(_) | Said::Initial(_) | Said::Written(_) => true,
        };
        says && node.index() < self.numbers.len() && signature.len() <= keys::LONGEST
    }

    /// # Errors
    /// Why the neighbour that brings it is at fault.
    fn take(&mut self, statement: Statement, histories: &[History]) -> Result<(), String> {
        let Statement { node, attempt, ref said, ref signature } = statement;
        let is_report = matches!(said, Said::Report(_));
        let known = self.nodes.entry(node).or_default();
        // Only a report begins another attempt, if there is one.
        let has_report = known.reports().next().is_some();
        let is_later = known.attempt.is_none_or(|known| attempt > known);
        let is_newer = match is_report {
            true => is_later || !has_report,
            false => is_later && !has_report,
        };
        let is_own = node == self.me;
        let is_first = is_report || matches!(said, Said::Links(_));
        let is_news = match is_own {
            true => is_newer && is_first && self.begun.is_none(),
            false => is_newer || (known.attempt == Some(attempt) && known.is_news(said)),
        };
        if !is_news {
            return Ok(());
        }
        let number = self.numbers[node.index()];
        let bytes = signed_bytes(number, self.membership, attempt, said);
        if !self.keys.verify(number, &bytes, signature) {
            return Err(format!("it passes on what node {number} has not signed"));
        }
        if is_own {
            self.renew(attempt);
            return Ok(());
        }
        if let Said::Report(report) = said
            && report.history(&self.histories).is_none()
        {
            let history = report.history(histories).ok_or_else(|| {
                format!(
                    "it reports checkpoints of node {number} without the changes of the members \
                     before them"
                )
            })?;
            self.histories.push(Arc::clone(history));
        }
        if is_report && self.begun.is_some() {
            self.reports = Some(node);
        }
        if is_newer {
            known.set_attempt(attempt);
        }
        self.number += 1;
        known.retain(self.number, statement, self.round);
        self.is_new = true;
        Ok(())
    }

    /// Says again what this node has said, in an attempt after this one.
    fn renew(&mut self, after: u64) {
        let known = self.nodes.entry(self.me).or_default();
        let report = known.reports().next().cloned();
        self.attempt = next_attempt(after, 0, self.attempt);
        known.set_attempt(self.attempt);
        report.into_iter().for_each(|report| self.say(Said::Report(report)));
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
        // Without its report, what others pass on may be of an earlier attempt.
        let reports = known.reports().count();
        if !self.neighbours.contains(&node) || reports == 0 {
            return Ok(());
        }
        let failed = |reason: String| Err(Failure::Peer { peer: node, reason });
        if reports > 1 {
            return failed("it has signed two different reports of its checkpoints".into());
        }
        if known.initials().count() > 1 {
            return failed("it has signed two different initial models".into());
        }
        let is_pair =
            |pair: &&[(u64, Shared, Arc<Statement>)]| pair[0].1.place() == pair[1].1.place();
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
        let mut seen = mem::take(&mut known.seen);
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

    /// What the neighbours must be told, if there is news and they were not told a moment ago.
    pub(crate) fn tell(&mut self, now: Instant) -> Option<Retained> {
        let is_due = self.is_new && self.next.is_none_or(|next| now >= next);
        if is_due {
            self.next = Some(now + PAUSE);
        }
        is_due.then(|| self.tell_now()).flatten()
    }

    /// What the neighbours must be told, if there is news.
    pub(crate) fn tell_now(&mut self) -> Option<Retained> {
        mem::take(&mut self.is_new).then(|| {
            let of_node = |known: &OfNode| known.reports().cloned().collect::<Vec<_>>();
            let reports: Vec<Report> = self.nodes.values().flat_map(of_node).collect();
            self.histories.retain(|history| {
                reports.iter().any(|report| !report.kept.is_empty() && report.fits(history))
            });
            let mut statements: Vec<_> = self.nodes.values().flat_map(OfNode::all).collect();
            statements.sort_unstable_by_key(|(number, _)| *number);
            Arc::new(All { statements, histories: self.histories.clone() })
        })
    }

    /// The rounds of the newest checkpoint that a node has reported.
    pub(crate) fn saved(&self, node: NodeId) -> Option<u64> {
        self.find(node, |said| match said {
            Said::Saved(rounds) => Some(*rounds),
            _ => None,
        })
    }

    /// The newest schedule of checkpoints of a node.
    pub(crate) fn schedule(&self, node: NodeId) -> Option<CheckpointSchedule> {
        self.find(node, |said| match said {
            Said::Schedule(schedule) => Some(*schedule),
            _ => None,
        })
    }

    /// The fingerprint of the initial model that came to a node.
    pub(crate) fn initial(&self, node: NodeId) -> Option<[u8; 16]> {
        self.nodes.get(&node)?.initials().next().copied()
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
    /// What it has signed about its checkpoints: two different reports are a proof.
    fn reports(&self) -> impl Iterator<Item = &Report> {
        self.others.iter().filter_map(|(_, statement)| match &statement.said {
            Said::Report(report) => Some(report),
            _ => None,
        })
    }

    /// The initial models that it has signed: two different ones are a proof.
    fn initials(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.others.iter().filter_map(|(_, statement)| match &statement.said {
            Said::Initial(fingerprint) => Some(fingerprint),
            _ => None,
        })
    }

    /// What the node has said in other attempts no longer counts.
    fn set_attempt(&mut self, number: u64) {
        self.attempt = Some(number);
        self.frames.clear();
        self.others.clear();
    }

    /// All that is retained.
    fn all(&self) -> impl Iterator<Item = (u64, Arc<Statement>)> {
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
            (Said::Links(known), Said::Links(new)) => new.number > known.number,
            (Said::Written(_), Said::Written(_)) | (Said::Begins(_), Said::Begins(_)) => false,
            _ => true,
        };
        match said {
            Said::Report(new) => self.reports().count() < 2 && self.reports().all(|one| one != new),
            // Two different ones are a proof.
            Said::Initial(new) => {
                self.initials().count() < 2 && self.initials().all(|one| one != new)
            }
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
            let kind = mem::discriminant(&statement.said);
            if !matches!(statement.said, Said::Report(_) | Said::Initial(_)) {
                self.others.retain(|(_, other)| mem::discriminant(&other.said) != kind);
            }
            return self.others.push((number, Arc::new(statement)));
        };
        let at = self.frames.partition_point(|(_, vector, _)| vector.place() <= new.place());
        self.frames.insert(at, (number, new, Arc::new(statement)));
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
