//! One node's words about itself, and their limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{printable::shorten, units::NodeId};

/// The longest encoded record, in bytes.
pub(crate) const LONGEST: usize = 16 << 10;

/// The longest text, in characters, and how many warnings and measures a record has.
const TEXT: usize = 200;
const NAME: usize = 64;
const WARNINGS: usize = 4;
const MEASURES: usize = 16;

/// What a node is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// It opens its links, or agrees with the others where the run begins.
    #[default]
    Starting,
    /// It reads a checkpoint.
    Checkpoint,
    /// Its rounds run, and it has not waited for a second.
    Computing,
    /// It has waited for a second for frames of neighbours.
    Waiting,
    /// It has waited for a second until its own frames have left.
    Sending,
    /// It chooses members with the others.
    Choosing,
    /// Its rounds are over, and it waits until all nodes have their results.
    Finishing,
    /// The run is over.
    Done,
    /// It has left.
    Left,
    /// Its run has failed.
    Failed,
}

impl State {
    /// The word for it, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Checkpoint => "checkpoint",
            State::Computing => "computing",
            State::Waiting => "waiting",
            State::Sending => "sending",
            State::Choosing => "choosing",
            State::Finishing => "finishing",
            State::Done => "done",
            State::Left => "left",
            State::Failed => "failed",
        }
    }
}

/// Why a node sends no frames, although it is neither stuck nor gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtWork {
    /// It computes a gradient, evaluates its model or writes its results.
    Computes,
    /// It waits for a lost link.
    Reconnects,
}

/// The shares of its time that a node is busy beside its gradients, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// It decodes, mixes and encodes vectors.
    pub mixing: u8,
    /// It evaluates its model, and tells the program or writes figures and models.
    pub evaluating: u8,
    /// It reads, writes and removes checkpoints, and writes its results.
    pub disk: u8,
}

/// A checkpoint on a node's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The rounds before it.
    pub round: u64,
    /// Its age when the record was made, in milliseconds.
    pub age_ms: u64,
}

/// A link as one of its ends sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// The neighbour.
    pub to: NodeId,
    /// Whether it is linked.
    pub up: bool,
    /// Whether its connection goes through a relay.
    pub relayed: bool,
    /// The time of a round trip, in milliseconds, if it was measured.
    pub rtt_ms: Option<f32>,
    /// Bytes of frames a second over the last seconds.
    pub sent_bps: f32,
    /// The same of frames received.
    pub received_bps: f32,
    /// Why it is not linked.
    pub reason: String,
}

/// What a node says about itself. Nodes have their numbers in the topology of the run. Beside
/// figures of the run it tells nothing about rows that the summary of the run does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Greater than that of every record of this node before: milliseconds since 1970 if its clock
    /// is right.
    pub number: u64,
    /// What it is doing.
    pub state: State,
    /// For how long, in milliseconds.
    pub since_ms: u64,
    /// The nodes that take part, as it knows.
    pub members: Vec<NodeId>,
    /// The rounds that it has done.
    pub round: u64,
    /// The neighbours whose frames it lacks, if it has waited for a second.
    pub waits_for: Vec<NodeId>,
    /// Why it waits or does not begin, in words, if there is more to say.
    pub reason: String,
    /// The share of the last seconds in which it waited, in percent, to the next ten.
    pub waiting: Option<u8>,
    /// The share of the last seconds in which it computed gradients, in percent.
    pub computing: Option<u8>,
    /// The share of the last seconds in which its program was ready to run and was not run, in
    /// percent.
    pub held: Option<u8>,
    /// What else it did in the last seconds.
    pub busy: Option<Busy>,
    /// The mean time of a round in the last seconds, in microseconds.
    pub round_us: Option<u64>,
    /// The mean time of the gradients of a round in the last seconds, in microseconds.
    pub gradient_us: Option<u64>,
    /// The loss over the batches of its last round.
    pub loss: Option<f64>,
    /// Figures of its last evaluation: `test_loss`, `test_accuracy`, measures of the program.
    pub measures: BTreeMap<String, f64>,
    /// The rounds after which these were measured.
    pub evaluated: Option<u64>,
    /// Bytes of frames sent so far.
    pub sent: u64,
    /// Bytes of frames received so far.
    pub received: u64,
    /// Its newest checkpoint.
    pub checkpoint: Option<Kept>,
    /// How often one of its links was lost so far.
    pub outages: u32,
    /// The version of its program.
    pub program: String,
    /// For how long that has run, in milliseconds.
    pub uptime_ms: u64,
    /// Its last warnings, the newest last.
    pub warnings: Vec<String>,
    /// Its links.
    pub links: Vec<LinkRecord>,
    /// Why the others should wait for it longer than for one that does nothing.
    pub at_work: Option<AtWork>,
}

impl Record {
    /// What others must know: where it is in the run, and for whom it waits.
    pub(super) fn terse(self) -> Record {
        let Record { number, state, since_ms, members, round, waits_for, waiting, .. } = self;
        let (at_work, nothing) = (self.at_work, Record::default());
        let terse = Record { number, state, since_ms, members, round, waits_for, ..nothing };
        Record { waiting, at_work, ..terse }
    }

    /// Cuts what is longer than a record may be, and drops numbers that are not finite.
    pub(super) fn fit(&mut self) {
        let cut = |text: &mut String, most: usize| {
            if text.chars().count() > most {
                // What it says of the rest has some characters, too.
                *text = shorten(text, most - 40).into_owned();
            }
        };
        cut(&mut self.reason, TEXT);
        cut(&mut self.program, NAME);
        let extra = self.warnings.len().saturating_sub(WARNINGS);
        self.warnings.drain(..extra);
        self.warnings.iter_mut().for_each(|text| cut(text, TEXT));
        self.links.iter_mut().for_each(|link| cut(&mut link.reason, TEXT));
        let fits = |name: &String, value: &f64| value.is_finite() && name.len() <= NAME;
        self.measures.retain(|name, value| fits(name, value));
        while self.measures.len() > MEASURES {
            self.measures.pop_last();
        }
        self.loss = self.loss.filter(|loss| loss.is_finite());
    }

    /// Whether a node of a run with so many nodes can say this.
    pub(super) fn is_valid(&self, nodes: usize) -> bool {
        let exists = |node: &NodeId| node.index() < nodes;
        let short = |text: &String, most: usize| text.chars().count() <= most;
        let ends = self.links.iter().map(|link| &link.to);
        self.members.len() <= nodes
            && self.waits_for.len() <= nodes
            && self.links.len() <= nodes
            && self.members.iter().chain(&self.waits_for).chain(ends).all(exists)
            && short(&self.reason, TEXT)
            && short(&self.program, NAME)
            && self.warnings.len() <= WARNINGS
            && self.warnings.iter().all(|text| short(text, TEXT))
            && self.links.iter().all(|link| short(&link.reason, TEXT))
            && self.measures.len() <= MEASURES
            && self.measures.iter().all(|(name, value)| value.is_finite() && name.len() <= NAME)
            && self.loss.is_none_or(f64::is_finite)
            && self.waiting.is_none_or(|share| share <= 100)
            && self.computing.is_none_or(|share| share <= 100)
            && self.busy.is_none_or(|Busy { mixing, evaluating, disk }| {
                mixing.max(evaluating).max(disk) <= 100
            })
            && self.held.is_none_or(|share| share <= 100)
            && self.links.iter().all(|link| {
                [Some(link.sent_bps), Some(link.received_bps), link.rtt_ms]
                    .iter()
                    .flatten()
                    .all(|figure| figure.is_finite() && *figure >= 0.0)
            })
    }
}
