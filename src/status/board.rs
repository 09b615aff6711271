//! The newest record of each node, signed by it.
//!
//! * Upon a record of its own: the node numbers it, signs it and retains it.
//! * Upon a record that a neighbour passes on: it is retained if it is newer than the known one, if
//!   its node has signed it, and if it keeps the limits of a record.
//! * Upon a record of its own that is newer than what it has said, from before it was started
//!   again: it numbers what it says next above it.
//! * Upon a record that its node has not signed, or that breaks a limit: nothing more is heard from
//!   the neighbour that has passed it on, on this connection. It costs nobody else anything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use litemap::LiteMap;
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::record::{LONGEST, Record};
use crate::{
    cluster::members::keys::{Keys, Named},
    units::NodeId,
};

/// What all signed records begin with.
const PREFIX: &[u8] = b"gradvine status\0";

/// The longest signature, in bytes.
const SIGNATURE: usize = 96;

/// The bytes of records in one message, at most; the others follow in the next one.
const MESSAGE: usize = 256 << 10;

/// A record on its way: who has said it, how old it is, its bytes and their signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// The node, by its number in the topology of the run.
    pub node: NodeId,
    /// Its age when it was passed on, in milliseconds.
    pub age_ms: u64,
    /// The encoded record.
    pub record: Vec<u8>,
    /// The signature of the node.
    pub signature: Vec<u8>,
}

/// A record that cannot be of the node that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forged {
    pub node: NodeId,
    pub problem: &'static str,
}

/// A record that is known, and when it was made as far as this node can tell.
#[derive(Clone, Debug)]
pub struct Heard {
    /// What the node has said; of this node also what it does not share.
    pub record: Record,
    /// When it has said so, by the clock of this node.
    pub at: Instant,
    bytes: Arc<[u8]>,
    signature: Arc<[u8]>,
}

/// The newest records of all nodes, shared by the threads of one.
#[derive(Debug)]
pub struct Board {
    me: NodeId,
    nodes: usize,
    keys: Arc<dyn Keys>,
    /// Whether others are told more than for whom this node waits.
    shares: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    records: LiteMap<NodeId, Heard>,
    /// The rounds before the last evaluation, and its figures.
    evaluated: Option<(u64, BTreeMap<String, f64>)>,
    /// The number of its newest own record, from this program or one before it.
    number: u64,
}

fn layout() -> Configuration<LittleEndian, Fixint, Limit<LONGEST>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<LONGEST>()
}

fn statement(bytes: &[u8]) -> Vec<u8> {
    [PREFIX, bytes].concat()
}

/// The time in UTC, such as `2026-01-02T03:04:05Z`.
pub fn utc() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_default()
}

/// Milliseconds since 1970.
pub(crate) fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

impl Board {
    /// The board of a node in a run of so many nodes.
    pub(crate) fn new(me: NodeId, nodes: usize, keys: Arc<dyn Keys>) -> Board {
        Board { me, nodes, keys, shares: AtomicBool::new(true), known: Mutex::default() }
    }

    /// The board of a node whose neighbours are in the same process: nobody can forge a record.
    pub fn of_one_process(me: NodeId, nodes: usize) -> Board {
        Board::new(me, nodes, Arc::new(Named(me)))
    }

    /// This node, by its number in the topology of the run.
    pub fn node(&self) -> NodeId {
        self.me
    }

    /// Others are told only where this node is in the run, and for whom it waits.
    pub(crate) fn set_terse(&self) {
        self.shares.store(false, Ordering::Relaxed);
    }

    /// This node says this about itself now. Its number is set here.
    pub fn say(&self, now: Instant, mut record: Record) {
        let mut known = self.lock();
        if let Some((rounds, figures)) = &known.evaluated {
            (record.evaluated, record.measures) = (Some(*rounds), figures.clone());
        }
        record.fit();
        record.number = clock().max(known.number.saturating_add(1));
        let encode = |record: &Record| {
            let bytes = bincode::serde::encode_to_vec(record, layout()).ok();
            bytes.filter(|bytes| bytes.len() <= LONGEST)
        };
        let mut shared = match self.shares.load(Ordering::Relaxed) {
            true => record.clone(),
            false => record.clone().terse(),
        };
        let mut bytes = encode(&shared);
        if bytes.is_none() {
            // Of many links the texts are too long.
            shared.links.iter_mut().for_each(|link| link.reason.clear());
            bytes = encode(&shared);
        }
        if bytes.is_none() {
            shared.links.clear();
            bytes = encode(&shared);
        }
        let Some(bytes) = bytes else { return };
        known.number = record.number;
        let signature = self.keys.sign(&statement(&bytes)).into();
        known.records.insert(self.me, Heard { record, at: now, bytes: bytes.into(), signature });
    }

    /// Says once more what this node has said last, if that is so old, with a change.
    pub(crate) fn repeat(
        &self,
        now: Instant,
        after: Duration,
        change: impl FnOnce(&mut Record, Duration),
    ) {
        let Some(Heard { mut record, at, .. }) = self.of(self.me) else { return };
        let age = now.saturating_duration_since(at);
        if age >= after {
            change(&mut record, age);
            self.say(now, record);
        }
    }

    /// The figures of this node's evaluation after so many rounds, for its next records.
    pub(crate) fn evaluated(&self, rounds: u64, figures: BTreeMap<String, f64>) {
        self.lock().evaluated = Some((rounds, figures));
    }

    /// Takes records that a neighbour passes on.
    ///
    /// # Errors
    /// The first one that its node has not said so; those before it are taken.
    pub(crate) fn hear(&self, now: Instant, passed: Vec<Passed>) -> Result<(), Forged> {
        if let Some(pair) = passed.windows(2).find(|pair| pair[0].node >= pair[1].node) {
            // So a message costs one check of a signature for each node, at the most.
            return Err(Forged { node: pair[1].node, problem: "each node has one, in order" });
        }
        for Passed { node, age_ms, record: bytes, signature } in passed {
            let forged = |problem| Forged { node, problem };
            if node.index() >= self.nodes {
                return Err(forged("no node has this number"));
            }
            if bytes.len() > LONGEST || signature.len() > SIGNATURE {
                return Err(forged("it is longer than a record may be"));
            }
            // The number is the first field.
            let number = bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
            let newest = {
                let known = self.lock();
                let said = known.records.get(&node).map_or(0, |heard| heard.record.number);
                if node == self.me { said.max(known.number) } else { said }
            };
            if number <= newest {
                continue;
            }
            // Not under the lock: it takes as long as all the rest together.
            if !self.keys.verify(node, &statement(&bytes), &signature) {
                return Err(forged("it is not signed by that node"));
            }
            let (record, used): (Record, usize) =
                bincode::serde::decode_from_slice(&bytes, layout())
                    .map_err(|_| forged("it does not decode"))?;
            if used != bytes.len() || !record.is_valid(self.nodes) {
                return Err(forged("it says what no record may say"));
            }
            let mut known = self.lock();
            if node == self.me {
                known.number = known.number.max(record.number);
                continue;
            }
            let age = Duration::from_millis(age_ms);
            let at = now.checked_sub(age).unwrap_or(now);
            let is_newest =
                known.records.get(&node).is_none_or(|heard| heard.record.number < record.number);
            if is_newest {
                let (bytes, signature) = (bytes.into(), signature.into());
                known.records.insert(node, Heard { record, at, bytes, signature });
            }
        }
        Ok(())
    }

    /// Records that are newer than those in `sent`, as many as one message may have; they are added
    /// to it.
    pub fn news(&self, now: Instant, sent: &mut LiteMap<NodeId, u64>) -> Vec<Passed> {
        let known = self.lock();
        let (mut news, mut length) = (Vec::new(), 0);
        for (node, heard) in &known.records {
            let number = heard.record.number;
            if sent.get(node) >= Some(&number) {
                continue;
            }
            length += heard.bytes.len();
            if length > MESSAGE {
                break;
            }
            sent.insert(*node, number);
            let age = now.saturating_duration_since(heard.at);
            news.push(Passed {
                node: *node,
                age_ms: age.as_millis() as u64,
                record: heard.bytes.to_vec(),
                signature: heard.signature.to_vec(),
            });
        }
        news
    }

    /// Takes what another board has, as over a link.
    pub fn take(&self, now: Instant, other: &Board) {
        let news = other.news(now, &mut LiteMap::new());
        // What is refused is not taken.
        let _ = self.hear(now, news);
    }

    /// The newest record of a node.
    pub fn of(&self, node: NodeId) -> Option<Heard> {
        self.lock().records.get(&node).cloned()
    }

    /// Calls `see` with the newest record of each node from which there is one.
    pub fn each(&self, mut see: impl FnMut(NodeId, &Heard)) {
        self.lock().records.iter().for_each(|(node, heard)| see(*node, heard));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::State;

    fn board(me: u32) -> Board {
        Board::new(NodeId(me), 4, Arc::new(Named(NodeId(me))))
    }

    fn said(round: u64) -> Record {
        Record { round, state: State::Computing, ..Record::default() }
    }

    fn round_of(board: &Board, node: u32) -> Option<u64> {
        board.of(NodeId(node)).map(|heard| heard.record.round)
    }

    #[test]
    fn a_record_goes_from_node_to_node_once_and_keeps_its_age() {
        let [a, b, c] = [0, 1, 2].map(board);
        let now = Instant::now();
        a.say(now, said(5));
        let (mut sent, mut further) = (LiteMap::new(), LiteMap::new());
        let later = now + Duration::from_secs(3);
        b.hear(later, a.news(later, &mut sent)).unwrap();
        assert!(a.news(later, &mut sent).is_empty());
        c.hear(later, b.news(later, &mut further)).unwrap();
        assert_eq!((round_of(&c, 0), round_of(&c, 1)), (Some(5), None));
        let age = later - c.of(NodeId(0)).unwrap().at;
        assert!((2999..=3000).contains(&age.as_millis()), "{age:?}");
        // An older one changes nothing.
        let old = b.news(later, &mut LiteMap::new());
        a.say(later, said(6));
        c.hear(later, a.news(later, &mut sent)).unwrap();
        c.hear(later, old).unwrap();
        assert_eq!(round_of(&c, 0), Some(6));
    }

    #[test]
    fn what_a_node_has_not_signed_is_refused_and_named() {
        let [a, b] = [0, 1].map(board);
        let now = Instant::now();
        a.say(now, said(5));
        let news = a.news(now, &mut LiteMap::new());
        let refused = |change: &dyn Fn(&mut Passed)| {
            let mut forged = news.clone();
            change(&mut forged[0]);
            b.hear(now, forged).unwrap_err().problem
        };
        assert_eq!(refused(&|one| one.record[9] ^= 1), "it is not signed by that node");
        assert_eq!(refused(&|one| one.node = NodeId(2)), "it is not signed by that node");
        assert_eq!(refused(&|one| one.node = NodeId(4)), "no node has this number");
        let twice = [news.clone(), news.clone()].concat();
        assert_eq!(b.hear(now, twice).unwrap_err().problem, "each node has one, in order");
        let long = |one: &mut Passed| one.record.resize(LONGEST + 1, 0);
        assert_eq!(refused(&long), "it is longer than a record may be");
        // Signed by its node, but not a record.
        let sign = |one: &mut Passed, bytes: Vec<u8>| {
            one.signature = Named(NodeId(0)).sign(&statement(&bytes));
            one.record = bytes;
        };
        assert_eq!(refused(&|one| sign(one, vec![9; 12])), "it does not decode");
        let strange = Record { number: 9, waits_for: vec![NodeId(7)], ..Record::default() };
        let strange = bincode::serde::encode_to_vec(&strange, layout()).unwrap();
        let problem = refused(&|one| sign(one, strange.clone()));
        assert_eq!(problem, "it says what no record may say");
        assert_eq!(round_of(&b, 0), None);
    }

    #[test]
    fn a_node_that_was_started_again_with_a_slow_clock_is_heard() {
        let [before, other] = [0, 1].map(board);
        let now = Instant::now();
        before.lock().number = clock() + 3_600_000;
        before.say(now, said(5));
        other.hear(now, before.news(now, &mut LiteMap::new())).unwrap();
        let again = board(0);
        again.say(now, said(6));
        let mut sent = LiteMap::new();
        other.hear(now, again.news(now, &mut sent)).unwrap();
        assert_eq!(round_of(&other, 0), Some(5));
        again.hear(now, other.news(now, &mut LiteMap::new())).unwrap();
        assert_eq!(round_of(&again, 0), Some(6), "what it says itself counts");
        again.say(now, said(7));
        other.hear(now, again.news(now, &mut sent)).unwrap();
        assert_eq!(round_of(&other, 0), Some(7));
    }

    #[test]
    fn the_longest_record_fits_and_long_texts_are_cut() {
        let a = Board::new(NodeId(0), 200, Arc::new(Named(NodeId(0))));
        let long = "x".repeat(5000);
        let link = |to: u32| crate::status::LinkRecord {
            to: NodeId(to),
            reason: long.clone(),
            ..Default::default()
        };
        let record = Record {
            links: (0..199).map(link).collect(),
            warnings: vec![long.clone(); 9],
            reason: long.clone(),
            measures: (0..40).map(|i| (format!("m{i}"), f64::from(i))).collect(),
            loss: Some(f64::NAN),
            ..Record::default()
        };
        let now = Instant::now();
        a.say(now, record);
        let b = Board::new(NodeId(1), 200, Arc::new(Named(NodeId(1))));
        b.hear(now, a.news(now, &mut LiteMap::new())).unwrap();
        let heard = b.of(NodeId(0)).unwrap().record;
        assert_eq!((heard.warnings.len(), heard.measures.len(), heard.loss), (4, 16, None));
        assert_eq!(heard.links.len(), 199);
    }
}
